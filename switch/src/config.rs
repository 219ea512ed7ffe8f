// SPDX-License-Identifier: Apache-2.0
//! Settings of ports and queues: the quantities that people write, `--queue`'s form, and a YAML
//! file of all of it.

pub mod file;
pub mod quantity;
mod yaml;

pub use file::{ConfigError, FileConfig, PortEntry};

use crate::traffic::{QUEUES, QueueConfig, Service};
use std::collections::BTreeMap;

/// What a queue can be told, in a file and in `--queue`.
pub const QUEUE_KEYS: [&str; 4] = ["alpha", "cap", "limit", "weight"];

/// One `--queue`: the port (none: all), the queue, its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFlag {
    /// The port; none means all.
    pub port: Option<u16>,
    /// The queue.
    pub queue: u8,
    /// Its settings; what was not mentioned is at its default.
    pub config: QueueConfig,
}

/// Reads `[PORT/]QUEUE[,KEY=VALUE…]`, such as `6,cap=50%,limit=64KiB` or `3/0,weight=4`.
///
/// # Errors
/// The word that is wrong and what could stand there.
pub fn queue_flag(text: &str) -> Result<QueueFlag, String> {
    let mut words = text.split(',');
    let place = words.next().unwrap_or_default();
    let (port, queue) = match place.split_once('/') {
        Some((number, queue)) => (Some(port(number)?), queue),
        None => (None, place),
    };
    let queue = queue_number(queue)?;
    let mut config = QueueConfig::default();
    let mut seen = BTreeMap::new();
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| {
            format!("'{word}' has no value; expected KEY=VALUE with {}", QUEUE_KEYS.join(", "))
        })?;
        if seen.insert(key, value).is_some() {
            return Err(format!("'{key}' is given twice"));
        }
        set(&mut config, key, value)?;
    }
    Ok(QueueFlag { port, queue, config })
}

/// Sets one key of a queue.
fn set(config: &mut QueueConfig, key: &str, value: &str) -> Result<(), String> {
    match key {
        "alpha" => config.alpha = Some(value.parse()?),
        "cap" => config.cap = Some(value.parse()?),
        "limit" => config.limit_bytes = Some(quantity::size(value)?),
        "weight" => {
            let weight = value.parse().map_err(|_| {
                format!("'{value}' is no weight; expected 1 to 255 (a queue without one is strict)")
            })?;
            config.service = Service::Weighted(weight);
        }
        _ => return Err(unknown(key, &QUEUE_KEYS)),
    }
    Ok(())
}

/// A queue's number.
fn queue_number(text: &str) -> Result<u8, String> {
    let number = text.parse().ok().filter(|&queue| usize::from(queue) < QUEUES);
    number.ok_or_else(|| format!("'{text}' is no queue; queues are 0 to {}", QUEUES - 1))
}

/// A port's number.
fn port(text: &str) -> Result<u16, String> {
    let most = crate::engine::DROP_PORT - 1;
    let number = text.parse().ok().filter(|&port| port <= most);
    number.ok_or_else(|| format!("'{text}' is no port number; ports are 0 to {most}"))
}

/// An unknown key, with the nearest known one and all of them.
fn unknown(key: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(key, name), name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().div_ceil(3).max(2));
    let guess = nearest.map_or_else(String::new, |(_, name)| format!("; did you mean '{name}'?"));
    format!("unknown key '{key}'{guess} (known: {})", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Alpha, Share};
    use std::num::NonZeroU8;

    #[test]
    fn a_queue_is_set_in_one_word() {
        let config = QueueConfig {
            limit_bytes: Some(65_536),
            service: Service::Weighted(NonZeroU8::new(4).unwrap()),
            cap: Share::from_permille(500),
            alpha: Alpha::new(1, 8),
        };
        let all = queue_flag("6,cap=50%,limit=64KiB,alpha=1/8,weight=4").unwrap();
        assert_eq!(all, QueueFlag { port: None, queue: 6, config });
        assert_eq!(
            queue_flag("3/0").unwrap(),
            QueueFlag { port: Some(3), queue: 0, config: QueueConfig::default() }
        );
    }

    #[test]
    fn a_refused_queue_names_the_word_and_the_choices() {
        for (text, words) in [
            ("", &["''", "0 to 7"][..]),
            ("8", &["'8'", "0 to 7"]),
            ("511/1", &["'511'", "0 to 510"]),
            ("1,cap", &["'cap'", "KEY=VALUE"]),
            ("1,cpa=50%", &["'cpa'", "did you mean 'cap'"]),
            ("1,colour=red", &["'colour'", "alpha, cap, limit, weight"]),
            ("1,cap=50%,cap=60%", &["'cap'", "twice"]),
            ("1,weight=0", &["'0'", "1 to 255"]),
            ("1,limit=x", &["512KiB"]),
        ] {
            let message = queue_flag(text).unwrap_err();
            assert!(words.iter().all(|word| message.contains(word)), "{text}: {message}");
        }
    }
}
