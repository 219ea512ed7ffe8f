//! The code words of one packet back to coordinates.

use crate::codec::Codec;
use crate::decoder::Decoding;
use crate::dither;
use crate::head::Head;
use crate::packet::BLOCK;
use crate::quantiser::{Expander, Zones};
use crate::simd::{Kernel, Lanes};
use crate::weights::decodes_by_sign;
use crate::words::Words;

/// Reads coordinates of which the same number of planes is held.
pub(crate) struct Dequantiser {
    /// Bits of code words that are known.
    known: u32,
    values: Values,
}

enum Values {
    /// Nothing arrived.
    Zero,
    /// ±magnitude by plane 0; with dither, less the coordinate's threshold.
    Signs { magnitude: f32, dithered: bool },
    /// By the first two to eight planes of the index, sign included, in the given unit.
    Indices { peak: u8, unit: f32, planes: u8 },
    /// By the code of the embedded quantiser, in the given unit.
    Codes { peak: u8, unit: f32, open_bits: u32 },
    /// f32s of which the lowest bits are open.
    Floats { open_bits: u32 },
    /// The same, rotated: times a unit.
    Rotated { open_bits: u32, unit: f64 },
    /// f32s behind a head of one bit, of which the lowest bits are open.
    BehindHead { open_bits: u32 },
    /// f32s in order.
    Raw,
}

impl Dequantiser {
    /// Rotated coordinates are multiplied by `unit`; `paper` is the magnitude of cut ones where the paper's decoding is asked for.
    #[inline]
    pub(crate) fn new(
        codec: Codec,
        decoding: Decoding,
        head: Head,
        planes: u8,
        unit: f64,
        paper: f64,
    ) -> Self {
        let Head { sigma, kappa, peak } = head;
        let sigma = f64::from(sigma);
        let mean = || sigma * f64::from(kappa) / 255.0;
        let signs = |magnitude: f64| Values::Signs { magnitude: magnitude as f32, dithered: false };
        let cut = planes < codec.planes();
        // Bits of the code that are unknown; a twelfth plane holds one more bit.
        let open_bits = 8 * u32::from(11u8.saturating_sub(planes));
        let values = match codec {
            _ if planes == 0 => Values::Zero,
            Codec::Rht if decoding == Decoding::Paper && cut => signs(paper),
            Codec::RhtPaper if decoding == Decoding::Paper && planes <= 8 => signs(paper),
            Codec::Rht | Codec::RhtPaper if decodes_by_sign(codec, kappa, planes) => signs(mean() * unit),
            Codec::Rht => {
                let unit = (sigma * unit) as f32;
                if planes > 8 {
                    // The lowest eight bits have no plane: encoders round.
                    Values::Codes { peak, unit, open_bits: if cut { open_bits } else { 0 } }
                } else {
                    Values::Indices { peak, unit, planes }
                }
            }
            Codec::RhtPaper => Values::Rotated { open_bits, unit },
            Codec::SignMagnitude if planes <= 8 => {
                signs(if decoding == Decoding::Paper { sigma } else { mean() })
            }
            Codec::SignMagnitude => Values::Floats { open_bits },
            Codec::StochasticQuantisation | Codec::SubtractiveDithering if planes <= 8 => Values::Signs {
                magnitude: dither::limit(head.sigma),
                dithered: codec == Codec::SubtractiveDithering,
            },
            Codec::StochasticQuantisation | Codec::SubtractiveDithering => {
                Values::BehindHead { open_bits: if cut { open_bits + 1 } else { 0 } }
            }
            Codec::Raw => Values::Raw,
        };
        let bits = match planes {
            _ if codec == Codec::Raw => 32,
            0..=8 => u32::from(planes),
            _ => 8 * (u32::from(planes) - 7).min(4),
        };
        Self { known: u32::MAX.checked_shl(32 - bits).unwrap_or_default(), values }
    }

