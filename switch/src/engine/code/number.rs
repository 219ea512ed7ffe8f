// SPDX-License-Identifier: Apache-2.0
//! Numbers: each in as few limbs as its value takes, and straight to where it goes where one limb
//! is enough.

use super::super::bits::limbs_for;
use super::super::expression::{Expr, MOST_LIMBS, Ring};
use super::super::layout::Slot;
use super::emitter::{Arguments, Emitter};
use super::insn::{At, Insn, WideOp};

/// How many of a limb's bits a value of `width` leaves out.
fn dropped(width: u32) -> u8 {
    64_u32.saturating_sub(width) as u8
}

impl Emitter<'_> {
    /// Limbs for that many bits.
    pub(super) fn words(bits: u32) -> usize {
        limbs_for(bits).min(MOST_LIMBS)
    }

    /// The exact value in one limb: what needs more is [`NONE`](super::NONE), or more than anything
    /// is long.
    pub(super) fn whole(&mut self, expr: &Expr) -> At {
        let words = Self::words(expr.need().exact);
        let at = self.number(expr, words);
        if words == 1 {
            return at;
        }
        let to = self.take(1);
        self.emit(Insn::Wide { op: WideOp::Clamp, words: words as u8, to, left: at, right: 0 });
        to
    }

    /// The low 64 bits.
    pub(super) fn low(&mut self, expr: &Expr) -> At {
        let words = Self::words(expr.need().low.max(64));
        self.number(expr, words)
    }

    /// The low `words` limbs, which lie in the frame already or go to scratch.
    pub(super) fn number(&mut self, expr: &Expr, words: usize) -> At {
        if let Some(at) = self.in_place(expr, words) {
            return at;
        }
        let to = self.take(words);
        if words == 1 {
            self.number_into(expr, to, 64);
        } else {
            self.wide_into(expr, to, words);
        }
        to
    }

    /// Numbers that lie in the frame as they are, at least as long as asked for.
    fn in_place(&mut self, expr: &Expr, words: usize) -> Option<At> {
        match expr {
            Expr::Const(value) => {
                let mut limbs = vec![*value as u64, (*value >> 64) as u64];
                limbs.resize(words, 0);
                Some(self.constant(&limbs))
            }
            Expr::BigConst(limbs) => {
                let mut limbs = limbs.to_vec();
                limbs.resize(words, 0);
                Some(self.constant(&limbs))
            }
            Expr::SignExtend { value, width } => match **value {
                Expr::Const(value) => {
                    let value = super::super::slot::sign_extend(value, *width);
                    let sign = if value.cast_signed() < 0 { u64::MAX } else { 0 };
                    let mut limbs = vec![value as u64, (value >> 64) as u64];
                    limbs.resize(words, sign);
                    Some(self.constant(&limbs))
                }
                _ => None,
            },
            Expr::Field(slot) if !slot.signed && slot.limbs().len() >= words => Some(slot.at),
            Expr::Param(slot) => self.argument(*slot, words),
            // A cast to as many bits or more.
            Expr::Ring { op: Ring::And, left, right }
                if mask_of(right).is_some_and(|bits| fits(left, bits)) =>
            {
                self.in_place(left, words)
            }
            _ => None,
        }
    }

    fn argument(&mut self, slot: Slot, words: usize) -> Option<At> {
        match self.arguments {
            Arguments::Passed => (slot.limbs().len() >= words).then(|| self.code.arguments as At + slot.at),
            Arguments::Fixed(values) => {
                let mut limbs = values.get(slot.limbs()).unwrap_or(&[]).to_vec();
                limbs.resize(words, 0);
                Some(self.constant(&limbs))
            }
        }
    }

    /// The low `width` bits, at most 64, to a limb. Operands are read before the limb is written.
    pub(super) fn number_into(&mut self, expr: &Expr, to: At, width: u32) {
        let drop = dropped(width);
        let words = Self::words(expr.need().low.max(width));
        if words > 1 && !matches!(expr, Expr::Const(_) | Expr::BigConst(_) | Expr::Field(_) | Expr::Param(_))
        {
            let from = self.number(expr, words);
            self.emit(Insn::Low { drop, to, from });
            return;
        }
        if let Some(from) = self.in_place(expr, 1) {
            self.copy(if fits(expr, width) { 0 } else { drop }, to, from);
            return;
        }
        match expr {
            Expr::Ring { op: Ring::And, left, right } => match (&**left, mask_of(right)) {
                (value, Some(bits)) if bits >= width => self.number_into(value, to, width),
                (value, Some(bits)) => self.number_into(value, to, bits),
                _ => {
                    let (left, right) = (self.number(left, 1), self.number(right, 1));
                    let and = if width < 64 { self.take(1) } else { to };
                    self.emit(Insn::And { to: and, left, right });
                    if and != to {
                        self.emit(Insn::Low { drop, to, from: and });
                    }
                }
            },
            Expr::Ring { op, left, right } => {
                let (left, right) = (self.unmasked(left, width), self.unmasked(right, width));
                let (left, right) = (self.number(left, 1), self.number(right, 1));
                self.emit(match op {
                    Ring::Sub => Insn::Sub { drop, to, left, right },
                    Ring::Mul => Insn::Mul { drop, to, left, right },
                    Ring::Or => Insn::Or { drop, to, left, right },
                    Ring::Xor => Insn::Xor { drop, to, left, right },
                    Ring::Add | Ring::And => Insn::Add { drop, to, left, right },
                });
            }
            Expr::Not(value) => {
                let from = self.number(value, 1);
                self.emit(Insn::Not { drop, to, from });
            }
            Expr::ShiftLeft { value, by } => {
                let value = self.number(value, 1);
                let by = self.whole(by);
                self.emit(match self.known(by) {
                    Some(shift @ 0..64) => Insn::Shifted { drop, shift: shift as u8, to, from: value },
                    _ => Insn::ShiftLeft { drop, to, value, by },
                });
            }
            Expr::ShiftRight { value, by, signed } => self.shift_right(value, by, *signed, to, drop),
            Expr::Divide { left, right } | Expr::Modulo { left, right } => {
                let words = Self::words(left.need().exact.max(right.need().exact));
                let (left, right) = (self.number(left, words), self.number(right, words));
                let divide = matches!(expr, Expr::Divide { .. });
                match (words, divide) {
                    (1, true) => self.emit(Insn::Divide { drop, to, left, right }),
                    (1, false) => self.emit(Insn::Modulo { drop, to, left, right }),
                    _ => {
                        let op = if divide { WideOp::Divide } else { WideOp::Modulo };
                        self.narrowed(op, words, left, right, to, drop);
                    }
                }
            }
            Expr::SignExtend { value, width } if *width < 64 => {
                let from = self.number(value, 1);
                self.emit(Insn::SignExtend { drop, width: *width as u8, to, from });
            }
            Expr::SignExtend { value, .. } => self.number_into(value, to, 64 - u32::from(drop)),
            Expr::Saturate { value, width, to_signed, from_signed } => {
                let words = Self::words(value.need().exact.max(*width + 1));
                let from = self.number(value, words);
                if words == 1 && !to_signed {
                    let drop = if fits(expr, 64 - u32::from(drop)) { 0 } else { drop };
                    let end = if drop > 0 { self.take(1) } else { to };
                    let (width, from_signed) = (*width as u8, *from_signed);
                    self.emit(Insn::Saturate { width, from_signed, to: end, from });
                    if end != to {
                        self.emit(Insn::Low { drop, to, from: end });
                    }
                    return;
                }
                let op = WideOp::Saturate { to_signed: *to_signed, from_signed: *from_signed };
                self.narrowed(op, words, from, *width, to, drop);
            }
            Expr::If { condition, then, otherwise } => {
                let (second, after) = (self.label(), self.label());
                self.branch_if(condition, false, second);
                self.number_into(then, to, width);
                self.jump(after);
                self.place(second);
                self.number_into(otherwise, to, width);
                self.place(after);
            }
            Expr::StackNext { next, minus } => {
                let right = self.word(u64::from(*minus));
                self.emit(Insn::Sub { drop, to, left: *next as At, right });
            }
            Expr::Field(_) | Expr::Param(_) | Expr::Dynamic { .. } | Expr::Register { .. } => {
                let from = if drop > 0 { self.take(1) } else { to };
                self.wide_into(expr, from, 1);
                if from != to {
                    self.emit(Insn::Low { drop, to, from });
                }
            }
            boolean => self.truth_into(boolean, to),
        }
    }

    /// Copies a limb; several that lie side by side, there as here, with one instruction.
    fn copy(&mut self, drop: u8, to: At, from: At) {
        let joined = match self.last_of_block() {
            Some(Insn::Copy { to: first, from: source }) => Some((first, source, 1)),
            Some(Insn::CopyRun { count, to: first, from: source }) => Some((first, source, count)),
            _ => None,
        };
        match joined {
            Some((first, source, count))
                if drop == 0
                    && count < u16::MAX
                    && to == first + At::from(count)
                    && from == source + At::from(count)
                    && !(source..=from).contains(&first) =>
            {
                self.replace_last(Insn::CopyRun { count: count + 1, to: first, from: source });
            }
            _ => self.emit(Insn::Low { drop, to, from }),
        }
    }

    fn narrowed(&mut self, op: WideOp, words: usize, left: At, right: At, to: At, drop: u8) {
        let wide = self.take(words);
        self.emit(Insn::Wide { op, words: words as u8, to: wide, left, right });
        self.emit(Insn::Low { drop, to, from: wide });
    }

    fn shift_right(&mut self, value: &Expr, by: &Expr, signed: bool, to: At, drop: u8) {
        let words = Self::words(value.need().exact);
        let from = self.number(value, words);
        let by = self.whole(by);
        match (words, self.known(by)) {
            (1, Some(shift @ 0..64)) if !signed => {
                self.emit(Insn::Bits { drop, shift: shift as u8, to, from });
            }
            (1, _) => self.emit(Insn::ShiftRight { drop, signed, to, value: from, by }),
            _ => {
                let op = if signed { WideOp::ShiftRightSigned } else { WideOp::ShiftRight };
                self.narrowed(op, words, from, by, to, drop);
            }
        }
    }

    /// The expression without masks that leave the low `width` bits alone.
    #[expect(clippy::unused_self, reason = "beside those that it serves")]
    fn unmasked<'e>(&self, expr: &'e Expr, width: u32) -> &'e Expr {
        let mut expr = expr;
        while let Expr::Ring { op: Ring::And, left, right } = expr
            && mask_of(right).is_some_and(|bits| bits >= width)
        {
            expr = left;
        }
        expr
    }

    /// The low limbs of a number, several of them or one that is loaded.
    fn wide_into(&mut self, expr: &Expr, to: At, words: usize) {
        let count = words as u8;
        let wide = |op, left, right| Insn::Wide { op, words: count, to, left, right };
        match expr {
            Expr::Field(slot) if slot.signed => {
                self.emit(Insn::LoadSigned { words: words as u16, to, from: slot.at, width: slot.width });
            }
            Expr::Field(slot) => self.extend(slot.at, slot.limbs().len(), false, to, words),
            Expr::Param(slot) => {
                let from = self.code.arguments as At + slot.at;
                self.extend(from, slot.limbs().len(), false, to, words);
            }
            Expr::Dynamic { header, field, .. } => {
                let header = self.header(header);
                self.emit(Insn::LoadField { words: words as u16, field: *field as u16, to, header });
            }
            Expr::Register { register, index, .. } => {
                let index = self.whole(index);
                self.emit(Insn::ReadCell { words: words as u16, to, register: *register, index });
            }
            Expr::Ring { op, left, right } => {
                let (left, right) = (self.number(left, words), self.number(right, words));
                self.emit(wide(WideOp::Ring(*op), left, right));
            }
            Expr::Not(value) => {
                let value = self.number(value, words);
                self.emit(wide(WideOp::Not, value, 0));
            }
            Expr::ShiftLeft { value, by } => {
                let value = self.number(value, words);
                let by = self.whole(by);
                self.emit(wide(WideOp::ShiftLeft, value, by));
            }
            Expr::ShiftRight { value, by, signed } => {
                let own = Self::words(value.need().exact).max(2);
                let value = self.number(value, own);
                let by = self.whole(by);
                let op = if *signed { WideOp::ShiftRightSigned } else { WideOp::ShiftRight };
                self.resized(op, own, value, by, *signed, to, words);
            }
            Expr::Divide { left, right } | Expr::Modulo { left, right } => {
                let own = Self::words(left.need().exact.max(right.need().exact)).max(2);
                let (left, right) = (self.number(left, own), self.number(right, own));
                let divide = matches!(expr, Expr::Divide { .. });
                let op = if divide { WideOp::Divide } else { WideOp::Modulo };
                self.resized(op, own, left, right, false, to, words);
            }
            Expr::SignExtend { value, width } => {
                let value = self.number(value, words);
                self.emit(wide(WideOp::SignExtend, value, *width));
            }
            Expr::Saturate { value, width, to_signed, from_signed } => {
                let own = Self::words(value.need().exact.max(*width + 1)).max(2);
                let value = self.number(value, own);
                let op = WideOp::Saturate { to_signed: *to_signed, from_signed: *from_signed };
                self.resized(op, own, value, *width, *to_signed, to, words);
            }
            Expr::If { condition, then, otherwise } => {
                let (second, after) = (self.label(), self.label());
                self.branch_if(condition, false, second);
                self.wide_copy(then, to, words);
                self.jump(after);
                self.place(second);
                self.wide_copy(otherwise, to, words);
                self.place(after);
            }
            narrow => {
                let signed = matches!(narrow, Expr::StackNext { .. });
                let from = self.take(1);
                self.number_into(narrow, from, 64);
                self.extend(from, 1, signed, to, words);
            }
        }
    }

    fn wide_copy(&mut self, expr: &Expr, to: At, words: usize) {
        let from = self.number(expr, words);
        self.emit(Insn::Store { to, from, width: words as u32 * 64 });
    }

    fn extend(&mut self, from: At, limbs: usize, signed: bool, to: At, words: usize) {
        let (limbs, words) = (limbs as u16, words as u16);
        self.emit(Insn::Extend { signed, limbs, words, to, from });
    }

    /// An operation on a number of limbs that is its own, and its result in those that are asked
    /// for.
    #[expect(clippy::too_many_arguments, reason = "an instruction's operands")]
    fn resized(&mut self, op: WideOp, own: usize, left: At, right: At, signed: bool, to: At, words: usize) {
        let result = if own == words { to } else { self.take(own) };
        self.emit(Insn::Wide { op, words: own as u8, to: result, left, right });
        if own != words {
            self.extend(result, own, signed, to, words);
        }
    }
}

/// Whether a number is none but its low `width` bits.
fn fits(expr: &Expr, width: u32) -> bool {
    let range = expr.range();
    !range.negative && range.bits <= width
}

/// The width of a mask of ones at the low end.
fn mask_of(expr: &Expr) -> Option<u32> {
    match expr {
        Expr::Const(mask) if *mask != 0 && mask & mask.wrapping_add(1) == 0 => Some(mask.trailing_ones()),
        _ => None,
    }
}
