// SPDX-License-Identifier: Apache-2.0
//! Thresholds as buffer profiles, one for each value and action, bound to queues.

use super::notes::Fidelity;
use super::{Thresholds, Writer};
use crate::model::Overload;

/// What YANG allows of `dynamic_th`.
const ALPHA: std::ops::RangeInclusive<i32> = -8..=7;

/// The power of two whose α gives a queue that is alone in its pool the limit: limit = α (pool − limit).
pub(super) fn alpha(limit: u64, pool_size: u64) -> i32 {
    if limit >= pool_size {
        return *ALPHA.end();
    }
    let ratio = (limit.max(1) as f64 / (pool_size - limit) as f64).log2();
    (ratio.round() as i32).clamp(*ALPHA.start(), *ALPHA.end())
}

impl Writer<'_> {
    pub(super) fn buffers(&mut self) {
        let (fabric, plan) = (self.fabric, &self.fabric.queues);
        let trims = fabric.overload == Overload::Trim;
        for (name, policy) in self.ports() {
            for (_, queue) in plan.named() {
                let Some([_, important]) = policy.queues.get(&queue) else { continue };
                let is_class = plan.classes.contains(&queue);
                let (limit, action) = if queue == plan.trimmed {
                    (important.trim_drop_at, "drop")
                } else if is_class && trims {
                    (important.shallow_at, "trim")
                } else {
                    (important.drop_at, "drop")
                };
                let profile = self.profile(u64::from(limit), action);
                self.set("BUFFER_QUEUE", &format!("{name}|{queue}"), "profile", profile);
            }
        }
        let field = match self.platform.thresholds {
            Thresholds::Static => "static_th",
            Thresholds::Dynamic { .. } => "dynamic_th",
        };
        let target = format!("BUFFER_PROFILE.{field}");
        let unit = match self.platform.thresholds {
            Thresholds::Static => "in bytes, rounded to the switch's cells by SONiC's vendor",
            Thresholds::Dynamic { .. } => {
                "a power of two of what is free in the pool: right for a queue that is alone in it, less for several"
            }
        };
        if trims {
            let message = format!(
                "important.shallow_at of each class, {unit}; packets are trimmed when they are not admitted"
            );
            self.note(
                Fidelity::Near,
                "policy.shallow_at",
                &format!("{target}, packet_discard_action = trim"),
                message,
            );
            let message = "a class's queue admits nothing beyond the point from which it trims; what may not be trimmed is dropped there";
            self.note(Fidelity::Missing, "policy.drop_at", "", message);
        } else {
            self.note(Fidelity::Near, "policy.drop_at", &target, unit);
        }
        self.note(Fidelity::Near, "policy.trim_limit", &target, unit);
        let message = format!(
            "{} has to be an egress pool of the switch that is large enough for all ports' queues (show mmu); name another with --pool",
            self.platform.pool
        );
        self.note(Fidelity::Check, "policy", "BUFFER_PROFILE.pool", message);
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
