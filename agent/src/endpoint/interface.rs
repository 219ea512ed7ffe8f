//! What an endpoint and its caller say to each other.

use super::Reliability;
use crate::transfer::{TransferError, TransferStats};
use crate::wire::cut_map::CutMap;
use trimwire_encoder::Decoder;
use trimwire_encoder::wire::StreamId;

/// Why a message is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such rank, or it is this one.
    #[error("rank {rank} cannot send to rank {to}; valid are the other ranks below {world}")]
    Rank {
        /// This rank.
        rank: u16,
        /// The rank asked for.
        to: u16,
        /// Ranks of the job.
        world: u16,
    },
    /// The message has no packets.
    #[error("the message for rank {to} has no packets")]
    Empty {
        /// The rank asked for.
        to: u16,
    },
    /// The packets say that they come from someone else.
    #[error("message {message:#010x} is of stream {stream:?}, this endpoint of {own:?}")]
    Stream {
        /// The message.
        message: u32,
        /// Stream in its packets.
        stream: StreamId,
        /// This endpoint's.
        own: StreamId,
    },
    /// The same message is on its way to the same rank.
    #[error("message {message:#010x} is already on its way to rank {to}")]
    Busy {
        /// The message.
        message: u32,
        /// The rank asked for.
        to: u16,
    },
}

/// Why a message cannot be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectError {
    /// There is no such rank, or it is this one.
    #[error("rank {rank} cannot expect a message of rank {from}; valid are the other ranks below {world}")]
    Rank {
        /// This rank.
        rank: u16,
        /// The rank asked for.
        from: u16,
        /// Ranks of the job.
        world: u16,
    },
    /// It is expected already.
    #[error("message {message:#010x} of rank {from} is expected already")]
    Busy {
        /// The message.
        message: u32,
        /// The rank asked for.
        from: u16,
    },
}

/// How a message is expected, beside its decoder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expectation {
    /// How much of it has to arrive.
    pub reliability: Reliability,
    /// Planes that the sender sends of each packet, 1 to 10; the sender's PROBE corrects a number that is too large.
    pub planes: u8,
    /// Tell the sender the final cut map and wait for its FINAL ([`Event::Agreed`]); the sender must use
    /// [`super::Endpoint::send_agreed`] and [`super::Endpoint::agree`].
    pub agree: bool,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A message is delivered.
    Received {
        /// Its sender.
        from: u16,
        /// Its id.
        message: u32,
        /// All that arrived of it, ready to decode.
        decoder: Box<Decoder>,
        /// What became of its packets.
        stats: TransferStats,
    },
    /// The receiver of a message is content.
    Sent {
        /// Its receiver.
        to: u16,
        /// Its id.
        message: u32,
        /// What the receiver has, for [`super::Endpoint::send_agreed`].
        map: Option<CutMap>,
        /// What became of its packets.
        stats: TransferStats,
    },
    /// The sender of a received message has told at which precision all replicas decode it.
    Agreed {
        /// Its sender.
        from: u16,
        /// Its id.
        message: u32,
        /// The agreed precision.
        map: CutMap,
    },
    /// A transfer was given up.
    Failed {
        /// The other rank.
        peer: u16,
        /// The message.
        message: u32,
        /// Why, and what was missing.
        error: TransferError,
    },
}

/// A datagram to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// The rank it is for.
    pub to_rank: u16,
    /// UDP source port: the entropy for the switches' choice of a path.
    pub source_port: u16,
    /// DSCP << 2 | ECN.
    pub tos: u8,
    /// UDP payload.
    pub payload: Vec<u8>,
}

/// Totals since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndpointStats {
    /// DATA datagrams sent, repairs included, and their payload bytes.
    pub data_sent: u64,
    /// Their payload bytes.
    pub data_bytes_sent: u64,
    /// Repairs sent.
    pub repairs_sent: u64,
    /// Their payload bytes.
    pub retransmitted_bytes: u64,
    /// Control datagrams sent.
    pub control_sent: u64,
    /// Their payload bytes.
    pub control_bytes_sent: u64,
    /// Valid DATA datagrams received.
    pub data_received: u64,
    /// Of these, cut ones (by their DSCP or length).
    pub cut_received: u64,
    /// DATA datagrams that were cut on the link to this rank, by their DSCP, whether they were of use or not.
    pub cut_last_hop_received: u64,
    /// Valid control datagrams received.
    pub control_received: u64,
    /// DATA of messages that were not expected yet and found no room.
    pub early_dropped: u64,
    /// Datagrams ignored because they are not ours: bytes that are no packet, or a packet that fits no message.
    pub malformed: u64,
    /// Datagrams ignored because they are of another job, of this rank itself, or of no rank of the job.
    pub foreign: u64,
    /// Valid datagrams about transfers that are over, or never were.
    pub stray: u64,
    /// Transfers given up.
    pub failed: u64,
}
