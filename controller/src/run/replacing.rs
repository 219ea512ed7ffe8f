// SPDX-License-Identifier: Apache-2.0
//! New programs, one switch at a time: whose turn it is, and what has to be so before the next step. A core without sockets or a clock,
//! and a handle on it that all drivers share.
//!
//! ```text
//!           routes lead      it holds            routes lead     its counters
//!           around it        its tables          over it again   are looked at
//!  waits ─► Around ────────► Replace ──────────► Back ─────────► Check ─────────► the next one
//!     │     (no way round)      ▲ │ refuses, gone                  │ not healthy
//!     └─────────────────────────┘ └─► stays out, tried again       └─► Unhealthy: stays out until SIGHUP
//! ```
//!
//! The order is a roll-out's: the tier furthest from hosts first. Nobody else's turn comes while a switch has one. A switch without a program
//! carries no traffic, and is brought in place without a turn.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::board::Board;
use super::faults::Detector;
use crate::fleet::Shared;
use crate::topology::Avoid;

/// What a driver knows of its switch.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    /// Not connected, and why: routes lead around it as a dead one.
    Unreached(String),
    /// Connected, and either not ours to write to or not looked at yet.
    Unknown,
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

/// What the switch whose turn it is may do.
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

#[derive(Debug, Clone)]
struct Turn {
    switch: String,
    /// There is a way round it.
    is_spared: bool,
    phase: Phase,
    /// Why it is not in place yet.
    failure: Option<String>,
}

/// How far the replacing of programs has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacing {
    /// Switches that run another program and wait for their turn.
    pub waiting: Vec<String>,
    /// The one whose turn it is.
    pub switch: Option<String>,
    /// Why it does not go on.
    pub stopped: Option<String>,
}

impl Replacing {
    /// No switch waits.
    pub fn is_over(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Replacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 6;
        let Self { waiting, switch, stopped } = self;
        f.write_str("new programs: ")?;
        match switch {
            Some(switch) => write!(f, "it is {switch}'s turn")?,
            None => f.write_str("it is nobody's turn")?,
        }
        if !waiting.is_empty() {
            let shown: Vec<&str> = waiting.iter().take(SHOWN).map(String::as_str).collect();
            write!(f, ", {} more wait ({}", waiting.len(), shown.join(", "))?;
            f.write_str(if waiting.len() > SHOWN { ", …)" } else { ")" })?;
        }
        match stopped {
            Some(why) => write!(f, "; it does not go on: {why}"),
            None => Ok(()),
        }
    }
}

/// The core.
///
/// [`Replacer::of`] with every file, [`Replacer::see`] for what a driver knows, [`Replacer::leads`] and [`Replacer::checked`] when they say
/// so; after each of these, and when routes leave out something else, [`Replacer::settle`]. Then [`Replacer::order`] and [`Replacer::told`]
/// may be others.
#[derive(Default)]
pub(super) struct Replacer {
    shared: Option<Arc<Shared>>,
    /// Of the file: what drivers tell of an earlier one does not count.
    number: u64,
    seen: BTreeMap<String, Seen>,
    avoid: Arc<Avoid>,
    leads: bool,
    turn: Option<Turn>,
    /// A person has to say that it may go on.
    stopped: Option<String>,
    /// Why nobody's turn comes although some wait.
    waits: Option<String>,
}

