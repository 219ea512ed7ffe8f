// SPDX-License-Identifier: Apache-2.0
//! `history`.

use std::fmt::{self, Display};

use clap::Args;
use serde::Serialize;
use trimwire_controller::record::Record;

use super::file::FileArgs;
use super::outcome::{Outcome, failed};
use super::rollout::StateArgs;

#[derive(Args)]
pub(crate) struct History {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    state: StateArgs,
}

/// The oldest first.
#[derive(Serialize)]
struct Rollouts {
    rollouts: Vec<Record>,
}

impl Display for Rollouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rollouts.is_empty() {
            return f.write_str("nothing was rolled out yet");
        }
        let lines: Vec<String> = self.rollouts.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl History {
    pub(crate) fn run(&self) -> Outcome {
        let rollouts = self.state.records(&self.file).all().map_err(failed)?;
        self.file.print(&Rollouts { rollouts })
    }
}
