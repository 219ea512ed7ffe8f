// SPDX-License-Identifier: Apache-2.0
//! A row that is encoded, and the writer of its packets.

use super::importance::Importance;
use super::packet::{Quantise, QuantiseScratch};
use crate::element::Values;
use crate::quantise::moments::{Moments, moments};
use crate::quantise::statistics::{EightStatistics, Statistics};
use crate::rotate::RotationKey;
use crate::simd::{Ahead, Isa, Lanes, Planes};
use crate::wire::zeros::{bits_of, write_mask};
use crate::wire::{BLOCK, Codec, HEADER_LEN, Header, Layout, Prefix};
use std::ops::Range;

/// One row of a message, about to be encoded.
pub(crate) struct RowTask<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) row: usize,
    pub(crate) key: RotationKey,
    pub(crate) codec: Codec,
    pub(crate) isa: Isa,
    pub(crate) planes: u8,
    pub(crate) importance: Importance,
    /// Refuse NaN and infinities.
    pub(crate) strict: bool,
    /// The packets' prefix; `important` and `last` are filled in.
    pub(crate) prefix: Prefix,
    /// The row's coordinates, without padding.
    pub(crate) source: Values<'a>,
    /// Values that will be encoded next, if they are known.
    pub(crate) ahead: Ahead,
}

/// Why a row's packets are marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowError {
    /// Its root mean square is beyond f32.
    TooLarge,
    /// It holds NaN or an infinity.
    NotFinite,
}

/// What became of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    /// Σ n σ² over its packets; NaN where it is not finite.
    pub(crate) energy: f64,
    /// How its packets are marked.
    pub(crate) important: bool,
    /// It was rotated twice.
    pub(crate) twice: bool,
}

impl RowTask<'_> {
    /// Lets `write` write the row's packets, not sealed, to `out`, one behind the other. Then
    /// corrects the mark of importance if `write` guessed it wrongly.
    pub(crate) fn encode(
        &self,
        out: &mut [u8],
        write: impl FnOnce(&mut [u8]) -> Result<Written, RowError>,
    ) -> Result<Written, RowError> {
        let mut written = match write(out) {
            Err(RowError::NotFinite) if self.strict => return Err(RowError::NotFinite),
            // As sums beyond f32 are infinite.
            Err(_) => self.write_not_finite(out),
            Ok(written) => written,
        };
        let figure = written.energy / self.layout.row_range(self.row).len() as f64;
        let important = self.importance.of(figure);
        if important != written.important {
            // The energy is within its rounding of the threshold.
            self.mark(important, out);
            written.important = important;
        }
        Ok(written)
    }

    /// The mark in place of σ, and zeros for all planes.
    fn write_not_finite(&self, out: &mut [u8]) -> Written {
        let mut rest = out;
        for (index, place) in self.layout.row_places(self.row) {
            let length = HEADER_LEN + self.codec.plane_offset(self.planes, place.len());
            let (packet, tail) = rest.split_at_mut(length);
            rest = tail;
            packet.fill(0);
            self.write_header(index, place.len(), (Statistics::NOT_FINITE, false), true, packet);
        }
        Written { energy: f64::NAN, important: true, twice: false }
    }

    /// Marks a row's packets anew.
    #[cold]
    fn mark(&self, important: bool, out: &mut [u8]) {
        let mut rest = out;
        for (_, place) in self.layout.row_places(self.row) {
            let (packet, tail) =
                rest.split_at_mut(HEADER_LEN + self.codec.plane_offset(self.planes, place.len()));
            rest = tail;
            if let Ok(header) = Header::parse(packet) {
                let prefix = Prefix { important, ..header.prefix };
                packet[..HEADER_LEN].copy_from_slice(&Header { prefix, ..header }.to_bytes());
            }
        }
    }

    #[inline]
    pub(crate) fn write_header(
        &self,
        index: usize,
        n: usize,
        (statistics, twice): (Statistics, bool),
        important: bool,
        packet: &mut [u8],
    ) {
        let header = Header {
            prefix: Prefix { important, last: index + 1 == self.layout.packets(), ..self.prefix },
            first_plane: 0,
            index: index as u32,
            coordinates: n,
            twice,
            sigma: statistics.sigma,
            kappa: statistics.kappa,
            peak: statistics.peak,
            zeros: statistics.zeros,
        };
        packet[..HEADER_LEN].copy_from_slice(&header.to_bytes());
    }
}

