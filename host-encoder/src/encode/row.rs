// SPDX-License-Identifier: Apache-2.0
//! One row to packets: scale, rotate, take moments, quantise, write planes.

use super::concentration::is_concentrated;
use super::importance::Importance;
use super::packet::{Quantise, QuantiseScratch};
use super::replica::{Replica, ReplicaScratch};
use crate::element::{Values, ValuesMut};
use crate::quantise::moments::{Moments, moments};
use crate::quantise::statistics::{EightStatistics, Statistics};
use crate::rotate::RotationKey;
use crate::rotate::entry::{Seen, enter, largest};
use crate::rotate::hadamard::{CACHE_BLOCK, join_blocks, later_levels, transform_again};
use crate::rotate::rotation;
use crate::rotate::scale::RowScale;
use crate::scratch::Scratch;
use crate::simd::{Ahead, Format, Isa, Kernel, Lanes, Planes};
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
    /// What will be encoded after them, as far as that is known.
    pub(crate) ahead: Ahead,
}

/// Why a row has no packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowError {
    /// Its root mean square exceeds the range of f32.
    TooLarge,
    /// NaN or infinity where they are refused.
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
    /// Lets `write` write the row's packets to `out`, one behind the other: as long as they are together, not sealed. What it does not know, or guesses wrongly, is
    /// put right afterwards.
    pub(crate) fn encode(
        &self,
        out: &mut [u8],
        write: impl FnOnce(&mut [u8]) -> Result<Written, RowError>,
    ) -> Result<Written, RowError> {
        let mut written = match write(out) {
            Err(RowError::NotFinite) if !self.strict => self.write_not_finite(out),
            other => other?,
        };
        let figure = written.energy / self.layout.row_range(self.row).len() as f64;
        let important = self.importance.of(figure);
        if important != written.important {
            // The guess was wrong, which takes a row within its rounding of the threshold.
            self.mark(important, out);
            written.important = important;
        }
        Ok(written)
    }

    /// Writes the row's packets under the codec rht; `kept`, where it is wanted, gets what their receiver decodes without bias.
    pub(crate) fn write(
        &self,
        scratch: &mut Scratch,
        out: &mut [u8],
        kept: Option<ValuesMut<'_>>,
    ) -> Result<Written, RowError> {
        let length = self.layout.row_range(self.row).len();
        let Scratch { row: values, signs, second_signs, room, own, .. } = scratch;
        rotation::signs_of(self.isa, self.key, self.row as u32, length, signs);
        let values = match &kept {
            Some(kept) => values.away_from(kept.address().cast(), length),
            None => values.of(length),
        };
        self.isa.run(Job { task: self, values, signs, second_signs, room, out, kept, own })
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
        };
        packet[..HEADER_LEN].copy_from_slice(&header.to_bytes());
    }
}

/// The statistics of the packets that come next; working values are `unit` times the values themselves.
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

/// The moments of the next eight packets, `K` at a time, each with its packet's length. Packets that there are not are of length 1.
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

/// A row at its working scale, rotated.
#[derive(Clone, Copy)]
struct Prepared {
    /// How many times the normalised values the working values are: 2^e · G.
    unit: f64,
    twice: bool,
    /// About Σ x².
    energy: f64,
}

/// Fills `values` with the row at its working scale, rotated. Meanwhile memory is asked for.
#[inline(always)]
fn prepare<L: Planes>(
    lanes: L,
    task: &RowTask<'_>,
    values: &mut [f32],
    signs: &[u32],
    second_signs: &mut Vec<u32>,
    ahead: &mut Ahead,
) -> Result<Prepared, RowError> {
    match task.source {
        Values::F32(source) => prepare_of(lanes, task, source, values, (signs, second_signs), ahead),
        Values::F16(source) => prepare_of(lanes, task, source, values, (signs, second_signs), ahead),
        Values::Bf16(source) => prepare_of(lanes, task, source, values, (signs, second_signs), ahead),
    }
}

#[inline(always)]
fn prepare_of<L: Planes, F: Format>(
    lanes: L,
    task: &RowTask<'_>,
    source: &[F],
    values: &mut [f32],
    (signs, second_signs): (&[u32], &mut Vec<u32>),
    ahead: &mut Ahead,
) -> Result<Prepared, RowError> {
    // Nearly every row is worked on as it is. Of one that is not, nearly every piece tells.
    let mut scale = RowScale::ONE;
    let mut seen = enter_pieces::<L, F, true>(lanes, source, signs, scale, values, ahead);
    if !RowScale::for_largest(f32::from_bits(seen.largest)).is_one() {
        let largest = f32::from_bits(largest(lanes, source));
        if !largest.is_finite() {
            return Err(RowError::NotFinite);
        }
        scale = RowScale::for_largest(largest);
        seen = enter_pieces::<L, F, false>(lanes, source, signs, scale, values, ahead);
    }
    // The transform is not normalised: its values are √d times those of the rotation.
    let mut gain = (values.len() as f64).sqrt();
    let twice = seen.largest > 0 && is_concentrated(seen, source, scale);
    if twice {
        gain = rotate_again(lanes, task, values, second_signs);
    }
    join_blocks(lanes, values, ahead);
    ahead.rest();
    Ok(Prepared {
        unit: scale.factor() * gain,
        twice,
        energy: f64::from(seen.squares) / scale.factor().powi(2),
    })
}

