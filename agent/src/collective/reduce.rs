//! The own shard: rows are summed in the order of the ranks, encoded once, and sent to everyone.

use super::figures::Figures;
use super::step::{Scheme, encode_error};
use super::{MessageId, Phase, Replicas, StartError};
use crate::endpoint::Endpoint;
use crate::row::Row;
use crate::wire::cut_map::{CutMap, FULL};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use trimwire_encoder::{Decoding, EncodedRow, Encoder, Envelope, Importance, RowChoice, RowReceiver};

/// A row of the own shard: what the other ranks contribute, by rank. They are added in this order when all are there.
type Contributions = BTreeMap<u16, Box<RowReceiver>>;

/// The own shard under reduction.
#[derive(Debug)]
pub(super) struct Reduction {
    id: MessageId,
    /// Its coordinates in the gradient.
    range: Range<usize>,
    encoder: Encoder,
    importance: Importance,
    contributions: Vec<Contributions>,
    /// A row's sum.
    sum: Vec<f32>,
    /// Rows of which all contributions are there.
    ready: VecDeque<usize>,
    /// Rows that are encoded; they are supplied in order.
    encoded: BTreeMap<usize, Row>,
    next_supply: usize,
    figures: Vec<f64>,
    rows_left: usize,
    /// Consistent replicas: what was sent, the merged map, and receivers that have not reported.
    undecided: Vec<RowReceiver>,
    merged: Option<(CutMap, u16)>,
}

impl Reduction {
    pub(super) fn new(scheme: &Scheme, range: Range<usize>, figures: &Figures) -> Result<Self, StartError> {
        let id = MessageId::new(scheme.step, Phase::AllGather, scheme.rank);
        let encoder = scheme.encoder(scheme.rank, range.len())?;
        let layout = encoder.layout();
        let (rows, packets) = (layout.rows(), layout.packets());
        let consistent = scheme.replicas == Replicas::Consistent;
        Ok(Self {
            id,
            importance: figures.importance(id, range.len()),
            contributions: (0..rows).map(|_| Contributions::new()).collect(),
            sum: Vec::new(),
            ready: VecDeque::new(),
            encoded: BTreeMap::new(),
            next_supply: 0,
            figures: vec![0.0; rows],
            rows_left: rows,
            undecided: Vec::new(),
            merged: consistent.then(|| (CutMap::from_planes(vec![FULL; packets]), scheme.world - 1)),
            range,
            encoder,
        })
    }

    /// Takes a row of a rank's contribution.
    pub(super) fn take(&mut self, scheme: &Scheme, from: u16, receiver: Box<RowReceiver>) {
        let row = receiver.row();
        let Some(contributions) = self.contributions.get_mut(row) else { return };
        if contributions.insert(from, receiver).is_none()
            && contributions.len() + 1 == usize::from(scheme.world)
        {
            self.ready.push_back(row);
        }
    }

    /// Sums a row of which everything is there, and encodes it. `false`: there is none.
    pub(super) fn work(
        &mut self,
        now_ns: u64,
        scheme: &Scheme,
        gradient: &mut [f32],
        figures: &mut Figures,
        endpoint: &mut Endpoint,
    ) -> Result<bool, StartError> {
        let Some(row) = self.ready.pop_front() else { return Ok(false) };
        let coordinates = self.encoder.layout().row_coordinates(row);
        let own = &mut gradient[self.range.start + coordinates.start..self.range.start + coordinates.end];
        self.add_up(scheme, row, own, endpoint);
        let (ready, encoded) = self.encode(scheme, row, own, endpoint)?;
        self.figures[row] = encoded.figure;
        self.rows_left -= 1;
        self.encoded.insert(row, ready);
        while let Some(ready) = self.encoded.remove(&self.next_supply) {
            for peer in scheme.others() {
                let _ = endpoint.supply(now_ns, peer, self.id.to_u32(), self.next_supply, ready.clone());
            }
            self.next_supply += 1;
        }
        if self.rows_left == 0 {
            figures.learn(self.id, self.range.len(), &self.figures);
        }
        Ok(true)
    }

