// SPDX-License-Identifier: Apache-2.0
//! Control packets: what follows the 8-byte prefix that they share with DATA.
//!
//! Big-endian. The prefix's stream names the rank that sent the datagram, its message the message
//! in question (0 in HELLO). Then every body begins with two *incarnations*: numbers that endpoints
//! draw when they are made, so that packets from before a restart, or of somebody who has never
//! talked to us, are told from ours (RFC 9293 §3.4.1 wants the same of initial sequence numbers).
//!
//! ```text
//! 0-3 incarnation of the sender   4-7 incarnation of the receiver, 0 where it is not known (HELLO only)   8- the body:
//!
//! report (20 bytes)  0-3 echo: 1 valid | 1 the echoed packet was trimmed | 10 senders: peers from which messages are arriving, 0 where that is not told | 20 the packet index's lower bits
//!                    4-7 ns since that packet arrived
//!                    8-11 packets that arrived   12-15 of these, trimmed by the network   16-19 of these, with congestion experienced
//!
//! ACK     0-3 sequence of the newest PROBE, 0 before any   4-23 report   24-27 packets missing   28-31 packets that may be missing
//!         32 flags (1 expected, 2 the bound holds, 4 every plane is wanted)   33-35 packets below this one are all there
//!         36- map part, or nothing: of an ACK what no report before it has told
//! STATUS  as ACK: the answer to a PROBE
//! PROBE   0-3 sequence  4-7 packets  8 planes  9 flags (1 send the map, 2 finish)  10-11 shape of the message, 0 where it is not told
//!         12-15 grace, ns  16-19 first packet whose state the map shall tell
//! STOP    0-3 sequence  4-23 report  24-27 packets missing  28-31 packets agreed (FINAL)   32- map part, or nothing
//! FINAL   0-3 sequence  4-7 packets  8-11 zero  12- map part
//! FORWARD 0-3 packets   4- map part: those with no planes were lost, and are not sent again
//! ABORT   0 reason   1 zero   2-3 rank to blame
//! HELLO   0 flags (1 answer, 2 addresses of 16 bytes instead of 4)   1 number of addresses   2-3 number of ports
//!         4- source ports of the sender's DATA, 2 bytes each, then its addresses, where it has several
//! PATH    0-3 sequence   4-5 bytes of the question, prefix included   6-7 MTU of the sender's interface   8 flags (1 answer, 2 the sender hears nothing of the receiver)   9-11 zero
//!         12- zeros up to the question's length; nothing in an answer
//! VOTE    the next epoch: [`vote`]
//! ```
//!
//! Fields called zero are sent as zero and ignored on arrival. Behind the body comes [`checked`]'s
//! check, or the tag of a sealed job.
//!
//! A PIECE is no control packet: it carries a part of a DATA packet, from where DATA comes. It
//! begins with the DATA packet's prefix, but for the kind.
//!
//! ```text
//! 8-11 as in the DATA packet's header   12-13 offset of the part, a multiple of 8   14-15 bytes of the whole packet   16- the part
//! ```
#![forbid(unsafe_code)]

mod check;
mod path;
mod piece;
pub mod trim_map;
pub mod vote;
mod writer;

pub use check::{CHECK_LEN, checked, content_of};
pub use path::Path;
pub use piece::{PIECE_HEADER_LEN, Piece};
pub use writer::{MapSource, Writer};

use std::net::IpAddr;
use std::num::NonZeroU16;
use trim_map::{MAX_PACKETS, MapError, MapPart};
use trimwire_encoder::wire::{HEADER_LEN, Kind, PLANES, PREFIX_LEN, plane_offset};
use trimwire_encoder::{DEFAULT_COORDINATES_PER_PACKET, Layout};

/// Longest control payload written, prefix included: fits an MTU of 1500 with any encapsulation
/// that whole DATA packets of the default size survive.
pub const CONTROL_LEN_MAX: usize = HEADER_LEN + plane_offset(PLANES, DEFAULT_COORDINATES_PER_PACKET);
/// Most source ports that a HELLO tells.
pub const PORTS_MAX: usize = 256;
/// Most addresses that a HELLO tells.
pub const ADDRESSES_MAX: usize = 8;

/// An echo tells a packet's index modulo this.
pub const ECHO_PACKETS: u32 = 1 << 20;
/// Most peers that a report counts.
pub const SENDERS_MAX: u16 = (1 << 10) - 1;

const IDENTITY_LEN: usize = 8;
const PROGRESS_LEN: usize = 36;
const PROBE_LEN: usize = 20;
const STOP_LEN: usize = 32;
const FINAL_LEN: usize = 12;
const FORWARD_LEN: usize = 4;
const ABORT_LEN: usize = 4;
const HELLO_LEN: usize = 4;
const PATH_LEN: usize = 12;

