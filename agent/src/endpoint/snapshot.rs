// SPDX-License-Identifier: Apache-2.0
//! What is told of peers and paths.

use super::Endpoint;
use crate::peer::Peer;
use crate::snapshot::{PeerSnapshot, PeerStats, Snapshot};

impl Endpoint {
    /// Totals of what went between this rank and another; `None` for a rank that does not exist.
    pub fn peer_stats(&self, rank: u16) -> Option<&PeerStats> {
        self.peers.get(usize::from(rank)).map(Peer::stats)
    }

    /// When the first DATA of a peer came since the last call, ns. Of what comes late, of messages that are over, nothing is told.
    pub fn take_first_data_ns(&mut self, rank: u16) -> Option<u64> {
        self.peers.get_mut(usize::from(rank))?.take_first_data_ns()
    }

    /// Everything that is told of this moment. Copies some hundred bytes a path: for once a second, not for every packet.
    pub fn snapshot(&self) -> Snapshot {
        let others = (0..).zip(&self.peers).filter(|&(rank, _)| rank != self.config.rank);
        let peers = others.map(|(rank, peer): (u16, &Peer)| PeerSnapshot {
            rank,
            rate_bps: peer.rate_bps().min(self.config.line_rate_bps),
            ..peer.snapshot(&self.config.source_ports)
        });
        Snapshot {
            rank: self.config.rank,
            world: self.config.world,
            totals: self.stats,
            peers: peers.collect(),
        }
    }
}
