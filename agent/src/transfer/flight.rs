// SPDX-License-Identifier: Apache-2.0
//! The state of a sender's packets: in flight, received or lost.
//!
//! A packet is declared lost when a packet sent later arrives untrimmed (RACK, RFC 8985). On the
//! same path, which keeps its order, this happens at once. Across paths the sender waits for a
//! reordering window. Trimmed packets show nothing: they travel in a queue that is served first,
//! and overtake.

use super::path::{Overtaken, PathEstimate};
use crate::paths::Paths;
use crate::wire::trim_map::{FULL, MapPart, TrimMap};
use crate::wire::{ECHO_PACKETS, Echo, Progress, Wanted};
use std::collections::VecDeque;
use std::ops::Range;

/// A packet of a message.
#[derive(Debug, Clone, Copy, Default)]
struct Packet {
    /// When it was sent last.
    sent_ns: u64,
    bytes: u16,
    path: u16,
    /// How often it was sent (saturating).
    attempts: u8,
    /// Planes that the receiver is known to hold.
    held: u8,
    /// Sent, and neither there nor lost.
    in_flight: bool,
    /// Lost, and not sent again because the receiver can do without.
    left_out: bool,
}

impl Packet {
    /// It has arrived, with nothing known of it before: on its path, if it went once.
    fn tell(&self, paths: &mut Paths) {
        if self.attempts == 1 && self.held == 0 {
            paths.on_arrived(self.path, self.sent_ns, false);
        }
    }
}

/// The news of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct News {
    /// Packets that have arrived.
    pub(super) arrived: u32,
    /// Of these, packets that lack planes.
    pub(super) trimmed: u32,
    /// Whether any packet gained planes.
    pub(super) improved: bool,
    /// The most by which an untrimmed packet was overtaken.
    pub(super) overtaken: Overtaken,
}

/// A packet to be sent again, from a plane on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repair {
    pub(super) index: u32,
    pub(super) from_plane: u8,
}

/// When packets are declared lost by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Late {
    /// When the receiver was asked what it has.
    pub(super) asked_ns: u64,
    /// Age.
    pub(super) delay_ns: u64,
}

/// Packets on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Load {
    pub(crate) packets: u64,
    /// Of their payloads.
    pub(crate) bytes: u64,
}

impl Load {
    fn add(&mut self, bytes: u16) {
        (self.packets, self.bytes) = (self.packets + 1, self.bytes + u64::from(bytes));
    }

    fn remove(&mut self, bytes: u16) {
        (self.packets, self.bytes) = (self.packets - 1, self.bytes - u64::from(bytes));
    }
}

/// Packets that left on one path, in order.
#[derive(Debug, Default)]
struct Lane {
    /// (when, which); entries of packets that were sent again, are there or are lost are skipped.
    sent: VecDeque<(u64, u32)>,
    /// Newest time of sending of a packet that arrived whole.
    delivered_ns: u64,
    /// The same before the latest report.
    told_ns: u64,
}

/// All packets of a message.
#[derive(Debug)]
pub(super) struct Flight {
    packets: Vec<Packet>,
    planes: u8,
    /// By path.
    lanes: Vec<Lane>,
    /// The newest over all lanes.
    delivered_ns: u64,
    load: Load,
    left_out: u32,
    /// Packets of which the receiver has nothing, as far as is known.
    missing: u32,
    /// The receiver says that it has what it wants of all packets below.
    low: u32,
    /// That is every plane of them.
    low_is_whole: bool,
    wanted: Wanted,
}

impl Flight {
    pub(super) fn new(packets: u32, planes: u8, low_is_whole: bool) -> Self {
        Self {
            packets: vec![Packet::default(); packets as usize],
            planes,
            lanes: Vec::new(),
            delivered_ns: 0,
            load: Load::default(),
            left_out: 0,
            missing: packets,
            low: 0,
            low_is_whole,
            wanted: Wanted::AllBut(0),
        }
    }

