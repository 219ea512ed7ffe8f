// SPDX-License-Identifier: Apache-2.0
//! Figures of the papers' codecs: what a trim leaves of a gradient, as pure functions beside the
//! hot path.
//!
//! rht is compared with the codecs of the HotNets'24 paper. Nobody sends those. So they have no
//! packets here, only packets' lengths, and what a receiver would make of them.
//!
//! A packet of theirs holds the heads of its coordinates, one bit each, and then their tails, one
//! behind the other (§3): a trim leaves heads. A coordinate without its tail is worth its head, and
//! one without its head is 0. In the terms of this crate that makes two planes.

use crate::accuracy::{self, by_sign};
use crate::decode::decoding::Decoding;
use crate::element::Element;
use crate::rotate::philox::philox4x32;
use crate::rotate::{self, Job};
use crate::simd::Isa;
use crate::wire::{BLOCK, Codec, Envelope, HEADER_LEN, Layout, Reach};
use std::f64::consts::FRAC_2_PI;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A codec of the HotNets'24 paper.
///
/// ```text
/// codec            rotated   head           whole          after a trim to heads
/// rht-paper        yes       sign           rotated f32s   ±f, or ±κσ scaled to be unbiased
/// sign-magnitude   no        sign           bit-exact      ±σ, or ±κσ: biased
/// sq               no        sign of x + t  bit-exact      ±2.5 σ, unbiased up to ±2.5 σ
/// sd               no        sign of x + t  bit-exact      ±2.5 σ − t, unbiased up to ±2.5 σ
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PaperCodec {
    /// Randomised Hadamard transform, sign, then the rest of the rotated f32 (§3.2).
    Rht,
    /// Sign, then the rest of the f32 (§3.1).
    SignMagnitude,
    /// Stochastic quantisation to ±2.5 σ (§3.1).
    StochasticQuantisation,
    /// Subtractive dithering with ±2.5 σ. The dither is uniform on (−L, L); the paper's (−L/2, L/2)
    /// is biased.
    SubtractiveDithering,
}

/// L / σ (§3.1, after TernGrad).
const CLIP: f32 = 2.5;
/// Keeps thresholds apart from the words of the row's signs: ranks have ten bits.
const DITHER: u32 = 1 << 16;
/// E (x̂ − x)² of N(0, 1) by stochastic quantisation to ±L, L = 2.5: L² − 2 E[x · clip(x)] + 1 with
/// E[x · clip(x)] = erf(L/√2).
const STOCHASTIC: f64 = 6.25 - 2.0 * 0.987_580_669_348_447_7 + 1.0;
/// The same by subtractive dithering: L²/3, and what the clipped tails add, E (|x| − L)²₊.
const DITHERED: f64 = 6.25 / 3.0 + 0.002_398_644_756;

/// Which row is trimmed, and how it is decoded.
#[derive(Debug, Clone, Copy)]
pub struct Trimmed<'a> {
    /// The message's rows and packets.
    pub layout: &'a Layout,
    /// The row; below `layout.rows()`.
    pub row: usize,
    /// What all ranks share.
    pub job: Job,
    /// Whose message it is.
    pub envelope: Envelope,
    /// How trimmed coordinates are filled in.
    pub decoding: Decoding,
}

/// What is known of a packet.
struct Packet {
    place: Range<usize>,
    /// Root mean square and mean magnitude of its coordinates.
    sigma: f64,
    mean: f64,
    reach: Reach,
}

impl Packet {
    /// Coordinates that arrived whole, and with their heads alone.
    fn counts(&self) -> (usize, usize) {
        let n = self.place.len();
        match self.reach {
            Reach { planes: 0, more } => (0, more),
            Reach { planes: 1, more } => (more, n - more),
            Reach { .. } => (n, 0),
        }
    }
}

