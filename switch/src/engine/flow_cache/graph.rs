// SPDX-License-Identifier: Apache-2.0
//! Code as a graph: what each instruction does, and which ones may follow it.

use super::super::calculation::{Calculation, Checksum};
use super::super::code::{Code, Effect, Insn, Next};
use super::super::layout::{Header, Layout};
use super::super::profile::Profile;
use super::super::table::Table;
use std::ops::Range;

/// An instruction, and where the action that it belongs to goes back to; [`OUTSIDE`] of actions
/// that tables call, nowhere.
pub(super) type Place = (u32, u32);

pub(super) const OUTSIDE: u32 = u32::MAX;

/// What a table may do to any packet, whatever its entries.
#[derive(Debug)]
pub(super) struct TableUse {
    /// `None` where time, earlier packets or the payload have a part in it.
    pub(super) reads: Option<Vec<Range<usize>>>,
    pub(super) actions: Vec<u32>,
}

impl TableUse {
    pub(super) fn of(table: &Table, profiles: &[Profile], layout: &Layout) -> Self {
        Self { reads: table.reads(profiles, layout), actions: table.callable(profiles) }
    }
}

/// Code, and what it refers to.
#[derive(Clone, Copy)]
pub(super) struct Graph<'a> {
    pub(super) code: &'a Code,
    pub(super) layout: &'a Layout,
    pub(super) calculations: &'a [Calculation],
    pub(super) checksums: &'a [Checksum],
    /// By table.
    pub(super) tables: &'a [TableUse],
}

impl<'a> Graph<'a> {
    pub(super) fn insn(&self, place: u32) -> Insn {
        self.code.insns.get(place as usize).copied().unwrap_or(Insn::End)
    }

    /// What an instruction does to the frame, with what it refers to: tables, checksums, hashes,
    /// stacks.
    pub(super) fn effect(&self, insn: Insn) -> Effect {
        let mut effect = insn.effect();
        match insn {
            Insn::Apply { table } => {
                if let Some(reads) = self.tables.get(table as usize).and_then(|table| table.reads.as_ref()) {
                    effect.reads.extend(reads.iter().cloned());
                } else {
                    (effect.pure, effect.reads_all) = (false, true);
                }
                // As many of them as the action has.
                effect.writes.push(self.code.arguments..self.code.scratch);
            }
            Insn::Hash { calculation, .. } => effect.pure = self.computes(calculation, &mut effect),
            Insn::Update { checksum } => {
                if let Some(checksum) = self.checksums.get(checksum as usize) {
                    self.computes(checksum.calculation, &mut effect);
                }
            }
            Insn::ExtractNext { stack } | Insn::ExtractNextVariable { stack, .. } => {
                effect.update(self.layout.stacks[stack as usize].next as u32, 1);
            }
            Insn::ExtractNextMember { stack, .. } => {
                effect.update(self.layout.union_stacks[stack as usize].next as u32, 1);
            }
            _ => {}
        }
        if let Some(header) = self.header(insn) {
            // Its fields stay where it is valid already.
            let siblings = header.union.map_or(&[][..], |union| &self.layout.unions[union as usize]);
            effect.update(header.limbs.start as u32, header.limbs.len());
            for sibling in siblings {
                effect.update(self.layout.headers[*sibling as usize].valid() as u32, 1);
            }
            (effect.pure, effect.reads_all) = (true, false);
        }
        effect
    }

    /// Whether a calculation is over limbs that are known, which are read then.
    fn computes(&self, calculation: u32, effect: &mut Effect) -> bool {
        let Some(reads) = self.calculations[calculation as usize].limbs(self.layout) else { return false };
        effect.reads.extend(reads);
        effect.reads_all = false;
        true
    }

    /// The header that an instruction adds or removes, where that is known.
    pub(super) fn header(&self, insn: Insn) -> Option<&'a Header> {
        let (Insn::AddHeader { header } | Insn::RemoveHeader { header }) = insn else { return None };
        let number =
            self.code.frame.get(header as usize).filter(|_| header as usize >= self.code.constants)?;
        self.layout.headers.get(usize::try_from(*number).ok()?)
    }

    /// Where a packet may be next.
    pub(super) fn next(&self, (place, back): Place, mut visit: impl FnMut(Place)) {
        match self.insn(place) {
            Insn::End => {}
            Insn::Jump { to } | Insn::Loop { to } => visit((to, back)),
            Insn::Return | Insn::ReturnUnlessExit => visit((back, OUTSIDE)),
            Insn::Apply { table } => self.behind_table(table as usize, visit),
            mut other => {
                visit((place + 1, back));
                other.target().into_iter().for_each(|to| visit((*to, back)));
            }
        }
    }

    fn behind_table(&self, table: usize, mut visit: impl FnMut(Place)) {
        let (Some(next), Some(uses)) = (self.code.next.get(table), self.tables.get(table)) else { return };
        let begin = |action: u32| self.code.actions.get(action as usize).copied();
        match next {
            Next::HitMiss { hit, miss } => {
                for &after in [hit, miss] {
                    visit((after, OUTSIDE));
                    uses.actions.iter().filter_map(|action| begin(*action)).for_each(|at| visit((at, after)));
                }
            }
            Next::ByAction { actions, otherwise } => {
                visit((*otherwise, OUTSIDE));
                for &action in &uses.actions {
                    let next = actions.iter().find(|(other, _)| *other == action);
                    let after = next.map_or(*otherwise, |(_, next)| *next);
                    begin(action).into_iter().for_each(|at| visit((at, after)));
                }
            }
        }
    }
}
