// SPDX-License-Identifier: Apache-2.0
//! What a batch has changed, so that it can be undone: its cost is that of the batch, however much
//! state the program has.

use std::collections::{BTreeMap, BTreeSet};

use super::super::entity::{CloneOptions, CounterValue, Replica};
use super::super::meter::Meter;
use super::super::parser::ValueSet;
use super::super::table::call::Target;
use super::super::table::{Direct, Entry};

/// One thing as it was.
#[derive(Clone, Debug)]
pub(super) enum Before {
    /// `None`: the place was free.
    Entry {
        table: usize,
        place: u32,
        entry: Option<Box<Entry>>,
    },
    Default {
        table: usize,
        target: Option<Target>,
        direct: Direct,
    },
    Counter {
        counter: usize,
        cell: usize,
        value: CounterValue,
    },
    Register {
        register: usize,
        cell: u32,
        limbs: Box<[u64]>,
    },
    Meter {
        meter: usize,
        cell: usize,
        state: Meter,
    },
    /// `None`: there was none.
    Multicast {
        id: u16,
        replicas: Option<Vec<Replica>>,
    },
    Clone {
        id: u16,
        replicas: Option<Vec<Replica>>,
        options: Option<CloneOptions>,
    },
}

/// The changes of a batch. Cells and entries are kept one by one; things whose parts hang together,
/// as a whole, as they were when the batch first touched them.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    pub(super) changes: Vec<Before>,
    pub(super) profiles: BTreeSet<usize>,
    pub(super) value_sets: BTreeMap<usize, ValueSet>,
}
