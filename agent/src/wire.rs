//! Control packets: what follows the 8-byte prefix that they share with DATA.
//!
//! Big-endian. ACK, STATUS and STOP go from the receiver of a message to its sender, PROBE and FINAL the other way;
//! the prefix's stream always names the rank that sent the datagram, its message id the message in question.
//!
//! ```text
//! report (16 bytes)  0-3 echo: 1 valid | 1 the echoed packet was cut | 10 zero | 20 packet index
//!                    4-7 ns since that packet arrived   8-11 packets received   12-15 of these, cut
//!
//! ACK     0-15 report
//! PROBE   0-3 sequence  4-7 packets  8 planes  9 flags (1 send the map, 2 finish)  10-11 zero
//!         12-15 grace, ns  16-19 first packet whose state the map shall tell
//! STATUS  0-3 sequence  4-19 report  20-23 packets missing  24 flags (1 expected, 2 bound holds)  25-27 zero
//!         28- map part, or nothing
//! STOP    0-3 sequence  4-19 report  20-23 packets missing  24-27 packets agreed (FINAL)  28 zero  29-31 zero
//!         32- map part, or nothing
//! FINAL   0-3 sequence  4-7 packets  8-11 zero  12- map part
//! ```
//!
//! Fields called zero are sent as zero and ignored on arrival.
#![forbid(unsafe_code)]

pub mod cut_map;

use cut_map::{Detail, MAX_PACKETS, MapError, MapPart};
use trimwire_encoder::DEFAULT_COORDINATES_PER_PACKET;
use trimwire_encoder::wire::{HEADER_LEN, Kind, PLANES, Prefix, StreamId, plane_offset};

/// Longest control payload written, prefix included: fits an MTU of 1500 with any encapsulation that whole DATA
/// packets of the default size survive.
pub const CONTROL_LEN_MAX: usize = HEADER_LEN + plane_offset(PLANES, DEFAULT_COORDINATES_PER_PACKET);

const REPORT_LEN: usize = 16;
const PROBE_LEN: usize = 20;
const STATUS_LEN: usize = 28;
const STOP_LEN: usize = 32;
const FINAL_LEN: usize = 12;

/// Why a control packet's body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The body ends too early.
    #[error("{kind:?} body has {got} bytes, at least {need} are needed")]
    Short {
        /// Kind of the packet.
        kind: Kind,
        /// Bytes there are.
        got: usize,
        /// Bytes of the fixed part.
        need: usize,
    },
    /// The number of packets is impossible.
    #[error("{kind:?} speaks of a message of {packets} packets; valid are 1 to {MAX_PACKETS}")]
    Packets {
        /// Kind of the packet.
        kind: Kind,
        /// The number.
        packets: u32,
    },
    /// The cut map is not valid.
    #[error("cut map of a {kind:?}: {error}")]
    Map {
        /// Kind of the packet.
        kind: Kind,
        /// What is wrong with it.
        error: MapError,
    },
    /// A kind that is not control.
    #[error("{0:?} is not a control packet; those are ACK, PROBE, STATUS, STOP and FINAL")]
    NotControl(Kind),
}

/// The packet whose arrival a report echoes, for the round-trip time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// Its index.
    pub packet: u32,
    /// Whether it arrived cut, and so travelled in another queue than whole packets.
    pub cut: bool,
    /// How long ago it arrived, ns.
    pub hold_ns: u32,
}

/// What a receiver says about a transfer in every packet it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// The newest whole packet, or the newest packet if all since the last report were cut.
    pub echo: Option<Echo>,
    /// Datagrams of the message that brought something, since the beginning.
    pub received: u32,
    /// How many of these were cut.
    pub cut: u32,
}

/// PROBE: the sender has sent everything and asks what arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Number of this probe.
    pub sequence: u32,
    /// Packets of the message, 1 to 2^20.
    pub packets: u32,
    /// Planes that were sent of each packet; fewer than 10 when the sender truncated ahead of time.
    pub planes: u8,
    /// The sender wants the final cut map.
    pub want_map: bool,
    /// Nothing is on its way any more: finish now if the loss bound holds.
    pub finish: bool,
    /// Packets may still be on their way for so long, ns: finish then if the loss bound holds.
    pub grace_ns: u32,
    /// The map is known up to here.
    pub map_offset: u32,
}

