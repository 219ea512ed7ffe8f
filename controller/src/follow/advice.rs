// SPDX-License-Identifier: Apache-2.0
//! From what was measured to thresholds: the planner's model (`docs/explanation/thresholds.md`), asked twice. Which bursts would it take
//! to refuse as many packets? And which thresholds lose least, given these?

use trimwire_planner::thresholds::of_cut;
use trimwire_planner::thresholds::port::{ClassLimits, Fate, PortLimits, Rungs, Traffic, fate};
use trimwire_planner::thresholds::queue::Limits;
use trimwire_planner::thresholds::solve::solve;

use super::measure::Measured;
use crate::model::{PortPolicy, QueuePlan, QueuePolicy};
use crate::thresholds::{LESS_IMPORTANT_ENERGY, LESS_IMPORTANT_SHARE, RULE};
use crate::units::DataPacket;

/// A class with less of the bytes keeps its thresholds: next to nothing is known of it.
const IDLE: f64 = 0.01;
/// Queues hold no more packets than this, as the model counts.
const MOST_PACKETS: u64 = 1_000_000;
/// A layers file takes no larger ones.
const LARGEST_BURST: u64 = 10_000;

/// What the model has to know of ports beside their policy.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub queues: QueuePlan,
    pub packet: DataPacket,
}

impl Terms {
    /// Bytes of the largest frame that is trimmed.
    fn packet(&self) -> u32 {
        u32::try_from(self.packet.full_frame().max(60)).unwrap_or(u32::MAX)
    }
}

/// A policy, and the weighted loss that the model has for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Advised {
    pub policy: PortPolicy,
    pub loss: f64,
}

/// The model of a port that was offered what was measured.
pub(super) struct Advisor<'m> {
    terms: &'m Terms,
    measured: &'m Measured,
    /// Of the queue plan: classes that were offered something.
    active: Vec<usize>,
}

impl<'m> Advisor<'m> {
    pub(super) fn new(terms: &'m Terms, measured: &'m Measured) -> Self {
        let shares = measured.shares.iter().zip(&terms.queues.classes).enumerate();
        let active = shares.filter(|(_, (share, _))| **share >= IDLE).map(|(class, _)| class).collect();
        Self { terms, measured, active }
    }

    fn both(&self, policy: &PortPolicy, class: usize) -> Option<[QueuePolicy; 2]> {
        policy.queues.get(self.terms.queues.classes.get(class)?).copied()
    }

    fn trim_limit(&self, policy: &PortPolicy) -> u32 {
        self.both(policy, 0).map_or(0, |[_, important]| important.trim_drop_at)
    }

    fn traffic(&self) -> Traffic {
        let (front, back) = RULE;
        let steps = (self.terms.queues.classes.len().max(2) - 1) as f64;
        let weight = |class: &usize| front * (back / front).powf(*class as f64 / steps);
        let weights: Vec<f64> = self.active.iter().map(weight).collect();
        let all: f64 = weights.iter().sum();
        let share = |class: &usize| self.measured.shares.get(*class).copied().unwrap_or(0.0);
        Traffic {
            arrivals: self.active.iter().map(|class| self.measured.load * share(class)).collect(),
            weights: weights.into_iter().map(|weight| weight / all).collect(),
            less_important: LESS_IMPORTANT_SHARE,
            less_important_energy: LESS_IMPORTANT_ENERGY,
        }
    }

    fn rungs(&self, policy: &PortPolicy) -> Rungs {
        let first = self.active.first().and_then(|class| self.both(policy, *class));
        let sizes = first.map_or([0; 2], |[_, important]| [important.shallow_size, important.deep_size]);
        let packet = self.terms.packet;
        Rungs {
            sizes: sizes.map(|size| (f64::from(size) / self.measured.mean_packet).min(1.0)),
            costs: sizes.map(|size| of_cut(u64::from(size), packet.coordinates, packet.sealed)),
            cap: policy.trim_cap.map_or(1.0, |cap| f64::from(cap.share) / 1e6),
        }
    }

    fn unit(&self, burst: u64) -> u64 {
        (self.measured.mean_packet as u64).max(1).saturating_mul(burst)
    }

    /// A policy's thresholds in bursts.
    fn limits(&self, policy: &PortPolicy, burst: u64) -> PortLimits {
        let unit = self.unit(burst);
        let bursts = |bytes: u32| (u64::from(bytes) / unit).min(MOST_PACKETS) as u32;
        let class = |class: &usize| {
            let [less, important] = self.both(policy, *class)?;
            let all = bursts(important.shallow_at);
            let limits = Limits { less_important: bursts(less.shallow_at).min(all), all };
            let is_deep = less.deep_at <= important.shallow_at;
            let deep = if is_deep { bursts(less.deep_at).clamp(limits.less_important, all) } else { all + 1 };
            Some(ClassLimits { limits, deep, important_deep: important.deep_at <= important.shallow_at })
        };
        let trim = bursts(self.trim_limit(policy));
        PortLimits { classes: self.active.iter().filter_map(class).collect(), trim }
    }

    fn fate(&self, policy: &PortPolicy, burst: u64) -> Fate {
        fate(&self.traffic(), Some(&self.rungs(policy)), &self.limits(policy, burst))
    }