    /// What is on its way.
    pub(super) fn in_flight(&self) -> Load {
        self.load
    }

    /// Whether what is trimmed is sent again.
    pub(super) fn wants_every_plane(&self) -> bool {
        self.wanted == Wanted::EveryPlane
    }

    /// Takes what the receiver insists on.
    pub(super) fn set_wanted(&mut self, wanted: Wanted) {
        self.wanted = wanted;
    }

    /// Whether the receiver is known to have what it wants of a packet.
    pub(super) fn satisfied(&self, index: u32) -> bool {
        self.packets.get(index as usize).is_none_or(|packet| self.satisfies(packet.held))
    }

    fn satisfies(&self, held: u8) -> bool {
        held >= if self.wanted == Wanted::EveryPlane { self.planes } else { 1 }
    }

    /// Planes that the receiver is known to hold of a packet.
    pub(super) fn held(&self, index: u32) -> u8 {
        self.packets.get(index as usize).map_or(0, |packet| packet.held)
    }

    /// Whether it is known to hold all of them.
    pub(super) fn whole(&self, index: u32) -> bool {
        self.held(index) >= self.planes
    }

    /// The same of all packets.
    pub(super) fn map(&self) -> TrimMap {
        let state = |packet: &Packet| if packet.held >= self.planes { FULL } else { packet.held };
        TrimMap::from_planes(self.packets.iter().map(state).collect())
    }

    /// Takes note of a packet that leaves.
    pub(super) fn sent(&mut self, now_ns: u64, index: u32, path: u16, bytes: usize) {
        let Some(packet) = self.packets.get_mut(index as usize) else { return };
        if packet.in_flight {
            self.load.remove(packet.bytes);
        }
        (packet.sent_ns, packet.path, packet.bytes) = (now_ns, path, bytes as u16);
        packet.attempts = packet.attempts.saturating_add(1);
        packet.in_flight = true;
        if std::mem::take(&mut packet.left_out) {
            self.left_out -= 1;
        }
        self.load.add(bytes as u16);
        let path = usize::from(path);
        if path >= self.lanes.len() {
            self.lanes.resize_with(path + 1, Lane::default);
        }
        self.lanes[path].sent.push_back((now_ns, index));
    }

    /// Takes the state of some packets. `satisfied` is told of each that the receiver needs no more
    /// of.
    pub(super) fn learn(
        &mut self,
        now_ns: u64,
        part: &MapPart<'_>,
        estimate: &PathEstimate,
        paths: &mut Paths,
        mut satisfied: impl FnMut(u32),
    ) -> News {
        let mut news = News::default();
        let fastest_ns = estimate.data.minimum_ns();
        // What arrived together is in no order.
        let newest_ns = self.delivered_ns;
        self.lanes.iter_mut().for_each(|lane| lane.told_ns = lane.delivered_ns);
        for run in part.runs() {
            let end = (run.start + run.count).min(self.packets.len() as u32);
            for index in run.start..end {
                let packet = &mut self.packets[index as usize];
                // More than was sent is a lie, and harmless: every plane is there.
                let held = run.planes.min(self.planes);
                if held <= packet.held || packet.attempts == 0 {
                    continue;
                }
                let before = std::mem::replace(&mut packet.held, held);
                news.improved = true;
                let whole = held == self.planes;
                if before == 0 {
                    self.missing -= 1;
                    news.arrived += 1;
                    news.trimmed += u32::from(!whole);
                    if std::mem::take(&mut packet.left_out) {
                        self.left_out -= 1;
                    }
                }
                // Of a packet that was sent twice the first copy may have arrived: not if the round
                // trip would be too short for the second (RFC 8985 §6.2 step 2).
                let plausible =
                    fastest_ns.is_some_and(|least| now_ns.saturating_sub(packet.sent_ns) >= least);
                let certain = packet.attempts == 1 || plausible;
                if before == 0 {
                    paths.on_arrived(packet.path, if certain { packet.sent_ns } else { 0 }, !whole);
                }
                if whole
                    && certain
                    && let Some(lane) = self.lanes.get_mut(usize::from(packet.path))
                {
                    if packet.attempts == 1 {
                        let overtaken = Overtaken {
                            within_ns: lane.told_ns.saturating_sub(packet.sent_ns),
                            across_ns: newest_ns.saturating_sub(packet.sent_ns),
                        };
                        news.overtaken = news.overtaken.max(overtaken);
                    }
                    lane.delivered_ns = lane.delivered_ns.max(packet.sent_ns);
                    self.delivered_ns = self.delivered_ns.max(packet.sent_ns);
                }
                let (attempts, in_flight, bytes) = (packet.attempts, packet.in_flight, packet.bytes);
                let least = if self.wanted == Wanted::EveryPlane { self.planes } else { 1 };
                let enough = held >= least;
                // The rest of a trimmed packet will not come. Of a packet that was sent twice, the
                // first arrival may be either copy; more of it is the second.
                let told = !whole && (attempts == 1 || (before > 0 && plausible));
                if in_flight && (enough || told) {
                    self.packets[index as usize].in_flight = false;
                    self.load.remove(bytes);
                }
                if enough && before < least {
                    satisfied(index);
                }
            }
        }
        news
    }

