// SPDX-License-Identifier: Apache-2.0
//! The subcommands, one a file. Each has its arguments and `run`, which gives the exit code.

mod apply;
mod check;
mod completions;
mod drain;
mod export;
mod file;
mod history;
mod input;
mod man;
mod outcome;
mod plan;
mod progress;
mod recording;
mod rollback;
mod rollout;
mod run;
mod schema;
mod show;
mod switches;
mod watch;

use clap::Subcommand;

pub(crate) use self::outcome::{Failure, Outcome, USAGE, in_words, say};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check a fabric file without talking to any switch.
    Check(check::Check),
    /// Show what apply would change. Writes nothing and needs no mastership.
    Plan(plan::Plan),
    /// Write what differs from the file to every switch, tier by tier. Stops at the first failure.
    Apply(apply::Apply),
    /// Take switches out of the routes, where other paths exist, before maintenance.
    Drain(drain::Drain),
    /// Put drained switches back into the routes.
    Undrain(drain::Undrain),
    /// Go back to the last fabric that was rolled out without a failure.
    Rollback(rollback::Rollback),
    /// List roll-outs: who, what, when, and how each ended.
    History(history::History),
    /// Keep every switch at what the file says. SIGHUP reads the file again.
    Run(run::Run),
    /// Watch queues: bytes waiting, packets trimmed, dropped and sent.
    Watch(watch::Watch),
    /// Show what switches hold and count.
    Show(show::Show),
    /// Write a switch's policy as another system's configuration.
    Export(export::Export),
    /// Print the JSON Schema of the fabric file.
    Schema(schema::Schema),
    /// Print completions for a shell.
    Completions(completions::Completions),
    /// Write manual pages into a folder.
    Man(man::Man),
}

impl Command {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Check(command) => command.run(),
            Self::Plan(command) => command.run(),
            Self::Apply(command) => command.run(),
            Self::Drain(command) => command.run(),
            Self::Undrain(command) => command.run(),
            Self::Rollback(command) => command.run(),
            Self::History(command) => command.run(),
            Self::Run(command) => command.run(),
            Self::Watch(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Export(command) => command.run(),
            Self::Schema(command) => command.run(),
            Self::Completions(command) => command.run(),
            Self::Man(command) => command.run(),
        }
    }

    /// What is logged where `TRIMWIRE_DEBUG` says nothing: the log is all that `run` shows.
    pub(crate) fn log_level(&self) -> &'static str {
        if matches!(self, Self::Run(_)) { "warn,trimwire_controller=info" } else { "warn" }
    }
}
