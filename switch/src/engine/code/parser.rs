// SPDX-License-Identifier: Apache-2.0
//! Parser states, and the checksums behind them.

use super::super::bits::limbs_for;
use super::super::expression::Expr;
use super::super::parser::{Case, KeyPart, Parser, State, Step};
use super::emitter::{Emitter, Label};
use super::form::{CaseValues, Select, SelectCase, SelectSet, SetCase};
use super::insn::{At, Insn};

/// States within a state's reach, itself only where it can be entered again.
fn runs_in_a_circle(parser: &Parser) -> bool {
    let successors = |state: &State| -> Vec<u32> {
        let cases = state.cases.iter().map(|case| match case {
            Case::Value { next, .. } | Case::Set { next, .. } => *next,
        });
        cases.chain([state.default]).flatten().collect()
    };
    // States that nothing leads to are taken away until none is left, or only circles are.
    let mut entered = vec![0_usize; parser.states.len()];
    let leads_to: Vec<Vec<u32>> = parser.states.iter().map(successors).collect();
    leads_to.iter().flatten().for_each(|&next| entered[next as usize] += 1);
    let mut free: Vec<usize> = (0..entered.len()).filter(|&state| entered[state] == 0).collect();
    let mut taken = 0;
    while let Some(state) = free.pop() {
        taken += 1;
        for &next in &leads_to[state] {
            entered[next as usize] -= 1;
            if entered[next as usize] == 0 {
                free.push(next as usize);
            }
        }
    }
    taken < parser.states.len()
}

impl Emitter<'_> {
    /// All states; the parser's end is at `accept`.
    pub(super) fn parser(&mut self, parser: &Parser, accept: Label) {
        let labels: Vec<Label> = parser.states.iter().map(|_| self.label()).collect();
        let place = |state: Option<u32>| state.map_or(accept, |state| labels[state as usize]);
        let circles = runs_in_a_circle(parser);
        self.jump(place(parser.start));
        for (number, state) in (0..).zip(&parser.states) {
            self.place(labels[number as usize]);
            if self.traced {
                self.emit(Insn::NoteState { state: number });
            }
            if circles {
                self.emit(Insn::State { state: number });
            }
            for step in &state.steps {
                self.step(step);
                self.release();
            }
            self.select(state, &place);
            self.release();
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Extract(header) => self.emit(Insn::Extract { header: *header }),
            Step::ExtractNext(stack) => self.emit(Insn::ExtractNext { stack: *stack }),
            Step::ExtractVariable { header, bits } => {
                let bits = self.whole(bits);
                self.emit(Insn::ExtractVariable { header: *header, bits });
            }
            Step::ExtractNextVariable { stack, bits } => {
                let bits = self.whole(bits);
                self.emit(Insn::ExtractNextVariable { stack: *stack, bits });
            }
            Step::ExtractNextMember { stack, member, bits } => {
                let bits = bits.as_ref().map(|bits| self.whole(bits));
                let (stack, member) = (*stack, *member as u16);
                self.emit(Insn::ExtractNextMember { stack, member, bits });
            }
            Step::SetLookahead { to, offset, width } => {
                let words = limbs_for(*width);
                let value = self.take(words);
                self.emit(Insn::Lookahead { to: value, offset: *offset, width: *width });
                self.assign_limbs(to, value, words);
            }
            Step::Verify { condition, error } => {
                let holds = self.label();
                self.branch_if(condition, true, holds);
                let error = self.low(error);
                self.emit(Insn::Reject { error });
                self.place(holds);
            }
            Step::Advance(bits) => {
                let bits = self.whole(bits);
                self.emit(Insn::Advance { bits });
            }
            Step::Primitive(op) => self.operations(std::slice::from_ref(op)),
        }
    }

    fn select(&mut self, state: &State, place: &impl Fn(Option<u32>) -> Label) {
        if state.key.is_empty() || state.cases.is_empty() && !looks_ahead(state) {
            let to = place(state.default);
            // Parsers count their states instead of burning fuel.
            self.emit(Insn::Jump { to: to.0 });
            return;
        }
        let parts: Vec<(At, usize)> = state.key.iter().map(|part| self.key_part(part)).collect();
        let bits: u32 = state.key.iter().map(KeyPart::width).sum();
        let values = state.cases.iter().map(|case| match case {
            Case::Value { value, mask, next } => Some((value, mask, *next)),
            Case::Set { .. } => None,
        });
        if let Some(values) = values.collect::<Option<Vec<_>>>().filter(|_| bits <= 64) {
            let widths: Vec<u32> = state.key.iter().map(KeyPart::width).collect();
            let pack = |limbs: &[u64]| {
                limbs
                    .iter()
                    .zip(&widths)
                    .fold(0_u64, |packed, (limb, width)| packed.checked_shl(*width).unwrap_or(0) | limb)
            };
            let cases = values.into_iter().map(|(value, mask, next)| {
                let mask = mask.as_ref().map_or(u64::MAX, |mask| pack(mask));
                SelectCase { value: pack(value) & mask, mask, next: place(next).0 }
            });
            let cases = cases.collect();
            let key = self.packed(&parts, &widths);
            let select = self.code.selects.len() as u32;
            self.code.selects.push(Select { key, cases, default: place(state.default).0 });
            self.emit(Insn::Select { select });
            return;
        }
        let cases = state.cases.iter().map(|case| match case {
            Case::Value { value, mask, next } => {
                SetCase { values: CaseValues::One(value.clone()), mask: mask.clone(), next: place(*next).0 }
            }
            Case::Set { set, mask, next } => {
                SetCase { values: CaseValues::Set(*set), mask: mask.clone(), next: place(*next).0 }
            }
        });
        let (cases, default) = (cases.collect(), place(state.default).0);
        let select = self.code.set_selects.len() as u32;
        self.code.set_selects.push(SelectSet { parts, cases, default });
        self.emit(Insn::SelectSet { select });
    }

    /// The parts side by side in one limb.
    fn packed(&mut self, parts: &[(At, usize)], widths: &[u32]) -> At {
        let mut packed = parts[0].0;
        for ((part, _), width) in parts.iter().zip(widths).skip(1) {
            let (shifted, to) = (self.take(1), self.take(1));
            self.emit(Insn::Shifted { drop: 0, shift: *width as u8, to: shifted, from: packed });
            self.emit(Insn::Or { drop: 0, to, left: shifted, right: *part });
            packed = to;
        }
        packed
    }

    fn key_part(&mut self, part: &KeyPart) -> (At, usize) {
        match part {
            KeyPart::Field(slot) => (slot.at, slot.limbs().len()),
            KeyPart::Last { header, field, width } => {
                let limbs = limbs_for(*width);
                let header = self.header(header);
                let to = self.take(limbs);
                self.emit(Insn::LoadBits { words: limbs as u16, field: *field as u16, to, header });
                (to, limbs)
            }
            KeyPart::Lookahead { offset, width } => {
                let limbs = limbs_for(*width);
                let to = self.take(limbs);
                self.emit(Insn::Lookahead { to, offset: *offset, width: *width });
                (to, limbs)
            }
        }
    }

    /// An instruction that is left out where a condition does not hold.
    pub(super) fn conditional(&mut self, condition: Option<&Expr>, insn: Insn) {
        let after = self.label();
        if let Some(condition) = condition {
            self.branch_if(condition, false, after);
        }
        self.emit(insn);
        self.place(after);
        self.release();
    }
}

/// A key that is read from the packet may be missing there.
fn looks_ahead(state: &State) -> bool {
    state.key.iter().any(|part| matches!(part, KeyPart::Lookahead { .. }))
}
