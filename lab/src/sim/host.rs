// SPDX-License-Identifier: Apache-2.0
//! A host: its flows behind one card, which sends one frame at a time.

use super::event::{Event, Side};
use super::line::Line;
use super::network::{Network, Planned, Totals};
use super::packet::{HEAD, Kind, Packet};
use super::pfc::Hold;
use super::transport::{Receiver, Sender};
use super::workload::Begin;
use std::collections::{BTreeMap, VecDeque};
use trimwire_agent::wire::SENDERS_MAX;
use trimwire_fabric::calendar::Calendar;

/// One end of a flow, and the timer that stands in the calendar for it; later ones are stale.
#[derive(Debug)]
struct Slot<E: ?Sized> {
    flow: u32,
    end: Box<E>,
    armed_ns: Option<u64>,
    /// Among those that wait for the card.
    queued: bool,
}

/// A flow's end at this host.
#[derive(Debug)]
enum End<E: ?Sized> {
    /// It has not begun.
    Before,
    Open(Slot<E>),
    /// It is over, and nothing is kept of it.
    Over,
}

/// A flow that has ended.
#[derive(Debug, Clone)]
pub(crate) struct Finish {
    pub(crate) flow: u32,
    pub(crate) at_ns: u64,
    pub(crate) share_kept: f64,
    /// Planes that arrived, by packet, where the run keeps them and not all did.
    pub(crate) planes: Box<[u8]>,
}

/// NDP's pull queue: one turn a flow (§3.2.1), one pull in the time of a whole frame.
#[derive(Debug)]
struct Puller {
    turns: VecDeque<u32>,
    /// By place of the receiver, as far as one has pulled: the pull, and how many of it wait.
    waiting: Vec<Option<(Packet, u32)>>,
    spacing: Line,
    armed: bool,
}

/// What a host may touch outside of itself.
pub(crate) struct Around<'a> {
    pub(crate) now_ns: u64,
    pub(crate) network: &'a Network,
    pub(crate) calendar: &'a mut Calendar<Event>,
    pub(crate) totals: &'a mut Totals,
    pub(crate) finished: &'a mut Vec<Finish>,
    /// By flow: how many of those that it waits for are not over, where it begins in this domain.
    pub(crate) waiting: &'a mut BTreeMap<u32, u32>,
    /// When flows began.
    pub(crate) began: &'a mut Vec<(u32, u64)>,
}

/// A host.
#[derive(Debug)]
pub(crate) struct Host {
    number: u32,
    pub(crate) line: Line,
    /// A wake-up for the card stands in the calendar.
    armed: bool,
    control: VecDeque<Packet>,
    ready: VecDeque<u32>,
    senders: Vec<End<dyn Sender>>,
    receivers: Vec<End<dyn Receiver>>,
    puller: Puller,
    /// Priorities that the switch wants held.
    hold: Hold,
    /// Flows of which something has arrived, and not yet what is wanted.
    arriving: u32,
    /// When the last of the computations that may be made is over.
    computes_until_ns: u64,
}

impl Host {
    pub(crate) fn new(number: u32, line: Line, senders: u32, receivers: u32) -> Self {
        let spacing = Line::new(line.rate_bps, 0);
        Self {
            number,
            line,
            armed: false,
            control: VecDeque::new(),
            ready: VecDeque::new(),
            senders: (0..senders).map(|_| End::Before).collect(),
            receivers: (0..receivers).map(|_| End::Before).collect(),
            puller: Puller { turns: VecDeque::new(), waiting: Vec::new(), spacing, armed: false },
            hold: Hold::default(),
            arriving: 0,
            computes_until_ns: 0,
        }
    }

    /// When a flow begins, or a computation ends, that waits for nothing any longer.
    pub(crate) fn due_ns(&mut self, now_ns: u64, planned: &Planned) -> u64 {
        match planned.begin {
            Begin::At(at_ns) => at_ns.max(now_ns),
            Begin::Later(pause_ns) if pause_ns == 0 || !planned.computes() => now_ns + pause_ns,
            Begin::Later(takes_ns) => {
                self.computes_until_ns = self.computes_until_ns.max(now_ns) + takes_ns;
                self.computes_until_ns
            }
        }
    }

    /// A flow begins here, or a computation ends.
    pub(crate) fn begin(&mut self, around: &mut Around<'_>, flow: u32) {
        let planned = &around.network.flows[flow as usize];
        if planned.computes() {
            let takes_ns = if let Begin::Later(takes_ns) = planned.begin { takes_ns } else { 0 };
            around.began.push((flow, around.now_ns - takes_ns));
            return self.over(around, flow, 1.0, Box::default());
        }
        around.began.push((flow, around.now_ns));
        let end = around.network.transport.sender(planned.flow, around.now_ns);
        self.senders[planned.sender_slot as usize] =
            End::Open(Slot { flow, end, armed_ns: None, queued: false });
        self.refresh_sender(around, planned.sender_slot);
    }

