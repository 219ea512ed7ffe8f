// SPDX-License-Identifier: Apache-2.0
//! What an endpoint and its caller say to each other.
#![forbid(unsafe_code)]

use crate::config::Reliability;
use crate::epoch::Change;
use crate::outcome::{TransferError, TransferStats};
use crate::pacing::Pace;
use crate::wire::Reason;
use crate::wire::trim_map::TrimMap;
use std::sync::Arc;
use trimwire_encoder::wire::StreamId;
use trimwire_encoder::{Codec, Decoding, Envelope, Job, Layout, RowMemory, RowReceiver};

/// Why a message is not sent.
#[expect(missing_docs, reason = "messages say what the fields are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such rank, or it is this one.
    #[error("rank {rank} cannot send to rank {to}; valid are the other ranks below {world}")]
    Rank { rank: u16, to: u16, world: u16 },
    /// The message has no packets.
    #[error("the message for rank {to} has no packets")]
    Empty { to: u16 },
    /// The packets say that they come from someone else.
    #[error("message {message:#010x} is of stream {stream:?}, this endpoint of {own:?}")]
    Stream { message: u32, stream: StreamId, own: StreamId },
    /// A message of that number has been sent there before, or its number is below the watermark.
    #[error("message {message:#010x} for rank {to} is over; numbers are used once, in ascending order")]
    Reused { message: u32, to: u16 },
    /// It was given up before it began.
    #[error("message {message:#010x} for rank {to} was given up, because of rank {culprit}: {reason}")]
    Aborted { message: u32, to: u16, culprit: u16, reason: Reason },
    /// The same message is on its way to the same rank.
    #[error("message {message:#010x} is already on its way to rank {to}")]
    Busy { message: u32, to: u16 },
}

/// Why a row is not taken.
#[expect(missing_docs, reason = "messages say what the fields are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SupplyError {
    /// No such message is on its way: it was not opened, or is over already.
    #[error("message {message:#010x} is not on its way to rank {to}")]
    Unknown { message: u32, to: u16 },
    /// Not the next row.
    #[error("row {got} of message {message:#010x} for rank {to} is not the next one, {expected} of {rows}")]
    Order { message: u32, to: u16, got: usize, expected: usize, rows: usize },
}

/// Why a message cannot be expected.
#[expect(missing_docs, reason = "messages say what the fields are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectError {
    /// There is no such rank, or it is this one.
    #[error("rank {rank} cannot expect a message of rank {from}; valid are the other ranks below {world}")]
    Rank { rank: u16, from: u16, world: u16 },
    /// A message of that number has been received from there before, or its number is below the
    /// watermark.
    #[error("message {message:#010x} of rank {from} is over; numbers are used once, in ascending order")]
    Reused { message: u32, from: u16 },
    /// It was given up before it was expected.
    #[error("message {message:#010x} of rank {from} was given up, because of rank {culprit}: {reason}")]
    Aborted { message: u32, from: u16, culprit: u16, reason: Reason },
    /// It is expected already.
    #[error("message {message:#010x} of rank {from} is expected already")]
    Busy { message: u32, from: u16 },
}

/// A message that is to be sent; its rows follow.
#[derive(Debug, Clone)]
pub struct Outbound {
    /// Its id: used in ascending order (RFC 1982 serial numbers), and never again.
    pub message: u32,
    /// How it is divided.
    pub layout: Layout,
    /// Planes that are sent of each packet, 1 to 10.
    pub planes: u8,
    /// Ask for the receiver's final trim map, which [`Event::Sent`] brings.
    pub want_map: bool,
    /// The receiver takes what there is at some time ([`Expectation::until_ns`]): what was not sent
    /// at all goes before repairs, and of these what is worth most, by energy per byte.
    pub best_effort: bool,
    /// At which share of the line's rate its data leaves at most.
    pub pace: Pace,
}

/// Where the rows of a message are kept as bytes ([`RowReceiver::keeping`]).
pub trait RowPlaces: Send + Sync + std::fmt::Debug {
    /// Memory for a row of the message, below the layout's number.
    fn place(&self, row: usize) -> Box<dyn RowMemory>;

    /// Planes that there is room for in it.
    fn planes(&self) -> u8;
}

