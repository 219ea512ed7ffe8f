// SPDX-License-Identifier: Apache-2.0
//! One row to packets: scale, rotate, take moments, quantise, write planes.

use super::concentration::is_concentrated;
use super::packet::QuantiseScratch;
use super::replica::Replica;
use super::task::{RowError, RowTask, Writer, Written, next_statistics};
use crate::element::{Values, ValuesMut};
use crate::quantise::statistics::EightStatistics;
use crate::rotate::entry::{Seen, enter, largest};
use crate::rotate::hadamard::{CACHE_BLOCK, join_blocks, later_levels, transform_again};
use crate::rotate::rotation;
use crate::rotate::scale::RowScale;
use crate::scratch::{ReplicaScratch, Scratch};
use crate::simd::{Ahead, Format, Kernel, Lanes, Planes};
use crate::wire::BLOCK;

impl RowTask<'_> {
    /// Writes the row's packets under the codec rht, and to `kept` what their receiver decodes
    /// without bias.
    pub(crate) fn write(
        &self,
        scratch: &mut Scratch,
        out: &mut [u8],
        kept: Option<ValuesMut<'_>>,
    ) -> Result<Written, RowError> {
        let length = self.layout.row_range(self.row).len();
        let Scratch { row: values, signs, second_signs, zeros, room, own, .. } = scratch;
        rotation::signs_of(self.isa, self.key, self.row as u32, length, signs);
        let values = match &kept {
            Some(kept) => values.away_from(kept.address().cast(), length),
            None => values.of(length),
        };
        zeros.clear();
        zeros.resize(length / BLOCK, false);
        self.isa.run(Job { task: self, values, signs, second_signs, zeros, room, out, kept, own })
    }
}

/// A row at its working scale, rotated.
#[derive(Clone, Copy)]
struct Prepared {
    /// Working values over normalised values: 2^e · G.
    unit: f64,
    twice: bool,
    /// About Σ x².
    energy: f64,
}

/// Fills `values` with the row at its working scale, rotated, and `zeros` with which blocks of it
/// were zero before. Meanwhile prefetches `ahead`.
#[inline(always)]
fn prepare<L: Planes>(
    lanes: L,
    task: &RowTask<'_>,
    values: &mut [f32],
    signs: &[u32],
    second_signs: &mut Vec<u32>,
    zeros: &mut [bool],
    ahead: &mut Ahead,
) -> Result<Prepared, RowError> {
    let signs = (signs, second_signs);
    match task.source {
        Values::F32(source) => prepare_of(lanes, task, source, values, signs, zeros, ahead),
        Values::F16(source) => prepare_of(lanes, task, source, values, signs, zeros, ahead),
        Values::Bf16(source) => prepare_of(lanes, task, source, values, signs, zeros, ahead),
    }
}

#[inline(always)]
fn prepare_of<L: Planes, F: Format>(
    lanes: L,
    task: &RowTask<'_>,
    source: &[F],
    values: &mut [f32],
    (signs, second_signs): (&[u32], &mut Vec<u32>),
    zeros: &mut [bool],
    ahead: &mut Ahead,
) -> Result<Prepared, RowError> {
    // Nearly every row needs no scaling. If one does, its first piece nearly always shows it.
    let mut scale = RowScale::ONE;
    let mut seen = enter_pieces::<L, F, true>(lanes, source, signs, scale, values, zeros, ahead);
    if !RowScale::for_largest(f32::from_bits(seen.largest)).is_one() {
        let largest = f32::from_bits(largest(lanes, source));
        if !largest.is_finite() {
            return Err(RowError::NotFinite);
        }
        scale = RowScale::for_largest(largest);
        seen = enter_pieces::<L, F, false>(lanes, source, signs, scale, values, zeros, ahead);
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

/// The first pass over a row, and the levels within its pieces. With `GIVE_UP` it ends after the
/// first piece if that one needs another scale.
#[inline(always)]
fn enter_pieces<L: Planes, F: Format, const GIVE_UP: bool>(
    lanes: L,
    source: &[F],
    signs: &[u32],
    scale: RowScale,
    values: &mut [f32],
    zeros: &mut [bool],
    ahead: &mut Ahead,
) -> Seen {
    let mut seen = Seen::default();
    let pieces = values.chunks_mut(CACHE_BLOCK).zip(zeros.chunks_mut(CACHE_BLOCK / BLOCK));
    for (at, (to, zeros)) in pieces.enumerate() {
        let start = (at * CACHE_BLOCK).min(source.len());
        let end = (start + to.len()).min(source.len());
        let signs = signs.get(at * CACHE_BLOCK / BLOCK..).unwrap_or_default();
        seen = seen.and(enter(lanes, &source[start..end], signs, scale, to, zeros, ahead));
        if GIVE_UP && at == 0 && !RowScale::for_largest(f32::from_bits(seen.largest)).is_one() {
            break;
        }
        later_levels(lanes, to, ahead);
    }
    seen
}

/// The second rotation, after a first one, both without the levels between pieces. Returns working
/// values over normalised values.
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
    zeros: &'a mut [bool],
    room: &'a mut QuantiseScratch,
    out: &'a mut [u8],
    kept: Option<ValuesMut<'a>>,
    own: &'a mut ReplicaScratch,
}

impl Kernel for Job<'_> {
    type Output = Result<Written, RowError>;

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) -> Result<Written, RowError> {
        let Self { task, values, signs, second_signs, zeros, room, out, kept, own } = self;
        let RowTask { layout, row, .. } = *task;
        // The next row is prefetched during this one: its first half during the transform, the
        // second while packets are written.
        let [mut soon, later] = match task.ahead.halves() {
            // The next row is not known: the second half of this one is prefetched instead.
            [none, _] if none.is_empty() => {
                let [_, half] = task.source.ahead(usize::MAX).halves();
                [half, none]
            }
            halves => halves,
        };
        let Prepared { unit, twice, energy } =
            prepare(lanes, task, values, signs, second_signs, zeros, &mut soon)?;
        let mut writer = Writer {
            task,
            // A rotation keeps the energy, so the statistics will give the same but for rounding.
            important: task.importance.of(energy / values.len() as f64),
            twice,
            room,
            zeros,
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
