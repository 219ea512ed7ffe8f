//! Planes of one packet back to coordinates.

use crate::codec::Codec;
use crate::decoder::Decoding;
use crate::dither;
use crate::layout::DEFAULT_COORDINATES_PER_PACKET;
use crate::packet::{BLOCK, Header};
use crate::quantiser::{self, Expander, Zones};
use crate::simd::{Lanes, Planes, Split};
use crate::weights::decodes_by_sign;

/// The planes of a packet, as far as they are held; bytes beyond that mean nothing.
#[derive(Clone, Copy)]
pub(crate) struct PlaneReader<'a> {
    pub(crate) body: &'a [u8],
    pub(crate) n: usize,
}

impl PlaneReader<'_> {
    /// Reads a block of the first `planes` planes; the others stay as they are.
    #[inline(always)]
    fn read(&self, block: usize, planes: usize, split: &mut Split) {
        for (plane, bits) in split.bits.iter_mut().enumerate().take(planes) {
            *bits = self.bits(plane * (self.n / 8), block);
        }
        for (plane, bytes) in split.bytes.iter_mut().enumerate().take(planes.saturating_sub(8)) {
            let at = self.n + plane * self.n + BLOCK * block;
            bytes.copy_from_slice(&self.body[at..at + BLOCK]);
        }
    }

    /// A block of the bit-plane that begins at byte `start`.
    #[inline(always)]
    fn bits(&self, start: usize, block: usize) -> u32 {
        let at = start + 4 * block;
        self.body[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }
}

/// Room for the code words of a packet's blocks; a packet of more blocks takes its turns.
pub(crate) type Codes = [[u32; BLOCK]; DEFAULT_COORDINATES_PER_PACKET / BLOCK];

/// Reads coordinates of which the same number of planes is held.
pub(crate) struct Dequantiser {
    planes: usize,
    values: Values,
}

enum Values {
    /// Nothing arrived.
    Zero,
    /// ±magnitude by plane 0; with dither, less the coordinate's threshold.
    Signs { magnitude: f32, dithered: bool },
    /// By the upper bits of the index, sign included, in the given unit.
    Indices { zones: Zones, unit: f64 },
    /// By the code of the embedded quantiser, in the given unit.
    Codes { zones: Zones, unit: f64, open_bits: u32 },
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
    pub(crate) fn new(
        codec: Codec,
        decoding: Decoding,
        header: Header,
        planes: u8,
        unit: f64,
        paper: f64,
    ) -> Self {
        let sigma = f64::from(header.sigma);
        let mean = sigma * f64::from(header.kappa) / 255.0;
        let signs = |magnitude: f64| Values::Signs { magnitude: magnitude as f32, dithered: false };
        let cut = planes < codec.planes();
        // Bits of the code that are unknown; a twelfth plane holds one more bit.
        let open_bits = 8 * u32::from(11u8.saturating_sub(planes));
        let values = match codec {
            _ if planes == 0 => Values::Zero,
            Codec::Rht if decoding == Decoding::Paper && cut => signs(paper),
            Codec::RhtPaper if decoding == Decoding::Paper && planes <= 8 => signs(paper),
            Codec::Rht | Codec::RhtPaper if decodes_by_sign(codec, header.kappa, planes) => {
                signs(mean * unit)
            }
            Codec::Rht => {
                let zones = Zones::new(quantiser::peak_magnitude(header.peak));
                let unit = sigma * unit;
                if planes > 8 {
                    Values::Codes { zones, unit, open_bits }
                } else {
                    Values::Indices { zones, unit }
                }
            }
            Codec::RhtPaper => Values::Rotated { open_bits, unit },
            Codec::SignMagnitude if planes <= 8 => {
                signs(if decoding == Decoding::Paper { sigma } else { mean })
            }
            Codec::SignMagnitude => Values::Floats { open_bits },
            Codec::StochasticQuantisation | Codec::SubtractiveDithering if planes <= 8 => Values::Signs {
                magnitude: dither::limit(header.sigma),
                dithered: codec == Codec::SubtractiveDithering,
            },
            Codec::StochasticQuantisation | Codec::SubtractiveDithering => {
                Values::BehindHead { open_bits: if cut { open_bits + 1 } else { 0 } }
            }
            Codec::Raw => Values::Raw,
        };
        Self { planes: usize::from(planes), values }
    }

