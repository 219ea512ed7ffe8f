// SPDX-License-Identifier: Apache-2.0
//! Instructions, scratch limbs, constants and labels while a program is compiled.

use std::collections::BTreeMap;

use super::super::expression::Compare;
use super::super::layout::Layout;
use super::form::Code;
use super::insn::{At, Insn};

/// A place in the code that is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(pub(super) u32);

/// What the parameters of the action that is compiled stand for.
#[derive(Clone, Copy)]
pub(super) enum Arguments<'a> {
    /// The frame's limbs for arguments.
    Passed,
    /// Values that never change.
    Fixed(&'a [u64]),
}

/// The frame that is laid out: packet header vector, arguments, scratch, constants.
#[derive(Clone)]
pub(super) struct Frame {
    pub(super) limbs: Vec<u64>,
    arguments: usize,
    constants: BTreeMap<Vec<u64>, At>,
    /// First scratch limb, and one behind the last that was ever used.
    scratch: At,
    used: At,
}

impl Frame {
    /// `scratch` limbs are hoped to be enough.
    pub(super) fn new(layout: &Layout, arguments: usize, scratch: usize) -> Self {
        let first = (layout.size + arguments) as At;
        Self {
            limbs: vec![0; layout.size + arguments + scratch],
            arguments: layout.size,
            constants: BTreeMap::new(),
            scratch: first,
            used: first,
        }
    }

    /// Scratch limbs that were needed.
    pub(super) fn scratch_used(&self) -> usize {
        (self.used - self.scratch) as usize
    }

    /// Where scratch begins.
    pub(super) fn scratch(&self) -> usize {
        self.scratch as usize
    }
}

pub(super) struct Emitter<'a> {
    pub(super) layout: &'a Layout,
    /// With the notes of a trace.
    pub(super) traced: bool,
    pub(super) code: Code,
    pub(super) arguments: Arguments<'a>,
    frame: Frame,
    labels: Vec<Option<u32>>,
    /// Most instructions, and most limbs of a frame.
    most: (usize, usize),
    /// The latest place that something leads to.
    block: u32,
    /// The next free scratch limb.
    free: At,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(layout: &'a Layout, frame: Frame, traced: bool, most: (usize, usize)) -> Self {
        let code = Code { arguments: frame.arguments, ..Code::default() };
        let free = frame.scratch;
        let (arguments, labels) = (Arguments::Passed, Vec::new());
        Self { layout, traced, code, arguments, frame, labels, most, block: 0, free }
    }

    /// Whether the program has more instructions, or limbs of constants and results, than it may.
    pub(super) fn is_full(&self) -> bool {
        self.code.insns.len() >= self.most.0 || self.frame.limbs.len() + self.free as usize > self.most.1
    }

    pub(super) fn emit(&mut self, insn: Insn) {
        self.code.insns.push(match insn {
            Insn::Low { drop: 0, to, from } => Insn::Copy { to, from },
            insn => insn,
        });
    }

    /// The limbs of a constant.
    pub(super) fn constant(&mut self, limbs: &[u64]) -> At {
        if let Some(&at) = self.frame.constants.get(limbs) {
            return at;
        }
        let at = self.frame.limbs.len() as At;
        self.frame.limbs.extend_from_slice(limbs);
        self.frame.constants.insert(limbs.to_vec(), at);
        at
    }

    pub(super) fn word(&mut self, value: u64) -> At {
        self.constant(&[value])
    }

    /// The value of a constant of one limb.
    pub(super) fn known(&self, at: At) -> Option<u64> {
        let value = *self.frame.limbs.get(at as usize)?;
        (self.frame.constants.get(&[value][..]) == Some(&at)).then_some(value)
    }

    /// Scratch limbs, until [`Self::release`].
    pub(super) fn take(&mut self, limbs: usize) -> At {
        let at = self.free;
        self.free += limbs as At;
        self.frame.used = self.frame.used.max(self.free);
        at
    }

    pub(super) fn release(&mut self) {
        self.free = self.frame.scratch;
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() as u32 - 1)
    }

    /// The label is here.
    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0 as usize] = Some(self.here());
        self.block = self.here();
    }

    pub(super) fn is_placed(&self, label: Label) -> bool {
        self.labels[label.0 as usize].is_some()
    }

    pub(super) fn here(&self) -> u32 {
        self.code.insns.len() as u32
    }

    pub(super) fn jump(&mut self, to: Label) {
        let back = self.is_placed(to);
        self.emit(if back { Insn::Loop { to: to.0 } } else { Insn::Jump { to: to.0 } });
    }

    pub(super) fn branch(&mut self, compare: Compare, signed: bool, left: At, right: At, to: Label) {
        let to = to.0;
        self.emit(match compare {
            Compare::Eq if self.known(right) == Some(0) => Insn::IfZero { to, value: left },
            Compare::Ne if self.known(right) == Some(0) => Insn::IfNotZero { to, value: left },
            Compare::Eq => Insn::IfEqual { to, left, right },
            Compare::Ne => Insn::IfUnequal { to, left, right },
            Compare::Lt if !signed => Insn::IfLess { to, left, right },
            Compare::Ge if !signed => Insn::IfNotLess { to, left, right },
            Compare::Gt if !signed => Insn::IfLess { to, left: right, right: left },
            Compare::Le if !signed => Insn::IfNotLess { to, left: right, right: left },
            compare => Insn::Branch { compare, to, left, right },
        });
    }

    /// The last instruction, where nothing leads to the place behind it.
    pub(super) fn last_of_block(&self) -> Option<Insn> {
        self.code.insns.last().copied().filter(|_| self.block < self.here())
    }

    pub(super) fn replace_last(&mut self, insn: Insn) {
        if let Some(last) = self.code.insns.last_mut() {
            *last = insn;
        }
    }

    /// Puts places where labels stand; the program is complete.
    pub(super) fn finish(mut self) -> (Code, Frame) {
        let labels = self.labels;
        let end = self.code.insns.len() as u32;
        self.code.insns.push(Insn::End);
        self.code.each_target(|label| *label = labels[*label as usize].unwrap_or(end));
        self.code.straighten();
        (self.code, self.frame)
    }
}
