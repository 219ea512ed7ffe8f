// SPDX-License-Identifier: Apache-2.0
//! `man`.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use super::outcome::{Outcome, failed};

#[derive(Args)]
pub(crate) struct Man {
    /// Existing folder to write into.
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(&self) -> Outcome {
        let written = clap_mangen::generate_to(crate::Cli::command(), &self.folder);
        let what = || format!("cannot write manual pages into '{}'", self.folder.display());
        written.map_err(|error| failed(anyhow::Error::new(error).context(what())))?;
        Ok(0)
    }
}
