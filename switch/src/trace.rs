// SPDX-License-Identifier: Apache-2.0
//! A packet's way through the switch, for people and for programs: the engine's records as text or
//! as JSON lines.

#![forbid(unsafe_code)]

mod json;
mod text;

pub use json::to_json;
pub use text::to_text;

use crate::engine::trace::Record;
use std::io::{self, Write};

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum TraceFormat {
    /// A line for each record, for people.
    #[default]
    Text,
    /// A JSON object on a line for each record.
    Json,
}

/// Writes records as they come.
///
/// # Errors
/// Those of `to`.
pub fn write(to: &mut dyn Write, format: TraceFormat, records: &[Record], lost: u64) -> io::Result<()> {
    for record in records {
        match format {
            TraceFormat::Text => writeln!(to, "{}", to_text(record))?,
            TraceFormat::Json => writeln!(to, "{}", to_json(record))?,
        }
    }
    match (lost, format) {
        (0, _) => {}
        (_, TraceFormat::Text) => {
            writeln!(to, "({lost} records lost: they came faster than they were written)")?;
        }
        (_, TraceFormat::Json) => {
            writeln!(to, "{}", serde_json::json!({ "event": "lost", "records": lost }))?;
        }
    }
    Ok(())
}
