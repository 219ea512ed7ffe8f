// SPDX-License-Identifier: Apache-2.0
//! How something is asked for, and what is said when it is not there.

use std::fmt;

/// How an object of a P4 program is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'a> {
    /// Fully qualified name, or alias.
    Name(&'a str),
    /// Id, as on the wire.
    Id(u32),
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl<'a> From<&'a String> for Key<'a> {
    fn from(name: &'a String) -> Self {
        Self::Name(name)
    }
}

impl From<u32> for Key<'_> {
    fn from(id: u32) -> Self {
        Self::Id(id)
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name:?}"),
            // Object ids carry their kind in the top byte and are read in hex; field ids are small.
            Self::Id(id) if *id > 0xffff => write!(f, "with id {id:#010x}"),
            Self::Id(id) => write!(f, "with id {id}"),
        }
    }
}

/// What was asked for is not there.
///
/// Display names it, the place it was asked of, and the nearest (else all) names that are there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place} has no {kind} {asked}{}", hint(.nearest, .valid))]
#[non_exhaustive]
pub struct LookupError {
    /// "table", "match field", "action", …
    pub kind: &'static str,
    /// The name (quoted) or id that was asked for.
    pub asked: String,
    /// What it was asked of: the P4Info, a table, an action.
    pub place: String,
    /// Valid names that look like the one asked for, best first; empty when none does or an id was
    /// asked for.
    pub nearest: Vec<String>,
    /// All valid names, in P4Info's order.
    pub valid: Vec<String>,
}

impl LookupError {
    /// `valid` are the full names to choose from.
    pub(crate) fn new<'n>(
        kind: &'static str,
        asked: Key<'_>,
        place: impl Into<String>,
        valid: impl Iterator<Item = &'n str>,
    ) -> Self {
        let valid: Vec<String> = valid.map(str::to_owned).collect();
        let nearest = match asked {
            Key::Name(name) => nearest(name, &valid),
            Key::Id(_) => Vec::new(),
        };
        Self { kind, asked: asked.to_string(), place: place.into(), nearest, valid }
    }
}

fn hint(nearest: &[String], valid: &[String]) -> String {
    const SHOWN: usize = 8;
    if !nearest.is_empty() {
        return format!("; did you mean {}?", nearest.join(" or "));
    }
    match valid.len() {
        0 => "; there are none".to_owned(),
        n if n <= SHOWN => format!("; valid: {}", valid.join(", ")),
        n => format!("; valid: {}, … ({n} in all)", valid.get(..SHOWN).unwrap_or_default().join(", ")),
    }
}

/// Up to three names within a third of the asked name's length in edits (at least one edit),
/// nearest first.
///
/// A name is also compared by its last component, because people leave the control's name out.
pub fn nearest(asked: &str, valid: &[String]) -> Vec<String> {
    // Suggestions only: names this long are not typing errors, and the distance is quadratic.
    const LONGEST: usize = 200;
    if asked.len() > LONGEST {
        return Vec::new();
    }
    let asked_lower = asked.to_lowercase();
    let mut near: Vec<(usize, &String)> = valid
        .iter()
        .filter(|name| name.len() <= LONGEST)
        .filter_map(|name| {
            let lower = name.to_lowercase();
            let last = lower.rsplit('.').next().unwrap_or(&lower);
            let whole = strsim::damerau_levenshtein(&asked_lower, &lower);
            let distance = whole.min(strsim::damerau_levenshtein(&asked_lower, last));
            (distance <= (asked.chars().count() / 3).max(1)).then_some((distance, name))
        })
        .collect();
    near.sort();
    near.into_iter().take(3).map(|(_, name)| name.clone()).collect()
}
