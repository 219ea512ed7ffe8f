// SPDX-License-Identifier: Apache-2.0
//! `thresholds`: how they follow the load.

use super::keys;
use crate::model::{FollowSettings, Follows, Overload};
use crate::units;
use crate::yaml::fields::{Fields, word};
use crate::yaml::problem::{Located, Problems};

/// In a shorter time counters say too little.
const SHORTEST: u64 = 10_000_000_000;
/// A day.
const LONGEST: u64 = 86_400_000_000_000;

pub(super) fn read(top: &Fields<'_>, overload: Overload, problems: &mut Problems) -> FollowSettings {
    let mut settings = FollowSettings::default();
    let Some(node) = top.node("thresholds") else { return settings };
    let fields = Fields::of(node, "thresholds", keys::FOLLOW, problems);
    let words = [("measure", Follows::Measure), ("propose", Follows::Propose), ("apply", Follows::Apply)];
    if let Some(Located { value, line, path, .. }) = fields.parsed("follow", problems, word(&words)) {
        if value != Follows::Measure && overload != Overload::Trim {
            problems.add(
                line,
                path,
                "thresholds follow only where packets are trimmed, and policy.trim is off",
            );
        }
        settings.follows = value;
    }
    let band = |text: &str| {
        let wrong = |_| format!("'{text}' is no band; write a share from 1% to 100%, as in 25%");
        units::share(text).map_err(wrong)
    };
    if let Some(band) = fields.parsed("band", problems, band) {
        settings.band = f64::from(band.value) / 1e6;
    }
    if let Some(Located { value, line, path, text }) = fields.parsed("every", problems, units::time) {
        if (SHORTEST..=LONGEST).contains(&value) {
            settings.every_ns = value;
        } else {
            problems.add(line, path, format!("'{text}' is not from 10s to 86400s; write every: 300s"));
        }
    }
    settings
}
