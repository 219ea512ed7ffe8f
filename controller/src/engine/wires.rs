// SPDX-License-Identifier: Apache-2.0
//! Whether cables are where the fabric file says, and whether frames cross them: the controller
//! sends probes over one link each, which come back to it from where they arrive with what both
//! ends have counted (`p4/bmv2/wires.p4`). A core without sockets or a clock.
//!
//! ```text
//!  controller ─packet-out─► leaf1:1 ═══ a cable ═══► spine1:1 ─packet-in─► controller
//!                           departed                 arrived
//! ```
//!
//! A link over which no frame has ever come, in either direction, is not judged: a switch may have
//! been started without its interfaces. A link that one of its switches says is down is out of
//! routes for that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use trimwire_p4runtime::bytes;
use trimwire_p4runtime::entity;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::{PacketIn, PacketMetadata};

use super::status::{Cause, Links};
use crate::model::Mac;
use crate::program::names;
use crate::topology::{Place, Topology, Trunk};

/// Between two probes over a link, and how many all links of a fabric have in a second: in large
/// ones each has fewer, until one is not answered.
pub(crate) const PERIOD: Duration = Duration::from_millis(250);
const PROBES_A_SECOND: u32 = 500;
/// Probes without an answer after which nothing crosses: while frames come back, and while none
/// does, for which busy machines are a reason, too.
const PATIENCE: u32 = 4;
const LONG_PATIENCE: u32 = 10;
/// Losses are looked at over so many probes.
const WINDOW: usize = 40;
/// Least frames that are lost, least times that some are, and least share, in thousandths, of a
/// link that loses frames. A burst that finds a buffer full is none.
const LEAST_LOST: u32 = 6;
const LEAST_TIMES: usize = 4;
const LEAST_SHARE: u64 = 5;
/// Two counts further apart are of a switch that began anew.
const MOST_FRAMES: u32 = 1 << 30;
/// IEEE 802's for local experiments; both counters come behind it.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const FRAME_BYTES: usize = 60;

/// What is wrong with a link, and in words; `None` for nothing.
pub(crate) type Verdict = Option<(Cause, String)>;

/// One direction of a link.
#[derive(Debug)]
struct Way {
    to: Place,
    macs: [Mac; 2],
    /// Periods until the next probe.
    rests: u32,
    unanswered: u32,
    has_answered: bool,
    /// Where the last probe arrived instead.
    elsewhere: Option<Place>,
    /// Frames that both ends had counted with the last probe.
    counted: Option<[u32; 2]>,
    /// Frames that were sent between two probes, and of these lost.
    losses: VecDeque<[u32; 2]>,
    /// The last verdict.
    told: Option<Cause>,
}

/// The core. [`Wires::of`] with every file; [`Wires::ready`] and [`Wires::link`] when a switch says
/// so; [`Wires::probes`] as often as it says; [`Wires::arrived`] with each frame that came. Verdicts
/// that changed are in [`Wires::take_verdicts`].
#[derive(Debug, Default)]
pub(crate) struct Wires {
    /// By the port that sends.
    ways: BTreeMap<Place, Way>,
    places: BTreeMap<Mac, Place>,
    /// Switches that take and give probes.
    ready: BTreeSet<String>,
    down: BTreeSet<Place>,
    verdicts: BTreeMap<Place, Verdict>,
    /// Each way is tried once, and as often as it takes.
    is_trial: bool,
}

