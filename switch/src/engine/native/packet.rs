// SPDX-License-Identifier: Apache-2.0
//! Headers taken out of packets, and their checksums.

use super::super::calculation::{Calculation, Checksum};
use super::module::{bytes, fields};
use super::translate::Translator;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{Block, InstBuilder as _, StackSlotData, StackSlotKind, Value};

/// Bytes of a hash's input that are put together on the stack.
const MOST_HASHED: usize = 256;

impl Translator<'_, '_> {
    /// The value of a checksum over limbs of known headers. `otherwise` is where it goes if one of
    /// them is left out; `None` if it is not of that kind.
    fn sum(&mut self, checksum: &Checksum, otherwise: Block) -> Result<Option<Value>, String> {
        let Some(sum) = self.program.calculations[checksum.calculation as usize].sum_of_limbs() else {
            return Ok(None);
        };
        if checksum.target.signed {
            return Ok(None);
        }
        for &valid in &sum.valid {
            let valid = self.limb(valid as u32)?;
            let next = self.builder.create_block();
            self.builder.ins().brif(valid, next, &[], otherwise, &[]);
            self.builder.switch_to_block(next);
        }
        for &absent in &sum.absent {
            let there = self.limb(absent as u32)?;
            self.go_if(there, otherwise);
        }
        let mut all = self.number(sum.constant);
        for &(limb, shift) in &sum.narrow {
            let limb = self.limb(limb)?;
            let limb = self.builder.ins().ishl_imm(limb, i64::from(shift & 15));
            all = self.builder.ins().iadd(all, limb);
        }
        for &(limb, shift) in &sum.wide {
            let limb = self.limb(limb)?;
            let low = self.kept(32, limb);
            let low = self.builder.ins().ishl_imm(low, i64::from(shift));
            let high = self.builder.ins().ushr_imm(limb, 32);
            let high = self.builder.ins().ishl_imm(high, i64::from(shift));
            let both = self.builder.ins().iadd(low, high);
            all = self.builder.ins().iadd(all, both);
        }
        // 64 bits to 33, 18, 17 and 16: what is not 0 stays so, as in `fold`.
        for bits in [32, 16, 16, 16] {
            let low = self.kept(64 - bits, all);
            let high = self.builder.ins().ushr_imm(all, i64::from(bits));
            all = self.builder.ins().iadd(low, high);
        }
        let value = self.builder.ins().bnot(all);
        Ok(Some(self.kept(48, value)))
    }

    pub(super) fn verify(&mut self, place: u32, number: u32) -> Result<(), String> {
        let checksum = &self.program.checksums[number as usize];
        let (slow, next) = (self.builder.create_block(), self.builder.create_block());
        let found = self.builder.ins().load(I8, fields(), self.packet, self.at.checksum_error as i32);
        self.go_if(found, next);
        let header = &self.program.layout.headers[checksum.header as usize];
        if !header.metadata {
            let valid = self.limb(header.valid() as u32)?;
            let there = self.builder.create_block();
            self.builder.ins().brif(valid, there, &[], next, &[]);
            self.builder.switch_to_block(there);
        }
        if let Some(sum) = self.sum(checksum, slow)? {
            let held = self.limb(checksum.target.at)?;
            let wrong = self.builder.ins().icmp(IntCC::NotEqual, held, sum);
            self.builder.ins().store(fields(), wrong, self.packet, self.at.checksum_error as i32);
            self.builder.ins().jump(next, &[]);
        } else {
            self.builder.ins().jump(slow, &[]);
        }
        self.slowly(place, slow, next);
        Ok(())
    }

    pub(super) fn update(&mut self, place: u32, number: u32) -> Result<(), String> {
        let checksum = &self.program.checksums[number as usize];
        let (slow, next) = (self.builder.create_block(), self.builder.create_block());
        if let Some(sum) = self.sum(checksum, slow)? {
            let sum = self.kept((64 - checksum.target.width) as u8, sum);
            self.set(checksum.target.at, sum)?;
            self.builder.ins().jump(next, &[]);
        } else {
            self.builder.ins().jump(slow, &[]);
        }
        self.slowly(place, slow, next);
        Ok(())
    }

