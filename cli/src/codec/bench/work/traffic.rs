// SPDX-License-Identifier: Apache-2.0
//! A message's rows: packets in one buffer, a receiver for each row, in the memory of those before
//! it.

use super::super::super::clock::{Span, time};
use super::super::super::measure::envelope;
use super::{Sent, Shape};
use anyhow::{Context as _, Result};
use std::hint::black_box;
use std::ops::Range;
use trimwire_encoder::{
    Decoder, Decoding, Element, Encoder, Isa, Job, Layout, RowChoice, RowJob, RowReceiver, Sealer,
};

/// How far ahead packets are asked for: they lie in memory, and one is received in less time than
/// memory takes to answer.
const AHEAD: usize = 2;
const JOB: Job = Job::new(1);
/// The number of every message: nothing depends on it.
const MESSAGE: u32 = 1;

/// Packets of one message, and who receives them.
pub(super) struct Traffic {
    layout: Layout,
    sent: Sent,
    encoder: Encoder,
    packets: Vec<u8>,
    /// Where each packet lies in them.
    places: Vec<Range<usize>>,
    /// Who vouches for them, where they are sealed.
    sealer: Option<Sealer>,
}

/// What becomes of what is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// It stays with the receiver.
    Nowhere,
    /// Decoded into the output.
    Store,
    /// Added to it.
    Add,
}

impl Traffic {
    /// Allocates; packets are sealed by `sealer`, if there is one.
    pub(super) fn new(shape: &Shape, sealer: Option<Sealer>) -> Self {
        let Shape { layout, sent } = shape.clone();
        let Sent { codec, planes } = sent;
        let mut end = 0;
        let place = |index| {
            let start = end;
            end += codec.packet_len(planes, layout.packet_range(index).len(), sealer.is_some());
            start..end
        };
        let places: Vec<_> = (0..layout.packets()).map(place).collect();
        let encoder = Encoder::new(layout.clone(), JOB).with_codec(codec);
        let encoder = match &sealer {
            Some(sealer) => encoder.sealed(sealer.clone()),
            None => encoder,
        };
        Self { layout, sent, encoder, packets: vec![0; end], places, sealer }
    }

    /// Times encoding every row to its place in the buffer. What receivers will decode goes to
    /// `own`.
    pub(super) fn encode<E: Element>(
        &mut self,
        isa: Isa,
        gradient: &[E],
        mut own: Option<&mut [E]>,
    ) -> Result<Span> {
        let encoder = self.encoder.clone().with_isa(isa);
        let choice = RowChoice { planes: self.sent.planes, ..RowChoice::whole(self.sent.codec) };
        let (layout, mut rest) = (&self.layout, &mut self.packets[..]);
        timed(layout, |row| {
            let place = layout.row_coordinates(row);
            let (packets, tail) = std::mem::take(&mut rest).split_at_mut(encoder.row_len(row, choice.planes));
            rest = tail;
            let job = RowJob::of(&gradient[place.clone()]);
            // As collectives do it.
            let job = match &mut own {
                Some(own) => job.keeping(black_box(&mut own[place])),
                None => job.before(&gradient[place.end..]),
            };
            encoder.encode_row(row, job, envelope(MESSAGE), choice, black_box(packets))?;
            Ok(())
        })
        .context("cannot encode")
    }

    /// Times receiving every row, and decoding it as soon as it is there.
    pub(super) fn receive<E: Element>(&self, isa: Isa, put: Put, out: &mut [E]) -> Result<Span> {
        let (layout, packets, places) = (&self.layout, &self.packets, &self.places);
        // As collectives do it: a row takes over the memory of one that is done.
        let mut spent: Option<RowReceiver> = None;
        timed(layout, |row| {
            let mut receiver = self.receiver(row).with_isa(isa);
            if let Some(spent) = spent.take() {
                receiver = receiver.reusing(spent);
            }
            for index in layout.row_packets(row) {
                if let Some(soon) = places.get(index + AHEAD) {
                    Decoder::prefetch(&packets[soon.clone()]);
                }
                receiver.receive(black_box(&packets[places[index].clone()]))?;
            }
            let out = &mut out[layout.row_coordinates(row)];
            match put {
                Put::Nowhere => {}
                Put::Store => receiver.decode_into(black_box(out))?,
                Put::Add => receiver.add_into(black_box(out))?,
            }
            spent = Some(receiver);
            Ok(())
        })
        .context("a row of our own was refused")
    }

    fn receiver(&self, row: usize) -> RowReceiver {
        let receiver = RowReceiver::new(&self.layout, row, JOB, envelope(MESSAGE), Decoding::Unbiased);
        let receiver = receiver.with_codec(self.sent.codec).with_planes(self.sent.planes);
        match &self.sealer {
            Some(sealer) => receiver.sealed(sealer.clone()),
            None => receiver,
        }
    }
}

/// Times `work` on all rows, one after another.
fn timed(layout: &Layout, work: impl FnMut(usize) -> Result<()>) -> Result<Span> {
    let mut result = Ok(());
    let span = time(|| result = (0..layout.rows()).try_for_each(work));
    result.map(|()| span)
}