    /// Adds a row's contributions up, in the order of the ranks.
    fn add_up(&mut self, scheme: &Scheme, row: usize, own: &[f32], endpoint: &mut Endpoint) {
        let mut contributions = std::mem::take(&mut self.contributions[row]);
        self.sum.resize(own.len(), 0.0);
        for rank in 0..scheme.world {
            if rank == scheme.rank && rank == 0 {
                self.sum.copy_from_slice(own);
            } else if rank == scheme.rank {
                for (sum, value) in self.sum.iter_mut().zip(own) {
                    *sum += value;
                }
            } else if let Some(receiver) = contributions.remove(&rank) {
                // Never another length than the row's, which its layout was made for.
                let _ = if rank == 0 {
                    receiver.decode_into(&mut self.sum)
                } else {
                    receiver.add_into(&mut self.sum)
                };
                endpoint.recycle(*receiver);
            }
        }
    }

    /// Encodes a row of the sum. Others have what the packets say of it, so its owner takes that, too, rather than the sum itself.
    fn encode(
        &mut self,
        scheme: &Scheme,
        row: usize,
        result: &mut [f32],
        endpoint: &Endpoint,
    ) -> Result<(Row, EncodedRow), StartError> {
        let layout = self.encoder.layout();
        let values = &self.sum[..];
        let envelope = Envelope { stream: endpoint.stream(), message: self.id.to_u32() };
        let choice = RowChoice { planes: scheme.planes, importance: self.importance };
        let mut packets = scheme.buffers.take(self.encoder.row_len(row, scheme.planes));
        let failed = encode_error(scheme.step, scheme.rank);
        let keep = scheme.decoding == Decoding::Unbiased && self.merged.is_none();
        let encoded = if keep {
            self.encoder.encode_row_keeping(row, values, envelope, choice, &mut packets, result)
        } else {
            self.encoder.encode_row(row, values, envelope, choice, &mut packets)
        }
        .map_err(failed)?;
        let wrong = |_| StartError::Mismatch { step: scheme.step, shard: scheme.rank };
        let ready = Row::new(layout, row, &encoded, scheme.is_sealed(), scheme.buffers.lend(packets))
            .map_err(wrong)?;
        if !keep {
            let mut receiver = RowReceiver::new(layout, row, scheme.job(), envelope, scheme.decoding)
                .with_planes(scheme.planes);
            if let Some(sealer) = &scheme.sealer {
                receiver = receiver.sealed(sealer.clone());
            }
            for nth in 0..layout.row_packets(row).len() {
                // Refuses none of them: they come from an encoder of the same layout.
                let _ = receiver.receive(&ready.packet(nth));
            }
            if self.merged.is_some() {
                self.undecided.push(receiver);
            } else {
                let _ = receiver.decode_into(result);
            }
        }
        Ok((ready, encoded))
    }

    /// Consistent replicas: a receiver has reported what it has. Gives the map that all decode by, when it was the last.
    pub(super) fn merge(&mut self, map: &CutMap) -> Option<CutMap> {
        let (merged, waiting) = self.merged.as_mut()?;
        merged.merge_minimum(map);
        *waiting -= 1;
        if *waiting > 0 {
            return None;
        }
        self.merged.take().map(|(map, _)| map)
    }

    /// Consistent replicas: what was sent, by row, for who decodes it.
    pub(super) fn take_undecided(&mut self) -> Vec<RowReceiver> {
        std::mem::take(&mut self.undecided)
    }

    /// Whether all rows have been summed and sent.
    pub(super) fn is_finished(&self) -> bool {
        self.rows_left == 0 && self.undecided.is_empty() && self.merged.is_none()
    }
}
