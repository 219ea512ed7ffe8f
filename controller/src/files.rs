// SPDX-License-Identifier: Apache-2.0
//! Files that somebody names: read up to a length that none of ours comes near, so that a wrong
//! name, a device's among them, costs an error and no memory.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Longest file that is read, MiB, and most memory of a fabric file's values; a fabric of 10,000
/// hosts, written out, takes 5 of it.
pub const LONGEST_MIB: u64 = 16;

/// All of a file.
///
/// # Errors
/// Those of reading it; [`io::ErrorKind::FileTooLarge`] where it is longer than [`LONGEST_MIB`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take((LONGEST_MIB << 20) + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST_MIB << 20 {
        let message = format!("it is longer than {LONGEST_MIB} MiB");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}
