// SPDX-License-Identifier: Apache-2.0
//! What an endpoint can tell of its peers and of the paths to them, to be published apart from the
//! thread that drives it.
#![forbid(unsafe_code)]

use crate::interface::EndpointStats;
use std::net::{IpAddr, SocketAddr};

/// Totals of one path to a peer since the beginning, as reports tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathStats {
    /// DATA packets sent this way, repairs included.
    pub sent: u64,
    /// Their payload bytes.
    pub bytes_sent: u64,
    /// Packets of which the peer has told that they are there.
    pub arrived: u64,
    /// Of these, the ones that were trimmed on the way.
    pub trimmed: u64,
    /// Packets found to be lost.
    pub lost: u64,
    /// Smoothed round trip of whole packets that went this way, ns; 0 before the first.
    pub rtt_ns: u64,
}

/// Totals of what went between this rank and another since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerStats {
    /// DATA packets sent, repairs included.
    pub data_sent: u64,
    /// Their payload bytes.
    pub data_bytes_sent: u64,
    /// Repairs sent.
    pub repairs_sent: u64,
    /// Packets that the peer says have arrived.
    pub arrived: u64,
    /// Of these, trimmed on the way there.
    pub trimmed: u64,
    /// Of these, with CE in the IP header.
    pub marked: u64,
    /// Packets found to be lost on the way there.
    pub lost: u64,
    /// Messages that the peer has taken.
    pub messages_sent: u64,
    /// DATA packets received for messages that were not over.
    pub data_received: u64,
    /// Their payload bytes.
    pub data_bytes_received: u64,
    /// Of these packets, trimmed ones.
    pub trimmed_received: u64,
    /// Messages delivered.
    pub messages_received: u64,
    /// Packets of the messages delivered.
    pub packets_delivered: u64,
    /// Of these, packets of which nothing came.
    pub missing: u64,
    /// Control packets sent.
    pub control_sent: u64,
    /// Valid control packets received.
    pub control_received: u64,
    /// Transfers given up, either way.
    pub failed: u64,
}

/// One path to a peer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathSnapshot {
    /// The own address that it leaves from, which names the interface; `None`: the system chooses.
    pub own: Option<IpAddr>,
    /// UDP source port of what goes this way.
    pub source_port: u16,
    /// Its share of the bursts, in [0, 1]; 0 while nothing gets through.
    pub share: f64,
    /// Its totals.
    pub stats: PathStats,
}

/// One peer.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerSnapshot {
    /// Its rank.
    pub rank: u16,
    /// Where it listens, as given or learned.
    pub address: Option<SocketAddr>,
    /// Rate at which data goes to it, bit/s of whole frames.
    pub rate_bps: u64,
    /// Smoothed round trip of whole DATA packets, ns, once measured.
    pub rtt_ns: Option<u64>,
    /// The shortest one seen, ns.
    pub least_rtt_ns: Option<u64>,
    /// Payload bytes on their way.
    pub in_flight_bytes: u64,
    /// Totals.
    pub stats: PeerStats,
    /// The paths that something was sent on, by source port's index.
    pub paths: Vec<PathSnapshot>,
}

/// An endpoint at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// This rank.
    pub rank: u16,
    /// Ranks of the job.
    pub world: u16,
    /// Totals over all peers.
    pub totals: EndpointStats,
    /// The other ranks.
    pub peers: Vec<PeerSnapshot>,
}

impl std::ops::AddAssign for PeerStats {
    fn add_assign(&mut self, other: Self) {
        self.data_sent += other.data_sent;
        self.data_bytes_sent += other.data_bytes_sent;
        self.repairs_sent += other.repairs_sent;
        self.arrived += other.arrived;
        self.trimmed += other.trimmed;
        self.marked += other.marked;
        self.lost += other.lost;
        self.messages_sent += other.messages_sent;
        self.data_received += other.data_received;
        self.data_bytes_received += other.data_bytes_received;
        self.trimmed_received += other.trimmed_received;
        self.messages_received += other.messages_received;
        self.packets_delivered += other.packets_delivered;
        self.missing += other.missing;
        self.control_sent += other.control_sent;
        self.control_received += other.control_received;
        self.failed += other.failed;
    }
}

impl Snapshot {
    /// Adds another channel of the same rank: its totals, and its paths behind the others. Round
    /// trips stay the first channel's, where it has any.
    pub fn add(&mut self, channel: Self) {
        self.totals += channel.totals;
        for peer in channel.peers {
            let Some(own) = self.peers.iter_mut().find(|own| own.rank == peer.rank) else { continue };
            own.rate_bps = own.rate_bps.saturating_add(peer.rate_bps);
            own.rtt_ns = own.rtt_ns.or(peer.rtt_ns);
            own.least_rtt_ns = own.least_rtt_ns.into_iter().chain(peer.least_rtt_ns).min();
            own.in_flight_bytes += peer.in_flight_bytes;
            own.stats += peer.stats;
            own.paths.extend(peer.paths);
        }
    }
}
