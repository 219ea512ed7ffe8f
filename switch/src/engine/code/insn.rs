// SPDX-License-Identifier: Apache-2.0
//! Instructions: sixteen bytes each, on limbs of the frame.

use super::super::expression::{Compare, Ring, StackRef};

/// A limb of the frame.
pub(crate) type At = u32;

/// Not a header, a union, or a cell.
pub(crate) const NONE: u64 = u64::MAX;

/// One instruction. `drop` is how many of 64 bits a result loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Insn {
    // Numbers of one limb.
    Copy {
        to: At,
        from: At,
    },
    Low {
        drop: u8,
        to: At,
        from: At,
    },
    CopyRun {
        count: u16,
        to: At,
        from: At,
    },
    /// `from >> shift`.
    Bits {
        drop: u8,
        shift: u8,
        to: At,
        from: At,
    },
    /// `from << shift`.
    Shifted {
        drop: u8,
        shift: u8,
        to: At,
        from: At,
    },
    Add {
        drop: u8,
        to: At,
        left: At,
        right: At,
    },
    Sub {
        drop: u8,
        to: At,
        left: At,
        right: At,
    },
    Mul {
        drop: u8,
        to: At,
        left: At,
        right: At,
    },
    And {
        to: At,
        left: At,
        right: At,
    },
    Or {
        drop: u8,
        to: At,
        left: At,
        right: At,
    },
    Xor {
        drop: u8,
        to: At,
        left: At,
        right: At,
    },
    Not {
        drop: u8,
        to: At,
        from: At,
    },
    ShiftLeft {
        drop: u8,
        to: At,
        value: At,
        by: At,
    },
    ShiftRight {
        drop: u8,
        signed: bool,
        to: At,
        value: At,
        by: At,
    },
    Divide {
        drop: u8,
        to: At,
        left: At,
        right: At,
    },
    Modulo {
        drop: u8,
        to: At,
        left: At,
        right: At,
    },
    SignExtend {
        drop: u8,
        width: u8,
        to: At,
        from: At,
    },
    /// An unsigned or signed number to an unsigned one of `width` bits.
    Saturate {
        width: u8,
        from_signed: bool,
        to: At,
        from: At,
    },
    /// 1 where the comparison holds.
    Test {
        signed: bool,
        compare: Compare,
        to: At,
        left: At,
        right: At,
    },

    // Numbers of several limbs.
    Wide {
        op: WideOp,
        words: u8,
        to: At,
        left: At,
        right: At,
    },
    /// `left` limbs make `words`; `signed` repeats the sign.
    Extend {
        signed: bool,
        limbs: u16,
        words: u16,
        to: At,
        from: At,
    },
    /// A signed field, which may hold its bits as an unsigned number.
    LoadSigned {
        words: u16,
        to: At,
        from: At,
        width: u32,
    },
    StoreSigned {
        words: u16,
        to: At,
        from: At,
        width: u32,
    },
    /// The low `width` bits.
    Store {
        to: At,
        from: At,
        width: u32,
    },

    // Where to go on.
    Jump {
        to: u32,
    },
    IfZero {
        to: u32,
        value: At,
    },
    IfNotZero {
        to: u32,
        value: At,
    },
    IfEqual {
        to: u32,
        left: At,
        right: At,
    },
    IfUnequal {
        to: u32,
        left: At,
        right: At,
    },
    IfLess {
        to: u32,
        left: At,
        right: At,
    },
    IfNotLess {
        to: u32,
        left: At,
        right: At,
    },
    /// Of signed numbers.
    Branch {
        compare: Compare,
        to: u32,
        left: At,
        right: At,
    },
    /// Back, as often as the fuel lasts.
    Loop {
        to: u32,
    },
    Apply {
        table: u32,
    },
    /// Back to the table that called.
    Return,
    /// The same, unless the packet exits.
    ReturnUnlessExit,
    End,
    EndIfExit,
    /// Up to here what happened follows from what the flow cache knows of the packet.
    Remember,

    // Headers by number, where the number is in a limb.
    LastElement {
        to: At,
        stack: u32,
    },
    Element {
        to: At,
        stack: u32,
        index: At,
    },
    Member {
        to: At,
        union: At,
        member: u32,
    },
    LastUnion {
        to: At,
        stack: u32,
    },
    UnionElement {
        to: At,
        stack: u32,
        index: At,
    },
    LoadField {
        words: u16,
        field: u16,
        to: At,
        header: At,
    },
    /// The field's limbs as they lie, whatever its sign.
    LoadBits {
        words: u16,
        field: u16,
        to: At,
        header: At,
    },
    StoreField {
        words: u16,
        field: u16,
        header: At,
        from: At,
    },
    IsValid {
        to: At,
        header: At,
    },
    IsUnionValid {
        to: At,
        union: At,
    },
    SameHeader {
        to: At,
        left: At,
        right: At,
    },
    SameUnion {
        to: At,
        left: At,
        right: At,
    },
    AddHeader {
        header: At,
    },
    RemoveHeader {
        header: At,
    },
    CopyHeader {
        to: At,
        from: At,
    },
    CopyStack {
        to: u32,
        from: u32,
    },
    CopyUnionStack {
        to: u32,
        from: u32,
    },
    CopyUnion {
        to: At,
        from: At,
    },
    /// The field and the limb with its length.
    CopyVarbit {
        varbit: u32,
    },
    Push {
        stack: StackRef,
        count: At,
    },
    Pop {
        stack: StackRef,
        count: At,
    },

    // What outlives the packet, and what is asked of the switch.
    Count {
        counter: u32,
        index: At,
    },
    /// Leaves `to` where the index lies outside.
    ReadRegister {
        drop: u8,
        to: At,
        register: u32,
        index: At,
    },
    WriteRegister {
        register: u32,
        index: At,
        value: At,
    },
    HasCell {
        to: At,
        register: u32,
        index: At,
    },
    /// All 0 where the index lies outside.
    ReadCell {
        words: u16,
        to: At,
        register: u32,
        index: At,
    },
    WriteCell {
        words: u16,
        register: u32,
        index: At,
        value: At,
    },
    /// The colour, or [`NONE`].
    Meter {
        to: At,
        meter: u32,
        index: At,
    },
    Hash {
        to: At,
        calculation: u32,
    },
    /// `to = base + to % size`.
    Offset {
        to: At,
        base: At,
        size: At,
    },
    /// Leaves `to` where `low` exceeds `high`.
    Random {
        to: At,
        low: At,
        high: At,
    },
    Clone {
        session: At,
        list: At,
    },
    Resubmit {
        list: At,
    },
    Recirculate {
        list: At,
    },
    Digest {
        list: At,
    },
    Truncate {
        length: At,
    },
    Exit,
    /// An assertion that did not hold.
    Fail {
        place: u32,
    },
    Log {
        message: u32,
    },

    // Parser and checksums.
    State {
        state: u32,
    },
    Extract {
        header: u32,
    },
    ExtractNext {
        stack: u32,
    },
    ExtractVariable {
        header: u32,
        bits: At,
    },
    ExtractNextVariable {
        stack: u32,
        bits: At,
    },
    ExtractNextMember {
        stack: u32,
        member: u16,
        bits: Option<At>,
    },
    Lookahead {
        to: At,
        offset: u32,
        width: u32,
    },
    Advance {
        bits: At,
    },
    Reject {
        error: At,
    },
    Select {
        select: u32,
    },
    SelectSet {
        select: u32,
    },
    Verify {
        checksum: u32,
    },
    Update {
        checksum: u32,
    },

    // In the code that is run while tracing is on.
    NoteState {
        state: u32,
    },
    NoteCondition {
        node: u32,
        result: bool,
    },
    NoteCall {
        action: u32,
    },
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

#[cfg(test)]
mod tests {
    use super::Insn;

    #[test]
    fn an_instruction_takes_sixteen_bytes() {
        assert_eq!(size_of::<Insn>(), 16);
    }
}
