// SPDX-License-Identifier: Apache-2.0
//! Reading typed values out of the tree, collecting every mistake instead of stopping at the first.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use super::problem::{Located, Problems, hint};
use super::{Node, Value};

/// A mapping whose keys are known in advance.
pub(crate) struct Fields<'n> {
    pub line: usize,
    pub path: String,
    values: BTreeMap<&'n str, &'n Node>,
}

pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The entries of a mapping with free keys (names), doubled ones reported.
pub(crate) fn entries<'n>(
    node: &'n Node,
    path: &str,
    problems: &mut Problems,
) -> Vec<(&'n str, usize, &'n Node)> {
    match &node.value {
        Value::Mapping(entries) => {
            let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
            let mut unique = Vec::new();
            for (key, value) in entries {
                if let Some(first) = seen.get(key.name.as_str()) {
                    problems.add(
                        key.line,
                        join(path, &key.name),
                        format!("is already given in line {first}"),
                    );
                } else {
                    seen.insert(&key.name, key.line);
                    unique.push((key.name.as_str(), key.line, value));
                }
            }
            unique
        }
        Value::Null => Vec::new(),
        _ => {
            problems.add(node.line, path, format!("is {}; a mapping of names is wanted", node.kind()));
            Vec::new()
        }
    }
}

impl<'n> Fields<'n> {
    /// Takes a mapping apart; unknown and doubled keys are reported. Something else than a mapping
    /// is reported and reads as an empty one.
    pub(crate) fn of(node: &'n Node, path: &str, valid: &[&str], problems: &mut Problems) -> Self {
        let mut values = BTreeMap::new();
        if matches!(node.value, Value::Scalar(_) | Value::Sequence(_)) {
            let message = format!("is {}; a mapping is wanted (keys: {})", node.kind(), valid.join(", "));
            problems.add(node.line, path, message);
            return Self { line: node.line, path: path.to_owned(), values };
        }
        for (key, line, value) in entries(node, path, problems) {
            if valid.contains(&key) {
                values.insert(key, value);
            } else {
                problems.add(line, join(path, key), format!("unknown key{}", hint(key, valid)));
            }
        }
        Self { line: node.line, path: path.to_owned(), values }
    }

    /// A value; absent and empty (`key:`) are the same.
    pub(crate) fn node(&self, key: &str) -> Option<&'n Node> {
        self.values.get(key).copied().filter(|node| node.value != Value::Null)
    }

    pub(crate) fn path(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// Reports a key that has to be there and is not.
    pub(crate) fn missing(&self, key: &str, example: &str, problems: &mut Problems) {
        problems.add(self.line, &self.path, format!("'{key}' is missing; write {key}: {example}"));
    }

    /// A single value, read by `parse`, whose error becomes a problem.
    pub(crate) fn parsed<T, E: Display>(
        &self,
        key: &str,
        problems: &mut Problems,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<Located<T>> {
        let node = self.node(key)?;
        scalar(node, &self.path(key), problems, parse)
    }

    /// The same; reported when absent.
    pub(crate) fn required<T, E: Display>(
        &self,
        key: &str,
        example: &str,
        problems: &mut Problems,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<Located<T>> {
        if self.node(key).is_none() {
            self.missing(key, example, problems);
            return None;
        }
        self.parsed(key, problems, parse)
    }

    /// A list of single values.
    pub(crate) fn list<T, E: Display>(
        &self,
        key: &str,
        problems: &mut Problems,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Vec<Located<T>>> {
        let node = self.node(key)?;
        let path = self.path(key);
        let Value::Sequence(items) = &node.value else {
            problems.add(node.line, path, format!("is {}; a list is wanted, as in [3, 7]", node.kind()));
            return None;
        };
        Some(
            items
                .iter()
                .enumerate()
                .filter_map(|(position, item)| scalar(item, &format!("{path}[{position}]"), problems, &parse))
                .collect(),
        )
    }
}

fn scalar<T, E: Display>(
    node: &Node,
    path: &str,
    problems: &mut Problems,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<Located<T>> {
    let Value::Scalar(text) = &node.value else {
        problems.add(node.line, path, format!("is {}; a single value is wanted", node.kind()));
        return None;
    };
    match parse(text) {
        Ok(value) => Some(Located { value, text: text.clone(), line: node.line, path: path.to_owned() }),
        Err(error) => {
            problems.add(node.line, path, error.to_string());
            None
        }
    }
}

/// A whole number within a range, decimal or 0x….
pub(crate) fn integer<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String>
where
    T: TryFrom<u128> + PartialOrd + Display + Copy,
{
    move |text| {
        let digits = text.replace('_', "");
        let number = match digits.strip_prefix("0x") {
            Some(hex) => u128::from_str_radix(hex, 16).ok(),
            // `from_str` takes a plus sign; a fabric file has none.
            None => digits.parse::<u128>().ok().filter(|_| !digits.starts_with('+')),
        };
        number.and_then(|number| T::try_from(number).ok()).filter(|number| range.contains(number)).ok_or_else(
            || format!("'{text}' is not a whole number from {} to {}", range.start(), range.end()),
        )
    }
}

/// One of a few words.
pub(crate) fn word<T: Copy>(words: &[(&'static str, T)]) -> impl Fn(&str) -> Result<T, String> {
    move |text| {
        words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let valid: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            format!("'{text}' is not valid here{}", hint(text, &valid))
        })
    }
}

/// `on` and `off`, or `true` and `false`.
pub(crate) fn switched(text: &str) -> Result<bool, String> {
    word(&[("on", true), ("off", false), ("true", true), ("false", false)])(text)
}
