// SPDX-License-Identifier: Apache-2.0
//! Thresholds as buffer profiles, one for each value and action, bound to queues.

use std::collections::{BTreeMap, BTreeSet};

use super::notes::Fidelity;
use super::{Thresholds, Writer};
use crate::model::Overload;
use crate::units::NEVER;

/// What YANG allows of `dynamic_th`.
const ALPHA: std::ops::RangeInclusive<i32> = -8..=7;
/// Limits in one note: a fabric with links of many speeds has many.
const MOST_LIMITS: usize = 12;

/// Limits that queues ask for, in bytes, with the queues' names.
type Asked = BTreeMap<u64, BTreeSet<String>>;

/// The power of two whose α gives a queue that is alone in its pool the limit: limit = α (pool −
/// limit).
pub(super) fn alpha(limit: u64, pool_size: u64) -> i32 {
    if limit >= pool_size {
        return *ALPHA.end();
    }
    let ratio = (limit.max(1) as f64 / (pool_size - limit) as f64).log2();
    (ratio.round() as i32).clamp(*ALPHA.start(), *ALPHA.end())
}

/// What a power of two gives a queue that is alone in its pool: α (pool − limit) = limit.
pub(super) fn limit_of(alpha: i32, pool_size: u64) -> u64 {
    let part = pool_size / ((1_u64 << alpha.unsigned_abs()) + 1);
    if alpha < 0 { part } else { pool_size - part }
}

/// Three digits of a number: what a pool has free is not known any better.
fn about(bytes: u64) -> u64 {
    let step = 10_u64.pow(bytes.checked_ilog10().unwrap_or(0).saturating_sub(2));
    bytes.saturating_add(step / 2) / step * step
}

/// Queues with their limit, as the file has it.
fn asks(queues: &BTreeSet<String>, limit: u64) -> String {
    let names: Vec<&str> = queues.iter().map(String::as_str).collect();
    format!("{} {limit}", names.join(", "))
}

/// The first few of many limits.
fn list(mut limits: Vec<String>) -> String {
    if let Some(more @ 1..) = limits.len().checked_sub(MOST_LIMITS) {
        limits.truncate(MOST_LIMITS);
        limits.push(format!("… and {more} more"));
    }
    limits.join("; ")
}

/// What becomes of each limit.
fn dynamic_limits<'a>(
    asked: impl Iterator<Item = (&'a u64, &'a BTreeSet<String>)>,
    pool_size: u64,
) -> String {
    let text = |(limit, queues): (&u64, &BTreeSet<String>)| {
        let alpha = alpha(*limit, pool_size);
        let bound = if alpha == *ALPHA.start() {
            ", the least"
        } else if alpha == *ALPHA.end() {
            ", the most"
        } else {
            ""
        };
        let becomes = about(limit_of(alpha, pool_size));
        format!("{} → about {becomes} B (α = 2^{alpha}{bound})", asks(queues, *limit))
    };
    list(asked.map(text).collect())
}

