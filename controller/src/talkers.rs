// SPDX-License-Identifier: Apache-2.0
//! Whose packets are trimmed: from samples that switches send (`p4/bmv2/cut_samples.p4`) to the talkers of each queue that trims, in memory
//! that does not depend on how many there are.

mod space_saving;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use self::space_saving::{Estimate, SpaceSaving};
use crate::model::Fabric;

/// Talkers are counted in windows of this length; what is told is of the last whole one and the one under way.
const WINDOW_NS: u64 = 10_000_000_000;
/// Talkers of a queue that are counted in a window: whoever has more than a 64th of its trims is among them.
const TALKERS: usize = 64;
/// Queues of a switch that are kept count of, the first ones to trim in the last windows.
const QUEUES: usize = 64;

/// Samples in a row that may be late: more than a switch sends in a second.
const MOST_LATE: u32 = 1_024;

/// Who sends to whom. The source port is not in it: senders spray over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flow {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub destination_port: u16,
}

/// A packet that was trimmed, and picked to be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CutSample {
    pub port: u16,
    pub queue: u8,
    /// Packets that the queue has cut so far, this one included; wraps round.
    pub number: u32,
    /// What was cut off.
    pub bytes: u16,
    pub flow: Flow,
}

/// One talker of a queue that trims.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Talker {
    /// Who sent.
    pub source: IpAddr,
    /// To whom.
    pub destination: IpAddr,
    /// UDP.
    pub destination_port: u16,
    /// Of it, cut in the time that is told of: at least so many.
    pub packets: u64,
    /// At most so many: others that there was no room to count apart may be in it.
    pub packets_at_most: u64,
    /// What was cut off of `packets`.
    pub bytes: u64,
    /// Samples that say so.
    pub samples: u64,
    /// Since the last of them.
    pub seconds_ago: f64,
}

/// A queue that trims, or did a moment ago.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueTalkers {
    /// By its name in the fabric.
    pub switch: String,
    /// Egress port.
    pub port: u16,
    /// Queue that the packets were classified to.
    pub queue: u8,
    /// The time that is told of.
    pub seconds: f64,
    /// Cut in that time, as far as samples tell.
    pub packets: u64,
    /// Samples of that time.
    pub samples: u64,
    /// Those with the most packets, most first.
    pub talkers: Vec<Talker>,
}

/// All of them: the page `/trimmed` of a `run`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Trimmed {
    pub queues: Vec<QueueTalkers>,
}

/// What samples told of a queue in a window.
#[derive(Debug, Clone)]
struct Window {
    began_ns: u64,
    packets: u64,
    samples: u64,
    flows: SpaceSaving<Flow>,
}

impl Window {
    fn new(began_ns: u64) -> Self {
        Self { began_ns, packets: 0, samples: 0, flows: SpaceSaving::new(TALKERS) }
    }
}

/// The last windows of a queue, the one under way last.
#[derive(Debug, Clone)]
struct Queue {
    /// The highest number so far.
    number: u32,
    /// Samples with lower ones since.
    late: u32,
    windows: VecDeque<Window>,
}

impl Queue {
    fn new(now_ns: u64, number: u32) -> Self {
        Self { number, late: 0, windows: VecDeque::from([Window::new(now_ns)]) }
    }

