// SPDX-License-Identifier: Apache-2.0
//! Changes a few switches at a time: whose turn it is, and what has to be so before the next step.
//! A core without sockets or a clock, and a handle on it that all drivers share.
//!
//! ```text
//!           routes lead      it holds            routes lead     its counters
//!           around it        its tables          over it again   are looked at
//!  waits ─► Around ────────► Replace ──────────► Back ─────────► Check ─────────► the next one
//!     │     (no way round)      ▲ │ refuses, gone                  │ not healthy
//!     └─────────────────────────┘ └─► stays out, tried again       └─► Unhealthy: stays out until SIGHUP
//! ```
//!
//! The tier furthest from hosts is first. Switches that have their turn together are of one tier,
//! and hosts reach each other without them. They are led around, and over again, together, as each
//! time costs all others a change of routes. Nobody else's turn comes while a switch has one.
//!
//! A `run` gives turns to switches that run another program, tries again what fails, and goes on
//! for as long as it lives. A switch without a program carries no traffic, and is brought in place
//! without a turn. A roll-out ([`Goal`]) gives turns to all that are to change, each one once, and
//! is over when none is left or one has failed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::board::Board;
use super::faults::Detector;
use super::status::Replacing;
use crate::fleet::Shared;
use crate::topology::Avoid;

/// What a driver knows of its switch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Seen {
    /// Not connected, and why: routes lead around it as a dead one.
    Unreached(String),
    /// Not ours to write to, or not looked at yet, and why.
    Unknown(String),
    /// It waits for its turn, with another program or what a roll-out is to change. Its routes
    /// leave this out, or why they do not.
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
pub(crate) enum Order {
    /// Be brought in place, by a new program where it runs another.
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

/// What a roll-out is to come to.
#[derive(Debug, Default)]
pub(crate) struct Goal {
    /// Switches that are to change and have had no turn yet; whether each runs another program.
    pub todo: BTreeMap<String, bool>,
    /// Switches that have their turn at a time; at least 1.
    pub most: usize,
    /// In whatever order, without leading routes around anything.
    pub at_once: bool,
    /// Others have their turn after one has failed, too.
    pub keep_going: bool,
    /// Those that failed, and why.
    pub failed: BTreeMap<String, String>,
    /// Those of them that routes leave out from then on.
    pub left_out: BTreeSet<String>,
    /// Switches that have been connected to: others' failures are none of this roll-out.
    pub asked: BTreeSet<String>,
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
/// [`Replacer::of`] with every file, [`Replacer::see`] for what a driver knows, [`Replacer::leads`]
/// and [`Replacer::checked`] when they say so; after each of these, and when routes leave out
/// something else, [`Replacer::settle`]. Then [`Replacer::orders`] and [`Replacer::told`] may be
/// others.
#[derive(Default)]
pub(crate) struct Replacer {
    shared: Option<Arc<Shared>>,
    /// Of the file: what drivers tell of an earlier one does not count.
    number: u64,
    seen: BTreeMap<String, Seen>,
    avoid: Arc<Avoid>,
    leads: bool,
    /// Of a roll-out; `None` in a `run`.
    goal: Option<Goal>,
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
    pub(crate) fn of(&mut self, number: u64, shared: Arc<Shared>) {
        let is_new = |name: &String| match self.seen.get(name) {
            Some(Seen::Unreached(why)) => Seen::Unreached(why.clone()),
            _ => Seen::Unknown("it was not looked at since the file is read".to_owned()),
        };
        let names = shared.compiler.fabric().switches.keys();
        self.seen = names.map(|name| (name.clone(), is_new(name))).collect();
        (self.number, self.shared) = (number, Some(shared));
    }

    /// The beginning of a roll-out. Switches stand as a plan has found them.
    pub(crate) fn roll_out(&mut self, shared: Arc<Shared>, seen: BTreeMap<String, Seen>, goal: Goal) {
        (self.shared, self.seen, self.goal, self.leads) = (Some(shared), seen, Some(goal), true);
    }

    pub(crate) fn goal(&self) -> Option<&Goal> {
        self.goal.as_ref()
    }

    /// A driver of a roll-out is started for this switch.
    pub(crate) fn asks(&mut self, switch: &str) {
        if let Some(goal) = &mut self.goal {
            goal.asked.insert(switch.to_owned());
        }
        if !self.turns.contains_key(switch) {
            let why = "its routes are not written yet".to_owned();
            self.seen.insert(switch.to_owned(), Seen::Unknown(why));
        }
    }

    /// A switch has no driver: its routes are taken for those that are wanted.
    pub(crate) fn rests(&mut self, switch: &str) {
        if let Some(goal) = &mut self.goal {
            goal.asked.remove(switch);
        }
        self.seen.insert(switch.to_owned(), Seen::Another(Ok(Arc::clone(&self.avoid))));
    }

    /// How a switch stands, what routes are to leave out, and whether it has its turn.
    pub(crate) fn known(&self, switch: &str) -> (Option<&Seen>, &Arc<Avoid>, bool) {
        (self.seen.get(switch), &self.avoid, self.turns.contains_key(switch))
    }

