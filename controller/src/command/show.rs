//! `show`.

use clap::{Args, ValueEnum};
use trimwire_controller::Options;
use trimwire_controller::show::{What, show_blocking};

use super::file::FileArgs;
use super::outcome::{FAILED, Outcome, failed};

#[derive(Args)]
pub(crate) struct Show {
    /// What to look at.
    #[arg(value_enum)]
    what: Shown,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shown {
    /// Routes and their next hops.
    Routes,
    /// Thresholds in bytes.
    Policy,
    /// Packets cut, dropped, marked and sent, by port and queue.
    Counters,
    /// Bytes queued, by port and queue.
    Queues,
}

impl Show {
    pub(crate) fn run(&self) -> Outcome {
        let (fabric, artifacts) = self.file.read()?;
        let what = match self.what {
            Shown::Routes => What::Routes,
            Shown::Policy => What::Policy,
            Shown::Counters => What::Counters,
            Shown::Queues => What::Queues,
        };
        let shown = show_blocking(&fabric, &artifacts, &Options::default(), what).map_err(failed)?;
        self.file.print(&shown)?;
        Ok(if shown.errors.is_empty() { 0 } else { FAILED })
    }
}
