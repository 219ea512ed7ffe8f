// SPDX-License-Identifier: Apache-2.0
//! Space-Saving: the heaviest keys of a stream in as many counters as there is room for (Metwally, Agrawal, El Abbadi: Efficient
//! Computation of Frequent and Top-k Elements in Data Streams, ICDT 2005, section 3), with weights.
//!
//! A key without a counter takes the least one over, and what that had counted with it. So of a stream of weight N in k counters every key
//! of more than N / k has one, and none has inherited more than N / k.

use std::collections::BTreeMap;

/// What is known of a key: one of the algorithm's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Estimate {
    /// Surely of this key.
    pub packets: u64,
    /// Of keys that had the counter before, or of this one when it had none.
    pub inherited: u64,
    /// Bytes of `packets`.
    pub bytes: u64,
    pub samples: u64,
    /// When the last of them came.
    pub last_ns: u64,
}

impl Estimate {
    fn weight(&self) -> u64 {
        self.packets + self.inherited
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.inherited += other.inherited;
        self.bytes += other.bytes;
        self.samples += other.samples;
        self.last_ns = self.last_ns.max(other.last_ns);
    }
}

/// The counters of a stream.
#[derive(Debug, Clone)]
pub(super) struct SpaceSaving<K> {
    room: usize,
    estimates: BTreeMap<K, Estimate>,
}

impl<K: Ord + Copy> SpaceSaving<K> {
    pub(super) fn new(room: usize) -> Self {
        Self { room, estimates: BTreeMap::new() }
    }

    /// A sample of so many packets and bytes.
    pub(super) fn add(&mut self, key: K, now_ns: u64, packets: u64, bytes: u64) {
        let mut inherited = 0;
        if !self.estimates.contains_key(&key) && self.estimates.len() >= self.room {
            let least = self.estimates.iter().min_by_key(|(_, estimate)| estimate.weight());
            if let Some((least, weight)) = least.map(|(key, estimate)| (*key, estimate.weight())) {
                self.estimates.remove(&least);
                inherited = weight;
            }
        }
        let estimate = self.estimates.entry(key).or_insert(Estimate { inherited, ..Estimate::default() });
        estimate.merge(&Estimate { packets, inherited: 0, bytes, samples: 1, last_ns: now_ns });
    }

    pub(super) fn estimates(&self) -> impl Iterator<Item = (&K, &Estimate)> {
        self.estimates.iter()
    }
}