    /// A hash of fields whose places are known: its bytes are put together here.
    pub(super) fn hash(&mut self, place: u32, to: u32, number: u32) -> Result<(), String> {
        let message = self.program.calculations.get(number as usize).and_then(Calculation::message);
        let Some(message) = message.filter(|message| message.words.bytes() <= MOST_HASHED) else {
            self.call(place);
            return Ok(());
        };
        let (slow, next) = (self.builder.create_block(), self.builder.create_block());
        for &valid in &message.valid {
            let valid = self.limb(valid as u32)?;
            let there = self.builder.create_block();
            self.builder.ins().brif(valid, there, &[], slow, &[]);
            self.builder.switch_to_block(there);
        }
        // Windows are written whole, each over the zeros behind the one before.
        let length = message.words.bytes() as u32;
        let room = StackSlotData::new(StackSlotKind::ExplicitSlot, length + 8, 3);
        let room = self.builder.create_sized_stack_slot(room);
        for (byte, _, parts) in message.words.windows() {
            let mut window = self.number(0);
            for part in parts {
                let limb = self.limb(part.limb)?;
                let limb = self.kept(part.drop, limb);
                let limb = self.builder.ins().ishl_imm(limb, i64::from(part.shift & 63));
                window = self.builder.ins().bor(window, limb);
            }
            let window = if self.little { self.builder.ins().bswap(window) } else { window };
            self.builder.ins().stack_store(window, room, byte as i32);
        }
        let calculation = self.builder.ins().iconst(I32, i64::from(number));
        let (bytes, length) = (self.builder.ins().stack_addr(I64, room, 0), self.number(length.into()));
        let call = self.builder.ins().call(self.calls.hash, &[self.context, calculation, bytes, length]);
        let output = self.builder.inst_results(call)[0];
        self.set(to, output)?;
        self.builder.ins().jump(next, &[]);
        self.slowly(place, slow, next);
        Ok(())
    }

    /// In `slow` the interpreter carries the instruction out; then the packet goes to `next`, where
    /// translation goes on.
    fn slowly(&mut self, place: u32, slow: Block, next: Block) {
        self.builder.switch_to_block(slow);
        self.builder.set_cold_block(slow);
        self.call(place);
        self.builder.ins().jump(next, &[]);
        self.builder.switch_to_block(next);
    }

    pub(super) fn extract(&mut self, place: u32, number: u32) -> Result<(), String> {
        let header = &self.program.layout.headers[number as usize];
        let (Some(words), None) = (&header.words, header.length) else {
            self.call_and_go(place);
            return Ok(());
        };
        // Words are read eight bytes at a time: the last bytes of a packet are the interpreter's.
        let bytes_left = i64::from(header.fixed_bits / 8) + 7;
        let at = self.field(self.at.payload_at);
        let end = self.builder.ins().iadd_imm(at, bytes_left);
        let enough = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, self.length);
        let (fast, slow, next) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(enough, fast, &[], slow, &[]);
        self.builder.switch_to_block(slow);
        self.builder.set_cold_block(slow);
        self.call_and_go(place);
        self.builder.ins().jump(next, &[]);
        self.builder.switch_to_block(fast);
        let from = self.builder.ins().iadd(self.frame, at);
        for (byte, _, parts) in words.windows() {
            let window = self.builder.ins().load(I64, bytes(), from, byte as i32);
            let window = if self.little { self.builder.ins().bswap(window) } else { window };
            for part in parts {
                let value = self.builder.ins().ushr_imm(window, i64::from(part.shift & 63));
                let value = self.kept(part.drop, value);
                self.set(part.limb, value)?;
            }
        }
        let zero = self.number(0);
        for &flag in &header.unsigned_flags {
            self.set(flag as u32, zero)?;
        }
        let siblings = header.union.map_or(&[][..], |union| &self.program.layout.unions[union as usize]);
        for &sibling in siblings {
            self.set(self.program.layout.headers[sibling as usize].valid() as u32, zero)?;
        }
        let one = self.number(1);
        self.set(header.valid() as u32, one)?;
        let behind = self.builder.ins().iadd_imm(at, i64::from(header.fixed_bits / 8));
        self.builder.ins().store(fields(), behind, self.packet, self.at.payload_at as i32);
        let extracted = self.field(self.at.extracted);
        let own = self.number(1 << (number & 63));
        let extracted = self.builder.ins().bor(extracted, own);
        self.builder.ins().store(fields(), extracted, self.packet, self.at.extracted as i32);
        self.builder.ins().jump(next, &[]);
        self.builder.switch_to_block(next);
        Ok(())
    }
}
