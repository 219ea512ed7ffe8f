// SPDX-License-Identifier: Apache-2.0
//! STF, the packet tests of p4c: a text file that fills tables, sends packets and says what must come out.
//!
//! ```text
//!  FILE.stf ── Script::parse ──► statements ── run ──► Switch on virtual time ──► frames ── compare ──► Outcome
//! ```
//!
//! Statements mean what p4c's runner for BMv2 makes of them, names are BMv2's (or an end of one that is not
//! ambiguous). Expected packets of a port are compared with the port's frames in order, at the end; frames to ports that
//! the file never names are not looked at, because BMv2 has no such port then.
//!
//! Beyond p4c's runner: `check_counter` checks (there it is ignored), `remove` removes, `no_packet` is understood, range keys are written
//! `LOW..HIGH` or `LOW->HIGH`, ternary ones also `VALUE&&&MASK`, and `add` on a table with an action profile makes
//! the member that the entry needs.

#![forbid(unsafe_code)]

mod compare;
mod cursor;
mod names;
mod number;
mod replication;
mod run;
mod script;

pub use compare::{Mismatch, Pattern};
pub use run::{Outcome, Reading, run};
pub use script::{Command, Script, Statement};

/// Why an STF file cannot be run: what is wrong with it, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {message}")]
pub struct StfError {
    /// Counts from 1.
    pub line: usize,
    /// The culprit, and the valid choices.
    pub message: String,
}

/// `; did you mean …` for a near miss, else the choices.
fn hint(asked: &str, valid: &[String]) -> String {
    const SHOWN: usize = 12;
    let near = trimwire_p4runtime::p4info::nearest(asked, valid);
    if let Some(near) = near.first() {
        return format!("; did you mean '{near}'?");
    }
    let more = if valid.len() > SHOWN { ", …" } else { "" };
    match valid.get(..valid.len().min(SHOWN)).unwrap_or_default() {
        [] => "; there are none".to_owned(),
        shown => format!("; there are: {}{more}", shown.join(", ")),
    }
}
