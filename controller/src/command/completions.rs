// SPDX-License-Identifier: Apache-2.0
//! `completions`.

use clap::{Args, CommandFactory};

use super::outcome::{Outcome, print};

#[derive(Args)]
pub(crate) struct Completions {
    /// Shell to print completions for.
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> Outcome {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "trimwire-controller", &mut text);
        print(String::from_utf8_lossy(&text).trim_end())?;
        Ok(0)
    }
}
