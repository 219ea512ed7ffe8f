//! The wire format of a DATA packet (DESIGN §3; `docs/wire-format.md`), and the eight bytes that all kinds share.
//!
//! Three layers: [`PacketView`] is a checked view over received bytes of any length, [`Prefix`] and [`Header`] are owned
//! representations that hold legal values only, and the codec stands above them. Nothing here panics on input.

use thiserror::Error;

/// Version of the wire format that this crate speaks.
pub const VERSION: u8 = 1;
/// Length of the prefix that packets of every kind begin with, bytes.
pub const PREFIX_LEN: usize = 8;
/// Length of a DATA header, bytes.
pub const HEADER_LEN: usize = 18;
/// Planes in a whole body: eight bit-planes, then three byte-planes.
pub const PLANES: u8 = 11;
/// Bit-planes among [`PLANES`]; they come first.
pub const BIT_PLANES: u8 = 8;
/// Coordinates per packet come in units of this many.
pub const COORDINATE_UNIT: usize = 32;
/// Largest number of coordinates in one packet (255 units).
pub const MAX_COORDINATES: usize = 255 * COORDINATE_UNIT;
/// Number of packets a message can have (20 bits of packet index).
pub const MAX_PACKETS: usize = 1 << 20;
/// Coordinates per packet that fill a 1500-byte MTU: 20 (IPv4) + 8 (UDP) + 18 + 352·4 = 1454.
pub const MTU_1500_COORDINATES: usize = 352;
/// Number of job ids (6 bits).
pub const MAX_JOBS: u16 = 1 << 6;
/// Number of ranks (10 bits).
pub const MAX_RANKS: u16 = 1 << 10;

/// Why a byte string is not a packet that this crate can read.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PacketError {
    /// Fewer bytes than the header needs. A header cut short counts as a lost packet.
    #[error("packet of {length} bytes is shorter than its {needed}-byte header")]
    Truncated {
        /// Bytes received.
        length: usize,
        /// Bytes the header needs.
        needed: usize,
    },
    /// A version other than [`VERSION`].
    #[error("wire version {0} is not supported; this is version 1")]
    Version(u8),
    /// A kind that this version does not define.
    #[error("unknown kind {0}; valid kinds: 1 (DATA), 2 (ACK), 3 (PROBE), 4 (STATUS), 5 (STOP), 6 (FINAL)")]
    UnknownKind(u8),
    /// A codec that this version does not define.
    #[error(
        "unknown codec {0}; valid codecs: 0 (rht), 1 (rht-paper), 2 (sign-magnitude), 3 (sq), 4 (sd), 5 (raw)"
    )]
    UnknownCodec(u8),
    /// A legal packet of another kind where DATA was expected.
    #[error("packet of kind {0:?} where DATA was expected")]
    NotData(Kind),
    /// A codec of the wire format that this decoder does not implement.
    #[error("codec {0:?} is not implemented by this decoder; it reads RhtEmbedded")]
    UnsupportedCodec(Codec),
    /// A first plane behind the last one.
    #[error("first plane {0} does not exist; planes are 0 to 10")]
    FirstPlane(u8),
    /// Zero coordinates.
    #[error("packet {index} says it carries 0 coordinates; at least 32 are needed")]
    NoCoordinates {
        /// The packet's index.
        index: u32,
    },
    /// σ is negative, infinite or not a number.
    #[error("packet {index} has σ = {sigma}; a finite value of at least 0 is needed")]
    Sigma {
        /// The packet's index.
        index: u32,
        /// The value on the wire.
        sigma: f32,
    },
    /// A number of coordinates per packet other than the layout's.
    #[error("packet {index} carries {coordinates} coordinates where the layout has {expected}")]
    Coordinates {
        /// The packet's index.
        index: u32,
        /// Coordinates according to the header.
        coordinates: usize,
        /// Coordinates according to the layout.
        expected: usize,
    },
    /// A packet index outside of the message.
    #[error("packet index {index} is outside of the message's {packets} packets")]
    Index {
        /// The packet's index.
        index: u32,
        /// Packets in the message.
        packets: usize,
    },
    /// More bytes than a whole packet has.
    #[error("packet {index} has a body of {length} bytes; whole, it has {whole}")]
    Oversized {
        /// The packet's index.
        index: u32,
        /// Body bytes received.
        length: usize,
        /// Body bytes of a whole packet from its first plane on.
        whole: usize,
    },
    /// σ, κ or the peak differ from an earlier copy of the same packet.
    #[error("packet {index} contradicts an earlier copy of itself (σ, κ or peak differ)")]
    Contradiction {
        /// The packet's index.
        index: u32,
    },
    /// A stream id that does not fit its field.
    #[error("job {job}, rank {rank} does not fit a stream id; jobs are 0 to 63, ranks 0 to 1023")]
    StreamId {
        /// Job asked for.
        job: u16,
        /// Rank asked for.
        rank: u16,
    },
    /// A layer class that does not fit its field.
    #[error("layer class {0} does not exist; classes are 0 to 7")]
    LayerClass(u8),
    /// A value that does not fit the header.
    #[error("{field} = {value} does not fit the header (largest legal value {largest})")]
    Field {
        /// The field's name.
        field: &'static str,
        /// The value asked for.
        value: usize,
        /// The largest value that fits.
        largest: usize,
    },
}