    /// Writes the coordinates of the blocks from `first_block` on; `words` are the packet's dither words, where there are any.
    #[inline(always)]
    pub(crate) fn decode<L: Lanes>(
        &self,
        lanes: L,
        reader: PlaneReader<'_>,
        first_block: usize,
        words: &[u32],
        codes: &mut Codes,
        out: &mut [f32],
    ) {
        let blocks = (first_block..).zip(out.as_chunks_mut::<BLOCK>().0);
        let mut split = Split::ZERO;
        match &self.values {
            Values::Zero => out.fill(0.0),
            Values::Signs { magnitude, dithered } => {
                let value = lanes.splat(*magnitude);
                for (block, out) in blocks {
                    let bits = reader.bits(0, block);
                    for (at, line) in L::lines_mut(out).iter_mut().enumerate() {
                        lanes.store(line, lanes.flip(value, bits, at));
                    }
                    if *dithered {
                        for (i, value) in out.iter_mut().enumerate() {
                            let word = words.get(block * BLOCK + i).copied().unwrap_or_default();
                            *value -= dither::threshold(word, *magnitude);
                        }
                    }
                }
            }
            Values::Indices { zones, unit } => {
                let table = table(zones, *unit as f32, self.planes as u8);
                for (block, out) in blocks {
                    reader.read(block, self.planes, &mut split);
                    lanes.join(&split, &mut codes[0]);
                    for i in 0..BLOCK {
                        out[i] = table[(codes[0][i] >> 24) as usize];
                    }
                }
            }
            Values::Codes { zones, unit, open_bits } => {
                let expander = Expander::new(lanes, zones, *unit, *open_bits);
                let whole = Planes::new(reader.body, reader.n).filter(|_| self.planes >= 11);
                let groups = (first_block..).step_by(codes.len());
                for (first, out) in groups.zip(out.as_chunks_mut::<BLOCK>().0.chunks_mut(codes.len())) {
                    let codes = &mut codes[..out.len()];
                    // Whole packets are the rule, and a loop that reads all planes keeps everything in registers.
                    if let Some(whole) = whole {
                        for (block, codes) in (first..).zip(codes.iter_mut()) {
                            whole.read(block, &mut split);
                            lanes.join(&split, codes);
                        }
                    } else {
                        for (block, codes) in (first..).zip(codes.iter_mut()) {
                            reader.read(block, self.planes, &mut split);
                            lanes.join(&split, codes);
                        }
                    }
                    // A loop of its own: a processor looks ahead some 250 instructions, and both loops' work on one block is that much.
                    for (out, codes) in out.iter_mut().zip(codes) {
                        expand(lanes, &expander, codes, out);
                    }
                }
            }
            Values::Floats { open_bits } => {
                for (block, out) in blocks {
                    reader.read(block, self.planes, &mut split);
                    lanes.join(&split, &mut codes[0]);
                    for i in 0..BLOCK {
                        out[i] = middle(codes[0][i], *open_bits);
                    }
                }
            }
            Values::Rotated { open_bits, unit } => {
                for (block, out) in blocks {
                    reader.read(block, self.planes, &mut split);
                    lanes.join(&split, &mut codes[0]);
                    for i in 0..BLOCK {
                        let value = f64::from(middle(codes[0][i], *open_bits)) * unit;
                        out[i] = value.clamp(-LARGEST, LARGEST) as f32;
                    }
                }
            }
            Values::BehindHead { open_bits } => {
                for (block, out) in blocks {
                    reader.read(block, self.planes, &mut split);
                    lanes.join(&split, &mut codes[0]);
                    let last = if self.planes > 11 { reader.bits(4 * reader.n, block) } else { 0 };
                    for i in 0..BLOCK {
                        out[i] = middle(codes[0][i] << 1 | last >> i & 1, *open_bits);
                    }
                }
            }
            Values::Raw => {
                let values = reader.body.as_chunks::<4>().0.iter().skip(first_block * BLOCK);
                for (to, bytes) in out.iter_mut().zip(values) {
                    *to = f32::from_be_bytes(*bytes);
                }
            }
        }
    }
}

/// A block's coordinates from its code words.
#[inline(always)]
fn expand<L: Lanes>(lanes: L, expander: &Expander<L>, codes: &[u32; BLOCK], out: &mut [f32; BLOCK]) {
    let (magnitude, sign) = (lanes.splat_u(0x7fff_ffff), lanes.splat_u(1 << 31));
    // A block is two vectors of sixteen lanes or four of eight.
    for (pair, [first, second]) in L::lines_mut(out).as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let (a, b) = (lanes.load_words(codes, 2 * pair), lanes.load_words(codes, 2 * pair + 1));
        let m = expander.magnitudes(lanes, [lanes.and(a, magnitude), lanes.and(b, magnitude)]);
        lanes.store(first, lanes.floats(lanes.or(lanes.bits(m[0]), lanes.and(a, sign))));
        lanes.store(second, lanes.floats(lanes.or(lanes.bits(m[1]), lanes.and(b, sign))));
    }
}

/// Largest working value of rotated f32s, 2^100. Honest ones never come near it; made-up ones must not overflow a transform.
const LARGEST: f64 = (1u128 << 100) as f64;

/// What indices stand for when their first `planes` bits are known, sign included. Indices read from `planes` planes end in zeros, so
/// only their first entries are looked up.
fn table(zones: &Zones, unit: f32, planes: u8) -> [f32; 256] {
    let mut table = [0.0; 256];
    for index in (0..=255u8).step_by(256 >> planes.min(8)) {
        let magnitude = unit * zones.centroid(index, planes);
        table[usize::from(index)] = if index & 128 == 0 { magnitude } else { -magnitude };
    }
    table
}

/// The f32 in the middle of those that begin with the known bits. Zero stays zero where all known bits say so, and no value is
/// carried to infinity.
#[inline(always)]
fn middle(bits: u32, open_bits: u32) -> f32 {
    let half = if open_bits == 0 || bits << 1 == 0 { 0 } else { 1 << (open_bits - 1) };
    let value = f32::from_bits(bits | half);
    // Planes made up by others may spell NaN, which only a marked row decodes to.
    if value.is_finite() { value } else { 0.0 }
}
