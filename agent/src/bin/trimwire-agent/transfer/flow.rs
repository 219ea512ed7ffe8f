// SPDX-License-Identifier: Apache-2.0
//! Rates: of each flow over its own time, of all together over the time that they have in common, and of each interval.

use crate::units::{bytes_text, rate_text};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trimwire_agent::snapshot::PeerStats;

/// What one sender's DATA came to, at the receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Flow {
    /// The sender's rank.
    pub(crate) from: u16,
    /// Its address.
    pub(crate) address: String,
    pub(crate) packets: u64,
    pub(crate) trimmed: u64,
    /// Packets of its gradients of which nothing came.
    pub(crate) missing: u64,
    /// Payload bytes.
    pub(crate) bytes: u64,
    /// From its first packet to its last.
    pub(crate) seconds: f64,
    /// `null` where there was no second packet.
    pub(crate) goodput_bps: Option<f64>,
}

/// Bit/s; `None` of what took no time.
pub(crate) fn rate_bps(bytes: u64, took_ns: u64) -> Option<f64> {
    (took_ns > 0).then(|| bytes as f64 * 8e9 / took_ns as f64)
}

/// Words for a rate that there need not be.
pub(crate) fn maybe_rate(bps: Option<f64>) -> String {
    bps.map_or_else(|| "-".to_owned(), rate_text)
}

impl Flow {
    pub(super) fn new(from: u16, address: String, stats: &PeerStats, first_ns: Option<u64>) -> Self {
        let took_ns = first_ns.zip(stats.last_data_ns).map_or(0, |(first, last)| last.saturating_sub(first));
        Self {
            from,
            address,
            packets: stats.data_received,
            trimmed: stats.trimmed_received,
            missing: stats.missing,
            bytes: stats.data_bytes_received,
            seconds: took_ns as f64 / 1e9,
            goodput_bps: rate_bps(stats.data_bytes_received, took_ns),
        }
    }

    /// The receiver's line of it.
    pub(super) fn text(&self, label: &str) -> String {
        let Self { seconds, bytes, goodput_bps, packets, trimmed, missing, .. } = self;
        line(label, 0.0, *seconds, *bytes, *goodput_bps)
            + &format!("  {packets} packets, {trimmed} trimmed, {missing} missing")
    }
}

/// All flows while all of them were on their way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Together {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) goodput_bps: f64,
}

/// Finds the time that all flows have in common: from when the last one begins to when the first one ends.
#[derive(Debug, Default)]
pub(super) struct Overlap {
    begun: Option<(u64, u64)>,
    ended: Option<(u64, u64)>,
}

impl Overlap {
    /// Whether it waits for all flows to begin.
    pub(super) fn waits(&self) -> bool {
        self.begun.is_none() && self.ended.is_none()
    }

    /// All have begun; so many bytes came so far.
    pub(super) fn begin(&mut self, now_ns: u64, bytes: u64) {
        self.begun.get_or_insert((now_ns, bytes));
    }

    /// One has ended; the earliest counts.
    pub(super) fn end(&mut self, at_ns: u64, bytes: u64) {
        let this = (at_ns, bytes);
        self.ended = Some(self.ended.map_or(this, |other| other.min(this)));
    }

    /// `None`: they were one after the other.
    pub(super) fn result(&self) -> Option<Together> {
        let ((from_ns, before), (to_ns, after)) = self.begun.zip(self.ended)?;
        let (bytes, took_ns) = (after.saturating_sub(before), to_ns.checked_sub(from_ns)?);
        let goodput_bps = rate_bps(bytes, took_ns)?;
        Some(Together { bytes, seconds: took_ns as f64 / 1e9, goodput_bps })
    }
}

/// One peer in an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Part {
    pub(super) rank: u16,
    pub(super) bytes: u64,
    pub(super) bps: f64,
    pub(super) packets: u64,
    /// Of the packets that came, or of those that the receiver told of.
    pub(super) trimmed_share: f64,
    /// Repairs, at a sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) repaired: Option<u64>,
    /// Smoothed round trip, ns, at a sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rtt_ns: Option<u64>,
}

impl Part {
    pub(super) fn text(&self, from_s: f64, to_s: f64) -> String {
        let more = match (self.repaired, self.rtt_ns) {
            (None, None) => String::new(),
            (repaired, rtt_ns) => {
                let rtt = rtt_ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.0} us", ns as f64 / 1e3));
                format!("  repaired {}  rtt {rtt}", repaired.unwrap_or(0))
            }
        };
        line(&self.rank.to_string(), from_s, to_s, self.bytes, Some(self.bps))
            + &format!("  trimmed {:5.2} %{more}", self.trimmed_share * 100.0)
    }
}

/// What happened between two looks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Interval {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) peers: Vec<Part>,
}

/// Takes counts at every look and tells what came between.
#[derive(Debug)]
pub(super) struct Intervals {
    begun_ns: u64,
    last_ns: u64,
    last: BTreeMap<u16, PeerStats>,
    pub(super) all: Vec<Interval>,
}

