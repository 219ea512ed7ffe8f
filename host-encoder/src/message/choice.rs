// SPDX-License-Identifier: Apache-2.0
//! What a sender chooses for a row, and what becomes of it.

use crate::element::{Element, Values, ValuesMut};
use crate::encode::importance::Importance;
use crate::wire::Codec;

/// What a sender chooses for a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowChoice {
    /// Planes that are sent, from 1 to all that the codec has.
    pub planes: u8,
    /// Whether others are trimmed first.
    pub importance: Importance,
}

impl RowChoice {
    /// Everything, and important.
    pub const fn whole(codec: Codec) -> Self {
        Self { planes: codec.planes(), importance: Importance::Always }
    }
}

/// A row's values, and what else is done while they are encoded.
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

    /// Prefetches `next`, which the same thread will encode after these values.
    /// [`super::Encoder::encode`] does so by itself.
    pub fn before<E: Element>(self, next: &'a [E]) -> Self {
        Self { next: E::values(next), ..self }
    }

    /// Writes to `own` (of the row's shape) what a receiver of the whole packets decodes without
    /// bias, bit for bit. So the owner of a sum keeps the same bits as its receivers.
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
    /// Its energy per coordinate (mean square, padding included), from which the next step's
    /// importance follows; NaN where it is not finite.
    pub figure: f64,
    /// Whether its packets are marked as important.
    pub important: bool,
    /// Whether it was rotated twice (docs/reference/wire-format.md §3).
    pub twice: bool,
}
