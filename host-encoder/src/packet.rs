//! The DATA packet's header and the prefix that all kinds of packet share (docs/wire-format.md).
//!
//! ```text
//!  0      version:4 | kind:4
//!  1      codec:3 | importance:1 | layer_class:3 | last:1
//!  2..4   job:6 | rank:10
//!  4..8   message
//!  8..12  first_plane:4 | packet_index:20 | coordinates/32:8
//! 12..16  σ, f32
//! 16      κ · 255
//! 17      peak, 32 · log2(largest |r| / σ), rounded up
//! ```
//! All fields are big-endian.

use crate::codec::Codec;

/// Version of the format that this crate speaks.
pub const VERSION: u8 = 2;
/// Bytes that packets of every kind begin with.
pub const PREFIX_LEN: usize = 8;
/// Bytes in front of a DATA packet's first bit-plane.
pub const HEADER_LEN: usize = 18;
/// All planes of the default codec: eight of bits, two of bytes.
pub const PLANES: u8 = Codec::Rht.planes();
/// Coordinates come in blocks of this many.
pub const BLOCK: usize = 32;
/// Largest packet index.
pub const MAX_INDEX: u32 = (1 << 20) - 1;

/// Why bytes are not a packet, or a header cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// Fewer bytes than the part of the header that has to be there.
    #[error("packet of {got} bytes is cut inside its head ({need} bytes)")]
    Short {
        /// Bytes received.
        got: usize,
        /// Bytes needed.
        need: usize,
    },
    /// Another version of the format, or not a Trimwire packet at all.
    #[error("unknown version {0} (this side speaks {VERSION})")]
    Version(u8),
    /// A kind that does not exist.
    #[error("unknown kind {0} (valid: 1 DATA, 2 ACK, 3 PROBE, 4 STATUS, 5 STOP, 6 FINAL)")]
    Kind(u8),
    /// A DATA view of another kind of packet.
    #[error("{0:?} packet where DATA was expected")]
    NotData(Kind),
    /// A codec that does not exist.
    #[error("unknown codec {0} (valid: 0 rht, 1 rht-paper, 2 sign-magnitude, 3 sq, 4 sd, 5 raw)")]
    Codec(u8),
    /// Another codec than the message's.
    #[error("a packet of codec {got} in a message of codec {expected}")]
    OtherCodec {
        /// The packet's.
        got: Codec,
        /// The message's.
        expected: Codec,
    },
    /// Planes begin beyond the last one.
    #[error("first plane {plane} of codec {codec}, which has {}", codec.planes())]
    FirstPlane {
        /// Plane received.
        plane: u8,
        /// The packet's codec.
        codec: Codec,
    },
    /// No coordinates.
    #[error("a DATA packet of no coordinates")]
    Empty,
    /// σ is negative, infinite, or another NaN than the one that marks rows which are not finite.
    #[error("σ = {0} is not a magnitude")]
    Sigma(f32bits),
    /// The packet does not belong to the message's layout.
    #[error("packet index {index} is outside a message of {packets} packets")]
    Index {
        /// Index received.
        index: u32,
        /// Packets of the message.
        packets: u32,
    },
    /// σ, κ or peak differ from an earlier packet of the same index: planes of two encodings do not mix.
    #[error("packet {0} contradicts an earlier one of the same index (σ, κ or peak differ)")]
    Contradiction(u32),
    /// Another number of coordinates than the layout gives this packet.
    #[error("packet {index} carries {got} coordinates where the layout has {expected}")]
    Coordinates {
        /// Its index.
        index: u32,
        /// Coordinates received.
        got: usize,
        /// Coordinates expected.
        expected: usize,
    },
}

/// An f32 by its bits, so that errors stay comparable.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub struct f32bits(pub u32);

impl std::fmt::Debug for f32bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for f32bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f32::from_bits(self.0).fmt(f)
    }
}

/// What a packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Coordinates.
    Data = 1,
    /// Receipt of some DATA: round-trip time and share of cut packets.
    Ack = 2,
    /// The sender asks what arrived.
    Probe = 3,
    /// The receiver's map of what arrived.
    Status = 4,
    /// The receiver has enough.
    Stop = 5,
    /// The precision at which all receivers decode.
    Final = 6,
}

impl TryFrom<u8> for Kind {
    type Error = PacketError;

    fn try_from(value: u8) -> Result<Self, PacketError> {
        Ok(match value {
            1 => Self::Data,
            2 => Self::Ack,
            3 => Self::Probe,
            4 => Self::Status,
            5 => Self::Stop,
            6 => Self::Final,
            other => return Err(PacketError::Kind(other)),
        })
    }
}

/// A job and the rank in it that a packet comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    job: u8,
    rank: u16,
}

impl StreamId {
    /// Largest job number.
    pub const MAX_JOB: u8 = 63;
    /// Largest rank.
    pub const MAX_RANK: u16 = 1023;

    /// `None` when the job is above 63 or the rank above 1023: the wire has six and ten bits.
    pub const fn new(job: u8, rank: u16) -> Option<Self> {
        if job <= Self::MAX_JOB && rank <= Self::MAX_RANK { Some(Self { job, rank }) } else { None }
    }

    /// The job.
    pub fn job(self) -> u8 {
        self.job
    }

    /// The sending rank.
    pub fn rank(self) -> u16 {
        self.rank
    }
}

/// The eight bytes that every packet begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// What the packet is for.
    pub kind: Kind,
    /// Codec, 0 to 7.
    pub codec: u8,
    /// Whether switches should cut others first (DESIGN §4: the row's energy).
    pub important: bool,
    /// Layer class, 0 (front layers) to 7.
    pub layer_class: u8,
    /// The last packet of its message.
    pub last: bool,
    /// Job and source rank.
    pub stream: StreamId,
    /// The message: one shard of one phase of a collective.
    pub message: u32,
}

