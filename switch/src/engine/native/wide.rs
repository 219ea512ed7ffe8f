// SPDX-License-Identifier: Apache-2.0
//! Numbers of two limbs, which sums and products of fields of up to 64 bits take, and moves of
//! several.

use super::super::bits::limbs_for;
use super::super::code::{Insn, WideOp};
use super::super::expression::Ring;
use super::translate::Translator;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I64, I128};
use cranelift_codegen::ir::{InstBuilder as _, Value};

/// Limbs of a run that are moved one by one.
const MOST_MOVED: u32 = 16;

impl Translator<'_, '_> {
    /// Translates an instruction on several limbs; `false` where the interpreter carries it out.
    pub(super) fn wide(&mut self, insn: Insn) -> Result<bool, String> {
        match insn {
            Insn::Wide { op, words: 2, to, left, right } => self.of_two(op, to, left, right),
            Insn::Extend { signed, limbs, words, to, from } if u32::from(words) <= MOST_MOVED => {
                let shared = u32::from(limbs.min(words));
                let values = (0..shared).map(|limb| self.limb(from + limb)).collect::<Result<Vec<_>, _>>()?;
                let above = if signed {
                    let top = self.limb(from + u32::from(limbs) - 1)?;
                    self.builder.ins().sshr_imm(top, 63)
                } else {
                    self.number(0)
                };
                for limb in 0..u32::from(words) {
                    self.set(to + limb, values.get(limb as usize).copied().unwrap_or(above))?;
                }
                Ok(true)
            }
            Insn::Store { to, from, width } if limbs_for(width) as u32 <= MOST_MOVED => {
                let limbs = limbs_for(width) as u32;
                let values = (0..limbs).map(|limb| self.limb(from + limb)).collect::<Result<Vec<_>, _>>()?;
                for (limb, value) in (0..).zip(values) {
                    // Of the last limb as many bits as are left.
                    let drop = if limb + 1 == limbs { (64 * limbs - width) as u8 } else { 0 };
                    let value = self.kept(drop, value);
                    self.set(to + limb, value)?;
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn pair(&mut self, at: u32) -> Result<Value, String> {
        let (low, high) = (self.limb(at)?, self.limb(at + 1)?);
        Ok(self.builder.ins().iconcat(low, high))
    }

    /// `right` is a width where the interpreter takes it for one.
    fn of_two(&mut self, op: WideOp, to: u32, left: u32, right: u32) -> Result<bool, String> {
        let value = self.pair(left)?;
        let result = match op {
            WideOp::Ring(ring) => {
                let right = self.pair(right)?;
                match ring {
                    Ring::Add => self.builder.ins().iadd(value, right),
                    Ring::Sub => self.builder.ins().isub(value, right),
                    Ring::Mul => self.builder.ins().imul(value, right),
                    Ring::And => self.builder.ins().band(value, right),
                    Ring::Or => self.builder.ins().bor(value, right),
                    Ring::Xor => self.builder.ins().bxor(value, right),
                }
            }
            WideOp::Not => self.builder.ins().bnot(value),
            WideOp::ShiftLeft | WideOp::ShiftRight | WideOp::ShiftRightSigned => {
                let amount = self.limb(right)?;
                // Shifts go by the amount modulo 128.
                let far = self.builder.ins().icmp_imm(IntCC::UnsignedGreaterThan, amount, 127);
                let near = match op {
                    WideOp::ShiftLeft => self.builder.ins().ishl(value, amount),
                    WideOp::ShiftRight => self.builder.ins().ushr(value, amount),
                    _ => self.builder.ins().sshr(value, amount),
                };
                let beyond = if op == WideOp::ShiftRightSigned { self.sign(value) } else { self.zero() };
                self.builder.ins().select(far, beyond, near)
            }
            WideOp::Saturate { to_signed: false, from_signed } => {
                let most = u128::MAX.checked_shr(128_u32.saturating_sub(right)).unwrap_or(0);
                let (low, high) = (self.number(most as u64), self.number((most >> 64) as u64));
                let most = self.builder.ins().iconcat(low, high);
                let over = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, value, most);
                let zero = self.zero();
                let negative = self.builder.ins().icmp(IntCC::SignedLessThan, value, zero);
                let none = self.number(0);
                // Limb by limb: Cranelift makes a minimum of 128 bits of the whole, and has none.
                let (low, high) = self.builder.ins().isplit(value);
                let (most_low, most_high) = self.builder.ins().isplit(most);
                for (limb, own, most) in [(to, low, most_low), (to + 1, high, most_high)] {
                    let mut result = self.builder.ins().select(over, most, own);
                    if from_signed {
                        result = self.builder.ins().select(negative, none, result);
                    }
                    self.set(limb, result)?;
                }
                return Ok(true);
            }
            WideOp::Order { signed } => {
                let right = self.pair(right)?;
                let (less, more) = if signed {
                    (IntCC::SignedLessThan, IntCC::SignedGreaterThan)
                } else {
                    (IntCC::UnsignedLessThan, IntCC::UnsignedGreaterThan)
                };
                let less = self.builder.ins().icmp(less, value, right);
                let more = self.builder.ins().icmp(more, value, right);
                // 0, 1 and 2.
                let (less, more) =
                    (self.builder.ins().uextend(I64, less), self.builder.ins().uextend(I64, more));
                let order = self.builder.ins().iadd_imm(more, 1);
                let order = self.builder.ins().isub(order, less);
                self.set(to, order)?;
                return Ok(true);
            }
            WideOp::Clamp => {
                let (low, high) = self.builder.ins().isplit(value);
                let all = self.number(u64::MAX);
                let clamped = self.builder.ins().select(high, all, low);
                self.set(to, clamped)?;
                return Ok(true);
            }
            WideOp::SignExtend | WideOp::Divide | WideOp::Modulo | WideOp::Saturate { .. } => {
                return Ok(false);
            }
        };
        let (low, high) = self.builder.ins().isplit(result);
        self.set(to, low)?;
        self.set(to + 1, high)?;
        Ok(true)
    }

    fn zero(&mut self) -> Value {
        let zero = self.number(0);
        self.builder.ins().uextend(I128, zero)
    }

    /// All bits are the highest.
    fn sign(&mut self, value: Value) -> Value {
        let (_, high) = self.builder.ins().isplit(value);
        let sign = self.builder.ins().sshr_imm(high, 63);
        self.builder.ins().iconcat(sign, sign)
    }
}
