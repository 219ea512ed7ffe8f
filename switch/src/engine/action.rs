// SPDX-License-Identifier: Apache-2.0
//! Actions as p4c writes them, with names resolved: what `code` makes instructions of.

mod compile;

pub(super) use compile::{Action, Names, assign, by_id, by_name, compile_primitive, load_all};

use super::expression::{Expr, HeaderRef, StackRef, UnionRef};
use super::layout::{Layout, Slot};

/// Where a result goes.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Slot(Slot),
    /// A field of a header found at run time; ignored where there is none.
    Dynamic {
        header: HeaderRef,
        field: u32,
    },
}

/// The field that holds a variable-length value, and the limb that holds its width.
#[derive(Clone, Copy, Debug)]
pub(super) struct Varbit {
    pub(super) slot: Slot,
    pub(super) length: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Assign {
        to: Target,
        value: Expr,
    },
    CopyVarbit {
        to: Varbit,
        from: Varbit,
    },
    AddHeader(HeaderRef),
    RemoveHeader(HeaderRef),
    CopyHeader {
        to: HeaderRef,
        from: HeaderRef,
    },
    CopyStack {
        to: u32,
        from: u32,
    },
    CopyUnionStack {
        to: u32,
        from: u32,
    },
    CopyUnion {
        to: UnionRef,
        from: UnionRef,
    },
    Push {
        stack: StackRef,
        count: Expr,
    },
    Pop {
        stack: StackRef,
        count: Expr,
    },
    /// Marks the standard metadata that it is given.
    Drop {
        egress_spec: Target,
        mcast_grp: Option<Target>,
    },
    Count {
        counter: u32,
        index: Expr,
    },
    ReadRegister {
        to: Target,
        register: u32,
        width: u32,
        index: Expr,
    },
    WriteRegister {
        register: u32,
        width: u32,
        index: Expr,
        value: Expr,
    },
    Meter {
        meter: u32,
        index: Expr,
        to: Target,
    },
    Hash {
        to: Target,
        base: Expr,
        calculation: u32,
        size: Expr,
    },
    Random {
        to: Target,
        low: Expr,
        high: Expr,
    },
    Clone {
        session: Expr,
        list: Expr,
    },
    Resubmit {
        list: Expr,
    },
    Recirculate {
        list: Expr,
    },
    Digest {
        list: Expr,
    },
    Truncate {
        length: Expr,
    },
    Exit,
    Assert {
        holds: Expr,
        place: Box<str>,
    },
    Log {
        format: Box<str>,
        values: Vec<Expr>,
    },
    Jump(u32),
    JumpIfZero {
        value: Expr,
        to: u32,
    },
    Nothing,
}

impl Target {
    /// A slot of the kind that a result goes to.
    pub(super) fn sample(&self, layout: &Layout) -> Option<Slot> {
        match self {
            Self::Slot(slot) => Some(*slot),
            Self::Dynamic { header, field } => {
                let like = &layout.headers[header.sample(layout)? as usize];
                like.fields.get(*field as usize).map(|field| field.slot)
            }
        }
    }

    /// Low bits of a number that decide what is stored. A signed slot tells numbers of its width
    /// from negative ones.
    pub(super) fn value_bits(&self, layout: &Layout) -> u32 {
        match self.sample(layout) {
            Some(slot) if slot.signed => (slot.width + 1).max(128),
            Some(slot) => slot.width,
            None => 1,
        }
    }
}
