// SPDX-License-Identifier: Apache-2.0
//! What becomes of a transfer: counts, or why it was given up.
#![forbid(unsafe_code)]

use crate::wire::Reason;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// What became of a message's packets, on the side that counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransferStats {
    /// Packets of the message.
    pub packets: u32,
    /// Receiver: packets of which every plane that was sent has arrived.
    pub full: u32,
    /// Receiver: packets of which some planes have arrived.
    pub trimmed: u32,
    /// Receiver: packets of which nothing has. Sender: what the receiver said last.
    pub missing: u32,
    /// Receiver: DATA datagrams that brought nothing new.
    pub duplicates: u32,
    /// Sender: repairs sent.
    pub repaired: u32,
    /// Sender: payload bytes of DATA sent, repairs included.
    pub bytes_sent: u64,
    /// Sender: payload bytes of repairs.
    pub retransmitted_bytes: u64,
    /// Receiver: payload bytes of DATA that brought something, repairs included.
    pub bytes_received: u64,
    /// Sender: probes sent. Receiver: probes seen.
    pub probes: u32,
    /// From the first `send` or `expect` to the end, ns.
    pub duration_ns: u64,
    /// Receiver: from `expect` to the first and to the last packet that brought something, ns; 0
    /// where it was there before.
    pub first_ns: Option<u64>,
    /// See [`Self::first_ns`].
    pub last_ns: Option<u64>,
    /// Receiver: packets that its answers to probes named as wanting, each as often as it was
    /// named.
    pub asked: u32,
}

/// The way to a peer of which nothing comes, or which lets nothing through, as errors tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Way {
    /// The own address on it, which names the interface; `None`: the system chooses.
    pub own: Option<IpAddr>,
    /// Where the peer listens.
    pub to: Option<SocketAddr>,
    /// Source ports that data leaves by, and those of them that are known to lead nowhere.
    pub ports: u16,
    /// See [`Self::ports`].
    pub dead: u16,
    /// The one on which most of what left was lost.
    pub worst: Option<WorstPath>,
    /// Datagrams that were ignored because they came from elsewhere than where ranks of the job
    /// are, and that had no right tag, from whomever, since the beginning.
    pub foreign: u64,
    /// See [`Self::foreign`].
    pub unsealed: u64,
}

/// A path that loses packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorstPath {
    /// Source port.
    pub port: u16,
    /// The own address that it leaves from, where this rank has several.
    pub own: Option<IpAddr>,
    /// Packets that were lost there.
    pub lost: u64,
    /// Packets that were sent that way.
    pub sent: u64,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.own, self.to) {
            (Some(own), Some(to)) => write!(f, "from {own} to {to}")?,
            (None, Some(to)) => write!(f, "to {to}")?,
            (Some(own), None) => write!(f, "from {own} to a peer whose address is not known")?,
            (None, None) => f.write_str("to a peer whose address is not known")?,
        }
        if let Some(WorstPath { port, own, lost, sent }) = self.worst {
            write!(f, "; {} of {} source ports lead nowhere; port {port}", self.dead, self.ports)?;
            if let Some(own) = own.filter(|_| own != self.own) {
                write!(f, " of {own}")?;
            }
            write!(f, " lost {lost} of {sent} packets")?;
        }
        if self.foreign > 0 {
            write!(f, "; {} packets came from elsewhere than the job's ranks are", self.foreign)?;
        }
        if self.unsealed > 0 {
            write!(f, "; {} packets came without the tag of this rank's key", self.unsealed)?;
        }
        Ok(())
    }
}

