// SPDX-License-Identifier: Apache-2.0
//! `rollback`.

use std::collections::BTreeSet;

use anyhow::anyhow;
use clap::Args;
use trimwire_controller::record::Record;
use trimwire_controller::{Fabric, Options};

use super::file::FileArgs;
use super::outcome::{Failure, Outcome, bad_input, failed, say};
use super::rollout::{RolloutArgs, same_programs};

#[derive(Args)]
pub(crate) struct Rollback {
    #[command(flatten)]
    file: FileArgs,
    /// Number of the roll-out to go back to, from `history` [default: the last good one of another
    /// file].
    #[arg(value_name = "NUMBER")]
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
        self.same_switches(&record, &fabric)?;
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

    /// Files of one name share a folder of records where --state or its variable names it: none is
    /// rolled out to another's switches.
    fn same_switches(&self, record: &Record, fabric: &Fabric) -> Result<(), Failure> {
        // Of a file that cannot be read nothing is known, and going back is what it needs.
        let Ok(now) = self.file.read() else { return Ok(()) };
        let addresses = |fabric: &Fabric| -> BTreeSet<String> {
            fabric.switches.values().map(|switch| switch.address.clone()).collect()
        };
        let (then, now) = (addresses(fabric), addresses(&now.0));
        if !then.is_disjoint(&now) {
            return Ok(());
        }
        let some = |addresses: &BTreeSet<String>| addresses.first().cloned().unwrap_or_default();
        Err(bad_input(anyhow!(
            "roll-out {} was of other switches (one is at {}) than {} names (one is at {}): do two fabric files of this name share a folder of \
             records? --state DIR, or TRIMWIRE_STATE, gives each its own",
            record.number,
            some(&then),
            self.file.file.display(),
            some(&now)
        )))
    }
}
