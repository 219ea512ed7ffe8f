// SPDX-License-Identifier: Apache-2.0
//! `apply`.

use clap::Args;

use super::file::FileArgs;
use super::outcome::Outcome;
use super::rollout::RolloutArgs;
use super::switches::SwitchArgs;

#[derive(Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    switches: SwitchArgs,
    #[command(flatten)]
    rollout: RolloutArgs,
}

impl Apply {
    pub(crate) fn run(&self) -> Outcome {
        let text = self.file.text()?;
        let (fabric, artifacts) = self.file.read_text(&text)?;
        let options = self.switches.options(&fabric)?;
        self.rollout.run(&self.file, "apply", &text, (&fabric, &artifacts), &options)
    }
}