/// What a packet is for. Bodies of kinds other than DATA belong to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Planes of a packet of a message.
    Data = 1,
    /// Receiver to sender: round-trip time, trimmed share.
    Ack = 2,
    /// Sender to receiver: which packets do you have?
    Probe = 3,
    /// Receiver to sender: bitmap of full, cut and missing packets.
    Status = 4,
    /// Receiver to sender: the loss bound holds, stop.
    Stop = 5,
    /// Sender to receiver: STOP was heard.
    Final = 6,
}

impl Kind {
    fn from_wire(value: u8) -> Result<Self, PacketError> {
        Ok(match value {
            1 => Self::Data,
            2 => Self::Ack,
            3 => Self::Probe,
            4 => Self::Status,
            5 => Self::Stop,
            6 => Self::Final,
            other => return Err(PacketError::UnknownKind(other)),
        })
    }
}

/// How the body was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Codec {
    /// Randomised Hadamard transform, embedded quantiser (DESIGN §4).
    RhtEmbedded = 0,
    /// Randomised Hadamard transform, the paper's sign + 31 bits (trimmable-gradients §3.2).
    RhtPaper = 1,
    /// Sign-magnitude (trimmable-gradients §3.1).
    SignMagnitude = 2,
    /// Stochastic quantisation (trimmable-gradients §3.1).
    StochasticQuantisation = 3,
    /// Subtractive dithering (trimmable-gradients §3.1).
    SubtractiveDithering = 4,
    /// The f32 themselves.
    Raw = 5,
}

impl Codec {
    fn from_wire(value: u8) -> Result<Self, PacketError> {
        Ok(match value {
            0 => Self::RhtEmbedded,
            1 => Self::RhtPaper,
            2 => Self::SignMagnitude,
            3 => Self::StochasticQuantisation,
            4 => Self::SubtractiveDithering,
            5 => Self::Raw,
            other => return Err(PacketError::UnknownCodec(other)),
        })
    }
}

/// Job and source rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct StreamId {
    job: u8,
    rank: u16,
}

impl StreamId {
    /// `job` is 0 to 63, `rank` 0 to 1023.
    pub fn new(job: u8, rank: u16) -> Result<Self, PacketError> {
        if u16::from(job) < MAX_JOBS && rank < MAX_RANKS {
            Ok(Self { job, rank })
        } else {
            Err(PacketError::StreamId { job: job.into(), rank })
        }
    }

    /// The job, 0 to 63.
    pub const fn job(self) -> u8 {
        self.job
    }

    /// The rank that the packet comes from, 0 to 1023.
    pub const fn rank(self) -> u16 {
        self.rank
    }

    const fn to_wire(self) -> u16 {
        (self.job as u16) << 10 | self.rank
    }

    const fn from_wire(value: u16) -> Self {
        Self { job: (value >> 10) as u8, rank: value & 0x3ff }
    }
}

