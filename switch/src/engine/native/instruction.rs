// SPDX-License-Identifier: Apache-2.0
//! One instruction as Cranelift's.

use super::super::arrays::Register;
use super::super::code::form::Select;
use super::super::code::{Insn, Part};
use super::super::expression::Compare;
use super::super::table::Table;
use super::module::fields;
use super::translate::{AS_USUAL, Translator};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{InstBuilder as _, Value};
use cranelift_frontend::FuncInstBuilder;

/// Limbs of a run that are copied one by one.
const MOST_COPIED: u16 = 16;

impl Translator<'_, '_> {
    /// Whether the packet may come to the instruction behind this one.
    pub(super) fn insn(&mut self, place: u32, insn: Insn) -> Result<bool, String> {
        match insn {
            Insn::Copy { to, from } => self.one(0, to, from, |_, value| value)?,
            Insn::Low { drop, to, from } => self.one(drop, to, from, |_, value| value)?,
            Insn::CopyRun { count, to, from } if count <= MOST_COPIED => {
                for limb in 0..u32::from(count) {
                    let value = self.limb(from + limb)?;
                    self.set(to + limb, value)?;
                }
            }
            Insn::Bits { drop, shift, to, from } => {
                self.one(drop, to, from, |ins, value| ins.ushr_imm(value, i64::from(shift & 63)))?;
            }
            Insn::Shifted { drop, shift, to, from } => {
                self.one(drop, to, from, |ins, value| ins.ishl_imm(value, i64::from(shift & 63)))?;
            }
            Insn::Add { drop, to, left, right } => {
                self.two(drop, to, left, right, |ins, left, right| ins.iadd(left, right))?;
            }
            Insn::Sub { drop, to, left, right } => {
                self.two(drop, to, left, right, |ins, left, right| ins.isub(left, right))?;
            }
            Insn::Mul { drop, to, left, right } => {
                self.two(drop, to, left, right, |ins, left, right| ins.imul(left, right))?;
            }
            Insn::And { to, left, right } => {
                self.two(0, to, left, right, |ins, left, right| ins.band(left, right))?;
            }
            Insn::Or { drop, to, left, right } => {
                self.two(drop, to, left, right, |ins, left, right| ins.bor(left, right))?;
            }
            Insn::Xor { drop, to, left, right } => {
                self.two(drop, to, left, right, |ins, left, right| ins.bxor(left, right))?;
            }
            Insn::Not { drop, to, from } => self.one(drop, to, from, |ins, value| ins.bnot(value))?,
            Insn::Saturate { width, from_signed, to, from } => {
                let value = self.limb(from)?;
                let most = self.number(u64::MAX >> ((64 - width) & 63));
                let mut least = self.builder.ins().umin(value, most);
                if from_signed {
                    let zero = self.number(0);
                    let negative = self.builder.ins().icmp(IntCC::SignedLessThan, value, zero);
                    least = self.builder.ins().select(negative, zero, least);
                }
                self.set(to, least)?;
            }
            Insn::Test { signed, compare, to, left, right } => {
                let holds = self.compare(condition(compare, signed), left, right)?;
                let holds = self.builder.ins().uextend(I64, holds);
                self.set(to, holds)?;
            }
            Insn::IfZero { to, value } => {
                let value = self.limb(value)?;
                let zero = self.builder.ins().icmp_imm(IntCC::Equal, value, 0);
                let to = self.to(to);
                self.go_if(zero, to);
            }
            Insn::IfNotZero { to, value } => {
                let value = self.limb(value)?;
                let to = self.to(to);
                self.go_if(value, to);
            }
            Insn::IfEqual { to, left, right } => self.branch(IntCC::Equal, to, left, right)?,
            Insn::IfUnequal { to, left, right } => self.branch(IntCC::NotEqual, to, left, right)?,
            Insn::IfLess { to, left, right } => self.branch(IntCC::UnsignedLessThan, to, left, right)?,
            Insn::IfNotLess { to, left, right } => {
                self.branch(IntCC::UnsignedGreaterThanOrEqual, to, left, right)?;
            }
            Insn::Branch { compare, to, left, right } => {
                self.branch(condition(compare, true), to, left, right)?;
            }
            Insn::Jump { to } => {
                let to = self.to(to);
                self.builder.ins().jump(to, &[]);
                return Ok(false);
            }
            Insn::Loop { to } => {
                let taken = i64::from(place + 1 - to);
                let fuel = self.builder.ins().load(I32, fields(), self.context, self.at.fuel as i32);
                let too_little = self.builder.ins().icmp_imm(IntCC::UnsignedLessThan, fuel, taken);
                let out = self.builder.create_block();
                self.go_if(too_little, out);
                let left = self.builder.ins().iadd_imm(fuel, -taken);
                self.builder.ins().store(fields(), left, self.context, self.at.fuel as i32);
                let to = self.to(to);
                self.builder.ins().jump(to, &[]);
                self.builder.switch_to_block(out);
                self.builder.set_cold_block(out);
                let number = self.call(place);
                self.dispatch(number);
                return Ok(false);
            }
            Insn::State { .. } => {
                let left = self.builder.ins().load(I64, fields(), self.context, self.at.transitions as i32);
                let (none, some) = (self.builder.create_block(), self.builder.create_block());
                self.builder.ins().brif(left, some, &[], none, &[]);
                self.builder.switch_to_block(none);
                self.builder.set_cold_block(none);
                let number = self.call(place);
                self.dispatch(number);
                self.builder.switch_to_block(some);
                let left = self.builder.ins().iadd_imm(left, -1);
                self.builder.ins().store(fields(), left, self.context, self.at.transitions as i32);
            }
            Insn::End => {
                self.builder.ins().jump(self.end, &[]);
                return Ok(false);
            }
            Insn::EndIfExit => {
                let exit = self.exits();
                self.go_if(exit, self.end);
            }
            Insn::Return => {
                self.go_back();
                return Ok(false);
            }
            Insn::ReturnUnlessExit => {
                let exit = self.exits();
                self.go_if(exit, self.end);
                self.go_back();
                return Ok(false);
            }
            Insn::Apply { table } => {
                let number = self.apply(table)?;
                self.dispatch(number);
                return Ok(false);
            }
            Insn::SelectSet { .. } => {
                let number = self.call(place);
                if let Some(next) = self.blocks.get(place as usize + 1).copied().flatten() {
                    let usual = self.builder.ins().icmp_imm(IntCC::Equal, number, i64::from(AS_USUAL as i32));
                    self.go_if(usual, next);
                }
                self.dispatch(number);
                return Ok(false);
            }
            Insn::ReadRegister { drop, to, register, index } => {
                let ([rows, at], index) = (self.column(register).0, self.index(index)?);
                let otherwise = self.limb(to)?;
                let call =
                    self.builder.ins().call(self.calls.read, &[self.context, rows, at, index, otherwise]);
                let value = self.builder.inst_results(call)[0];
                let value = self.kept(drop, value);
                self.set(to, value)?;
            }
            Insn::WriteRegister { register, index, value } => {
                let (([rows, at], mask), index) = (self.column(register), self.index(index)?);
                let value = self.limb(value)?;
                let value = self.kept(mask.leading_zeros() as u8, value);
                self.builder.ins().call(self.calls.write, &[self.context, rows, at, index, value]);
            }
            Insn::Count { counter, index } => {
                let (counter, index) =
                    (self.builder.ins().iconst(I32, i64::from(counter)), self.index(index)?);
                self.builder.ins().call(self.calls.count, &[self.context, counter, index]);
            }
            Insn::Hash { to, calculation } => self.hash(place, to, calculation)?,
            Insn::Verify { checksum } => self.verify(place, checksum)?,
            Insn::Update { checksum } => self.update(place, checksum)?,
            Insn::Select { select } => {
                let Select { key, cases, default } = &self.code.selects[select as usize];
                let key = self.limb(*key)?;
                for case in cases {
                    let masked = match case.mask {
                        u64::MAX => key,
                        mask => {
                            let mask = self.number(mask);
                            self.builder.ins().band(key, mask)
                        }
                    };
                    let value = self.number(case.value);
                    let fits = self.builder.ins().icmp(IntCC::Equal, masked, value);
                    let to = self.to(case.next);
                    self.go_if(fits, to);
                }
                let to = self.to(*default);
                self.builder.ins().jump(to, &[]);
                return Ok(false);
            }
            Insn::Extract { header } => self.extract(place, header)?,
            Insn::Exit => {
                let exit = self.builder.ins().iconst(I8, 1);
                self.builder.ins().store(fields(), exit, self.packet, self.at.exit as i32);
            }
            // Whatever the parser may reject.
            other if other.part() == Part::Parser => self.call_and_go(place),
            _ if self.wide(insn)? => {}
            _ => _ = self.call(place),
        }
        Ok(true)
    }

