// SPDX-License-Identifier: Apache-2.0
//! One switch's life under a controller that keeps running, as a state machine without sockets or a
//! clock.
//!
//! ```text
//!              Connect            told: primary
//!  Waiting ──────────► Connecting ───────────────► Primary: Reconcile, rest, Reconcile, …
//!     ▲                    │  told: backup             │ ▲
//!     │ lost, with         ▼                   demoted │ │ promoted
//!     │ back-off        Backup: Compare, rest, … ◄─────┘─┘
//!     └──────────────────── nobody is primary any more: Connect with a higher election id
//! ```
//!
//! While another controller leads the fabric ([`Event::Leads`]) a primary compares, as a backup
//! does, and nobody bids.
//!
//! A switch that runs another program keeps it until it is its turn ([`Event::MayReplace`]). Until
//! then a pass brings its routes to what is wanted, in the terms of the program that it has, and
//! ends with [`Event::Waits`].
//!
//! Order of calls: [`SwitchTask::new`]; then [`SwitchTask::handle_event`] for what happens and
//! [`SwitchTask::handle_timeout`] when [`SwitchTask::poll_timeout`] says; after each of these,
//! drain [`SwitchTask::poll_action`] and carry the actions out in order. At most one of Connect,
//! Reconcile, Compare and ReadCounters is under way at a time.
//!
//! Between two audits, which read all tables, a switch that is in place has only its counters read
//! (ReadCounters): who else writes to it becomes its primary first, and that is told.

mod pass;
mod vocabulary;

use std::collections::VecDeque;

pub(crate) use self::vocabulary::Runs;
pub(crate) use self::vocabulary::{Action, Comparison, Event, Loss, Notice, Standing};
use super::backoff::Backoff;
use super::status::{Tally, View};
use crate::report::SwitchReport;

/// How long a backup leaves others the chance to become primary, at least and at most, before it
/// bids higher itself.
const GRACE_NS: (u64, u64) = (100_000_000, 400_000_000);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Busy,
    Resting { until: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting {
        until: u64,
    },
    Connecting,
    Primary(Work),
    Backup {
        work: Work,
        highest: Option<u128>,
        /// When to bid for a place that nobody has.
        bid_at: Option<u64>,
    },
    Stopped,
}

/// What of a switch's state is known to have been in place, so that what differs has drifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expects {
    /// Not since the fabric file was last changed.
    Nothing,
    /// The program, as other routes are wanted than it was last given.
    Program,
    All,
}

/// The state machine.
#[derive(Debug)]
pub(crate) struct SwitchTask {
    interval: u64,
    /// Between two audits, which read all tables.
    audit: u64,
    /// When the next one is due.
    audit_at: u64,
    /// From the settings.
    election_id: u128,
    /// What we bid with: higher than `election_id` after taking over from somebody higher.
    bid: u128,
    state: State,
    backoff: Backoff,
    /// We lead the fabric.
    leads: bool,
    /// Nobody is primary, as the switch told last.
    is_vacant: bool,
    /// Since when another primary's switch has held something else than our file says.
    differs_since: Option<u64>,
    expects: Expects,
    /// The fabric file, or whose turn it is, changed during a pass.
    again: bool,
    /// Routes were detoured during a pass that may not know of it.
    lags: bool,
    /// What is under way is a reading of counters, which may be dropped for something urgent.
    may_reroute: bool,
    runs: Runs,
    in_place: Option<bool>,
    /// Why the last pass failed, of this connection.
    failure: Option<String>,
    last_success: Option<u64>,
    tally: Tally,
    actions: VecDeque<Action>,
    notices: VecDeque<Notice>,
}