    /// Whether a roll-out has nothing more to do.
    pub(crate) fn is_over(&self) -> bool {
        let is_done = |goal: &Goal| goal.todo.is_empty() || (!goal.keep_going && !goal.failed.is_empty());
        let is_settled = |seen: &Seen| match seen {
            Seen::Unknown(_) => false,
            seen => seen.routes().is_none_or(|avoid| *avoid == *self.avoid),
        };
        let is_done = self.goal.as_ref().is_none_or(is_done);
        self.turns.is_empty() && is_done && self.seen.values().all(is_settled)
    }

    /// The turn of a switch of a roll-out ends with a failure. What routes lead around stays out.
    fn fails(&mut self, switch: &str, why: String) {
        let turn = self.turns.remove(switch);
        let Some(goal) = &mut self.goal else { return };
        let is_out = turn.is_some_and(|turn| turn.is_spared && turn.phase != Phase::Around);
        goal.asked.remove(switch);
        goal.failed.entry(switch.to_owned()).or_insert(why);
        if is_out {
            goal.left_out.insert(switch.to_owned());
        }
    }

    /// How a switch stands, by the file of this number.
    pub(crate) fn see(&mut self, number: u64, switch: &str, seen: Seen) {
        if number == self.number
            && let Some(known) = self.seen.get_mut(switch)
        {
            *known = seen;
        }
    }

    /// To be called after each change. `avoids` takes what routes are to leave out because of us,
    /// and gives all that they are to.
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
    pub(crate) fn leads(&mut self, leads: bool) {
        if std::mem::replace(&mut self.leads, leads) != leads {
            self.turns.clear();
        }
    }

    /// A person says that it may go on.
    pub(crate) fn insist(&mut self) {
        self.stopped = None;
        // Dead switches are out of routes all the same, and hold up nobody who starts.
        self.turns.retain(|switch, _| !matches!(self.seen.get(switch), Some(Seen::Unreached(_))));
        for turn in self.turns.values_mut().filter(|turn| turn.phase == Phase::Unhealthy) {
            turn.phase = Phase::Around;
        }
    }