impl Wires {
    /// Another file. Links that are in both keep what is known of them.
    pub(crate) fn of<'n>(&mut self, topology: &Topology, switches: impl Iterator<Item = &'n String>) {
        let mut before = std::mem::take(&mut self.ways);
        self.places.clear();
        // A switch has its probes all at once, which costs it and us one message's time, and not
        // while another has its own.
        let trunks = (0..).zip(switches).flat_map(|(turn, name)| {
            topology.trunks(name).into_iter().filter(|trunk| trunk.is_up).map(move |trunk| (turn, trunk))
        });
        let trunks: Vec<(u32, Trunk)> = trunks.collect();
        let rest = rest(trunks.len());
        for (turn, Trunk { near: from, far: to, macs, .. }) in trunks {
            self.places.insert(macs[0], from.clone());
            let known = before.remove(&from).filter(|way| way.to == to && way.macs == macs);
            let way = known.unwrap_or_else(|| Way {
                to,
                macs,
                rests: 1 + turn % rest,
                unanswered: 0,
                has_answered: false,
                elsewhere: None,
                counted: None,
                losses: VecDeque::new(),
                told: None,
            });
            self.ways.insert(from, way);
        }
        let known = |(from, _): &(Place, Way)| !self.ways.contains_key(from);
        self.verdicts.extend(before.into_iter().filter(known).map(|(from, _)| (from, None)));
    }

    /// Whether a switch takes and gives probes.
    pub(crate) fn ready(&mut self, switch: &str, is_ready: bool) {
        let is_new = if is_ready { self.ready.insert(switch.to_owned()) } else { self.ready.remove(switch) };
        if is_new {
            self.begin(|end| end.0 == switch);
        }
    }

    /// Whether a port's link is up.
    pub(crate) fn link(&mut self, switch: &str, port: u16, is_up: bool) {
        let place = (switch.to_owned(), port);
        let is_new = if is_up { self.down.remove(&place) } else { self.down.insert(place.clone()) };
        if is_new {
            self.begin(|end| *end == place);
        }
    }

    /// What ended or began there is no loss.
    fn begin(&mut self, is_meant: impl Fn(&Place) -> bool) {
        for (_, way) in self.ways.iter_mut().filter(|(from, way)| is_meant(from) || is_meant(&way.to)) {
            (way.unanswered, way.counted) = (0, None);
        }
    }

    /// From now on a way has no more probes than it takes to try it.
    pub(crate) fn begin_trial(&mut self) {
        self.is_trial = true;
    }

    /// Whether probes cross a link, if it is one.
    fn is_open(&self, from: &Place, to: &Place) -> bool {
        [from, to].into_iter().all(|end| self.ready.contains(&end.0) && !self.down.contains(end))
    }

    /// Frames that a switch is to send now, so many periods after the last call, and from which
    /// port; of those that it does not take [`Wires::unsent`] hears. And in how many periods to ask
    /// again.
    pub(crate) fn probes(&mut self, switch: &str, passed: u32) -> (Vec<(u16, Vec<u8>)>, u32) {
        let (own, rest) = ((switch.to_owned(), 0)..=(switch.to_owned(), u16::MAX), rest(self.ways.len()));
        let mut from = own.start().clone();
        let ways = self.ways.range(own).filter(|(from, way)| self.is_open(from, &way.to));
        let open: Vec<u16> = ways.map(|((_, port), _)| *port).collect();
        let (mut frames, mut next) = (Vec::new(), None);
        for port in open {
            from.1 = port;
            // What answers is judged as it does.
            if self.ways.get(&from).is_some_and(|way| way.unanswered > 0) {
                self.judge(&from);
            }
            let Some(way) = self.ways.get_mut(&from) else { continue };
            // Whether a link is dead is not waited for: it has its probes one after another.
            let is_silent = way.has_answered && (1..=LONG_PATIENCE).contains(&way.unanswered);
            let rests = way.rests.min(rest).saturating_sub(passed);
            way.rests = if rests == 0 { rest } else { rests };
            let is_due = if self.is_trial { !way.is_tried() } else { rests == 0 || is_silent };
            // What was asked a moment ago may have to be asked again.
            let again = if is_due { 1 } else { way.rests };
            next = Some(next.map_or(again, |next: u32| next.min(again)));
            if !is_due {
                continue;
            }
            way.unanswered = way.unanswered.saturating_add(1);
            let [own, far] = way.macs;
            let mut frame = Vec::with_capacity(FRAME_BYTES);
            frame.extend([far.0, own.0].as_flattened());
            frame.extend(ETHERTYPE);
            frame.resize(FRAME_BYTES, 0);
            frames.push((port, frame));
        }
        (frames, next.filter(|_| !self.is_trial).unwrap_or(1))
    }

    /// A probe that its switch did not take: that says nothing of the cable.
    pub(crate) fn unsent(&mut self, from: &Place) {
        if let Some(way) = self.ways.get_mut(from) {
            way.unanswered = way.unanswered.saturating_sub(1);
        }
    }

    /// A frame that came to the controller from a port. Ports to hosts have none that are probes.
    pub(crate) fn arrived(&mut self, at: &Place, frame: &[u8]) {
        let word = |at: usize| Some(u32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?));
        let source = frame.get(6..12).and_then(|mac| mac.try_into().ok()).map(Mac);
        let from = source.and_then(|source| self.places.get(&source)).cloned();
        let (Some(from), Some(departed), Some(arrived)) = (from, word(14), word(18)) else { return };
        let is_probe = frame.get(12..14) == Some(&ETHERTYPE) && self.ways.contains_key(at);
        let Some(way) = self.ways.get_mut(&from).filter(|_| is_probe) else { return };
        way.unanswered = 0;
        way.elsewhere = (way.to != *at).then(|| at.clone());
        let counts = way.elsewhere.is_none().then_some([departed, arrived]);
        way.has_answered |= counts.is_some();
        if let (Some(before), Some(now)) = (std::mem::replace(&mut way.counted, counts), counts) {
            let [sent, came] = [0, 1].map(|end: usize| now[end].wrapping_sub(before[end]));
            if sent.max(came) < MOST_FRAMES {
                way.losses.truncate(WINDOW - 1);
                way.losses.push_front([sent, sent.saturating_sub(came)]);
            }
        }
        self.judge(&from);
    }

    fn judge(&mut self, from: &Place) {
        let Some(way) = self.ways.get(from) else { return };
        let back = self.ways.get(&way.to).filter(|back| back.to == *from && back.has_answered);
        let comes_back = back.is_some_and(|back| back.unanswered <= PATIENCE / 2);
        let (lossy, is_one_way) = (lossy(&way.losses), comes_back && way.unanswered > PATIENCE);
        let cause = if way.elsewhere.is_some() {
            Some(Cause::Miscabled)
        } else if is_one_way || way.has_answered && way.unanswered > LONG_PATIENCE {
            Some(Cause::OneWay)
        } else {
            lossy.map(|_| Cause::Lossy)
        };
        if way.told == cause {
            return;
        }
        let (name, to) = (words(from), words(&way.to));
        let why = match (cause, &way.elsewhere, lossy) {
            (_, Some(elsewhere), _) => {
                format!("{name} should lead to {to}, and leads to {}", words(elsewhere))
            }
            (Some(Cause::OneWay), ..) => {
                let back = if is_one_way { "while frames come back" } else { "and none comes back" };
                format!("no frame from {name} arrives at {to}, {back}")
            }
            (_, _, Some((lost, sent))) => {
                let share = f64::from(lost) * 100.0 / f64::from(sent);
                format!("{lost} of {sent} frames from {name} to {to} were lost ({share:.1} %)")
            }
            _ => String::new(),
        };
        if let Some(way) = self.ways.get_mut(from) {
            way.told = cause;
        }
        self.verdicts.insert(from.clone(), cause.map(|cause| (cause, why)));
    }

    /// Verdicts that changed since the last call.
    pub(crate) fn take_verdicts(&mut self) -> BTreeMap<Place, Verdict> {
        std::mem::take(&mut self.verdicts)
    }

    /// Whether every link between switches that take probes was tried.
    pub(crate) fn are_tried(&self) -> bool {
        self.ways.iter().all(|(from, way)| way.is_tried() || !self.is_open(from, &way.to))
    }

    /// What is known of the links between these switches.
    pub(crate) fn links(&self, is_meant: impl Fn(&str) -> bool) -> Links {
        let mut links = Links::default();
        for (from, way) in self.ways.iter().filter(|(from, way)| **from < way.to) {
            if !is_meant(&from.0) || !is_meant(&way.to.0) {
                continue;
            }
            let both = [way].into_iter().chain(self.ways.get(&way.to));
            if both.clone().all(|way| way.has_answered || way.told.is_some()) {
                links.tried += 1;
                continue;
            }
            let ends = [from, &way.to];
            let why = if let Some(end) = ends.iter().find(|end| !self.ready.contains(&end.0)) {
                format!("{} takes no probes", end.0)
            } else if let Some(end) = ends.iter().find(|end| self.down.contains(**end)) {
                format!("{} is down", words(end))
            } else if let Some((end, _)) = ends.iter().zip(both).find(|(_, way)| way.unanswered == 0) {
                format!("{} has taken no probe yet", end.0)
            } else {
                "no probe came back".to_owned()
            };
            links.untried.entry(why).or_default().push(format!("{} to {}", words(from), words(&way.to)));
        }
        links
    }
}