impl SwitchTask {
    /// A task that connects at once. `interval` and `audit` are in ns: between two readings, and
    /// between two of all tables.
    pub(crate) fn new(name: &str, election_id: u128, interval: u64, audit: u64, now: u64) -> Self {
        Self {
            interval,
            audit,
            audit_at: now,
            election_id,
            bid: election_id,
            state: State::Waiting { until: now },
            backoff: Backoff::new(name),
            leads: true,
            is_vacant: false,
            differs_since: None,
            expects: Expects::Nothing,
            again: false,
            lags: false,
            may_reroute: false,
            runs: Runs::Unknown,
            in_place: None,
            failure: None,
            last_success: None,
            tally: Tally::default(),
            actions: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }

    /// Something happened.
    pub(crate) fn handle_event(&mut self, now: u64, event: Event) {
        match event {
            _ if self.state == State::Stopped => {}
            Event::Arbitrated(standing) => self.arbitrated(now, standing),
            Event::Lost(reason) => self.lost(now, reason),
            Event::Reconciled(report, loss) => self.reconciled(now, &report, loss),
            Event::Waits(outcome, loss) => self.waits(now, outcome, loss),
            Event::MayReplace => self.may_replace(),
            Event::Compared(outcome, loss) => self.compared(now, outcome, loss),
            Event::CountersRead(outcome, loss) => self.counters_read(now, outcome, loss),
            Event::FabricChanged => self.fabric_changed(),
            Event::Detoured => self.detoured(),
            Event::KnewDetours => self.lags = false,
            Event::Rerouted(outcome, loss) => self.rerouted(now, outcome, loss),
            Event::Leads(leads) => self.leads(now, leads),
            Event::Stop => {
                self.abandon();
                self.actions.push_back(Action::Disconnect);
                self.state = State::Stopped;
            }
        }
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: u64) {
        match self.state {
            State::Waiting { until } if until <= now => self.connect(),
            State::Primary(Work::Resting { until }) if until <= now && self.is_quiet(now) => {
                self.actions.push_back(Action::ReadCounters);
                self.may_reroute = true;
                self.state = State::Primary(Work::Busy);
            }
            State::Primary(Work::Resting { until }) if until <= now && self.leads => self.reconcile(),
            State::Primary(Work::Resting { until }) if until <= now => {
                self.actions.push_back(Action::Compare);
                self.state = State::Primary(Work::Busy);
            }
            State::Backup { highest, bid_at: Some(at), .. } if at <= now => self.take_over(highest),
            State::Backup { work: Work::Resting { until }, highest, bid_at } if until <= now => {
                self.actions.push_back(if self.is_quiet(now) {
                    Action::ReadCounters
                } else {
                    Action::Compare
                });
                self.state = State::Backup { work: Work::Busy, highest, bid_at };
            }
            _ => {}
        }
    }

    /// Whether there is no reason to read all tables: only a primary writes, and who is, is told.
    fn is_quiet(&self, now: u64) -> bool {
        self.in_place == Some(true) && self.failures() == 0 && now < self.audit_at
    }

    /// When [`SwitchTask::handle_timeout`] wants to be called.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        match self.state {
            State::Waiting { until } | State::Primary(Work::Resting { until }) => Some(until),
            State::Backup { work: Work::Resting { until }, bid_at, .. } => {
                Some(bid_at.map_or(until, |at| at.min(until)))
            }
            State::Backup { bid_at, .. } => bid_at,
            State::Connecting | State::Primary(Work::Busy) | State::Stopped => None,
        }
    }

    /// What to do next.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// What to tell people next.
    pub(crate) fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Whether the switch is connected.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Primary(_) | State::Backup { .. })
    }

    /// Whether we may write to it.
    pub(crate) fn is_primary(&self) -> bool {
        matches!(self.state, State::Primary(_))
    }

    /// How the switch stands to us, for the fabric's election.
    pub(super) fn view(&self, now: u64) -> View {
        match self.state {
            State::Primary(_) => View::Ours,
            State::Backup { .. } if self.is_vacant => View::Vacant,
            State::Backup { highest, .. } => {
                // Who is at work needs a while, too.
                let agrees = match (self.in_place, self.differs_since) {
                    (Some(true), _) => Some(true),
                    (_, Some(since)) if now.saturating_sub(since) >= self.audit => Some(false),
                    _ => None,
                };
                View::Theirs { id: highest, agrees }
            }
            State::Waiting { .. } | State::Connecting | State::Stopped => View::Unreached,
        }
    }

    /// Whether there is nothing more to come.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state == State::Stopped
    }

    /// Whether it held what it should when last seen; `None` before it was ever seen.
    pub(crate) fn in_place(&self) -> Option<bool> {
        self.in_place
    }

    /// What it runs, as far as that is known.
    pub(super) fn runs(&self) -> Runs {
        self.runs
    }

    /// Why the last pass over the connected switch failed; `None` where none did.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Failures since the last success.
    pub(crate) fn failures(&self) -> u32 {
        self.backoff.failures()
    }

    /// When it was last found, or brought, in place.
    pub(crate) fn last_success(&self) -> Option<u64> {
        self.last_success
    }

    /// What has been done.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    fn connect(&mut self) {
        self.actions.push_back(Action::Connect(self.bid));
        self.state = State::Connecting;
    }

    fn reconcile(&mut self) {
        (self.again, self.lags) = (false, false);
        self.may_reroute = false;
        self.actions.push_back(Action::Reconcile);
        self.state = State::Primary(Work::Busy);
    }

    fn abandon(&mut self) {
        if matches!(
            self.state,
            State::Connecting | State::Primary(Work::Busy) | State::Backup { work: Work::Busy, .. }
        ) {
            self.actions.push_back(Action::Abandon);
        }
    }

    /// When to bid for a switch without a primary; never while another controller leads the fabric.
    fn bid_at(&self, now: u64) -> Option<u64> {
        let (least, most) = GRACE_NS;
        // The backups of a switch must not all bid at once: their election ids differ, so their
        // waits do.
        let own = (self.election_id as u64) ^ ((self.election_id >> 64) as u64);
        let wait = least + self.backoff.share(own, most - least);
        (self.is_vacant && self.leads).then(|| now.saturating_add(wait))
    }

    fn leads(&mut self, now: u64, leads: bool) {
        if std::mem::replace(&mut self.leads, leads) == leads {
            return;
        }
        self.runs = Runs::Unknown;
        match self.state {
            State::Primary(work) => {
                if work == Work::Busy {
                    self.abandon();
                }
                if leads { self.reconcile() } else { self.rest(now) }
            }
            State::Backup { work, highest, .. } => {
                self.state = State::Backup { work, highest, bid_at: self.bid_at(now) };
            }
            _ => {}
        }
    }

    fn arbitrated(&mut self, now: u64, standing: Standing) {
        self.is_vacant = matches!(standing, Standing::Backup { primary_exists: false, .. });
        if standing != Standing::Primary {
            self.runs = Runs::Unknown;
        }
        self.differs_since = None;
        let bid_at = self.bid_at(now);
        let connected = self.is_up();
        match (standing, self.state) {
            (_, State::Waiting { .. } | State::Stopped) | (Standing::Primary, State::Primary(_)) => return,
            (Standing::Primary, _) => {
                if connected {
                    self.abandon();
                }
                if self.leads { self.reconcile() } else { self.rest(now) }
            }
            (Standing::Backup { highest, .. }, State::Backup { work, .. }) => {
                self.state = State::Backup { work, highest, bid_at };
                return;
            }
            (Standing::Backup { highest, .. }, _) => {
                if connected {
                    self.abandon();
                }
                self.actions.push_back(Action::Compare);
                self.state = State::Backup { work: Work::Busy, highest, bid_at };
            }
        }
        self.notices.push_back(if connected { Notice::Changed(standing) } else { Notice::Up(standing) });
    }

    fn take_over(&mut self, highest: Option<u128>) {
        let Some(bid) = highest.unwrap_or(0).checked_add(1).map(|next| next.max(self.election_id)) else {
            // Nothing is higher than the highest id: wait for its owner.
            if let State::Backup { work, .. } = self.state {
                self.state = State::Backup { work, highest, bid_at: None };
            }
            return;
        };
        self.abandon();
        self.actions.push_back(Action::Disconnect);
        self.notices.push_back(Notice::TakingOver(bid));
        self.bid = bid;
        self.connect();
    }

    fn lost(&mut self, now: u64, reason: String) {
        match self.state {
            State::Waiting { .. } | State::Stopped => return,
            // Somebody else may have the id that was bid for.
            State::Connecting => self.bid = self.election_id,
            _ => self.abandon(),
        }
        self.actions.push_back(Action::Disconnect);
        // Nobody knows what it will hold when it is back.
        (self.in_place, self.runs, self.failure) = (None, Runs::Unknown, None);
        let wait = self.backoff.failed();
        self.state = State::Waiting { until: now.saturating_add(wait) };
        self.notices.push_back(Notice::Down(reason, wait));
    }

    fn reconciled(&mut self, now: u64, report: &SwitchReport, loss: Loss) {
        if self.state != State::Primary(Work::Busy) {
            return;
        }
        self.tally.refused += report.refused.len() as u64;
        let has_drifted = match self.expects {
            Expects::Nothing => false,
            Expects::Program => report.pipeline_pushed,
            Expects::All => report.pipeline_pushed || report.written.total() > 0,
        };
        if has_drifted {
            let repaired = pass::drift(report);
            for (kind, count) in &repaired {
                *self.tally.drift.entry(*kind).or_default() += count;
            }
            if report.is_ok() {
                // After a push everything was missing.
                let told = if report.pipeline_pushed { &[] } else { report.found.as_slice() };
                let words = told.iter().map(ToString::to_string).collect();
                self.notices.push_back(Notice::Repaired(repaired, words));
            }
        }
        // What it should have held when the pass began, it should no longer.
        self.in_place = Some(report.is_ok() && !self.is_overtaken());
        if report.is_ok() {
            self.tally.succeeded += 1;
            self.last_success = Some(now);
            self.succeeded();
            self.audited(now);
            if !self.is_overtaken() {
                self.runs = Runs::Wanted;
            }
            if self.expects != Expects::All && !self.is_overtaken() {
                self.expects = Expects::All;
                if !has_drifted {
                    self.notices.push_back(Notice::InPlace(report.written.total()));
                }
            }
            self.rest(now);
        } else {
            self.tally.failed += 1;
            let reason = pass::why(report);
            if loss == Loss::Connection {
                return self.lost(now, reason);
            }
            self.runs = Runs::Unknown;
            self.try_again(now, reason);
        }
        if self.is_overtaken() {
            self.reconcile();
        }
    }

    /// It goes on with the program that it has. What it should hold by that is none of ours but its
    /// routes.
    fn waits(&mut self, now: u64, outcome: Result<(), String>, loss: Loss) {
        if self.state != State::Primary(Work::Busy) {
            return;
        }
        self.in_place = Some(false);
        if !self.is_overtaken() && std::mem::replace(&mut self.runs, Runs::Another) != Runs::Another {
            self.notices.push_back(Notice::Waits);
        }
        match outcome {
            Ok(()) => {
                self.succeeded();
                self.rest(now);
            }
            Err(reason) if loss == Loss::Connection => return self.lost(now, reason),
            Err(reason) => self.try_again(now, reason),
        }
        if self.is_overtaken() {
            self.reconcile();
        }
    }

    fn may_replace(&mut self) {
        match self.state {
            State::Primary(Work::Busy) => self.again = true,
            State::Primary(Work::Resting { .. }) if self.leads => self.reconcile(),
            // Who is connected anew reconciles.
            _ => {}
        }
    }

    fn compared(&mut self, now: u64, outcome: Result<Comparison, String>, loss: Loss) {
        if !self.is_busy() {
            return;
        }
        match outcome {
            Ok(found) => {
                let in_place = found.program && found.differing == 0;
                self.in_place = Some(in_place);
                self.succeeded();
                self.audited(now);
                if in_place {
                    self.last_success = Some(now);
                    self.differs_since = None;
                } else {
                    self.differs_since.get_or_insert(now);
                }
                self.rest(now);
            }
            Err(reason) => self.failed(now, reason, loss),
        }
    }

    fn counters_read(&mut self, now: u64, outcome: Result<bool, String>, loss: Loss) {
        if !self.is_busy() {
            return;
        }
        match outcome {
            Ok(true) if !self.is_overtaken() => self.rest(now),
            // It was restarted, or something else is wanted of it by now.
            Ok(_) if self.is_primary() && self.leads => self.reconcile(),
            Ok(_) => self.actions.push_back(Action::Compare),
            Err(reason) => self.failed(now, reason, loss),
        }
    }

    /// Reading failed.
    fn failed(&mut self, now: u64, reason: String, loss: Loss) {
        if loss == Loss::Connection {
            return self.lost(now, reason);
        }
        self.try_again(now, reason);
    }

    fn succeeded(&mut self) {
        self.backoff.succeeded();
        self.failure = None;
    }

    fn try_again(&mut self, now: u64, reason: String) {
        let wait = self.backoff.failed();
        self.failure = Some(reason.clone());
        self.notices.push_back(Notice::Failed(reason, wait));
        self.rest_until(now.saturating_add(wait));
    }

    /// All tables were read: the next time is a little earlier for some switches than for others.
    fn audited(&mut self, now: u64) {
        let early = self.backoff.share(self.tally.succeeded ^ 1, self.audit / 8);
        self.audit_at = now.saturating_add(self.audit - early);
    }

    fn fabric_changed(&mut self) {
        (self.expects, self.runs, self.failure) = (Expects::Nothing, Runs::Unknown, None);
        match self.state {
            State::Primary(Work::Busy) => self.again = true,
            State::Primary(Work::Resting { .. }) if self.leads => self.reconcile(),
            _ => {}
        }
    }

    /// A switch that is in place is written the difference at once; another is being brought there,
    /// or will be, and what it should have held before is no drift. The program does not depend on
    /// routes.
    fn detoured(&mut self) {
        match self.state {
            State::Primary(Work::Busy) if self.may_reroute && self.in_place == Some(true) => {
                self.actions.push_back(Action::Abandon);
                self.reroute();
            }
            State::Primary(Work::Busy) => {
                self.lags = true;
                self.expects_other_routes();
            }
            State::Primary(Work::Resting { .. }) if !self.leads => {}
            State::Primary(_) if self.in_place == Some(true) => self.reroute(),
            State::Primary(_) => {
                self.expects_other_routes();
                self.reconcile();
            }
            _ => self.expects_other_routes(),
        }
    }

    fn expects_other_routes(&mut self) {
        if self.expects == Expects::All {
            self.expects = Expects::Program;
        }
    }

    fn reroute(&mut self) {
        (self.again, self.lags) = (false, false);
        self.may_reroute = false;
        self.actions.push_back(Action::Reroute);
        self.state = State::Primary(Work::Busy);
    }

    fn rerouted(&mut self, now: u64, outcome: Result<usize, String>, loss: Loss) {
        if self.state != State::Primary(Work::Busy) {
            return;
        }
        match outcome {
            Ok(written) => {
                if written > 0 {
                    self.notices.push_back(Notice::Rerouted(written));
                }
                if self.is_overtaken() {
                    self.reroute();
                } else {
                    self.rest(now);
                }
            }
            Err(reason) if loss == Loss::Connection => self.lost(now, reason),
            // What was written and what was not, reading tells.
            Err(reason) => {
                self.notices.push_back(Notice::Failed(reason, 0));
                self.expects_other_routes();
                self.reconcile();
            }
        }
    }

    /// Something else is wanted by now than what the pass under way was about.
    fn is_overtaken(&self) -> bool {
        self.again || self.lags
    }

    fn is_busy(&self) -> bool {
        matches!(self.state, State::Primary(Work::Busy) | State::Backup { work: Work::Busy, .. })
    }

    fn rest(&mut self, now: u64) {
        self.rest_until(now.saturating_add(self.resting_time()));
    }

    fn rest_until(&mut self, until: u64) {
        let work = Work::Resting { until };
        self.state = match self.state {
            State::Backup { highest, bid_at, .. } => State::Backup { work, highest, bid_at },
            _ => State::Primary(work),
        };
    }

    /// The interval, a little shorter for some switches than for others, so that they are not all
    /// read at once.
    fn resting_time(&self) -> u64 {
        self.interval - self.backoff.share(self.tally.succeeded, self.interval / 8)
    }
}

#[cfg(test)]
mod tests;