impl Replacer {
    /// Another file, and its number.
    pub(super) fn of(&mut self, number: u64, shared: Arc<Shared>) {
        let is_new = |name: &String| match self.seen.get(name) {
            Some(Seen::Unreached(why)) => Seen::Unreached(why.clone()),
            _ => Seen::Unknown,
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
    fn settle(&mut self, avoids: impl Fn(Option<(String, String)>) -> Arc<Avoid>) {
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
            self.turn = None;
        }
    }

    /// A person says that it may go on.
    pub(super) fn insist(&mut self) {
        self.stopped = None;
        let is_gone = |turn: &Turn| matches!(self.seen.get(&turn.switch), Some(Seen::Unreached(_)));
        if self.turn.as_ref().is_some_and(is_gone) {
            // Dead switches are out of routes all the same, and hold up nobody who starts.
            self.turn = None;
        }
        if let Some(turn) = &mut self.turn
            && turn.phase == Phase::Unhealthy
        {
            turn.phase = Phase::Around;
        }
    }

    /// What the counters of a switch say.
    pub(super) fn checked(&mut self, switch: &str, outcome: Result<(), String>) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.switch == switch) else { return };
        if turn.phase != Phase::Check {
            return;
        }
        match outcome {
            Ok(()) => self.turn = None,
            Err(why) => {
                turn.phase = Phase::Unhealthy;
                self.stopped = Some(format!("{switch} is in place, but not healthy: {why}"));
            }
        }
    }

    /// The switch that routes are to leave out, and why.
    fn out(&self) -> Option<(String, String)> {
        let turn = self.turn.as_ref().filter(|turn| turn.is_spared)?;
        let why = match turn.phase {
            Phase::Around | Phase::Replace => "it is given its new program",
            Phase::Unhealthy => "it is not healthy since it was given its new program",
            Phase::Back | Phase::Check => return None,
        };
        Some((turn.switch.clone(), why.to_owned()))
    }

    /// Whose turn it is, and what it may do.
    fn order(&self) -> Option<(String, Order)> {
        let turn = self.turn.as_ref()?;
        let order = match turn.phase {
            Phase::Replace => Order::Replace,
            Phase::Check => Order::Check,
            _ => return None,
        };
        Some((turn.switch.clone(), order))
    }

    fn told(&self) -> Replacing {
        let switch = self.turn.as_ref().map(|turn| turn.switch.clone());
        let waiting = self.seen.iter().filter(|(_, seen)| matches!(seen, Seen::Another(_)));
        let waiting = waiting.map(|(name, _)| name.clone()).filter(|name| Some(name) != switch.as_ref());
        let failing = self.turn.as_ref().and_then(|turn| {
            let why = turn.failure.as_ref()?;
            Some(format!("{} is not in place: {why}", turn.switch))
        });
        let stopped = self.stopped.clone().or(failing).or_else(|| self.waits.clone());
        Replacing { waiting: waiting.collect(), switch, stopped }
    }

    /// As far as it goes, until routes are to leave out something else.
    fn step(&mut self) {
        self.waits = None;
        let out = self.out();
        while let Some(shared) = self.shared.clone() {
            let is_further = match self.turn.clone() {
                None => self.begin(&shared),
                Some(turn) => self.go_on(turn),
            };
            if !is_further || self.out() != out {
                return;
            }
        }
    }

    /// Gives the next switch its turn.
    fn begin(&mut self, shared: &Shared) -> bool {
        let topology = shared.compiler.topology();
        // Ordered as a roll-out is: who has most links to hosts, first.
        let waiting = self.seen.iter().filter(|(_, seen)| matches!(seen, Seen::Another(_)));
        let next = waiting.min_by_key(|(name, _)| (std::cmp::Reverse(topology.tier(name)), *name));
        let Some((switch, _)) = next.filter(|_| self.leads && self.stopped.is_none()) else { return false };
        // Who is not known yet may be the first, or may not lead around it.
        if self.seen.values().any(|seen| *seen == Seen::Unknown) {
            return false;
        }
        let out = std::iter::once(switch.clone()).collect();
        let is_spared = topology.spares_beside(&out, &self.avoid);
        if !is_spared && topology.spares(&out, &self.avoid.drained) {
            self.waits = Some(format!("{switch} waits: what has failed elsewhere was the way round it"));
            return false;
        }
        if let Some((other, why)) = self.failing(switch, is_spared) {
            self.waits = Some(format!("{switch} waits for {other}: {why}"));
            return false;
        }
        let phase = if is_spared { Phase::Around } else { Phase::Replace };
        if !is_spared {
            let saves =
                shared.compiler.fabric().switches.get(switch).is_some_and(|s| s.target.saves_programs());
            let how = if saves {
                "the new one takes over when its tables are written"
            } else {
                "it forwards nothing until the new one's tables are written"
            };
            tracing::warn!(%switch, "its program is replaced, and there is no way round it: {how}");
        }
        self.turn = Some(Turn { switch: switch.clone(), is_spared, phase, failure: None });
        true
    }

    /// One that keeps another's turn from beginning: it does not come in place; or, where routes have to lead around, does not take them.
    fn failing(&self, switch: &str, is_spared: bool) -> Option<(&str, &str)> {
        let others = self.seen.iter().filter(|(name, _)| *name != switch);
        let mut failing = others.filter(|(_, seen)| is_spared || matches!(seen, Seen::Failed(_)));
        failing.find_map(|(name, seen)| Some((name.as_str(), seen.failure()?)))
    }

    /// Whether the others' routes leave a switch out, or do not, as is wanted by now. Dead ones have none.
    fn all_lead(&self, switch: &str) -> bool {
        let is_out = |avoid: &Avoid| avoid.drained.contains(switch);
        let leads = |(name, seen): (&String, &Seen)| match seen {
            _ if name == switch => true,
            Seen::Unreached(_) | Seen::Failed(_) | Seen::Another(Err(_)) => true,
            Seen::Unknown => false,
            seen => seen.routes().is_some_and(|avoid| is_out(avoid) == is_out(&self.avoid)),
        };
        self.seen.iter().all(leads)
    }

    fn go_on(&mut self, turn: Turn) -> bool {
        let Turn { switch, is_spared, phase, .. } = &turn;
        let failing = self.failing(switch, *is_spared).map(|(other, why)| format!("{other}: {why}"));
        let next = match (phase, self.seen.get(switch)) {
            // It left the file, or is dead before anything was done to it.
            (_, None) | (Phase::Around, Some(Seen::Unreached(_))) => None,
            (Phase::Around | Phase::Replace, Some(Seen::InPlace(_))) => Some(Phase::Back),
            (Phase::Around, _) if failing.is_some() => {
                let why = failing.unwrap_or_default();
                self.stopped = Some(format!("no routes around {switch}: {why}"));
                None
            }
            (Phase::Around, Some(Seen::Another(_)))
                if self.avoid.drained.contains(switch) && self.all_lead(switch) =>
            {
                Some(Phase::Replace)
            }
            (Phase::Back | Phase::Check | Phase::Unhealthy, Some(Seen::Another(_))) => {
                // Another file came meanwhile.
                Some(if *is_spared { Phase::Around } else { Phase::Replace })
            }
            (Phase::Back | Phase::Check, Some(Seen::Unreached(_) | Seen::Failed(_))) => Some(Phase::Replace),
            (Phase::Replace, Some(Seen::Unreached(why) | Seen::Failed(why))) => {
                // Tried again by its driver, and nobody else's turn until then.
                let failure = Some(why.clone());
                self.turn = Some(Turn { failure, ..turn });
                return false;
            }
            (Phase::Back, Some(Seen::InPlace(_))) if self.all_lead(switch) => Some(Phase::Check),
            _ => return false,
        };
        self.turn = next.map(|phase| Turn { phase, failure: None, ..turn });
        true
    }
}

