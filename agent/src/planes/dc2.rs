// SPDX-License-Identifier: Apache-2.0
//! DC2, algorithm 1: five algorithms over the delay monitor, with the parameters of table I.
//!
//! The printed algorithm has lost the bodies of DA2 and DA3, and of DA5 the nesting. They are put
//! together again from the words of §IV-A:
//!
//! - DA2, "AIMD … when the delay is outside the range [a − d_var, a + d_var]": below, k + k_inc;
//!   above, k · β, where β is the "multiplicative decrease factor"; within, k. "Delay variation
//!   from target" 0.05 is taken as a share of a: in seconds it would mean another thing for every
//!   model.
//! - DA3, "additive decrease instead": above, k − k_dec.
//! - DA4's text adds k/2 where its pseudocode adds k_inc; the pseudocode is taken.
//! - DA5: below α m, k + k_inc; above α a, k (1 − β (d − α a) / (d − α m)); else DA4.

use serde::{Deserialize, Serialize};

use super::controller::Law;
use super::delay_monitor::{DelayMonitor, Delays};
use super::step::Step;

/// The ratio of the first step, least and greatest: the paper gives no first one, and begins where
/// a network is used most.
pub(super) const RATIOS: [f64; 3] = [0.3, 0.005, 0.3];

macro_rules! law {
    ($(#[$doc:meta])* $law:ident, $name:literal, { $($(#[$field_doc:meta])* $field:ident = $default:literal),* }, $next:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub struct $law {
            $($(#[$field_doc])* pub $field: f64,)*
            /// What it knows of the network.
            pub monitor: DelayMonitor,
        }

        impl Default for $law {
            fn default() -> Self {
                Self { $($field: $default,)* monitor: DelayMonitor::default() }
            }
        }

        impl Law for $law {
            fn name(&self) -> &'static str {
                $name
            }

            fn next(&mut self, ratio: f64, step: &Step) -> f64 {
                let delays = self.monitor.push(step.delay_ns);
                let next: fn(&Self, f64, Delays) -> f64 = $next;
                next(self, ratio, delays)
            }
        }
    };
}

law!(
    /// Proportional to the normalised delay variation: k − (d − a) / (d − m). The quotient is of
    /// order 1 whatever k is, so k jumps between its limits: the paper leaves its results out.
    /// Where d = m, and the quotient has no value, k stays.
    Da1, "da1", {}, |_, k, Delays { delay, least, mean, .. }| {
        if delay > least { k - (delay - mean) / (delay - least) } else { k }
    }
);

law!(
    /// Additive increase, multiplicative decrease around the mean delay.
    Da2, "da2", {
        /// Share of the mean delay within which k stays.
        variation = 0.05,
        /// What is added below.
        increase = 0.005,
        /// What k is multiplied by above.
        decrease = 0.8
    }, |law, k, Delays { delay, mean, .. }| {
        if delay < mean * (1.0 - law.variation) {
            k + law.increase
        } else if delay > mean * (1.0 + law.variation) {
            k * law.decrease
        } else {
            k
        }
    }
);

law!(
    /// Additive increase, additive decrease around the mean delay.
    Da3, "da3", {
        /// Share of the mean delay within which k stays.
        variation = 0.05,
        /// What is added below.
        increase = 0.005,
        /// What is taken away above.
        decrease = 0.005
    }, |law, k, Delays { delay, mean, .. }| {
        if delay < mean * (1.0 - law.variation) {
            k + law.increase
        } else if delay > mean * (1.0 + law.variation) {
            k - law.decrease
        } else {
            k
        }
    }
);

/// TIMELY's gradient: what falls may rise.
fn by_gradient(k: f64, increase: f64, beta: f64, Delays { trend, least, .. }: Delays) -> f64 {
    let gradient = trend / least;
    if gradient < 0.0 { k + increase } else { k * (1.0 - beta * gradient) }
}

law!(
    /// TIMELY's normalised delay gradient.
    Da4, "da4", {
        /// What is added while delays fall.
        increase = 0.005,
        /// How strongly k answers to delays that rise.
        beta = 0.8
    }, |law, k, delays| by_gradient(k, law.increase, law.beta, delays)
);

law!(
    /// TIMELY's thresholds around its gradient.
    Da5, "da5", {
        /// What is added below the low threshold, or while delays fall.
        increase = 0.005,
        /// How strongly k answers to delays.
        beta = 0.8,
        /// Slack of both thresholds.
        alpha = 1.25
    }, |law, k, delays| {
        let Delays { delay, least, mean, .. } = delays;
        if delay < law.alpha * least {
            k + law.increase
        } else if delay > law.alpha * mean {
            // Above the high threshold d is above α m as well, for the mean is not below the least.
            k * (1.0 - law.beta * (delay - law.alpha * mean) / (delay - law.alpha * least))
        } else {
            by_gradient(k, law.increase, law.beta, delays)
        }
    }
);
