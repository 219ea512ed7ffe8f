// SPDX-License-Identifier: Apache-2.0
//! Thresholds that follow the load, slowly: within microseconds the ladder in the switch answers. A core without sockets or a clock.
//!
//! ```text
//!  counters ─► window ─► measured ─► advice ─► proposed ─► twice in a row ─► on trial ─► kept
//!             `every`   load,       least      (told)      (apply)            │
//!                       burst       loss                                      └──────► taken back, and a pause that doubles
//! ```
//!
//! [`Follow::handle_counters`] as counters are read, [`Follow::handle_timeout`] when [`Follow::poll_timeout`] says; after that
//! [`Follow::poll_notice`], and [`Follow::policies`] if [`Follow::poll_change`] says so.
//!
//! Ports that share a policy have one policy afterwards: that of the port that refused most packets.

mod advice;
mod measure;

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::advice::{Advised, Advisor, Terms};
pub use self::measure::Measured;
use self::measure::{Window, worst};
use crate::counters::Counters;
use crate::model::{End, Fabric, FollowSettings, Follows, PortPolicy, QueuePlan, QueuePolicy};
use crate::units;

/// Refused packets from which on bursts are inferred: their number is good to a tenth.
const TELLING: f64 = 100.0;
/// Packets without which a trial is not judged.
const JUDGED: u64 = 1_000;
/// What the model has to gain before anything changes.
const MARGIN: f64 = 0.1;
/// Dropped trimmed packets rise when their share is so much larger, and this much in all.
const RISE: (f64, f64) = (1.2, 1e-4);
/// Of the trim queue's room: what it held at most, if bursts fit into queues.
const FULL: f64 = 0.5;
/// Windows that a pause lasts at most: a day of five minutes each.
const LONGEST_PAUSE: u32 = 288;

/// Ports that share a policy, as a `run` tells of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Following {
    /// Which: `10Gbps to hosts`, or `switch:port`.
    pub ports: String,
    /// Of the last window in which anything was offered.
    pub measured: Option<Measured>,
    /// Nothing was offered in the last window.
    pub is_idle: bool,
    /// What is proposed, as a piece of a fabric file.
    pub proposal: Option<String>,
    /// What was decided last, and why.
    pub reason: String,
    /// Proposals.
    pub proposed: u64,
    /// Policies that were tried.
    pub applied: u64,
    /// Of these, those that were taken back.
    pub taken_back: u64,
}

impl Following {
    /// Whether the port refused packets in the last window.
    pub fn refuses(&self) -> bool {
        !self.is_idle && self.measured.as_ref().is_some_and(|measured| measured.refused > 0.0)
    }
}

impl fmt::Display for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thresholds of {}: ", self.ports)?;
        if let Some(measured) = self.measured.as_ref().filter(|_| !self.is_idle) {
            write!(f, "{measured}; ")?;
        }
        f.write_str(&self.reason)
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, load, refused, trim_dropped, burst, .. } = self;
        write!(f, "load {load:.2} at {port}")?;
        if let Some(burst) = burst {
            write!(f, " as if in bursts of {burst}")?;
        }
        write!(f, ", {:.3} % refused, {:.3} % dropped after trimming", 100.0 * refused, 100.0 * trim_dropped)
    }
}

/// What is watched once thresholds are not the file's.
#[derive(Debug)]
struct Trial {
    /// What comes back if more trimmed packets are dropped.
    before: Arc<PortPolicy>,
    /// The share of dropped trimmed packets before.
    trim_dropped: f64,
    /// No window has ended since.
    is_new: bool,
}

/// Ports that share a policy.
#[derive(Debug)]
struct Group {
    rate_bps: u64,
    file: Arc<PortPolicy>,
    current: Arc<PortPolicy>,
    windows: BTreeMap<(String, u16), Window>,
    /// The window before had something to gain, too.
    again: bool,
    /// What was proposed last, as long as it stands.
    proposed: Option<PortPolicy>,
    trial: Option<Trial>,
    /// Windows to let pass.
    pause: u32,
    /// What was taken back since the last success.
    failures: u32,
    told: Following,
}

