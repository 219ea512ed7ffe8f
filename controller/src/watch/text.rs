// SPDX-License-Identifier: Apache-2.0
//! An interval as a table for people.

use std::fmt::{self, Write as _};

use super::{Interval, WatchRow};
use crate::table::Table;

impl Interval {
    /// A table of all queues, or of those where anything happens, and a line for each switch that does not answer.
    pub fn table(&self, all: bool) -> String {
        let mut table = Table::new(&[
            "port",
            "queue",
            "waiting_bytes",
            "peak_bytes",
            "admitted/s",
            "trimmed/s",
            "dropped/s",
            "marked/s",
            "transmitted/s",
        ]);
        let rows: Vec<&WatchRow> = self.queues.iter().filter(|row| all || row.is_busy()).collect();
        for row in &rows {
            let rates = [&row.admitted, &row.trimmed, &row.dropped, &row.marked, &row.transmitted];
            let rates = rates.map(|rate| format!("{:.0}", rate.packets_per_second));
            let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
            let cells = [
                format!("{}:{}", row.switch, row.port),
                format!("{} {}", row.queue, row.name),
                bytes(row.occupancy_bytes),
                bytes(row.peak_bytes),
            ];
            table.row(cells.into_iter().chain(rates));
        }
        let mut text = table.to_string();
        let idle = self.queues.len() - rows.len();
        if idle > 0 {
            let _ = write!(text, "\n{idle} queues idle");
        }
        for fault in &self.faults {
            let _ = write!(text, "\n{fault}");
        }
        if !self.replacing.is_over() {
            let _ = write!(text, "\n{}", self.replacing);
        }
        for (switch, error) in &self.errors {
            let _ = write!(text, "\n{switch}: {error}");
        }
        text
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table(false))
    }
}
