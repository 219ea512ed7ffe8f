// SPDX-License-Identifier: Apache-2.0
//! A batch: what is changed in it is noted, and can be undone.

use super::Control;
use super::journal::{Before, Journal};

/// Idle timers need no undoing: one whose entry has another generation is nobody's.
impl Control {
    /// From here on what is changed can be undone; packets have to wait.
    pub fn begin_batch(&mut self) {
        self.journal = Some(Box::default());
    }

    /// What the batch has changed stays.
    pub fn end_batch(&mut self) {
        let journal = self.journal.take();
        for index in journal.into_iter().flat_map(|journal| journal.profiles) {
            self.profiles[index].end_batch();
        }
    }

    /// Everything is as it was when the batch began, and the batch is over.
    pub fn undo_batch(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        self.generation += 1;
        let Journal { changes, profiles, value_sets } = *journal;
        for change in changes.into_iter().rev() {
            match change {
                Before::Entry { table, place, entry } => {
                    self.tables[table].restore(place, entry.map(|entry| *entry));
                }
                Before::Default { table, target, direct } => {
                    let table = &mut self.tables[table];
                    (table.default, table.default_direct) = (target, direct);
                }
                Before::Counter { counter, cell, value } => {
                    self.arrays.set_counter(counter, cell, value);
                }
                Before::Register { register, cell, limbs } => {
                    if let Some(place) = self.arrays.register_mut(register, cell) {
                        place.copy_from_slice(&limbs);
                    }
                }
                Before::Meter { meter, cell, state } => self.meters[meter].cells[cell] = state,
                Before::Multicast { id, replicas } => self.multicast.restore(id, replicas),
                Before::Clone { id, replicas, options } => {
                    self.clone_sessions.restore(id, replicas);
                    match options {
                        Some(options) => self.clone_options.insert(id, options),
                        None => self.clone_options.remove(&id),
                    };
                }
            }
        }
        profiles.into_iter().for_each(|index| self.profiles[index].undo_batch());
        value_sets.into_iter().for_each(|(index, set)| self.value_sets[index] = set);
    }

    pub(super) fn note_entry(&mut self, table: usize, place: u32) {
        self.generation += 1;
        if let Some(journal) = &mut self.journal {
            let entry = self.tables[table].entries.get(place as usize).and_then(Option::as_ref);
            journal.changes.push(Before::Entry { table, place, entry: entry.cloned().map(Box::new) });
        }
    }

    pub(super) fn note_default(&mut self, table: usize) {
        self.generation += 1;
        if let Some(journal) = &mut self.journal {
            let state = &self.tables[table];
            let (target, direct) = (state.default.clone(), state.default_direct.clone());
            journal.changes.push(Before::Default { table, target, direct });
        }
    }

    pub(super) fn note_counter(&mut self, counter: usize, cell: usize) {
        if let Some(journal) = &mut self.journal
            && let Some(value) = self.arrays.counter(counter, cell)
        {
            journal.changes.push(Before::Counter { counter, cell, value });
        }
    }

    pub(super) fn note_register(&mut self, register: usize, cell: u32) {
        if let Some(journal) = &mut self.journal
            && let Some(limbs) = self.arrays.register(register, cell)
        {
            journal.changes.push(Before::Register { register, cell, limbs: limbs.into() });
        }
    }

    pub(super) fn note_meter(&mut self, meter: usize, cell: usize) {
        if let Some(journal) = &mut self.journal
            && let Some(state) = self.meters[meter].cells.get(cell)
        {
            journal.changes.push(Before::Meter { meter, cell, state: state.clone() });
        }
    }

    pub(super) fn note_profile(&mut self, index: usize) {
        self.generation += 1;
        if let Some(journal) = &mut self.journal {
            journal.profiles.insert(index);
            self.profiles[index].begin_batch();
        }
    }

    pub(super) fn note_value_set(&mut self, index: usize) {
        if let Some(journal) = &mut self.journal {
            journal.value_sets.entry(index).or_insert_with(|| self.value_sets[index].clone());
        }
    }

    pub(super) fn note_multicast(&mut self, id: u16) {
        if let Some(journal) = &mut self.journal {
            let replicas = self.multicast.get(id).map(<[_]>::to_vec);
            journal.changes.push(Before::Multicast { id, replicas });
        }
    }

    pub(super) fn note_clone(&mut self, id: u16) {
        if let Some(journal) = &mut self.journal {
            let replicas = self.clone_sessions.get(id).map(<[_]>::to_vec);
            let options = self.clone_options.get(&id).copied();
            journal.changes.push(Before::Clone { id, replicas, options });
        }
    }
}
