// SPDX-License-Identifier: Apache-2.0
//! Headers, stacks and unions.

use super::super::bits::{limbs_for, trim};
use super::super::code::{Insn, NONE, VarbitCopy};
use super::super::layout::{Field, Layout, Slot};
use super::super::packet::Packet;
use super::super::stack::Elements;
use super::{Machine, numbered, wide};

/// The header or union before the next free one of a stack.
fn last(items: &[u32], next: u64) -> u64 {
    let last = usize::try_from(next).ok().and_then(|next| next.checked_sub(1));
    last.and_then(|last| items.get(last)).map_or(NONE, |item| u64::from(*item))
}

fn element(items: &[u32], index: u64) -> u64 {
    numbered(items, index).map_or(NONE, |item| u64::from(*item))
}

fn field(layout: &Layout, header: u64, field: u16) -> Option<&Field> {
    numbered(&layout.headers, header)?.fields.get(usize::from(field))
}

impl Machine<'_> {
    /// Carries out an instruction on headers.
    pub(super) fn headers(&self, insn: Insn, phv: &mut [u64], packet: &mut Packet) {
        let layout = &self.program.layout;
        let header = |phv: &[u64], at: u32| {
            let number = phv[at as usize];
            numbered(&layout.headers, number).map(|_| number as u32)
        };
        let union = |phv: &[u64], at: u32| {
            let number = phv[at as usize];
            numbered(&layout.unions, number).map(|_| number as u32)
        };
        match insn {
            Insn::LastElement { to, stack } => {
                let stack = &layout.stacks[stack as usize];
                phv[to as usize] = last(&stack.headers, phv[stack.next]);
            }
            Insn::LastUnion { to, stack } => {
                let stack = &layout.union_stacks[stack as usize];
                phv[to as usize] = last(&stack.unions, phv[stack.next]);
            }
            Insn::Element { to, stack, index } => {
                phv[to as usize] = element(&layout.stacks[stack as usize].headers, phv[index as usize]);
            }
            Insn::UnionElement { to, stack, index } => {
                phv[to as usize] = element(&layout.union_stacks[stack as usize].unions, phv[index as usize]);
            }
            Insn::Member { to, union: at, member } => {
                let members = numbered(&layout.unions, phv[at as usize]).map_or(&[][..], Vec::as_slice);
                phv[to as usize] = element(members, u64::from(member));
            }
            Insn::LoadField { words, field: number, to, header } => {
                let (to, words) = (to as usize, usize::from(words));
                match field(layout, phv[header as usize], number) {
                    Some(Field { slot, .. }) => {
                        wide::load(phv, to, words, slot.at as usize, slot.width, slot.signed);
                    }
                    None => phv[to..to + words].fill(0),
                }
            }
            Insn::LoadBits { words, field: number, to, header } => {
                let (to, words) = (to as usize, usize::from(words));
                match field(layout, phv[header as usize], number) {
                    Some(Field { slot, .. }) => phv.copy_within(slot.limbs(), to),
                    None => phv[to..to + words].fill(0),
                }
            }
            Insn::StoreField { words, field: number, header, from } => {
                if let Some(Field { slot, .. }) = field(layout, phv[header as usize], number) {
                    let Slot { at, width, signed } = *slot;
                    let (to, from, limbs) = (at as usize, from as usize, limbs_for(width));
                    if signed {
                        wide::store_signed(phv, to, from, usize::from(words), width);
                    } else {
                        phv.copy_within(from..from + limbs, to);
                        trim(&mut phv[to..to + limbs], width);
                    }
                }
            }
            Insn::IsValid { to, header } => {
                let valid = numbered(&layout.headers, phv[header as usize])
                    .is_some_and(|header| phv[header.valid()] != 0);
                phv[to as usize] = u64::from(valid);
            }
            Insn::IsUnionValid { to, union: at } => {
                let valid = union(phv, at).is_some_and(|union| layout.valid_member(phv, union).is_some());
                phv[to as usize] = u64::from(valid);
            }
            Insn::SameHeader { to, left, right } => {
                let same = header(phv, left)
                    .zip(header(phv, right))
                    .is_some_and(|(left, right)| layout.same_header(phv, left, right));
                phv[to as usize] = u64::from(same);
            }
            Insn::SameUnion { to, left, right } => {
                let same = union(phv, left)
                    .zip(union(phv, right))
                    .is_some_and(|(left, right)| same_union(layout, phv, left, right).unwrap_or(false));
                phv[to as usize] = u64::from(same);
            }
            Insn::AddHeader { header: at } => {
                header(phv, at).into_iter().for_each(|header| add(layout, phv, packet, header));
            }
            Insn::RemoveHeader { header: at } => {
                if let Some(header) = numbered(&layout.headers, phv[at as usize])
                    && phv[header.valid()] != 0
                {
                    packet.length = packet.length.wrapping_sub(header.bytes(phv) as u64);
                    phv[header.valid()] = 0;
                }
            }
            Insn::CopyHeader { to, from } => {
                if let (Some(to), Some(from)) = (header(phv, to), header(phv, from)) {
                    layout.copy_header(phv, to, from);
                }
            }
            Insn::CopyStack { to, from } => {
                let (to, from) = (&layout.stacks[to as usize], &layout.stacks[from as usize]);
                phv[to.next] = phv[from.next];
                copy_headers(layout, phv, &to.headers, &from.headers);
            }
            Insn::CopyUnionStack { to, from } => {
                let (to, from) = (&layout.union_stacks[to as usize], &layout.union_stacks[from as usize]);
                phv[to.next] = phv[from.next];
                for (&to, &from) in to.unions.iter().zip(&from.unions) {
                    copy_headers(layout, phv, &layout.unions[to as usize], &layout.unions[from as usize]);
                }
            }
            Insn::CopyUnion { to, from } => {
                if let (Some(to), Some(from)) = (union(phv, to), union(phv, from)) {
                    copy_headers(layout, phv, &layout.unions[to as usize], &layout.unions[from as usize]);
                }
            }
            Insn::CopyVarbit { varbit } => copy_varbit(self.code.varbits[varbit as usize], phv),
            Insn::Push { stack, count } => {
                let count = count_of(phv, count);
                Elements::new(layout, stack).push(phv, count);
            }
            Insn::Pop { stack, count } => {
                let count = count_of(phv, count);
                Elements::new(layout, stack).pop(phv, count);
            }
            other => debug_assert!(false, "{other:?} is of another part"),
        }
    }
}

