// SPDX-License-Identifier: Apache-2.0
//! STF, the packet tests of p4c: a text file that fills tables, sends packets and says what must
//! come out.
//!
//! ```text
//!  FILE.stf ── parse ──► statements ── run ──► Switch on virtual time ──► frames ── compare ──► Outcome
//! ```
//!
//! Statements mean what p4c's runner for BMv2 makes of them, names are BMv2's (or an end of one
//! that is not ambiguous). Expected packets of a port are compared with the port's frames in order,
//! at the end; frames to ports that the file never names are not looked at, because BMv2 has no
//! such port then.
//!
//! Beyond p4c's runner: `check_counter` checks (there it is ignored), `remove` removes, `no_packet`
//! is understood, range keys are written `LOW..HIGH` or `LOW->HIGH`, ternary ones also
//! `VALUE&&&MASK`, and `add` on a table with an action profile makes the member that the entry
//! needs.

#![forbid(unsafe_code)]

mod compare;
mod cursor;
mod error;
mod names;
mod number;
mod replication;
mod run;
mod script;

pub use compare::{Mismatch, Pattern};
pub use error::StfError;
pub use run::{Outcome, Reading, run};
pub use script::{Command, Script, Statement};
