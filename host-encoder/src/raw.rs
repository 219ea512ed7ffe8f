// SPDX-License-Identifier: Apache-2.0
//! Codec raw: f32s as they are, in big-endian words. Nothing is decided here, so that what counts
//! is how often memory is touched.

use crate::aligned::AlignedRow;
use crate::decode::row::{Put, RowDecoder, streams};
use crate::decode::words::RowWords;
use crate::element::ValuesMut;
use crate::encode::task::{RowTask, Written};
use crate::quantise::moments::{Moments, moments};
use crate::quantise::statistics::{EightStatistics, Statistics};
use crate::rotate::scale::RowScale;
use crate::simd::{Format, Isa, Kernel, Planes};
use crate::wire::{BLOCK, HEADER_LEN};

/// Writes the row's packets to `out`, one behind the other. `row` is its working memory.
pub(crate) fn write_row(
    task: &RowTask<'_>,
    source: &[f32],
    row: &mut AlignedRow<f32>,
    out: &mut [u8],
) -> Written {
    let scale = scale_of(task, source);
    let length = task.layout.row_range(task.row).len();
    // Only rows at the ends of tensors have padding, and hardly any is worked on at a scale.
    let padded = (source.len() < length).then(|| {
        let values = row.of(length);
        values.fill(0.0);
        values[..source.len()].copy_from_slice(source);
        &*values
    });
    let values = padded.unwrap_or(source);
    let mut scaled = Vec::new();
    let important = task.importance.of(f64::INFINITY);
    let (mut energy, mut rest) = (0.0, out);
    for (index, place) in task.layout.row_places(task.row) {
        let (packet, tail) = rest.split_at_mut(HEADER_LEN + 4 * place.len());
        rest = tail;
        let values = &values[place];
        let at_scale = if scale.is_one() {
            values
        } else {
            scaled.clear();
            scaled.extend(values.iter().map(|value| scale.up(*value)));
            &scaled[..]
        };
        let statistics = statistics(task.isa, at_scale, scale.factor()).unwrap_or(Statistics::NONE);
        energy += values.len() as f64 * f64::from(statistics.sigma).powi(2);
        task.write_header(index, values.len(), (statistics, false), important, packet);
        task.isa.run(ToWire { values, body: &mut packet[HEADER_LEN..] });
    }
    Written { energy, important, twice: false }
}

/// The working scale of a row that is not rotated.
fn scale_of(task: &RowTask<'_>, source: &[f32]) -> RowScale {
    struct Largest<'a>(&'a [f32]);

    impl Kernel for Largest<'_> {
        type Output = u32;

        #[inline(always)]
        fn run<L: Planes>(self, _: L) -> u32 {
            self.0.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff))
        }
    }

    match f32::from_bits(task.isa.run(Largest(source))) {
        largest if largest.is_finite() => RowScale::for_largest(largest),
        // NaN and infinities are sent as they are.
        _ => RowScale::ONE,
    }
}

/// Of a packet's working values; `None` where they are beyond f32.
fn statistics(isa: Isa, values: &[f32], unit: f64) -> Option<Statistics> {
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

struct ToWire<'a> {
    values: &'a [f32],
    body: &'a mut [u8],
}

impl Kernel for ToWire<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, _: L) {
        let words = self.body.as_chunks_mut().0.iter_mut();
        words.zip(self.values).for_each(|(to, value)| *to = value.to_bits().to_be_bytes());
    }
}

/// Decodes a row from its words to `out`, as long as its coordinates without padding.
pub(crate) fn decode_row(decoder: &RowDecoder<'_>, words: &RowWords, put: Put, mut out: ValuesMut<'_>) {
    if decoder.is_marked() {
        return out.fill(f32::NAN);
    }
    match out {
        ValuesMut::F32(out) => decode_row_as(decoder, words, put, out),
        ValuesMut::F16(out) => decode_row_as(decoder, words, put, out),
        ValuesMut::Bf16(out) => decode_row_as(decoder, words, put, out),
    }
}

fn decode_row_as<F: Format>(decoder: &RowDecoder<'_>, words: &RowWords, put: Put, out: &mut [F]) {
    let stream = streams(put, decoder.layout);
    for (nth, (_, place)) in decoder.layout.row_places(decoder.row).enumerate() {
        let Some(out) = out.get_mut(place.start..place.end.min(out.len())) else { break };
        // What has not arrived is 0: so is its word, unless it is not to be used.
        let arrived = (decoder.precision)(nth).map_or(0, |precision| match precision.planes {
            0 => precision.more.into(),
            _ => place.len(),
        });
        let (out, missing) = out.split_at_mut(arrived.min(out.len()));
        decoder.isa.run(Values { words: words.of(place), put, stream, out });
        if put == Put::Store {
            missing.fill(F::ZERO);
        }
    }
    if stream {
        decoder.isa.run(Fence);
    }
}

struct Fence;

impl Kernel for Fence {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        lanes.fence();
    }
}

/// The values of words, to where they belong.
struct Values<'a, F> {
    words: &'a [u32],
    put: Put,
    /// Past the caches; the caller puts a fence behind.
    stream: bool,
    out: &'a mut [F],
}

impl<F: Format> Kernel for Values<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        let Self { words, put, stream, out } = self;
        let words = &words[..out.len().min(words.len())];
        let ((whole, rest), (to, to_rest)) = (words.as_chunks::<BLOCK>(), out.as_chunks_mut::<BLOCK>());
        for (words, to) in whole.iter().zip(to) {
            for at in 0..BLOCK / L::N {
                let v = lanes.floats(lanes.load_words(words, at));
                if stream {
                    F::stream(lanes, v, to, at);
                    continue;
                }
                let v = if put == Put::Add { lanes.add(F::load(lanes, to, at), v) } else { v };
                F::store(lanes, v, to, at);
            }
        }
        for (word, to) in rest.iter().zip(to_rest) {
            let value = f32::from_bits(*word);
            *to = F::narrow(if put == Put::Add { to.wide() + value } else { value });
        }
    }
}
