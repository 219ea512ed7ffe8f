//! Codec raw: f32s as they are, in big-endian words. Nothing is decided here, so that what counts is how often memory is touched.

use super::encode::{scale_of, statistics};
use crate::aligned::AlignedRow;
use crate::decode::row::{Put, RowDecoder};
use crate::decode::words::RowWords;
use crate::encode::row::{RowError, RowTask, Written};
use crate::quantise::statistics::Statistics;
use crate::simd::{Kernel, Planes};
use crate::wire::HEADER_LEN;

/// Writes the row's packets to `out`, one behind the other. `row` is its working memory.
pub(super) fn write_row(
    task: &RowTask<'_>,
    source: &[f32],
    row: &mut AlignedRow<f32>,
    out: &mut [u8],
) -> Result<Written, RowError> {
    let scale = scale_of(task, source)?;
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
        // NaN and infinities are sent as they are.
        let statistics = statistics(task.isa, at_scale, scale.factor()).unwrap_or(Statistics::NONE);
        energy += values.len() as f64 * f64::from(statistics.sigma).powi(2);
        task.write_header(index, values.len(), (statistics, false), important, packet);
        task.isa.run(ToWire { values, body: &mut packet[HEADER_LEN..] });
    }
    Ok(Written { energy, important, twice: false })
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

/// Decodes a row that is not marked from its words to `out`, as long as its coordinates without padding.
pub(super) fn decode_row(decoder: &RowDecoder<'_>, words: &RowWords, put: Put, out: &mut [f32]) {
    for (nth, (_, place)) in decoder.layout.row_places(decoder.row).enumerate() {
        let Some(out) = out.get_mut(place.start..place.end.min(out.len())) else { return };
        // What has not arrived is 0: so is its word, unless it is not to be used.
        let arrived = (decoder.precision)(nth).map_or(0, |precision| match precision.planes {
            0 => precision.more.into(),
            _ => place.len(),
        });
        let (out, missing) = out.split_at_mut(arrived.min(out.len()));
        decoder.isa.run(Values { words: words.of(place), put, out });
        if put == Put::Store {
            missing.fill(0.0);
        }
    }
}

/// The values of words, to where they belong.
struct Values<'a> {
    words: &'a [u32],
    put: Put,
    out: &'a mut [f32],
}

impl Kernel for Values<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, _: L) {
        let pairs = self.out.iter_mut().zip(self.words);
        if self.put == Put::Store {
            pairs.for_each(|(to, word)| *to = f32::from_bits(*word));
        } else {
            pairs.for_each(|(to, word)| *to += f32::from_bits(*word));
        }
    }
}
