// SPDX-License-Identifier: Apache-2.0
//! New programs, a few switches at a time: whose turn it is, and what has to be so before the next step. A core without sockets or a
//! clock, and a handle on it that all drivers share.
//!
//! ```text
//!           routes lead      it holds            routes lead     its counters
//!           around it        its tables          over it again   are looked at
//!  waits ─► Around ────────► Replace ──────────► Back ─────────► Check ─────────► the next one
//!     │     (no way round)      ▲ │ refuses, gone                  │ not healthy
//!     └─────────────────────────┘ └─► stays out, tried again       └─► Unhealthy: stays out until SIGHUP
//! ```
//!
//! The order is a roll-out's: the tier furthest from hosts first. Switches that have their turn together are of one tier, and hosts reach
//! each other without them. They are led around, and over again, together, as each time costs all others a change of routes. Nobody else's
//! turn comes while a switch has one. A switch without a program carries no traffic, and is brought in place without a turn.

mod status;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

pub use self::status::Replacing;
use super::board::Board;
use super::faults::Detector;
use crate::rollout::fleet::Shared;
use crate::topology::Avoid;

/// What a driver knows of its switch.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    /// Not connected, and why: routes lead around it as a dead one.
    Unreached(String),
    /// Not ours to write to, or not looked at yet, and why.
    Unknown(String),
    /// It runs another program. Its routes leave this out, or why they do not.
    Another(Result<Arc<Avoid>, String>),
    /// It holds what it should. Its routes leave this out.
    InPlace(Arc<Avoid>),
    /// It cannot be brought in place, and why.
    Failed(String),
}

impl Seen {
    /// Its routes: what they leave out; `None` where they are not to be had.
    fn routes(&self) -> Option<&Avoid> {
        match self {
            Self::Another(Ok(avoid)) | Self::InPlace(avoid) => Some(avoid),
            _ => None,
        }
    }

    fn failure(&self) -> Option<&str> {
        match self {
            Self::Another(Err(why)) | Self::Failed(why) => Some(why),
            _ => None,
        }
    }
}

/// What a switch whose turn it is may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Be given its new program.
    Replace,
    /// Have its counters looked at.
    Check,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Around,
    Replace,
    Back,
    Check,
    Unhealthy,
}

/// A switch that has its turn.
#[derive(Debug, Clone)]
struct Turn {
    /// There is a way round it.
    is_spared: bool,
    phase: Phase,
    /// Why it is not in place yet.
    failure: Option<String>,
}

/// The core.
///
/// [`Replacer::of`] with every file, [`Replacer::see`] for what a driver knows, [`Replacer::leads`] and [`Replacer::checked`] when they say
/// so; after each of these, and when routes leave out something else, [`Replacer::settle`]. Then [`Replacer::orders`] and
/// [`Replacer::told`] may be others.
#[derive(Default)]
pub(super) struct Replacer {
    shared: Option<Arc<Shared>>,
    /// Of the file: what drivers tell of an earlier one does not count.
    number: u64,
    seen: BTreeMap<String, Seen>,
    avoid: Arc<Avoid>,
    leads: bool,
    turns: BTreeMap<String, Turn>,
    /// A person has to say that it may go on.
    stopped: Option<String>,
    /// Why nobody's turn comes although some wait.
    waits: Option<String>,
    /// For whom it waits, and why, while nothing is wrong.
    waits_for: BTreeMap<String, String>,
}

impl Replacer {
    /// Another file, and its number.
    pub(super) fn of(&mut self, number: u64, shared: Arc<Shared>) {
        let is_new = |name: &String| match self.seen.get(name) {
            Some(Seen::Unreached(why)) => Seen::Unreached(why.clone()),
            _ => Seen::Unknown("it was not looked at since the file is read".to_owned()),
        };
        let names = shared.compiler.fabric().switches.keys();
        self.seen = names.map(|name| (name.clone(), is_new(name))).collect();
        (self.number, self.shared) = (number, Some(shared));
    }

    /// How a switch stands, by the file of this number.
    pub(super) fn see(&mut self, number: u64, switch: &str, seen: Seen) {
        if number == self.number
            && let Some(known) = self.seen.get_mut(switch)
        {
            *known = seen;
        }
    }

    /// To be called after each change. `avoids` takes what routes are to leave out because of us, and gives all that they are to.
    fn settle(&mut self, avoids: impl Fn(BTreeMap<String, String>) -> Arc<Avoid>) {
        loop {
            let out = self.out();
            self.avoid = avoids(out.clone());
            self.step();
            if self.out() == out {
                return;
            }
        }
    }

    /// Whether we lead the fabric. Who does not, replaces nothing, and keeps nothing out.
    pub(super) fn leads(&mut self, leads: bool) {
        if std::mem::replace(&mut self.leads, leads) != leads {
            self.turns.clear();
        }
    }

