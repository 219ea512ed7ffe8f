// SPDX-License-Identifier: Apache-2.0
//! Where blocks of machine code begin.

use super::super::code::form::Select;
use super::super::code::{Code, Insn, Next};

/// Places at which an instruction begins a block, and those that only a run tells.
pub(super) struct Places {
    pub(super) begins: Vec<bool>,
    pub(super) asked_for: Vec<bool>,
}

impl Places {
    pub(super) fn of(code: &Code) -> Self {
        let count = code.insns.len();
        let mut places = Self { begins: vec![false; count], asked_for: vec![false; count] };
        let Code { parse, rejected, ingress, egress, deparse, .. } = *code;
        let mut ask = |place: u32| {
            if let Some(asked) = places.asked_for.get_mut(place as usize) {
                *asked = true;
            }
        };
        [parse, rejected, ingress, egress, deparse]
            .into_iter()
            .chain(code.actions.iter().copied())
            .for_each(&mut ask);
        for next in &code.next {
            match next {
                Next::HitMiss { hit, miss } => [*hit, *miss].into_iter().for_each(&mut ask),
                Next::ByAction { actions, otherwise } => {
                    actions.iter().map(|(_, next)| *next).chain([*otherwise]).for_each(&mut ask);
                }
            }
        }
        for select in &code.set_selects {
            select.cases.iter().map(|case| case.next).chain([select.default]).for_each(&mut ask);
        }
        for (place, insn) in (0..).zip(&code.insns) {
            if let Insn::Remember = insn {
                ask(place + 1);
            }
        }
        places.begins.clone_from(&places.asked_for);
        let mut begin = |place: u32| {
            if let Some(begins) = places.begins.get_mut(place as usize) {
                *begins = true;
            }
        };
        code.insns.iter().filter_map(|&(mut insn)| insn.target().copied()).for_each(&mut begin);
        for Select { cases, default, .. } in &code.selects {
            cases.iter().map(|case| case.next).chain([*default]).for_each(&mut begin);
        }
        places
    }
}
