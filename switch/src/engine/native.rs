// SPDX-License-Identifier: Apache-2.0
//! The program as machine code: what `machine` would carry out instruction by instruction, compiled when the program is loaded
//! (ESWITCH, Molnár et al., SIGCOMM 2016).
//!
//! ```text
//!  Code ── translate ──► Cranelift ──► one function ◄── call ──► Machine::step: tables, registers, whatever is not simple
//! ```
//!
//! Numbers of one limb, branches, selects and headers of fixed length become machine code. Tables, registers and counters are
//! calls, and any other instruction is a call of the interpreter, for that instruction alone. So both do the same by construction wherever the interpreter is called, and tests hold the rest
//! against it. Traces are always interpreted.
//!
//! Programs come from strangers, and machine code checks nothing. What keeps it inside its memory:
//! every limb that it names is looked at while it is translated, packets are read behind a comparison with their length, and places that are known only
//! at run time go through a table of those that there are.

mod call;
mod headers;
mod instruction;
mod packet;
mod packing;
mod places;
mod translate;
mod wide;

pub(super) use call::{Native, NativePacking};

use super::program::Parts;

/// More instructions are interpreted: compiling takes some 10 µs for each.
const MOST_INSTRUCTIONS: usize = 1 << 14;

#[cfg(test)]
mod tests;