    /// A person says that it may go on.
    pub(super) fn insist(&mut self) {
        self.stopped = None;
        // Dead switches are out of routes all the same, and hold up nobody who starts.
        self.turns.retain(|switch, _| !matches!(self.seen.get(switch), Some(Seen::Unreached(_))));
        for turn in self.turns.values_mut().filter(|turn| turn.phase == Phase::Unhealthy) {
            turn.phase = Phase::Around;
        }
    }

    /// What the counters of a switch say.
    pub(super) fn checked(&mut self, switch: &str, outcome: Result<(), String>) {
        let Some(turn) = self.turns.get_mut(switch).filter(|turn| turn.phase == Phase::Check) else { return };
        match outcome {
            Ok(()) => drop(self.turns.remove(switch)),
            Err(why) => {
                turn.phase = Phase::Unhealthy;
                self.stop(format!("{switch} is in place, but not healthy: {why}"));
            }
        }
    }

    fn stop(&mut self, why: String) {
        self.stopped = Some(match self.stopped.take() {
            Some(before) if !before.contains(&why) => format!("{before}; {why}"),
            _ => why,
        });
    }

    /// The switches that routes are to leave out, and why.
    fn out(&self) -> BTreeMap<String, String> {
        let spared = self.turns.iter().filter(|(_, turn)| turn.is_spared);
        let out = spared.filter_map(|(switch, turn)| {
            let why = match turn.phase {
                Phase::Around | Phase::Replace => "it is given its new program",
                Phase::Unhealthy => "it is not healthy since it was given its new program",
                Phase::Back | Phase::Check => return None,
            };
            Some((switch.clone(), why.to_owned()))
        });
        out.collect()
    }

    /// What those whose turn it is may do.
    fn orders(&self) -> BTreeMap<String, Order> {
        let order = |turn: &Turn| match turn.phase {
            Phase::Replace => Some(Order::Replace),
            Phase::Check => Some(Order::Check),
            _ => None,
        };
        self.turns.iter().filter_map(|(switch, turn)| Some((switch.clone(), order(turn)?))).collect()
    }

    fn told(&self) -> Replacing {
        let failing = self.turns.iter().filter_map(|(switch, turn)| {
            let why = turn.failure.as_ref()?;
            Some(format!("{switch} is not in place: {why}"))
        });
        let failing: Vec<String> = failing.collect();
        let failing = (!failing.is_empty()).then(|| failing.join("; "));
        Replacing {
            waiting: self.waiting().map(String::clone).collect(),
            switches: self.turns.keys().cloned().collect(),
            stopped: self.stopped.clone().or(failing).or_else(|| self.waits.clone()),
            waits_for: self.waits_for.clone(),
        }
    }

    /// Those that run another program, and have no turn.
    fn waiting(&self) -> impl Iterator<Item = &String> {
        let another = self.seen.iter().filter(|(_, seen)| matches!(seen, Seen::Another(_)));
        another.map(|(name, _)| name).filter(|name| !self.turns.contains_key(*name))
    }

    /// As far as it goes, until routes are to leave out something else.
    fn step(&mut self) {
        let out = self.out();
        while let Some(shared) = self.shared.clone() {
            (self.waits, self.waits_for) = (None, BTreeMap::new());
            let is_further = if self.turns.is_empty() { self.begin(&shared) } else { self.go_on() };
            if !is_further || self.out() != out {
                return;
            }
        }
    }

    /// Gives the next switches their turn.
    fn begin(&mut self, shared: &Shared) -> bool {
        let (topology, fabric) = (shared.compiler.topology(), shared.compiler.fabric());
        // Ordered as a roll-out is: who has most links to hosts, first.
        let mut waiting: Vec<(Reverse<Option<usize>>, String)> =
            self.waiting().map(|name| (Reverse(topology.tier(name)), name.clone())).collect();
        waiting.sort();
        let Some((tier, first)) = waiting.first().filter(|_| self.leads && self.stopped.is_none()) else {
            return false;
        };
        // Who is not known yet may be the first, or may not lead around it.
        self.waits_for = self.unknown();
        if !self.waits_for.is_empty() {
            return false;
        }
        let mut batch = BTreeSet::from([first.clone()]);
        let is_spared = topology.spares_beside(&batch, &self.avoid);
        if !is_spared && topology.spares(&batch, &self.avoid.drained) {
            self.waits = Some(format!("{first} waits: what has failed elsewhere was the way round it"));
            return false;
        }
        if let Some((other, why)) = self.failing(first, is_spared) {
            self.waits = Some(format!("{first} waits for {other}: {why}"));
            return false;
        }
        // With the first none may be taken that is its way round, or that is so together with others.
        let is_whole = |batch: &BTreeSet<String>| topology.parted_beside(batch, &self.avoid).is_none();
        let most = if is_whole(&batch) { fabric.controller.max_unavailable } else { 1 };
        for (_, name) in waiting.iter().filter(|(other, _)| other == tier).skip(1) {
            if batch.len() >= most {
                break;
            }
            batch.insert(name.clone());
            if !is_whole(&batch) {
                batch.remove(name);
            }
        }
        let phase = if is_spared { Phase::Around } else { Phase::Replace };
        for switch in batch {
            if !is_spared {
                let saves = fabric.switches.get(&switch).is_some_and(|s| s.target.saves_programs());
                let how = if saves {
                    "the new one takes over when its tables are written"
                } else {
                    "it forwards nothing until the new one's tables are written"
                };
                tracing::warn!(%switch, "its program is replaced, and there is no way round it: {how}");
            }
            self.turns.insert(switch, Turn { is_spared, phase, failure: None });
        }
        true
    }

