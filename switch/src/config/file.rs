// SPDX-License-Identifier: Apache-2.0
//! The settings file.
//!
//! ```yaml
//! priority_queues: 8      # 1 to 8
//! qdepth_unit: packets    # packets, bytes or cells
//! buffer: 16MiB           # shared by all queues
//! rate: 10Gbps            # of every port
//! queue_limit: 512KiB     # of every queue
//! queues:                 # of every port
//!   6: {cap: 50%, limit: 64KiB}
//!   1: {weight: 3}
//!   0: {weight: 1, alpha: 1/2}
//! ports:
//!   3:
//!     rate: 40Mbps
//!     queue_limit: 64KiB
//!     queues:
//!       6: {cap: 10%}     # instead of what is said above of queue 6
//! ```

use super::yaml::{Node, Value, parse};
use super::{QUEUE_KEYS, port, quantity, queue_number, set, unknown};
use crate::traffic::{DepthUnit, QUEUES, QueueConfig};
use std::collections::BTreeMap;

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct ConfigError {
    /// The file, as it was named.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// What is wrong and what is possible.
    pub reason: String,
}

/// What a file says; nothing is filled in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileConfig {
    /// Queues a port has.
    pub priority_queues: Option<u8>,
    /// Unit of depths.
    pub depth_unit: Option<DepthUnit>,
    /// Shared buffer, bytes.
    pub buffer_bytes: Option<u64>,
    /// All ports.
    pub all: PortEntry,
    /// Single ports.
    pub ports: BTreeMap<u16, PortEntry>,
}

/// What a file says of a port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortEntry {
    /// Line rate, bit/s.
    pub rate_bps: Option<u64>,
    /// Bytes.
    pub queue_limit_bytes: Option<u64>,
    /// Its queues.
    pub queues: BTreeMap<u8, QueueConfig>,
}

const PORT_KEYS: [&str; 3] = ["queue_limit", "queues", "rate"];
const KEYS: [&str; 7] =
    ["buffer", "ports", "priority_queues", "qdepth_unit", "queue_limit", "queues", "rate"];

type Failure = (usize, String);

impl FileConfig {
    /// Reads a file's text; `file` is its name for errors.
    ///
    /// # Errors
    /// Unknown and repeated keys and values out of range, each with its line and what could stand
    /// there.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigError> {
        parse(text).and_then(|node| read(&node)).map_err(|(line, reason)| ConfigError {
            file: file.to_owned(),
            line,
            reason,
        })
    }
}

fn read(root: &Node) -> Result<FileConfig, Failure> {
    let mut config = FileConfig::default();
    for (line, key, node) in entries(root)? {
        match key.as_str() {
            "priority_queues" => {
                let text = scalar(key, node)?;
                let count = text.parse().ok().filter(|&count| (1..=QUEUES as u8).contains(&count));
                config.priority_queues = Some(
                    count.ok_or_else(|| (node.line, format!("'{text}': expected 1 to {QUEUES} queues")))?,
                );
            }
            "qdepth_unit" => config.depth_unit = Some(at(node, scalar(key, node)?.parse())?),
            "buffer" => config.buffer_bytes = Some(at(node, quantity::size(scalar(key, node)?))?),
            "ports" => {
                for (line, name, node) in entries(node)? {
                    let number = port(name).map_err(|reason| (*line, reason))?;
                    let mut entry = PortEntry::default();
                    for (line, key, node) in entries(node)? {
                        if !read_port(&mut entry, key, node)? {
                            return Err((*line, unknown(key, &PORT_KEYS)));
                        }
                    }
                    if config.ports.insert(number, entry).is_some() {
                        return Err((*line, format!("port {number} is given twice")));
                    }
                }
            }
            _ if read_port(&mut config.all, key, node)? => {}
            _ => return Err((*line, unknown(key, &KEYS))),
        }
    }
    // Queues that do not exist would be settings without effect.
    let count = config.priority_queues.unwrap_or(QUEUES as u8);
    let used =
        std::iter::once(&config.all).chain(config.ports.values()).flat_map(|entry| entry.queues.keys());
    if let Some(queue) = used.filter(|&&queue| queue >= count).max() {
        let reason = format!("queue {queue} is set up, but priority_queues is {count}");
        return Err((root.line, reason));
    }
    Ok(config)
}

