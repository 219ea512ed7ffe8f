// SPDX-License-Identifier: Apache-2.0
//! One queue: Poisson arrivals, exponential service, and a limit.

/// Loss of M/M/1/m, the paper's formula: ρ^m (1 − ρ) / (1 − ρ^(m+1)), `m` counting the packet being
/// sent.
///
/// Its reciprocal is the sum of ρ^−k for k = 0 … m, from which it follows that the loss falls with
/// m, and by less and less (docs/explanation/thresholds.md), at any load. `m` need not be whole.
pub fn loss(rho: f64, m: f64) -> f64 {
    if rho <= 0.0 {
        return if m > 0.0 { 0.0 } else { 1.0 };
    }
    if rho.is_infinite() {
        return 1.0;
    }
    1.0 / geometric(1.0 / rho, m + 1.0)
}

/// Σ r^k for k = 0 … n − 1, continued to real `n`; infinite where f64 ends.
fn geometric(r: f64, n: f64) -> f64 {
    let exponent = n * r.ln();
    if (r - 1.0).abs() < 1e-9 { n * (1.0 + exponent / 2.0) } else { exponent.exp_m1() / (r - 1.0) }
}

/// Where the queue of a class refuses packets, by what waits in it on their arrival, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Less important packets from here.
    pub less_important: u32,
    /// All packets from here; not below the other.
    pub all: u32,
}

/// How often arriving packets find what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Refusals {
    /// Share of the less important packets that is refused.
    pub less_important: f64,
    /// Share of the important packets that is refused.
    pub important: f64,
}

/// A queue that both importances share, as the switch has it: one occupancy, two limits.
///
/// Arrivals come at rate `arrivals`, of which the share `less_important` is; the line serves
/// `capacity` packets in the same time. The number of packets in the queue is then a birth–death
/// process, whose births slow down at the first limit and end at the second; with equal limits it
/// is M/M/1/m.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shared {
    /// Weight of the states below the first limit, in units of that limit's state.
    below: f64,
    /// The same of the states above the first limit.
    above: f64,
    /// The same of the last state.
    last: f64,
    /// Ratio of births to deaths from the first limit on.
    slowed: f64,
    limits: Limits,
    starved: bool,
}

impl Shared {
    /// Solves the process.
    pub fn new(arrivals: f64, less_important: f64, capacity: f64, limits: Limits) -> Self {
        // Where nothing is served, nothing is admitted for long, whatever the limit.
        let starved = capacity <= arrivals * 1e-12;
        let full = arrivals / capacity.max(f64::MIN_POSITIVE);
        let slowed = full * (1.0 - less_important);
        let (first, rest) =
            (f64::from(limits.less_important), f64::from(limits.all.saturating_sub(limits.less_important)));
        // Σ full^(k − first) for k = 0 … first − 1.
        let below = if first > 0.0 { geometric(1.0 / full, first) / full } else { 0.0 };
        let (below, at, above, last) = if slowed > 1.0 {
            // In units of the last state: its weight would leave f64's range. `full` is above 1 as
            // well, so `below` is finite.
            let at = slowed.powf(-rest);
            let above = if rest > 0.0 { geometric(1.0 / slowed, rest) } else { 0.0 };
            (below * at, at, above, 1.0)
        } else {
            let above = if rest > 0.0 && slowed > 0.0 { slowed * geometric(slowed, rest) } else { 0.0 };
            let last = if rest > 0.0 { slowed.powf(rest) } else { 1.0 };
            (below, 1.0, above, last)
        };
        // `above` holds the first limit's own state, too.
        Self { below, above: above + at, last, slowed, limits, starved }
    }

    /// Shares of the packets that are refused.
    pub fn refusals(&self) -> Refusals {
        if self.starved {
            return Refusals { less_important: 1.0, important: 1.0 };
        }
        let all = self.below + self.above;
        if all.is_infinite() {
            return Refusals { less_important: 0.0, important: 0.0 };
        }
        Refusals { less_important: (self.above / all).min(1.0), important: (self.last / all).min(1.0) }
    }

    /// Share of arriving packets that find `packets` or more in the queue, from the first limit on.
    pub fn at_least(&self, packets: u32) -> f64 {
        let Limits { less_important, all: limit } = self.limits;
        if packets > limit {
            return 0.0;
        }
        let refused = self.refusals();
        if packets <= less_important {
            return refused.less_important;
        }
        if self.starved {
            return 1.0;
        }
        // The last state and those below it down to `packets`.
        let states = f64::from(limit - packets) + 1.0;
        let weight = if self.slowed > 0.0 { geometric(1.0 / self.slowed, states) } else { 0.0 };
        let share = refused.important * weight;
        if share.is_finite() { share.min(refused.less_important) } else { 0.0 }
    }
}
