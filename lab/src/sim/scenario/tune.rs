// SPDX-License-Identifier: Apache-2.0
//! Settings that a run is tried with, so that each transport is compared at its best.
//!
//! ```text
//!  - { name: DCTCP, transport: { dctcp: {} }, tune: { by: p99, transport.dctcp.rto_min: [1ms, 10ms], switch.buffer: [512KiB, 5MB] } }
//!    ─► DCTCP; DCTCP: rto_min 1ms, buffer 512KiB; DCTCP: rto_min 1ms, buffer 5MB; …
//! ```

use super::figure::Measure;
use super::file::{Run, ScenarioError, reason};
use super::locate::line_of;
use serde::Deserialize;
use yaml_serde::{Mapping, Value};

/// Combinations of a run at most: each is simulated.
const MOST: usize = 256;

/// A grid: of each key the values that are tried, a key being a way into the run, with points.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct TuneWords {
    /// The best has least of it.
    pub(super) by: Measure,
    #[serde(flatten)]
    keys: Mapping,
}

impl TuneWords {
    /// The key that set what stands at a path in the run, or next to it.
    pub(super) fn key_of(&self, path: &[&str]) -> Option<&str> {
        let along = |key: &str| key.split('.').zip(path).take_while(|(a, b)| a == *b).count();
        let keys = self.keys.keys().filter_map(Value::as_str).map(|key| (along(key), key));
        keys.filter(|(along, _)| *along > 0).max_by_key(|(along, _)| *along).map(|(_, key)| key)
    }
}

/// Each run, followed by what its grid makes of it.
pub(super) fn expand(
    file: &Value,
    text: &str,
    name: &str,
    runs: Vec<Run>,
) -> Result<Vec<Run>, ScenarioError> {
    let mut all = Vec::new();
    for (item, mut run) in runs.into_iter().enumerate() {
        run.item = item;
        let tune = run.tune.take();
        let made = tune.iter().map(|tune| {
            combinations(tune, &file["runs"][item], &run).map_err(|(key, reason)| {
                let line = line_of(text, &["runs", "tune", &key], Some(item));
                ScenarioError::Value { file: name.to_owned(), line, reason: format!("tune: {key}: {reason}") }
            })
        });
        let made: Vec<Vec<Run>> = made.collect::<Result<_, _>>()?;
        run.tune = tune;
        all.push(run);
        all.extend(made.into_iter().flatten());
    }
    Ok(all)
}

/// What a grid makes of a run, or the key that is wrong.
fn combinations(tune: &TuneWords, words: &Value, run: &Run) -> Result<Vec<Run>, (String, String)> {
    let mut made = vec![(words.clone(), Vec::new(), None)];
    for (key, values) in &tune.keys {
        let key = key.as_str().unwrap_or_default();
        let wrong = |reason: String| (key.to_owned(), reason);
        let values = values.as_sequence().filter(|values| !values.is_empty());
        let values = values.ok_or_else(|| wrong("valid is a list of values to try".to_owned()))?;
        if made.len() * values.len() > MOST {
            return Err(wrong(format!("more than {MOST} combinations")));
        }
        let mut next = Vec::new();
        for (words, settings, _) in &made {
            for value in values {
                let mut words: Value = words.clone();
                put(&mut words, key, value).map_err(wrong)?;
                let tried: Run =
                    yaml_serde::from_value(words.clone()).map_err(|error| wrong(reason(&error)))?;
                let last = key.rsplit('.').next().unwrap_or(key);
                let mut settings: Vec<String> = settings.clone();
                settings.extend(show(value).map(|value| format!("{last} {value}")));
                next.push((words, settings, Some(tried)));
            }
        }
        made = next;
    }
    let of_run = |(_, settings, tried): (Value, Vec<String>, Option<Run>)| {
        let settings = if settings.is_empty() { "as it is".to_owned() } else { settings.join(", ") };
        let name = format!("{}: {settings}", run.name);
        Some(Run { name, item: run.item, settings: Some(settings), ..tried? })
    };
    Ok(made.into_iter().filter_map(of_run).collect())
}

/// Sets what stands at the end of a way of keys, and makes the way.
pub(super) fn put(words: &mut Value, key: &str, value: &Value) -> Result<(), String> {
    if key.split('.').next() == Some("tune") || key.split('.').next() == Some("name") {
        return Err("valid are the other keys of a run".to_owned());
    }
    let mut at = words;
    for part in key.split('.') {
        if at.is_null() {
            *at = Value::Mapping(Mapping::new());
        }
        let inside = at.as_mapping_mut().ok_or_else(|| format!("{part}: what it stands in has no keys"))?;
        at = inside.entry(part.into()).or_insert(Value::Null);
    }
    *at = value.clone();
    Ok(())
}

/// A value in words, `1ms` or `spray true duplicates 1000`; nothing of a mapping without keys.
fn show(value: &Value) -> Option<String> {
    match value {
        Value::Mapping(map) => {
            let words: Vec<String> =
                map.iter().map(|(key, value)| format!("{} {}", plain(key), plain(value))).collect();
            (!words.is_empty()).then(|| words.join(" "))
        }
        other => Some(plain(other)),
    }
}

fn plain(value: &Value) -> String {
    yaml_serde::to_string(value).unwrap_or_default().trim().to_owned()
}
