// SPDX-License-Identifier: Apache-2.0
//! What an instruction reads and writes of the frame, and whether anything else has a part in it.

use super::super::bits::limbs_for;
use super::super::calculation::Calculation;
use super::super::layout::Layout;
use super::{At, Insn, WideOp};
use std::ops::Range;

/// What an instruction does to the frame.
#[derive(Debug, Default)]
pub(crate) struct Effect {
    /// Limbs that it may read.
    pub(crate) reads: Vec<Range<usize>>,
    /// Limbs that it writes, or leaves as they are.
    pub(crate) writes: Vec<Range<usize>>,
    /// What it writes, and where it goes on, follow from what it reads, and it does nothing else.
    pub(crate) pure: bool,
    /// It may read any limb of headers and metadata.
    pub(crate) reads_all: bool,
}

fn limbs(at: At, count: usize) -> Range<usize> {
    at as usize..at as usize + count
}

impl Effect {
    fn pure(reads: impl IntoIterator<Item = Range<usize>>, writes: Option<Range<usize>>) -> Self {
        let (reads, writes) = (reads.into_iter().collect(), writes.into_iter().collect());
        Self { reads, writes, pure: true, reads_all: false }
    }

    fn other(reads: impl IntoIterator<Item = At>, writes: Option<Range<usize>>) -> Self {
        let reads = reads.into_iter().map(|at| limbs(at, 1));
        Self { pure: false, ..Self::pure(reads, writes) }
    }

    /// Of headers that are found at run time, or of several.
    fn of_headers() -> Self {
        Self { reads_all: true, ..Self::default() }
    }
}

fn wide(op: WideOp, words: usize, to: At, left: At, right: At) -> Effect {
    let (others, results) = match op {
        WideOp::Ring(_) | WideOp::Divide | WideOp::Modulo => (words, words),
        WideOp::ShiftLeft | WideOp::ShiftRight | WideOp::ShiftRightSigned => (1, words),
        WideOp::Not | WideOp::SignExtend | WideOp::Saturate { .. } => (0, words),
        WideOp::Order { .. } => (words, 1),
        WideOp::Clamp => (0, 1),
    };
    let right = (others > 0).then(|| limbs(right, others));
    Effect::pure([limbs(left, words)].into_iter().chain(right), Some(limbs(to, results)))
}