/// The core.
#[derive(Debug)]
pub(crate) struct Follow {
    settings: FollowSettings,
    terms: Terms,
    /// What the file gives to ports.
    file: BTreeMap<String, BTreeMap<u16, Arc<PortPolicy>>>,
    groups: Vec<Group>,
    /// By switch and port.
    group_of: BTreeMap<String, BTreeMap<u16, usize>>,
    due: u64,
    notices: VecDeque<String>,
    /// Policies have changed, and nobody has asked for them.
    is_changed: bool,
}

impl Follow {
    /// Begins with the thresholds of a fabric file.
    pub(crate) fn new(fabric: &Fabric, now: u64) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of: BTreeMap<String, BTreeMap<u16, usize>> = BTreeMap::new();
        let mut ports: Vec<Vec<String>> = Vec::new();
        for (switch, policies) in &fabric.policies {
            for (port, policy) in policies {
                let known = groups.iter().position(|group| Arc::ptr_eq(&group.file, policy));
                let at = known.unwrap_or(groups.len());
                if known.is_none() {
                    groups.push(Group::new(policy));
                    ports.push(Vec::new());
                }
                if let Some(ports) = ports.get_mut(at) {
                    ports.push(format!("{switch}:{port}"));
                }
                group_of.entry(switch.clone()).or_default().insert(*port, at);
            }
        }
        for (group, ports) in groups.iter_mut().zip(&ports) {
            group.told.ports = name(fabric, group.rate_bps, ports);
        }
        let settings = fabric.follow;
        let terms = Terms { queues: fabric.queues.clone(), packet: fabric.data_packet() };
        let due = now.saturating_add(settings.every_ns);
        let file = fabric.policies.clone();
        Self { settings, terms, file, groups, group_of, due, notices: VecDeque::new(), is_changed: false }
    }

    /// A switch's counters at `now`.
    pub(crate) fn handle_counters(&mut self, now: u64, switch: &str, counters: &Counters) {
        for (port, at) in self.group_of.get(switch).into_iter().flatten() {
            let Some(group) = self.groups.get_mut(*at) else { continue };
            let window = group.windows.entry((switch.to_owned(), *port)).or_default();
            window.add(now, counters, *port, (group.rate_bps, &self.terms.queues));
        }
    }

    /// When a window ends.
    pub(crate) fn poll_timeout(&self) -> u64 {
        self.due
    }

    /// A window may have ended. Only who leads the fabric changes anything. Takes milliseconds of computing.
    pub(crate) fn handle_timeout(&mut self, now: u64, leads: bool) {
        if now < self.due {
            return;
        }
        self.due = now.saturating_add(self.settings.every_ns);
        for group in &mut self.groups {
            let before = Arc::clone(&group.current);
            group.judge(&self.settings, &self.terms, leads, &mut self.notices);
            self.is_changed |= !Arc::ptr_eq(&before, &group.current);
            group.windows.values_mut().for_each(Window::begin);
        }
    }

    /// What to tell people next.
    pub(crate) fn poll_notice(&mut self) -> Option<String> {
        self.notices.pop_front()
    }

    /// What is known of each group of ports.
    pub(crate) fn told(&self) -> Vec<Following> {
        self.groups.iter().map(|group| group.told.clone()).collect()
    }

    /// Whether policies have changed since it was last asked.
    pub(crate) fn poll_change(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Whether a fabric file says what this began with.
    pub(crate) fn is_of(&self, fabric: &Fabric) -> bool {
        self.settings == fabric.follow && self.terms.queues == fabric.queues && self.file == fabric.policies
    }

    /// The policies that ports are to have, by switch and port.
    pub(crate) fn policies(&self) -> BTreeMap<String, BTreeMap<u16, Arc<PortPolicy>>> {
        let current = |at: &usize| self.groups.get(*at).map(|group| Arc::clone(&group.current));
        let of_switch = |ports: &BTreeMap<u16, usize>| {
            ports.iter().filter_map(|(port, at)| Some((*port, current(at)?))).collect()
        };
        self.group_of.iter().map(|(switch, ports)| (switch.clone(), of_switch(ports))).collect()
    }
}

