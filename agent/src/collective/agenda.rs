// SPDX-License-Identifier: Apache-2.0
//! Which stages of an operation have work: among a thousand ranks there are thousands of stages,
//! and one row at a time is ready.

use std::collections::VecDeque;

/// Something that became ready at a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    Nothing,
    /// A row of which all contributions are there.
    Fold,
    /// So many rows that are to be written.
    Store(usize),
}

/// Indices of stages.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// One entry for each row.
    pub(super) folds: VecDeque<usize>,
    /// Those that have rows left, in turns, so that all links are in use.
    pub(super) sources: VecDeque<usize>,
    /// One entry for each row.
    pub(super) stores: VecDeque<usize>,
}

impl Agenda {
    pub(super) fn add(&mut self, stage: usize, ready: Ready) {
        match ready {
            Ready::Nothing => {}
            Ready::Fold => self.folds.push_back(stage),
            Ready::Store(rows) => self.stores.extend(std::iter::repeat_n(stage, rows)),
        }
    }
}

/// The first stage that gives something, with what it gives; it leaves the queue, and those before
/// it go behind the others.
pub(super) fn first<T>(
    queue: &mut VecDeque<usize>,
    mut poll: impl FnMut(usize) -> Option<T>,
) -> Option<(usize, T)> {
    for _ in 0..queue.len() {
        let stage = queue.pop_front()?;
        if let Some(got) = poll(stage) {
            return Some((stage, got));
        }
        queue.push_back(stage);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_looked_at_once_and_only_what_gave_something_leaves() {
        let mut queue = VecDeque::from([1, 2, 3, 4]);
        let mut looked = Vec::new();
        let mut poll = |stage: usize| {
            looked.push(stage);
            (stage == 3).then_some("three")
        };
        assert_eq!(first(&mut queue, &mut poll), Some((3, "three")));
        assert_eq!(queue, [4, 1, 2]);
        assert_eq!(first(&mut queue, &mut poll), None);
        assert_eq!((looked, queue), (vec![1, 2, 3, 4, 1, 2], VecDeque::from([4, 1, 2])));
    }
}
