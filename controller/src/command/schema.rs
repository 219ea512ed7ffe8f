// SPDX-License-Identifier: Apache-2.0
//! `schema`.

use clap::Args;
use trimwire_controller::SCHEMA;

use super::outcome::{Outcome, print};

#[derive(Args)]
pub(crate) struct Schema {}

impl Schema {
    #[expect(clippy::unused_self, reason = "as the other subcommands")]
    pub(crate) fn run(&self) -> Outcome {
        print(SCHEMA.trim_end())?;
        Ok(0)
    }
}
