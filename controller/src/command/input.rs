//! Files that a subcommand is given.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, anyhow, ensure};

use super::outcome::{Failure, bad_input};

/// Longest file that is read; a fabric of 100,000 hosts, written out, has 15 MB.
const LONGEST_MIB: u64 = 64;

/// All of a file.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let read = || -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take((LONGEST_MIB << 20) + 1).read_to_end(&mut bytes)?;
        ensure!(bytes.len() as u64 <= LONGEST_MIB << 20, "it is longer than {LONGEST_MIB} MiB");
        Ok(bytes)
    };
    read().with_context(|| format!("cannot read {}", path.display())).map_err(bad_input)
}

/// The same, as text.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(bytes(path)?).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.split(|byte| *byte == b'\n').count();
        bad_input(anyhow!("{}:{line}: not UTF-8 text", path.display()))
    })
}
