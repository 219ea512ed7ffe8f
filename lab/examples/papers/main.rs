// SPDX-License-Identifier: Apache-2.0
//! Numbers of three papers next to ours: `cargo run -p trimwire-lab --example papers --
//! docs/figures` writes `papers-NAME.md` there.
//!
//! A test compares what is there with the same tables.

mod tables;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "docs/figures".to_owned());
    for (name, text) in tables::all()? {
        std::fs::write(format!("{folder}/{name}.md"), &text)?;
        print!("{text}");
    }
    Ok(())
}