/// Why a control packet's body cannot be read.
#[expect(missing_docs, reason = "messages say what the fields are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The body ends too early.
    #[error("{kind:?} body has {got} bytes, at least {need} are needed")]
    Short {
        kind: Kind,
        /// Bytes there are.
        got: usize,
        /// Bytes of the fixed part.
        need: usize,
    },
    /// The number of packets is impossible.
    #[error("{kind:?} speaks of a message of {packets} packets; valid are 1 to {MAX_PACKETS}")]
    Packets { kind: Kind, packets: u32 },
    /// The trim map is not valid.
    #[error("trim map of a {kind:?}: {error}")]
    Map { kind: Kind, error: MapError },
    /// Not a reason to abort.
    #[error("unknown reason {0} to abort; valid are 1 to 7")]
    Reason(u8),
    /// Nothing that a vote says.
    #[error("unknown vote {0}; valid are 1 to 10")]
    Vote(u8),
    /// More ports than there may be, or fewer bytes than they need.
    #[error("HELLO of {ports} ports with room for {room}; valid are 1 to {PORTS_MAX}")]
    Ports {
        ports: u16,
        /// Ports that the bytes hold.
        room: usize,
    },
    /// More addresses than there may be, or fewer bytes than they need.
    #[error("HELLO of {addresses} addresses with {room} bytes of them; valid are 0 to {ADDRESSES_MAX}")]
    Addresses {
        addresses: u8,
        /// Bytes there are.
        room: usize,
    },
    /// A question about the path that did not arrive whole, or a length that no question has.
    #[error("PATH of {length} bytes, of which {got} arrived; valid are {least} and more")]
    Question {
        length: u16,
        /// Bytes there are.
        got: usize,
        /// Bytes of the shortest one.
        least: usize,
    },
    /// A kind that is not control.
    #[error(
        "{0:?} is not a control packet; those are ACK, PROBE, STATUS, STOP, FINAL, FORWARD, ABORT, HELLO, PATH and VOTE"
    )]
    NotControl(Kind),
}

/// Who speaks to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Incarnation of the sender.
    pub from: u32,
    /// Incarnation of the receiver, as the sender knows it; 0 for not at all.
    pub to: u32,
}

/// The packet whose arrival a report echoes, for the round-trip time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// Its index, modulo [`ECHO_PACKETS`] on the wire.
    pub packet: u32,
    /// Whether it arrived trimmed, and so travelled in another queue than whole packets.
    pub trimmed: bool,
    /// How long ago it arrived, ns.
    pub hold_ns: u32,
}

/// What a receiver says about a transfer in every packet it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// The newest whole packet, or the newest packet if all since the last report were trimmed.
    pub echo: Option<Echo>,
    /// Datagrams of the message that brought something, since the beginning.
    pub received: u32,
    /// How many of these the network trimmed.
    pub trimmed: u32,
    /// How many of these had congestion experienced (RFC 3168).
    pub marked: u32,
    /// Peers from which messages are arriving, the one that is told among them; more than
    /// [`SENDERS_MAX`] are told as that. `None`: not told.
    pub senders: Option<NonZeroU16>,
}

/// How much of a message its receiver insists on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Something of every packet but this many.
    AllBut(u32),
    /// Every plane of every packet.
    EveryPlane,
}

/// ACK and STATUS: what has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Number of the newest probe seen.
    pub sequence: u32,
    /// Counts and echo.
    pub report: Report,
    /// Packets of which nothing has arrived.
    pub missing: u32,
    /// What the receiver insists on.
    pub wanted: Wanted,
    /// `false`: the application has not asked for this message yet.
    pub expected: bool,
    /// What there is is enough already.
    pub bound_holds: bool,
    /// Of all packets below this one there is what is wanted.
    pub low: u32,
    /// State of some packets.
    pub map: Option<MapPart<'a>>,
}

/// PROBE: the sender tells what it sends, and asks what arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Number of this probe, from 1.
    pub sequence: u32,
    /// Packets of the message, 1 to 2^24.
    pub packets: u32,
    /// Tells messages apart that are divided otherwise, or have other layer classes ([`shape`]); 0:
    /// not told.
    pub shape: u16,
    /// Planes that are sent of each packet; fewer than 10 when the sender truncated ahead of time.
    pub planes: u8,
    /// The sender wants the final trim map.
    pub want_map: bool,
    /// Nothing is on its way any more: finish now if the loss bound holds.
    pub finish: bool,
    /// Everything has been sent, and may still be on its way for so long, ns: finish then if the
    /// loss bound holds. 0: more is to be sent.
    pub grace_ns: u32,
    /// The map is known up to here.
    pub map_offset: u32,
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

