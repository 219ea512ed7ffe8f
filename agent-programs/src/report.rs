// SPDX-License-Identifier: Apache-2.0
//! What is printed at the end.

use serde::Serialize;
use trimwire_agent::driver::LinkStats;
use trimwire_agent::endpoint::EndpointStats;

/// The endpoint's and the link's totals.
#[derive(Debug, Serialize)]
pub(crate) struct Totals {
    pub(crate) datagrams_sent: u64,
    pub(crate) datagrams_received: u64,
    pub(crate) payload_bytes_sent: u64,
    pub(crate) payload_bytes_received: u64,
    pub(crate) data_sent: u64,
    pub(crate) data_received: u64,
    pub(crate) trimmed_received: u64,
    pub(crate) trimmed_last_hop_received: u64,
    pub(crate) control_sent: u64,
    pub(crate) control_received: u64,
    pub(crate) repairs_sent: u64,
    /// Datagrams that DATA was divided into which is too long for its path.
    pub(crate) pieces_sent: u64,
    /// Datagrams that found the own receive buffer full.
    pub(crate) overflowed: u64,
    pub(crate) malformed: u64,
    /// Of another job, from somewhere else than where the rank is, or from before a restart.
    pub(crate) foreign: u64,
    /// Control packets without the right tag, in a sealed job.
    pub(crate) unsealed: u64,
    pub(crate) refused: u64,
}

impl Totals {
    pub(crate) fn new(endpoint: &EndpointStats, link: LinkStats) -> Self {
        Self {
            datagrams_sent: link.sent,
            datagrams_received: link.received,
            payload_bytes_sent: link.sent_bytes,
            payload_bytes_received: link.received_bytes,
            data_sent: endpoint.data_sent,
            data_received: endpoint.data_received,
            trimmed_received: endpoint.trimmed_received,
            trimmed_last_hop_received: endpoint.trimmed_last_hop_received,
            control_sent: endpoint.control_sent,
            control_received: endpoint.control_received,
            repairs_sent: endpoint.repairs_sent,
            pieces_sent: endpoint.pieces_sent,
            overflowed: link.overflowed,
            malformed: endpoint.malformed,
            foreign: endpoint.foreign,
            unsealed: endpoint.unsealed,
            refused: link.refused + link.unaddressed,
        }
    }
}

/// Columns, right-aligned under their headings.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let words: Vec<String> = cells.zip(&widths).map(|(cell, &width)| format!("{cell:>width$}")).collect();
        words.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(&mut headings.iter().copied())];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    lines.join("\n")
}
