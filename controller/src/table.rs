// SPDX-License-Identifier: Apache-2.0
//! Columns for people.

use std::fmt;

/// Text in columns that are as wide as their longest cell.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        // A column of numbers reads best flush right.
        let numeric = |column: usize| {
            let mut cells = self.rows.iter().skip(1).filter_map(|row| row.get(column)).peekable();
            cells.peek().is_some()
                && cells.all(|cell| {
                    matches!(cell.as_str(), "-" | "never") || cell.bytes().all(|b| b.is_ascii_digit())
                })
        };
        let numeric: Vec<bool> = (0..columns).map(numeric).collect();
        for (number, row) in self.rows.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            let cells = row.iter().zip(&widths).zip(&numeric).map(|((cell, width), numeric)| {
                if *numeric { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            f.write_str(cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}
