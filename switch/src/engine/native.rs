// SPDX-License-Identifier: Apache-2.0
//! The program as machine code: what `machine` would carry out instruction by instruction, compiled
//! when the program is loaded (ESWITCH, Molnár et al., SIGCOMM 2016).
//!
//! ```text
//!  Code ── translate ──► Cranelift ──► one function ◄── call ──► Machine::step: tables, registers, …
//! ```
//!
//! Numbers of one limb, branches, selects and headers of fixed length become machine code. Tables,
//! registers and counters are calls, and any other instruction is a call of the interpreter, for
//! that instruction alone. So both do the same by construction wherever the interpreter is called,
//! and tests hold the rest against it. Traces are always interpreted.
//!
//! Programs come from strangers, and machine code checks nothing. What keeps it inside its memory:
//! every limb that it names is checked while it is translated, packets are read behind a comparison
//! with their length, and places that are known only at run time go through a table of those that
//! there are.

pub(super) mod call;
mod headers;
mod instruction;
mod module;
mod packet;
pub(super) mod packing;
mod parts;
mod places;
mod translate;
mod wide;

#[cfg(test)]
mod tests;
