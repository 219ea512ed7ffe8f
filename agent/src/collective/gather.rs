//! All-gather, receiving side: sums of other shards, decoded into the result as they arrive.

use super::Replicas;
use super::parts::Parts;
use super::shard_range;
use super::step::Scheme;
use crate::endpoint::Endpoint;
use crate::wire::cut_map::{CutMap, FULL};
use std::collections::{BTreeMap, VecDeque};
use trimwire_encoder::{Layout, RowReceiver};

/// Rows to be decoded.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    layouts: BTreeMap<u16, Layout>,
    ready: VecDeque<(u16, Box<RowReceiver>)>,
    /// Consistent replicas: rows whose precision is not agreed yet.
    undecided: BTreeMap<u16, Vec<RowReceiver>>,
    rows_left: usize,
}

impl Gathering {
    /// A shard will come.
    pub(super) fn expect(&mut self, shard: u16, layout: Layout) {
        self.rows_left += layout.rows();
        self.layouts.insert(shard, layout);
    }

    /// Takes a row of a shard's sum.
    pub(super) fn take(&mut self, scheme: &Scheme, shard: u16, row: Box<RowReceiver>) {
        match scheme.replicas {
            Replicas::Free => self.ready.push_back((shard, row)),
            Replicas::Consistent => self.undecided.entry(shard).or_default().push(*row),
        }
    }

    /// Its precision is agreed: rows forget what not every replica has.
    pub(super) fn decide(&mut self, scheme: &Scheme, shard: u16, rows: Vec<RowReceiver>, map: &CutMap) {
        let Some(layout) = self.layouts.get(&shard).cloned().or_else(|| scheme.layout_of(shard)) else {
            return;
        };
        let arrived = self.undecided.remove(&shard).unwrap_or_default();
        for mut row in arrived.into_iter().chain(rows) {
            for index in layout.row_packets(row.row()) {
                let planes = map.planes(index as u32);
                if planes < FULL {
                    row.limit(index, planes);
                }
            }
            self.ready.push_back((shard, Box::new(row)));
        }
    }

    /// The own shard's rows are decoded here, too, once they are decided.
    pub(super) fn add_rows(&mut self, rows: usize) {
        self.rows_left += rows;
    }

    /// Decodes a row. `false`: there is none.
    pub(super) fn work(
        &mut self,
        scheme: &Scheme,
        parts: &Parts,
        gradient: &mut [f32],
        endpoint: &mut Endpoint,
    ) -> bool {
        // The sum takes the place of this rank's part, which has long been sent, or there would be no sum; but for owners who do without it.
        let free = |(shard, row): &(u16, Box<RowReceiver>)| row.row() < parts.encoded(*shard);
        let Some(at) = self.ready.iter().position(free) else { return false };
        let Some((shard, row)) = self.ready.remove(at) else { return false };
        let Some(layout) = self.layouts.get(&shard).cloned().or_else(|| scheme.layout_of(shard)) else {
            return false;
        };
        let range = shard_range(gradient.len(), scheme.world, shard);
        let values = &mut gradient[range][layout.row_coordinates(row.row())];
        // Of the row's length.
        let _ = row.decode_into(values);
        if scheme.replicas == Replicas::Consistent {
            // A row that no replica may use decodes to +0 where nothing of it arrived, and to ±0 where something did:
            // −0 + 0 is +0.
            values.iter_mut().for_each(|value| *value += 0.0);
        }
        self.rows_left -= 1;
        endpoint.recycle(*row);
        true
    }

    /// Whether all rows have come and been decoded.
    pub(super) fn is_finished(&self) -> bool {
        self.rows_left == 0
    }
}
