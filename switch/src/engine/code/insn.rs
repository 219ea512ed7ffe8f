// SPDX-License-Identifier: Apache-2.0
//! Instructions: sixteen bytes each, on limbs of the frame.
//!
//! One table says of each instruction what it reads and writes of the frame, where it may lead, and
//! whether anything else has a part in it. The enum is made of it, and so is all that analyses ask:
//! [`Insn::effect`], [`Insn::target`], [`Insn::part`].

use super::super::bits::limbs_for;
use super::super::expression::{Compare, Ring, StackRef};
use super::effect::Effect;

/// A limb of the frame.
pub(crate) type At = u32;

/// Not a header, a union, or a cell.
pub(crate) const NONE: u64 = u64::MAX;

/// A table of instructions, by the part of the machine that carries them out:
///
/// ```text
/// NAME { FIELD: TYPE [= ROLE LIMBS], … } KIND;
/// ```
///
/// - `read` and `write`: so many limbs from that place on; `update` does both.
/// - `lead`: a place in the code where the packet may go on.
/// - `pure`: what it writes, and where it goes on, follow from what it reads, and it does nothing
///   else.
/// - `other`: what outlives the packet, its frame or the switch have a part in it.
/// - `headers`: it works on headers that are found at run time, or on several.
macro_rules! instructions {
    ($($part:ident: {$(
        $(#[$doc:meta])*
        $name:ident $({ $($field:ident: $type:ty $(= $role:ident $limbs:expr)?),* })? $kind:ident;
    )*})*) => {
        /// One instruction. `drop` is how many of 64 bits a result loses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Insn {
            $($($(#[$doc])* $name $({ $($field: $type),* })?,)*)*
        }

        #[allow(unused_variables, unused_mut, unreachable_code, clippy::unnecessary_cast, reason = "not all have such fields")]
        impl Insn {
            /// What it does to the frame, as far as the instruction alone tells: tables, checksums
            /// and stacks say more ([`Code`](super::Code) as a graph has all of it).
            pub(crate) fn effect(self) -> Effect {
                match self {
                    $($(Self::$name $({ $($field),* })? => {
                        let mut effect = Effect::$kind();
                        $($($(instructions!(@effect effect $role $field $limbs);)?)*)?
                        effect
                    })*)*
                }
            }

            /// The place that it leads to, if it says so itself.
            pub(crate) fn target(&mut self) -> Option<&mut u32> {
                match self {
                    $($(Self::$name $({ $($field),* })? => {
                        $($($(instructions!(@target $role $field);)?)*)?
                        None
                    })*)*
                }
            }

            /// The part of the machine that carries it out.
            pub(crate) fn part(self) -> Part {
                match self {
                    $($(Self::$name { .. } => Part::$part,)*)*
                }
            }
        }
    };
    (@effect $effect:ident lead $field:ident $limbs:expr) => {};
    (@effect $effect:ident $role:ident $field:ident $limbs:expr) => {
        $effect.$role($field, $limbs as usize);
    };
    (@target lead $field:ident) => {
        return Some($field);
    };
    (@target $role:ident $field:ident) => {};
}

/// Parts of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Number,
    Wide,
    Flow,
    Header,
    External,
    Parser,
    Note,
}

instructions! {
    // Numbers of one limb.
    Number: {
        Copy { to: At = write 1, from: At = read 1 } pure;
        Low { drop: u8, to: At = write 1, from: At = read 1 } pure;
        CopyRun { count: u16, to: At = write count, from: At = read count } pure;
        /// `from >> shift`.
        Bits { drop: u8, shift: u8, to: At = write 1, from: At = read 1 } pure;
        /// `from << shift`.
        Shifted { drop: u8, shift: u8, to: At = write 1, from: At = read 1 } pure;
        Add { drop: u8, to: At = write 1, left: At = read 1, right: At = read 1 } pure;
        Sub { drop: u8, to: At = write 1, left: At = read 1, right: At = read 1 } pure;
        Mul { drop: u8, to: At = write 1, left: At = read 1, right: At = read 1 } pure;
        And { to: At = write 1, left: At = read 1, right: At = read 1 } pure;
        Or { drop: u8, to: At = write 1, left: At = read 1, right: At = read 1 } pure;
        Xor { drop: u8, to: At = write 1, left: At = read 1, right: At = read 1 } pure;
        Not { drop: u8, to: At = write 1, from: At = read 1 } pure;
        ShiftLeft { drop: u8, to: At = write 1, value: At = read 1, by: At = read 1 } pure;
        ShiftRight { drop: u8, signed: bool, to: At = write 1, value: At = read 1, by: At = read 1 } pure;
        Divide { drop: u8, to: At = write 1, left: At = read 1, right: At = read 1 } pure;
        Modulo { drop: u8, to: At = write 1, left: At = read 1, right: At = read 1 } pure;
        SignExtend { drop: u8, width: u8, to: At = write 1, from: At = read 1 } pure;
        /// An unsigned or signed number to an unsigned one of `width` bits.
        Saturate { width: u8, from_signed: bool, to: At = write 1, from: At = read 1 } pure;
        /// 1 where the comparison holds.
        Test { signed: bool, compare: Compare, to: At = write 1, left: At = read 1, right: At = read 1 } pure;
        /// `to = base + to % size`.
        Offset { to: At = update 1, base: At = read 1, size: At = read 1 } pure;
    }

    // Numbers of several limbs.
    Wide: {
        Wide { op: WideOp, words: u8, to: At = write op.results(words), left: At = read words,
            right: At = read op.others(words) } pure;
        /// `left` limbs make `words`; `signed` repeats the sign.
        Extend { signed: bool, limbs: u16, words: u16, to: At = write words, from: At = read limbs } pure;
        /// A signed field, which may hold its bits as an unsigned number: a limb behind it says so.
        LoadSigned { words: u16, to: At = write words, from: At = read limbs_for(width) + 1, width: u32 } pure;
        StoreSigned { words: u16, to: At = write limbs_for(width) + 1,
            from: At = read limbs_for(width).max(words.into()), width: u32 } pure;
        /// The low `width` bits.
        Store { to: At = write limbs_for(width), from: At = read limbs_for(width), width: u32 } pure;
    }

    // Where to go on.
    Flow: {
        Jump { to: u32 = lead 0 } pure;
        IfZero { to: u32 = lead 0, value: At = read 1 } pure;
        IfNotZero { to: u32 = lead 0, value: At = read 1 } pure;
        IfEqual { to: u32 = lead 0, left: At = read 1, right: At = read 1 } pure;
        IfUnequal { to: u32 = lead 0, left: At = read 1, right: At = read 1 } pure;
        IfLess { to: u32 = lead 0, left: At = read 1, right: At = read 1 } pure;
        IfNotLess { to: u32 = lead 0, left: At = read 1, right: At = read 1 } pure;
        /// Of signed numbers.
        Branch { compare: Compare, to: u32 = lead 0, left: At = read 1, right: At = read 1 } pure;
        /// Back, as often as the fuel lasts.
        Loop { to: u32 = lead 0 } other;
        Apply { table: u32 } pure;
        /// Back to the table that called.
        Return pure;
        /// The same, unless the packet exits.
        ReturnUnlessExit pure;
        End other;
        EndIfExit pure;
        /// Up to here what happened follows from what the flow cache knows of the packet.
        Remember other;
    }

    // Headers by number, where the number is in a limb.
    Header: {
        LastElement { to: At, stack: u32 } headers;
        Element { to: At, stack: u32, index: At } headers;
        Member { to: At, union: At, member: u32 } headers;
        LastUnion { to: At, stack: u32 } headers;
        UnionElement { to: At, stack: u32, index: At } headers;
        LoadField { words: u16, field: u16, to: At, header: At } headers;
        /// The field's limbs as they lie, whatever its sign.
        LoadBits { words: u16, field: u16, to: At, header: At } headers;
        StoreField { words: u16, field: u16, header: At, from: At } headers;
        IsValid { to: At, header: At } headers;
        IsUnionValid { to: At, union: At } headers;
        SameHeader { to: At, left: At, right: At } headers;
        SameUnion { to: At, left: At, right: At } headers;
        AddHeader { header: At } headers;
        RemoveHeader { header: At } headers;
        CopyHeader { to: At, from: At } headers;
        CopyStack { to: u32, from: u32 } headers;
        CopyUnionStack { to: u32, from: u32 } headers;
        CopyUnion { to: At, from: At } headers;
        /// The field and the limb with its length.
        CopyVarbit { varbit: u32 } headers;
        Push { stack: StackRef, count: At } headers;
        Pop { stack: StackRef, count: At } headers;
    }

    // What outlives the packet, and what is asked of the switch.
    External: {
        Count { counter: u32, index: At = read 1 } other;
        /// Leaves `to` where the index lies outside.
        ReadRegister { drop: u8, to: At = update 1, register: u32, index: At = read 1 } other;
        WriteRegister { register: u32, index: At = read 1, value: At = read 1 } other;
        HasCell { to: At = write 1, register: u32, index: At = read 1 } other;
        /// All 0 where the index lies outside.
        ReadCell { words: u16, to: At = write words, register: u32, index: At = read 1 } other;
        WriteCell { words: u16, register: u32, index: At = read 1, value: At = read words } other;
        /// The colour, or [`NONE`].
        Meter { to: At = write 1, meter: u32, index: At = read 1 } other;
        Hash { to: At = write 1, calculation: u32 } headers;
        /// Leaves `to` where `low` exceeds `high`.
        Random { to: At = update 1, low: At = read 1, high: At = read 1 } other;
        Clone { session: At = read 1, list: At = read 1 } other;
        Resubmit { list: At = read 1 } other;
        Recirculate { list: At = read 1 } other;
        Digest { list: At = read 1 } other;
        Truncate { length: At = read 1 } other;
        Exit other;
        /// An assertion that did not hold.
        Fail { place: u32 } other;
        Log { message: u32 } headers;
    }

    // Parser and checksums.
    Parser: {
        State { state: u32 } other;
        Extract { header: u32 } other;
        ExtractNext { stack: u32 } other;
        ExtractVariable { header: u32, bits: At = read 1 } other;
        ExtractNextVariable { stack: u32, bits: At = read 1 } other;
        ExtractNextMember { stack: u32, member: u16, bits: Option<At> = read_some 1 } other;
        Lookahead { to: At = write limbs_for(width), offset: u32, width: u32 } other;
        Advance { bits: At = read 1 } other;
        Reject { error: At = read 1 } other;
        Select { select: u32 } other;
        SelectSet { select: u32 } other;
        Verify { checksum: u32 } other;
        Update { checksum: u32 } headers;
    }

    // In the code that is run while tracing is on.
    Note: {
        NoteState { state: u32 } other;
        NoteCondition { node: u32, result: bool } other;
        NoteCall { action: u32 } other;
    }
}

/// An operation on numbers of several limbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WideOp {
    Ring(Ring),
    Not,
    /// The amount is one limb.
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
    Divide,
    Modulo,
    /// The width stands where the second operand would.
    SignExtend,
    Saturate {
        to_signed: bool,
        from_signed: bool,
    },
    /// 0, 1 or 2 for less, equal or greater, in one limb.
    Order {
        signed: bool,
    },
    /// One limb, all ones where the number is larger.
    Clamp,
}

impl WideOp {
    /// Limbs of the second operand.
    fn others(self, words: u8) -> u8 {
        match self {
            Self::Ring(_) | Self::Divide | Self::Modulo | Self::Order { .. } => words,
            Self::ShiftLeft | Self::ShiftRight | Self::ShiftRightSigned => 1,
            Self::Not | Self::SignExtend | Self::Saturate { .. } | Self::Clamp => 0,
        }
    }

    /// Limbs of the result.
    fn results(self, words: u8) -> u8 {
        if matches!(self, Self::Order { .. } | Self::Clamp) { 1 } else { words }
    }
}

#[cfg(test)]
mod tests {
    use super::Insn;

    #[test]
    fn an_instruction_takes_sixteen_bytes() {
        assert_eq!(size_of::<Insn>(), 16);
    }
}
