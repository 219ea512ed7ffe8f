// SPDX-License-Identifier: Apache-2.0
//! `--switch`: some of a fabric's switches.

use anyhow::anyhow;
use clap::Args;
use trimwire_controller::{Fabric, Options};

use super::outcome::{Failure, USAGE};

#[derive(Args)]
pub(crate) struct SwitchArgs {
    /// Work on this switch only; may be repeated.
    #[arg(long = "switch", value_name = "NAME")]
    only: Vec<String>,
}

impl SwitchArgs {
    /// Options for work on these switches.
    pub(crate) fn options(&self, fabric: &Fabric) -> Result<Options, Failure> {
        if let Some(unknown) = self.only.iter().find(|name| !fabric.switches.contains_key(*name)) {
            let valid: Vec<&str> = fabric.switches.keys().map(String::as_str).collect();
            let error = anyhow!(
                "--switch {unknown}: {} has no such switch; valid: {}",
                fabric.file,
                valid.join(", ")
            );
            return Err(Failure { code: USAGE, error });
        }
        Ok(Options { only: self.only.iter().cloned().collect(), ..Options::default() })
    }
}