    /// The receiver has what it wants of all packets below `low`. `satisfied` is told of each that
    /// is new.
    pub(super) fn satisfy_below(&mut self, low: u32, paths: &mut Paths, mut satisfied: impl FnMut(u32)) {
        let low = low.min(self.packets.len() as u32);
        let every_plane = self.wanted == Wanted::EveryPlane || self.low_is_whole;
        let enough = if every_plane { self.planes } else { 1 };
        while self.low < low {
            let packet = &mut self.packets[self.low as usize];
            if packet.attempts == 0 {
                // It says more than was sent.
                return;
            }
            if packet.held < enough {
                self.missing -= u32::from(packet.held == 0);
                packet.tell(paths);
                packet.held = enough;
                satisfied(self.low);
            }
            if std::mem::take(&mut packet.in_flight) {
                self.load.remove(packet.bytes);
            }
            if std::mem::take(&mut packet.left_out) {
                self.left_out -= 1;
            }
            self.low += 1;
        }
    }

    /// The receiver has something of every packet, and says no more.
    pub(super) fn all_arrived(&self, paths: &mut Paths) {
        self.packets.iter().filter(|packet| packet.in_flight).for_each(|packet| packet.tell(paths));
    }

    /// When a packet was sent last; 0 where it was not.
    pub(super) fn sent_ns(&self, index: u32) -> u64 {
        self.packets.get(index as usize).map_or(0, |packet| packet.sent_ns)
    }

    /// The way that a packet went last.
    pub(super) fn path(&self, index: u32) -> Option<u16> {
        self.packets.get(index as usize).map(|packet| packet.path)
    }

    /// The round trip of an echo. `None` if the packet arrived trimmed, or may have been another
    /// copy (Karn).
    pub(super) fn round_trip_ns(&self, now_ns: u64, echo: Echo) -> Option<u64> {
        // Of those that it may mean the one that was sent last.
        let meant = self.packets.iter().skip(echo.packet as usize).step_by(ECHO_PACKETS as usize);
        let packet = meant.max_by_key(|packet| packet.sent_ns)?;
        if echo.trimmed || packet.attempts != 1 {
            return None;
        }
        now_ns.checked_sub(packet.sent_ns)?.checked_sub(u64::from(echo.hold_ns))
    }

    /// Whether the receiver lacks exactly what is not known to have arrived.
    pub(super) fn knows_all(&self, progress: &Progress<'_>) -> bool {
        self.missing == progress.missing
    }

    /// Packets that a report covers. Its map need not reach the newest arrival: an ACK tells what
    /// is new.
    pub(super) fn told(&self, progress: &Progress<'_>) -> Range<u32> {
        if self.knows_all(progress) {
            return 0..self.packets.len() as u32;
        }
        let Some(part) = &progress.map else { return 0..progress.low };
        let from = if part.offset() <= progress.low { 0 } else { part.offset() };
        from..part.end()
    }