    /// What the counters of a switch say.
    pub(crate) fn checked(&mut self, switch: &str, outcome: Result<(), String>) {
        let Some(turn) = self.turns.get_mut(switch).filter(|turn| turn.phase == Phase::Check) else { return };
        match outcome {
            Ok(()) => drop(self.turns.remove(switch)),
            Err(why) if self.goal.is_some() => {
                self.fails(switch, format!("in place, but not healthy: {why}"));
            }
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
        let left_out = self.goal.iter().flat_map(|goal| &goal.left_out);
        let left_out = left_out.map(|switch| (switch.clone(), "it failed in this roll-out".to_owned()));
        out.chain(left_out).collect()
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

    /// Those that are to change, and have no turn.
    fn waiting(&self) -> impl Iterator<Item = &String> {
        let waits = |(name, seen): &(&String, &Seen)| match &self.goal {
            Some(goal) => goal.todo.contains_key(*name),
            None => matches!(seen, Seen::Another(_)),
        };
        let waiting = self.seen.iter().filter(waits).map(|(name, _)| name);
        waiting.filter(|name| !self.turns.contains_key(*name))
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
        let replaces = |name: &String| match &self.goal {
            Some(goal) => !goal.at_once && goal.todo.get(name) == Some(&true),
            None => true,
        };
        let is_spared = |name: &String| {
            replaces(name) && topology.spares_beside(&BTreeSet::from([name.clone()]), &self.avoid)
        };
        // A roll-out first changes those that routes need not lead around: one of them may be what
        // a roll-out that was cut off has left without its tables.
        let mut waiting: Vec<(Reverse<Option<usize>>, bool, String)> = self
            .waiting()
            .map(|name| {
                let is_later = self.goal.is_some() && is_spared(name);
                (Reverse(topology.tier(name)), is_later, name.clone())
            })
            .collect();
        waiting.sort();
        let has_failed = self.goal.as_ref().is_some_and(|goal| !goal.keep_going && !goal.failed.is_empty());
        let may_begin = self.leads && self.stopped.is_none() && !has_failed;
        let Some((tier, is_later, first)) = waiting.first().cloned().filter(|_| may_begin) else {
            return false;
        };
        // Who is not known yet may be the first, or may not lead around it.
        self.waits_for = self.unknown();
        if !self.waits_for.is_empty() {
            return false;
        }
        let (is_spared, is_run) = (is_spared(&first), self.goal.is_none());
        let mut batch = BTreeSet::from([first.clone()]);
        if is_run && !is_spared && topology.spares(&batch, &self.avoid.drained) {
            self.waits = Some(format!("{first} waits: what has failed elsewhere was the way round it"));
            return false;
        }
        if is_run && let Some((other, why)) = self.failing(&first, is_spared) {
            self.waits = Some(format!("{first} waits for {other}: {why}"));
            return false;
        }
        // With the first none may be taken that is its way round, or that is so together with
        // others. What keeps its program in a roll-out forwards meanwhile.
        let forwards = |name: &String| !is_run && !replaces(name);
        let is_whole = |batch: &BTreeSet<String>| {
            batch.iter().all(forwards) || topology.parted_beside(batch, &self.avoid).is_none()
        };
        let most = match &self.goal {
            Some(goal) if goal.at_once => usize::MAX,
            Some(goal) => goal.most.max(1),
            None => fabric.controller.max_unavailable,
        };
        let most = if is_whole(&batch) { most } else { 1 };
        let is_beside = |other: &(Reverse<Option<usize>>, bool, String)| {
            most == usize::MAX || (other.0, other.1) == (tier, is_later)
        };
        for (.., name) in waiting.iter().skip(1).filter(|other| is_beside(other)) {
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
            if let Some(goal) = &mut self.goal {
                goal.todo.remove(&switch);
            } else if !is_spared {
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

    /// One that keeps another's turn from beginning: it does not come in place; or, where routes
    /// have to lead around, does not take them.
    fn failing(&self, switch: &str, is_spared: bool) -> Option<(&str, &str)> {
        let others = self.seen.iter().filter(|(name, _)| *name != switch && !self.turns.contains_key(*name));
        let mut failing = others.filter(|(_, seen)| is_spared || matches!(seen, Seen::Failed(_)));
        failing.find_map(|(name, seen)| match (&self.goal, seen) {
            (Some(goal), _) if !goal.asked.contains(name) => None,
            // A `run` leads routes around dead switches. A roll-out changes routes of those that it
            // plans with.
            (Some(_), Seen::Unreached(why)) => Some((name.as_str(), why.as_str())),
            _ => Some((name.as_str(), seen.failure()?)),
        })
    }

    /// Others whose routes do not leave a switch out, or do, against what is wanted by now, and
    /// why. Dead ones have none.
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
        if self.goal.is_some()
            && let Some(why) = turn.failure_in_roll_out(self.seen.get(switch), failing.as_deref(), switch)
        {
            self.fails(switch, why);
            return true;
        }
        let next = match (turn.phase, self.seen.get(switch)) {
            // It left the file, or is dead before anything was done to it.
            (_, None) | (Phase::Around, Some(Seen::Unreached(_))) => None,
            (Phase::Around, Some(Seen::InPlace(_))) => Some(Phase::Back),
            // Only what routes lead around is led over together.
            (Phase::Replace, Some(Seen::InPlace(_))) if !turn.is_spared && self.goal.is_some() => {
                Some(Phase::Back)
            }
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
                // Tried again by its driver, and nobody else's turn until then. Those that it had
                // its turn with need not wait.
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

impl Turn {
    /// Why a switch's turn in a roll-out ends here: it has failed, or others' routes do not follow.
    fn failure_in_roll_out(&self, seen: Option<&Seen>, routes: Option<&str>, switch: &str) -> Option<String> {
        match (self.phase, seen, routes) {
            (Phase::Around, _, Some(why)) => Some(format!("not begun: no routes around {switch}: {why}")),
            (Phase::Back, Some(Seen::InPlace(_)), Some(why)) if self.is_spared => {
                Some(format!("in place, but routes do not lead over it again: {why}"))
            }
            (_, Some(Seen::Unreached(why) | Seen::Failed(why)), _) => Some(why.clone()),
            _ => None,
        }
    }
}

/// Why a switch that is given its program is waited for.
const WRITTEN: &str = "its program is being written";

/// The drivers' common [`Replacer`]; clones are the same one.
#[derive(Clone)]
pub(crate) struct Replacements {
    replacer: Arc<Mutex<Replacer>>,
    orders: watch::Sender<BTreeMap<String, Order>>,
    /// Something has changed, whatever it is.
    changed: Arc<Notify>,
    detector: Detector,
    board: Board,
}

impl fmt::Debug for Replacements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replacements").finish_non_exhaustive()
    }
}

impl Replacements {
    pub(crate) fn new(detector: Detector, board: Board) -> Self {
        let (replacer, orders, changed) = (Arc::default(), watch::Sender::default(), Arc::default());
        Self { replacer, orders, changed, detector, board }
    }

    /// Changes to whose turn it is.
    pub(crate) fn subscribe(&self) -> watch::Receiver<BTreeMap<String, Order>> {
        self.orders.subscribe()
    }

    /// Waits for a change.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What is known.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Replacer) -> T) -> T {
        look(&self.replacer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the core, and tells routes, drivers, the board and the log what comes of it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Replacer)) {
        let mut replacer = self.replacer.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut replacer);
        replacer.settle(|out| self.detector.replace(out));
        let orders = replacer.orders();
        self.orders.send_if_modified(|known| {
            let differs = *known != orders;
            *known = orders;
            differs
        });
        self.changed.notify_one();
        if replacer.goal.is_some() {
            return;
        }
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

    /// Takes note of who leads and of what fails, and says in the log for whom it waits, for as
    /// long as it is polled.
    pub(crate) async fn run(self, mut leads: watch::Receiver<bool>) {
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