    /// Those of which nothing can be said.
    fn unknown(&self) -> BTreeMap<String, String> {
        let unknown = self.seen.iter().filter_map(|(name, seen)| match seen {
            Seen::Unknown(why) => Some((name.clone(), why.clone())),
            _ => None,
        });
        unknown.collect()
    }

    /// One that keeps another's turn from beginning: it does not come in place; or, where routes have to lead around, does not take them.
    fn failing(&self, switch: &str, is_spared: bool) -> Option<(&str, &str)> {
        let others = self.seen.iter().filter(|(name, _)| *name != switch && !self.turns.contains_key(*name));
        let mut failing = others.filter(|(_, seen)| is_spared || matches!(seen, Seen::Failed(_)));
        failing.find_map(|(name, seen)| Some((name.as_str(), seen.failure()?)))
    }

    /// Others whose routes do not leave a switch out, or do, against what is wanted by now, and why. Dead ones have none.
    fn lagging(&self, switch: &str) -> BTreeMap<String, String> {
        let is_out = |avoid: &Avoid| avoid.drained.contains(switch);
        let why = |seen: &Seen| match seen {
            Seen::Unreached(_) | Seen::Failed(_) | Seen::Another(Err(_)) => None,
            Seen::Unknown(why) => Some(why.clone()),
            seen if seen.routes().is_some_and(|avoid| is_out(avoid) == is_out(&self.avoid)) => None,
            _ => Some("its routes are not written yet".to_owned()),
        };
        let others = self.seen.iter().filter(|(name, _)| *name != switch);
        others.filter_map(|(name, seen)| Some((name.clone(), why(seen)?))).collect()
    }

    /// Whether a switch is being given its program, and nothing was wrong with that yet.
    fn is_at_work(&self, switch: &str, turn: &Turn) -> bool {
        let has_ended =
            matches!(self.seen.get(switch), Some(Seen::InPlace(_) | Seen::Failed(_) | Seen::Unreached(_)));
        turn.phase == Phase::Replace && turn.failure.is_none() && !has_ended
    }

    fn go_on(&mut self) -> bool {
        let mut is_further = false;
        for switch in self.turns.keys().cloned().collect::<Vec<_>>() {
            is_further |= self.go_on_with(&switch);
        }
        is_further
    }