/// Kinds of ports by their speed and what is behind them; a port that the file names by itself.
fn name(fabric: &Fabric, rate_bps: u64, ports: &[String]) -> String {
    let [first, _, ..] = ports else { return ports.first().cloned().unwrap_or_default() };
    let to_host = fabric.links.iter().any(|link| {
        let ends = [&link.a, &link.b];
        let is_first = |end: &&End| end.to_string() == *first;
        ends.iter().any(is_first) && ends.iter().any(|end| matches!(end, End::Host(_)))
    });
    let word = if to_host { "to hosts" } else { "between switches" };
    format!("{} {word}", units::rate_text(rate_bps))
}

impl Group {
    fn new(file: &Arc<PortPolicy>) -> Self {
        Self {
            rate_bps: file.rate_bps,
            file: Arc::clone(file),
            current: Arc::clone(file),
            windows: BTreeMap::new(),
            again: false,
            proposed: None,
            trial: None,
            pause: 0,
            failures: 0,
            told: Following { reason: "the first window has not ended".to_owned(), ..Following::default() },
        }
    }

    /// What follows from the window that ends.
    fn judge(
        &mut self,
        settings: &FollowSettings,
        terms: &Terms,
        leads: bool,
        notices: &mut VecDeque<String>,
    ) {
        let found = worst(&self.windows);
        self.told.is_idle = found.is_none();
        let Some(measured) = found else {
            self.stays("nothing was offered");
            return;
        };
        let measured = self.told.measured.insert(measured);
        if measured.refused * measured.packets as f64 >= TELLING {
            let burst = Advisor::new(terms, measured).burst(&self.current);
            measured.burst = Some(burst);
        }
        let measured = measured.clone();
        if settings.follows == Follows::Measure || !leads {
            self.stays(if leads { "measured only" } else { "another controller leads" });
            return;
        }
        if self.is_judged(notices) {
            return;
        }
        if self.pause > 0 {
            self.pause -= 1;
            let reason =
                format!("paused for {} windows more: what was tried last was taken back", self.pause);
            self.stays(&reason);
            return;
        }
        let Some(burst) = measured.burst else {
            self.stays("too few packets were refused to learn from");
            return;
        };
        let trim_limit = self.file.queues.get(&terms.queues.trimmed).map_or(0, |[_, both]| both.trim_drop_at);
        if measured.trim_peak.is_some_and(|peak| peak as f64 >= FULL * f64::from(trim_limit)) {
            self.stays("bursts are larger than a queue: trimmed packets alone fill half of theirs");
            if !Arc::ptr_eq(&self.current, &self.file) {
                (self.current, self.trial) = (Arc::clone(&self.file), None);
                self.told.taken_back += 1;
                notices.push_back(format!("{}; the file's thresholds come back", self.told));
            }
            return;
        }
        let advisor = Advisor::new(terms, &measured);
        let loss = advisor.loss(&self.current, burst);
        let wanted = advisor.best(&self.file, burst);
        let within = advisor.within(&wanted.policy, &self.file, settings.band, burst);
        let is_further = within.policy != wanted.policy;
        let aim = if settings.follows == Follows::Apply { within } else { wanted };
        if aim.loss > loss * (1.0 - MARGIN) {
            let words = if is_further {
                "next to nothing to gain within the band"
            } else {
                "next to nothing to gain"
            };
            self.stays(words);
            return;
        }
        if !std::mem::replace(&mut self.again, true) {
            "something to gain, if the next window says so, too".clone_into(&mut self.told.reason);
            return;
        }
        let mut reason = format!("weighted loss {:.2e} becomes {:.2e} by the model", loss, aim.loss);
        if is_further && settings.follows == Follows::Apply {
            reason.push_str("; it would go further than the band");
        }
        self.propose(settings.follows, aim, &measured, &reason, (&terms.queues, notices));
    }

