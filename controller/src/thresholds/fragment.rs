// SPDX-License-Identifier: Apache-2.0
//! The answer as a piece of a fabric file.

use std::fmt::Write as _;

use super::report::{Answer, ClassAnswer};
use crate::units;

/// The `policy` of a fabric file, with trimming or, as MLT has it, with selective dropping.
pub fn fragment(answer: &Answer, trims: bool) -> String {
    let settings = &answer.settings;
    let policy = if trims { &answer.trimming } else { &answer.dropping };
    let time = |bytes: u64| {
        let ns = u128::from(bytes) * 8_000_000_000 / u128::from(settings.line_rate.max(1));
        format!("{:.1} us", ns as f64 / 1000.0)
    };
    let mut text = format!(
        "# {}: thresholds of least weighted loss at load {} of {}, {} bytes of buffer.\n\
         # Written by trimwire-controller thresholds; its assumptions are in docs/explanation/thresholds.md. Times are at that line rate.\n\
         policy:\n",
        // A comment ends where its line does.
        answer.model.replace(['\n', '\r'], " "),
        settings.load,
        units::rate_text(settings.line_rate),
        settings.buffer
    );
    if trims {
        let _ = write!(
            text,
            "  shallow_size: {}B\n  deep_size: {}B\n  trim_limit: {}B  # {}\n",
            settings.shallow_size,
            settings.deep_size,
            policy.trim_limit,
            time(policy.trim_limit)
        );
    } else {
        text.push_str("  trim: off\n  selective_drop: on\n");
    }
    text.push_str("  queues:\n");
    for class in &policy.classes {
        let ClassAnswer {
            class: name,
            less_important_shallow_at,
            less_important_deep_at,
            important_shallow_at,
            important_deep_at,
            drop_at,
            ..
        } = class;
        let _ = writeln!(text, "    {name}:\n      drop_at: {drop_at}B  # {}", time(*drop_at));
        let mut importance = |name: &str, shallow: u64, deep: u64| {
            let _ = if trims {
                writeln!(
                    text,
                    "      {name}: {{ shallow_at: {shallow}B, deep_at: {deep}B }}  # {}, {}",
                    time(shallow),
                    time(deep)
                )
            } else {
                writeln!(text, "      {name}: {{ shallow_at: {shallow}B }}  # {}", time(shallow))
            };
        };
        importance("important", *important_shallow_at, *important_deep_at);
        importance("less_important", *less_important_shallow_at, *less_important_deep_at);
    }
    text
}