/// STATUS: what is still missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status<'a> {
    /// Number of the probe that is answered.
    pub sequence: u32,
    /// Progress.
    pub report: Report,
    /// Packets of which nothing has arrived.
    pub missing: u32,
    /// `false`: the application has not asked for this message yet.
    pub expected: bool,
    /// The loss bound holds already.
    pub bound_holds: bool,
    /// State of some packets.
    pub map: Option<MapPart<'a>>,
}

/// STOP: the message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop<'a> {
    /// Number of the last probe or FINAL seen.
    pub sequence: u32,
    /// Progress at the end.
    pub report: Report,
    /// Packets of which nothing arrived.
    pub missing: u32,
    /// Packets, from the front, whose agreed state (FINAL) has arrived.
    pub agreed: u32,
    /// Final state of some packets.
    pub map: Option<MapPart<'a>>,
}

/// FINAL: the precision at which all replicas decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Final<'a> {
    /// Number of this round of FINALs.
    pub sequence: u32,
    /// Packets of the message.
    pub packets: u32,
    /// Agreed state of some packets.
    pub map: MapPart<'a>,
}

/// A checked control packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control<'a> {
    /// Progress, every few packets.
    Ack(Report),
    /// Question.
    Probe(Probe),
    /// Answer: not yet.
    Status(Status<'a>),
    /// Answer: enough.
    Stop(Stop<'a>),
    /// Agreement of replicas.
    Final(Final<'a>),
}

impl<'a> Control<'a> {
    /// Reads the body (what follows the prefix) of a control packet.
    pub fn parse(kind: Kind, body: &'a [u8]) -> Result<Self, WireError> {
        let need = match kind {
            Kind::Ack => REPORT_LEN,
            Kind::Probe => PROBE_LEN,
            Kind::Status => STATUS_LEN,
            Kind::Stop => STOP_LEN,
            Kind::Final => FINAL_LEN,
            Kind::Data => return Err(WireError::NotControl(kind)),
        };
        let Some((fixed, rest)) = body.split_at_checked(need) else {
            return Err(WireError::Short { kind, got: body.len(), need });
        };
        let word =
            |at: usize| fixed[at..at + 4].iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
        let packets = |at: usize| match word(at) {
            packets @ 1..=MAX_PACKETS => Ok(packets),
            packets => Err(WireError::Packets { kind, packets }),
        };
        let map = || MapPart::parse(rest).map_err(|error| WireError::Map { kind, error });
        let optional_map = || if rest.is_empty() { Ok(None) } else { map().map(Some) };
        Ok(match kind {
            Kind::Ack => Self::Ack(Report::read(fixed)),
            Kind::Probe => Self::Probe(Probe {
                sequence: word(0),
                packets: packets(4)?,
                planes: fixed[8].clamp(1, cut_map::FULL),
                want_map: fixed[9] & 1 != 0,
                finish: fixed[9] & 2 != 0,
                grace_ns: word(12),
                map_offset: word(16),
            }),
            Kind::Status => Self::Status(Status {
                sequence: word(0),
                report: Report::read(&fixed[4..]),
                missing: word(20),
                expected: fixed[24] & 1 != 0,
                bound_holds: fixed[24] & 2 != 0,
                map: optional_map()?,
            }),
            Kind::Stop => Self::Stop(Stop {
                sequence: word(0),
                report: Report::read(&fixed[4..]),
                missing: word(20),
                agreed: word(24),
                map: optional_map()?,
            }),
            _ => Self::Final(Final { sequence: word(0), packets: packets(4)?, map: map()? }),
        })
    }
}

impl Report {
    /// Reads 16 bytes; the callers have checked the length.
    fn read(bytes: &[u8]) -> Self {
        let word =
            |at: usize| bytes[at..at + 4].iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
        let echo = word(0);
        Self {
            echo: (echo >> 31 == 1).then(|| Echo {
                packet: echo & (MAX_PACKETS - 1),
                cut: echo >> 30 & 1 == 1,
                hold_ns: word(4),
            }),
            received: word(8),
            cut: word(12),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (echo, hold_ns) = self.echo.map_or((0, 0), |echo| {
            (1 << 31 | u32::from(echo.cut) << 30 | (echo.packet & (MAX_PACKETS - 1)), echo.hold_ns)
        });
        put(out, &[echo, hold_ns, self.received, self.cut]);
    }
}

fn put(out: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

/// A map to be written behind a control packet.
pub struct MapSource<'a> {
    /// Planes held of a packet.
    pub planes: &'a dyn Fn(u32) -> u8,
    /// Packets of the message.
    pub packets: u32,
    /// First packet to tell of.
    pub offset: u32,
    /// How exactly.
    pub detail: Detail,
}

impl std::fmt::Debug for MapSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MapSource").field("packets", &self.packets).field("offset", &self.offset).finish()
    }
}

/// Writes control packets of one stream.
#[derive(Debug, Clone, Copy)]
pub struct Writer {
    /// The rank that sends, and its job.
    pub stream: StreamId,
}

impl Writer {
    fn prefix(self, kind: Kind, message: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let stream = self.stream;
        // ECN says "important" of every control packet; the header's own bits are about DATA.
        let prefix = Prefix { kind, codec: 0, important: true, layer_class: 0, last: false, stream, message };
        out.extend_from_slice(&prefix.to_bytes());
        out
    }

    /// An ACK.
    pub fn ack(self, message: u32, report: &Report) -> Vec<u8> {
        let mut out = self.prefix(Kind::Ack, message);
        report.write(&mut out);
        out
    }

    /// A PROBE.
    pub fn probe(self, message: u32, probe: &Probe) -> Vec<u8> {
        let mut out = self.prefix(Kind::Probe, message);
        put(&mut out, &[probe.sequence, probe.packets]);
        out.extend_from_slice(&[probe.planes, u8::from(probe.want_map) | u8::from(probe.finish) << 1, 0, 0]);
        put(&mut out, &[probe.grace_ns, probe.map_offset]);
        out
    }

    /// A STATUS with as much of the map as fits; `status.map` is not looked at. Returns the packet and one past
    /// the last packet told of.
    pub fn status(self, message: u32, status: &Status<'_>, map: Option<&MapSource<'_>>) -> (Vec<u8>, u32) {
        let mut out = self.prefix(Kind::Status, message);
        put(&mut out, &[status.sequence]);
        status.report.write(&mut out);
        put(&mut out, &[status.missing]);
        out.extend_from_slice(&[u8::from(status.expected) | u8::from(status.bound_holds) << 1, 0, 0, 0]);
        let end = write_map(map, &mut out);
        (out, end)
    }

    /// A STOP with as much of the map as fits, likewise.
    pub fn stop(self, message: u32, stop: &Stop<'_>, map: Option<&MapSource<'_>>) -> (Vec<u8>, u32) {
        let mut out = self.prefix(Kind::Stop, message);
        put(&mut out, &[stop.sequence]);
        stop.report.write(&mut out);
        put(&mut out, &[stop.missing, stop.agreed, 0]);
        let end = write_map(map, &mut out);
        (out, end)
    }

    /// A FINAL with as much of the map as fits, likewise.
    pub fn agreed(self, message: u32, sequence: u32, map: &MapSource<'_>) -> (Vec<u8>, u32) {
        let mut out = self.prefix(Kind::Final, message);
        put(&mut out, &[sequence, map.packets, 0]);
        let end = write_map(Some(map), &mut out);
        (out, end)
    }
}

fn write_map(map: Option<&MapSource<'_>>, out: &mut Vec<u8>) -> u32 {
    let Some(map) = map else { return 0 };
    let budget = CONTROL_LEN_MAX.saturating_sub(out.len());
    cut_map::write_part(map.planes, map.packets, map.offset, map.detail, budget, out)
}

#[cfg(test)]
#[path = "wire/wire_tests.rs"]
mod tests;
