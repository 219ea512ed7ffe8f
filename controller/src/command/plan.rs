//! `plan`.

use clap::Args;
use trimwire_controller::{Options, plan_blocking};

use super::file::FileArgs;
use super::outcome::{FAILED, Outcome, failed};

#[derive(Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    file: FileArgs,
    /// Exit with 1 when apply would change something.
    #[arg(long)]
    detailed_exitcode: bool,
}

impl Plan {
    pub(crate) fn run(&self) -> Outcome {
        let (fabric, artifacts) = self.file.read()?;
        let plan = plan_blocking(&fabric, &artifacts, &Options::default()).map_err(failed)?;
        self.file.print(&plan)?;
        Ok(if !plan.is_ok() || (self.detailed_exitcode && !plan.is_empty()) { FAILED } else { 0 })
    }
}