/// MLT's layer class, 0 (front layers) to 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LayerClass(u8);

impl LayerClass {
    /// `class` is 0 to 7.
    pub fn new(class: u8) -> Result<Self, PacketError> {
        if class < 8 { Ok(Self(class)) } else { Err(PacketError::LayerClass(class)) }
    }

    /// The class, 0 to 7.
    pub const fn value(self) -> u8 {
        self.0
    }
}

/// Bytes 0–7, which packets of every kind begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// What the packet is for.
    pub kind: Kind,
    /// How DATA bodies of this message are made.
    pub codec: Codec,
    /// ECT on the wire: cut and dropped later than others (MLT §5.2).
    pub important: bool,
    /// Front layers are 0.
    pub layer_class: LayerClass,
    /// The last packet of the message.
    pub last: bool,
    /// Where the packet comes from.
    pub stream: StreamId,
    /// One collective phase's shard.
    pub message: u32,
}

impl Prefix {
    /// Reads the prefix of a packet of any kind.
    pub fn parse(bytes: &[u8]) -> Result<Self, PacketError> {
        let Some(&[b0, b1, b2, b3, b4, b5, b6, b7]) = bytes.first_chunk::<PREFIX_LEN>() else {
            return Err(PacketError::Truncated { length: bytes.len(), needed: PREFIX_LEN });
        };
        if b0 >> 4 != VERSION {
            return Err(PacketError::Version(b0 >> 4));
        }
        Ok(Self {
            kind: Kind::from_wire(b0 & 0xf)?,
            codec: Codec::from_wire(b1 >> 5)?,
            important: b1 & 0x10 != 0,
            layer_class: LayerClass(b1 >> 1 & 7),
            last: b1 & 1 != 0,
            stream: StreamId::from_wire(u16::from_be_bytes([b2, b3])),
            message: u32::from_be_bytes([b4, b5, b6, b7]),
        })
    }

    /// The eight bytes on the wire.
    pub fn to_bytes(&self) -> [u8; PREFIX_LEN] {
        let [b2, b3] = self.stream.to_wire().to_be_bytes();
        let [b4, b5, b6, b7] = self.message.to_be_bytes();
        let b1 = (self.codec as u8) << 5
            | u8::from(self.important) << 4
            | self.layer_class.0 << 1
            | u8::from(self.last);
        [VERSION << 4 | self.kind as u8, b1, b2, b3, b4, b5, b6, b7]
    }
}

/// Header of a DATA packet.
///
/// Built by [`Header::new`] or [`PacketView::parse`], so that its values are legal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Header {
    prefix: Prefix,
    first_plane: u8,
    index: u32,
    units: u8,
    scale: Scale,
}

/// The three numbers about a packet's own rotated coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Scale {
    /// Root mean square of the coordinates; finite, at least 0.
    pub sigma: f32,
    /// mean|r| / σ, in units of 1/255.
    pub kappa: u8,
    /// Upper bound of the largest |r| / σ: 2^(peak/32).
    pub peak: u8,
}

impl Header {
    /// A header of a packet of `coordinates` (multiple of 32, at most 8160) that carries planes from `first_plane` on.
    pub fn new(
        prefix: Prefix,
        index: usize,
        coordinates: usize,
        first_plane: u8,
        scale: Scale,
    ) -> Result<Self, PacketError> {
        if prefix.kind != Kind::Data {
            return Err(PacketError::NotData(prefix.kind));
        }
        if index >= MAX_PACKETS {
            return Err(PacketError::Field { field: "packet index", value: index, largest: MAX_PACKETS - 1 });
        }
        if !coordinates.is_multiple_of(COORDINATE_UNIT) || coordinates > MAX_COORDINATES {
            return Err(PacketError::Field {
                field: "coordinates per packet (a multiple of 32)",
                value: coordinates,
                largest: MAX_COORDINATES,
            });
        }
        let header = Self {
            prefix,
            first_plane,
            index: index as u32,
            units: (coordinates / COORDINATE_UNIT) as u8,
            scale,
        };
        header.checked()
    }

