// SPDX-License-Identifier: Apache-2.0
//! A congested port: classes under strict priority, the trim queue before them, and the loss that
//! given thresholds lead to.

use super::queue::{Limits, Refusals, Shared, loss};

/// What is offered to the port. Rates are in packets per time in which the line sends a packet of
/// mean size.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// By class, the one that is served first in front.
    pub arrivals: Vec<f64>,
    /// By class: what the loss of all of its packets costs.
    pub weights: Vec<f64>,
    /// Share of the packets that is less important.
    pub less_important: f64,
    /// Share of the energy that these carry.
    pub less_important_energy: f64,
}

/// What trimming does. Sizes in shares of a packet of mean size; costs in shares of the packet's
/// energy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rungs {
    /// Size after a shallow and after a deep trim.
    pub sizes: [f64; 2],
    /// Energy lost by a shallow and by a deep trim; the loss of a packet is 1.
    pub costs: [f64; 2],
    /// Share of the line that the trim queue may take.
    pub cap: f64,
}

/// Thresholds of a class, in packets of mean size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassLimits {
    /// Less important packets are refused from here, all from `limits.all`.
    pub limits: Limits,
    /// Refused less important packets are trimmed deeply from here, and always shallowly if this is
    /// above `limits.all`.
    pub deep: u32,
    /// Whether refused important packets are trimmed deeply: their queue has one filling at which
    /// they are refused.
    pub important_deep: bool,
}

/// Thresholds of the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortLimits {
    /// By class.
    pub classes: Vec<ClassLimits>,
    /// Packets of mean size that the bytes of the trim queue would make.
    pub trim: u32,
}

impl PortLimits {
    /// Packets of mean size that all queues together may hold.
    pub fn room(&self) -> u32 {
        self.classes.iter().map(|class| class.limits.all).sum::<u32>() + self.trim
    }
}

/// What happens to a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassFate {
    /// Share of the line that is left for the class.
    pub capacity: f64,
    /// Shares refused.
    pub refused: Refusals,
    /// Share of the less important packets that is trimmed deeply.
    pub less_important_deep: f64,
    /// Energy lost of the class's gradient, 0 to 1.
    pub loss: f64,
}

/// What happens at the port.
#[derive(Debug, Clone, PartialEq)]
pub struct Fate {
    /// By class.
    pub classes: Vec<ClassFate>,
    /// Share of the line that trimmed packets ask for.
    pub heads: f64,
    /// Share of the trimmed packets that the trim queue refuses.
    pub heads_lost: f64,
    /// Σ weight × loss.
    pub weighted_loss: f64,
}

/// Rounds in which the trim queue's share of the line is found.
const ROUNDS: usize = 400;

/// What `limits` lead to; without `rungs` what is refused is dropped.
///
/// Strict priority as the paper treats it: a class has what those before it leave of the line, as
/// if it had that all the time. Where the paper subtracts offered loads, this subtracts carried
/// ones, so that the sum of loads may be above 1; without losses the two are the same. The trim
/// queue comes before all classes, up to its cap, and takes from the line what the trims send it,
/// which depends on the line that it leaves: the least share that agrees with itself is taken.
pub fn fate(traffic: &Traffic, rungs: Option<&Rungs>, limits: &PortLimits) -> Fate {
    let Some(rungs) = rungs else { return with_trim_share(traffic, None, limits, 0.0).0 };
    let mut share = 0.0;
    let mut result = with_trim_share(traffic, Some(rungs), limits, share);
    for _ in 0..ROUNDS {
        // More heads leave less of the line, which makes more heads: from nothing the share only
        // rises, up to the cap.
        if (result.1 - share).abs() < 1e-12 {
            break;
        }
        share = result.1;
        result = with_trim_share(traffic, Some(rungs), limits, share);
    }
    result.0
}

/// The fate if the trim queue took `share` of the line, and what it then takes.
fn with_trim_share(traffic: &Traffic, rungs: Option<&Rungs>, limits: &PortLimits, share: f64) -> (Fate, f64) {
    let theta = traffic.less_important;
    let mut capacity = 1.0 - share;
    let mut classes = Vec::with_capacity(limits.classes.len());
    for (arrivals, class) in traffic.arrivals.iter().zip(&limits.classes) {
        let queue = Shared::new(*arrivals, theta, capacity, class.limits);
        let refused = queue.refusals();
        let less_important_deep = if class.deep > class.limits.all {
            0.0
        } else {
            queue.at_least(class.deep).min(refused.less_important)
        };
        classes.push(ClassFate { capacity, refused, less_important_deep, loss: 0.0 });
        let carried =
            arrivals * (1.0 - theta * refused.less_important - (1.0 - theta) * refused.important).max(0.0);
        capacity = (capacity - carried).max(0.0);
    }

    // Trimmed packets per time, shallow and deep.
    let mut trimmed = [0.0; 2];
    for ((class, limits), arrivals) in classes.iter().zip(&limits.classes).zip(&traffic.arrivals) {
        let less = arrivals * theta;
        trimmed[0] += less * (class.refused.less_important - class.less_important_deep);
        trimmed[1] += less * class.less_important_deep;
        trimmed[usize::from(limits.important_deep)] += arrivals * (1.0 - theta) * class.refused.important;
    }
    let (heads, heads_lost, taken) = match rungs {
        None => (0.0, 0.0, 0.0),
        Some(rungs) => {
            let heads = trimmed[0] * rungs.sizes[0] + trimmed[1] * rungs.sizes[1];
            let number = trimmed[0] + trimmed[1];
            // M/M/1/m again, in heads of their mean size.
            let lost = if number <= 0.0 {
                0.0
            } else {
                loss(heads / rungs.cap, (f64::from(limits.trim) * number / heads).min(1e9))
            };
            (heads, lost, (heads * (1.0 - lost)).min(rungs.cap))
        }
    };
    let cost = rungs.map_or([1.0; 2], |rungs| rungs.costs.map(|cost| cost + (1.0 - cost) * heads_lost));
    let energy = traffic.less_important_energy;
    let mut weighted_loss = 0.0;
    for ((class, limits), weight) in classes.iter_mut().zip(&limits.classes).zip(&traffic.weights) {
        let shallow = class.refused.less_important - class.less_important_deep;
        let less = shallow * cost[0] + class.less_important_deep * cost[1];
        let important = class.refused.important * cost[usize::from(limits.important_deep)];
        class.loss = energy * less + (1.0 - energy) * important;
        weighted_loss += weight * class.loss;
    }
    (Fate { classes, heads, heads_lost, weighted_loss }, taken)
}
