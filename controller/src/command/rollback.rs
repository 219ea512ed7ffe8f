// SPDX-License-Identifier: Apache-2.0
//! `rollback`.

use anyhow::anyhow;
use clap::Args;
use trimwire_controller::Options;

use super::file::FileArgs;
use super::outcome::{Outcome, bad_input, failed, say};
use super::rollout::{RolloutArgs, same_programs};

#[derive(Args)]
pub(crate) struct Rollback {
    #[command(flatten)]
    file: FileArgs,
    /// Number of the roll-out to go back to, from `history` [default: the last good one of another file].
    #[arg(long, value_name = "NUMBER")]
    to: Option<u64>,
    #[command(flatten)]
    rollout: RolloutArgs,
}

impl Rollback {
    pub(crate) fn run(&self) -> Outcome {
        let records = self.rollout.records(&self.file);
        let record = records.good(self.to).map_err(failed)?;
        let text = records.text(&record).map_err(failed)?;
        // What the file names is looked for where it was: beside the fabric file.
        let (fabric, artifacts) = self.file.read_text(&text)?;
        same_programs(&record, &fabric, &artifacts).map_err(|reason| bad_input(anyhow!(reason)))?;
        say(format_args!("going back to {record}"));
        let command = format!("rollback to {}", record.number);
        let code =
            self.rollout.run(&self.file, &command, &text, (&fabric, &artifacts), &Options::default())?;
        if self.file.text().is_ok_and(|now| now != text) {
            say(format_args!(
                "{} itself says something else still: apply would bring that back",
                self.file.file.display()
            ));
        }
        Ok(code)
    }
}