/// The statistics of the next eight packets. Working values are `unit` times the values.
#[inline(always)]
pub(super) fn next_statistics<L: Lanes>(
    lanes: L,
    values: &[f32],
    places: &mut impl Iterator<Item = (usize, Range<usize>)>,
    unit: f64,
) -> EightStatistics {
    // As many at a time as there are registers for their sums.
    if L::N == 16 {
        EightStatistics::of(&sums_of::<L, 4>(lanes, values, places), unit)
    } else {
        EightStatistics::of(&sums_of::<L, 2>(lanes, values, places), unit)
    }
}

/// The moments and lengths of the next eight packets, `K` at a time. Missing packets have length 1.
#[inline(always)]
fn sums_of<L: Lanes, const K: usize>(
    lanes: L,
    values: &[f32],
    places: &mut impl Iterator<Item = (usize, Range<usize>)>,
) -> [(usize, Moments); EightStatistics::LEN] {
    let mut sums = [(1, Moments::default()); EightStatistics::LEN];
    for some in sums.as_chunks_mut::<K>().0 {
        let mut packets: [&[f32]; K] = [&[]; K];
        let mut count = 0;
        while count < K {
            let Some((_, place)) = places.next() else { break };
            packets[count] = &values[place];
            count += 1;
        }
        let found = moments(lanes, packets);
        for k in 0..count {
            some[k] = (packets[k].len(), found[k]);
        }
    }
    sums
}

/// Writes the packets of a row one behind the other.
pub(super) struct Writer<'a> {
    pub(super) task: &'a RowTask<'a>,
    pub(super) important: bool,
    pub(super) twice: bool,
    pub(super) room: &'a mut QuantiseScratch,
    /// Which blocks of the row, from the next packet's on, are zero.
    pub(super) zeros: &'a [bool],
    /// What is prefetched meanwhile.
    pub(super) later: Ahead,
    /// Where the rest of the packets go.
    pub(super) rest: &'a mut [u8],
    pub(super) energy: f64,
}

impl Writer<'_> {
    /// Writes a packet of rotated values. `inverse` multiplies values into zone widths. `words`, as
    /// many as values or none, get the code words.
    #[inline(always)]
    pub(super) fn packet<L: Planes>(
        &mut self,
        lanes: L,
        index: usize,
        values: &[f32],
        (mut statistics, inverse): (Statistics, f32),
        words: &mut [u32],
    ) {
        let RowTask { codec, planes, .. } = *self.task;
        let (zeros, behind) = self.zeros.split_at(values.len() / BLOCK);
        self.zeros = behind;
        let (packet, tail) = std::mem::take(&mut self.rest)
            .split_at_mut(HEADER_LEN + codec.plane_offset(planes, values.len()));
        self.rest = tail;
        // Half a packet's coordinates.
        self.later.lines(values.len() / BLOCK);
        // Where the next packet goes.
        let ahead = Ahead::new(&self.rest[..packet.len().min(self.rest.len())]);
        let (header, body) = packet.split_at_mut(HEADER_LEN);
        let (mask, body) = body.split_at_mut(codec.mask_len(values.len()));
        if mask.is_empty() {
            statistics.zeros = bits_of(zeros);
        } else {
            write_mask(zeros, mask);
        }
        self.task.write_header(index, values.len(), (statistics, self.twice), self.important, header);
        self.energy += values.len() as f64 * f64::from(statistics.sigma).powi(2);
        lanes.outlined(Quantise {
            values,
            peak: statistics.peak,
            inverse,
            planes,
            body,
            ahead,
            room: self.room,
            words,
        });
    }

    /// The outcome, when all packets are written.
    pub(super) fn written(&self) -> Written {
        let Self { energy, important, twice, .. } = *self;
        Written { energy, important, twice }
    }
}
