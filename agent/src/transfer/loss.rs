// SPDX-License-Identifier: Apache-2.0
//! Which packets of a message are lost, and when a sender asks what has arrived.
//!
//! ```text
//!  a packet    IN FLIGHT ── it arrives ──► THERE, or trimmed: the rest will not come
//!               ▲     │
//!               │     │ One that left later has arrived whole: RACK (RFC 8985), by path at once,
//!   sent again, │     │ across paths after a window. Or the receiver, asked later, has not got
//!   another way │     ▼ it, and it is old.
//!               └── LOST ── the receiver can do without so many ──► LEFT OUT
//!
//!  a question         all is sent, or no news for some round trips
//!               HEARD ────────────────────────────────────────────► ASKED ◄─┐ no answer: again,
//!                 ▲                   any report                      │  └──┘ after waits that
//!                 └───────────────────────────────────────────────────┘       double
//!
//!  data               lost three times, while answers come
//!               FREE ───────────────────────────────────────► WAITING ── a wait is over ─► READY
//!                 ▲           more of any packet arrives        │  ▲                        │
//!                 └─────────────────────────────────────────────┘  └── one packet leaves ───┘
//! ```
//!
//! Trimmed packets show no loss: they travel in a queue that is served first, and overtake.
//!
//! **Questions** (PROBE) are the tail loss probe (RFC 8985 §7, RFC 9002 §6.2). A dropping switch
//! may drop all packets of one rank and none of another, so the question comes early, and less
//! often with each one in vain.
//!
//! **Waiting.** A receiver may answer every question and get no data: the path drops long packets,
//! a source port is not believed, a filter. Lost packets would be sent again as fast as answers
//! come, for ever. So one packet at a time tries the path, after waits that double (RFC 6298 §5.5;
//! TCP falls back to one segment likewise). A packet that is trimmed has come through, and its trim
//! has told the rate algorithm how fast is too fast. It is not waited for; but what is trimmed for
//! ever is given up as well.

use super::path::{Overtaken, PathEstimate};
use crate::config::TimeoutConfig;
use crate::paths::Paths;
use crate::rtt::backoff;
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

