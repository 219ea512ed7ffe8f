// SPDX-License-Identifier: Apache-2.0
//! What routes leave out, and when it comes back: dead switches, broken links, and switches that a
//! person has drained. A core without sockets or a clock, and a handle on it that all drivers
//! share.
//!
//! ```text
//!         failed                     well                   hold-down over
//!  used ─────────► out, at once ──────────► out, held ──────────────────────► used
//!                    ▲                         │
//!                    └──────── failed ◄────────┘
//! ```
//!
//! The hold-down doubles with every failure of the last ten minutes, so that what fails again and
//! again stays out (RFC 2439 damps routes that flap for the same reason).
//!
//! A controller that begins to lead first looks at every switch ([`Faults::looked`]): its
//! predecessor may have died while it filled one. Such a switch is out until it holds its tables,
//! unless the whole fabric is being filled: then nothing is led anywhere yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::board::Board;
use super::status::{Cause, Fault};
use super::wires::Wires;
use crate::topology::Avoid;

/// Failures count for so long.
const MEMORY_NS: u64 = 600_000_000_000;
/// Failures that count.
const MOST_FAILURES: usize = 7;

/// What may fail.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Element {
    Switch(String),
    /// A link, by the port of the switch that tells of it or that probes leave from, and what is
    /// wrong with it.
    Port(String, u16, Cause),
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(name) => write!(f, "{name}"),
            Self::Port(name, port, _) => write!(f, "{name}:{port}"),
        }
    }
}

/// Failure history of a switch or port.
#[derive(Debug, Default)]
struct Health {
    failed_at: VecDeque<u64>,
    reason: String,
    is_well: bool,
    /// When it is used again; `None` while it is not well.
    back_at: Option<u64>,
    is_out: bool,
}

/// The core.
///
/// [`Faults::failed`] and [`Faults::well`] as often as somebody says so, [`Faults::handle_timeout`]
/// when [`Faults::poll_timeout`] says.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    hold_down_ns: u64,
    elements: BTreeMap<Element, Health>,
    drained: BTreeMap<String, String>,
    replaced: BTreeMap<String, String>,
    switches: BTreeSet<String>,
    /// Those that have hosts.
    homes: BTreeSet<String>,
    /// Switches of which nothing was heard since they are in the file, or since we lead.
    unheard: BTreeSet<String>,
    /// Nobody waits for these.
    has_settled: bool,
    /// Those that were found without their tables, and what they lack.
    empty: BTreeMap<String, String>,
    /// Those with hosts that were found with their tables.
    found: BTreeSet<String>,
}

