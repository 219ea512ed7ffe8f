// SPDX-License-Identifier: Apache-2.0
//! Runs a program's code on a packet: the one place where instructions are carried out.

mod external;
mod extract;
mod header;
mod table;
mod wide;

use super::code::{Code, Insn, NONE, Part};
use super::control::Control;
use super::expression::Compare;
use super::flow_cache::Resume;
use super::packet::Packet;
use super::program::Program;
use super::trace::DropReason;
use super::work::Work;

/// Instructions that loops may take on one packet's way through one control: ends a program's
/// endless loop, and lets two nested ones over all of `bit<8>` come to their end.
const FUEL: u32 = 1 << 22;

/// State transitions allowed beyond one per frame byte: ends a parser loop that consumes nothing.
const SPARE_TRANSITIONS: usize = 4096;

/// Everything that code may touch besides the packet.
pub(super) struct Machine<'a> {
    pub(super) program: &'a Program,
    pub(super) code: &'a Code,
    pub(super) control: &'a mut Control,
    pub(super) work: &'a mut Work,
    pub(super) now_ns: u64,
}

/// What the parser met that it cannot go on from, by its code in the program.
struct Rejected(u64);

/// Where the action that a packet is in goes back to, and how much longer its control may take.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Going {
    pub(super) back: u32,
    pub(super) fuel: u32,
    pub(super) transitions: usize,
}

impl Going {
    pub(super) fn new(start: Resume, packet: &Packet) -> Self {
        Self { back: start.back, fuel: FUEL, transitions: packet.frame.len() + SPARE_TRANSITIONS }
    }
}

#[inline]
fn kept(drop: u8) -> u64 {
    u64::MAX >> (drop & 63)
}

#[inline]
fn holds(compare: Compare, signed: bool, left: u64, right: u64) -> bool {
    // Signed numbers are ordered as unsigned ones whose sign is turned round.
    let turn = u64::from(signed) << 63;
    let (left, right) = (left ^ turn, right ^ turn);
    match compare {
        Compare::Eq => left == right,
        Compare::Ne => left != right,
        Compare::Lt => left < right,
        Compare::Le => left <= right,
        Compare::Gt => left > right,
        Compare::Ge => left >= right,
    }
}

