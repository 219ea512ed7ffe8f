//! The codecs and the planes that their packets are made of.

use crate::packet::{BLOCK, HEADER_LEN};
use std::fmt;
use std::str::FromStr;

/// How coordinates become bits. All codecs share the packet format: a head that decodes alone, refinement after it.
///
/// ```text
/// codec            rotated   plane 0                  whole packet            after a cut to plane 0
/// rht              yes       sign                     f32 precision           ±κσ, scaled to be unbiased
/// rht-paper        yes       sign                     rotated f32s            ±f or as rht
/// sign-magnitude   no        sign                     bit-exact               ±σ, biased
/// sq               no        sign of x + t            bit-exact               ±2.5 σ, unbiased up to ±2.5 σ
/// sd               no        sign of x + t            bit-exact               ±2.5 σ − t, unbiased up to ±2.5 σ
/// raw              no        everything               bit-exact               what arrived, zeros for the rest
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Codec {
    /// Randomised Hadamard transform, embedded quantiser (DESIGN §4): every prefix is near the best of its size.
    #[default]
    Rht,
    /// Randomised Hadamard transform, sign, then the rest of the rotated f32 (the paper, §3.2).
    RhtPaper,
    /// Sign, then the rest of the f32 (the paper, §3.1).
    SignMagnitude,
    /// Stochastic quantisation to ±2.5 σ (the paper, §3.1).
    StochasticQuantisation,
    /// Subtractive dithering with ±2.5 σ. The dither is uniform on (−L, L); the paper's (−L/2, L/2) is biased (DESIGN §4).
    SubtractiveDithering,
    /// The f32s in order, as an untrimmable packet carries them.
    Raw,
}

/// A name that is no codec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown codec {0:?} (valid: rht, rht-paper, sign-magnitude, sq, sd, raw)")]
pub struct UnknownCodec(String);

/// Most planes that a codec has.
pub const MAX_PLANES: u8 = 12;

impl Codec {
    /// All of them, by id.
    pub const ALL: [Self; 6] = [
        Self::Rht,
        Self::RhtPaper,
        Self::SignMagnitude,
        Self::StochasticQuantisation,
        Self::SubtractiveDithering,
        Self::Raw,
    ];

    /// The header's three bits.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The codec of an id; `None` for 6 and above.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.get(usize::from(id)).copied()
    }

    /// Its name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rht => "rht",
            Self::RhtPaper => "rht-paper",
            Self::SignMagnitude => "sign-magnitude",
            Self::StochasticQuantisation => "sq",
            Self::SubtractiveDithering => "sd",
            Self::Raw => "raw",
        }
    }

    /// Whether rows are rotated before they are quantised.
    pub const fn rotates(self) -> bool {
        matches!(self, Self::Rht | Self::RhtPaper)
    }

    /// Planes of a whole packet.
    pub const fn planes(self) -> u8 {
        self.plane_bits().len() as u8
    }

    /// Most coordinates of a packet that fits an MTU of 1500 bytes whole, be it over IPv4 or IPv6: fragments cannot be cut.
    pub const fn coordinates_per_packet(self) -> usize {
        // What IPv6 and UDP leave of the MTU.
        let payload = 1500 - 48;
        let mut n = BLOCK;
        while HEADER_LEN + self.body_len(n + BLOCK) <= payload {
            n += BLOCK;
        }
        n
    }

    /// Bits per coordinate of each plane.
    pub(crate) const fn plane_bits(self) -> &'static [u8] {
        match self {
            // With sixteen bits of position a whole packet is as accurate as f32 arithmetic on a row is.
            Self::Rht => &[1, 1, 1, 1, 1, 1, 1, 1, 8, 8],
            Self::RhtPaper | Self::SignMagnitude => &[1, 1, 1, 1, 1, 1, 1, 1, 8, 8, 8],
            // The head is not the sign, so the f32 needs all of its 32 bits behind it.
            Self::StochasticQuantisation | Self::SubtractiveDithering => {
                &[1, 1, 1, 1, 1, 1, 1, 1, 8, 8, 8, 1]
            }
            Self::Raw => &[32],
        }
    }

    /// Offset of a plane in a body that begins with plane 0, bytes; of plane `planes()` or beyond, the length of a whole
    /// body. `coordinates` is a multiple of 32.
    pub const fn plane_offset(self, plane: u8, coordinates: usize) -> usize {
        let plane = if plane < MAX_PLANES { plane } else { MAX_PLANES };
        BITS_BEFORE[self as usize][plane as usize] as usize * (coordinates / 8)
    }

    /// Length of a whole body, bytes.
    pub const fn body_len(self, coordinates: usize) -> usize {
        self.plane_offset(MAX_PLANES, coordinates)
    }
}

/// Bits of a coordinate in the planes in front of each, by codec. Every packet that arrives asks for some.
static BITS_BEFORE: [[u8; MAX_PLANES as usize + 1]; Codec::ALL.len()] = {
    let mut before = [[0; MAX_PLANES as usize + 1]; Codec::ALL.len()];
    let mut codec = 0;
    while codec < Codec::ALL.len() {
        let bits = Codec::ALL[codec].plane_bits();
        let row = &mut before[Codec::ALL[codec] as usize];
        let mut plane = 0;
        while plane < MAX_PLANES as usize {
            row[plane + 1] = row[plane] + if plane < bits.len() { bits[plane] } else { 0 };
            plane += 1;
        }
        codec += 1;
    }
    before
};

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Codec {
    type Err = UnknownCodec;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|codec| codec.name() == name).ok_or_else(|| UnknownCodec(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_lead_back_to_their_codec() {
        for codec in Codec::ALL {
            assert_eq!(Codec::from_id(codec.id()), Some(codec));
            assert_eq!(codec.name().parse(), Ok(codec));
        }
        assert_eq!((Codec::from_id(6), Codec::from_id(7)), (None, None));
        let error = "rth".parse::<Codec>().unwrap_err().to_string();
        assert_eq!(error, "unknown codec \"rth\" (valid: rht, rht-paper, sign-magnitude, sq, sd, raw)");
    }

    #[test]
    fn planes_lie_one_behind_the_other() {
        for codec in Codec::ALL {
            let mut offset = 0;
            for (plane, bits) in codec.plane_bits().iter().enumerate() {
                assert_eq!(codec.plane_offset(plane as u8, 352), offset, "{codec}, plane {plane}");
                offset += 44 * usize::from(*bits);
            }
            for beyond in codec.planes()..=MAX_PLANES {
                assert_eq!(codec.plane_offset(beyond, 352), offset, "{codec}");
            }
        }
    }

    #[test]
    fn the_fullest_packets_fit_an_mtu_of_1500_bytes() {
        for codec in Codec::ALL {
            let n = codec.coordinates_per_packet();
            let datagram = |n| 40 + 8 + HEADER_LEN + codec.body_len(n);
            assert!(datagram(n) <= 1500 && datagram(n + BLOCK) > 1500, "{codec}: {n}");
        }
        assert_eq!(Codec::ALL.map(Codec::coordinates_per_packet), [448, 352, 352, 320, 320, 352]);
    }

    #[test]
    fn a_whole_body_holds_every_bit_of_its_coordinates() {
        for (codec, bits) in Codec::ALL.into_iter().zip([24, 32, 32, 33, 33, 32]) {
            assert_eq!(codec.body_len(352), 44 * bits, "{codec}");
            assert!(codec.planes() <= MAX_PLANES);
        }
    }
}
