// SPDX-License-Identifier: Apache-2.0
//! Progress of long work: a bar on a terminal, plain lines elsewhere. Always on stderr.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;

/// Progress towards a known number of steps.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A bar of `steps` steps of `what`.
    pub(crate) fn new(steps: u64, what: &'static str) -> Self {
        if !std::io::stderr().is_terminal() {
            eprintln!("{steps} {what} to go");
            return Self { bar: None };
        }
        let bar = ProgressBar::new(steps);
        let template = format!("{{bar:40}} {{pos}}/{{len}} {what}, {{eta}} to go");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self { bar: Some(bar) }
    }

    /// One step is done.
    pub(crate) fn step(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// A milestone worth a line where there is no bar.
    pub(crate) fn line(&self, text: &str) {
        if self.bar.is_none() {
            eprintln!("{text}");
        }
    }

    /// Takes the bar off the screen.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