/// Why a transfer was given up.
#[expect(missing_docs, reason = "messages say what the fields are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The peer answers nothing.
    #[error(
        "rank {peer} has not answered {probes} probes in {:?}: {missing} of {packets} packets of message {message:#010x} \
         are not known to have arrived ({way})", Duration::from_nanos(*.silent_ns)
    )]
    Unanswered {
        peer: u16,
        message: u32,
        packets: u32,
        missing: u32,
        probes: u32,
        /// Time since the last answer, ns.
        silent_ns: u64,
        way: Way,
    },
    /// The peer answers that its application has not asked for the message, for too long.
    #[error(
        "rank {peer} is alive but has not asked for message {message:#010x} ({packets} packets) in {:?}",
        Duration::from_nanos(*.waited_ns)
    )]
    NotExpected {
        peer: u16,
        message: u32,
        packets: u32,
        /// Time since the peer said so first, ns.
        waited_ns: u64,
    },
    /// The peer answers, but data does not get through.
    #[error(
        "rank {peer} answers, but nothing more of message {message:#010x} has arrived in {:?}: {missing} of {packets} packets \
         are missing{} ({way})", Duration::from_nanos(*.waited_ns), if *.trimmed { ", and what arrives of them is trimmed" } else { "" }
    )]
    Stalled {
        peer: u16,
        message: u32,
        packets: u32,
        missing: u32,
        /// Packets arrive, and none of them whole.
        trimmed: bool,
        /// Time since the last progress, ns.
        waited_ns: u64,
        way: Way,
    },
    /// The peer answers, and not even the shortest packets that data may be divided into get
    /// through.
    #[error(
        "the path to {to} (rank {peer}) carries no IP packets of {least} bytes, the least MTU that there has to be: message {message:#010x} has packets of {packet}, and nothing of it arrived in {:?} \
         (`trimwire-agent doctor --peer {}` tells what gets through)", Duration::from_nanos(*.waited_ns), .to.ip()
    )]
    PathMtu {
        peer: u16,
        to: SocketAddr,
        message: u32,
        /// Bytes of its longest packets, with IP and UDP headers.
        packet: u32,
        /// Bytes of the shortest question that was not answered.
        least: u16,
        /// Time since the last progress, ns.
        waited_ns: u64,
    },
    /// An expected message stopped arriving, or never began to.
    #[error(
        "nothing was heard from rank {peer} of message {message:#010x} in {:?}: {missing} of {packets} packets are missing, \
         {trimmed} are trimmed ({way})", Duration::from_nanos(*.silent_ns)
    )]
    Silent {
        peer: u16,
        message: u32,
        packets: u32,
        missing: u32,
        /// Packets of which some planes have arrived.
        trimmed: u32,
        /// Time since the last datagram of it, ns.
        silent_ns: u64,
        way: Way,
    },
    /// The peer has given the message up.
    #[error("rank {peer} has given up message {message:#010x}, because of rank {culprit}: {reason}")]
    Aborted { peer: u16, message: u32, culprit: u16, reason: Reason },
    /// The peer has started anew, and knows nothing of the message.
    #[error("rank {peer} has started anew in the middle of message {message:#010x}")]
    Restarted { peer: u16, message: u32 },
    /// The sender's message is not the one that is expected under this number.
    #[error(
        "rank {peer} sends another message under {message:#010x} than this rank expects: {packets} packets where it expects {expected}, or as many that are divided otherwise. All ranks have to give an \
         operation tensors of the same lengths, types and layer classes, and their operations in the same order, and to agree on one MTU, and on how many planes they send"
    )]
    Mismatch {
        peer: u16,
        message: u32,
        /// Packets that the sender has of it.
        packets: u32,
        expected: u32,
    },
    /// The receiver has the message, but does not tell its trim map.
    #[error(
        "rank {peer} has message {message:#010x} but tells no trim map of its {packets} packets: it does not expect the \
         message with an agreement of replicas, this rank does"
    )]
    NoMap { peer: u16, message: u32, packets: u32 },
    /// The replicas' agreement on a message was not reached.
    #[error(
        "rank {peer} has confirmed the agreed precision of {agreed} of {packets} packets of message {message:#010x}, and \
         nothing more in {:?}", Duration::from_nanos(*.silent_ns)
    )]
    Disagreement {
        peer: u16,
        message: u32,
        packets: u32,
        /// Packets whose agreed state the peer has.
        agreed: u32,
        /// Time since the last answer, ns.
        silent_ns: u64,
    },
}

impl TransferError {
    /// With the way that it happened on.
    pub(crate) fn on(mut self, along: Way) -> Self {
        if let Self::Unanswered { way, .. } | Self::Stalled { way, .. } | Self::Silent { way, .. } = &mut self
        {
            *way = along;
        }
        self
    }

    /// The rank to blame, and why, to be told to others.
    pub(crate) fn blame(&self) -> (u16, Reason) {
        match *self {
            Self::Aborted { reason, culprit, .. } => (culprit, reason),
            Self::Restarted { peer, .. } => (peer, Reason::Restarted),
            Self::Stalled { peer, .. } | Self::NotExpected { peer, .. } => (peer, Reason::Stalled),
            Self::PathMtu { peer, .. } => (peer, Reason::PathMtu),
            Self::NoMap { peer, .. } | Self::Mismatch { peer, .. } => (peer, Reason::Mismatch),
            Self::Unanswered { peer, .. } | Self::Silent { peer, .. } | Self::Disagreement { peer, .. } => {
                (peer, Reason::Lost)
            }
        }
    }
}
