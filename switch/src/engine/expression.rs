// SPDX-License-Identifier: Apache-2.0
//! Expressions as p4c writes them, with names resolved: what `code` makes instructions of.
//!
//! BMv2 computes with unbounded integers and p4c masks every result to its P4 width. Two's complement arithmetic modulo
//! 2^(64·n) gives the same answer wherever either the exact value fits n limbs, or only its low bits are asked for;
//! `+ - * & | ^ ~ <<` need no more than the low bits of their operands for the low bits of their result. `range` finds
//! the smallest n, up to [`MOST_LIMBS`], for each number by itself.

mod compile;
mod range;
mod reference;

pub(super) use compile::{Scope, boolean, constant, number, number_of_width, value};
pub(super) use reference::{HeaderRef, StackRef, UnionRef, header, stack, union};

use super::layout::Slot;

/// Most limbs of a number: p4c's widest type has 2048 bits, a product twice as many.
pub(super) const MOST_LIMBS: usize = 66;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// An expression. Booleans are 0 and 1.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Const(u128),
    /// A constant of more than 128 bits, and not negative.
    BigConst(Box<[u64]>),
    Field(Slot),
    Param(Slot),
    /// A field of a header found at run time; 0 where there is none.
    Dynamic {
        header: HeaderRef,
        field: u32,
        width: u32,
        signed: bool,
    },
    Register {
        register: u32,
        width: u32,
        index: Box<Expr>,
    },
    Ring {
        op: Ring,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Not(Box<Expr>),
    ShiftLeft {
        value: Box<Expr>,
        by: Box<Expr>,
    },
    ShiftRight {
        value: Box<Expr>,
        by: Box<Expr>,
        signed: bool,
    },
    Divide {
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Modulo {
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Compare {
        op: Compare,
        left: Box<Expr>,
        right: Box<Expr>,
        signed: bool,
    },
    /// `two_comp_mod`: the low bits as a signed number.
    SignExtend {
        value: Box<Expr>,
        width: u32,
    },
    /// `usat_cast` and `sat_cast`.
    Saturate {
        value: Box<Expr>,
        width: u32,
        to_signed: bool,
        from_signed: bool,
    },
    If {
        condition: Box<Expr>,
        then: Box<Expr>,
        otherwise: Box<Expr>,
    },
    BoolAnd(Box<Expr>, Box<Expr>),
    BoolOr(Box<Expr>, Box<Expr>),
    BoolNot(Box<Expr>),
    NonZero(Box<Expr>),
    Valid(HeaderRef),
    ValidUnion(UnionRef),
    SameHeader(HeaderRef, HeaderRef),
    SameUnion(UnionRef, UnionRef),
    /// Elements in use of a stack, which the limb `next` holds, less `minus`.
    StackNext {
        next: usize,
        minus: u32,
    },
}
