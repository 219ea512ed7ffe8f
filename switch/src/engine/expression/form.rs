// SPDX-License-Identifier: Apache-2.0
//! What expressions are made of.

use super::super::layout::Slot;

/// Most limbs of a number: p4c's widest type has 2048 bits, a product twice as many.
pub(crate) const MOST_LIMBS: usize = 66;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// An expression. Booleans are 0 and 1.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
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

/// Which header is meant.
#[derive(Clone, Debug)]
pub(crate) enum HeaderRef {
    Fixed(u32),
    Element {
        stack: u32,
        index: Box<Expr>,
    },
    Last(u32),
    /// A member of a union that is known at run time only.
    Member {
        union: UnionRef,
        member: u32,
    },
}

/// Which header union is meant.
#[derive(Clone, Debug)]
pub(crate) enum UnionRef {
    Fixed(u32),
    Element { stack: u32, index: Box<Expr> },
    Last(u32),
}

/// Which stack is meant, of headers or of unions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackRef {
    Headers(u32),
    Unions(u32),
}