impl Intervals {
    pub(super) fn new(now_ns: u64) -> Self {
        Self { begun_ns: now_ns, last_ns: now_ns, last: BTreeMap::new(), all: Vec::new() }
    }

    /// The latest interval, at a receiver; a sender's figures come with a round trip.
    pub(super) fn look(
        &mut self,
        now_ns: u64,
        peers: impl Iterator<Item = (u16, PeerStats, Option<u64>)>,
        sends: bool,
    ) -> &Interval {
        let took_ns = now_ns.saturating_sub(self.last_ns);
        let mut parts = Vec::new();
        for (rank, stats, rtt_ns) in peers {
            let before = self.last.insert(rank, stats).unwrap_or_default();
            let (bytes, packets, seen, cut) = if sends {
                let PeerStats { data_bytes_sent, data_sent, arrived, trimmed, .. } = stats;
                (
                    data_bytes_sent - before.data_bytes_sent,
                    data_sent - before.data_sent,
                    arrived - before.arrived,
                    trimmed - before.trimmed,
                )
            } else {
                let packets = stats.data_received - before.data_received;
                let bytes = stats.data_bytes_received - before.data_bytes_received;
                (bytes, packets, packets, stats.trimmed_received - before.trimmed_received)
            };
            parts.push(Part {
                rank,
                bytes,
                packets,
                bps: rate_bps(bytes, took_ns).unwrap_or(0.0),
                trimmed_share: cut as f64 / seen.max(1) as f64,
                repaired: sends.then(|| stats.repairs_sent - before.repairs_sent),
                rtt_ns: rtt_ns.filter(|_| sends),
            });
        }
        let since = |at_ns: u64| at_ns.saturating_sub(self.begun_ns) as f64 / 1e9;
        let interval = Interval { from_s: since(self.last_ns), to_s: since(now_ns), peers: parts };
        self.last_ns = now_ns;
        self.all.push(interval);
        // There is one.
        &self.all[self.all.len() - 1]
    }
}

impl Interval {
    pub(super) fn text(&self) -> String {
        let mut lines: Vec<String> =
            self.peers.iter().map(|part| part.text(self.from_s, self.to_s)).collect();
        if self.peers.len() > 1 {
            let (bytes, bps) =
                self.peers.iter().fold((0, 0.0), |sum, part| (sum.0 + part.bytes, sum.1 + part.bps));
            lines.push(line("SUM", self.from_s, self.to_s, bytes, Some(bps)));
        }
        lines.join("\n")
    }
}

/// iperf3's columns.
pub(super) fn line(label: &str, from_s: f64, to_s: f64, bytes: u64, bps: Option<f64>) -> String {
    let rate = maybe_rate(bps);
    format!("[{label:>4}]  {from_s:6.2}-{to_s:<6.2} s  {:>10}  {rate:>13}", bytes_text(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(bytes: u64, last_ns: u64) -> PeerStats {
        PeerStats {
            data_bytes_received: bytes,
            data_received: bytes / 1_000,
            last_data_ns: Some(last_ns),
            ..PeerStats::default()
        }
    }

    #[test]
    fn a_flow_is_as_fast_as_over_its_own_time_whoever_sends_beside_it() {
        let flow = Flow::new(1, String::new(), &stats(125_000_000, 3_000_000_000), Some(2_000_000_000));
        assert_eq!(flow.goodput_bps, Some(1e9));
        let alone = Flow::new(1, String::new(), &stats(1_000, 5), Some(5));
        assert_eq!(alone.goodput_bps, None, "one packet took no time");
        assert!(alone.text("1").contains(" - "));
    }

    #[test]
    fn flows_together_are_no_faster_than_the_link_they_share() {
        let mut overlap = Overlap::default();
        // One flow has 1 Gbit/s for itself, then both have it, then the other.
        overlap.begin(1_000_000_000, 125_000_000);
        overlap.end(2_000_000_000, 250_000_000);
        overlap.end(3_000_000_000, 375_000_000);
        assert_eq!(overlap.result(), Some(Together { bytes: 125_000_000, seconds: 1.0, goodput_bps: 1e9 }));
        let mut apart = Overlap::default();
        apart.end(1, 10);
        apart.begin(2, 20);
        assert_eq!(apart.result(), None);
    }

    #[test]
    fn intervals_tell_what_came_between_two_looks() {
        let mut intervals = Intervals::new(5_000_000_000);
        let at = |bytes_1, bytes_2| [(1, stats(bytes_1, 0), None), (2, stats(bytes_2, 0), None)].into_iter();
        intervals.look(6_000_000_000, at(125_000, 0), false);
        let second = intervals.look(7_000_000_000, at(250_000, 125_000), false);
        assert_eq!((second.from_s, second.to_s), (1.0, 2.0));
        assert!(second.peers.iter().all(|part| part.bps == 1e6 && part.packets == 125), "{second:?}");
        let text = second.text();
        assert!(
            text.lines().count() == 3 && text.contains("[ SUM]") && text.contains("2.00 Mbit/s"),
            "{text}"
        );
    }
}