/// A packet that was lost, or arrived trimmed where every plane is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) repair: Repair,
    /// When it was sent last, and how often it was.
    pub(super) sent_ns: u64,
    pub(super) attempts: u8,
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
                    if std::mem::take(&mut packet.left_out) {
                        self.left_out -= 1;
                    }
                }
                // Of a packet that was sent twice the first copy may have arrived: not if the round
                // trip would be too short for the second (RFC 8985 §6.2 step 2).
                let Packet { sent_ns, bytes, path, attempts, in_flight, .. } = *packet;
                let plausible = fastest_ns.is_some_and(|least| now_ns.saturating_sub(sent_ns) >= least);
                let certain = attempts == 1 || plausible;
                if before == 0 {
                    paths.on_arrived(path, if certain { sent_ns } else { 0 }, !whole);
                }
                if whole
                    && certain
                    && let Some(lane) = self.lanes.get_mut(usize::from(path))
                {
                    if attempts == 1 {
                        let within_ns = lane.told_ns.saturating_sub(sent_ns);
                        let across_ns = newest_ns.saturating_sub(sent_ns);
                        news.overtaken = news.overtaken.max(Overtaken { within_ns, across_ns });
                    }
                    lane.delivered_ns = lane.delivered_ns.max(sent_ns);
                    self.delivered_ns = self.delivered_ns.max(sent_ns);
                }
                let enough = self.satisfies(held);
                // The rest of a trimmed packet will not come. Of a packet that was sent twice, the
                // first arrival may be either copy; more of it is the second.
                let told = !whole && (attempts == 1 || (before > 0 && plausible));
                if in_flight && (enough || told) {
                    self.packets[index as usize].in_flight = false;
                    self.load.remove(bytes);
                }
                if enough && !self.satisfies(before) {
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
    ) -> Vec<Lost> {
        let mut lost = Vec::new();
        let across_ns = estimate.reorder_ns();
        let within_ns = estimate.reorder_within_path_ns();
        for lane in &mut self.lanes {
            while let Some(&(sent_ns, index)) = lane.sent.front() {
                let Some(packet) = self.packets.get_mut(index as usize) else { break };
                let current = packet.sent_ns == sent_ns;
                let flying = current && packet.in_flight;
                if flying {
                    let before = |newest_ns| move |window| sent_ns.saturating_add(window) < newest_ns;
                    let overtaken = across_ns.is_some_and(before(self.delivered_ns))
                        || within_ns.is_some_and(before(lane.delivered_ns));
                    let late = late.is_some_and(|late| {
                        sent_ns <= late.asked_ns && now_ns.saturating_sub(sent_ns) >= late.delay_ns
                    });
                    if !told.contains(&index) || !(overtaken || late) {
                        break;
                    }
                    packet.in_flight = false;
                    self.load.remove(packet.bytes);
                    paths.on_lost(now_ns, packet.path, sent_ns);
                }
                // Or it arrived trimmed, and was not sent again yet.
                let trimmed = (1..self.planes).contains(&packet.held) && self.wanted == Wanted::EveryPlane;
                if flying || (current && trimmed) {
                    let repair = Repair { index, from_plane: packet.held };
                    lost.push(Lost { repair, sent_ns, attempts: packet.attempts });
                }
                lane.sent.pop_front();
            }
        }
        lost.sort_unstable_by_key(|lost| lost.repair.index);
        lost
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

/// A packet may be lost so often, by chance or to bursts of others (RFC 8899 §5.1.2: MAX_PROBES).
const LOST: u8 = 3;

/// Questions that are remembered. On a long path the first answer comes after many of them, asked
/// every 100 ms.
const REMEMBERED: usize = 256;

/// Without news a question is asked every so many round trips: behind a burst that took all
/// packets, the next question is the way back.
const RARELY: u64 = 8;

/// Data is in flight, and no ACKs come.
#[derive(Debug, Default)]
pub struct Silence {
    /// When something was heard last, or the first packet of what is on its way left.
    since_ns: u64,
    /// Questions since.
    asked: u32,
}

impl Silence {
    /// A packet leaves, and nothing else is on its way.
    pub fn begin(&mut self, now_ns: u64) {
        self.since_ns = self.since_ns.max(now_ns);
    }

    /// Packets have arrived.
    pub fn end(&mut self, now_ns: u64) {
        (self.since_ns, self.asked) = (now_ns, 0);
    }

    /// A question is due.
    pub fn asked(&mut self) {
        self.asked = self.asked.saturating_add(1);
    }

    /// When it began.
    pub fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// How long to wait for news before asking, from now on.
    pub fn ask_after_ns(&self, estimate: &PathEstimate, timeouts: &TimeoutConfig) -> u64 {
        let most_ns = estimate.answer_timeout_ns(0, timeouts);
        estimate.silence_ns(timeouts).map_or(most_ns, |silence_ns| backoff(silence_ns, self.asked, most_ns))
    }
}

/// Whether data gets through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Trial {
    /// As far as is known.
    #[default]
    Free,
    /// The next packet may be tried; so many were before.
    Ready(u32),
    /// One has been.
    Waiting(u32),
    /// Packets arrive, and none of those that are lost arrives whole.
    Trimmed,
}

/// The time, and what follows from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now<'a> {
    pub(super) ns: u64,
    pub(super) estimate: &'a PathEstimate,
    pub(super) timeouts: &'a TimeoutConfig,
}

impl Now<'_> {
    /// How long to wait for an answer after so many questions in vain.
    fn answer_ns(&self, unanswered: u32) -> u64 {
        self.estimate.answer_timeout_ns(unanswered, self.timeouts)
    }
}

/// The questions about a message, and whether its data may be sent.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// When to ask.
    pub(super) timer_ns: Option<u64>,
    sequence: u32,
    /// (number, when) of the newest question that has an answer, which comes in as many packets as
    /// its map has parts, and of all questions after it.
    asked: VecDeque<(u32, u64)>,
    answered: u32,
    /// Questions about everything, since there was news of any packet, and when the newest of them
    /// was asked.
    repeated: (u32, u64),
    /// Questions since the last sign of life for which time was up.
    pub(super) unanswered: u32,
    /// Since when there has been none, though asked.
    unheard_ns: Option<u64>,
    /// Since when reports have spoken of packets that no map has told of: those that had them are
    /// lost, or on another way.
    unclear_ns: Option<u64>,
    silence: Silence,
    trial: Trial,
}

