// SPDX-License-Identifier: Apache-2.0
//! Laws by name, as users write them: `da5:k_min=0.01,alpha=1.5`.

use super::controller::{Controller, Laws, Limits};
use super::delay_monitor::DelayMonitor;
use super::{Da1, Da2, Da3, Da4, Da5, NetSense, Progress, TrimFeedback, dc2};

/// Names of the laws.
pub const LAWS: [&str; 9] =
    ["netsense", "da1", "da2", "da3", "da4", "da5", "trim-feedback", "progress", "fixed"];

/// Why a law was not understood.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LawError {
    /// No law of that name.
    #[error("unknown algorithm '{name}'{} (valid: {})", nearest(name, &LAWS), LAWS.join(", "))]
    UnknownLaw {
        /// What was written.
        name: String,
    },
    /// The law has no such parameter.
    #[error("{law} has no parameter '{key}'{} (valid: {})", nearest(key, valid), valid.join(", "))]
    UnknownParameter {
        /// The law.
        law: &'static str,
        /// What was written.
        key: String,
        /// Those that it has.
        valid: Vec<&'static str>,
    },
    /// A value that makes no sense.
    #[error("{law}: {key}={value}; valid are {valid}")]
    Value {
        /// The law.
        law: &'static str,
        /// The parameter.
        key: &'static str,
        /// What was written.
        value: String,
        /// What may be.
        valid: &'static str,
    },
}

fn nearest(word: &str, valid: &[&str]) -> String {
    let best =
        valid.iter().max_by(|a, b| strsim::jaro_winkler(word, a).total_cmp(&strsim::jaro_winkler(word, b)));
    match best {
        Some(best) if strsim::jaro_winkler(word, best) > 0.7 => format!("; did you mean '{best}'?"),
        _ => String::new(),
    }
}

/// Parameters of a law that are numbers, each with what it may be; those of limits and windows
/// stand apart.
enum Slot<'l> {
    Share(&'l mut f64),
    Factor(&'l mut f64),
    Window(&'l mut u32),
    Budget(&'l mut Option<u64>),
}

impl Slot<'_> {
    fn valid(&self) -> &'static str {
        match self {
            Self::Share(_) => "numbers above 0, up to 1",
            Self::Factor(_) => "numbers above 0, up to 1000",
            Self::Window(_) => "whole numbers from 1 to 100000",
            Self::Budget(_) => "milliseconds above 0",
        }
    }

    fn set(self, text: &str) -> Option<()> {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0)?;
        match self {
            Self::Share(slot) if number <= 1.0 => *slot = number,
            Self::Factor(slot) if number <= 1000.0 => *slot = number,
            Self::Window(slot) if number.fract() == 0.0 && number <= 1e5 => *slot = number as u32,
            Self::Budget(slot) if (1e-6..=1e9).contains(&number) => *slot = Some((number * 1e6) as u64),
            _ => return None,
        }
        Some(())
    }
}

/// Reads `name` or `name:key=value,…`. Every law takes `k_min`, `k_max` and `first` (the ratio of
/// the first step); the others are its fields' names.
pub fn parse(text: &str) -> Result<Controller, LawError> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let law = *LAWS
        .iter()
        .find(|law| **law == name)
        .ok_or_else(|| LawError::UnknownLaw { name: name.to_owned() })?;
    let [mut first, mut k_min, mut k_max] = match law {
        "netsense" => [NetSense::FIRST, NetSense::FLOOR, 1.0],
        "trim-feedback" => [0.75, 0.005, 1.0],
        "progress" => [0.1, 0.005, 1.0],
        "fixed" => [1.0, 1e-6, 1.0],
        _ => dc2::RATIOS,
    };
    let mut window = if law == "netsense" { 10 } else { 50 };
    let mut netsense = NetSense::default();
    let (mut da2, mut da3, mut da4, mut da5) =
        (Da2::default(), Da3::default(), Da4::default(), Da5::default());
    let mut ours = TrimFeedback::default();
    let mut progress = Progress::default();
    for pair in rest.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let mut slots = vec![
            ("k_min", Slot::Share(&mut k_min)),
            ("k_max", Slot::Share(&mut k_max)),
            ("first", Slot::Share(&mut first)),
        ];
        match law {
            "netsense" => slots.extend([
                ("beta1", Slot::Share(&mut netsense.beta1)),
                ("beta2", Slot::Share(&mut netsense.beta2)),
                ("alpha", Slot::Share(&mut netsense.alpha)),
                ("share", Slot::Factor(&mut netsense.share)),
                ("excessive", Slot::Factor(&mut netsense.excessive)),
            ]),
            "da2" => slots.extend([
                ("variation", Slot::Share(&mut da2.variation)),
                ("increase", Slot::Share(&mut da2.increase)),
                ("decrease", Slot::Share(&mut da2.decrease)),
            ]),
            "da3" => slots.extend([
                ("variation", Slot::Share(&mut da3.variation)),
                ("increase", Slot::Share(&mut da3.increase)),
                ("decrease", Slot::Share(&mut da3.decrease)),
            ]),
            "da4" => slots.extend([
                ("increase", Slot::Share(&mut da4.increase)),
                ("beta", Slot::Factor(&mut da4.beta)),
            ]),
            "da5" => slots.extend([
                ("increase", Slot::Share(&mut da5.increase)),
                ("beta", Slot::Factor(&mut da5.beta)),
                ("alpha", Slot::Factor(&mut da5.alpha)),
            ]),
            "trim-feedback" => slots.extend([
                ("low", Slot::Share(&mut ours.low)),
                ("high", Slot::Share(&mut ours.high)),
                ("memory", Slot::Factor(&mut ours.memory)),
                ("fastest", Slot::Share(&mut ours.fastest)),
                ("budget_ms", Slot::Budget(&mut ours.budget_ns)),
            ]),
            "progress" => slots.extend([
                ("low", Slot::Share(&mut progress.low)),
                ("high", Slot::Share(&mut progress.high)),
                ("price", Slot::Factor(&mut progress.price)),
                ("memory", Slot::Window(&mut progress.memory)),
            ]),
            _ => {}
        }
        if !matches!(law, "trim-feedback" | "progress" | "fixed") {
            slots.push(("window", Slot::Window(&mut window)));
        }
        let valid: Vec<&'static str> = slots.iter().map(|(key, _)| *key).collect();
        let Some((key, slot)) = slots.into_iter().find(|(name, _)| *name == key.trim()) else {
            return Err(LawError::UnknownParameter { law, key: key.trim().to_owned(), valid });
        };
        let (valid, text) = (slot.valid(), value.trim());
        slot.set(text).ok_or_else(|| LawError::Value { law, key, value: text.to_owned(), valid })?;
    }
    if k_min > k_max {
        return Err(LawError::Value {
            law,
            key: "k_min",
            value: k_min.to_string(),
            valid: "numbers up to k_max",
        });
    }
    let monitor = DelayMonitor::new(window);
    let law = match law {
        "netsense" => Laws::Netsense(netsense.over(window)),
        "da1" => Laws::Da1(Da1 { monitor }),
        "da2" => Laws::Da2(Da2 { monitor, ..da2 }),
        "da3" => Laws::Da3(Da3 { monitor, ..da3 }),
        "da4" => Laws::Da4(Da4 { monitor, ..da4 }),
        "da5" => Laws::Da5(Da5 { monitor, ..da5 }),
        "trim-feedback" => Laws::TrimFeedback(ours),
        "progress" => Laws::Progress(progress),
        _ => Laws::Fixed,
    };
    Ok(Controller::new(law, Limits { k_min, k_max }, first))
}
