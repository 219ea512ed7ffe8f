// SPDX-License-Identifier: Apache-2.0
//! Times at which table entries are worth looking at.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    pub(super) at_ns: u64,
    pub(super) table: u32,
    pub(super) handle: u32,
    pub(super) generation: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct IdleTimers {
    pub(super) heap: BinaryHeap<Reverse<Timer>>,
    pub(super) generations: u64,
}