    fn propose(
        &mut self,
        follows: Follows,
        aim: Advised,
        measured: &Measured,
        reason: &str,
        (plan, notices): (&QueuePlan, &mut VecDeque<String>),
    ) {
        let is_new = self.proposed.as_ref().is_none_or(|proposed| differ(proposed, &aim.policy, plan));
        let word = if follows == Follows::Apply { "applied" } else { "proposed" };
        self.told.reason = format!("{word}: {reason}");
        self.told.proposal = Some(fragment(&aim.policy, plan));
        if is_new {
            self.told.proposed += 1;
            notices.push_back(format!("{}; {}", self.told, words(&self.current, &aim.policy, plan)));
            self.proposed = Some(aim.policy.clone());
        }
        if follows == Follows::Apply {
            let before = std::mem::replace(&mut self.current, Arc::new(aim.policy));
            self.trial = Some(Trial { before, trim_dropped: self.trim_dropped(measured).1, is_new: true });
            self.told.applied += 1;
            (self.again, self.proposed) = (false, None);
        }
    }

    /// Packets offered to all ports together, and the share of them that was dropped after trimming.
    fn trim_dropped(&self, measured: &Measured) -> (u64, f64) {
        let sum = |[packets, dropped]: [u64; 2], window: [u64; 3]| {
            [packets.saturating_add(window[0]), dropped.saturating_add(window[2])]
        };
        let [packets, dropped] = self.windows.values().map(Window::packets).fold([0, 0], sum);
        if packets == 0 { (0, measured.trim_dropped) } else { (packets, dropped as f64 / packets as f64) }
    }

    /// Whether this window is about thresholds that were changed before it. Later, too, a rise brings the file's back.
    fn is_judged(&mut self, notices: &mut VecDeque<String>) -> bool {
        let (Some(measured), Some(trial)) = (&self.told.measured, &self.trial) else { return false };
        let (packets, share) = self.trim_dropped(measured);
        if packets < JUDGED {
            "on trial, and too few packets to judge it".clone_into(&mut self.told.reason);
            return trial.is_new;
        }
        let rise = format!(
            "{:.3} % of the packets dropped after trimming, {:.3} % before",
            100.0 * share,
            100.0 * trial.trim_dropped
        );
        let (times, more) = RISE;
        if share > trial.trim_dropped * times + more {
            self.current = Arc::clone(&trial.before);
            self.pause = 1_u32.checked_shl(self.failures).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
            self.failures = self.failures.saturating_add(1);
            self.told.taken_back += 1;
            self.told.reason = format!("taken back: {rise}");
            (self.trial, self.again) = (None, false);
        } else if trial.is_new {
            self.failures = 0;
            self.told.reason = format!("kept: {rise}");
            let (before, trim_dropped) = (Arc::clone(&self.file), trial.trim_dropped);
            self.trial = Some(Trial { before, trim_dropped, is_new: false });
        } else {
            return false;
        }
        self.told.proposal = None;
        notices.push_back(self.told.to_string());
        true
    }

    /// Nothing is proposed.
    fn stays(&mut self, why: &str) {
        (self.again, self.proposed, self.told.proposal) = (false, None, None);
        why.clone_into(&mut self.told.reason);
    }
}

