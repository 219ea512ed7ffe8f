// SPDX-License-Identifier: Apache-2.0
//! `trimwire-switch completions` and `trimwire-switch man`: what shells and manuals know of the
//! command line.

use crate::arguments::Arguments;
use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use std::path::PathBuf;

/// Print completions for a shell.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell to print completions for.
    shell: clap_complete::Shell,
}

pub(crate) fn completions(arguments: &Completions) -> anyhow::Result<String> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "trimwire-switch", &mut text);
    Ok(String::from_utf8(text)?)
}

/// Write the manual page into a folder.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Existing folder to write into.
    folder: PathBuf,
}

pub(crate) fn man(arguments: Man) -> anyhow::Result<String> {
    let Man { folder } = arguments;
    clap_mangen::generate_to(Arguments::command(), &folder)
        .with_context(|| format!("cannot write the manual page into '{}'", folder.display()))?;
    Ok(String::new())
}