    /// What the model has for the loss under a policy.
    pub(super) fn loss(&self, policy: &PortPolicy, burst: u64) -> f64 {
        self.fate(policy, burst).weighted_loss
    }

    /// Share of the packets that the model refuses under a policy.
    pub(super) fn refused(&self, policy: &PortPolicy, burst: u64) -> f64 {
        let (traffic, fate) = (self.traffic(), self.fate(policy, burst));
        let theta = traffic.less_important;
        let refused = fate.classes.iter().zip(&traffic.arrivals).map(|(class, arrivals)| {
            arrivals * (theta * class.refused.less_important + (1.0 - theta) * class.refused.important)
        });
        refused.sum::<f64>() / traffic.arrivals.iter().sum::<f64>()
    }

    /// The smallest bursts for which the model refuses as many packets under `policy` as were refused.
    pub(super) fn burst(&self, policy: &PortPolicy) -> u64 {
        let refuses = |burst: u64| self.refused(policy, burst) >= self.measured.refused;
        // With larger ones a queue would have no room for a single one.
        let room = self.active.iter().filter_map(|class| self.both(policy, *class));
        let most = room.map(|[_, important]| u64::from(important.shallow_at) / self.unit(1)).min();
        let (mut least, mut most) = (1, most.unwrap_or(1).clamp(1, LARGEST_BURST));
        while least < most {
            let middle = least + (most - least) / 2;
            if refuses(middle) { most = middle } else { least = middle + 1 }
        }
        least
    }

    /// The thresholds of least loss in the room that the file gives the port. What the model does not know stays as in the file: marks,
    /// drops, and classes without traffic. The trim queue keeps its room, too: bursts larger than a queue look like bursts of its size.
    pub(super) fn best(&self, file: &PortPolicy, burst: u64) -> Advised {
        let room = self.limits(file, burst).room();
        if room == 0 {
            // No frame is as large as these.
            return self.ordered(file.clone(), burst);
        }
        let limits = solve(&self.traffic(), Some(&self.rungs(file)), room).limits;
        let unit = self.unit(burst);
        // A packet fits in everywhere.
        let bytes = |bursts: u32| {
            u32::try_from(u64::from(bursts).saturating_mul(unit)).unwrap_or(u32::MAX).max(self.terms.packet())
        };
        let mut policy = file.clone();
        for (class, found) in self.active.iter().zip(&limits.classes) {
            let queue = self.terms.queues.classes.get(*class).and_then(|queue| policy.queues.get_mut(queue));
            let Some([less, important]) = queue else { continue };
            let ClassLimits { limits, deep, important_deep } = *found;
            important.shallow_at = bytes(limits.all);
            important.deep_at = if important_deep { important.shallow_at } else { important.drop_at };
            less.shallow_at = bytes(limits.less_important);
            less.deep_at = if deep > limits.all { less.drop_at } else { bytes(deep) };
        }
        set_trim_limit(&mut policy, self.terms, bytes(limits.trim).max(self.trim_limit(file)));
        self.ordered(policy, burst)
    }

    /// The same, no threshold further from the file's than the band.
    pub(super) fn within(&self, wanted: &PortPolicy, file: &PortPolicy, band: f64, burst: u64) -> Advised {
        let near = |wanted: u32, file: u32| {
            let (least, most) = (f64::from(file) / (1.0 + band), f64::from(file) * (1.0 + band));
            f64::from(wanted).clamp(least, most) as u32
        };
        let mut policy = wanted.clone();
        for queue in &self.terms.queues.classes {
            let (Some(both), Some(of_file)) = (policy.queues.get_mut(queue), file.queues.get(queue)) else {
                continue;
            };
            for (values, file) in both.iter_mut().zip(of_file) {
                values.shallow_at = near(values.shallow_at, file.shallow_at);
                values.deep_at = near(values.deep_at, file.deep_at);
            }
        }
        set_trim_limit(&mut policy, self.terms, near(self.trim_limit(wanted), self.trim_limit(file)));
        self.ordered(policy, burst)
    }

    /// `mark_at ≤ shallow_at ≤ deep_at ≤ drop_at`.
    fn ordered(&self, mut policy: PortPolicy, burst: u64) -> Advised {
        for queue in &self.terms.queues.classes {
            for values in policy.queues.get_mut(queue).into_iter().flatten() {
                values.shallow_at = values.shallow_at.min(values.drop_at);
                values.deep_at = values.deep_at.clamp(values.shallow_at, values.drop_at);
                values.mark_at = values.mark_at.min(values.shallow_at);
            }
        }
        let loss = self.loss(&policy, burst);
        Advised { policy, loss }
    }
}

/// The trim queue's limit stands in every entry of the port, and its cap's bucket holds as much.
fn set_trim_limit(policy: &mut PortPolicy, terms: &Terms, bytes: u32) {
    for (queue, both) in &mut policy.queues {
        for values in both {
            values.trim_drop_at = bytes;
            if *queue == terms.queues.trimmed {
                (values.mark_at, values.shallow_at, values.deep_at, values.drop_at) =
                    (bytes, bytes, bytes, bytes);
            }
        }
    }
    if let Some(cap) = &mut policy.trim_cap {
        cap.burst = bytes.max(terms.packet());
    }
}
