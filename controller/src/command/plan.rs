//! `plan`.

use clap::Args;
use trimwire_controller::plan_blocking;

use super::file::FileArgs;
use super::outcome::{FAILED, Outcome, failed};
use super::progress::with_progress;
use super::switches::SwitchArgs;

#[derive(Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    switches: SwitchArgs,
    /// Exit with 1 when apply would change something.
    #[arg(long)]
    detailed_exitcode: bool,
}

impl Plan {
    pub(crate) fn run(&self) -> Outcome {
        let (fabric, artifacts) = self.file.read()?;
        let options = self.switches.options(&fabric)?;
        let plan = with_progress(&options.progress, || plan_blocking(&fabric, &artifacts, &options))
            .map_err(failed)?;
        self.file.print(&plan)?;
        Ok(if !plan.is_ok() || (self.detailed_exitcode && !plan.is_empty()) { FAILED } else { 0 })
    }
}
