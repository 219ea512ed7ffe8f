//! One row to packets under a baseline codec.

use super::{dither, raw};
use crate::encode::row::{RowError, RowTask, Written, rotated};
use crate::encode::scratch::Scratch;
use crate::quantise::moments::{Moments, moments};
use crate::quantise::statistics::{EightStatistics, Statistics};
use crate::rotate::scale::RowScale;
use crate::simd::{Isa, Kernel, Planes};
use crate::wire::{Codec, HEADER_LEN};
use std::ops::Range;

/// Writes the row's packets to `out`, one behind the other.
pub(crate) fn write_row(
    task: &RowTask<'_>,
    source: &[f32],
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Result<Written, RowError> {
    let Scratch { row, signs, second_signs, codes, last, dither, .. } = scratch;
    let codec = task.codec;
    if codec == Codec::Raw {
        return raw::write_row(task, source, row, out);
    }
    let length = task.layout.row_range(task.row).len();
    let (values, unit, twice) = if codec.rotates() {
        let (values, prepared) = rotated(task, row, signs, second_signs)?;
        (values, prepared.unit, prepared.twice)
    } else {
        let scale = scale_of(task, source)?;
        let values = row.of(length);
        values.fill(0.0);
        values.iter_mut().zip(source).for_each(|(to, from)| *to = scale.up(*from));
        (values, scale.factor(), false)
    };
    if dithers(codec) {
        dither::words_of(task.isa, task.key, task.row as u32, length, dither);
    }
    // What is known of the energy comes too late for the first headers.
    let important = task.importance.of(f64::INFINITY);
    let (mut energy, mut rest) = (0.0, out);
    for (index, place) in task.layout.row_places(task.row) {
        let (packet, tail) = rest.split_at_mut(HEADER_LEN + codec.plane_offset(task.planes, place.len()));
        rest = tail;
        let statistics = statistics(task.isa, &values[place.clone()], unit).ok_or(RowError::TooLarge)?;
        energy += place.len() as f64 * f64::from(statistics.sigma).powi(2);
        task.write_header(index, place.len(), (statistics, twice), important, packet);
        codes.clear();
        last.clear();
        match codec {
            Codec::Rht | Codec::RhtPaper => {
                codes.extend(values[place].iter().map(|v| ((f64::from(*v) / unit) as f32).to_bits()));
            }
            // Raw is none of these.
            Codec::SignMagnitude | Codec::Raw => codes.extend(original(source, place).map(f32::to_bits)),
            Codec::StochasticQuantisation | Codec::SubtractiveDithering => {
                let limit = dither::limit(statistics.sigma);
                for (x, word) in original(source, place.clone()).zip(&dither[place]) {
                    let head = u32::from(x + dither::threshold(*word, limit) < 0.0);
                    codes.push(head << 31 | x.to_bits() >> 1);
                    last.push(x.to_bits() & 1);
                }
            }
        }
        write_planes(codec, task.planes, codes, last, &mut packet[HEADER_LEN..]);
    }
    Ok(Written { energy, important, twice })
}

pub(super) fn dithers(codec: Codec) -> bool {
    matches!(codec, Codec::StochasticQuantisation | Codec::SubtractiveDithering)
}

/// The working scale of a row that is not rotated.
pub(super) fn scale_of(task: &RowTask<'_>, source: &[f32]) -> Result<RowScale, RowError> {
    struct Largest<'a>(&'a [f32]);

    impl Kernel for Largest<'_> {
        type Output = u32;

        #[inline(always)]
        fn run<L: Planes>(self, _: L) -> u32 {
            self.0.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff))
        }
    }

    match f32::from_bits(task.isa.run(Largest(source))) {
        largest if largest.is_finite() => Ok(RowScale::for_largest(largest)),
        _ if task.codec == Codec::Raw => Ok(RowScale::for_largest(0.0)),
        _ => Err(RowError::NotFinite),
    }
}

/// Coordinates as the caller gave them, with padding.
fn original(source: &[f32], place: Range<usize>) -> impl Iterator<Item = f32> {
    place.map(move |i| source.get(i).copied().unwrap_or_default())
}

/// Of a packet's working values; `None` where they are beyond f32.
pub(super) fn statistics(isa: Isa, values: &[f32], unit: f64) -> Option<Statistics> {
    struct OfPacket<'a>(&'a [f32]);

    impl Kernel for OfPacket<'_> {
        type Output = Moments;

        #[inline(always)]
        fn run<L: Planes>(self, lanes: L) -> Moments {
            let [moments] = moments(lanes, [self.0]);
            moments
        }
    }

    let mut sums = [(1, Moments::default()); EightStatistics::LEN];
    sums[0] = (values.len(), isa.run(OfPacket(values)));
    EightStatistics::of(&sums, unit).get(0).map(|(statistics, _)| statistics)
}

/// The planes of code words, the most significant first; `last` are thirty-third bits.
fn write_planes(codec: Codec, planes: u8, codes: &[u32], last: &[u32], body: &mut [u8]) {
    let mut rest = body;
    for plane in 0..planes {
        let (to, tail) = rest.split_at_mut(codec.plane_len(plane, codes.len()));
        rest = tail;
        if (8..11).contains(&plane) {
            to.iter_mut().zip(codes).for_each(|(to, code)| *to = (code >> (8 * (10 - plane))) as u8);
            continue;
        }
        let (words, shift) = if plane < 8 { (codes, 31 - plane) } else { (last, 0) };
        for (to, words) in to.iter_mut().zip(words.chunks(8)) {
            let bits = words.iter().enumerate();
            *to = bits.fold(0, |byte, (bit, word)| byte | (((word >> shift & 1) << bit) as u8));
        }
    }
}
