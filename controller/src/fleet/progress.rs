// SPDX-License-Identifier: Apache-2.0
//! Which switches are still being worked on, for somebody who waits.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A handle that work on a fabric keeps up to date; clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    total: usize,
    waiting: BTreeSet<String>,
}

impl Progress {
    pub(crate) fn begin(&self, switches: impl Iterator<Item = String>) {
        let waiting: BTreeSet<String> = switches.collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State { total: waiting.len(), waiting };
    }

    pub(crate) fn done(&self, switch: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).waiting.remove(switch);
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        let State { total, waiting } = &*self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "{} of {total} switches done", total - waiting.len())?;
        let shown: Vec<&str> = waiting.iter().take(SHOWN).map(String::as_str).collect();
        if !shown.is_empty() {
            write!(f, "; waiting for {}", shown.join(", "))?;
        }
        match waiting.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_is_told_how_many_are_done_and_for_whom_he_waits() {
        let progress = Progress::default();
        progress.begin((1..=6).map(|number| format!("s{number}")));
        progress.done("s2");
        assert_eq!(progress.to_string(), "1 of 6 switches done; waiting for s1, s3, s4, s5 and 1 more");
        for name in ["s1", "s3", "s4", "s5", "s6"] {
            progress.done(name);
        }
        assert_eq!(progress.to_string(), "6 of 6 switches done");
    }
}
