//! The packets of one row back to coordinates under a baseline codec.

use super::encode::dithers;
use super::{dither, raw};
use crate::decode::decoding::Decoding;
use crate::decode::reception::Precision;
use crate::decode::row::{Put, RowDecoder, rotate_back};
use crate::decode::scratch::Scratch;
use crate::decode::weights::kept_by_sign;
use crate::decode::words::RowWords;
use crate::rotate::scale::RowScale;
use crate::wire::{BLOCK, Codec};

/// Largest working value of rotated f32s, 2^100. Honest ones never come near it; made-up ones must not overflow a transform.
const LARGEST: f64 = (1u128 << 100) as f64;

/// Decodes a row from its words to `out`, as long as its coordinates without padding.
pub(crate) fn decode_row(
    codec: Codec,
    decoder: &RowDecoder<'_>,
    words: &RowWords,
    put: Put,
    scratch: &mut Scratch,
    out: &mut [f32],
) {
    if decoder.is_marked() {
        return out.fill(f32::NAN);
    }
    if codec == Codec::Raw {
        return raw::decode_row(decoder, words, put, out);
    }
    let length = decoder.layout.row_range(decoder.row).len();
    let Scratch { row, signs, second_signs, dither, .. } = scratch;
    let values = row.of(length);
    values.fill(0.0);
    if dithers(codec) {
        dither::words_of(decoder.isa, decoder.key, decoder.row as u32, length, dither);
    }
    let weights = decoder.weights(|kappa, planes| match planes {
        0 => 0.0,
        1..=8 => kept_by_sign(kappa),
        _ => 1.0,
    });
    // A rotation spreads what rounds to σ = 0 evenly over the row; other codecs' packets of σ = 0 still hold their values.
    if codec.rotates() && weights.largest().is_none_or(|largest| largest == 0.0) {
        if put == Put::Store {
            out.fill(0.0);
        }
        return;
    }
    let (lambda, paper) = match decoder.decoding {
        Decoding::Unbiased => (weights.lambda(), 0.0),
        Decoding::Mmse => (1.0, 0.0),
        Decoding::Paper => (1.0, weights.paper_scale()),
    };
    let scale = RowScale::for_largest(if codec.rotates() { weights.largest().unwrap_or(0.0) } else { 0.0 });
    let gain = if codec.rotates() { lambda * scale.factor() * decoder.gain(length) } else { 1.0 };
    for (nth, (_, place)) in decoder.layout.row_places(decoder.row).enumerate() {
        let Some(precision) = (decoder.precision)(nth) else { continue };
        let (known, last) = (words.of(place.clone()), words.last_of(place.clone()));
        for (j, word) in known.iter().enumerate() {
            let planes = precision.planes + u8::from(j < usize::from(precision.more));
            let bit = last.get(j / BLOCK).copied().unwrap_or_default() >> (j % BLOCK) & 1;
            let word = Known { planes, word: *word, last: bit };
            values[place.start + j] = match codec {
                Codec::Rht | Codec::RhtPaper => rotated_value(decoder.decoding, precision, word, gain, paper),
                Codec::SignMagnitude => sign_magnitude(decoder.decoding, precision, word),
                Codec::StochasticQuantisation => quantised(precision, word, None),
                Codec::SubtractiveDithering => {
                    quantised(precision, word, dither.get(place.start + j).copied())
                }
                // Raw is none of these.
                Codec::Raw => f32::from_bits(word.word),
            };
        }
    }
    if codec.rotates() {
        decoder.signs(length, signs, second_signs);
        rotate_back(decoder, (signs, second_signs), scale, put, values, out);
    } else if put == Put::Store {
        out.copy_from_slice(&values[..out.len()]);
    } else {
        out.iter_mut().zip(&*values).for_each(|(to, value)| *to += value);
    }
}

/// What is known of a coordinate.
#[derive(Clone, Copy)]
struct Known {
    planes: u8,
    /// Its code word; unknown bits are whatever was there.
    word: u32,
    /// Its thirty-third bit.
    last: u32,
}

impl Known {
    fn signed(self, magnitude: f32) -> f32 {
        f32::from_bits(magnitude.to_bits() ^ self.word & 1 << 31)
    }

    /// The code word where nine to eleven planes are known: the f32 in the middle of what it may be.
    fn float(self) -> f32 {
        opened(self.word, 8 * u32::from(11u8.saturating_sub(self.planes)))
    }
}

fn rotated_value(decoding: Decoding, precision: Precision, known: Known, gain: f64, paper: f64) -> f32 {
    let statistics = precision.statistics;
    let mean = f64::from(statistics.sigma) * f64::from(statistics.kappa) / 255.0;
    match known.planes {
        0 => 0.0,
        1..=8 if decoding == Decoding::Paper => known.signed((paper * gain) as f32),
        1..=8 => known.signed((mean * gain) as f32),
        _ => (f64::from(known.float()) * gain).clamp(-LARGEST, LARGEST) as f32,
    }
}

fn sign_magnitude(decoding: Decoding, precision: Precision, known: Known) -> f32 {
    let statistics = precision.statistics;
    let mean = f64::from(statistics.sigma) * f64::from(statistics.kappa) / 255.0;
    match known.planes {
        0 => 0.0,
        1..=8 if decoding == Decoding::Paper => known.signed(statistics.sigma),
        1..=8 => known.signed(mean as f32),
        _ => known.float(),
    }
}

/// ±L, less the threshold where there is one to take off.
fn quantised(precision: Precision, known: Known, dither: Option<u32>) -> f32 {
    let limit = dither::limit(precision.statistics.sigma);
    match known.planes {
        0 => 0.0,
        1..=8 => known.signed(limit) - dither.map_or(0.0, |word| dither::threshold(word, limit)),
        12.. => opened(known.word << 1 | known.last, 0),
        planes => opened(known.word << 1, 8 * u32::from(11 - planes) + 1),
    }
}

/// The f32 in the middle of those that begin with the known bits: all but the lowest `open_bits`. Zero stays zero where all known bits say so, and no value is
/// carried to infinity.
fn opened(bits: u32, open_bits: u32) -> f32 {
    let bits = bits & u32::MAX << open_bits;
    let half = if open_bits == 0 || bits << 1 == 0 { 0 } else { 1 << (open_bits - 1) };
    let value = f32::from_bits(bits | half);
    // Planes made up by others may spell NaN, which only a marked row decodes to.
    if value.is_finite() { value } else { 0.0 }
}