    /// `to = what(from)`, without its `drop` highest bits.
    fn one(
        &mut self,
        drop: u8,
        to: u32,
        from: u32,
        what: impl FnOnce(FuncInstBuilder<'_, '_>, Value) -> Value,
    ) -> Result<(), String> {
        let value = self.limb(from)?;
        let value = what(self.builder.ins(), value);
        let value = self.kept(drop, value);
        self.set(to, value)
    }

    /// `to = what(left, right)`, likewise.
    fn two(
        &mut self,
        drop: u8,
        to: u32,
        left: u32,
        right: u32,
        what: impl FnOnce(FuncInstBuilder<'_, '_>, Value, Value) -> Value,
    ) -> Result<(), String> {
        let (left, right) = (self.limb(left)?, self.limb(right)?);
        let value = what(self.builder.ins(), left, right);
        let value = self.kept(drop, value);
        self.set(to, value)
    }

    fn branch(&mut self, compare: IntCC, to: u32, left: u32, right: u32) -> Result<(), String> {
        let holds = self.compare(compare, left, right)?;
        let to = self.to(to);
        self.go_if(holds, to);
        Ok(())
    }

    /// Where a register's cells are, and which bits they have.
    fn column(&mut self, register: u32) -> ([Value; 2], u64) {
        let Register { column, mask, .. } = &self.program.arrays.registers[register as usize];
        let place = [column.rows, column.at].map(|at| self.builder.ins().iconst(I32, i64::from(at)));
        (place, *mask)
    }

