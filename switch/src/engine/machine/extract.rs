// SPDX-License-Identifier: Apache-2.0
//! The parser's instructions, and the checksums that are verified behind it.

use super::super::bits::{read_limbs, read_u64};
use super::super::code::{CaseValues, Insn, SelectSet};
use super::super::layout::Header;
use super::super::packet::Packet;
use super::{Machine, Rejected};

impl Machine<'_> {
    pub(super) fn parse(&mut self, insn: Insn, phv: &mut [u64], packet: &mut Packet) -> Result<(), Rejected> {
        let layout = &self.program.layout;
        match insn {
            Insn::ExtractNext { stack } => self.extract_next(phv, packet, stack, None),
            Insn::ExtractVariable { header, bits } => {
                let bits = phv[bits as usize];
                self.extract(phv, packet, header, Some(bits))
            }
            Insn::ExtractNextVariable { stack, bits } => {
                let bits = phv[bits as usize];
                self.extract_next(phv, packet, stack, Some(bits))
            }
            Insn::ExtractNextMember { stack, member, bits } => {
                let bits = bits.map(|bits| phv[bits as usize]);
                let stack = &layout.union_stacks[stack as usize];
                let union = stack.unions.get(phv[stack.next] as usize);
                let union = *union.ok_or(Rejected(self.program.parser.errors.stack_out_of_bounds))?;
                let header = layout.unions[union as usize][usize::from(member)];
                self.extract(phv, packet, header, bits)?;
                phv[stack.next] += 1;
                Ok(())
            }
            Insn::Lookahead { to, offset, width } => {
                // BMv2 asks for the bytes of the value alone, not for the offset before them.
                self.need(packet, (offset + width).div_ceil(8) as usize)?;
                let to = to as usize;
                let limbs = super::super::bits::limbs_for(width);
                read_limbs(packet.payload(), offset as usize, width, &mut phv[to..to + limbs]);
                Ok(())
            }
            Insn::Advance { bits } => {
                let bits = usize::try_from(phv[bits as usize]).unwrap_or(usize::MAX);
                if !bits.is_multiple_of(8) {
                    return Err(Rejected(self.program.parser.errors.invalid_argument));
                }
                self.need(packet, bits / 8)?;
                packet.payload_at += bits / 8;
                Ok(())
            }
            Insn::Reject { error } => Err(Rejected(phv[error as usize])),
            other => {
                debug_assert!(false, "{other:?} is of another part");
                Ok(())
            }
        }
    }

    fn need(&self, packet: &Packet, bytes: usize) -> Result<(), Rejected> {
        let short = packet.payload().len() < bytes;
        if short { Err(Rejected(self.program.parser.errors.packet_too_short)) } else { Ok(()) }
    }

    fn extract_next(
        &self,
        phv: &mut [u64],
        packet: &mut Packet,
        stack: u32,
        bits: Option<u64>,
    ) -> Result<(), Rejected> {
        let stack = &self.program.layout.stacks[stack as usize];
        let header = stack.headers.get(phv[stack.next] as usize);
        let header = *header.ok_or(Rejected(self.program.parser.errors.stack_out_of_bounds))?;
        self.extract(phv, packet, header, bits)?;
        phv[stack.next] += 1;
        Ok(())
    }

    /// `variable` bits of a field of variable length.
    pub(super) fn extract(
        &self,
        phv: &mut [u64],
        packet: &mut Packet,
        index: u32,
        variable: Option<u64>,
    ) -> Result<(), Rejected> {
        let header = &self.program.layout.headers[index as usize];
        let mut total_bits = header.fixed_bits as usize;
        if let (Some(bits), Some(length)) = (variable, header.length) {
            let bits = usize::try_from(bits).unwrap_or(usize::MAX);
            if !bits.is_multiple_of(8) {
                return Err(Rejected(self.program.parser.errors.invalid_argument));
            }
            total_bits = total_bits.saturating_add(bits);
            self.need(packet, total_bits / 8)?;
            let longest = header.fields.iter().find(|field| field.varbit).map_or(0, |field| field.slot.width);
            if bits > longest as usize {
                return Err(Rejected(self.program.parser.errors.header_too_short));
            }
            phv[length] = bits as u64;
        } else {
            self.need(packet, total_bits / 8)?;
        }
        read_header(header, phv, packet.payload());
        packet.payload_at += total_bits / 8;
        packet.extracted |= 1 << (index & 63);
        self.program.layout.set_valid(phv, index);
        Ok(())
    }

    /// The place of the first case that the key fits.
    pub(super) fn select_set(&mut self, select: &SelectSet, phv: &[u64]) -> u32 {
        let key = &mut self.work.key;
        key.clear();
        for (at, limbs) in &select.parts {
            key.extend_from_slice(&phv[*at as usize..*at as usize + limbs]);
        }
        let fits = |value: &[u64], mask: &Option<Box<[u64]>>| match mask {
            None => **key == *value,
            Some(mask) => {
                key.iter().zip(value).zip(mask).all(|((key, value), mask)| key & mask == value & mask)
            }
        };
        let sets = &self.control.value_sets;
        let case = select.cases.iter().find(|case| match &case.values {
            CaseValues::One(value) => fits(value, &case.mask),
            CaseValues::Set(set) => {
                let members = sets.get(*set as usize).map_or(&[][..], |set| &set.limbs);
                members.iter().any(|member| fits(member, &case.mask))
            }
        });
        case.map_or(select.default, |case| case.next)
    }

    /// A checksum that the program verifies: the field holds the right value, or there is nothing
    /// to check.
    pub(super) fn verify(&mut self, checksum: usize, phv: &[u64], packet: &mut Packet) {
        let checksum = &self.program.checksums[checksum];
        let header = &self.program.layout.headers[checksum.header as usize];
        if packet.checksum_error || phv[header.valid()] == 0 && !header.metadata {
            return;
        }
        let calculation = &self.program.calculations[checksum.calculation as usize];
        let inputs = packet.inputs(&self.program.layout, phv);
        let computed = calculation.compute(&inputs, &mut self.work.scratch);
        let held = super::super::slot::load(phv, checksum.target);
        packet.checksum_error = held != u128::from(computed);
    }

    /// A checksum that the program updates.
    pub(super) fn update(&mut self, checksum: usize, phv: &mut [u64], packet: &Packet) {
        let checksum = &self.program.checksums[checksum];
        let calculation = &self.program.calculations[checksum.calculation as usize];
        let inputs = packet.inputs(&self.program.layout, phv);
        let computed = calculation.compute(&inputs, &mut self.work.scratch);
        super::super::slot::store(phv, checksum.target, u128::from(computed));
    }
}

fn read_header(header: &Header, phv: &mut [u64], data: &[u8]) {
    if let Some(words) = &header.words {
        words.read(phv, data);
        return header.unsigned_flags.iter().for_each(|&flag| phv[flag] = 0);
    }
    let mut offset = 0;
    for field in &header.fields {
        let width = match header.length {
            Some(length) if field.varbit => phv[length] as u32,
            _ => field.slot.width,
        };
        if field.slot.width <= 64 {
            phv[field.slot.at as usize] = read_u64(data, offset, width);
        } else {
            read_limbs(data, offset, width, &mut phv[field.slot.limbs()]);
        }
        offset += width as usize;
    }
    header.unsigned_flags.iter().for_each(|&flag| phv[flag] = 0);
}