    /// A frame has come.
    pub(crate) fn handle_packet(&mut self, around: &mut Around<'_>, packet: &Packet) {
        let planned = &around.network.flows[packet.flow as usize];
        if packet.source == planned.flow.source {
            self.receive(around, packet, planned.receiver_slot);
        } else if let End::Open(slot) = &mut self.senders[planned.sender_slot as usize] {
            slot.end.handle_packet(around.now_ns, packet);
            self.refresh_sender(around, planned.sender_slot);
        }
    }

    fn receive(&mut self, around: &mut Around<'_>, packet: &Packet, at: u32) {
        let flow = packet.flow;
        let end = &mut self.receivers[at as usize];
        if matches!(end, End::Before) {
            let receiver = around.network.transport.receiver(around.network.flows[flow as usize].flow);
            *end = End::Open(Slot { flow, end: receiver, armed_ns: None, queued: false });
            self.arriving = self.arriving.saturating_add(1);
        }
        match end {
            End::Open(slot) => {
                slot.end.handle_packet(around.now_ns, packet, &mut self.control);
                self.refresh_receiver(around, at);
            }
            _ => self.control.push_back(packet.answer(Kind::Final, packet.number)),
        }
        self.sort_pulls(around);
    }

    /// A flow's timer.
    pub(crate) fn handle_timer(&mut self, around: &mut Around<'_>, side: Side, at: u32) {
        let now_ns = around.now_ns;
        match side {
            Side::Sender => {
                let Some(End::Open(slot)) = self.senders.get_mut(at as usize) else { return };
                if slot.armed_ns != Some(now_ns) {
                    return;
                }
                slot.armed_ns = None;
                if slot.end.poll_timeout().is_some_and(|timeout| timeout <= now_ns) {
                    slot.end.handle_timeout(now_ns);
                }
                self.refresh_sender(around, at);
            }
            Side::Receiver => {
                let Some(End::Open(slot)) = self.receivers.get_mut(at as usize) else { return };
                if slot.armed_ns != Some(now_ns) {
                    return;
                }
                slot.armed_ns = None;
                if slot.end.poll_timeout().is_some_and(|timeout| timeout <= now_ns) {
                    slot.end.handle_timeout(now_ns, &mut self.control);
                }
                self.refresh_receiver(around, at);
            }
        }
    }

    /// Takes what a sender wants after it was called.
    fn refresh_sender(&mut self, around: &mut Around<'_>, at: u32) {
        let End::Open(slot) = &mut self.senders[at as usize] else { return };
        if slot.end.is_done() {
            let sent = slot.end.sent();
            around.totals.sent += sent.packets;
            around.totals.repairs += sent.repairs;
            around.totals.timeouts += sent.timeouts;
            self.senders[at as usize] = End::Over;
            return;
        }
        let mut wake = slot.end.poll_timeout();
        let send = slot.end.next_send_ns();
        if send.is_some_and(|at_ns| at_ns <= around.now_ns) {
            if !std::mem::replace(&mut slot.queued, true) {
                self.ready.push_back(at);
            }
        } else if let Some(at_ns) = send {
            wake = Some(wake.map_or(at_ns, |wake| wake.min(at_ns)));
        }
        arm(
            around,
            &mut slot.armed_ns,
            wake,
            Event::Timer { host: self.number, side: Side::Sender, slot: at },
        );
    }

    fn refresh_receiver(&mut self, around: &mut Around<'_>, at: u32) {
        let End::Open(slot) = &mut self.receivers[at as usize] else { return };
        if slot.end.is_complete() {
            let (flow, share_kept) = (slot.flow, slot.end.share_kept());
            let planes = if around.network.keep_planes { slot.end.planes().into() } else { Box::default() };
            self.receivers[at as usize] = End::Over;
            self.arriving = self.arriving.saturating_sub(1);
            if let Some(pulls) = self.puller.waiting.get_mut(at as usize) {
                *pulls = None;
            }
            return self.over(around, flow, share_kept, planes);
        }
        let wake = slot.end.poll_timeout();
        arm(
            around,
            &mut slot.armed_ns,
            wake,
            Event::Timer { host: self.number, side: Side::Receiver, slot: at },
        );
    }

    /// A flow or a computation is over here: what waited for it has one thing less to wait for.
    fn over(&mut self, around: &mut Around<'_>, flow: u32, share_kept: f64, planes: Box<[u8]>) {
        around.finished.push(Finish { flow, at_ns: around.now_ns, share_kept, planes });
        for &next in &around.network.flows[flow as usize].next {
            let Some(left) = around.waiting.get_mut(&next) else { continue };
            *left -= 1;
            if *left == 0 {
                let at_ns = self.due_ns(around.now_ns, &around.network.flows[next as usize]);
                around.calendar.push(at_ns, Event::Begin { flow: next });
            }
        }
    }