impl Insn {
    /// What this instruction does; [`Insn::Apply`] only as far as no table is asked.
    pub(crate) fn effect(self, layout: &Layout, calculations: &[Calculation]) -> Effect {
        let two = |to, left, right| Effect::pure([limbs(left, 1), limbs(right, 1)], Some(limbs(to, 1)));
        let one = |to, from| Effect::pure([limbs(from, 1)], Some(limbs(to, 1)));
        let ask = |left, right| Effect::pure([limbs(left, 1), limbs(right, 1)], None);
        let field = |words: u16, width: u32| usize::from(words).max(limbs_for(width));
        match self {
            Self::Copy { to, from }
            | Self::Low { to, from, .. }
            | Self::Bits { to, from, .. }
            | Self::Shifted { to, from, .. }
            | Self::Not { to, from, .. }
            | Self::SignExtend { to, from, .. }
            | Self::Saturate { to, from, .. } => one(to, from),
            Self::CopyRun { count, to, from } => {
                Effect::pure([limbs(from, count.into())], Some(limbs(to, count.into())))
            }
            Self::Add { to, left, right, .. }
            | Self::Sub { to, left, right, .. }
            | Self::Mul { to, left, right, .. }
            | Self::And { to, left, right }
            | Self::Or { to, left, right, .. }
            | Self::Xor { to, left, right, .. }
            | Self::Divide { to, left, right, .. }
            | Self::Modulo { to, left, right, .. }
            | Self::ShiftLeft { to, value: left, by: right, .. }
            | Self::ShiftRight { to, value: left, by: right, .. }
            | Self::Test { to, left, right, .. } => two(to, left, right),
            Self::Wide { op, words, to, left, right } => wide(op, words.into(), to, left, right),
            Self::Extend { limbs: count, words, to, from, .. } => {
                Effect::pure([limbs(from, count.into())], Some(limbs(to, words.into())))
            }
            // Behind a signed field stands how to read it.
            Self::LoadSigned { words, to, from, width } => {
                let source = limbs_for(width) + 1;
                Effect::pure([limbs(from, source)], Some(limbs(to, words.into())))
            }
            Self::StoreSigned { words, to, from, width } => {
                let target = limbs_for(width) + 1;
                Effect::pure([limbs(from, field(words, width))], Some(limbs(to, target)))
            }
            Self::Store { to, from, width } => {
                let count = limbs_for(width);
                Effect::pure([limbs(from, count)], Some(limbs(to, count)))
            }
            Self::Jump { .. }
            | Self::Return
            | Self::ReturnUnlessExit
            | Self::EndIfExit
            | Self::Apply { .. } => Effect::pure([], None),
            Self::IfZero { value, .. } | Self::IfNotZero { value, .. } => {
                Effect::pure([limbs(value, 1)], None)
            }
            Self::IfEqual { left, right, .. }
            | Self::IfUnequal { left, right, .. }
            | Self::IfLess { left, right, .. }
            | Self::IfNotLess { left, right, .. }
            | Self::Branch { left, right, .. } => ask(left, right),
            Self::Hash { to, calculation } => match calculations[calculation as usize].limbs(layout) {
                Some(reads) => Effect::pure(reads, Some(limbs(to, 1))),
                None => Effect { writes: vec![limbs(to, 1)], ..Effect::of_headers() },
            },
            Self::Offset { to, base, size } => {
                Effect::pure([to, base, size].map(|at| limbs(at, 1)), Some(limbs(to, 1)))
            }
            // What outlives the packet, and what is asked of the switch.
            Self::Count { index, .. } => Effect::other([index], None),
            Self::ReadRegister { to, index, .. } => Effect::other([to, index], Some(limbs(to, 1))),
            Self::HasCell { to, index, .. } | Self::Meter { to, index, .. } => {
                Effect::other([index], Some(limbs(to, 1)))
            }
            Self::ReadCell { words, to, index, .. } => Effect::other([index], Some(limbs(to, words.into()))),
            Self::WriteRegister { index, value, .. } => Effect::other([index, value], None),
            Self::WriteCell { words, index, value, .. } => {
                let values = (0..u32::from(words)).map(|word| value + word);
                Effect::other(values.chain([index]), None)
            }
            Self::Random { to, low, high } => Effect::other([to, low, high], Some(limbs(to, 1))),
            Self::Clone { session, list } => Effect::other([session, list], None),
            Self::Resubmit { list } | Self::Recirculate { list } | Self::Digest { list } => {
                Effect::other([list], None)
            }
            Self::Truncate { length } => Effect::other([length], None),
            Self::Exit
            | Self::Fail { .. }
            | Self::End
            | Self::Loop { .. }
            | Self::Remember
            | Self::NoteState { .. }
            | Self::NoteCondition { .. }
            | Self::NoteCall { .. }
            | Self::State { .. }
            | Self::Extract { .. }
            | Self::Select { .. }
            | Self::SelectSet { .. }
            | Self::Verify { .. } => Effect::other([], None),
            Self::Reject { error: bits } | Self::Advance { bits } | Self::ExtractVariable { bits, .. } => {
                Effect::other([bits], None)
            }
            Self::ExtractNext { stack } => next_of(layout.stacks[stack as usize].next, None),
            Self::ExtractNextVariable { stack, bits } => {
                next_of(layout.stacks[stack as usize].next, Some(bits))
            }
            Self::ExtractNextMember { stack, bits, .. } => {
                next_of(layout.union_stacks[stack as usize].next, bits)
            }
            Self::Lookahead { to, width, .. } => Effect::other([], Some(limbs(to, limbs_for(width)))),
            Self::Log { .. }
            | Self::Update { .. }
            | Self::LastElement { .. }
            | Self::Element { .. }
            | Self::Member { .. }
            | Self::LastUnion { .. }
            | Self::UnionElement { .. }
            | Self::LoadField { .. }
            | Self::LoadBits { .. }
            | Self::StoreField { .. }
            | Self::IsValid { .. }
            | Self::IsUnionValid { .. }
            | Self::SameHeader { .. }
            | Self::SameUnion { .. }
            | Self::AddHeader { .. }
            | Self::RemoveHeader { .. }
            | Self::CopyHeader { .. }
            | Self::CopyStack { .. }
            | Self::CopyUnionStack { .. }
            | Self::CopyUnion { .. }
            | Self::CopyVarbit { .. }
            | Self::Push { .. }
            | Self::Pop { .. } => Effect::of_headers(),
        }
    }
}

/// Of a stack's next free element.
fn next_of(next: usize, bits: Option<At>) -> Effect {
    let at = next as At;
    Effect::other([at].into_iter().chain(bits), Some(limbs(at, 1)))
}
