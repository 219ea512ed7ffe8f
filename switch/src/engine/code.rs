//! What a program is made of once it is loaded: one flat list of small instructions over the limbs of a frame.
//!
//! ```text
//! frame   │ packet header vector │ action's arguments │ scratch │ constants │
//! code    │ parser ─► checksum verification │ ingress │ egress │ checksums, deparser │ actions that tables call │
//! ```
//!
//! An instruction names limbs of the frame: constants lie there, too, so that one form of each operation is enough.
//! Numbers of more than 64 bits are runs of limbs, least significant first, and have instructions of their own. A control's
//! nodes and the bodies of actions that no table calls follow each other as a packet meets them; an action that
//! tables call stands once and ends with [`Insn::Return`].

mod action;
mod emitter;
mod facts;
mod flow;
mod header;
mod number;
mod parser;
mod truth;

pub use action::DROP_PORT;
pub(crate) use flow::{Source, compile};

use super::expression::{Compare, Ring, StackRef};
use super::layout::Slot;

/// A limb of the frame.
pub(crate) type At = u32;

/// Not a header, a union, or a cell.
pub(crate) const NONE: u64 = u64::MAX;

/// One instruction. `drop` is how many of 64 bits a result loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Insn {
    // Numbers of one limb.
    Copy {
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

/// A select on parts of at most 64 bits together.
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) key: At,
    pub(crate) cases: Vec<SelectCase>,
    pub(crate) default: u32,
}

/// `key & mask == value`.
#[derive(Debug)]
pub(crate) struct SelectCase {
    pub(crate) value: u64,
    pub(crate) mask: u64,
    pub(crate) next: u32,
}

/// A select with a wider key, or with value sets.
#[derive(Debug)]
pub(crate) struct SelectSet {
    /// The parts' limbs.
    pub(crate) parts: Vec<(At, usize)>,
    pub(crate) cases: Vec<SetCase>,
    pub(crate) default: u32,
}

#[derive(Debug)]
pub(crate) struct SetCase {
    pub(crate) values: CaseValues,
    pub(crate) mask: Option<Box<[u64]>>,
    pub(crate) next: u32,
}

#[derive(Debug)]
pub(crate) enum CaseValues {
    One(Box<[u64]>),
    /// A parser value set.
    Set(u32),
}

/// Where to go on after a table.
#[derive(Debug)]
pub(crate) enum Next {
    HitMiss { hit: u32, miss: u32 },
    ByAction { actions: Vec<(u32, u32)>, otherwise: u32 },
}

/// The text of a `log_msg` and its values: limbs, their number, and whether the number is signed.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) format: Box<str>,
    pub(crate) values: Vec<(At, u16, bool)>,
}

/// The fields and lengths of an assignment of variable-length fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VarbitCopy {
    pub(crate) to: (Slot, usize),
    pub(crate) from: (Slot, usize),
}

/// A whole program's instructions, and what those refer to that is larger than they are.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) insns: Vec<Insn>,
    /// A packet's frame when its life begins.
    pub(crate) frame: Vec<u64>,
    /// Where the arguments of actions lie in it.
    pub(crate) arguments: usize,
    /// Where the parser, and what follows it, begin.
    pub(crate) parse: u32,
    /// Where a packet goes on that the parser rejects.
    pub(crate) rejected: u32,
    pub(crate) ingress: u32,
    pub(crate) egress: u32,
    pub(crate) deparse: u32,
    /// By table.
    pub(crate) next: Vec<Next>,
    /// By action.
    pub(crate) actions: Vec<u32>,
    pub(crate) selects: Vec<Select>,
    pub(crate) set_selects: Vec<SelectSet>,
    pub(crate) messages: Vec<Message>,
    /// Places of assertions in the source.
    pub(crate) places: Vec<Box<str>>,
    pub(crate) varbits: Vec<VarbitCopy>,
}

#[cfg(test)]
mod tests {
    use super::Insn;

    #[test]
    fn an_instruction_takes_sixteen_bytes() {
        assert_eq!(size_of::<Insn>(), 16);
    }
}