/// More than there can be is the most there can be.
fn count_of(phv: &[u64], at: u32) -> usize {
    usize::try_from(phv[at as usize]).unwrap_or(usize::MAX)
}

/// The same member is valid in both, and equal (BMv2: two invalid unions are not equal).
fn same_union(layout: &Layout, phv: &[u64], left: u32, right: u32) -> Option<bool> {
    let member = layout.valid_member(phv, left)?;
    let same_member = layout.valid_member(phv, right) == Some(member);
    let header = |union: u32| layout.unions[union as usize].get(member).copied();
    Some(same_member && layout.same_header(phv, header(left)?, header(right)?))
}

fn add(layout: &Layout, phv: &mut [u64], packet: &mut Packet, number: u32) {
    let header = &layout.headers[number as usize];
    if phv[header.valid()] == 0 {
        // A variable-length field keeps its length, as in BMv2.
        let length = header.length.map(|length| (length, phv[length]));
        phv[header.limbs.clone()].fill(0);
        if let Some((length, bits)) = length {
            phv[length] = bits;
        }
        layout.set_valid(phv, number);
        packet.length = packet.length.wrapping_add(header.bytes(phv) as u64);
    }
}

fn copy_headers(layout: &Layout, phv: &mut [u64], to: &[u32], from: &[u32]) {
    for (&to, &from) in to.iter().zip(from) {
        layout.copy_header(phv, to, from);
    }
}

fn copy_varbit(copy: VarbitCopy, phv: &mut [u64]) {
    let ((to, to_length), (from, from_length)) = (copy.to, copy.from);
    let (target, source) = (to.limbs(), from.limbs());
    let shared = target.len().min(source.len());
    phv.copy_within(source.start..source.start + shared, target.start);
    phv[target.start + shared..target.end].fill(0);
    trim(&mut phv[target], to.width);
    phv[to_length] = phv[from_length].min(u64::from(to.width));
}
