// SPDX-License-Identifier: Apache-2.0
//! What is told of the replacing of programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

/// How far the replacing of programs has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacing {
    /// Switches that run another program and wait for their turn.
    pub waiting: Vec<String>,
    /// Those whose turn it is.
    pub switches: BTreeSet<String>,
    /// Why it does not go on.
    pub stopped: Option<String>,
    /// Switches that are waited for, and why, while nothing is wrong.
    pub waits_for: BTreeMap<String, String>,
}

impl Replacing {
    /// No switch waits.
    pub fn is_over(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Replacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waiting, switches, stopped, waits_for } = self;
        f.write_str("new programs: ")?;
        if switches.is_empty() {
            f.write_str("it is nobody's turn")?;
        } else {
            write!(f, "it is {}'s turn", shortened(switches.iter().cloned()))?;
        }
        if !waiting.is_empty() {
            write!(f, ", {} more wait ({})", waiting.len(), shortened(waiting.iter().cloned()))?;
        }
        if !waits_for.is_empty() {
            let names = waits_for.iter().map(|(name, why)| format!("{name} ({why})"));
            write!(f, "; waiting for {}", shortened(names))?;
        }
        match stopped {
            Some(why) => write!(f, "; it does not go on: {why}"),
            None => Ok(()),
        }
    }
}

/// The first few of many.
fn shortened(all: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 6;
    let more = all.len().saturating_sub(SHOWN);
    let shown = all.take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown}, …") } else { shown }
}
