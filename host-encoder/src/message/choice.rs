//! What a sender chooses for a row, and what becomes of it.

use crate::encode::importance::Importance;
use crate::wire::Codec;

/// What a sender chooses for a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowChoice {
    /// Planes that are sent, from 1 to all that the codec has: a sender that compresses ahead of time does what a switch does when it cuts.
    pub planes: u8,
    /// Whether others are cut first.
    pub importance: Importance,
}

impl RowChoice {
    /// Everything, and important.
    pub const fn whole(codec: Codec) -> Self {
        Self { planes: codec.planes(), importance: Importance::Always }
    }
}

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EncodedRow {
    /// Planes that its packets carry.
    pub planes: u8,
    /// Its energy per coordinate (mean square, padding included), from which the next step's importance follows; NaN where it is not finite.
    pub figure: f64,
    /// Whether its packets are marked as important.
    pub important: bool,
    /// Whether it was rotated twice (docs/wire-format.md §3).
    pub twice: bool,
}
