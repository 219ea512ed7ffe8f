// SPDX-License-Identifier: Apache-2.0
//! A program's code, and what instructions refer to that is larger than they are.

use super::super::layout::Slot;
use super::insn::{At, Insn};

/// A select on parts of at most 64 bits together.
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) key: At,
    pub(crate) cases: Vec<SelectCase>,
    pub(crate) default: u32,
}

/// `key & mask == value`.
#[derive(Debug)]
pub(crate) struct SelectCase {
    pub(crate) value: u64,
    pub(crate) mask: u64,
    pub(crate) next: u32,
}

/// A select with a wider key, or with value sets.
#[derive(Debug)]
pub(crate) struct SelectSet {
    /// The parts' limbs.
    pub(crate) parts: Vec<(At, usize)>,
    pub(crate) cases: Vec<SetCase>,
    pub(crate) default: u32,
}

#[derive(Debug)]
pub(crate) struct SetCase {
    pub(crate) values: CaseValues,
    pub(crate) mask: Option<Box<[u64]>>,
    pub(crate) next: u32,
}

#[derive(Debug)]
pub(crate) enum CaseValues {
    One(Box<[u64]>),
    /// A parser value set.
    Set(u32),
}

/// Where to go on after a table.
#[derive(Debug)]
pub(crate) enum Next {
    HitMiss { hit: u32, miss: u32 },
    ByAction { actions: Vec<(u32, u32)>, otherwise: u32 },
}

/// The text of a `log_msg` and its values: limbs, their number, and whether the number is signed.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) format: Box<str>,
    pub(crate) values: Vec<(At, u16, bool)>,
}

/// The fields and lengths of an assignment of variable-length fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VarbitCopy {
    pub(crate) to: (Slot, usize),
    pub(crate) from: (Slot, usize),
}

/// A whole program's instructions, and what those refer to that is larger than they are.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) insns: Vec<Insn>,
    /// A packet's frame when its life begins.
    pub(crate) frame: Vec<u64>,
    /// Where the arguments of actions lie in it.
    pub(crate) arguments: usize,
    /// Where scratch begins in it, which outlives no operation.
    pub(crate) scratch: usize,
    /// Where constants begin in it, behind which nothing is ever written.
    pub(crate) constants: usize,
    /// Where the parser, and what follows it, begin.
    pub(crate) parse: u32,
    /// Where a packet goes on that the parser rejects.
    pub(crate) rejected: u32,
    pub(crate) ingress: u32,
    pub(crate) egress: u32,
    pub(crate) deparse: u32,
    /// By table.
    pub(crate) next: Vec<Next>,
    /// By action.
    pub(crate) actions: Vec<u32>,
    pub(crate) selects: Vec<Select>,
    pub(crate) set_selects: Vec<SelectSet>,
    pub(crate) messages: Vec<Message>,
    /// Places of assertions in the source.
    pub(crate) places: Vec<Box<str>>,
    pub(crate) varbits: Vec<VarbitCopy>,
}