/// A message that is to be received.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// How it is divided, as its sender has it.
    pub layout: Layout,
    /// Its codec.
    pub codec: Codec,
    /// Job of its rotations.
    pub job: Job,
    /// How trimmed packets are decoded.
    pub decoding: Decoding,
    /// How much of it has to arrive.
    pub reliability: Reliability,
    /// Planes that the sender sends of each packet, 1 to 10; the sender's PROBE corrects a number
    /// that is too large.
    pub planes: u8,
    /// Be content with what is there at that time, however little, on the clock that the endpoint
    /// is told.
    pub until_ns: Option<u64>,
    /// Whose rows they were first, where the sender passes them on: their keys are those of that
    /// envelope.
    pub origin: Option<Envelope>,
    /// Keep packets as they come, for somebody else to decode; `None`: they become code words.
    pub keep: Option<Arc<dyn RowPlaces>>,
    /// Tell the sender the final trim map and wait for its FINAL ([`Event::Agreed`]); the sender
    /// must ask for it ([`Outbound::want_map`]) and [`crate::endpoint::Endpoint::agree`].
    pub agree: bool,
}

/// What happened.
#[expect(missing_docs, reason = "variants say what their fields are")]
#[derive(Debug)]
pub enum Event {
    /// A row is there: all of its packets, or all that will come. Rows of a message come in any
    /// order, each once, all of them before [`Event::Received`].
    Row {
        from: u16,
        message: u32,
        /// What arrived of it, ready to decode.
        row: Box<RowReceiver>,
    },
    /// A message is delivered.
    Received { from: u16, message: u32, stats: TransferStats },
    /// Consistent replicas: every packet of a message whose map was asked for
    /// ([`Outbound::want_map`]) was sent, and its receiver has said what it has. It keeps what
    /// lacks tails until [`crate::endpoint::Endpoint::settle`]. Left out where it has everything:
    /// it is content then.
    Passed { to: u16, message: u32, map: TrimMap },
    /// The receiver of a message is content.
    Sent {
        to: u16,
        message: u32,
        /// What the receiver has, where it was asked for.
        map: Option<TrimMap>,
        stats: TransferStats,
    },
    /// The sender of a received message has told at which precision all replicas decode it.
    Agreed { from: u16, message: u32, map: TrimMap },
    /// A transfer was given up.
    Failed { peer: u16, message: u32, error: TransferError },
    /// Of the ranks' agreements on epochs.
    Epoch(Change),
}

/// Totals since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndpointStats {
    /// DATA datagrams sent, repairs included, and their payload bytes.
    pub data_sent: u64,
    /// Their payload bytes.
    pub data_bytes_sent: u64,
    /// Datagrams that DATA packets were divided into which are too long for the path.
    pub pieces_sent: u64,
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
    /// Of all DATA datagrams, trimmed ones (by their DSCP, whether they were of use or not, or by
    /// their length).
    pub trimmed_received: u64,
    /// DATA datagrams that were trimmed on the link to this rank, by their DSCP, whether they were
    /// of use or not.
    pub trimmed_last_hop_received: u64,
    /// Valid control datagrams received.
    pub control_received: u64,
    /// DATA of messages that were not expected yet and found no room.
    pub early_dropped: u64,
    /// Datagrams ignored because they are not ours: bytes that are no packet, or a packet that fits
    /// no message.
    pub malformed: u64,
    /// Datagrams ignored because they are of another job, of this rank itself, of no rank of the
    /// job, from somewhere else than where that rank is, or from before a restart.
    pub foreign: u64,
    /// Control packets of a sealed job that came without the right tag.
    pub unsealed: u64,
    /// Valid datagrams about transfers that are over, or never were.
    pub stray: u64,
    /// Transfers given up.
    pub failed: u64,
}

impl std::ops::AddAssign for EndpointStats {
    fn add_assign(&mut self, other: Self) {
        self.data_sent += other.data_sent;
        self.data_bytes_sent += other.data_bytes_sent;
        self.pieces_sent += other.pieces_sent;
        self.repairs_sent += other.repairs_sent;
        self.retransmitted_bytes += other.retransmitted_bytes;
        self.control_sent += other.control_sent;
        self.control_bytes_sent += other.control_bytes_sent;
        self.data_received += other.data_received;
        self.trimmed_received += other.trimmed_received;
        self.trimmed_last_hop_received += other.trimmed_last_hop_received;
        self.control_received += other.control_received;
        self.early_dropped += other.early_dropped;
        self.malformed += other.malformed;
        self.foreign += other.foreign;
        self.unsealed += other.unsealed;
        self.stray += other.stray;
        self.failed += other.failed;
    }
}