impl Faults {
    /// A fabric's switches, those of them that have hosts, and how long what failed is held down.
    pub(crate) fn of<'n>(
        &mut self,
        hold_down_ns: u64,
        switches: impl Iterator<Item = &'n String>,
        homes: BTreeSet<String>,
    ) {
        let switches: BTreeSet<String> = switches.cloned().collect();
        self.hold_down_ns = hold_down_ns.max(1);
        self.elements.retain(|element, _| match element {
            Element::Switch(name) | Element::Port(name, ..) => switches.contains(name),
        });
        self.empty.retain(|name, _| switches.contains(name));
        self.unheard.retain(|name| switches.contains(name));
        let before = self.unheard.len();
        self.unheard.extend(switches.difference(&self.switches).cloned());
        self.has_settled &= self.unheard.len() == before;
        (self.switches, self.homes) = (switches, homes);
    }

    /// Whether we lead the fabric. Who begins to, does not know what the switches hold; who does
    /// not, fills none.
    pub(crate) fn leads(&mut self, leads: bool) {
        self.empty.clear();
        self.found.clear();
        self.unheard.clear();
        if leads {
            let is_dead = |name: &&String| {
                let health = self.elements.get(&Element::Switch((*name).clone()));
                health.is_some_and(|health| health.is_out && !health.is_well)
            };
            self.unheard = self.switches.iter().filter(|name| !is_dead(name)).cloned().collect();
            self.has_settled = false;
        }
    }

    /// Whether a switch is to be looked at before it is written to.
    fn asks(&self, switch: &str) -> bool {
        self.unheard.contains(switch)
    }

    /// Of how many switches something has to be heard before any is written to.
    fn awaited(&mut self) -> usize {
        self.has_settled |= self.unheard.is_empty();
        if self.has_settled { 0 } else { self.unheard.len() }
    }

    /// What a switch that we are about to write to lacks of what it needs to forward.
    pub(crate) fn looked(&mut self, switch: &str, lacks: Option<String>) {
        self.unheard.remove(switch);
        match lacks {
            Some(lacks) => drop(self.empty.insert(switch.to_owned(), lacks)),
            None if self.homes.contains(switch) => drop(self.found.insert(switch.to_owned())),
            None => {}
        }
    }

    /// The switches that are without their tables, while there is traffic that could be led over
    /// them.
    fn emptied(&self) -> impl Iterator<Item = (&String, &String)> {
        let is_filled_as_a_whole = self.found.len() < 2;
        self.empty.iter().filter(move |_| !is_filled_as_a_whole)
    }

    /// Those that a person has taken out, and why.
    pub(crate) fn drain(&mut self, drained: BTreeMap<String, String>) {
        self.drained = drained;
    }

    /// Those that are given another program, and what of it.
    pub(crate) fn replace(&mut self, replaced: BTreeMap<String, String>) {
        self.replaced = replaced;
    }

    pub(crate) fn failed(&mut self, now: u64, element: Element, reason: String) {
        if let Element::Switch(name) = &element {
            self.unheard.remove(name);
            self.empty.remove(name);
        }
        let health = self.elements.entry(element).or_default();
        if health.is_out && !health.is_well {
            return;
        }
        health.failed_at.retain(|at| now.saturating_sub(*at) < MEMORY_NS);
        if health.failed_at.len() >= MOST_FAILURES {
            health.failed_at.pop_front();
        }
        health.failed_at.push_back(now);
        (health.reason, health.is_well, health.is_out, health.back_at) = (reason, false, true, None);
    }

    pub(crate) fn well(&mut self, now: u64, element: &Element) {
        if let Element::Switch(name) = element {
            self.unheard.remove(name);
            self.empty.remove(name);
        }
        let Some(health) = self.elements.get_mut(element).filter(|health| !health.is_well) else { return };
        health.failed_at.retain(|at| now.saturating_sub(*at) < MEMORY_NS);
        let doubled = health.failed_at.len().saturating_sub(1).min(MOST_FAILURES);
        health.is_well = true;
        health.back_at = Some(now.saturating_add(self.hold_down_ns.saturating_mul(1 << doubled)));
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.elements.values().filter_map(|health| health.back_at).min()
    }

    pub(crate) fn handle_timeout(&mut self, now: u64) {
        for health in self.elements.values_mut() {
            if health.back_at.is_some_and(|at| at <= now) {
                (health.is_out, health.back_at) = (false, None);
            }
        }
        let forgotten =
            |health: &Health| health.failed_at.back().is_none_or(|at| now.saturating_sub(*at) >= MEMORY_NS);
        self.elements.retain(|_, health| health.is_out || !forgotten(health));
    }

    /// What is out, and why.
    pub(crate) fn told(&self) -> Vec<Fault> {
        let fault = |(element, health): (&Element, &Health)| {
            let (switch, port, cause) = match element {
                Element::Switch(name) => (name.clone(), None, Cause::Dead),
                Element::Port(name, port, cause) => (name.clone(), Some(*port), *cause),
            };
            let (reason, held) = (health.reason.clone(), health.is_well);
            Fault { switch, port, cause, reason, held, failures: health.failed_at.len() }
        };
        let works = |cause| {
            move |(switch, reason): (&String, &String)| Fault {
                switch: switch.clone(),
                port: None,
                cause,
                reason: reason.clone(),
                held: false,
                failures: 0,
            }
        };
        let drained = self.drained.iter().map(works(Cause::Drained));
        let replaced = self.replaced.iter().map(works(Cause::Replaced));
        let failed = self.elements.iter().filter(|(_, health)| health.is_out).map(fault);
        let empty = self.emptied().map(works(Cause::Empty));
        failed.chain(empty).chain(drained).chain(replaced).collect()
    }

    pub(crate) fn avoid(&self) -> Avoid {
        let drained = self.drained.keys().chain(self.replaced.keys()).cloned().collect();
        let switches = self.emptied().map(|(name, _)| name.clone()).collect();
        let mut avoid = Avoid { switches, drained, ..Avoid::default() };
        for (element, _) in self.elements.iter().filter(|(_, health)| health.is_out) {
            match element {
                Element::Switch(name) => drop(avoid.switches.insert(name.clone())),
                Element::Port(name, port, _) => drop(avoid.ports.insert((name.clone(), *port))),
            }
        }
        avoid
    }
}

