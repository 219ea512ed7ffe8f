// SPDX-License-Identifier: Apache-2.0
//! Parser and deparser as p4c writes them, with names resolved: what `code` makes instructions of.

mod compile;

pub(super) use compile::{Deparser, Parser, ValueSet};

use super::action::{Op, Target};
use super::expression::{Expr, HeaderRef};
use super::layout::Slot;

/// Widest value that a parser looks ahead for, in bits: as wide as any field.
const LONGEST_LOOKAHEAD: u32 = 1 << 14;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Extract(u32),
    /// The next element of a stack.
    ExtractNext(u32),
    /// A header whose variable-length field takes `bits`.
    ExtractVariable {
        header: u32,
        bits: Expr,
    },
    ExtractNextVariable {
        stack: u32,
        bits: Expr,
    },
    /// A member of the next union of a stack; `bits` for its variable-length field.
    ExtractNextMember {
        stack: u32,
        member: u32,
        bits: Option<Expr>,
    },
    SetLookahead {
        to: Target,
        offset: u32,
        width: u32,
    },
    Verify {
        condition: Expr,
        error: Expr,
    },
    /// Skips this many bits.
    Advance(Expr),
    Primitive(Op),
}

#[derive(Clone, Debug)]
pub(super) enum KeyPart {
    Field(Slot),
    /// A field of a stack's last element.
    Last {
        header: HeaderRef,
        field: u32,
        width: u32,
    },
    Lookahead {
        offset: u32,
        width: u32,
    },
}

impl KeyPart {
    pub(super) fn width(&self) -> u32 {
        match self {
            Self::Field(slot) => slot.width,
            Self::Last { width, .. } | Self::Lookahead { width, .. } => *width,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Case {
    /// `key & mask == value`, limb by limb.
    Value {
        value: Box<[u64]>,
        mask: Option<Box<[u64]>>,
        next: Option<u32>,
    },
    Set {
        set: u32,
        mask: Option<Box<[u64]>>,
        next: Option<u32>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) steps: Vec<Step>,
    pub(super) key: Vec<KeyPart>,
    pub(super) cases: Vec<Case>,
    pub(super) default: Option<u32>,
}
