// SPDX-License-Identifier: Apache-2.0
//! A message's rows: packets in one buffer, a receiver for each row, in the memory of those before it.

use super::super::super::clock::{Span, time};
use super::super::super::measure::envelope;
use super::{Sent, Shape};
use anyhow::{Context as _, Result, anyhow};
use rayon::iter::{IndexedParallelIterator as _, IntoParallelRefMutIterator as _, ParallelIterator as _};
use std::hint::black_box;
use std::ops::Range;
use std::sync::Mutex;
use trimwire_encoder::{
    Decoder, Decoding, Element, Encoder, Isa, Job, Layout, RowChoice, RowJob, RowReceiver, Sealer,
};

/// How far ahead packets are asked for: they lie in memory, and one is received in less time than memory takes to answer.
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

    /// Times encoding every row to its place in the buffer.
    pub(super) fn encode<E: Element>(&mut self, isa: Isa, parallel: bool, gradient: &[E]) -> Result<Span> {
        let (encoder, choice) = (self.encoder.clone().with_isa(isa), self.choice());
        let mut rows: Vec<_> = row_values(&self.layout, gradient)
            .zip(row_packets(&encoder, self.sent.planes, &mut self.packets))
            .enumerate()
            .collect();
        let layout = &self.layout;
        timed(parallel, &mut rows, |(row, (values, packets))| {
            // As collectives do it.
            let next = gradient.get(layout.row_coordinates(*row).end..).unwrap_or_default();
            let job = RowJob::of(values).before(next);
            encoder.encode_row(*row, job, envelope(MESSAGE), choice, black_box(packets))?;
            Ok(())
        })
        .context("cannot encode")
    }

    /// The same, and what receivers will decode written to `own`.
    pub(super) fn encode_keeping<E: Element>(
        &mut self,
        isa: Isa,
        parallel: bool,
        gradient: &[E],
        own: &mut [E],
    ) -> Result<Span> {
        let (encoder, choice) = (self.encoder.clone().with_isa(isa), self.choice());
        let mut rows: Vec<_> = row_values(&self.layout, gradient)
            .zip(row_packets(&encoder, self.sent.planes, &mut self.packets))
            .zip(row_values_mut(&self.layout, own))
            .enumerate()
            .collect();
        timed(parallel, &mut rows, |(row, ((values, packets), own))| {
            let (packets, own) = (black_box(packets), black_box(own));
            encoder.encode_row(*row, RowJob::of(values).keeping(own), envelope(MESSAGE), choice, packets)?;
            Ok(())
        })
        .context("cannot encode")
    }

    /// Times receiving every row, and decoding it as soon as it is there.
    pub(super) fn receive<E: Element>(
        &mut self,
        isa: Isa,
        parallel: bool,
        put: Put,
        out: &mut [E],
    ) -> Result<Span> {
        let (layout, packets, places) = (&self.layout, &self.packets, &self.places);
        let mut rows: Vec<_> = row_values_mut(layout, out).enumerate().collect();
        // As collectives do it: a row takes over the memory of one that is done.
        let spent = Mutex::new(Vec::new());
        let lent = || spent.lock().map_err(|_| anyhow!("another thread panicked"));
        timed(parallel, &mut rows, |(row, out)| {
            let mut receiver = self.receiver(*row).with_isa(isa);
            if let Some(spent) = lent()?.pop() {
                receiver = receiver.reusing(spent);
            }
            for index in layout.row_packets(*row) {
                if let Some(soon) = places.get(index + AHEAD) {
                    Decoder::prefetch(&packets[soon.clone()]);
                }
                receiver.receive(black_box(&packets[places[index].clone()]))?;
            }
            match put {
                Put::Nowhere => {}
                Put::Store => receiver.decode_into(black_box(out))?,
                Put::Add => receiver.add_into(black_box(out))?,
            }
            lent()?.push(receiver);
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

    fn choice(&self) -> RowChoice {
        RowChoice { planes: self.sent.planes, ..RowChoice::whole(self.sent.codec) }
    }
}

/// Times `work` on all rows, one after another or shared out among the threads of the caller's rayon pool.
fn timed<T: Send>(
    parallel: bool,
    rows: &mut [T],
    work: impl Fn(&mut T) -> Result<()> + Send + Sync,
) -> Result<Span> {
    let mut result = Ok(());
    let span = time(|| {
        result = if parallel {
            rows.par_iter_mut().with_max_len(1).try_for_each(work)
        } else {
            rows.iter_mut().try_for_each(work)
        };
    });
    result.map(|()| span)
}

/// A gradient's rows.
fn row_values<'a, E>(layout: &'a Layout, values: &'a [E]) -> impl Iterator<Item = &'a [E]> {
    (0..layout.rows()).map(|row| &values[layout.row_coordinates(row)])
}

/// An output's rows.
fn row_values_mut<'a, E>(layout: &'a Layout, values: &'a mut [E]) -> impl Iterator<Item = &'a mut [E]> {
    let mut rest = values;
    (0..layout.rows()).map(move |row| {
        let (here, tail) = std::mem::take(&mut rest).split_at_mut(layout.row_coordinates(row).len());
        rest = tail;
        here
    })
}

/// A buffer's rows of packets.
fn row_packets<'a>(
    encoder: &'a Encoder,
    planes: u8,
    packets: &'a mut [u8],
) -> impl Iterator<Item = &'a mut [u8]> {
    let mut rest = packets;
    (0..encoder.layout().rows()).map(move |row| {
        let (here, tail) = std::mem::take(&mut rest).split_at_mut(encoder.row_len(row, planes));
        rest = tail;
        here
    })
}
