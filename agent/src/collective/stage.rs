// SPDX-License-Identifier: Apache-2.0
//! What happens to one shard at this rank, row by row, as its [`Blueprint`] says.

use super::agenda::Ready;
use super::common_precision::{CommonPrecision, Step};
use super::memory::Memory;
use super::plan::{Blueprint, Place, Tensor};
use super::row_figures::FigureMemory;
use super::scheme::Scheme;
use super::task::{Done, Encoded, Encoding, Fold, Key, Kind, Own, Store, Task, Work};
use super::{MessageId, OperationError, Phase, Replicas, StartError};
use crate::endpoint::Endpoint;
use crate::row::Row;
use crate::wire::trim_map::{FULL, TrimMap};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use trimwire_encoder::{Encoder, Envelope, Importance, Layout, RowReceiver};

/// Packets that wait for the network, of one message: a row and what is being sent of the one
/// before.
const AHEAD: usize = 128;

/// The two tensors of an operation.
#[derive(Debug, Default)]
pub(super) struct Tensors {
    pub(super) input: Option<Memory>,
    pub(super) output: Option<Memory>,
}

impl Tensors {
    fn at(&self, place: Place) -> Option<&Memory> {
        match place.tensor {
            Tensor::Input => self.input.as_ref(),
            Tensor::Output => self.output.as_ref(),
        }
    }
}

/// A shard under way.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) blueprint: Blueprint,
    layout: Layout,
    /// `None` where nothing is sent.
    encoding: Option<Arc<Encoding>>,
    /// Of each row, what other ranks contribute, until all are there.
    contributions: Vec<BTreeMap<u16, Box<RowReceiver>>>,
    /// Rows of which all contributions are there.
    foldable: VecDeque<usize>,
    /// The next row that needs no contributions.
    next_source: usize,
    /// Received rows that are to be written as they are.
    storable: VecDeque<Box<RowReceiver>>,
    /// Consistent replicas: rows whose precision is not agreed yet.
    undecided: Vec<RowReceiver>,
    common_precision: Option<CommonPrecision>,
    /// Rows that threads work on.
    in_work: usize,
    /// Rows that are encoded; they are supplied in order.
    encoded: BTreeMap<usize, Row>,
    next_supply: usize,
    figures: Vec<f64>,
    /// Rows that are still to be folded, and to be stored.
    folds_left: usize,
    stores_left: usize,
}

impl Stage {
    pub(super) fn new(
        scheme: &Scheme,
        blueprint: Blueprint,
        figures: &FigureMemory,
    ) -> Result<Self, StartError> {
        let layout = scheme.layout(blueprint.shard, blueprint.length)?;
        let rows = layout.rows();
        let sends = !blueprint.to.is_empty();
        let id = MessageId::new(scheme.number, blueprint.phase_out, blueprint.shard);
        let agrees = scheme.replicas() == Replicas::Consistent && blueprint.phase_out == Phase::AllGather;
        let common_precision = (agrees && sends)
            .then(|| CommonPrecision::new(scheme.codec(), scheme.planes(), blueprint.to.len()));
        let origin = blueprint.origin.and_then(|origin| scheme.origin(origin, blueprint.shard));
        let encoder = |encoder: Encoder| match origin {
            Some(origin) => encoder.with_origin(origin),
            None => encoder,
        };
        let encoding = || Encoding {
            encoder: encoder(scheme.encoder(layout.clone())),
            passes: origin.is_some(),
            codec: scheme.codec(),
            job: scheme.job(),
            envelope: Envelope { stream: scheme.stream, message: id.to_u32() },
            planes: scheme.planes(),
            packs: scheme.packs,
            // Pairs of elements have no energy that means anything.
            importance: if scheme.packs {
                Importance::Always
            } else {
                figures.importance(scheme.options.tag, id, blueprint.length)
            },
            buffers: scheme.buffers.clone(),
            sealer: scheme.sealer.clone(),
            mask: scheme.mask,
            decoding: scheme.options.decoding,
            undecided: common_precision.is_some(),
        };
        let encoding = sends.then(|| Arc::new(encoding()));
        let stores = blueprint.only_stores();
        // What this rank sent is decoded here, too, once it is agreed how much of it counts.
        let stores_again = common_precision.is_some() && blueprint.write.is_some();
        Ok(Self {
            contributions: (0..if stores { 0 } else { rows }).map(|_| BTreeMap::new()).collect(),
            foldable: VecDeque::new(),
            next_source: if blueprint.from.is_empty() { 0 } else { rows },
            storable: VecDeque::new(),
            undecided: Vec::new(),
            common_precision,
            in_work: 0,
            encoded: BTreeMap::new(),
            next_supply: 0,
            figures: vec![0.0; rows],
            folds_left: if stores { 0 } else { rows },
            stores_left: if stores || stores_again { rows } else { 0 },
            blueprint,
            layout,
            encoding,
        })
    }