/// The drivers' common [`Faults`]; clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Detector {
    faults: Arc<Mutex<Faults>>,
    wires: Arc<Mutex<Wires>>,
    avoid: watch::Sender<Arc<Avoid>>,
    /// Of how many switches something has to be heard.
    awaited: watch::Sender<usize>,
    changed: Arc<Notify>,
    started: Instant,
    board: Board,
    /// A roll-out tells by itself what became of switches.
    logs: bool,
}

/// How long nothing is written because nobody knows yet which switches are dead, or empty, since
/// the last of which that was heard.
const SETTLING: Duration = Duration::from_secs(1);

impl Detector {
    pub(crate) fn new(board: Board, logs: bool) -> Self {
        Self {
            faults: Arc::default(),
            wires: Arc::default(),
            avoid: watch::Sender::default(),
            awaited: watch::Sender::default(),
            changed: Arc::default(),
            started: Instant::now(),
            board,
            logs,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Asks the core of cables, and takes its verdicts. A roll-out takes them in the end.
    pub(crate) fn wires<T>(&self, ask: impl FnOnce(&mut Wires) -> T) -> T {
        // Held to the end, so that verdicts are taken in their order.
        let mut wires = self.wires.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = ask(&mut wires);
        let verdicts = if self.logs { wires.take_verdicts() } else { BTreeMap::new() };
        if verdicts.is_empty() {
            return answer;
        }
        self.change(|faults, now| {
            for ((switch, port), verdict) in verdicts {
                for cause in Cause::OF_WIRES {
                    let element = Element::Port(switch.clone(), port, cause);
                    match &verdict {
                        Some((found, why)) if *found == cause => faults.failed(now, element, why.clone()),
                        _ => faults.well(now, &element),
                    }
                }
            }
        });
        answer
    }

    /// Changes to what routes leave out.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Avoid>> {
        self.avoid.subscribe()
    }

    /// From now on routes leave these out because they are given another program; gives all that
    /// they leave out.
    pub(crate) fn replace(&self, replaced: BTreeMap<String, String>) -> Arc<Avoid> {
        self.change(|faults, _| faults.replace(replaced));
        Arc::clone(&self.avoid.borrow())
    }

    /// Whether a switch is to be looked at before it is written to.
    pub(crate) fn asks(&self, switch: &str) -> bool {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).asks(switch)
    }

    /// Waits until every switch has been looked at, or cannot be: who writes routes before that
    /// writes them over dead and empty switches.
    pub(crate) async fn settle(&self) {
        let mut awaited = self.awaited.subscribe();
        while *awaited.borrow_and_update() > 0 {
            if tokio::time::timeout(SETTLING, awaited.changed()).await.is_err() {
                self.change(|faults, _| faults.has_settled = true);
            }
        }
    }