/// Reads a key that ports have; false for another one.
fn read_port(entry: &mut PortEntry, key: &str, node: &Node) -> Result<bool, Failure> {
    match key {
        "rate" => entry.rate_bps = Some(at(node, quantity::rate(scalar(key, node)?))?),
        "queue_limit" => entry.queue_limit_bytes = Some(at(node, quantity::size(scalar(key, node)?))?),
        "queues" => {
            for (line, name, node) in entries(node)? {
                let number = queue_number(name).map_err(|reason| (*line, reason))?;
                let mut config = QueueConfig::default();
                for (line, key, node) in entries(node)? {
                    if !QUEUE_KEYS.contains(&key.as_str()) {
                        return Err((*line, unknown(key, &QUEUE_KEYS)));
                    }
                    at(node, set(&mut config, key, scalar(key, node)?))?;
                }
                if entry.queues.insert(number, config).is_some() {
                    return Err((*line, format!("queue {number} is given twice")));
                }
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// A mapping's entries, each key once; nothing is an empty mapping.
fn entries(node: &Node) -> Result<&[(usize, String, Node)], Failure> {
    match &node.value {
        Value::Mapping(entries) => {
            let mut seen = BTreeMap::new();
            for (line, key, _) in entries {
                if let Some(first) = seen.insert(key, line) {
                    return Err((*line, format!("'{key}' is given twice, first on line {first}")));
                }
            }
            Ok(entries)
        }
        Value::Null => Ok(&[]),
        Value::Scalar(text) => Err((node.line, format!("expected keys and values here, not '{text}'"))),
        Value::List => Err((node.line, "expected keys and values here, not a list".to_owned())),
    }
}

fn scalar<'a>(key: &str, node: &'a Node) -> Result<&'a str, Failure> {
    match &node.value {
        Value::Scalar(text) => Ok(text),
        _ => Err((node.line, format!("'{key}' needs a single value"))),
    }
}

fn at<T>(node: &Node, result: Result<T, String>) -> Result<T, Failure> {
    result.map_err(|reason| (node.line, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Share;
    use proptest::prelude::*;

    const EXAMPLE: &str = "priority_queues: 7\nqdepth_unit: cells\nbuffer: 16MiB\nrate: 10Gbps\nqueue_limit: 512KiB\n\
        queues:\n  6: {cap: 50%, limit: 64KiB}\n  0: {weight: 1, alpha: 1/2}\n\
        ports:\n  3:\n    rate: 40Mbps\n    queues:\n      6: {cap: 10%}\n";

    #[test]
    fn a_file_says_what_it_says() {
        let config = FileConfig::parse(EXAMPLE, "x.yaml").unwrap();
        assert_eq!((config.priority_queues, config.depth_unit), (Some(7), Some(DepthUnit::Cells)));
        assert_eq!((config.buffer_bytes, config.all.rate_bps), (Some(16 << 20), Some(10_000_000_000)));
        assert_eq!(config.all.queues[&6].limit_bytes, Some(65_536));
        assert_eq!(config.ports[&3].rate_bps, Some(40_000_000));
        assert_eq!(config.ports[&3].queues[&6].cap.map(Share::permille), Some(100));
        assert_eq!(config.ports[&3].queue_limit_bytes, None);
        assert_eq!(FileConfig::parse("", "x"), Ok(FileConfig::default()));
    }

    #[test]
    fn an_error_names_file_line_and_choices() {
        for (text, message) in [
            (
                "rate: 1Gbps\nbufer: 1MiB\n",
                "t.yaml:2: unknown key 'bufer'; did you mean 'buffer'? (known: buffer, ports",
            ),
            ("queues:\n  1:\n    wieght: 3\n", "t.yaml:3: unknown key 'wieght'; did you mean 'weight'?"),
            ("ports:\n  3: {buffer: 1}\n", "t.yaml:2: unknown key 'buffer'"),
            ("ports:\n  600: {}\n", "t.yaml:2: '600' is no port number; ports are 0 to 510"),
            ("queues:\n  8: {}\n", "t.yaml:2: '8' is no queue; queues are 0 to 7"),
            ("rate: 1Gbps\nrate: 2Gbps\n", "t.yaml:2: 'rate' is given twice, first on line 1"),
            ("ports: {3: {}, 03: {}}\n", "t.yaml:1: port 3 is given twice"),
            ("queues: [1]\n", "t.yaml:1: expected keys and values here, not a list"),
            ("rate: {}\n", "t.yaml:1: 'rate' needs a single value"),
            ("queues:\n  1: {cap: half}\n", "t.yaml:2: 'half' is no share of a line"),
            (
                "qdepth_unit: frames\n",
                "t.yaml:1: 'frames' is no unit of depth; expected packets, bytes or cells",
            ),
            ("priority_queues: 9\n", "t.yaml:1: '9': expected 1 to 8 queues"),
            ("priority_queues: 2\nqueues: {2: {}}\n", "queue 2 is set up, but priority_queues is 2"),
            ("a: &x 1\nb: *x\n", "t.yaml:2: aliases are not read"),
        ] {
            let error = FileConfig::parse(text, "t.yaml").unwrap_err().to_string();
            assert!(error.contains(message), "{text}{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_settings_or_an_error(
            text in "(rate|queues|ports|buffer|[0-9]|cap|weight|: |, |\\{|\\}|\\[|\\]|\n|  |50%|1Gbps|&x|\\*x|- ){0,40}",
        ) {
            let _ = FileConfig::parse(&text, "x");
        }
    }
}
