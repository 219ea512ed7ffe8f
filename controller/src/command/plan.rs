// SPDX-License-Identifier: Apache-2.0
//! `plan`.

use clap::Args;
use trimwire_controller::{Options, plan_blocking, show};

use super::file::FileArgs;
use super::outcome::{DIFFERS, FAILED, Outcome, failed, print};
use super::progress::with_progress;
use super::rollout::StateArgs;
use super::switches::SwitchArgs;

#[derive(Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    switches: SwitchArgs,
    /// Exit with 4 when apply would change something, 0 when not, 1 when a switch does not answer.
    #[arg(long)]
    detailed_exitcode: bool,
    #[command(flatten)]
    state: StateArgs,
    /// Show every threshold and every entry.
    #[arg(short, long)]
    verbose: bool,
}

impl Plan {
    pub(crate) fn run(&self) -> Outcome {
        let (fabric, artifacts) = self.file.read()?;
        let drained = self.state.drained(&self.file)?;
        let options = Options { drained, ..self.switches.options(&fabric)? };
        let plan = with_progress(&options.progress, || plan_blocking(&fabric, &artifacts, &options))
            .map_err(failed)?;
        if self.verbose && !self.file.json {
            print(&format!("{}\n", show::Planned(&fabric)))?;
            for switch in &plan.switches {
                print(&switch.to_string())?;
            }
        }
        self.file.print(&plan)?;
        let differs = plan.switches.iter().any(trimwire_controller::report::SwitchPlan::changes);
        Ok(match (plan.is_ok(), differs && self.detailed_exitcode) {
            (false, _) => FAILED,
            (true, true) => DIFFERS,
            (true, false) => 0,
        })
    }
}
