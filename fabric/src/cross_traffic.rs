// SPDX-License-Identifier: Apache-2.0
//! Other people's traffic: on/off bursts that share the workers' links.

use crate::frame::{self, Address};
use crate::network::Departure;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// UDP port that nobody listens on (RFC 863, discard).
pub const DISCARD_PORT: u16 = 9;

/// How a tenant next door behaves: groups of senders burst together at one victim at a time, which
/// is the incast that on/off traffic of storage and parameter servers makes.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossTraffic {
    /// Mean length of a burst, ns; lengths are exponentially distributed.
    pub burst_ns: u64,
    /// Mean silence between bursts, ns; exponentially distributed.
    pub gap_ns: u64,
    /// Payload bytes of a packet.
    pub payload: u16,
    /// Traffic class byte (DSCP << 2 | ECN) its packets carry.
    pub tos: u8,
}

/// One burst: who gets it, and from when to when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// Index of the victim among the group's victims.
    pub victim: usize,
    /// First instant, ns.
    pub start_ns: u64,
    /// First instant after it, ns.
    pub end_ns: u64,
}

/// The endless, seeded sequence of bursts that all senders of a group follow.
#[derive(Debug, Clone)]
pub struct BurstSchedule {
    traffic: CrossTraffic,
    victims: usize,
    rng: ChaCha8Rng,
    now_ns: u64,
}

impl BurstSchedule {
    /// A schedule over `victims` victims; the same seed gives the same bursts.
    pub fn new(traffic: CrossTraffic, victims: usize, seed: u64) -> Self {
        Self { traffic, victims, rng: ChaCha8Rng::seed_from_u64(seed), now_ns: 0 }
    }

    fn exponential(&mut self, mean_ns: u64) -> u64 {
        // 1 − u lies in (0, 1], so the logarithm is finite.
        (-(1.0 - self.rng.random::<f64>()).ln() * mean_ns as f64) as u64
    }
}

impl Iterator for BurstSchedule {
    type Item = Burst;

    fn next(&mut self) -> Option<Burst> {
        if self.victims == 0 || self.traffic.burst_ns == 0 {
            return None;
        }
        let start_ns = self.now_ns + self.exponential(self.traffic.gap_ns);
        let end_ns = start_ns + self.exponential(self.traffic.burst_ns).max(1);
        self.now_ns = end_ns;
        Some(Burst { victim: self.rng.random_range(0..self.victims), start_ns, end_ns })
    }
}

/// A sans-IO sender of one group: at line rate during bursts, silent between them.
#[derive(Debug)]
pub struct CrossSender {
    address: Address,
    victims: Vec<Address>,
    schedule: BurstSchedule,
    burst: Option<Burst>,
    payload: Vec<u8>,
    tos: u8,
    rate_bps: u64,
    free_at_ns: u64,
    sent: u64,
}

impl CrossSender {
    /// A sender at `address` whose link runs at `rate_bps` and that follows the group's schedule.
    pub fn new(address: Address, victims: Vec<Address>, mut schedule: BurstSchedule, rate_bps: u64) -> Self {
        let (payload, tos) = (vec![0; usize::from(schedule.traffic.payload)], schedule.traffic.tos);
        let burst = schedule.next();
        Self { address, victims, schedule, burst, payload, tos, rate_bps, free_at_ns: 0, sent: 0 }
    }

    /// Packets sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// When the next packet starts.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.burst.map(|burst| burst.start_ns.max(self.free_at_ns))
    }

    /// The packet that starts now, if one does.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Departure> {
        if self.poll_timeout()? > now_ns {
            return None;
        }
        let victim = *self.victims.get(self.burst?.victim)?;
        // Entropy for ECMP: every packet takes its own path, as sprayed traffic does.
        let source_port = 49_152 + (self.sent % 16_384) as u16;
        let frame = frame::write(self.address, victim, self.tos, source_port, DISCARD_PORT, &self.payload)?;
        self.free_at_ns = now_ns + serialisation_ns(frame.len(), self.rate_bps);
        self.sent += 1;
        while self.burst.is_some_and(|burst| burst.end_ns <= self.free_at_ns) {
            self.burst = self.schedule.next();
        }
        Some(Departure { port: 0, frame, end_ns: self.free_at_ns })
    }
}

/// Time that `bytes` take on a line of `rate_bps`, ns, rounded up.
pub fn serialisation_ns(bytes: usize, rate_bps: u64) -> u64 {
    (bytes as u64 * 8 * 1_000_000_000).div_ceil(rate_bps.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn traffic() -> CrossTraffic {
        CrossTraffic { burst_ns: 100_000, gap_ns: 300_000, payload: 1_458, tos: 0 }
    }

    #[test]
    fn bursts_cover_the_share_of_time_that_their_means_promise() {
        let bursts: Vec<Burst> = BurstSchedule::new(traffic(), 4, 7).take(20_000).collect();
        let busy: u64 = bursts.iter().map(|b| b.end_ns - b.start_ns).sum();
        let share = busy as f64 / bursts[bursts.len() - 1].end_ns as f64;
        assert!((share - 0.25).abs() < 0.01, "{share}");
        assert!(bursts.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns), "bursts do not overlap");
        assert!((0..4).all(|v| bursts.iter().any(|b| b.victim == v)));
    }

    #[test]
    fn a_sender_fills_its_line_during_a_burst_and_is_silent_between() {
        let address = |last| Address { mac: [2, 0, 0, 0, 1, last], ip: Ipv4Addr::new(10, 0, 1, last) };
        let schedule = BurstSchedule::new(traffic(), 2, 3);
        let bursts: Vec<Burst> = schedule.clone().take(50).collect();
        let mut sender = CrossSender::new(address(1), vec![address(2), address(3)], schedule, 10_000_000_000);
        let mut bytes_in_burst = vec![0usize; bursts.len()];
        loop {
            let now_ns = sender.poll_timeout().unwrap();
            let Some(index) = bursts.iter().position(|b| (b.start_ns..b.end_ns).contains(&now_ns)) else {
                break;
            };
            let departure = sender.poll_transmit(now_ns).unwrap();
            bytes_in_burst[index] += departure.frame.len();
        }
        for (burst, bytes) in bursts.iter().zip(bytes_in_burst) {
            let line = (burst.end_ns - burst.start_ns) as f64 * 10.0 / 8.0;
            assert!((bytes as f64 - line).abs() <= 3_100.0, "{bytes} bytes of {line}");
        }
    }
}
