// SPDX-License-Identifier: Apache-2.0
//! What is piped in, where a file's name is `-`.

use anyhow::{Context as _, Result, ensure};
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;

/// Whether a name stands for stdin.
pub(crate) fn is(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// All of it. A terminal is refused: nobody types gradients or packets, and a command that waits
/// for them looks hung.
pub(crate) fn read() -> Result<Vec<u8>> {
    let mut stdin = std::io::stdin();
    ensure!(!stdin.is_terminal(), "- reads from a pipe or a file, not from a terminal");
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes).context("cannot read stdin")?;
    Ok(bytes)
}
