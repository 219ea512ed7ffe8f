// SPDX-License-Identifier: Apache-2.0
//! `--set KEY=VALUE`: what unusual networks need, and what experiments and tests change.

use crate::transcript::FaultShares;
use crate::units::time_ns;
use std::fmt::Display;
use std::str::FromStr;
use trimwire_agent::driver::{Checksums, Receive};
use trimwire_encoder::{DEFAULT_ROW_LOG2, Decoding};

/// How the rate is found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateAlgorithm {
    Fixed,
    /// By delay.
    Timely,
    /// By trims, marks and losses.
    Dctcp,
}

/// All settings. `None`: what the rest of the program chooses.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) checksums: Checksums,
    pub(crate) coordinates_per_packet: Option<usize>,
    pub(crate) decoding: Decoding,
    pub(crate) droppable: bool,
    pub(crate) faults: Option<FaultShares>,
    pub(crate) job: Option<u8>,
    pub(crate) layer_class: u8,
    pub(crate) rate_algorithm: Option<RateAlgorithm>,
    pub(crate) receive: Receive,
    pub(crate) rendezvous_timeout_ns: u64,
    pub(crate) row_log2: u8,
    pub(crate) source_ports: u16,
    pub(crate) t_high_ns: Option<u64>,
    pub(crate) t_low_ns: Option<u64>,
    pub(crate) trim_delay_ns: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            checksums: Checksums::Filled,
            coordinates_per_packet: None,
            decoding: Decoding::Unbiased,
            droppable: false,
            faults: None,
            job: None,
            layer_class: 0,
            rate_algorithm: None,
            receive: Receive::Socket,
            rendezvous_timeout_ns: 60_000_000_000,
            row_log2: DEFAULT_ROW_LOG2,
            source_ports: 16,
            t_high_ns: None,
            t_low_ns: None,
            trim_delay_ns: None,
        }
    }
}

type Put = fn(&mut Settings, &str) -> Result<(), String>;

/// docs/reference/agent.md says what each means.
const KEYS: [(&str, Put); 15] = [
    ("checksums", |s, v| {
        one_of(&mut s.checksums, &[("filled", Checksums::Filled), ("zero", Checksums::Zero)], v)
    }),
    ("coordinates-per-packet", |s, v| some(&mut s.coordinates_per_packet, v.parse(), v)),
    ("decoding", |s, v| {
        let names = [("unbiased", Decoding::Unbiased), ("mmse", Decoding::Mmse), ("paper", Decoding::Paper)];
        one_of(&mut s.decoding, &names, v)
    }),
    ("droppable", |s, v| one_of(&mut s.droppable, &[("true", true), ("false", false)], v)),
    ("faults", |s, v| some(&mut s.faults, v.parse(), v)),
    ("job", |s, v| {
        within(0..=63, v)?;
        some(&mut s.job, v.parse(), v)
    }),
    ("layer-class", |s, v| {
        s.layer_class = within(0..=3, v)? as u8;
        Ok(())
    }),
    ("rate-algorithm", |s, v| {
        use RateAlgorithm::{Dctcp, Fixed, Timely};
        let names = [("fixed", Fixed), ("dctcp", Dctcp), ("timely", Timely)];
        one_of(&mut s.rate_algorithm, &names.map(|(name, algorithm)| (name, Some(algorithm))), v)
    }),
    ("receive", |s, v| one_of(&mut s.receive, &[("socket", Receive::Socket), ("raw", Receive::Raw)], v)),
    ("rendezvous-timeout", |s, v| {
        s.rendezvous_timeout_ns = time_ns(v)?;
        Ok(())
    }),
    ("row-log2", |s, v| {
        s.row_log2 = within(0..=u64::from(u8::MAX), v)? as u8;
        Ok(())
    }),
    ("source-ports", |s, v| {
        s.source_ports = within(1..=256, v)? as u16;
        Ok(())
    }),
    ("t-high", |s, v| some(&mut s.t_high_ns, time_ns(v), v)),
    ("t-low", |s, v| some(&mut s.t_low_ns, time_ns(v), v)),
    ("trim-delay", |s, v| some(&mut s.trim_delay_ns, time_ns(v), v)),
];

fn some<T, E: Display>(slot: &mut Option<T>, value: Result<T, E>, text: &str) -> Result<(), String> {
    *slot = Some(value.map_err(|error| format!("'{text}': {error}"))?);
    Ok(())
}

fn one_of<T: Copy>(slot: &mut T, names: &[(&str, T)], text: &str) -> Result<(), String> {
    let found = names.iter().find(|(name, _)| *name == text);
    let valid = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    *slot = found.ok_or_else(|| format!("'{text}' (valid: {})", valid()))?.1;
    Ok(())
}

fn within(range: std::ops::RangeInclusive<u64>, text: &str) -> Result<u64, String> {
    let (least, most) = (range.start(), range.end());
    let value = text.parse().ok().filter(|value| range.contains(value));
    value.ok_or_else(|| format!("'{text}' (valid: {least} to {most})"))
}

/// One `KEY=VALUE`, which is valid.
#[derive(Clone)]
pub(crate) struct Setting {
    put: Put,
    value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let Some((_, put)) = KEYS.iter().find(|(name, _)| *name == key) else {
            let likeness = |name: &str| (strsim::jaro_winkler(name, key) * 1e6) as u64;
            let nearest = KEYS.iter().map(|(name, _)| *name).max_by_key(|name| likeness(name));
            let valid: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
            let (nearest, valid) = (nearest.unwrap_or_default(), valid.join(", "));
            return Err(format!("unknown key '{key}', did you mean '{nearest}'? (valid: {valid})"));
        };
        put(&mut Settings::default(), value).map_err(|error| format!("{key}: {error}"))?;
        Ok(Self { put: *put, value: value.to_owned() })
    }
}

impl Settings {
    /// In the order in which they were given: the last one counts.
    pub(crate) fn of(given: &[Setting]) -> Self {
        let mut settings = Self::default();
        for Setting { put, value } in given {
            // It was tried when it was read.
            let _ = put(&mut settings, value);
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Setting>().err().unwrap_or_default()
    }

    #[test]
    fn keys_are_typed_and_a_wrong_one_names_the_nearest() {
        let given = ["job=3", "t-low=5us", "decoding=mmse", "faults=drop=0.1,trim=0.2", "job=0"];
        let given: Vec<Setting> = given.iter().map(|text| text.parse().expect("valid")).collect();
        let settings = Settings::of(&given);
        assert_eq!((settings.job, settings.t_low_ns, settings.source_ports), (Some(0), Some(5_000), 16));
        assert!(settings.decoding == Decoding::Mmse && settings.faults.is_some());
        assert!(error("jobs=3").contains("unknown key 'jobs', did you mean 'job'?"));
        assert!(error("job").contains("job: ''"));
        assert!(error("source-ports=0").contains("source-ports: '0' (valid: 1 to 256)"));
        assert!(error("decoding=fast").contains("decoding: 'fast' (valid: unbiased, mmse, paper)"));
        assert!(error("receive=cooked").contains("receive: 'cooked' (valid: socket, raw)"));
        assert!(error("faults=drop=2").contains("'2' is not in [0, 1)"));
    }
}