/// Thresholds that follow, by class and importance; last the trim queue's.
fn thresholds(policy: &PortPolicy, plan: &QueuePlan) -> Vec<(String, u32)> {
    let of = |(class, queue): (usize, &u8)| {
        let both = policy.queues.get(queue).copied();
        ["less_important", "important"]
            .into_iter()
            .zip(both.into_iter().flatten())
            .flat_map(move |(importance, QueuePolicy { shallow_at, deep_at, .. })| {
                let name = |rung: &str| format!("class{class} {importance} {rung}");
                [(name("shallow_at"), shallow_at), (name("deep_at"), deep_at)]
            })
            .collect::<Vec<_>>()
    };
    let trim_limit =
        policy.queues.get(&plan.trimmed).map(|[_, both]| ("trim_limit".to_owned(), both.trim_drop_at));
    plan.classes.iter().enumerate().flat_map(of).chain(trim_limit).collect()
}

/// By more than a tenth anywhere.
fn differ(one: &PortPolicy, other: &PortPolicy, plan: &QueuePlan) -> bool {
    thresholds(one, plan)
        .iter()
        .zip(thresholds(other, plan))
        .any(|((_, one), (_, other))| f64::from(one.abs_diff(other)) > MARGIN * f64::from((*one).max(other)))
}

/// What changes, in bytes.
fn words(before: &PortPolicy, after: &PortPolicy, plan: &QueuePlan) -> String {
    let both = thresholds(before, plan).into_iter().zip(thresholds(after, plan));
    let changed = both.filter(|((_, was), (_, is))| was != is);
    let words: Vec<String> = changed.map(|((name, was), (_, is))| format!("{name} {was} -> {is}")).collect();
    words.join(", ")
}

/// A policy's thresholds as a piece of a fabric file, in times, so that ports of other speeds may have them too.
fn fragment(policy: &PortPolicy, plan: &QueuePlan) -> String {
    let at = |bytes: u32| {
        let ns = u64::from(bytes).saturating_mul(8_000_000_000) / policy.rate_bps.max(1);
        format!("{ns}ns")
    };
    let trim_limit = policy.queues.get(&plan.trimmed).map_or(0, |[_, both]| both.trim_drop_at);
    let mut text = format!("policy:\n  trim_limit: {}\n  queues:\n", at(trim_limit));
    for (class, queue) in plan.classes.iter().enumerate() {
        let _ = writeln!(text, "    class{class}:");
        for (name, values) in
            ["less_important", "important"].iter().zip(policy.queues.get(queue).into_iter().flatten())
        {
            let (shallow, deep) = (at(values.shallow_at), at(values.deep_at));
            let _ = writeln!(text, "      {name}: {{ shallow_at: {shallow}, deep_at: {deep} }}");
        }
    }
    text
}

/// What a `run` has measured: as its page `/thresholds` says, or a copy of it. Of several kinds of ports the one that refuses most, or the
/// one that is asked for.
pub fn measured(page: &str, ports: Option<&str>) -> Result<Measured, String> {
    let told: Vec<Following> =
        serde_json::from_str(page).map_err(|error| format!("that is no /thresholds of a `run`: {error}"))?;
    let names: Vec<&str> = told.iter().map(|told| told.ports.as_str()).collect();
    if let Some(ports) = ports.filter(|ports| !names.contains(ports)) {
        return Err(format!("it tells nothing of '{ports}'; valid: {}", names.join(", ")));
    }
    let asked = told.iter().filter(|told| ports.is_none_or(|ports| told.ports == ports));
    let measured = asked.filter_map(|told| told.measured.as_ref());
    let most = measured
        .max_by(|a, b| (a.refused, a.load).partial_cmp(&(b.refused, b.load)).unwrap_or(Ordering::Equal));
    let most = most.cloned().ok_or_else(|| {
        "it has measured nothing yet: a window has to end in which packets are offered (thresholds.every)"
            .to_owned()
    })?;
    // As a layers file has them; a page may come from anywhere.
    if !(most.load > 0.0
        && most.load <= 100.0
        && most.burst.is_none_or(|burst| (1..=10_000).contains(&burst)))
    {
        return Err(format!("{}: load {} and burst {:?} are none", most.port, most.load, most.burst));
    }
    Ok(most)
}

#[cfg(test)]
mod replay;
#[cfg(test)]
mod tests;
