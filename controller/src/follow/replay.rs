// SPDX-License-Identifier: Apache-2.0
//! A day's changing load at one port, with the file's thresholds and with thresholds that follow: the table of
//! `docs/explanation/thresholds.md`.
//!
//! Arrivals are the model's: bursts come at random, classes in proportion to their bytes, half of the packets less important. The port is the
//! switch's, and not the model's: packets are whole, strict priority is one, the trim queue has its cap, thresholds are those of the ladder.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::counters::{Count, Counter, QueueCounters, Waiting};

const RATE: u64 = 10_000_000_000;
const FRAME: u64 = 1406;
/// Quarters of an hour.
const WINDOWS: u64 = 96;
/// Of line time: so much stands for a quarter of an hour.
const WINDOW_NS: u64 = 25_000_000;
const READINGS: u64 = 5;

/// Of the day: offered load, packets in a burst, shares of the classes.
fn hour(window: u64) -> (f64, u64, [f64; 4]) {
    let hour = window / 4;
    match hour {
        // At night little comes, and evenly.
        0..=5 => (0.45, 1, [0.25; 4]),
        // A model with heavy back layers.
        6..=9 => (0.85, 8, [0.1, 0.15, 0.25, 0.5]),
        // Several at once: more than the line takes.
        10..=14 => (1.15, 16, [0.25; 4]),
        // One with heavy front layers.
        15..=19 => (0.95, 8, [0.55, 0.25, 0.1, 0.1]),
        // Large bursts: trimmed packets alone fill their queue.
        _ => (0.65, 256, [0.25; 4]),
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    /// Above 0 and up to 1.
    fn share(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[derive(Default)]
struct Port {
    /// By class, then trimmed packets: arrivals and sizes.
    queues: [VecDeque<(u64, u64)>; 5],
    bytes: [u64; 5],
    /// Most bytes in the trim queue since the last reading.
    trim_peak: u64,
    /// By class.
    counters: [BTreeMap<Counter, Count>; 4],
    /// When the line is free.
    free_at: u64,
    /// What the trim queue may send, bytes, and as of when.
    tokens: f64,
    tokens_at: u64,
    delays: Vec<u64>,
    lost_energy: f64,
    packets: u64,
    trimmed: u64,
    dropped: u64,
}

const TRIM: usize = 4;
/// The codec's, at 8 planes and at 1.
const COSTS: [f64; 2] = [4e-5, 0.57];

impl Port {
    fn count(&mut self, class: usize, counter: Counter) {
        let count = self.counters[class].entry(counter).or_default();
        count.packets += 1;
        count.bytes += FRAME as i64;
    }

    /// Sends what the line has time for before `now`.
    fn send(&mut self, now: u64, policy: &PortPolicy) {
        while self.free_at < now {
            let cap = policy.trim_cap.unwrap();
            let passed = self.free_at.saturating_sub(self.tokens_at) as f64;
            self.tokens = (self.tokens + passed * cap.rate_bps as f64 / 8e9).min(f64::from(cap.burst));
            self.tokens_at = self.tokens_at.max(self.free_at);
            let may = |queue: &usize| match self.queues[*queue].front() {
                Some((_, size)) => *queue != TRIM || self.tokens >= *size as f64,
                None => false,
            };
            let Some(queue) = [TRIM, 0, 1, 2, 3].into_iter().find(may) else {
                // Only tokens are missing, or nothing waits.
                self.free_at =
                    if self.queues[TRIM].is_empty() { now } else { (self.free_at + 1_000).min(now) };
                continue;
            };
            let (came, size) = self.queues[queue].pop_front().unwrap();
            self.bytes[queue] -= size;
            if queue == TRIM {
                self.tokens -= size as f64;
            }
            self.free_at += size * 8_000_000_000 / RATE;
            self.delays.push(self.free_at - came.min(self.free_at));
        }
    }

    fn arrive(&mut self, now: u64, class: usize, is_important: bool, weight: f64, policy: &PortPolicy) {
        let values = policy.queues[&[5, 4, 3, 2][class]][usize::from(is_important)];
        self.packets += 1;
        let energy = weight * if is_important { (5.0 / 6.0) / 0.5 } else { (1.0 / 6.0) / 0.5 };
        if self.bytes[class] < u64::from(values.shallow_at) {
            self.count(class, Counter::Admitted);
            self.queues[class].push_back((now, FRAME));
            self.bytes[class] += FRAME;
            return;
        }
        let deep = usize::from(self.bytes[class] >= u64::from(values.deep_at));
        if self.bytes[TRIM] >= u64::from(values.trim_drop_at) {
            self.count(class, Counter::TrimDropped);
            self.dropped += 1;
            self.lost_energy += energy;
            return;
        }
        self.count(class, Counter::Trimmed);
        self.trimmed += 1;
        self.lost_energy += energy * COSTS[deep];
        let size = u64::from([values.shallow_size, values.deep_size][deep]);
        self.queues[TRIM].push_back((now, size));
        self.bytes[TRIM] += size;
        self.trim_peak = self.trim_peak.max(self.bytes[TRIM]);
    }

    fn read(&mut self) -> Counters {
        let queue = |(queue, counters): (&u8, &BTreeMap<Counter, Count>)| {
            ((1, *queue), QueueCounters { counts: counters.clone(), waiting: None })
        };
        let mut queues: BTreeMap<_, _> = [5, 4, 3, 2].iter().zip(&self.counters).map(queue).collect();
        let waiting = Waiting { now: self.bytes[TRIM], peak: Some(std::mem::take(&mut self.trim_peak)) };
        queues.insert((1, 6), QueueCounters { waiting: Some(waiting), ..QueueCounters::default() });
        Counters { queues, ..Counters::default() }
    }
}

/// Share trimmed, share dropped, weighted loss (all in per cent), p99 of the time in the port in µs; policies tried and taken back.
struct Day {
    trimmed: f64,
    dropped: f64,
    loss: f64,
    p99_us: f64,
    applied: u64,
    taken_back: u64,
}

fn day(thresholds: &str) -> Day {
    let text = format!(
        "version: 1
{thresholds}
switches: {{ s1: {{ address: 127.0.0.1:1, device_id: 1 }} }}
hosts: {{ h1: {{ ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }} }}
links: [ {{ a: h1, b: \"s1:1\", speed: 10Gbps }} ]
"
    );
    let mut fabric = Fabric::from_yaml(&text, "f.yaml").unwrap_or_else(|error| panic!("{error}"));
    fabric.follow.every_ns = WINDOW_NS;
    let mut follow = Follow::new(&fabric, 0);
    let mut random = Random(0x5eed);
    let mut port = Port::default();
    let weights = [0, 1, 2, 3].map(|class| 0.06 * (1.0_f64 / 0.06).powf(f64::from(class) / 3.0));
    let mean = weights.iter().sum::<f64>() / 4.0;
    let mut now = 0;
    for window in 0..WINDOWS {
        let (load, burst, shares) = hour(window);
        let end = (window + 1) * WINDOW_NS;
        let gap = (burst * FRAME * 8_000_000_000 / RATE) as f64 / load;
        let mut read = now;
        while now < end {
            now += (-random.share().ln() * gap) as u64 + 1;
            let policy = Arc::clone(&follow.policies()["s1"][&1]);
            port.send(now, &policy);
            let mut place = random.share();
            let class = shares.iter().position(|share| {
                place -= share;
                place <= 0.0
            });
            let class = class.unwrap_or(3);
            for _ in 0..burst {
                let is_important = random.share() > 0.5;
                port.arrive(now, class, is_important, weights[class] / mean, &policy);
            }
            if now - read >= WINDOW_NS / READINGS {
                read = now;
                follow.handle_counters(now, "s1", &port.read());
                follow.handle_timeout(now, true);
            }
        }
    }
    port.delays.sort_unstable();
    let share = |count: u64| 100.0 * count as f64 / port.packets as f64;
    let told = &follow.told()[0];
    Day {
        trimmed: share(port.trimmed),
        dropped: share(port.dropped),
        loss: 100.0 * port.lost_energy / port.packets as f64,
        p99_us: port.delays[port.delays.len() * 99 / 100] as f64 / 1e3,
        applied: told.applied,
        taken_back: told.taken_back,
    }
}

#[test]
fn a_days_changing_load_is_in_the_documentation_as_it_is_replayed_here() {
    let documentation = include_str!("../../../docs/explanation/thresholds.md");
    let mut rows = Vec::new();
    for (name, thresholds) in [
        ("the file's", ""),
        ("following, band 25 %", "thresholds: { follow: apply, band: 25% }"),
        ("following, band 100 %", "thresholds: { follow: apply, band: 100% }"),
    ] {
        let Day { trimmed, dropped, loss, p99_us, applied, taken_back } = day(thresholds);
        rows.push(format!(
            "| {name} | {trimmed:.2} % | {dropped:.3} % | {loss:.3} % | {p99_us:.0} µs | {applied} | {taken_back} |"
        ));
    }
    let table = rows.join("\n");
    assert!(documentation.contains(&table), "docs/explanation/thresholds.md has other rows than\n{table}");
}
