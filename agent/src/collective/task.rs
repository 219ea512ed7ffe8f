// SPDX-License-Identifier: Apache-2.0
//! Work on one row, which any thread may do: it owns what it needs, and leases the row's place in
//! memory.

use super::buffers::Buffers;
use super::device::Device;
use super::halves;
use super::memory::{Lease, Number, View, ViewMut};
use crate::row::Row;
use half::{bf16, f16};
use std::cell::RefCell;
use std::sync::Arc;
use trimwire_encoder::{
    Codec, Decoding, Element, EncodeError, EncodedRow, Encoder, Envelope, HeaderMask, Importance, Job,
    RowChoice, RowJob, RowReceiver, Sealer,
};

/// Whose work it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) operation: u32,
    pub(super) stage: usize,
    /// The stage's.
    pub(super) shard: u16,
    pub(super) row: usize,
}

/// A row's worth of coding: some ten to a hundred microseconds. Dropping one unfinished leaves its
/// operation waiting for ever.
#[derive(Debug)]
pub struct Task {
    pub(super) key: Key,
    pub(super) work: Work,
}

#[derive(Debug)]
pub(super) enum Work {
    Fold(Box<Fold>),
    Store(Box<Store>),
}

/// A task that is done.
#[derive(Debug)]
pub struct Done {
    pub(super) key: Key,
    pub(super) kind: Kind,
    /// Receivers whose memory may be used again.
    pub(super) spent: Vec<RowReceiver>,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// What is to be sent, where something is.
    Folded(Result<Option<Encoded>, EncodeError>),
    Stored,
    /// Whoever does it elsewhere could not.
    Failed,
}

/// An encoded row.
#[derive(Debug)]
pub(super) struct Encoded {
    /// `None`: the encoder wrote something else than a row's packets.
    pub(super) row: Option<Row>,
    pub(super) figure: f64,
    /// What a receiver of all packets has, where the precision is still to be agreed on.
    pub(super) kept: Option<Box<RowReceiver>>,
}

/// Sums what is there of a row, in the order of the ranks; then encodes the sum, or writes it, or
/// both.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) rank: u16,
    pub(super) own: Own,
    /// Elements of the row.
    pub(super) length: usize,
    /// Two elements make a coordinate.
    pub(super) packs: bool,
    /// By rank, ascending.
    pub(super) contributions: Vec<(u16, Box<RowReceiver>)>,
    /// The sum is multiplied by this.
    pub(super) scale: Option<f32>,
    pub(super) encoding: Option<Arc<Encoding>>,
    pub(super) write: Option<Lease>,
}

/// This rank's contribution.
#[derive(Debug)]
pub(super) enum Own {
    None,
    /// The row's values, and perhaps more behind them, which are encoded next.
    Apart(Lease),
    /// Where the result goes.
    InPlace,
}

/// How the rows of a message are encoded.
#[derive(Debug, Clone)]
pub(super) struct Encoding {
    pub(super) encoder: Encoder,
    /// Rows that come whole are sent on as they came.
    pub(super) passes: bool,
    pub(super) codec: Codec,
    pub(super) job: Job,
    pub(super) envelope: Envelope,
    pub(super) planes: u8,
    /// Two elements make a coordinate.
    pub(super) packs: bool,
    pub(super) importance: Importance,
    pub(super) buffers: Buffers,
    pub(super) sealer: Option<Sealer>,
    pub(super) mask: HeaderMask,
    pub(super) decoding: Decoding,
    /// Keep what the packets say for later, when it is known how much of it all replicas have.
    pub(super) undecided: bool,
}

/// Decodes a row.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) row: Box<RowReceiver>,
    pub(super) write: Lease,
    /// A row that no replica may use decodes to +0 where nothing of it arrived, and to ±0 where
    /// something did: −0 + 0 is +0.
    pub(super) positive_zeros: bool,
    /// Two elements make a coordinate.
    pub(super) packs: bool,
}