    /// Packets among `told`, which a report covers, that are lost: overtaken by later ones, or sent
    /// before `asked_ns`, when the receiver was asked, and too old. (What was sent after the
    /// question may be in flight for longer than any round trip so far.) Trimmed packets are among
    /// them if the receiver wants every plane.
    pub(super) fn lost(
        &mut self,
        now_ns: u64,
        told: &Range<u32>,
        estimate: &PathEstimate,
        late: Option<Late>,
        paths: &mut Paths,
    ) -> Vec<Repair> {
        let mut lost = Vec::new();
        let across_ns = estimate.reorder_ns();
        let within_ns = estimate.reorder_within_path_ns();
        for lane in &mut self.lanes {
            while let Some(&(sent_ns, index)) = lane.sent.front() {
                let Some(packet) = self.packets.get_mut(index as usize) else { break };
                let current = packet.sent_ns == sent_ns;
                if current && packet.in_flight {
                    if !told.contains(&index) {
                        break;
                    }
                    let overtaken = across_ns
                        .is_some_and(|window| sent_ns.saturating_add(window) < self.delivered_ns)
                        || within_ns.is_some_and(|window| sent_ns.saturating_add(window) < lane.delivered_ns);
                    let late = late.is_some_and(|late| {
                        sent_ns <= late.asked_ns && now_ns.saturating_sub(sent_ns) >= late.delay_ns
                    });
                    if !overtaken && !late {
                        break;
                    }
                    packet.in_flight = false;
                    self.load.remove(packet.bytes);
                    paths.on_lost(now_ns, packet.path, sent_ns);
                    lost.push(Repair { index, from_plane: packet.held });
                } else if current
                    && packet.held > 0
                    && packet.held < self.planes
                    && self.wanted == Wanted::EveryPlane
                {
                    // Arrived trimmed, and not sent again yet.
                    lost.push(Repair { index, from_plane: packet.held });
                }
                lane.sent.pop_front();
            }
        }
        lost.sort_unstable_by_key(|repair| repair.index);
        lost
    }

    /// How often a packet was sent, if the last time was after `since_ns`.
    pub(super) fn attempts_since(&self, index: u32, since_ns: u64) -> Option<u8> {
        let packet = self.packets.get(index as usize)?;
        (packet.sent_ns > since_ns).then_some(packet.attempts)
    }

    /// Keeps a lost packet from being sent again, where the receiver can do without so many.
    /// `false`: it has to be.
    pub(super) fn leave_out(&mut self, index: u32) -> bool {
        let Wanted::AllBut(most) = self.wanted else { return false };
        let Some(packet) = self.packets.get_mut(index as usize) else { return true };
        if self.left_out >= most {
            return false;
        }
        if !std::mem::replace(&mut packet.left_out, true) {
            self.left_out += 1;
        }
        true
    }

    /// Packets that were left out and are missing after all, as repairs.
    pub(super) fn take_left_out(&mut self) -> Vec<Repair> {
        if self.left_out == 0 {
            return Vec::new();
        }
        self.left_out = 0;
        let packets = self.packets.iter_mut().enumerate();
        packets
            .filter_map(|(index, packet)| {
                let again = std::mem::take(&mut packet.left_out) && packet.held == 0;
                again.then_some(Repair { index: index as u32, from_plane: 0 })
            })
            .collect()
    }

    /// Newest time of sending among packets that are on their way.
    pub(super) fn newest_in_flight_ns(&self) -> Option<u64> {
        let newest = |lane: &Lane| {
            lane.sent.iter().rev().find_map(|&(sent_ns, index)| {
                let packet = self.packets.get(index as usize)?;
                (packet.in_flight && packet.sent_ns == sent_ns).then_some(sent_ns)
            })
        };
        self.lanes.iter().filter_map(newest).max()
    }
}

#[cfg(test)]
mod tests;
