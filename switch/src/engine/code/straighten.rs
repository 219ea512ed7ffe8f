// SPDX-License-Identifier: Apache-2.0
//! Jumps that lead to jumps, or to the next instruction: a program comes out of its parts with many
//! of them.

use super::form::{Code, Next};
use super::insn::Insn;

impl Code {
    /// Every place that an instruction, a select or a table leads to.
    pub(crate) fn each_target(&mut self, mut visit: impl FnMut(&mut u32)) {
        self.insns.iter_mut().filter_map(Insn::target).for_each(&mut visit);
        for next in &mut self.next {
            match next {
                Next::HitMiss { hit, miss } => [hit, miss].into_iter().for_each(&mut visit),
                Next::ByAction { actions, otherwise } => {
                    actions.iter_mut().for_each(|(_, next)| visit(next));
                    visit(otherwise);
                }
            }
        }
        for select in &mut self.selects {
            select.cases.iter_mut().for_each(|case| visit(&mut case.next));
            visit(&mut select.default);
        }
        for select in &mut self.set_selects {
            select.cases.iter_mut().for_each(|case| visit(&mut case.next));
            visit(&mut select.default);
        }
    }

    /// Puts an instruction in front of each that is marked: whatever led there leads to it.
    pub(crate) fn put_before(&mut self, marked: &[bool], insn: Insn) {
        let mut before = 0;
        let places: Vec<u32> = (0..)
            .zip(marked.iter().copied().chain([false]))
            .map(|(place, marked): (u32, bool)| {
                let moved = place + before;
                before += u32::from(marked);
                moved
            })
            .collect();
        let moved = |to: &mut u32| *to = places[(*to as usize).min(marked.len())];
        self.each_target(moved);
        self.each_beginning(moved);
        let insns = std::mem::take(&mut self.insns);
        for (own, marked) in insns.into_iter().zip(marked) {
            self.insns.extend(marked.then_some(insn));
            self.insns.push(own);
        }
    }

    fn each_beginning(&mut self, visit: impl FnMut(&mut u32)) {
        let Self { parse, rejected, ingress, egress, deparse, actions, .. } = self;
        [parse, rejected, ingress, egress, deparse].into_iter().chain(actions).for_each(visit);
    }

    /// Instructions behind a way out, to which nothing leads.
    fn unused(&mut self) -> Vec<bool> {
        let mut unused = vec![true; self.insns.len() + 1];
        self.each_target(|to| unused[*to as usize] = false);
        self.each_beginning(|to| unused[*to as usize] = false);
        for at in 0..self.insns.len() {
            let out =
                matches!(self.insns[at], Insn::Jump { .. } | Insn::Loop { .. } | Insn::End | Insn::Return);
            if !out && !unused[at] {
                unused[at + 1] = false;
            }
        }
        unused
    }

    /// Leads past jumps, and leaves out those that nothing is left of.
    pub(super) fn straighten(&mut self) {
        let before = self.insns.clone();
        let mut last: Vec<u32> = (0..)
            .zip(&before)
            .map(|(at, insn)| if let Insn::Jump { to } = insn { *to } else { at })
            .collect();
        // Twice as far each time: in so many rounds past any chain. A circle of jumps alone has no
        // end.
        for _ in 0..=before.len().ilog2() {
            last = last.iter().map(|to| last.get(*to as usize).copied().unwrap_or(*to)).collect();
        }
        self.each_target(|to| *to = last.get(*to as usize).copied().unwrap_or(*to));
        for insn in &mut self.insns {
            if let Insn::Jump { to } = insn
                && let Some(end @ (Insn::End | Insn::Return)) = before.get(*to as usize)
            {
                *insn = *end;
            }
        }
        let unused = self.unused();
        // The first instruction at or behind each that stays.
        let count = self.insns.len();
        let mut stays: Vec<usize> = (0..=count).collect();
        for at in (0..count).rev() {
            let leads_on = match self.insns[at] {
                Insn::Jump { to } => to as usize > at && stays[to as usize] == stays[at + 1],
                _ => false,
            };
            if leads_on || unused[at] {
                stays[at] = stays[at + 1];
            }
        }
        let mut places = Vec::with_capacity(count + 1);
        let mut place = 0;
        for (at, first) in stays.iter().enumerate() {
            places.push(place);
            place += u32::from(*first == at);
        }
        let moved = |to: &mut u32| *to = places[stays[(*to as usize).min(count)]];
        self.each_target(moved);
        self.each_beginning(moved);
        let mut at = 0;
        self.insns.retain(|_| {
            at += 1;
            stays[at - 1] == at - 1
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_to_jumps_and_to_the_next_instruction_are_gone_and_everything_leads_where_it_led() {
        let copy = |to| Insn::Copy { to, from: 9 };
        let mut code = Code {
            insns: vec![
                Insn::Jump { to: 1 },
                Insn::IfEqual { to: 4, left: 1, right: 2 },
                copy(1),
                Insn::Jump { to: 5 },
                Insn::Jump { to: 7 },
                copy(2),
                Insn::Jump { to: 8 },
                copy(3),
                Insn::End,
            ],
            ingress: 5,
            actions: vec![7],
            ..Code::default()
        };
        code.straighten();
        let expected =
            [Insn::IfEqual { to: 4, left: 1, right: 2 }, copy(1), copy(2), Insn::End, copy(3), Insn::End];
        assert_eq!(code.insns, expected);
        assert_eq!((code.ingress, &code.actions[..]), (2, &[4][..]));
    }
}