    pub(super) fn rows(&self) -> usize {
        self.layout.rows()
    }

    /// The row's elements in the shard.
    fn elements(&self, scheme: &Scheme, row: usize) -> Range<usize> {
        let Range { start, end } = self.layout.row_coordinates(row);
        if scheme.packs { 2 * start..(2 * end).min(self.blueprint.length) } else { start..end }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The message that it sends.
    pub(super) fn message(&self, scheme: &Scheme) -> MessageId {
        MessageId::new(scheme.number, self.blueprint.phase_out, self.blueprint.shard)
    }

    /// Whether rows are left that need no contributions.
    pub(super) fn has_sources(&self) -> bool {
        self.next_source < self.rows()
    }

    /// Takes a row that came from another rank.
    pub(super) fn take(&mut self, scheme: &Scheme, from: u16, receiver: Box<RowReceiver>) -> Ready {
        if self.blueprint.only_stores() {
            if scheme.replicas() == Replicas::Consistent {
                self.undecided.push(*receiver);
                return Ready::Nothing;
            }
            self.storable.push_back(receiver);
            return Ready::Store(1);
        }
        let row = receiver.row();
        let Some(contributions) = self.contributions.get_mut(row) else { return Ready::Nothing };
        if contributions.insert(from, receiver).is_some() || contributions.len() < self.blueprint.from.len() {
            return Ready::Nothing;
        }
        self.foldable.push_back(row);
        Ready::Fold
    }

    /// Consistent replicas: a receiver has reported what it has, and whether that is all it will
    /// have.
    pub(super) fn report(&mut self, from: u16, map: TrimMap, content: bool) -> Step {
        let Some(common_precision) = &mut self.common_precision else { return Step::Wait };
        let energy = |packet: u32| {
            let row = self.layout.packet_row(packet as usize);
            self.figures.get(row).copied().unwrap_or(0.0)
        };
        let step = common_precision.report(from, map, content, energy);
        if matches!(step, Step::Agreed(_)) {
            self.common_precision = None;
        }
        step
    }

    /// The precision is agreed: rows forget what not every replica has.
    pub(super) fn decide(&mut self, map: &TrimMap) -> Ready {
        let undecided = std::mem::take(&mut self.undecided);
        let rows = undecided.len();
        for mut row in undecided {
            for index in self.layout.row_packets(row.row()) {
                let planes = map.planes(index as u32);
                if planes < FULL {
                    row.limit(index, planes);
                }
            }
            self.storable.push_back(Box::new(row));
        }
        Ready::Store(rows)
    }

    /// Work on a row whose contributions are all there. `free` tells whether a row's place in
    /// memory is.
    pub(super) fn poll_fold(
        &mut self,
        key: Key,
        scheme: &Scheme,
        tensors: &Tensors,
        free: impl Fn(usize) -> bool,
    ) -> Option<Task> {
        let at = self.foldable.iter().position(|&row| free(row))?;
        let row = *self.foldable.get(at)?;
        let task = self.fold(Key { row, shard: self.blueprint.shard, ..key }, scheme, tensors)?;
        self.foldable.remove(at);
        Some(task)
    }

    /// Work on the next row that needs no contributions, if a receiver is about to run out of
    /// packets.
    pub(super) fn poll_source(
        &mut self,
        key: Key,
        scheme: &Scheme,
        tensors: &Tensors,
        endpoint: &Endpoint,
    ) -> Option<Task> {
        let row = self.next_source;
        if row >= self.rows() {
            return None;
        }
        let ahead: usize = (self.next_supply..row).map(|row| self.layout.row_packets(row).len()).sum();
        let message = self.message(scheme).to_u32();
        // What is encoded elsewhere has its memory already, and is done many rows at a time. Under
        // a deadline a receiver that takes nothing must not keep the tensor from this rank's
        // caller.
        let paced = scheme.device.is_none() && scheme.options.deadline_ns.is_none();
        let waits = |&to: &u16| paced && endpoint.backlog(to, message) as usize + ahead > AHEAD;
        if !self.blueprint.to.is_empty() && self.blueprint.to.iter().any(waits) {
            return None;
        }
        let task = self.fold(Key { row, shard: self.blueprint.shard, ..key }, scheme, tensors)?;
        self.next_source += 1;
        Some(task)
    }

    fn fold(&mut self, key: Key, scheme: &Scheme, tensors: &Tensors) -> Option<Task> {
        let (row, blueprint) = (key.row, &self.blueprint);
        let coordinates = self.elements(scheme, row);
        let lease = |place: Place, coordinates: &Range<usize>, write| {
            tensors.at(place)?.lease(place.start + coordinates.start..place.start + coordinates.end, write)
        };
        let write = match blueprint.write {
            Some(place) => Some(lease(place, &coordinates, true)?),
            None => None,
        };
        let own = match blueprint.own {
            None => Own::None,
            Some(_) if blueprint.own == blueprint.write => Own::InPlace,
            // With the next row, that the machine can be asked for it.
            Some(place) if blueprint.from.is_empty() && row + 1 < self.rows() => {
                Own::Apart(lease(place, &(coordinates.start..self.elements(scheme, row + 1).end), false)?)
            }
            Some(place) => Own::Apart(lease(place, &coordinates, false)?),
        };
        let contributions = self.contributions.get_mut(row).map(std::mem::take).unwrap_or_default();
        self.in_work += 1;
        let fold = Fold {
            rank: scheme.rank,
            own,
            length: coordinates.len(),
            contributions: contributions.into_iter().collect(),
            packs: scheme.packs,
            scale: scheme.scale().filter(|_| blueprint.sums),
            encoding: self.encoding.clone(),
            write,
        };
        Some(Task { key, work: Work::Fold(Box::new(fold)) })
    }

    /// Work on a received row that is to be written. `free` tells whether a row's place is.
    pub(super) fn poll_store(
        &mut self,
        key: Key,
        scheme: &Scheme,
        tensors: &Tensors,
        free: impl Fn(usize) -> bool,
    ) -> Option<Task> {
        // The sum takes the place of this rank's part, which has long been sent, or there would be
        // no sum; but for owners who do without it.
        let at = self.storable.iter().position(|row| free(row.row()))?;
        let place = self.blueprint.write?;
        let coordinates = self.elements(scheme, self.storable[at].row());
        let range = place.start + coordinates.start..place.start + coordinates.end;
        let write = tensors.at(place)?.lease(range, true)?;
        let row = self.storable.remove(at)?;
        self.in_work += 1;
        let key = Key { row: row.row(), shard: self.blueprint.shard, ..key };
        let positive_zeros = scheme.replicas() == Replicas::Consistent;
        Some(Task {
            key,
            work: Work::Store(Box::new(Store { row, write, positive_zeros, packs: scheme.packs })),
        })
    }

    /// Takes finished work. What is encoded leaves, in order.
    pub(super) fn complete(
        &mut self,
        now_ns: u64,
        done: Done,
        scheme: &Scheme,
        figures: &mut FigureMemory,
        endpoint: &mut Endpoint,
    ) -> Result<(), OperationError> {
        self.in_work -= 1;
        for receiver in done.spent {
            endpoint.recycle(receiver);
        }
        let (number, shard) = (scheme.number, self.blueprint.shard);
        let encoded = match done.kind {
            Kind::Stored => {
                self.stores_left -= 1;
                return Ok(());
            }
            Kind::Failed => return Err(OperationError::Elsewhere { number, shard }),
            Kind::Folded(folded) => {
                folded.map_err(|reason| OperationError::Encode { number, shard, reason })?
            }
        };
        self.folds_left -= 1;
        let Some(Encoded { row, figure, kept }) = encoded else { return Ok(()) };
        let row = row.ok_or(OperationError::Mismatch { number, shard })?;
        self.undecided.extend(kept.map(|kept| *kept));
        self.figures[done.key.row] = figure;
        self.encoded.insert(done.key.row, row);
        let id = self.message(scheme);
        while let Some(ready) = self.encoded.remove(&self.next_supply) {
            for &peer in &self.blueprint.to {
                // A message that has been given up takes no more rows; its operation ends with the
                // event that says so.
                let _ = endpoint.supply(now_ns, peer, id.to_u32(), self.next_supply, ready.clone());
            }
            self.next_supply += 1;
        }
        if self.folds_left == 0 && !scheme.options.exact {
            figures.learn(scheme.options.tag, id, self.blueprint.length, &self.figures);
        }
        Ok(())
    }

    /// Whether this rank has what it should have of the shard, and has sent what it should send.
    pub(super) fn is_finished(&self) -> bool {
        self.folds_left == 0 && self.stores_left == 0 && self.common_precision.is_none() && self.in_work == 0
    }
}