impl PaperCodec {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Rht, Self::SignMagnitude, Self::StochasticQuantisation, Self::SubtractiveDithering];

    /// Its name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rht => "rht-paper",
            Self::SignMagnitude => "sign-magnitude",
            Self::StochasticQuantisation => "sq",
            Self::SubtractiveDithering => "sd",
        }
    }

    /// Whether rows are rotated first.
    pub const fn rotates(self) -> bool {
        matches!(self, Self::Rht)
    }

    /// Bits of a coordinate's tail: what its f32 has behind a sign, or all of it behind a head that
    /// is none.
    const fn tail_bits(self) -> usize {
        match self {
            Self::Rht | Self::SignMagnitude => 31,
            Self::StochasticQuantisation | Self::SubtractiveDithering => 32,
        }
    }

    /// Bytes of a packet of `n` coordinates, a multiple of 32, with nothing (0), heads (1), or
    /// heads and tails (2 and more).
    pub const fn packet_len(self, planes: u8, n: usize) -> usize {
        HEADER_LEN
            + n / 8
                * match planes {
                    0 => 0,
                    1 => 1,
                    _ => 1 + self.tail_bits(),
                }
    }

    /// How far the first `bytes` bytes behind a packet's header reach.
    pub const fn reach(self, bytes: usize, n: usize) -> Reach {
        if bytes < n / 8 {
            return Reach { planes: 0, more: bytes * 8 };
        }
        let tails = (bytes - n / 8) * 8 / self.tail_bits();
        if tails < n { Reach { planes: 1, more: tails } } else { Reach { planes: 2, more: 0 } }
    }

    /// What a receiver makes of a row. `values` are the row's coordinates, of which `out` has as
    /// many; `held` says how many bytes of the UDP payload of a packet, by its index in the
    /// message, are left: none of one that is lost. A row that is not finite is NaN as soon as
    /// anything of it arrives.
    pub fn after_trim<E: Element>(
        self,
        of: Trimmed<'_>,
        values: &[E],
        held: impl Fn(usize) -> usize,
        out: &mut [f32],
    ) {
        let Trimmed { layout, row, job, envelope, decoding } = of;
        let mut wide = Vec::new();
        let values = E::widen(values, &mut wide);
        let mut v = values.to_vec();
        v.resize(layout.row_range(row).len(), 0.0);
        if self.rotates() {
            rotate::forward(Isa::best(), &mut v, job, envelope, row as u32);
        }
        let packet = |(index, place): (usize, Range<usize>)| {
            let body = held(index).checked_sub(HEADER_LEN)?;
            let (n, values) = (place.len() as f64, v[place.clone()].iter().map(|v| f64::from(*v)));
            let sigma = (values.clone().map(|v| v * v).sum::<f64>() / n).sqrt();
            let mean = values.map(f64::abs).sum::<f64>() / n;
            let reach = self.reach(body, place.len());
            Some(Packet { place, sigma, mean, reach })
        };
        let packets: Vec<Packet> = layout.row_places(row).filter_map(packet).collect();
        if !packets.is_empty() && !values.iter().all(|value| value.is_finite()) {
            return out.fill(f32::NAN);
        }
        let (lambda, scale) = self.scales(v.len(), decoding, &packets);
        let mut decoded = vec![0.0; v.len()];
        for packet in &packets {
            let (whole, heads) = packet.counts();
            for j in packet.place.start..packet.place.start + whole + heads {
                decoded[j] = if j < packet.place.start + whole {
                    (f64::from(v[j]) * lambda) as f32
                } else {
                    self.head(of, packet, (v[j], j), lambda, scale)
                };
            }
        }
        if self.rotates() {
            rotate::inverse(Isa::best(), &mut decoded, job, envelope, row as u32);
        }
        out.iter_mut().zip(decoded).for_each(|(to, value)| *to = value);
    }

    /// λ, and f of the paper's decoding (docs/reference/wire-format.md §8): both are the row's.
    fn scales(self, length: usize, decoding: Decoding, packets: &[Packet]) -> (f64, f64) {
        let (mut arrived, mut energy, mut kept, mut magnitude) = (0.0, 0.0, 0.0, 0.0);
        for packet in packets {
            let (n, square, (whole, heads)) =
                (packet.place.len() as f64, packet.sigma.powi(2), packet.counts());
            arrived += n;
            energy += n * square;
            magnitude += n * packet.mean;
            // D of a head is 1 − (mean / σ)².
            kept += whole as f64 * square + heads as f64 * packet.mean.powi(2);
        }
        let lambda = match decoding {
            Decoding::Unbiased if self.rotates() && kept > 0.0 => energy * length as f64 / arrived / kept,
            _ => 1.0,
        };
        (lambda, if magnitude > 0.0 { energy / magnitude } else { 0.0 })
    }

    /// What the head of coordinate `j` of the row, of that value, is worth.
    fn head(
        self,
        of: Trimmed<'_>,
        packet: &Packet,
        (value, j): (f32, usize),
        lambda: f64,
        scale: f64,
    ) -> f32 {
        let paper = of.decoding == Decoding::Paper;
        let magnitude = match self {
            Self::Rht if paper => scale,
            Self::Rht => packet.mean * lambda,
            Self::SignMagnitude if paper => packet.sigma,
            Self::SignMagnitude => packet.mean,
            Self::StochasticQuantisation | Self::SubtractiveDithering => {
                let limit = CLIP * packet.sigma as f32;
                let t = threshold(of, j) * limit;
                let decoded = if value + t < 0.0 { -limit } else { limit };
                return if self == Self::SubtractiveDithering { decoded - t } else { decoded };
            }
        };
        (magnitude as f32).copysign(value)
    }

    /// Expected NMSE, as [`crate::expected_nmse`] has it: of 0 planes nothing arrived, of 1 heads,
    /// of 2 everything.
    pub fn expected_nmse(self, decoding: Decoding, shares: &[(u8, f64)]) -> f64 {
        let distortion = |planes| match (planes, self, decoding) {
            (0, ..) => 1.0,
            (2.., ..) => 0.0,
            (_, Self::Rht, Decoding::Paper) => by_sign(1.0 / FRAC_2_PI.sqrt()),
            (_, Self::SignMagnitude, Decoding::Paper) => by_sign(1.0),
            (_, Self::Rht | Self::SignMagnitude, _) => 1.0 - FRAC_2_PI,
            (_, Self::StochasticQuantisation, _) => STOCHASTIC,
            (_, Self::SubtractiveDithering, _) => DITHERED,
        };
        let lost: f64 = shares.iter().map(|(planes, share)| share * distortion(*planes)).sum();
        let scaled = self.rotates() && decoding == Decoding::Unbiased;
        if scaled { 1.0 / (1.0 - lost) - 1.0 } else { lost }
    }
}