    fn checked(self) -> Result<Self, PacketError> {
        if self.first_plane >= PLANES {
            return Err(PacketError::FirstPlane(self.first_plane));
        }
        if self.units == 0 {
            return Err(PacketError::NoCoordinates { index: self.index });
        }
        if !(self.scale.sigma.is_finite() && self.scale.sigma >= 0.0) {
            return Err(PacketError::Sigma { index: self.index, sigma: self.scale.sigma });
        }
        Ok(self)
    }

    fn parse(bytes: &[u8]) -> Result<Self, PacketError> {
        let prefix = Prefix::parse(bytes)?;
        if prefix.kind != Kind::Data {
            return Err(PacketError::NotData(prefix.kind));
        }
        let Some(&[.., b8, b9, b10, units, s0, s1, s2, s3, kappa, peak]) = bytes.first_chunk::<HEADER_LEN>()
        else {
            return Err(PacketError::Truncated { length: bytes.len(), needed: HEADER_LEN });
        };
        Self {
            prefix,
            first_plane: b8 >> 4,
            index: u32::from_be_bytes([0, b8 & 0xf, b9, b10]),
            units,
            scale: Scale { sigma: f32::from_be_bytes([s0, s1, s2, s3]), kappa, peak },
        }
        .checked()
    }

    /// The 18 bytes on the wire.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.prefix.to_bytes());
        bytes[8..11].copy_from_slice(&self.index.to_be_bytes()[1..]);
        bytes[8] |= self.first_plane << 4;
        bytes[11] = self.units;
        bytes[12..16].copy_from_slice(&self.scale.sigma.to_be_bytes());
        bytes[16] = self.scale.kappa;
        bytes[17] = self.scale.peak;
        bytes
    }

    /// What packets of every kind share.
    pub const fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// Index of the first plane that the body carries; 0 but for repairs.
    pub const fn first_plane(&self) -> u8 {
        self.first_plane
    }

    /// Which packet of the message; it covers rotated coordinates [index·n, index·n + n).
    pub const fn index(&self) -> usize {
        self.index as usize
    }

    /// Coordinates in the packet, n.
    pub const fn coordinates(&self) -> usize {
        self.units as usize * COORDINATE_UNIT
    }

    /// σ, κ and peak.
    pub const fn scale(&self) -> Scale {
        self.scale
    }
}

/// Bytes of one plane of a packet of `coordinates`.
pub const fn plane_len(coordinates: usize, plane: u8) -> usize {
    if plane < BIT_PLANES { coordinates / 8 } else { coordinates }
}

/// Bytes that the planes before `plane` take in a body that begins with plane 0.
pub const fn plane_offset(coordinates: usize, plane: u8) -> usize {
    if plane <= BIT_PLANES {
        coordinates / 8 * plane as usize
    } else {
        coordinates + coordinates * (plane - BIT_PLANES) as usize
    }
}

/// A received DATA packet: a legal header, and whatever arrived of its body.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PacketView<'a> {
    header: Header,
    body: &'a [u8],
}

impl<'a> PacketView<'a> {
    /// Reads a UDP payload of any length. The packet's extent is the bytes received, never a length field (DESIGN §3).
    pub fn parse(payload: &'a [u8]) -> Result<Self, PacketError> {
        let header = Header::parse(payload)?;
        let body = payload.get(HEADER_LEN..).unwrap_or_default();
        let whole = plane_offset(header.coordinates(), PLANES)
            - plane_offset(header.coordinates(), header.first_plane);
        if body.len() > whole {
            return Err(PacketError::Oversized { index: header.index, length: body.len(), whole });
        }
        Ok(Self { header, body })
    }

    /// The header.
    pub const fn header(&self) -> Header {
        self.header
    }

    /// What arrived behind the header.
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The planes that arrived whole, as a range of plane indices beginning at the header's first plane.
    pub fn whole_planes(&self) -> std::ops::Range<u8> {
        let n = self.header.coordinates();
        let first = self.header.first_plane;
        let end_of_body = plane_offset(n, first) + self.body.len();
        let end =
            (first..=PLANES).rev().find(|&plane| plane_offset(n, plane) <= end_of_body).unwrap_or(first);
        first..end
    }
}