impl Asking {
    /// Data leaves; `idle`: nothing else is on its way.
    pub(super) fn sent(&mut self, now_ns: u64, idle: bool) {
        if idle {
            self.silence.begin(now_ns);
        }
        if let Trial::Ready(times) = self.trial {
            self.trial = Trial::Waiting(times);
        }
    }

    /// Whether data may be sent.
    pub(super) fn may_send(&self) -> bool {
        !matches!(self.trial, Trial::Waiting(_))
    }

    /// Data has left: sets the timer. `true`: a question is due at once, because it was the last.
    pub(super) fn after_data(&mut self, now: Now<'_>, all_sent: bool) -> bool {
        if self.wait(now) {
            return false;
        }
        if all_sent {
            let earliest_ns = self.earliest_ns(now);
            if now.ns < earliest_ns {
                self.no_later_than(earliest_ns);
            }
            return now.ns >= earliest_ns;
        }
        let silence_ns = self.silence.ask_after_ns(now.estimate, now.timeouts);
        self.timer_ns.get_or_insert(now.ns.saturating_add(silence_ns));
        false
    }

    fn no_later_than(&mut self, at_ns: u64) {
        self.timer_ns = Some(self.timer_ns.map_or(at_ns, |timer_ns| timer_ns.min(at_ns)));
    }

    /// Nothing gets through: the next packet is tried when the timer expires. `false`: something
    /// does.
    fn wait(&mut self, now: Now<'_>) -> bool {
        let Trial::Waiting(times) = self.trial else { return false };
        self.no_later_than(now.ns.saturating_add(backoff(now.answer_ns(0), times, now.timeouts.max_ns)));
        true
    }

    /// When to ask about everything again, at the earliest: after a round trip, and less often the
    /// longer there is no news.
    fn earliest_ns(&self, Now { estimate, timeouts, .. }: Now<'_>) -> u64 {
        let (times, asked_ns) = self.repeated;
        let Some(doublings) = times.checked_sub(1) else { return 0 };
        // The shortest: a peer that stood still for seconds has made all others long.
        let known = estimate.control.minimum_ns().or_else(|| estimate.data.minimum_ns());
        let round_trip_ns = known.unwrap_or(timeouts.initial_ns);
        let most_ns = round_trip_ns.saturating_mul(RARELY).max(timeouts.min_ns);
        asked_ns.saturating_add(backoff(round_trip_ns, doublings, most_ns))
    }

    /// Asks: gives the question's number, from 1. `patience`: so many questions told that the
    /// receiver's application is not there yet.
    pub(super) fn ask(&mut self, now: Now<'_>, all_sent: bool, patience: u32) -> u32 {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.asked.push_back((self.sequence, now.ns));
        if self.asked.len() > REMEMBERED {
            self.asked.pop_front();
        }
        self.unheard_ns.get_or_insert(now.ns);
        self.timer_ns = Some(now.ns.saturating_add(now.answer_ns(self.unanswered.max(patience))));
        if all_sent {
            self.repeated = (self.repeated.0.saturating_add(1), now.ns);
        }
        self.sequence
    }

    /// Something came from the peer.
    pub(super) fn heard(&mut self) {
        (self.unanswered, self.unheard_ns) = (0, None);
    }

    /// An answer to question `sequence`, or another part of it, came; a round trip counts once.
    /// Gives when the question was asked. (Numbers tell answers apart: Karn's algorithm is not
    /// needed, and paths with many open questions can be measured.)
    pub(super) fn on_answer(
        &mut self,
        now_ns: u64,
        sequence: u32,
        estimate: &mut PathEstimate,
    ) -> Option<u64> {
        self.heard();
        let at = self.asked.iter().position(|&(number, _)| number == sequence)?;
        // What was asked before it will hardly be answered, and would say nothing new.
        self.asked.drain(..at);
        let (_, asked_ns) = *self.asked.front()?;
        // Before it was to leave: whoever was to hold it until then did not, and nobody knows when
        // it left.
        if std::mem::replace(&mut self.answered, sequence) != sequence
            && let Some(rtt_ns) = now_ns.checked_sub(asked_ns)
        {
            estimate.control.sample(rtt_ns);
        }
        Some(asked_ns)
    }

