// SPDX-License-Identifier: Apache-2.0
//! Files that a subcommand is given.

use std::path::Path;

use anyhow::{Context, anyhow};
use trimwire_controller::files;

use super::outcome::{Failure, bad_input};

/// All of a file.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    files::read(path).with_context(|| format!("cannot read {}", path.display())).map_err(bad_input)
}

/// The same, as text.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(bytes(path)?).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.split(|byte| *byte == b'\n').count();
        bad_input(anyhow!("{}:{line}: not UTF-8 text", path.display()))
    })
}