impl Writer<'_> {
    pub(super) fn buffers(&mut self) {
        let (fabric, plan) = (self.fabric, &self.fabric.queues);
        let trims = fabric.overload == Overload::Trim;
        let (mut shallow_at, mut drop_at, mut trim_limit) = (Asked::new(), Asked::new(), Asked::new());
        for (name, policy) in self.ports() {
            for (queue_name, queue) in plan.named() {
                let Some([_, important]) = policy.queues.get(&queue) else { continue };
                let is_class = plan.classes.contains(&queue);
                let (limit, action, asked) = if queue == plan.trimmed {
                    (important.trim_drop_at, "drop", &mut trim_limit)
                } else if is_class && trims {
                    (important.shallow_at, "trim", &mut shallow_at)
                } else {
                    (important.drop_at, "drop", &mut drop_at)
                };
                asked.entry(u64::from(limit)).or_default().insert(queue_name);
                let profile = self.profile(u64::from(limit), action);
                self.set("BUFFER_QUEUE", &format!("{name}|{queue}"), "profile", profile);
            }
        }
        if trims {
            let what = "important.shallow_at of each class; packets are trimmed when they are not admitted; ";
            self.limits("policy.shallow_at", ", packet_discard_action = trim", what, &shallow_at);
            let message = "a class's queue admits nothing beyond the point from which it trims; what may not be trimmed is dropped there";
            self.note(Fidelity::Missing, "policy.drop_at", "", message);
            self.limits("policy.drop_at", "", "of queues that do not trim; ", &drop_at);
        } else {
            self.limits("policy.drop_at", "", "", &drop_at);
        }
        self.limits("policy.trim_limit", "", "", &trim_limit);
        let message = format!(
            "{} has to be an egress pool of the switch that is large enough for all ports' queues (show mmu); name another with --pool",
            self.platform.pool
        );
        self.note(Fidelity::Check, "policy", "BUFFER_PROFILE.pool", message);
    }

    /// How the limits of one knob are written, and what is lost of them. `beside` are fields that
    /// come with the threshold.
    fn limits(&mut self, knob: &str, beside: &str, what: &str, asked: &Asked) {
        const FIELD: &str = "BUFFER_PROFILE.dynamic_th";
        let Thresholds::Dynamic { pool_size } = self.platform.thresholds else {
            let message = format!("{what}in bytes, rounded to the switch's cells by SONiC's vendor");
            self.note(Fidelity::Near, knob, &format!("BUFFER_PROFILE.static_th{beside}"), message);
            return;
        };
        let message = format!(
            "{what}a power of two of what is free in the pool: right for a queue that is alone in it, less for several: {}",
            dynamic_limits(asked.iter(), pool_size)
        );
        self.note(Fidelity::Near, knob, &format!("{FIELD}{beside}"), message);

        let is_far = |limit: u64| {
            let becomes = limit_of(alpha(limit, pool_size), pool_size);
            limit != u64::from(NEVER) && (becomes / 2 > limit || limit / 2 > becomes)
        };
        let far = dynamic_limits(asked.iter().filter(|(limit, _)| is_far(**limit)), pool_size);
        if !far.is_empty() {
            let [least, most] = [*ALPHA.start(), *ALPHA.end()].map(|alpha| about(limit_of(alpha, pool_size)));
            let message = format!(
                "more than twice what the file says, or less than half: {far}. A queue that is alone in a pool of {pool_size} bytes gets \
                 {least} to {most} bytes of it: write thresholds in that range, or name a smaller pool or one in static mode (--pool)"
            );
            self.note(Fidelity::Missing, knob, FIELD, message);
        }

        // Beyond the pool there is nothing to tell apart.
        let mut alike: BTreeMap<i32, Vec<String>> = BTreeMap::new();
        for (limit, queues) in asked.iter().filter(|(limit, _)| **limit < pool_size) {
            alike.entry(alpha(*limit, pool_size)).or_default().push(asks(queues, *limit));
        }
        for (alpha, limits) in alike.into_iter().filter(|(_, limits)| limits.len() > 1) {
            let message = format!(
                "these differ in the file and are the same on the switch, about {} B (α = 2^{alpha}): {}",
                about(limit_of(alpha, pool_size)),
                list(limits)
            );
            self.note(Fidelity::Missing, knob, FIELD, message);
        }
    }

    /// A profile's name; it is written once.
    fn profile(&mut self, limit: u64, action: &str) -> String {
        let (name, field, value) = match self.platform.thresholds {
            Thresholds::Static => (format!("trimwire_{action}_{limit}"), "static_th", limit.to_string()),
            Thresholds::Dynamic { pool_size } => {
                let alpha = alpha(limit, pool_size);
                let sign = if alpha < 0 { "minus_" } else { "" };
                let name = format!("trimwire_{action}_alpha_{sign}{}", alpha.unsigned_abs());
                (name, "dynamic_th", alpha.to_string())
            }
        };
        let pool = self.platform.pool.clone();
        for (field, value) in [(field, value.as_str()), ("pool", &pool), ("size", "0")] {
            self.set("BUFFER_PROFILE", &name, field, value);
        }
        self.set("BUFFER_PROFILE", &name, "packet_discard_action", action);
        name
    }
}
