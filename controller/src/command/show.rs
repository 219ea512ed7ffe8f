// SPDX-License-Identifier: Apache-2.0
//! `show`.

use clap::{Args, ValueEnum};
use trimwire_controller::show::{What, show_blocking};

use super::file::FileArgs;
use super::outcome::{FAILED, Outcome, failed};
use super::progress::with_progress;
use super::switches::SwitchArgs;

#[derive(Args)]
pub(crate) struct Show {
    /// What to show.
    #[arg(value_enum)]
    what: Shown,
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    switches: SwitchArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shown {
    /// Routes and their next hops.
    Routes,
    /// Thresholds in bytes.
    Policy,
    /// Packets trimmed, dropped, marked and sent, and bytes that wait, by port and queue.
    Counters,
}

impl Show {
    pub(crate) fn run(&self) -> Outcome {
        let (fabric, artifacts) = self.file.read()?;
        let what = match self.what {
            Shown::Routes => What::Routes,
            Shown::Policy => What::Policy,
            Shown::Counters => What::Counters,
        };
        let options = self.switches.options(&fabric)?;
        let shown = with_progress(&options.progress, || show_blocking(&fabric, &artifacts, &options, what))
            .map_err(failed)?;
        self.file.print(&shown)?;
        Ok(if shown.errors.is_empty() { 0 } else { FAILED })
    }
}
