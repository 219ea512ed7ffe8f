//! `apply`.

use clap::Args;
use trimwire_controller::{Options, apply_blocking};

use super::file::FileArgs;
use super::outcome::{FAILED, Outcome, failed};
use super::progress::with_progress;
use super::switches::SwitchArgs;

#[derive(Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    switches: SwitchArgs,
    /// Bid with this election id; the highest of a switch's controllers is primary [default: the file's, else 1].
    #[arg(long, value_name = "ID", env = "TRIMWIRE_ELECTION_ID")]
    election_id: Option<u128>,
}

impl Apply {
    pub(crate) fn run(&self) -> Outcome {
        let (fabric, artifacts) = self.file.read()?;
        let options = Options { election_id: self.election_id, ..self.switches.options(&fabric)? };
        let report = with_progress(&options.progress, || apply_blocking(&fabric, &artifacts, &options))
            .map_err(failed)?;
        self.file.print(&report)?;
        Ok(if report.is_ok() { 0 } else { FAILED })
    }
}