    /// The number of the place to go on at behind a table.
    fn apply(&mut self, number: u32) -> Result<Value, String> {
        let table = self.builder.ins().iconst(I32, i64::from(number));
        let keys = self.program.tables.get(number as usize).and_then(Table::word_keys);
        let call = match keys {
            Some(keys) => {
                let mut word = self.number(0);
                for key in keys {
                    let part = self.limb(key.slot.at)?;
                    let part = match &key.mask {
                        Some(mask) => self.builder.ins().band_imm(part, mask[0] as i64),
                        None => part,
                    };
                    let part = match key.valid {
                        Some(valid) => {
                            let (there, zero) = (self.limb(valid as u32)?, self.number(0));
                            self.builder.ins().select(there, part, zero)
                        }
                        None => part,
                    };
                    // A key of 64 bits is alone.
                    word = self.builder.ins().ishl_imm(word, i64::from(key.slot.width & 63));
                    word = self.builder.ins().bor(word, part);
                }
                self.builder.ins().call(self.calls.apply_word, &[self.context, table, word])
            }
            None => self.builder.ins().call(self.calls.apply, &[self.context, table]),
        };
        Ok(self.builder.inst_results(call)[0])
    }

    /// The low 32 bits, as BMv2 converts to an index.
    fn index(&mut self, at: u32) -> Result<Value, String> {
        let value = self.limb(at)?;
        Ok(self.builder.ins().ireduce(I32, value))
    }
}

fn condition(compare: Compare, signed: bool) -> IntCC {
    match (compare, signed) {
        (Compare::Eq, _) => IntCC::Equal,
        (Compare::Ne, _) => IntCC::NotEqual,
        (Compare::Lt, false) => IntCC::UnsignedLessThan,
        (Compare::Le, false) => IntCC::UnsignedLessThanOrEqual,
        (Compare::Gt, false) => IntCC::UnsignedGreaterThan,
        (Compare::Ge, false) => IntCC::UnsignedGreaterThanOrEqual,
        (Compare::Lt, true) => IntCC::SignedLessThan,
        (Compare::Le, true) => IntCC::SignedLessThanOrEqual,
        (Compare::Gt, true) => IntCC::SignedGreaterThan,
        (Compare::Ge, true) => IntCC::SignedGreaterThanOrEqual,
    }
}