/// A coordinate's threshold, which both ends know: uniform on (−1, 1), and exact in f32.
fn threshold(of: Trimmed<'_>, j: usize) -> f32 {
    let Trimmed { row, job, envelope, .. } = of;
    let key = [job.seed as u32, (job.seed >> 32) as u32];
    let rank = u32::from(envelope.stream.rank()) | DITHER;
    let word = philox4x32([(j / 4) as u32, row as u32, envelope.message, rank], key)[j % 4];
    // An odd number of at most 25 bits.
    (2 * (word >> 8) as i32 + 1 - (1 << 24)) as f32 / 16_777_216.0
}

/// A codec of packets, or one of figures: whatever errors are compared of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// One that is sent.
    Wire(Codec),
    /// One that is not.
    Paper(PaperCodec),
}

/// A name that is neither's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown codec {0:?} (valid: rht, rht-paper, sign-magnitude, sq, sd, raw)")]
pub struct UnknownScheme(String);

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Wire(Codec::Rht),
        Self::Paper(PaperCodec::Rht),
        Self::Paper(PaperCodec::SignMagnitude),
        Self::Paper(PaperCodec::StochasticQuantisation),
        Self::Paper(PaperCodec::SubtractiveDithering),
        Self::Wire(Codec::Raw),
    ];

    /// Its name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wire(codec) => codec.name(),
            Self::Paper(codec) => codec.name(),
        }
    }

    /// Planes of a whole packet.
    pub const fn planes(self) -> u8 {
        match self {
            Self::Wire(codec) => codec.planes(),
            Self::Paper(_) => 2,
        }
    }

    /// [`Codec::default_planes`].
    pub const fn default_planes(self, element_bytes: usize) -> u8 {
        match self {
            Self::Wire(codec) => codec.default_planes(element_bytes),
            Self::Paper(_) => 2,
        }
    }

    /// Whether rows are rotated.
    pub const fn rotates(self) -> bool {
        match self {
            Self::Wire(codec) => codec.rotates(),
            Self::Paper(codec) => codec.rotates(),
        }
    }

    /// Bytes of the UDP payload of a packet that is not sealed.
    pub const fn packet_len(self, planes: u8, n: usize) -> usize {
        match self {
            Self::Wire(codec) => codec.packet_len(planes, n, false),
            Self::Paper(codec) => codec.packet_len(planes, n),
        }
    }

    /// How far the first `bytes` bytes behind a packet's header reach.
    pub const fn reach(self, bytes: usize, n: usize) -> Reach {
        match self {
            Self::Wire(codec) => codec.reach(bytes, n),
            Self::Paper(codec) => codec.reach(bytes, n),
        }
    }

    /// [`Codec::coordinates_per_packet`].
    pub const fn coordinates_per_packet(self, mtu: usize, planes: u8, sealed: bool) -> usize {
        match self {
            Self::Wire(codec) => codec.coordinates_per_packet(mtu, planes, sealed),
            Self::Paper(codec) => {
                let block = codec.packet_len(planes, BLOCK) - HEADER_LEN;
                let n = mtu.saturating_sub(40 + 8 + HEADER_LEN) / block * BLOCK;
                if n < 255 * BLOCK { n } else { 255 * BLOCK }
            }
        }
    }

    /// [`crate::expected_nmse`].
    pub fn expected_nmse(self, decoding: Decoding, shares: &[(u8, f64)]) -> f64 {
        match self {
            Self::Wire(codec) => accuracy::expected_nmse(codec, decoding, shares),
            Self::Paper(codec) => codec.expected_nmse(decoding, shares),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scheme {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|scheme| scheme.name() == name)
            .ok_or_else(|| UnknownScheme(name.to_owned()))
    }
}

#[cfg(test)]
mod tests;