    fn go_on_with(&mut self, switch: &str) -> bool {
        let Some(turn) = self.turns.get(switch).cloned() else { return false };
        let failing = self.failing(switch, turn.is_spared).map(|(other, why)| format!("{other}: {why}"));
        let next = match (turn.phase, self.seen.get(switch)) {
            // It left the file, or is dead before anything was done to it.
            (_, None) | (Phase::Around, Some(Seen::Unreached(_))) => None,
            (Phase::Around, Some(Seen::InPlace(_))) => Some(Phase::Back),
            (Phase::Replace, Some(Seen::InPlace(_))) => {
                let at_work = self.turns.iter().filter(|(switch, turn)| self.is_at_work(switch, turn));
                let at_work: Vec<String> = at_work.map(|(switch, _)| switch.clone()).collect();
                if !at_work.is_empty() {
                    self.waits_for.extend(at_work.into_iter().map(|other| (other, WRITTEN.to_owned())));
                    return false;
                }
                Some(Phase::Back)
            }
            (Phase::Around, _) if failing.is_some() => {
                self.stop(format!("no routes around {switch}: {}", failing.unwrap_or_default()));
                None
            }
            (Phase::Around, Some(Seen::Another(_))) if self.avoid.drained.contains(switch) => {
                if self.waits_for_routes(switch) {
                    return false;
                }
                Some(Phase::Replace)
            }
            (Phase::Back | Phase::Check | Phase::Unhealthy, Some(Seen::Another(_))) => {
                // Another file came meanwhile.
                Some(if turn.is_spared { Phase::Around } else { Phase::Replace })
            }
            (Phase::Back | Phase::Check, Some(Seen::Unreached(_) | Seen::Failed(_))) => Some(Phase::Replace),
            (Phase::Replace, Some(Seen::Unreached(why) | Seen::Failed(why))) => {
                // Tried again by its driver, and nobody else's turn until then. Those that it had its turn with need not wait.
                let failure = Some(why.clone());
                let is_new = turn.failure.is_none();
                self.turns.insert(switch.to_owned(), Turn { failure, ..turn });
                return is_new;
            }
            (Phase::Back, Some(Seen::InPlace(_))) => {
                if self.waits_for_routes(switch) {
                    return false;
                }
                Some(Phase::Check)
            }
            (Phase::Around | Phase::Back, Some(Seen::Unknown(why))) => {
                self.waits_for.insert(switch.to_owned(), why.clone());
                return false;
            }
            (Phase::Replace, Some(Seen::Another(_))) => {
                self.waits_for.insert(switch.to_owned(), WRITTEN.to_owned());
                return false;
            }
            _ => return false,
        };
        match next {
            Some(phase) => {
                drop(self.turns.insert(switch.to_owned(), Turn { phase, failure: None, ..turn }));
            }
            None => drop(self.turns.remove(switch)),
        }
        true
    }

    /// Whether others' routes do not lead around a switch, or over it, as they are to.
    fn waits_for_routes(&mut self, switch: &str) -> bool {
        let lagging = self.lagging(switch);
        let waits = !lagging.is_empty();
        self.waits_for.extend(lagging);
        waits
    }
}

/// Why a switch that is given its program is waited for.
const WRITTEN: &str = "its program is being written";

/// The drivers' common [`Replacer`]; clones are the same one.
#[derive(Clone)]
pub(super) struct Replacements {
    replacer: Arc<Mutex<Replacer>>,
    orders: watch::Sender<BTreeMap<String, Order>>,
    detector: Detector,
    board: Board,
}

impl fmt::Debug for Replacements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replacements").finish_non_exhaustive()
    }
}

impl Replacements {
    pub(super) fn new(detector: Detector, board: Board) -> Self {
        Self { replacer: Arc::default(), orders: watch::Sender::default(), detector, board }
    }

    /// Changes to whose turn it is.
    pub(super) fn subscribe(&self) -> watch::Receiver<BTreeMap<String, Order>> {
        self.orders.subscribe()
    }

    /// Changes the core, and tells routes, drivers, the board and the log what comes of it.
    pub(super) fn change(&self, change: impl FnOnce(&mut Replacer)) {
        let mut replacer = self.replacer.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut replacer);
        replacer.settle(|out| self.detector.replace(out));
        let orders = replacer.orders();
        self.orders.send_if_modified(|known| {
            let differs = *known != orders;
            *known = orders;
            differs
        });
        let told = replacer.told();
        let before = self.board.change(|status| std::mem::replace(&mut status.replacing, told.clone()));
        if told.stopped.is_some() && told.stopped != before.stopped {
            tracing::warn!("{told}");
        } else if told.is_over() && !before.is_over() {
            tracing::info!("no switch waits for a new program any more");
        } else if !told.switches.is_subset(&before.switches) {
            tracing::info!("{told}");
        }
    }

    /// Takes note of who leads and of what fails, and says in the log for whom it waits, for as long as it is polled.
    pub(super) async fn run(self, mut leads: watch::Receiver<bool>) {
        let mut avoid = self.detector.subscribe();
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        let mut say_at = None;
        loop {
            let is_leader = *leads.borrow_and_update();
            avoid.mark_unchanged();
            // What fails is asked for by every change.
            self.change(|replacer| replacer.leads(is_leader));
            loop {
                tokio::select! {
                    Ok(()) = leads.changed() => break,
                    Ok(()) = avoid.changed() => break,
                    now = ticks.tick() => self.say(&mut say_at, now),
                    else => return,
                }
            }
        }
    }

    /// Most waits are over before anybody could read of them.
    fn say(&self, say_at: &mut Option<Instant>, now: Instant) {
        let told = self.board.change(|status| status.replacing.clone());
        if told.waits_for.is_empty() {
            *say_at = None;
        } else if *say_at.get_or_insert(now + LASTING) <= now {
            *say_at = Some(now + AGAIN);
            tracing::warn!("{told}");
        }
    }
}

/// A wait of this long is told in the log,
const LASTING: Duration = Duration::from_secs(5);
/// and so often again.
const AGAIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