/// The first pass over a row, and the levels within its pieces. With `GIVE_UP` it ends after the first piece where that one alone needs another scale.
#[inline(always)]
fn enter_pieces<L: Planes, F: Format, const GIVE_UP: bool>(
    lanes: L,
    source: &[F],
    signs: &[u32],
    scale: RowScale,
    values: &mut [f32],
    ahead: &mut Ahead,
) -> Seen {
    let mut seen = Seen::default();
    for (at, to) in values.chunks_mut(CACHE_BLOCK).enumerate() {
        let start = (at * CACHE_BLOCK).min(source.len());
        let end = (start + to.len()).min(source.len());
        let signs = signs.get(at * CACHE_BLOCK / BLOCK..).unwrap_or_default();
        seen = seen.and(enter(lanes, &source[start..end], signs, scale, to, ahead));
        if GIVE_UP && at == 0 && !RowScale::for_largest(f32::from_bits(seen.largest)).is_one() {
            break;
        }
        later_levels(lanes, to, ahead);
    }
    seen
}

/// The second rotation, but for the levels between pieces, after a first one that lacks these. Returns how many times the normalised values the working values are then.
#[inline(always)]
fn rotate_again<L: Lanes>(
    lanes: L,
    task: &RowTask<'_>,
    values: &mut [f32],
    second_signs: &mut Vec<u32>,
) -> f64 {
    rotation::second_signs_of(task.isa, task.key, task.row as u32, values.len(), second_signs);
    let log2 = values.len().trailing_zeros();
    // About 1/√d, so that nothing overflows, but a power of two, so that nothing is rounded.
    let down = log2.div_ceil(2);
    let by = 1.0 / (1u64 << down) as f32;
    transform_again(lanes, values, by, second_signs);
    (1u64 << (log2 - down)) as f64
}

struct Job<'a> {
    task: &'a RowTask<'a>,
    /// The row at its working scale, with padding.
    values: &'a mut [f32],
    signs: &'a [u32],
    second_signs: &'a mut Vec<u32>,
    room: &'a mut QuantiseScratch,
    out: &'a mut [u8],
    kept: Option<ValuesMut<'a>>,
    own: &'a mut ReplicaScratch,
}

impl Kernel for Job<'_> {
    type Output = Result<Written, RowError>;

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) -> Result<Written, RowError> {
        let Self { task, values, signs, second_signs, room, out, kept, own } = self;
        let RowTask { layout, row, .. } = *task;
        // The next row is asked for all through this one: the earlier half while it is transformed, the later while packets are written.
        let [mut soon, later] = match task.ahead.halves() {
            // Nobody knows the next one: then the later half of this one is asked for while the earlier is transformed.
            [none, _] if none.is_empty() => {
                let [_, half] = task.source.ahead(usize::MAX).halves();
                [half, none]
            }
            halves => halves,
        };
        let Prepared { unit, twice, energy } = prepare(lanes, task, values, signs, second_signs, &mut soon)?;
        let mut writer = Writer {
            task,
            // A rotation keeps the energy, so what the statistics will say of it is known but for its rounding.
            important: task.importance.of(energy / values.len() as f64),
            twice,
            room,
            later,
            rest: out,
            energy: 0.0,
        };
        if let Some(out) = kept {
            return Replica { own, signs: (signs, second_signs), out }.write(lanes, writer, values, unit);
        }
        let (mut eight, mut places) = (EightStatistics::new(), layout.row_places(row));
        for (nth, (index, place)) in layout.row_places(row).enumerate() {
            if nth % EightStatistics::LEN == 0 {
                eight = next_statistics(lanes, values, &mut places, unit);
            }
            let statistics = eight.get(nth % EightStatistics::LEN).ok_or(RowError::TooLarge)?;
            writer.packet(lanes, index, &values[place], statistics, &mut []);
        }
        Ok(writer.written())
    }
}

/// Writes the packets of a row one behind the other.
pub(super) struct Writer<'a> {
    pub(super) task: &'a RowTask<'a>,
    important: bool,
    pub(super) twice: bool,
    room: &'a mut QuantiseScratch,
    /// What is asked for meanwhile.
    later: Ahead,
    /// Where the rest of the packets go.
    rest: &'a mut [u8],
    energy: f64,
}

impl Writer<'_> {
    /// Writes a packet of those rotated values; statistics come with what multiplies values into zone widths. `words`, as many as values or none, get its code words.
    #[inline(always)]
    pub(super) fn packet<L: Planes>(
        &mut self,
        lanes: L,
        index: usize,
        values: &[f32],
        (statistics, inverse): (Statistics, f32),
        words: &mut [u32],
    ) {
        let RowTask { codec, planes, .. } = *self.task;
        let (packet, tail) = std::mem::take(&mut self.rest)
            .split_at_mut(HEADER_LEN + codec.plane_offset(planes, values.len()));
        self.rest = tail;
        // Half a packet's coordinates.
        self.later.lines(values.len() / BLOCK);
        // Where the next packet goes.
        let ahead = Ahead::new(&self.rest[..packet.len().min(self.rest.len())]);
        self.task.write_header(index, values.len(), (statistics, self.twice), self.important, packet);
        self.energy += values.len() as f64 * f64::from(statistics.sigma).powi(2);
        lanes.outlined(Quantise {
            values,
            peak: statistics.peak,
            inverse,
            planes,
            body: &mut packet[HEADER_LEN..],
            ahead,
            room: self.room,
            words,
        });
    }

    /// What has become of the row, when all packets are written.
    pub(super) fn written(&self) -> Written {
        let Self { energy, important, twice, .. } = *self;
        Written { energy, important, twice }
    }
}