/// The drivers' common [`Replacer`]; clones are the same one.
#[derive(Clone)]
pub(super) struct Replacements {
    replacer: Arc<Mutex<Replacer>>,
    order: watch::Sender<Option<(String, Order)>>,
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
        Self { replacer: Arc::default(), order: watch::Sender::default(), detector, board }
    }

    /// Changes to whose turn it is.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<(String, Order)>> {
        self.order.subscribe()
    }

    /// Changes the core, and tells routes, drivers, the board and the log what comes of it.
    pub(super) fn change(&self, change: impl FnOnce(&mut Replacer)) {
        let mut replacer = self.replacer.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut replacer);
        replacer.settle(|out| self.detector.replace(out.into_iter().collect()));
        let order = replacer.order();
        self.order.send_if_modified(|known| {
            let differs = *known != order;
            *known = order;
            differs
        });
        let told = replacer.told();
        let before = self.board.change(|status| std::mem::replace(&mut status.replacing, told.clone()));
        if told.stopped.is_some() && told.stopped != before.stopped {
            tracing::warn!("{told}");
        } else if told.is_over() && !before.is_over() {
            tracing::info!("no switch waits for a new program any more");
        } else if told.switch != before.switch && told.switch.is_some() {
            tracing::info!("{told}");
        }
    }

    /// Takes note of who leads and of what fails, for as long as it is polled.
    pub(super) async fn run(self, mut leads: watch::Receiver<bool>) {
        let mut avoid = self.detector.subscribe();
        loop {
            let is_leader = *leads.borrow_and_update();
            avoid.mark_unchanged();
            // What fails is asked for by every change.
            self.change(|replacer| replacer.leads(is_leader));
            tokio::select! {
                Ok(()) = leads.changed() => {}
                Ok(()) = avoid.changed() => {}
                else => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
