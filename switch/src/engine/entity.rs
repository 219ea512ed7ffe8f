// SPDX-License-Identifier: Apache-2.0
//! What the control plane writes and reads: match keys, actions, entries, counters, replication.
//!
//! Values are unsigned big-endian byte strings of any length, leading zeros allowed on the way in
//! and stripped on the way out (at least one byte remains), which is P4Runtime's canonical form
//! (§8.4).

/// An unsigned number, big-endian. Leading zeros do not matter.
pub type Value = Vec<u8>;

/// `number` as a canonical [`Value`].
pub fn value(number: u128) -> Value {
    let bytes = number.to_be_bytes();
    let start = bytes.iter().position(|&b| b != 0).unwrap_or(bytes.len() - 1);
    bytes[start..].to_vec()
}

/// One element of a table entry's key, in the order of the table's keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchValue {
    /// The field equals the value.
    Exact(Value),
    /// The field's first `prefix_len` bits equal the value's. A `prefix_len` of 0 matches
    /// everything.
    Lpm {
        /// The prefix; bits beyond `prefix_len` must be 0.
        value: Value,
        /// Length in bits.
        prefix_len: u16,
    },
    /// `field & mask == value`. An all-zero mask matches everything.
    Ternary {
        /// The value; bits outside the mask must be 0.
        value: Value,
        /// The mask.
        mask: Value,
    },
    /// `low <= field <= high`.
    Range {
        /// Smallest matching value.
        low: Value,
        /// Largest matching value.
        high: Value,
    },
    /// The field equals the value, or anything when `None`. p4c compiles `optional` keys to ternary
    /// ones, so tables accept it wherever they accept `Ternary`, and read it back as `Ternary`.
    Optional(Option<Value>),
}

/// How a key element is matched. `optional` keys are `Ternary` in BMv2's JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchKind {
    /// Equality.
    Exact,
    /// Longest prefix.
    Lpm,
    /// Value and mask, by priority.
    Ternary,
    /// Inclusive interval, by priority.
    Range,
}

impl MatchKind {
    /// The kind's name in P4.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Lpm => "lpm",
            Self::Ternary => "ternary",
            Self::Range => "range",
        }
    }
}

/// An action with its arguments, in the order in which the action declares its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionCall {
    /// Full name, such as `Ingress.forward`.
    pub action: String,
    /// One value per parameter.
    pub params: Vec<Value>,
}

/// What a table entry does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionSpec {
    /// Calls an action (tables without an action profile).
    Direct(ActionCall),
    /// Calls the action of this member of the table's action profile.
    Member(u32),
    /// Chooses a member of this group of the table's action selector, by hash.
    Group(u32),
}

/// A table entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// One element per key of the table, in its order.
    pub matches: Vec<MatchValue>,
    /// Larger wins. Above 0 for tables with ternary or range keys, 0 for all others.
    pub priority: i32,
    /// What happens on a hit.
    pub action: ActionSpec,
    /// The controller's own bytes, kept and returned unread.
    pub metadata: Vec<u8>,
}

/// A table entry as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// The entry.
    pub entry: TableEntry,
    /// Compiled into the program: it can be neither modified nor deleted.
    pub is_const: bool,
    /// What belongs to it alone.
    pub direct: DirectResources,
    /// Time without a hit after which the entry counts as idle, in ns; 0 for never.
    pub idle_timeout_ns: u64,
    /// When a packet last hit the entry, or its time-out was set, in ns of the pipeline's clock.
    /// Only entries of tables that support time-outs keep it.
    pub last_hit_ns: u64,
}

/// Whose direct resources are meant.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'a> {
    /// The entry with this key.
    Entry {
        /// One element per key of the table, in its order.
        matches: &'a [MatchValue],
        /// As the entry was written.
        priority: i32,
    },
    /// The default entry, whichever action it has.
    Default,
}

/// Counter and meter of one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectResources {
    /// Present where the table has a direct counter.
    pub counter: Option<CounterValue>,
    /// Present where the table has a direct meter that this entry configured.
    pub meter: Option<MeterConfig>,
    /// Present where the table has a direct meter.
    pub colors: Option<ColorCounters>,
}

/// An entry that no packet has hit for as long as its idle time-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleEntry {
    /// Full name of its table.
    pub table: String,
    /// The entry; it stays in the table.
    pub row: TableRow,
}

/// A parser value set, as the control plane sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSetInfo {
    /// Full name.
    pub name: String,
    /// Widths in bits of a member's fields, in the order of the `select` key.
    pub widths: Vec<u16>,
    /// Most members it can hold.
    pub size: usize,
}

/// A digest that the program may send, as the control plane sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestInfo {
    /// The JSON's id of the field list.
    pub id: u16,
    /// Name of the field list, which is the digest's name in P4Info.
    pub name: String,
    /// Widths in bits of the fields.
    pub widths: Vec<u16>,
}

/// A counter cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterValue {
    /// Packets counted.
    pub packets: u64,
    /// Their lengths as they entered the switch, in bytes.
    pub bytes: u64,
}

impl CounterValue {
    pub(super) fn count(&mut self, bytes: u32) {
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(u64::from(bytes));
    }
}

/// What a meter has marked, by colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColorCounters {
    /// Within the committed rate.
    pub green: CounterValue,
    /// Between the two rates.
    pub yellow: CounterValue,
    /// Above the peak rate.
    pub red: CounterValue,
}

/// A two-rate three-colour meter (RFC 2698), in packets or bytes as the meter was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// Committed rate per second.
    pub cir: u64,
    /// Committed burst.
    pub cburst: u64,
    /// Peak rate per second; at least `cir`.
    pub pir: u64,
    /// Peak burst.
    pub pburst: u64,
}

/// A member of an action profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Chosen by the controller.
    pub id: u32,
    /// What it does.
    pub call: ActionCall,
}

/// A member's place in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The member's id.
    pub id: u32,
    /// How many shares of the hash space it gets; at least 1.
    pub weight: u32,
}

/// A group of an action selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Chosen by the controller.
    pub id: u32,
    /// Upper bound on the sum of weights; 0 for the selector's own bound.
    pub max_size: u32,
    /// Who is in it.
    pub members: Vec<GroupMember>,
}

/// One copy made by the replication engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replica {
    /// `egress_rid` of the copy.
    pub instance: u16,
    /// Port the copy goes to.
    pub port: u16,
}

/// What becomes of a clone session's copies beside their ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloneOptions {
    /// Bytes that a copy is trimmed to; 0 for none.
    pub packet_length: u32,
    /// The queue that copies go to, 0 to 7.
    pub queue: u8,
}

/// A key of a table, as the control plane sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// The key's name.
    pub name: String,
    /// How it matches.
    pub kind: MatchKind,
    /// Width in bits.
    pub width: u16,
}

/// An action, as the control plane sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionInfo {
    /// Full name.
    pub name: String,
    /// Parameter names and widths in bits, in order.
    pub params: Vec<(String, u16)>,
}

/// A table, as the control plane sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Full name.
    pub name: String,
    /// Its keys, in order. Empty for tables that only ever run their default action.
    pub keys: Vec<KeyInfo>,
    /// Actions its entries may call.
    pub actions: Vec<ActionInfo>,
    /// Most entries it can hold.
    pub size: usize,
    /// Name of the action profile that implements it, if one does.
    pub action_profile: Option<String>,
    /// Every entry has a counter.
    pub has_counter: bool,
    /// Every entry has a meter.
    pub has_meter: bool,
    /// Entries may have an idle time-out.
    pub has_idle_timeout: bool,
    /// Its entries are compiled into the program.
    pub is_const: bool,
}
