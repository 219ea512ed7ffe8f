// SPDX-License-Identifier: Apache-2.0
//! What a plain switch's port does with the packets that wait: each rule is its paper's, and is
//! held against it by tests.
//!
//! Written anew for simulation, against ARCHITECTURE.md's first invariant, because these are the
//! switches that the P4 program is compared with. [`Ladder`] is the program's own rule without its
//! tables, and `lab/tests/it/ladder.rs` holds it against the P4 engine packet for packet.

mod ladder;
mod ndp;
mod pfabric;
mod priority;
mod red;
mod selective;

pub use ladder::{Ladder, Rungs};
pub use red::Marks;

use super::packet::{PRIORITIES, Packet};
use super::pfc::Pfc;
use ndp::Ndp;
use pfabric::PFabric;
use priority::Priority;
use red::Red;
use selective::Selective;

/// What became of the packets that came to a port, by the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// DATA that came.
    pub offered: u64,
    /// Of these, trimmed here.
    pub trimmed: u64,
    /// Of these, dropped here.
    pub dropped: u64,
    /// Of these, returned to their senders from here.
    pub returned: u64,
    /// Of these, marked here.
    pub marked: u64,
    /// Packets of other kinds, dropped here.
    pub control_dropped: u64,
    /// Most bytes that waited.
    pub most_bytes: u64,
    /// Pauses that this port asked for (PFC).
    pub pauses: u64,
    /// Time that its priorities were held by pauses, ns, summed over priorities.
    pub paused_ns: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.trimmed += other.trimmed;
        self.dropped += other.dropped;
        self.returned += other.returned;
        self.marked += other.marked;
        self.control_dropped += other.control_dropped;
        self.most_bytes = self.most_bytes.max(other.most_bytes);
        self.pauses += other.pauses;
        self.paused_ns += other.paused_ns;
    }

    pub(crate) fn drop(&mut self, packet: &Packet) {
        if packet.kind == super::packet::Kind::Data {
            self.dropped += 1;
        } else {
            self.control_dropped += 1;
        }
    }
}

/// The queues of one port. The packet on the line is not among those that wait.
pub trait Discipline: std::fmt::Debug + Send {
    /// Takes a packet in; or marks it, trims it, drops it, or another one in its place.
    fn enqueue(&mut self, now_ns: u64, packet: Packet, counts: &mut Counts);
    /// The packet to send next.
    fn dequeue(&mut self) -> Option<Packet>;
    /// Bytes that wait.
    fn bytes(&self) -> u64;
    /// Whether something waits that may leave.
    fn is_ready(&self) -> bool {
        self.bytes() > 0
    }
    /// Holds a priority or lets it go on, where PFC does that.
    fn hold(&mut self, _class: u8, _on: bool) {}
    /// A header that goes back to its sender, if the packet that came last had no room even trimmed
    /// (NDP §3.2.4).
    fn returned(&mut self) -> Option<Packet> {
        None
    }
}

/// Which rule, with its numbers; sizes in bytes of frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// First in, first out; what does not fit is dropped. Marked from `mark_at` on.
    DropTail {
        /// Most bytes that wait.
        limit: u64,
        /// DCTCP's K (SIGCOMM 2010, §3.1): a packet that finds more than this waiting is marked.
        mark_at: Option<u64>,
    },
    /// Strict priority of eight queues in one buffer.
    Priority {
        /// Most bytes that wait in all.
        limit: u64,
        /// A packet that finds more than this in all queues is marked (PIAS, NSDI 2015, §5: per
        /// port).
        mark_at: Option<u64>,
    },
    /// The flow with the fewest packets left goes first; the one with the most is dropped (pFabric,
    /// SIGCOMM 2013, §4.2).
    PFabric {
        /// Most bytes that wait.
        limit: u64,
    },
    /// Eight whole packets, and what does not fit is trimmed to its head (NDP, SIGCOMM 2017, §3.1);
    /// heads that do not fit go back to their senders (§3.2.4).
    Ndp {
        /// Whole packets that wait at most.
        packets: u32,
        /// Bytes of heads that wait at most.
        heads: u64,
    },
    /// Strict priority by layer; above a threshold packets without ECN are dropped (MLT, NSDI 2024,
    /// §5.2).
    Selective {
        /// Most bytes of data that wait.
        limit: u64,
        /// The lowest queue's threshold; none is blind to importance.
        drop_at: Option<u64>,
    },
    /// Strict priority with DCQCN's marks (SIGCOMM 2015, §3.1), with PFC or without.
    Red {
        /// Most bytes that wait where there is no PFC.
        limit: u64,
        /// Which packets are marked.
        marks: Marks,
        /// Pauses instead of drops.
        pfc: Option<Pfc>,
    },
    /// The P4 program's: see [`Ladder`].
    Ladder(Rungs),
}

impl Rule {
    /// Its pauses, if it has any.
    pub(crate) fn pfc(&self) -> Option<Pfc> {
        match self {
            Self::Red { pfc, .. } => *pfc,
            _ => None,
        }
    }

    /// An empty port; `place` makes its coins its own.
    pub(crate) fn build(&self, seed: u64, place: u64) -> Box<dyn Discipline> {
        match *self {
            Self::DropTail { limit, mark_at } => Box::new(Priority::new(1, limit, mark_at)),
            Self::Priority { limit, mark_at } => Box::new(Priority::new(PRIORITIES, limit, mark_at)),
            Self::PFabric { limit } => Box::new(PFabric::new(limit)),
            Self::Ndp { packets, heads } => Box::new(Ndp::new(packets, heads, seed, place)),
            Self::Selective { limit, drop_at } => Box::new(Selective::new(limit, drop_at)),
            Self::Red { limit, marks, pfc } => {
                let limit = if pfc.is_some() { u64::MAX } else { limit };
                Box::new(Red::new(limit, marks, seed, place))
            }
            Self::Ladder(rungs) => Box::new(Ladder::new(rungs)),
        }
    }
}
