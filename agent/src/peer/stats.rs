// SPDX-License-Identifier: Apache-2.0
//! What a peer counts of itself.

use super::Peer;
use crate::config::EndpointConfig;
use crate::snapshot::{PathSnapshot, PeerSnapshot, PeerStats};
use crate::transfer::outgoing::Heard;

impl Peer {
    pub(crate) fn stats(&self) -> &PeerStats {
        &self.stats
    }

    /// Counts DATA that came.
    pub(super) fn count_data(&mut self, bytes: usize, trimmed: bool) {
        self.stats.data_received += 1;
        self.stats.data_bytes_received += bytes as u64;
        self.stats.trimmed_received += u64::from(trimmed);
    }

    /// Counts what the peer has told, and hands it to the rate algorithm, which counts whole
    /// frames: `overhead` bytes more than a payload.
    pub(super) fn take_feedback(&mut self, heard: &Heard, overhead: u16) {
        let mut feedback = heard.feedback;
        let packets = u64::from(feedback.arrived) + u64::from(feedback.lost);
        feedback.bytes += u64::from(overhead) * packets;
        self.stats.arrived += u64::from(feedback.arrived);
        self.stats.trimmed += u64::from(feedback.trimmed);
        self.stats.marked += u64::from(feedback.marked);
        self.stats.lost += u64::from(feedback.lost);
        self.slowdown.tell(self.rate.as_mut(), &feedback, heard.answered);
        self.pacer.heard(
            feedback.arrived,
            feedback.trimmed.saturating_add(feedback.marked).saturating_add(feedback.lost),
        );
    }

    pub(crate) fn snapshot(&self, config: &EndpointConfig) -> PeerSnapshot {
        let paths = (0_u16..).zip(&config.source_ports).filter_map(|(path, &source_port)| {
            let (stats, share) = self.paths.state(path).filter(|(stats, _)| stats.sent > 0)?;
            Some(PathSnapshot { own: config.own_of(path), source_port, share, stats })
        });
        PeerSnapshot {
            rank: self.rank,
            address: self.address(),
            rate_bps: self.rate_bps(),
            rtt_ns: self.rtt_ns(),
            least_rtt_ns: self.estimate.data.minimum_ns(),
            in_flight_bytes: self.sends.values().map(|transfer| transfer.in_flight().bytes).sum(),
            stats: self.stats,
            paths: paths.collect(),
        }
    }
}