impl Prefix {
    /// Reads the prefix of any packet.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, PacketError> {
        let Some(&[b0, b1, b2, b3, m0, m1, m2, m3]) = bytes.first_chunk::<PREFIX_LEN>() else {
            return Err(PacketError::Short { got: bytes.len(), need: PREFIX_LEN });
        };
        if b0 >> 4 != VERSION {
            return Err(PacketError::Version(b0 >> 4));
        }
        Ok(Self {
            kind: Kind::try_from(b0 & 15)?,
            codec: b1 >> 5,
            important: b1 & 0x10 != 0,
            layer_class: b1 >> 1 & 7,
            last: b1 & 1 != 0,
            stream: StreamId { job: b2 >> 2, rank: u16::from_be_bytes([b2 & 3, b3]) },
            message: u32::from_be_bytes([m0, m1, m2, m3]),
        })
    }

    /// The prefix as bytes. Only the low bits that the wire has of `codec` and `layer_class` are written.
    #[inline]
    pub fn to_bytes(self) -> [u8; PREFIX_LEN] {
        let [r0, r1] = self.stream.rank.to_be_bytes();
        let [m0, m1, m2, m3] = self.message.to_be_bytes();
        let flags = self.codec << 5
            | u8::from(self.important) << 4
            | (self.layer_class & 7) << 1
            | u8::from(self.last);
        [VERSION << 4 | self.kind as u8, flags, self.stream.job << 2 | r0, r1, m0, m1, m2, m3]
    }
}

/// The bits of σ in packets of a row that holds NaN or an infinity.
pub const NOT_FINITE: u32 = 0x7fc0_0000;

/// The header of a DATA packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Header {
    /// The shared prefix; its kind is DATA and its codec one that exists.
    pub prefix: Prefix,
    /// First plane of the body: 0 but for repairs.
    pub first_plane: u8,
    /// Which packet of the message.
    pub index: u32,
    /// Coordinates the packet speaks of: a multiple of 32, at most 8,160.
    pub coordinates: usize,
    /// Root mean square of the packet's (rotated) coordinates; NaN where the row holds NaN or an infinity.
    pub sigma: f32,
    /// mean |r| / σ, in 1/255.
    pub kappa: u8,
    /// 32 · log2(largest |r| / σ), rounded up.
    pub peak: u8,
}

impl Header {
    /// Reads and checks a DATA packet's header.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, PacketError> {
        let prefix = Prefix::parse(bytes)?;
        if prefix.kind != Kind::Data {
            return Err(PacketError::NotData(prefix.kind));
        }
        let Some(head) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(PacketError::Short { got: bytes.len(), need: HEADER_LEN });
        };
        let codec = Codec::from_id(prefix.codec).ok_or(PacketError::Codec(prefix.codec))?;
        let place = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        let header = Self {
            prefix,
            first_plane: (place >> 28) as u8,
            index: place >> 8 & MAX_INDEX,
            coordinates: (place & 0xff) as usize * BLOCK,
            sigma: f32::from_be_bytes([head[12], head[13], head[14], head[15]]),
            kappa: head[16],
            peak: head[17],
        };
        if header.first_plane >= codec.planes() {
            return Err(PacketError::FirstPlane { plane: header.first_plane, codec });
        }
        if header.coordinates == 0 {
            return Err(PacketError::Empty);
        }
        let magnitude = header.sigma.is_finite() && header.sigma.is_sign_positive();
        if !magnitude && header.sigma.to_bits() != NOT_FINITE {
            return Err(PacketError::Sigma(f32bits(header.sigma.to_bits())));
        }
        Ok(header)
    }

    /// The packet's codec.
    pub fn codec(&self) -> Codec {
        Codec::from_id(self.prefix.codec).unwrap_or_default()
    }

    /// Whether the packet belongs to a row that holds NaN or an infinity.
    pub fn is_not_finite(&self) -> bool {
        self.sigma.is_nan()
    }

    /// The header as bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.prefix.to_bytes());
        let place = u32::from(self.first_plane) << 28
            | (self.index & MAX_INDEX) << 8
            | (self.coordinates / BLOCK) as u32 & 0xff;
        bytes[8..12].copy_from_slice(&place.to_be_bytes());
        let sigma = if self.sigma.is_nan() { NOT_FINITE } else { self.sigma.to_bits() };
        bytes[12..16].copy_from_slice(&sigma.to_be_bytes());
        bytes[16] = self.kappa;
        bytes[17] = self.peak;
        bytes
    }
}

/// A received DATA packet: a checked header and as much of the planes as arrived.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PacketView<'a> {
    header: Header,
    body: &'a [u8],
}

impl<'a> PacketView<'a> {
    /// Checks a UDP payload. Its length is what arrived; bytes beyond the last plane are ignored.
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Result<Self, PacketError> {
        let header = Header::parse(payload)?;
        let (codec, n) = (header.codec(), header.coordinates);
        let all = codec.plane_offset(codec.planes(), n) - codec.plane_offset(header.first_plane, n);
        let body = payload.get(HEADER_LEN..).unwrap_or_default();
        Ok(Self { header, body: &body[..body.len().min(all)] })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The bytes from `first_plane` on.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }
}

/// Offset of a plane of the default codec in a body that begins with plane 0, bytes; of plane 10, the length of a whole
/// body.
pub const fn plane_offset(plane: u8, coordinates: usize) -> usize {
    Codec::Rht.plane_offset(plane, coordinates)
}