    /// Changes the core, and tells all drivers, the board and the log what comes of it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Faults, u64)) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let due = faults.poll_timeout();
        change(&mut faults, self.now());
        if faults.poll_timeout() != due {
            self.changed.notify_one();
        }
        let awaited = faults.awaited();
        self.awaited.send_if_modified(|known| std::mem::replace(known, awaited) != awaited);
        let told = faults.told();
        let before = self.board.change(|status| std::mem::replace(&mut status.faults, told.clone()));
        if before == told {
            return;
        }
        let place = |fault: &Fault| (fault.switch.clone(), fault.port, fault.cause);
        let (was, is): (BTreeSet<_>, BTreeSet<_>) =
            (before.iter().map(place).collect(), told.iter().map(place).collect());
        for fault in told.iter().filter(|fault| self.logs && !was.contains(&place(fault))) {
            tracing::warn!("{fault}");
        }
        for (switch, port, cause) in was.difference(&is).filter(|_| self.logs) {
            let element = port.map_or_else(|| switch.clone(), |port| format!("{switch}:{port}"));
            tracing::warn!("{element} in routes again (was out: {})", cause.name());
        }
        let avoid = faults.avoid();
        self.avoid.send_if_modified(|known| {
            let differs = **known != avoid;
            *known = Arc::new(avoid);
            differs
        });
    }

    /// Takes back what has been well for long enough, for as long as it is polled.
    pub(crate) async fn run(self) {
        loop {
            let due = self.faults.lock().unwrap_or_else(PoisonError::into_inner).poll_timeout();
            let sleep = async {
                match due {
                    Some(at) => tokio::time::sleep_until(self.started + Duration::from_nanos(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep => self.change(Faults::handle_timeout),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn faults() -> Faults {
        let mut faults = Faults::default();
        take(&mut faults, &["s1", "s2"]);
        faults
    }

    /// Leaves have hosts.
    fn take(faults: &mut Faults, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let homes = names.iter().filter(|name| name.starts_with("leaf")).cloned().collect();
        faults.of(5 * SECOND, names.iter(), homes);
    }

    fn s1() -> Element {
        Element::Switch("s1".to_owned())
    }

    #[test]
    fn what_fails_is_out_at_once_and_back_after_its_hold_down() {
        let mut faults = faults();
        assert_eq!((faults.avoid(), faults.unheard.len()), (Avoid::default(), 2));
        faults.well(0, &Element::Switch("s2".to_owned()));
        faults.failed(1, s1(), "no answer".to_owned());
        assert!(faults.unheard.is_empty() && faults.avoid().switches.contains("s1"));
        assert_eq!(faults.poll_timeout(), None, "for as long as it fails");
        faults.well(SECOND, &s1());
        faults.well(2 * SECOND, &s1());
        assert_eq!(faults.poll_timeout(), Some(6 * SECOND), "the first time counts");
        assert_eq!(
            faults.told()[0].to_string(),
            "s1 out of routes, dead: no answer, well again and held down"
        );
        faults.handle_timeout(6 * SECOND);
        assert_eq!((faults.avoid(), faults.poll_timeout()), (Avoid::default(), None));
    }

    #[test]
    fn what_flaps_stays_out_longer_each_time_and_is_forgiven_in_the_end() {
        let mut faults = faults();
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..9 {
            faults.failed(now, s1(), "down".to_owned());
            faults.well(now + 1, &s1());
            let at = faults.poll_timeout().unwrap();
            waits.push((at - now - 1) / SECOND);
            // It fails again before it is back, all but the first time.
            now += SECOND;
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 320, 320]);
        now += MEMORY_NS;
        faults.handle_timeout(now);
        assert_eq!(faults.avoid(), Avoid::default());
        faults.failed(now, s1(), "down".to_owned());
        faults.well(now, &s1());
        assert_eq!(faults.poll_timeout(), Some(now + 5 * SECOND));
    }

    #[test]
    fn links_and_drained_switches_are_told_apart() {
        let mut faults = faults();
        faults.failed(0, Element::Port("s1".to_owned(), 3, Cause::Link), "no carrier".to_owned());
        faults.drain(BTreeMap::from([("s2".to_owned(), "new optics".to_owned())]));
        let told: Vec<String> = faults.told().iter().map(ToString::to_string).collect();
        assert_eq!(told, ["s1:3 out of routes, link: no carrier", "s2 out of routes, drained: new optics"]);
        let avoid = faults.avoid();
        assert_eq!(avoid.ports, BTreeSet::from([("s1".to_owned(), 3)]));
        assert_eq!((avoid.switches, avoid.drained), (BTreeSet::new(), BTreeSet::from(["s2".to_owned()])));
        faults.drain(BTreeMap::new());
        faults.replace(BTreeMap::from([("s2".to_owned(), "a new program".to_owned())]));
        assert_eq!(faults.told()[1].to_string(), "s2 out of routes, replaced: a new program");
        assert_eq!(faults.avoid().drained, BTreeSet::from(["s2".to_owned()]), "better than what is dead");
        faults.replace(BTreeMap::new());
        faults.of(SECOND, ["s2".to_owned()].iter(), BTreeSet::new());
        assert_eq!(faults.avoid(), Avoid::default(), "what left the file is forgotten");
    }

    const FABRIC: [&str; 4] = ["leaf1", "leaf2", "spine1", "spine2"];

    fn out(faults: &Faults) -> Vec<String> {
        faults.avoid().switches.into_iter().collect()
    }

    fn lacks() -> String {
        "it has no routes".to_owned()
    }

    #[test]
    fn a_switch_that_is_found_without_its_tables_is_out_until_it_holds_them_and_is_not_held_down() {
        let mut faults = Faults::default();
        take(&mut faults, &FABRIC);
        for name in FABRIC {
            assert!(faults.asks(name), "{name}");
            faults.looked(name, (name == "spine1").then(lacks));
        }
        assert_eq!((out(&faults), faults.unheard.len()), (vec!["spine1".to_owned()], 0));
        let told: Vec<String> = faults.told().iter().map(ToString::to_string).collect();
        assert_eq!(told, ["spine1 out of routes, empty: it has no routes"]);
        faults.well(0, &Element::Switch("spine1".to_owned()));
        assert_eq!((faults.avoid(), faults.poll_timeout()), (Avoid::default(), None));
    }

    #[test]
    fn a_fabric_that_is_filled_from_nothing_leaves_nobody_out() {
        let mut faults = Faults::default();
        take(&mut faults, &FABRIC);
        for name in FABRIC {
            faults.looked(name, Some(lacks()));
        }
        // One by one in place: nobody's routes change for that.
        for name in FABRIC {
            assert_eq!((faults.avoid(), faults.told()), (Avoid::default(), Vec::new()));
            faults.well(0, &Element::Switch(name.to_owned()));
        }
    }

    #[test]
    fn an_empty_switch_that_dies_comes_back_as_a_dead_one_does() {
        let mut faults = Faults::default();
        take(&mut faults, &FABRIC);
        for name in FABRIC {
            faults.looked(name, (name == "spine1").then(lacks));
        }
        let spine1 = Element::Switch("spine1".to_owned());
        faults.failed(0, spine1.clone(), "refused".to_owned());
        assert_eq!(faults.told().len(), 1);
        assert_eq!(faults.told()[0].cause, Cause::Dead);
        faults.well(1, &spine1);
        assert_eq!((out(&faults), faults.poll_timeout()), (vec!["spine1".to_owned()], Some(5 * SECOND + 1)));
    }

    #[test]
    fn who_takes_the_lead_and_who_adds_a_switch_to_the_file_looks_before_writing() {
        let mut faults = Faults::default();
        take(&mut faults, &FABRIC);
        FABRIC.iter().for_each(|name| faults.looked(name, None));
        faults.failed(0, Element::Switch("spine2".to_owned()), "refused".to_owned());
        faults.leads(false);
        assert!(FABRIC.iter().all(|name| !faults.asks(name)), "who follows writes nothing");
        faults.leads(true);
        assert_eq!(FABRIC.map(|name| faults.asks(name)), [true, true, true, false], "spine2 is dead");
        ["leaf1", "leaf2"].iter().for_each(|name| faults.looked(name, None));
        faults.looked("spine1", Some(lacks()));
        assert_eq!(out(&faults), ["spine1", "spine2"]);
        take(&mut faults, &["leaf1", "leaf2", "spine1", "spine2", "spine3"]);
        assert_eq!((faults.awaited(), faults.asks("spine3")), (1, true));
        faults.looked("spine3", Some(lacks()));
        assert_eq!(out(&faults), ["spine1", "spine2", "spine3"]);
    }
}