    /// Forgets windows that are over and not the last.
    fn pass(&mut self, now_ns: u64) {
        let began_ns = self.windows.back().map_or(0, |window| window.began_ns);
        let over = now_ns.saturating_sub(began_ns) / WINDOW_NS;
        if over > 0 {
            self.windows.push_back(Window::new(began_ns.saturating_add(over * WINDOW_NS)));
            // The one before is the last whole one only if it has just ended.
            while self.windows.len() > if over == 1 { 2 } else { 1 } {
                self.windows.pop_front();
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.windows.iter().all(|window| window.samples == 0)
    }

    /// How many trimmed packets a sample stands for: those since the one with the highest number.
    ///
    /// Lists come in any order (BMv2's do), so that a lower number is late: a later sample has stood for its packets already. Only a switch
    /// that goes on with lower numbers has begun to count anew, without having been given a program.
    fn weight(&mut self, number: u32) -> u64 {
        // Serial numbers (RFC 1982, section 3.2).
        let since = number.wrapping_sub(self.number);
        if since <= u32::MAX / 2 {
            (self.number, self.late) = (number, 0);
            return u64::from(since);
        }
        self.late += 1;
        if self.late > MOST_LATE {
            (self.number, self.late) = (number, 0);
            return 1;
        }
        0
    }

    fn add(&mut self, now_ns: u64, sample: &CutSample, weight: u64) {
        if let Some(window) = self.windows.back_mut() {
            window.packets += weight;
            window.samples += 1;
            window.flows.add(sample.flow, now_ns, weight, weight * u64::from(sample.bytes));
        }
    }
}

/// Talkers of one switch.
///
/// [`SwitchTalkers::begin`] when a connection begins, [`SwitchTalkers::add`] for each sample, with times of any clock that does not run
/// backwards.
#[derive(Debug, Clone, Default)]
pub(crate) struct SwitchTalkers {
    queues: BTreeMap<(u16, u8), Queue>,
    samples: u64,
}

impl SwitchTalkers {
    /// Samples may have been missed: how many packets were trimmed since the last is not known.
    pub(crate) fn begin(&mut self) {
        self.queues.clear();
    }

    /// Counts a sample. The first of a queue stands for itself: what came before it is not known.
    pub(crate) fn add(&mut self, now_ns: u64, sample: &CutSample) {
        self.samples += 1;
        let place = (sample.port, sample.queue);
        if !self.queues.contains_key(&place) {
            self.pass(now_ns);
            if self.queues.len() >= QUEUES {
                return;
            }
        }
        let before = || Queue::new(now_ns, sample.number.wrapping_sub(1));
        let queue = self.queues.entry(place).or_insert_with(before);
        queue.pass(now_ns);
        let weight = queue.weight(sample.number);
        queue.add(now_ns, sample, weight);
    }

    /// All that ever came.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// The talkers of every queue that has cut in the last windows, at most so many of each.
    pub(crate) fn told(&mut self, now_ns: u64, switch: &str, most: usize) -> Vec<QueueTalkers> {
        self.pass(now_ns);
        let queue = |((port, queue), told): (&(u16, u8), &Queue)| {
            let sum = |field: fn(&Window) -> u64| told.windows.iter().map(field).sum();
            let began_ns = told.windows.front().map_or(now_ns, |window| window.began_ns);
            QueueTalkers {
                switch: switch.to_owned(),
                port: *port,
                queue: *queue,
                seconds: seconds(now_ns.saturating_sub(began_ns)),
                packets: sum(|window| window.packets),
                samples: sum(|window| window.samples),
                talkers: talkers(now_ns, told, most),
            }
        };
        self.queues.iter().map(queue).collect()
    }

    fn pass(&mut self, now_ns: u64) {
        self.queues.values_mut().for_each(|queue| queue.pass(now_ns));
        self.queues.retain(|_, queue| !queue.is_quiet());
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn talkers(now_ns: u64, queue: &Queue, most: usize) -> Vec<Talker> {
    let mut flows: BTreeMap<Flow, Estimate> = BTreeMap::new();
    for (flow, estimate) in queue.windows.iter().flat_map(|window| window.flows.estimates()) {
        flows.entry(*flow).or_default().merge(estimate);
    }
    let mut flows: Vec<(Flow, Estimate)> = flows.into_iter().collect();
    flows.sort_by_key(|(flow, estimate)| (std::cmp::Reverse(estimate.packets), *flow));
    let talker = |(flow, estimate): (Flow, Estimate)| Talker {
        source: flow.source,
        destination: flow.destination,
        destination_port: flow.destination_port,
        packets: estimate.packets,
        packets_at_most: estimate.packets + estimate.inherited,
        bytes: estimate.bytes,
        samples: estimate.samples,
        seconds_ago: seconds(now_ns.saturating_sub(estimate.last_ns)),
    };
    flows.into_iter().take(most).map(talker).collect()
}

/// Hosts by their addresses.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostNames(BTreeMap<IpAddr, String>);

impl HostNames {
    pub(crate) fn of(fabric: &Fabric) -> Self {
        let addresses = fabric.hosts.iter().flat_map(|(name, host)| {
            let addresses = [Some(IpAddr::V4(host.ip)), host.ip6.map(IpAddr::V6)];
            addresses.into_iter().flatten().map(|address| (address, name.clone()))
        });
        Self(addresses.collect())
    }

    /// The host's name in the file, or the address of a stranger.
    pub(crate) fn name(&self, address: IpAddr) -> String {
        self.0.get(&address).cloned().unwrap_or_else(|| address.to_string())
    }
}

/// `h1 -> h2:9217 61 %, h3 -> h2:9217 39 %` of a queue's trimmed packets.
pub(crate) struct Shares<'t>(pub &'t QueueTalkers, pub &'t HostNames);

impl fmt::Display for Shares<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(queue, names) = self;
        for (number, talker) in queue.talkers.iter().enumerate() {
            let between = if number > 0 { ", " } else { "" };
            let (source, destination) = (names.name(talker.source), names.name(talker.destination));
            let share = share(talker.packets, queue.packets);
            write!(f, "{between}{source} -> {destination}:{} {share}", talker.destination_port)?;
        }
        Ok(())
    }
}

/// `61 %`.
pub(crate) fn share(part: u64, whole: u64) -> String {
    format!("{:.0} %", 100.0 * part as f64 / whole.max(1) as f64)
}

#[cfg(test)]
mod tests;