/// FORWARD: what the receiver need not wait for, as its loss bound allows (RFC 3758 §3.2 does so
/// for streams).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward<'a> {
    /// Packets of the message.
    pub packets: u32,
    /// Those without a plane are not sent again.
    pub map: MapPart<'a>,
}

/// Why a message will not be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// The application does not want it any more.
    Cancelled = 1,
    /// A rank answers nothing any more.
    Lost = 2,
    /// A rank answers, but data does not get through.
    Stalled = 3,
    /// A rank has started anew.
    Restarted = 4,
    /// Both ends see different messages under the same number.
    Mismatch = 5,
    /// The path to or from a rank carries no packets of the least size.
    PathMtu = 6,
    /// Its epoch is over: ranks agree on who is left.
    Epoch = 7,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "it was cancelled there",
            Self::Lost => "that rank does not answer",
            Self::Stalled => "data does not get through to or from that rank",
            Self::Restarted => "that rank has started anew",
            Self::Mismatch => "both ends see different messages under this number",
            Self::PathMtu => "the path's MTU there is below the least of 576 bytes",
            Self::Epoch => "ranks agree on who is left",
        })
    }
}

impl TryFrom<u8> for Reason {
    type Error = WireError;

    fn try_from(code: u8) -> Result<Self, WireError> {
        Ok(match code {
            1 => Self::Cancelled,
            2 => Self::Lost,
            3 => Self::Stalled,
            4 => Self::Restarted,
            5 => Self::Mismatch,
            6 => Self::PathMtu,
            7 => Self::Epoch,
            other => return Err(WireError::Reason(other)),
        })
    }
}

/// ABORT: a message will not be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abort {
    /// Why.
    pub reason: Reason,
    /// The rank to blame.
    pub culprit: u16,
}

/// HELLO: who the sender is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello<'a> {
    /// It answers a HELLO, and wants no answer itself.
    pub answer: bool,
    /// Source ports of DATA, big-endian, two bytes each.
    ports: &'a [u8],
    /// Four bytes each, or 16 where they are IPv6's.
    addresses: &'a [u8],
    v6: bool,
}

impl Hello<'_> {
    /// Source ports of the sender's DATA.
    pub fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.ports.as_chunks().0.iter().map(|&bytes| u16::from_be_bytes(bytes))
    }

    /// All addresses that the sender listens on, in the order of its paths; none where it has one
    /// only.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let v4 =
            self.addresses.as_chunks::<4>().0.iter().filter(|_| !self.v6).map(|&bytes| IpAddr::from(bytes));
        let v6 =
            self.addresses.as_chunks::<16>().0.iter().filter(|_| self.v6).map(|&bytes| IpAddr::from(bytes));
        v4.chain(v6)
    }
}

