// SPDX-License-Identifier: Apache-2.0
//! What most subcommands are given: the fabric file and the program.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use trimwire_controller::{Artifacts, Fabric};

use super::input;
use super::outcome::{Failure, Outcome, bad_input, failed, print_value, say};

#[derive(Args)]
pub(crate) struct FileArgs {
    /// Fabric file.
    #[arg(value_name = "FABRIC.yaml")]
    pub(crate) file: PathBuf,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

impl FileArgs {
    /// Reads both. Warnings about the fabric go to stderr.
    pub(crate) fn read(&self) -> Result<(Fabric, Artifacts), Failure> {
        self.read_text(&self.text()?)
    }

    /// What the fabric file says.
    pub(crate) fn text(&self) -> Result<String, Failure> {
        input::text(&self.file)
    }

    /// The same, of a fabric file that says this.
    pub(crate) fn read_text(&self, text: &str) -> Result<(Fabric, Artifacts), Failure> {
        let fabric = self.fabric(text)?;
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let artifacts = Artifacts::embedded().map_err(failed)?;
        let artifacts = artifacts.for_fabric(&fabric, folder).map_err(bad_input)?;
        Ok((fabric, artifacts))
    }

    fn fabric(&self, text: &str) -> Result<Fabric, Failure> {
        let name = self.file.display().to_string();
        // The message names the file on every line already.
        let fabric = Fabric::from_yaml(text, &name).map_err(bad_input)?;
        for warning in &fabric.warnings {
            say(format_args!("warning: {warning}"));
        }
        Ok(fabric)
    }

    pub(crate) fn print(&self, value: &(impl Serialize + Display)) -> Outcome {
        print_value(value, self.json)
    }
}
