// SPDX-License-Identifier: Apache-2.0
//! What goes to stdout: tables for people, JSON for programs.

use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::io::Write as _;

/// Writes to stdout. A reader that has seen enough (`| head`) is no failure.
pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        _ => Ok(()),
    }
}

/// Writes a value to stdout as indented JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Renders a table: the first `left` columns are names and stand to the left, the others are
/// figures and stand to the right.
pub fn table(titles: &[&str], rows: &[Vec<String>], left: usize) -> String {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|row| row.get(i)).map(String::as_str);
        cells.chain(titles.get(i).copied()).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (i, (cell, &width)) in cells.zip(&widths).enumerate() {
            let gap = if i == 0 { "" } else { "  " };
            let _ = if i < left {
                write!(line, "{gap}{cell:<width$}")
            } else {
                write!(line, "{gap}{cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    line(&mut titles.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}