/// A checked control packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control<'a> {
    /// Progress, every few packets.
    Ack(Progress<'a>),
    /// Question.
    Probe(Probe),
    /// Answer: not yet.
    Status(Progress<'a>),
    /// Answer: enough.
    Stop(Stop<'a>),
    /// Agreement of replicas.
    Final(Final<'a>),
    /// Losses that are not repaired.
    Forward(Forward<'a>),
    /// The end of a message, and not a good one.
    Abort(Abort),
    /// The beginning of everything.
    Hello(Hello<'a>),
    /// How long packets may be.
    Path(Path),
    /// Agreement of ranks on the next epoch.
    Vote(vote::VoteView<'a>),
}

/// A number that layouts share if they are equal, and one in 65,535 others: FNV-1a over what they
/// are made of, folded. Never 0.
pub fn shape(layout: &Layout) -> u16 {
    let tensors =
        layout.tensors().iter().flat_map(|tensor| [tensor.coordinates as u64, tensor.layer_class.into()]);
    let whole = [layout.coordinates_per_packet() as u64, layout.row_log2().into()];
    let hash = whole
        .into_iter()
        .chain(tensors)
        .flat_map(u64::to_be_bytes)
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    let folded = (hash ^ hash >> 32) as u32;
    ((folded ^ folded >> 16) as u16).max(1)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).unwrap_or_default().iter().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

impl<'a> Control<'a> {
    /// Reads the body (what follows the prefix) of a control packet.
    pub fn parse(kind: Kind, body: &'a [u8]) -> Result<(Identity, Self), WireError> {
        let fixed = match kind {
            Kind::Ack | Kind::Status => PROGRESS_LEN,
            Kind::Probe => PROBE_LEN,
            Kind::Stop => STOP_LEN,
            Kind::Final => FINAL_LEN,
            Kind::Forward => FORWARD_LEN,
            Kind::Abort => ABORT_LEN,
            Kind::Hello => HELLO_LEN,
            Kind::Vote => vote::VOTE_LEN,
            Kind::Path => PATH_LEN,
            Kind::Data | Kind::Piece => return Err(WireError::NotControl(kind)),
        };
        let need = IDENTITY_LEN + fixed;
        if body.len() < need {
            return Err(WireError::Short { kind, got: body.len(), need });
        }
        let identity = Identity { from: word(body, 0), to: word(body, 4) };
        let (fixed, rest) = body[IDENTITY_LEN..].split_at(fixed);
        let packets = |at: usize| match word(fixed, at) {
            packets @ 1..=MAX_PACKETS => Ok(packets),
            packets => Err(WireError::Packets { kind, packets }),
        };
        let map = || MapPart::parse(rest).map_err(|error| WireError::Map { kind, error });
        let optional_map = || if rest.is_empty() { Ok(None) } else { map().map(Some) };
        let progress = || {
            let flags = fixed[32];
            let wanted = if flags & 4 != 0 { Wanted::EveryPlane } else { Wanted::AllBut(word(fixed, 28)) };
            Ok(Progress {
                sequence: word(fixed, 0),
                report: Report::read(&fixed[4..]),
                missing: word(fixed, 24),
                wanted,
                expected: flags & 1 != 0,
                bound_holds: flags & 2 != 0,
                low: word(fixed, 32) & 0x00ff_ffff,
                map: optional_map()?,
            })
        };
        let control = match kind {
            Kind::Ack => Self::Ack(progress()?),
            Kind::Status => Self::Status(progress()?),
            Kind::Probe => Self::Probe(Probe {
                sequence: word(fixed, 0),
                packets: packets(4)?,
                planes: fixed[8].clamp(1, trim_map::FULL),
                want_map: fixed[9] & 1 != 0,
                finish: fixed[9] & 2 != 0,
                shape: u16::from_be_bytes([fixed[10], fixed[11]]),
                grace_ns: word(fixed, 12),
                map_offset: word(fixed, 16),
            }),
            Kind::Stop => Self::Stop(Stop {
                sequence: word(fixed, 0),
                report: Report::read(&fixed[4..]),
                missing: word(fixed, 24),
                agreed: word(fixed, 28),
                map: optional_map()?,
            }),
            Kind::Abort => Self::Abort(Abort {
                reason: Reason::try_from(fixed[0])?,
                culprit: u16::from_be_bytes([fixed[2], fixed[3]]),
            }),
            Kind::Hello => {
                let ports = u16::from_be_bytes([fixed[2], fixed[3]]);
                let error = WireError::Ports { ports, room: rest.len() / 2 };
                if ports == 0 || usize::from(ports) > PORTS_MAX {
                    return Err(error);
                }
                let (ports, rest) = rest.split_at_checked(2 * usize::from(ports)).ok_or(error)?;
                let (addresses, v6) = (fixed[1], fixed[0] & 2 != 0);
                let length = usize::from(addresses) * if v6 { 16 } else { 4 };
                let known = rest.get(..length).filter(|_| usize::from(addresses) <= ADDRESSES_MAX);
                let bytes = known.ok_or(WireError::Addresses { addresses, room: rest.len() })?;
                Self::Hello(Hello {
                    answer: fixed[0] & 1 != 0,
                    ports,
                    addresses: bytes,
                    v6: v6 && addresses > 0,
                })
            }
            Kind::Forward => Self::Forward(Forward { packets: packets(0)?, map: map()? }),
            Kind::Vote => Self::Vote(vote::VoteView::parse(fixed, rest)?),
            Kind::Path => Self::Path(Path::read(fixed, PREFIX_LEN + body.len())?),
            Kind::Final | Kind::Data | Kind::Piece => {
                Self::Final(Final { sequence: word(fixed, 0), packets: packets(4)?, map: map()? })
            }
        };
        Ok((identity, control))
    }
}

impl Report {
    /// Reads 20 bytes; the callers have checked the length.
    fn read(bytes: &[u8]) -> Self {
        let echo = word(bytes, 0);
        Self {
            echo: (echo >> 31 == 1).then(|| Echo {
                packet: echo & (ECHO_PACKETS - 1),
                trimmed: echo >> 30 & 1 == 1,
                hold_ns: word(bytes, 4),
            }),
            received: word(bytes, 8),
            trimmed: word(bytes, 12),
            marked: word(bytes, 16),
            senders: NonZeroU16::new((echo >> 20) as u16 & SENDERS_MAX),
        }
    }
}

#[cfg(test)]
#[path = "wire/wire_tests.rs"]
mod tests;
