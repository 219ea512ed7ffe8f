// SPDX-License-Identifier: Apache-2.0
//! What `apply` and `rollback` have in common: a look, a question where one is due, a roll-out, and
//! its record.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use trimwire_controller::record::{Record, RecordError, Records};
use trimwire_controller::report::{PipelineState, Plan};
use trimwire_controller::topology::Topology;
use trimwire_controller::{Artifacts, Fabric, Options, Rollout, plan_blocking, roll_out_blocking, units};

use super::file::FileArgs;
use super::outcome::{FAILED, Failure, Outcome, bad_input, failed, say};
use super::progress::with_progress;

#[derive(Args)]
pub(crate) struct RolloutArgs {
    /// Election id to bid with; a switch makes the highest bidder its primary [default: the file's,
    /// else 1].
    #[arg(long, value_name = "ID", env = "TRIMWIRE_ELECTION_ID")]
    pub(crate) election_id: Option<u128>,
    /// Go on with other switches after a failure.
    #[arg(long)]
    keep_going: bool,
    /// Check a switch's counters for this long before the next switch; 0 skips the check [default:
    /// the file's, else 1s].
    #[arg(long, value_name = "TIME", value_parser = settle)]
    settle: Option<Duration>,
    /// Replace the program of switches that run another one without asking.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    state: StateArgs,
}

#[derive(Args, Clone)]
pub(crate) struct StateArgs {
    /// Folder of records [default: .trimwire beside the fabric file].
    #[arg(long, value_name = "DIR", env = "TRIMWIRE_STATE")]
    state: Option<PathBuf>,
}

impl StateArgs {
    pub(crate) fn records(&self, file: &FileArgs) -> Records {
        Records::of(&file.file, self.state.as_deref())
    }

    /// Switches that routes leave out.
    pub(crate) fn drained(&self, file: &FileArgs) -> Result<BTreeSet<String>, Failure> {
        Ok(self.records(file).drained().map_err(bad_input)?.into_keys().collect())
    }
}

fn settle(text: &str) -> Result<Duration, String> {
    units::time(text).map(Duration::from_nanos)
}

impl RolloutArgs {
    pub(crate) fn records(&self, file: &FileArgs) -> Records {
        self.state.records(file)
    }

    /// Looks, asks, does, and writes down. `text` is the fabric file's.
    pub(crate) fn run(
        &self,
        file: &FileArgs,
        command: &str,
        text: &str,
        (fabric, artifacts): (&Fabric, &Artifacts),
        options: &Options,
    ) -> Outcome {
        let options =
            Options { election_id: self.election_id, drained: self.state.drained(file)?, ..options.clone() };
        let plan = with_progress(&options.progress, || plan_blocking(fabric, artifacts, &options))
            .map_err(failed)?;
        self.ask(&plan, fabric, command, &options.drained)?;
        let of_file = Rollout::of(fabric);
        let rollout =
            Rollout { keep_going: self.keep_going, settle: self.settle.unwrap_or(of_file.settle), ..of_file };
        let records = self.records(file);
        let only: Vec<String> = options.only.iter().cloned().collect();
        let record = told(records.begin(command, text, fabric, artifacts, &only));
        let report = with_progress(&options.progress, || {
            roll_out_blocking(fabric, artifacts, &options, &plan, rollout)
        })
        .map_err(failed)?;
        if let Some(record) = record {
            told(records.end(record, &report));
        }
        file.print(&report)?;
        Ok(if report.is_ok() { 0 } else { FAILED })
    }

    /// Asks whether switches that do something else may stop doing it.
    fn ask(
        &self,
        plan: &Plan,
        fabric: &Fabric,
        command: &str,
        drained: &BTreeSet<String>,
    ) -> Result<(), Failure> {
        let others: Vec<&str> = plan
            .switches
            .iter()
            .filter(|switch| matches!(switch.pipeline, PipelineState::Different { .. }))
            .map(|switch| switch.switch.as_str())
            .collect();
        if self.yes || others.is_empty() {
            return Ok(());
        }
        let topology = Topology::of(fabric);
        let (spared, needed): (Vec<&str>, Vec<&str>) =
            others.iter().partition(|name| topology.spares(&BTreeSet::from([(**name).to_owned()]), drained));
        let saves = |name: &&str| fabric.switches.get(*name).is_some_and(|s| s.target.saves_programs());
        let (saving, blank): (Vec<&str>, Vec<&str>) = needed.into_iter().partition(saves);
        let mut what = Vec::new();
        for (names, words) in [
            (spared, "routes lead around it until the new one has its tables"),
            (saving, "no way round it; the new one takes over when its tables are written"),
            (blank, "no way round it; given a new one, it will forward nothing until the tables are written"),
        ] {
            if !names.is_empty() {
                what.push(format!("{}: {words}", names.join(", ")));
            }
        }
        let what = what.join(". ");
        let (count, all) = (others.len(), plan.switches.len());
        let question =
            format!("{count} of {all} switches run another program: {}. {what}", others.join(", "));
        let refused = |why: &str| failed(anyhow!("{question}. Nothing was changed: {why}"));
        let asks = if command.starts_with("rollback") { "rollback" } else { "apply" };
        let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
        if !stdin.is_terminal() {
            return Err(refused(&format!("nobody to ask; {asks} --yes goes on")));
        }
        let mut answer = String::new();
        let asked = write!(stderr, "{question}. Go on? [y/N] ").and_then(|()| stderr.flush());
        asked.and_then(|()| stdin.read_line(&mut answer)).map_err(failed)?;
        if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(refused("that was no yes")) }
    }
}

/// Switches are not kept waiting for a disk that is full: that there is no record is said, and the
/// work goes on.
pub(crate) fn told<T>(outcome: Result<T, RecordError>) -> Option<T> {
    outcome.inspect_err(|error| say(format_args!("warning: no record of this: {error}"))).ok()
}

/// Whether the programs of the switches are those that were rolled out then.
pub(crate) fn same_programs(record: &Record, fabric: &Fabric, artifacts: &Artifacts) -> Result<(), String> {
    for (name, cookie) in &record.programs {
        let found = format!("{:#018x}", artifacts.of(name).cookie());
        if fabric.switches.contains_key(name) && found != *cookie {
            return Err(format!(
                "{name}'s program had the cookie {cookie} then, and its files have {found}: put the files of then back"
            ));
        }
    }
    Ok(())
}