/// Periods between two probes over one of so many ways, while they are answered.
fn rest(ways: usize) -> u32 {
    let periods_a_second = 1_000 / u32::try_from(PERIOD.as_millis()).unwrap_or(1_000);
    u32::try_from(ways).unwrap_or(u32::MAX).div_ceil(PROBES_A_SECOND / periods_a_second).max(1)
}

impl Way {
    /// It answered, or has had its chance.
    fn is_tried(&self) -> bool {
        self.has_answered || self.elsewhere.is_some() || self.unanswered > PATIENCE + 1
    }
}

fn words((switch, port): &Place) -> String {
    format!("{switch}:{port}")
}

/// Frames that were lost, of how many, where that is a link that loses frames.
fn lossy(losses: &VecDeque<[u32; 2]>) -> Option<(u32, u32)> {
    let times = losses.iter().filter(|[_, lost]| *lost > 0).count();
    let sum = |at: usize| losses.iter().map(|counts| counts[at]).fold(0, u32::saturating_add);
    let (sent, lost) = (sum(0), sum(1));
    let is_share = u64::from(lost) * 1000 >= u64::from(sent) * LEAST_SHARE;
    (lost >= LEAST_LOST && times >= LEAST_TIMES && is_share).then_some((lost, sent))
}

/// Whether a program takes and gives probes.
pub(crate) fn knows_probes(index: &Index) -> bool {
    index.table(names::OWN_MAC).is_ok()
}

/// Where a packet came in.
pub(crate) fn ingress_port(index: &Index, packet: &PacketIn) -> Option<u16> {
    let header = index.controller_header("packet_in").ok()?;
    let field = header.metadata.iter().find(|field| field.name == "ingress_port")?;
    let port = packet.metadata.iter().find(|metadata| metadata.metadata_id == field.id)?;
    bytes::decode(&port.value, 16).ok()?.try_into().ok()
}

/// Of a packet that is to leave from a port.
pub(crate) fn egress_port(index: &Index, port: u16) -> Option<Vec<PacketMetadata>> {
    let fields = [("egress_port", bytes::Value::from(port)), ("pad", bytes::Value::from(0_u8))];
    entity::packet_metadata(index, "packet_out", fields).ok()
}

#[cfg(test)]
mod tests;