    fn is_open(&self) -> bool {
        self.sequence > 0 && self.answered != self.sequence
    }

    /// Whether the newest question has this number.
    pub(super) fn is_newest(&self, sequence: u32) -> bool {
        sequence == self.sequence
    }

    /// Packets have arrived; `trimmed`: some of them have lost planes.
    pub(super) fn arrived(&mut self, now_ns: u64, trimmed: bool) {
        self.silence.end(now_ns);
        if trimmed && self.trial != Trial::Free {
            self.trial = Trial::Trimmed;
        }
    }

    /// More of some packet has arrived.
    pub(super) fn improved(&mut self, now_ns: u64) {
        self.silence.end(now_ns);
        self.trial = Trial::Free;
        self.repeated.0 = self.repeated.0.min(1);
    }

    /// Whether maps have told of all packets that a report speaks of.
    pub(super) fn clear(&mut self, now_ns: u64, all: bool) {
        self.unclear_ns = if all { None } else { Some(self.unclear_ns.unwrap_or(now_ns)) };
    }

    /// A packet is lost that was sent so often, and nothing was of use since then; `trimmed`:
    /// something came trimmed.
    pub(super) fn lost_in_vain(&mut self, attempts: u8, trimmed: bool) {
        if matches!(self.trial, Trial::Free | Trial::Trimmed) && attempts >= LOST {
            self.trial = if trimmed { Trial::Trimmed } else { Trial::Waiting(0) };
        }
    }

    /// Whether nothing of use gets through, and if so, whether what arrives is trimmed.
    pub(super) fn in_vain(&self) -> Option<bool> {
        (self.trial != Trial::Free).then_some(self.trial == Trial::Trimmed)
    }

    /// Since when nothing has been heard of what is on its way.
    pub(super) fn silent_since_ns(&self) -> u64 {
        self.silence.since_ns
    }

    /// Something was heard: asks again later. `all_sent` is `Some` where everything is; `true` if
    /// there is to be another question.
    pub(super) fn rest(&mut self, now: Now<'_>, all_sent: Option<bool>, flight: &Flight) {
        if self.wait(now) {
            return;
        }
        let is_open = self.is_open();
        let later_ns = now.ns.saturating_add(now.answer_ns(0));
        self.timer_ns = match all_sent {
            None if !is_open && flight.load.bytes == 0 => None,
            None => {
                let since_ns = self.unclear_ns.unwrap_or(now.ns);
                Some(since_ns.saturating_add(self.silence.ask_after_ns(now.estimate, now.timeouts)))
            }
            Some(_) if is_open => Some(later_ns),
            // What is on its way says when to ask again, and not what comes meanwhile.
            Some(asks) => match self.again_ns(now, flight) {
                Some(again_ns) => Some(later_ns.min(again_ns)),
                None if asks => Some(self.earliest_ns(now).max(now.ns)),
                None => Some(later_ns),
            },
        };
    }

    /// When to ask about what is on its way, if anything is.
    fn again_ns(&self, now: Now<'_>, flight: &Flight) -> Option<u64> {
        let again_ns = now.estimate.ask_again_ns(now.ns, flight.newest_in_flight_ns()?, now.timeouts);
        Some(again_ns.max(self.earliest_ns(now)))
    }

    /// The newest question about everything was answered: sets the timer, if anything is on its
    /// way yet.
    pub(super) fn waits_for_flight(&mut self, now: Now<'_>, flight: &Flight) -> bool {
        let again_ns = self.again_ns(now, flight);
        self.timer_ns = again_ns.or(self.timer_ns);
        again_ns.is_some()
    }

    /// Time is up. Gives how long nothing has been heard though asked.
    pub(super) fn on_timeout(&mut self, now_ns: u64) -> u64 {
        self.timer_ns = None;
        if let Trial::Waiting(times) = self.trial {
            self.trial = Trial::Ready(times.saturating_add(1));
        }
        self.silence.asked();
        self.unanswered = self.unanswered.saturating_add(u32::from(self.is_open()));
        self.unheard_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;