thread_local! {
    /// A row's sum.
    static SUM: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    /// Coordinates that two elements make, each.
    static WORDS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl Task {
    /// Does it. What [`Self::offload`] takes fails here.
    pub fn run(self) -> Done {
        let (key, row) = (self.key, self.key.row);
        if self.device().is_some() {
            return Done { key, kind: Kind::Failed, spent: Vec::new() };
        }
        match self.work {
            Work::Store(store) => {
                let Store { row, mut write, positive_zeros, packs } = *store;
                match write.view_mut() {
                    ViewMut::F16(values) if packs => decode_halves(&row, values),
                    ViewMut::Bf16(values) if packs => decode_halves(&row, values),
                    ViewMut::F32(values) => decode(&row, values, positive_zeros),
                    ViewMut::F16(values) => decode(&row, values, positive_zeros),
                    ViewMut::Bf16(values) => decode(&row, values, positive_zeros),
                }
                Done { key, kind: Kind::Stored, spent: vec![*row] }
            }
            Work::Fold(mut fold) => {
                let folded = SUM.with_borrow_mut(|sum| fold.run(row, sum));
                let spent = fold.contributions.into_iter().map(|(_, receiver)| *receiver).collect();
                Done { key, kind: Kind::Folded(folded), spent }
            }
        }
    }
}

impl Task {
    /// Whose row it is, where it is elsewhere.
    pub(super) fn device(&self) -> Option<&Arc<dyn Device>> {
        match &self.work {
            Work::Store(store) => store.write.device(),
            Work::Fold(fold) => match (&fold.own, &fold.write) {
                (Own::Apart(lease), _) | (_, Some(lease)) => lease.device(),
                _ => None,
            },
        }
    }
}

const ZEROS: [f32; 256] = [0.0; 256];

fn decode<E: Number>(row: &RowReceiver, values: &mut [E], positive_zeros: bool) {
    // Never of another length: the lease is the row's.
    let _ = row.decode_into(values);
    if positive_zeros {
        values.chunks_mut(ZEROS.len()).for_each(|values| E::add(&ZEROS, values));
    }
}

/// Elements of a row whose coordinates are two of them.
fn decode_halves<E: Number>(row: &RowReceiver, values: &mut [E]) {
    WORDS.with_borrow_mut(|words| {
        words.resize(halves::words(values.len()), 0.0);
        // Never of another length: the lease is the row's.
        let _ = row.decode_into(words);
        halves::unpack(words, values);
    });
}

impl Fold {
    fn run(&mut self, row: usize, sum: &mut Vec<f32>) -> Result<Option<Encoded>, EncodeError> {
        let direct = self.contributions.is_empty() && self.scale.is_none() && self.write.is_none();
        if let (true, Own::Apart(own), Some(encoding)) = (direct, &self.own, &self.encoding) {
            // Straight from the caller's memory.
            return match own.view() {
                View::F32(values) => encoding.source(row, values, self.length),
                View::F16(values) => encoding.source(row, values, self.length),
                View::Bf16(values) => encoding.source(row, values, self.length),
            }
            .map(Some);
        }
        if let Some(moved) = self.move_halves(row) {
            return moved;
        }
        if let Some(passed) = self.pass(row) {
            return Ok(Some(passed));
        }
        self.add_up(sum);
        match (self.encoding.as_deref(), self.write.as_mut().map(Lease::view_mut)) {
            (None, None) => Ok(None),
            (None, Some(write)) => {
                match write {
                    ViewMut::F32(out) => out.copy_from_slice(sum),
                    ViewMut::F16(out) => f16::narrow(sum, out),
                    ViewMut::Bf16(out) => bf16::narrow(sum, out),
                }
                Ok(None)
            }
            (Some(encoding), None) => encoding.relay::<f32>(row, sum, None).map(Some),
            (Some(encoding), Some(ViewMut::F32(out))) => encoding.relay(row, sum, Some(out)).map(Some),
            (Some(encoding), Some(ViewMut::F16(out))) => encoding.relay(row, sum, Some(out)).map(Some),
            (Some(encoding), Some(ViewMut::Bf16(out))) => encoding.relay(row, sum, Some(out)).map(Some),
        }
    }

    /// Elements of 16 bits that nothing is added to go where they are to go as they are, NaNs
    /// included. `None`: they are to be summed.
    fn move_halves(&mut self, row: usize) -> Option<Result<Option<Encoded>, EncodeError>> {
        if !self.packs || self.scale.is_some() {
            return None;
        }
        let received = match (&self.own, &self.contributions[..]) {
            (Own::None, [(_, receiver)]) => Some(&**receiver),
            (Own::Apart(_) | Own::InPlace, []) => None,
            _ => return None,
        };
        let encoding = self.encoding.as_deref();
        let apart = if let Own::Apart(lease) = &self.own { Some(lease.view()) } else { None };
        match (self.write.as_mut()?.view_mut(), apart) {
            (ViewMut::F16(out), Some(View::F16(own))) => Some(moved(row, own, received, encoding, out)),
            (ViewMut::F16(out), None) => Some(moved(row, &[], received, encoding, out)),
            (ViewMut::Bf16(out), Some(View::Bf16(own))) => Some(moved(row, own, received, encoding, out)),
            (ViewMut::Bf16(out), None) => Some(moved(row, &[], received, encoding, out)),
            _ => None,
        }
    }

    /// Sends a row on as it came, if it is one of those and came whole; what it says goes to
    /// memory.
    fn pass(&mut self, row: usize) -> Option<Encoded> {
        let encoding = self.encoding.as_deref().filter(|encoding| encoding.passes)?;
        let [(_, receiver)] = &self.contributions[..] else { return None };
        let passed = encoding.pass(row, receiver)?;
        match self.write.as_mut().map(Lease::view_mut) {
            None => {}
            Some(ViewMut::F32(out)) => decode(receiver, out, false),
            Some(ViewMut::F16(out)) => decode(receiver, out, false),
            Some(ViewMut::Bf16(out)) => decode(receiver, out, false),
        }
        Some(passed)
    }

    /// Adds the contributions up, in the order of the ranks, whatever the order in which they came:
    /// the same packets give the same bits.
    fn add_up(&self, sum: &mut Vec<f32>) {
        sum.resize(self.length, 0.0);
        let mut first = true;
        let mut own = !matches!(self.own, Own::None);
        for (rank, receiver) in &self.contributions {
            if own && *rank > self.rank {
                self.add_own(sum, std::mem::take(&mut first));
                own = false;
            }
            let first = std::mem::take(&mut first);
            if self.packs {
                self.add_halves(receiver, sum, first);
                continue;
            }
            // Never another length than the row's, which its layout was made for.
            let _ = if first { receiver.decode_into(sum) } else { receiver.add_into(sum) };
        }
        if own {
            self.add_own(sum, first);
        }
        if let Some(scale) = self.scale {
            sum.iter_mut().for_each(|value| *value *= scale);
        }
    }

    fn add_halves(&self, receiver: &RowReceiver, sum: &mut [f32], first: bool) {
        fn of<E: Number>(receiver: &RowReceiver, sum: &mut [f32], first: bool) {
            let mut values = vec![E::ZERO; sum.len()];
            decode_halves(receiver, &mut values);
            add(&values, sum, first);
        }
        match self.write.as_ref().map(Lease::view) {
            Some(View::F16(_)) => of::<f16>(receiver, sum, first),
            Some(View::Bf16(_)) => of::<bf16>(receiver, sum, first),
            // Who sums halves writes the sum, or it would be summed elsewhere.
            Some(View::F32(_)) | None => {}
        }
    }

    fn add_own(&self, sum: &mut [f32], first: bool) {
        let ((Own::Apart(lease), _) | (Own::InPlace, Some(lease))) = (&self.own, &self.write) else { return };
        match lease.view() {
            View::F32(values) => add(values, sum, first),
            View::F16(values) => add(values, sum, first),
            View::Bf16(values) => add(values, sum, first),
        }
    }
}

/// Writes a row that is this rank's own, or was received, or is there already, and encodes it where
/// it is sent.
fn moved<E: Number>(
    row: usize,
    own: &[E],
    received: Option<&RowReceiver>,
    encoding: Option<&Encoding>,
    out: &mut [E],
) -> Result<Option<Encoded>, EncodeError> {
    out.iter_mut().zip(own).for_each(|(out, value)| *out = *value);
    if let Some(receiver) = received {
        decode_halves(receiver, out);
    }
    encoding.map(|encoding| encoding.source(row, out, out.len())).transpose()
}

fn add<E: Number>(values: &[E], sum: &mut [f32], first: bool) {
    let mut buffer = Vec::new();
    let values = E::widen(&values[..sum.len().min(values.len())], &mut buffer);
    if first {
        sum[..values.len()].copy_from_slice(values);
    } else {
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
}

impl Encoding {
    fn choice(&self) -> RowChoice {
        RowChoice { planes: self.planes, importance: self.importance }
    }

    /// A row as it came.
    fn pass(&self, row: usize, receiver: &RowReceiver) -> Option<Encoded> {
        let mut packets = self.buffers.take(self.encoder.row_len(row, self.planes));
        let encoded = receiver.repack(self.envelope, self.sealer.as_ref(), &mut packets)?;
        Some(self.wrap(row, encoded, packets, None))
    }

    /// `values` that are not sums: the row's first, and those of the next one behind them.
    fn source<E: Number>(&self, row: usize, values: &[E], length: usize) -> Result<Encoded, EncodeError> {
        let (values, rest) = values.split_at(length.min(values.len()));
        let mut packets = self.buffers.take(self.encoder.row_len(row, self.planes));
        if self.packs {
            let encoded = self.encode_halves(row, values, &mut packets)?;
            return Ok(self.wrap(row, encoded, packets, None));
        }
        let job = RowJob::of(values).before(rest);
        let encoded = self.encoder.encode_row(row, job, self.envelope, self.choice(), &mut packets)?;
        Ok(self.wrap(row, encoded, packets, None))
    }

    fn encode_halves<E: Number>(
        &self,
        row: usize,
        values: &[E],
        packets: &mut [u8],
    ) -> Result<EncodedRow, EncodeError> {
        WORDS.with_borrow_mut(|words| {
            halves::pack(values, words);
            self.encoder.encode_row(row, &words[..], self.envelope, self.choice(), packets)
        })
    }

    /// A sum. Others have what the packets say of it, so `own` becomes that, too, rather than the
    /// sum itself.
    fn relay<E: Number>(
        &self,
        row: usize,
        sum: &[f32],
        own: Option<&mut [E]>,
    ) -> Result<Encoded, EncodeError> {
        let (envelope, choice) = (self.envelope, self.choice());
        let mut packets = self.buffers.take(self.encoder.row_len(row, self.planes));
        let exact = self.codec == Codec::Raw;
        let mut own = own;
        let keeps = self.decoding == Decoding::Unbiased && !self.undecided && !exact;
        let encoded = match &mut own {
            Some(own) if self.packs => {
                E::narrow(sum, own);
                self.encode_halves(row, own, &mut packets)
            }
            Some(own) if keeps => {
                self.encoder.encode_row(row, RowJob::of(sum).keeping(own), envelope, choice, &mut packets)
            }
            _ => self.encoder.encode_row(row, sum, envelope, choice, &mut packets),
        }?;
        let mut kept = None;
        match own {
            Some(_) if self.packs => {}
            Some(own) if exact => E::narrow(sum, own),
            Some(_) if keeps => {}
            Some(own) => {
                let receiver = self.receive_own(row, &packets, |receiver| receiver);
                if self.undecided {
                    kept = Some(Box::new(receiver));
                } else {
                    let _ = receiver.decode_into(own);
                }
            }
            None => {}
        }
        Ok(self.wrap(row, encoded, packets, kept))
    }

    /// What a receiver of all packets has.
    pub(super) fn receive_own(
        &self,
        row: usize,
        packets: &[u8],
        prepare: impl FnOnce(RowReceiver) -> RowReceiver,
    ) -> RowReceiver {
        let layout = self.encoder.layout();
        let receiver = RowReceiver::new(layout, row, self.job, self.envelope, self.decoding)
            .with_codec(self.codec)
            .with_planes(self.planes);
        let mut receiver = prepare(receiver);
        if let Some(sealer) = &self.sealer {
            receiver = receiver.sealed(sealer.clone());
        }
        let mut rest = packets;
        for (_, place) in layout.row_places(row) {
            let length = self.codec.packet_len(self.planes, place.len(), self.sealer.is_some());
            let (packet, tail) = rest.split_at(length.min(rest.len()));
            // Refuses none of them: they come from an encoder of the same layout.
            let _ = receiver.receive(packet);
            rest = tail;
        }
        receiver
    }

    fn wrap(
        &self,
        row: usize,
        encoded: EncodedRow,
        packets: Vec<u8>,
        kept: Option<Box<RowReceiver>>,
    ) -> Encoded {
        let (packets, sealed) = (self.buffers.lend(packets), self.sealer.is_some());
        let ready = Row::new(self.codec, self.encoder.layout(), row, &encoded, sealed, self.mask, packets);
        Encoded { row: ready.ok(), figure: encoded.figure, kept }
    }
}
