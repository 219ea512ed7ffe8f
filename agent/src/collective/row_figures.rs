// SPDX-License-Identifier: Apache-2.0
//! What a rank remembers from one operation to the next: how much the rows that it sent were worth.

use super::{MessageId, Phase};
use std::collections::BTreeMap;
use trimwire_encoder::{Importance, RowFigures};

/// The figures of the messages that this rank sends of a tensor, again and again: its part of each
/// shard in the reduce-scatter, its own shard's sum in the all-gather. Each is compared with itself
/// one time ago (docs/reference/wire-format.md §7).
#[derive(Debug, Default)]
pub(super) struct FigureMemory(BTreeMap<(u32, Phase, u16), (usize, RowFigures)>);

impl FigureMemory {
    /// Of the rows of a message of so many coordinates.
    pub(super) fn importance(&self, tag: u32, id: MessageId, coordinates: usize) -> Importance {
        let figures = self.0.get(&(tag, id.phase, id.shard)).filter(|(learnt, _)| *learnt == coordinates);
        figures.map_or(Importance::Always, |(_, figures)| figures.importance())
    }

    /// Takes those of all rows of a message that is sent. FigureMemory of another length are
    /// another gradient's, and forgotten.
    pub(super) fn learn(&mut self, tag: u32, id: MessageId, coordinates: usize, figures: &[f64]) {
        let entry = self.0.entry((tag, id.phase, id.shard)).or_default();
        if entry.0 != coordinates {
            *entry = (coordinates, RowFigures::default());
        }
        entry.1.learn_from(figures.iter().copied());
    }
}
