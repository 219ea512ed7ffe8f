// SPDX-License-Identifier: Apache-2.0
//! Which packet, of whom, and what for.

/// What a packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Coordinates.
    Data = 1,
    /// Receipt of some DATA: round-trip time and share of trimmed packets.
    Ack = 2,
    /// The sender asks what arrived.
    Probe = 3,
    /// The receiver's map of what arrived.
    Status = 4,
    /// The receiver has enough.
    Stop = 5,
    /// The precision at which all receivers decode.
    Final = 6,
    /// A message will not be finished, and who is to blame.
    Abort = 7,
    /// Two hosts agree on who they are.
    Hello = 8,
    /// How long packets may be on the way to a rank.
    Path = 9,
    /// A part of a DATA packet that is longer than the way to its receiver allows.
    Piece = 10,
    /// Ranks agree on who is left.
    Vote = 11,
    /// Packets of a message that its sender does not send again.
    Forward = 12,
}

/// A job and the rank in it that a packet comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    pub(super) job: u8,
    pub(super) rank: u16,
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

/// Which message a packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Job and source rank.
    pub stream: StreamId,
    /// Message id.
    pub message: u32,
}