    /// Pulls go to their queue.
    fn sort_pulls(&mut self, around: &mut Around<'_>) {
        while self.control.back().is_some_and(|packet| packet.kind == Kind::Pull) {
            let Some(pull) = self.control.pop_back() else { break };
            let at = around.network.flows[pull.flow as usize].receiver_slot as usize;
            if !matches!(self.receivers[at], End::Open(_)) {
                continue;
            }
            let Puller { turns, waiting, .. } = &mut self.puller;
            if waiting.len() <= at {
                waiting.resize(at + 1, None);
            }
            let (_, count) = waiting[at].get_or_insert_with(|| {
                turns.push_back(at as u32);
                (pull, 0)
            });
            *count += 1;
        }
        self.pull(around);
    }

    /// Sends the pull that is due, and asks to be called for the next one.
    pub(crate) fn pull(&mut self, around: &mut Around<'_>) {
        let puller = &mut self.puller;
        while puller.spacing.free_at_ns <= around.now_ns {
            let Some(at) = puller.turns.pop_front() else { return };
            let Some(pulls) = puller.waiting.get_mut(at as usize) else { continue };
            let Some((packet, count)) = pulls else { continue };
            let packet = packet.clone();
            *count -= 1;
            if *count == 0 {
                *pulls = None;
            } else {
                puller.turns.push_back(at);
            }
            let payload = around.network.flows[packet.flow as usize].flow.payload;
            puller.spacing.transmit(around.now_ns, payload + HEAD);
            self.control.push_back(packet);
        }
        if !puller.turns.is_empty() && !std::mem::replace(&mut puller.armed, true) {
            around.calendar.push(puller.spacing.free_at_ns, Event::Pull { host: self.number });
        }
    }

    /// The pull queue's wake-up.
    pub(crate) fn handle_pull(&mut self, around: &mut Around<'_>) {
        self.puller.armed = false;
        self.pull(around);
    }

    /// A pause frame has come. Control packets are never held.
    pub(crate) fn hold(&mut self, now_ns: u64, frame: &Packet) {
        self.hold.set(now_ns, frame.class, frame.echo);
    }

    /// The card's link has changed.
    pub(crate) fn forget_holds(&mut self, now_ns: u64) {
        self.hold.clear(now_ns);
    }

    /// The card's wake-up.
    pub(crate) fn handle_free(&mut self) {
        self.armed = false;
    }

    /// The frame that goes on the line now, if the line is free and there is one.
    pub(crate) fn poll_transmit(&mut self, around: &mut Around<'_>) -> Option<(u64, Packet)> {
        if self.line.free_at_ns > around.now_ns {
            let waits = !self.control.is_empty() || !self.ready.is_empty();
            if waits && !std::mem::replace(&mut self.armed, true) {
                around.calendar.push(self.line.free_at_ns, Event::CardFree { host: self.number });
            }
            return None;
        }
        let packet = match self.control.pop_front() {
            Some(mut packet) => {
                packet.senders = self.arriving.min(u32::from(SENDERS_MAX)) as u16;
                packet
            }
            None => self.next_data(around)?,
        };
        Some((self.line.transmit(around.now_ns, packet.length), packet))
    }

    /// The next flow's packet: flows take turns, or the one that has the least left goes first.
    fn next_data(&mut self, around: &mut Around<'_>) -> Option<Packet> {
        while !self.ready.is_empty() {
            let first = match () {
                () if self.hold.holds_any() => self.ready.iter().position(|at| !self.is_held(*at))?,
                () if around.network.transport.shortest_first() => self.shortest(),
                () => 0,
            };
            let at = self.ready.remove(first)?;
            let End::Open(slot) = &mut self.senders[at as usize] else { continue };
            slot.queued = false;
            let packet = slot.end.poll_transmit(around.now_ns);
            if packet.is_some() {
                self.refresh_sender(around, at);
                return packet;
            }
        }
        None
    }

    fn is_held(&self, at: u32) -> bool {
        matches!(&self.senders[at as usize], End::Open(slot) if self.hold.holds(slot.end.class()))
    }

    fn shortest(&self) -> usize {
        let left = |at: &u32| match &self.senders[*at as usize] {
            End::Open(slot) => slot.end.left(),
            _ => 0,
        };
        (0..self.ready.len()).min_by_key(|&place| left(&self.ready[place])).unwrap_or(0)
    }

    /// Counts what flows that are not over have sent.
    pub(crate) fn count_open(&self, totals: &mut Totals) {
        totals.switches.paused_ns += self.hold.total_ns;
        for end in &self.senders {
            if let End::Open(slot) = end {
                let sent = slot.end.sent();
                totals.sent += sent.packets;
                totals.repairs += sent.repairs;
                totals.timeouts += sent.timeouts;
            }
        }
    }
}

fn arm(around: &mut Around<'_>, armed_ns: &mut Option<u64>, wake: Option<u64>, event: Event) {
    // A timer in the past means "at once"; it must not turn the clock back.
    let Some(at_ns) = wake.map(|at_ns| at_ns.max(around.now_ns)) else { return };
    if armed_ns.is_none_or(|armed| at_ns < armed) {
        *armed_ns = Some(at_ns);
        around.calendar.push(at_ns, event);
    }
}
