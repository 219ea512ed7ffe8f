// SPDX-License-Identifier: Apache-2.0
//! Expressions as p4c writes them, with names resolved: what `code` makes instructions of.
//!
//! BMv2 computes with unbounded integers and p4c masks every result to its P4 width. Two's
//! complement arithmetic modulo 2^(64·n) gives the same answer wherever either the exact value fits
//! n limbs, or only its low bits are asked for; `+ - * & | ^ ~ <<` need no more than the low bits
//! of their operands for the low bits of their result. `range` finds the smallest n, up to
//! [`MOST_LIMBS`], for each number by itself.

mod compile;
mod form;
mod range;
mod reference;

pub(super) use compile::{Scope, boolean, constant, number, number_of_width, value};
pub(super) use form::{Compare, Expr, HeaderRef, MOST_LIMBS, Ring, StackRef, UnionRef};
pub(super) use reference::{header, stack, union};
