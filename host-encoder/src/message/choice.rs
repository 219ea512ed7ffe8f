// SPDX-License-Identifier: Apache-2.0
//! What a sender chooses for a row, and what becomes of it.

use crate::element::{Element, Values, ValuesMut};
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

/// A row's values, and what else is to be done while they are encoded. Values alone, of any format, are a job, too.
#[derive(Debug)]
pub struct RowJob<'a> {
    pub(super) values: Values<'a>,
    pub(super) next: Values<'a>,
    pub(super) own: Option<ValuesMut<'a>>,
}

impl<'a> RowJob<'a> {
    /// Values, and nothing else.
    pub fn of<E: Element>(values: &'a [E]) -> Self {
        Self { values: E::values(values), next: E::values(&[]), own: None }
    }

    /// Meanwhile asks the machine for `next`, values that the same thread will encode after these: as many of them as
    /// this row has. A hint, which changes no packet and shortens the way of a gradient that is in memory, not in a cache. [`super::Encoder::encode`] gives it by itself.
    pub fn before<E: Element>(self, next: &'a [E]) -> Self {
        Self { next: E::values(next), ..self }
    }

    /// Writes to `own` (of the row's shape) what a receiver of the uncut packets decodes without bias, bit for bit. So the owner of a sum keeps
    /// the same bits as everyone whom it sends it to. It costs the way back from code words to coordinates, but no packet is read again.
    pub fn keeping<E: Element>(self, own: &'a mut [E]) -> Self {
        Self { own: Some(E::values_mut(own)), ..self }
    }
}

impl<'a, E: Element> From<&'a [E]> for RowJob<'a> {
    fn from(values: &'a [E]) -> Self {
        Self::of(values)
    }
}

impl<'a, E: Element> From<&'a Vec<E>> for RowJob<'a> {
    fn from(values: &'a Vec<E>) -> Self {
        Self::of(values)
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
    /// Whether it was rotated twice (docs/reference/wire-format.md §3).
    pub twice: bool,
}
