// SPDX-License-Identifier: Apache-2.0
//! Actions: each primitive as a few instructions.

use super::super::action::{Op, Target};
use super::super::bits::limbs_for;
use super::super::expression::{Compare, Expr};
use super::emitter::{Emitter, Label};
use super::form::{Message, VarbitCopy};
use super::insn::{At, Insn, NONE};

/// v1model's "no port": BMv2's default `--drop-port`.
pub const DROP_PORT: u16 = 511;

/// An `exit`, or an assertion that fails, may end the pipeline after these operations.
pub(super) fn may_exit(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op, Op::Exit | Op::Assert { .. }))
}

impl Emitter<'_> {
    /// The operations, one after another.
    pub(super) fn operations(&mut self, ops: &[Op]) {
        let targets: Vec<u32> = ops
            .iter()
            .filter_map(|op| match op {
                Op::Jump(to) | Op::JumpIfZero { to, .. } => Some(*to),
                _ => None,
            })
            .collect();
        let mut labels: Vec<Option<Label>> = vec![None; ops.len() + 1];
        for target in targets {
            let place = (target as usize).min(ops.len());
            labels[place] = Some(labels[place].unwrap_or_else(|| self.label()));
        }
        for (op, label) in ops.iter().zip(&labels) {
            if let Some(label) = label {
                self.place(*label);
            }
            let to = |target: &u32| labels[(*target as usize).min(ops.len())];
            match op {
                Op::Jump(target) => to(target).into_iter().for_each(|to| self.jump(to)),
                Op::JumpIfZero { value, to: target } => {
                    to(target).into_iter().for_each(|to| self.jump_if_zero(value, to));
                }
                op => self.operation(op),
            }
            self.release();
        }
        if let Some(Some(end)) = labels.last() {
            self.place(*end);
        }
    }

    fn jump_if_zero(&mut self, value: &Expr, to: Label) {
        if !self.is_placed(to) {
            return self.branch_unless(value, to);
        }
        let (back, on) = (self.label(), self.label());
        self.branch_unless(value, back);
        self.jump(on);
        self.place(back);
        self.jump(to);
        self.place(on);
    }

    /// Goes to `to` where a number or boolean is 0.
    fn branch_unless(&mut self, value: &Expr, to: Label) {
        match value {
            // `b2d`
            Expr::If { condition, then, otherwise }
                if matches!((&**then, &**otherwise), (Expr::Const(1), Expr::Const(0))) =>
            {
                self.branch_if(condition, false, to);
            }
            value if value.is_boolean() => self.branch_if(value, false, to),
            value => {
                let (at, zero) = (self.whole(value), self.word(0));
                self.branch(Compare::Eq, false, at, zero, to);
            }
        }
    }

    fn operation(&mut self, op: &Op) {
        match op {
            Op::Assign { to, value } => self.assign(to, value),
            Op::CopyVarbit { to, from } => {
                let varbit = self.code.varbits.len() as u32;
                let (to, from) = ((to.slot, to.length), (from.slot, from.length));
                self.code.varbits.push(VarbitCopy { to, from });
                self.emit(Insn::CopyVarbit { varbit });
            }
            Op::AddHeader(header) => {
                let header = self.header(header);
                self.emit(Insn::AddHeader { header });
            }
            Op::RemoveHeader(header) => {
                let header = self.header(header);
                self.emit(Insn::RemoveHeader { header });
            }
            Op::CopyHeader { to, from } => {
                let (to, from) = (self.header(to), self.header(from));
                self.emit(Insn::CopyHeader { to, from });
            }
            Op::CopyStack { to, from } => self.emit(Insn::CopyStack { to: *to, from: *from }),
            Op::CopyUnionStack { to, from } => self.emit(Insn::CopyUnionStack { to: *to, from: *from }),
            Op::CopyUnion { to, from } => {
                let (to, from) = (self.union(to), self.union(from));
                self.emit(Insn::CopyUnion { to, from });
            }
            Op::Push { stack, count } => {
                let count = self.whole(count);
                self.emit(Insn::Push { stack: *stack, count });
            }
            Op::Pop { stack, count } => {
                let count = self.whole(count);
                self.emit(Insn::Pop { stack: *stack, count });
            }
            Op::Drop { egress_spec, mcast_grp } => {
                self.assign(egress_spec, &Expr::Const(u128::from(DROP_PORT)));
                if let Some(mcast_grp) = mcast_grp {
                    self.assign(mcast_grp, &Expr::Const(0));
                }
            }
            other => self.external(other),
        }
    }

    /// What outlives the packet, and what is asked of the switch.
    fn external(&mut self, op: &Op) {
        match op {
            Op::Count { counter, index } => {
                let index = self.low(index);
                self.emit(Insn::Count { counter: *counter, index });
            }
            Op::ReadRegister { to, register, width, index } => {
                self.read_register(to, *register, *width, index);
            }
            Op::WriteRegister { register, width, index, value } => {
                let index = self.low(index);
                if *width <= 64 {
                    let value = self.low(value);
                    self.emit(Insn::WriteRegister { register: *register, index, value });
                    return;
                }
                let words = Self::words(value.need().low.max(*width));
                let value = self.number(value, words);
                let (register, words) = (*register, words as u16);
                self.emit(Insn::WriteCell { words, register, index, value });
            }
            Op::Meter { meter, index, to } => {
                let index = self.low(index);
                let color = self.take(1);
                self.emit(Insn::Meter { to: color, meter: *meter, index });
                let (none, after) = (self.word(NONE), self.label());
                self.branch(Compare::Eq, false, color, none, after);
                self.assign_limbs(to, color, 1);
                self.place(after);
            }
            Op::Hash { to, base, calculation, size } => {
                let (base, size, hash) = (self.low(base), self.low(size), self.take(1));
                self.emit(Insn::Hash { to: hash, calculation: *calculation });
                if self.known(size) != Some(1 << 32) || self.known(base) != Some(0) {
                    self.emit(Insn::Offset { to: hash, base, size });
                } else if !matches!(to, Target::Slot(slot) if slot.width <= 32 && !slot.signed) {
                    self.emit(Insn::Low { drop: 32, to: hash, from: hash });
                }
                self.assign_limbs(to, hash, 1);
            }
            Op::Random { to, low, high } => {
                let (low, high, value) = (self.low(low), self.low(high), self.take(1));
                let after = self.label();
                self.branch(Compare::Gt, false, low, high, after);
                self.emit(Insn::Random { to: value, low, high });
                self.assign_limbs(to, value, 1);
                self.place(after);
            }
            Op::Clone { session, list } => {
                let (session, list) = (self.low(session), self.low(list));
                self.emit(Insn::Clone { session, list });
            }
            Op::Resubmit { list } => {
                let list = self.low(list);
                self.emit(Insn::Resubmit { list });
            }
            Op::Recirculate { list } => {
                let list = self.low(list);
                self.emit(Insn::Recirculate { list });
            }
            Op::Digest { list } => {
                let list = self.low(list);
                self.emit(Insn::Digest { list });
            }
            Op::Truncate { length } => {
                let length = self.whole(length);
                self.emit(Insn::Truncate { length });
            }
            Op::Exit => self.emit(Insn::Exit),
            Op::Assert { holds, place } => {
                let (fails, after) = (self.label(), self.label());
                self.branch_unless(holds, fails);
                self.jump(after);
                self.place(fails);
                let number = self.code.places.len() as u32;
                self.code.places.push(place.clone());
                self.emit(Insn::Fail { place: number });
                self.place(after);
            }
            Op::Log { format, values } => {
                let values = values.iter().map(|value| {
                    let words = Self::words(value.need().exact);
                    (self.number(value, words), words as u16, value.range().negative)
                });
                let values = values.collect();
                let message = self.code.messages.len() as u32;
                self.code.messages.push(Message { format: format.clone(), values });
                self.emit(Insn::Log { message });
            }
            // Carried out above, or nothing.
            Op::Assign { .. }
            | Op::CopyVarbit { .. }
            | Op::AddHeader(_)
            | Op::RemoveHeader(_)
            | Op::CopyHeader { .. }
            | Op::CopyStack { .. }
            | Op::CopyUnionStack { .. }
            | Op::CopyUnion { .. }
            | Op::Push { .. }
            | Op::Pop { .. }
            | Op::Drop { .. }
            | Op::Jump(_)
            | Op::JumpIfZero { .. }
            | Op::Nothing => {}
        }
    }

    /// A cell to where it goes, or nothing where the index lies outside.
    fn read_register(&mut self, to: &Target, register: u32, width: u32, index: &Expr) {
        let index = self.low(index);
        if let Target::Slot(slot) = to
            && width <= 64
            && slot.width <= 64
            && !slot.signed
        {
            let drop = (64 - slot.width) as u8;
            self.emit(Insn::ReadRegister { drop, to: slot.at, register, index });
            return;
        }
        let (there, zero, after) = (self.take(1), self.word(0), self.label());
        self.emit(Insn::HasCell { to: there, register, index });
        self.branch(Compare::Eq, false, there, zero, after);
        // One bit more than the register has, so that its numbers are not negative.
        let words = limbs_for((width + 1).max(to.value_bits(self.layout)));
        let value = self.take(words);
        self.emit(Insn::ReadCell { words: words as u16, to: value, register, index });
        self.assign_limbs(to, value, words);
        self.place(after);
    }

    pub(super) fn assign(&mut self, to: &Target, value: &Expr) {
        let bits = to.value_bits(self.layout);
        match to {
            Target::Slot(slot) if slot.width <= 64 && !slot.signed => {
                self.number_into(value, slot.at, slot.width);
            }
            to => {
                let words = match value {
                    Expr::Field(_) | Expr::Param(_) | Expr::Const(_) | Expr::BigConst(_) => limbs_for(bits),
                    value => Self::words(value.need().low.max(bits)),
                };
                let value = self.number(value, words);
                self.assign_limbs(to, value, words);
            }
        }
    }

    /// The low bits of a number of `words` limbs to where they go.
    pub(super) fn assign_limbs(&mut self, to: &Target, from: At, words: usize) {
        match to {
            Target::Slot(slot) if slot.signed => {
                let from = self.at_least(from, words, limbs_for(slot.width));
                let words = words.max(limbs_for(slot.width)) as u16;
                self.emit(Insn::StoreSigned { words, to: slot.at, from, width: slot.width });
            }
            Target::Slot(slot) if slot.width <= 64 => {
                self.emit(Insn::Low { drop: (64 - slot.width) as u8, to: slot.at, from });
            }
            Target::Slot(slot) => {
                let from = self.at_least(from, words, limbs_for(slot.width));
                self.emit(Insn::Store { to: slot.at, from, width: slot.width });
            }
            Target::Dynamic { header, field } => {
                let width = to.sample(self.layout).map_or(1, |slot| slot.width);
                let from = self.at_least(from, words, limbs_for(width));
                let words = words.max(limbs_for(width)) as u16;
                let header = self.header(header);
                self.emit(Insn::StoreField { words, field: *field as u16, header, from });
            }
        }
    }

    /// A number that is not negative, in at least `least` limbs.
    fn at_least(&mut self, from: At, words: usize, least: usize) -> At {
        if words >= least {
            return from;
        }
        let to = self.take(least);
        self.emit(Insn::Extend { signed: false, limbs: words as u16, words: least as u16, to, from });
        to
    }
}