impl Machine<'_> {
    /// Carries out instructions from `start` to the code's end.
    pub(super) fn carry_on(&mut self, start: Resume, phv: &mut [u64], packet: &mut Packet) {
        self.interpret::<false>(start.place, &mut Going::new(start, packet), phv, packet);
    }

    /// Carries out the instruction at `place`; where to go on, or `None` for the end.
    #[cfg(feature = "native")]
    pub(super) fn step(
        &mut self,
        place: u32,
        going: &mut Going,
        phv: &mut [u64],
        packet: &mut Packet,
    ) -> Option<u32> {
        self.interpret::<true>(place, going, phv, packet)
    }

    /// Carries out the instructions from `start` on, or that `ONE`; where to go on, or `None` for
    /// the end.
    fn interpret<const ONE: bool>(
        &mut self,
        start: u32,
        going: &mut Going,
        phv: &mut [u64],
        packet: &mut Packet,
    ) -> Option<u32> {
        let code = self.code;
        let at = |place: u32| code.insns.get(place as usize..).unwrap_or(&[]).iter();
        let mut rest = at(start);
        let Going { mut back, mut fuel, mut transitions } = *going;
        while let Some(insn) = rest.next() {
            #[cfg(test)]
            {
                self.work.instructions += 1;
            }
            match *insn {
                Insn::Copy { to, from } => phv[to as usize] = phv[from as usize],
                Insn::Low { drop, to, from } => phv[to as usize] = phv[from as usize] & kept(drop),
                Insn::CopyRun { count, to, from } => {
                    // Few, and never onto those that are still to be read.
                    for limb in 0..u32::from(count) {
                        phv[(to + limb) as usize] = phv[(from + limb) as usize];
                    }
                }
                Insn::IfZero { to, value } => {
                    if phv[value as usize] == 0 {
                        rest = at(to);
                    }
                }
                Insn::IfNotZero { to, value } => {
                    if phv[value as usize] != 0 {
                        rest = at(to);
                    }
                }
                Insn::IfEqual { to, left, right } => {
                    if phv[left as usize] == phv[right as usize] {
                        rest = at(to);
                    }
                }
                Insn::IfUnequal { to, left, right } => {
                    if phv[left as usize] != phv[right as usize] {
                        rest = at(to);
                    }
                }
                Insn::IfLess { to, left, right } => {
                    if phv[left as usize] < phv[right as usize] {
                        rest = at(to);
                    }
                }
                Insn::IfNotLess { to, left, right } => {
                    if phv[left as usize] >= phv[right as usize] {
                        rest = at(to);
                    }
                }
                Insn::Branch { compare, to, left, right } => {
                    if holds(compare, true, phv[left as usize], phv[right as usize]) {
                        rest = at(to);
                    }
                }
                Insn::Jump { to } => rest = at(to),
                Insn::Bits { drop, shift, to, from } => {
                    phv[to as usize] = phv[from as usize] >> (shift & 63) & kept(drop);
                }
                Insn::Shifted { drop, shift, to, from } => {
                    phv[to as usize] = phv[from as usize] << (shift & 63) & kept(drop);
                }
                Insn::Add { drop, to, left, right } => {
                    phv[to as usize] = phv[left as usize].wrapping_add(phv[right as usize]) & kept(drop);
                }
                Insn::Sub { drop, to, left, right } => {
                    phv[to as usize] = phv[left as usize].wrapping_sub(phv[right as usize]) & kept(drop);
                }
                Insn::And { to, left, right } => {
                    phv[to as usize] = phv[left as usize] & phv[right as usize];
                }
                Insn::Or { drop, to, left, right } => {
                    phv[to as usize] = (phv[left as usize] | phv[right as usize]) & kept(drop);
                }
                Insn::Not { drop, to, from } => phv[to as usize] = !phv[from as usize] & kept(drop),
                Insn::Saturate { width, from_signed, to, from } => {
                    let value = phv[from as usize];
                    let negative = from_signed && value >> 63 != 0;
                    phv[to as usize] = if negative { 0 } else { value.min(kept(64 - width)) };
                }
                Insn::Apply { table } => match self.apply(table as usize, phv, packet) {
                    (Some(action), after) => (rest, back) = (at(action), after),
                    (None, after) => rest = at(after),
                },
                Insn::ReadRegister { drop, to, register, index } => {
                    let index = phv[index as usize] as u32;
                    if let Some(cell) = self.control.arrays.word(register as usize, index) {
                        phv[to as usize] = cell & kept(drop);
                    }
                }
                Insn::WriteRegister { register, index, value } => {
                    let index = phv[index as usize] as u32;
                    self.control.arrays.set_word(register as usize, index, phv[value as usize]);
                }
                Insn::Count { counter, index } => {
                    let index = phv[index as usize] as u32;
                    self.control.arrays.count(counter as usize, index, packet.ingress_length);
                }
                Insn::Hash { to, calculation } => {
                    let calculation = &self.program.calculations[calculation as usize];
                    let inputs = packet.inputs(&self.program.layout, phv);
                    phv[to as usize] = calculation.compute(&inputs, &mut self.work.scratch);
                }
                Insn::Extract { header } => {
                    if let Err(Rejected(error)) = self.extract(phv, packet, header, None) {
                        packet.parser_error = error;
                        rest = at(code.rejected);
                    }
                }
                Insn::Select { select } => {
                    let select = &code.selects[select as usize];
                    let key = phv[select.key as usize];
                    let case = select.cases.iter().find(|case| key & case.mask == case.value);
                    rest = at(case.map_or(select.default, |case| case.next));
                }
                Insn::Verify { checksum } => self.verify(checksum as usize, phv, packet),
                Insn::Update { checksum } => self.update(checksum as usize, phv, packet),
                Insn::Loop { to } => {
                    let taken = (code.insns.len() - rest.len()) as u32 - to;
                    rest = at(to);
                    if fuel < taken {
                        // BMv2 would never be done with it.
                        tracing::error!("a loop ran {FUEL} instructions without an end, packet dropped");
                        packet.failed = Some(DropReason::EndlessLoop);
                        packet.exit = true;
                        return None;
                    }
                    fuel -= taken;
                }
                Insn::End => return None,
                Insn::EndIfExit | Insn::ReturnUnlessExit if packet.exit => return None,
                Insn::EndIfExit => {}
                Insn::Remember => {
                    let place = (code.insns.len() - rest.len()) as u32;
                    let gained = packet.length.wrapping_sub(u64::from(packet.ingress_length));
                    self.work.flows.remember(self.program, Resume { place, back, gained }, phv);
                }
                Insn::Return | Insn::ReturnUnlessExit => rest = at(back),
                Insn::State { .. } => {
                    if transitions == 0 {
                        packet.parser_error = self.program.parser.errors.parser_timeout;
                        rest = at(code.rejected);
                    } else {
                        transitions -= 1;
                    }
                }
                Insn::SelectSet { select } => {
                    rest = at(self.select_set(&code.set_selects[select as usize], phv));
                }
                other => {
                    if let Err(Rejected(error)) = self.carry_out(other, phv, packet) {
                        packet.parser_error = error;
                        rest = at(code.rejected);
                    }
                }
            }
            if ONE {
                *going = Going { back, fuel, transitions };
                return Some((code.insns.len() - rest.len()) as u32);
            }
        }
        None
    }

    /// Apart, so that the common instructions need few registers.
    #[inline(never)]
    fn carry_out(&mut self, insn: Insn, phv: &mut [u64], packet: &mut Packet) -> Result<(), Rejected> {
        match insn {
            Insn::Mul { drop, to, left, right } => {
                phv[to as usize] = phv[left as usize].wrapping_mul(phv[right as usize]) & kept(drop);
            }
            Insn::Xor { drop, to, left, right } => {
                phv[to as usize] = (phv[left as usize] ^ phv[right as usize]) & kept(drop);
            }
            Insn::ShiftLeft { drop, to, value, by } => {
                let shifted = match phv[by as usize] {
                    by @ 0..64 => phv[value as usize] << by,
                    _ => 0,
                };
                phv[to as usize] = shifted & kept(drop);
            }
            Insn::ShiftRight { drop, signed, to, value, by } => {
                let (value, by) = (phv[value as usize], phv[by as usize]);
                let shifted = match by {
                    by if signed => (value.cast_signed() >> by.min(63)).cast_unsigned(),
                    by @ 0..64 => value >> by,
                    _ => 0,
                };
                phv[to as usize] = shifted & kept(drop);
            }
            Insn::Divide { drop, to, left, right } => {
                let quotient = phv[left as usize].checked_div(phv[right as usize]).unwrap_or(0);
                phv[to as usize] = quotient & kept(drop);
            }
            Insn::Modulo { drop, to, left, right } => {
                let rest = phv[left as usize].checked_rem(phv[right as usize]).unwrap_or(0);
                phv[to as usize] = rest & kept(drop);
            }
            Insn::SignExtend { drop, width, to, from } => {
                let shift = 64 - u32::from(width);
                let value = (phv[from as usize] << shift).cast_signed() >> shift;
                phv[to as usize] = value.cast_unsigned() & kept(drop);
            }
            Insn::Offset { to, base, size } => {
                let hash = phv[to as usize] % phv[size as usize].max(1);
                phv[to as usize] = hash.wrapping_add(phv[base as usize]);
            }
            Insn::Test { signed, compare, to, left, right } => {
                let result = holds(compare, signed, phv[left as usize], phv[right as usize]);
                phv[to as usize] = u64::from(result);
            }
            other => match other.part() {
                Part::Wide => wide::execute(other, phv),
                Part::Header => self.headers(other, phv, packet),
                Part::External => self.external(other, phv, packet),
                Part::Parser => return self.parse(other, phv, packet),
                Part::Note => self.note(other, packet.trace),
                Part::Number | Part::Flow => {
                    debug_assert!(false, "{other:?} is carried out nowhere");
                }
            },
        }
        Ok(())
    }

    fn note(&mut self, insn: Insn, packet: u64) {
        let Some(trace) = &mut self.work.trace else { return };
        match insn {
            Insn::NoteState { state } => trace.note_state(packet, state),
            Insn::NoteCondition { node, result } => trace.note_condition(packet, node, result),
            Insn::NoteCall { action } => trace.note_call(packet, &self.control.actions[action as usize]),
            other => debug_assert!(false, "{other:?} is no note"),
        }
    }
}

/// A header or union by the number in a limb.
fn numbered<T>(items: &[T], number: u64) -> Option<&T> {
    if number == NONE { None } else { items.get(usize::try_from(number).ok()?) }
}
