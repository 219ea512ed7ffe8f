// SPDX-License-Identifier: Apache-2.0
//! How far a run is: a bar with virtual time and rate on a terminal, a line now and then elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};
use trimwire_lab::sim::setup::Progress;

const LINE_EVERY: Duration = Duration::from_secs(10);

/// Watches one run on stderr.
#[derive(Debug)]
pub(crate) struct Watch {
    name: String,
    began: Instant,
    told: Instant,
    bar: Option<ProgressBar>,
}

#[expect(clippy::disallowed_methods, reason = "a report of how long a run takes; no result depends on it")]
fn now() -> Instant {
    Instant::now()
}

impl Watch {
    pub(crate) fn new(name: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:40} {pos}/{len} flows, {msg}") {
                bar.set_style(style);
            }
            bar.set_prefix(name.to_owned());
            bar
        });
        Self { name: name.to_owned(), began: now(), told: now(), bar }
    }

    /// What is run now, where a run has parts.
    pub(crate) fn name(&mut self, name: String) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(name.clone());
        }
        self.name = name;
    }

    pub(crate) fn tell(&mut self, progress: Progress) {
        let milliseconds = progress.now_ns as f64 / 1e6;
        if let Some(bar) = &self.bar {
            bar.set_length(progress.flows);
            bar.set_position(progress.finished);
            bar.set_message(format!("{milliseconds:.3} ms of virtual time"));
        } else if now() - self.told >= LINE_EVERY {
            self.told = now();
            eprintln!(
                "{}: {}/{} flows, {milliseconds:.3} ms of virtual time",
                self.name, progress.finished, progress.flows
            );
        }
    }

    /// Seconds that the run took.
    pub(crate) fn finish(&mut self) -> f64 {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        (now() - self.began).as_secs_f64()
    }
}