    /// Writes as many coordinates as `out` holds, a multiple of 32; `dither` are their dither words, where there are any.
    #[inline(always)]
    pub(crate) fn decode<L: Lanes>(&self, lanes: L, coded: Words<'_>, dither: &[u32], out: &mut [f32]) {
        let words = &coded.words[..out.len()];
        let each = out.iter_mut().zip(words.iter().map(|word| word & self.known));
        match &self.values {
            Values::Zero => out.fill(0.0),
            Values::Signs { magnitude, dithered } => {
                let value = lanes.splat_u(magnitude.to_bits());
                for (words, out) in words.as_chunks().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
                    for (at, line) in L::lines_mut(out).iter_mut().enumerate() {
                        let sign = lanes.and(lanes.load_words(words, at), lanes.splat_u(1 << 31));
                        lanes.store(line, lanes.floats(lanes.xor(value, sign)));
                    }
                }
                if *dithered {
                    for (value, word) in out.iter_mut().zip(dither) {
                        *value -= dither::threshold(*word, *magnitude);
                    }
                }
            }
            Values::Indices { peak, unit, planes: planes @ ..=4 } => {
                let mut magnitudes = [0.0; 8];
                Zones::of(*peak)
                    .centroids(*planes, |index, c| magnitudes[usize::from(index >> 4)] = unit * c);
                lanes.apart(LookUp { words, known: self.known, magnitudes: &magnitudes, out });
            }
            Values::Indices { peak, unit, planes } => {
                let mut table = [0.0; 256];
                Zones::of(*peak).centroids(*planes, |index, c| {
                    let magnitude = unit * c;
                    table[usize::from(index)] = magnitude;
                    table[usize::from(index | 128)] = -magnitude;
                });
                each.for_each(|(out, word)| *out = table[(word >> 24) as usize]);
            }
            Values::Codes { peak, unit, open_bits } => {
                let zones = Zones::of(*peak);
                lanes.apart(Expand { words, zones: &zones, unit: *unit, open_bits: *open_bits, out });
            }
            Values::Floats { open_bits } => each.for_each(|(out, word)| *out = middle(word, *open_bits)),
            Values::Rotated { open_bits, unit } => each.for_each(|(out, word)| {
                let value = f64::from(middle(word, *open_bits)) * unit;
                *out = value.clamp(-LARGEST, LARGEST) as f32;
            }),
            Values::BehindHead { open_bits } => {
                let whole = *open_bits == 0;
                for (i, (out, word)) in each.enumerate() {
                    let last = coded.last.get(i / BLOCK).copied().unwrap_or_default() >> (i % BLOCK) & 1;
                    *out = middle(word << 1 | if whole { last } else { 0 }, *open_bits);
                }
            }
            Values::Raw => each.for_each(|(out, word)| *out = f32::from_bits(word)),
        }
    }
}

/// Decodes code words of the embedded quantiser. In a function of its own, so that its tables stay in registers.
struct Expand<'a> {
    words: &'a [u32],
    zones: &'a Zones,
    unit: f32,
    open_bits: u32,
    out: &'a mut [f32],
}

impl Kernel for Expand<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Self { words, zones, unit, open_bits, out } = self;
        let expander = Expander::new(lanes, zones, unit, open_bits);
        for (words, out) in words.as_chunks::<BLOCK>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
            // A block is two vectors of sixteen lanes or four of eight.
            for (pair, [first, second]) in L::lines_mut(out).as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let (a, b) = (lanes.load_words(words, 2 * pair), lanes.load_words(words, 2 * pair + 1));
                let [a, b] = expander.coordinates(lanes, [a, b]);
                lanes.store(first, a);
                lanes.store(second, b);
            }
        }
    }
}

/// Decodes indices of at most four planes. In a function of its own, so that its table stays in a register.
struct LookUp<'a> {
    words: &'a [u32],
    /// The bits of words that are known.
    known: u32,
    /// By the three bits behind the sign.
    magnitudes: &'a [f32; 8],
    out: &'a mut [f32],
}

impl Kernel for LookUp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Self { words, known, magnitudes, out } = self;
        let (table, known) = (lanes.table(magnitudes), lanes.splat_u(known));
        for (words, out) in words.as_chunks().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
            for (at, line) in L::lines_mut(out).iter_mut().enumerate() {
                let word = lanes.and(lanes.load_words(words, at), known);
                let magnitude = lanes.bits(lanes.lookup(table, lanes.shift_right_28(word)));
                lanes.store(line, lanes.floats(lanes.or(magnitude, lanes.and(word, lanes.splat_u(1 << 31)))));
            }
        }
    }
}

/// Largest working value of rotated f32s, 2^100. Honest ones never come near it; made-up ones must not overflow a transform.
const LARGEST: f64 = (1u128 << 100) as f64;

/// The f32 in the middle of those that begin with the known bits. Zero stays zero where all known bits say so, and no value is
/// carried to infinity.
#[inline(always)]
fn middle(bits: u32, open_bits: u32) -> f32 {
    let half = if open_bits == 0 || bits << 1 == 0 { 0 } else { 1 << (open_bits - 1) };
    let value = f32::from_bits(bits | half);
    // Planes made up by others may spell NaN, which only a marked row decodes to.
    if value.is_finite() { value } else { 0.0 }
}
