//! The control plane's view of a loaded program.

use super::entity::{
    ActionCall, ActionSpec, CounterValue, Group, MatchValue, Member, MeterConfig, Replica, TableEntry,
    TableInfo, TableRow, Value,
};
use super::error::{Code, ControlError};

type Result<T> = std::result::Result<T, ControlError>;

fn todo<T>() -> Result<T> {
    Err(ControlError::new(Code::Unimplemented, "not implemented"))
}

/// Tables, action profiles, counters, registers, meters, multicast groups and clone sessions, by full name.
/// Nothing is changed when a call fails.
#[derive(Debug)]
pub struct Control {}

impl Control {
    /// Every table, in the program's order.
    pub fn tables(&self) -> impl Iterator<Item = &TableInfo> {
        std::iter::empty()
    }
    /// A table by name.
    pub fn table(&self, table: &str) -> Result<&TableInfo> {
        let _ = table;
        todo()
    }
    /// Adds an entry.
    pub fn table_insert(&mut self, table: &str, entry: &TableEntry) -> Result<()> {
        let _ = (table, entry);
        todo()
    }
    /// Changes the action of the entry with the same matches and priority.
    pub fn table_modify(&mut self, table: &str, entry: &TableEntry) -> Result<()> {
        let _ = (table, entry);
        todo()
    }
    /// Removes an entry.
    pub fn table_delete(&mut self, table: &str, matches: &[MatchValue], priority: i32) -> Result<()> {
        let _ = (table, matches, priority);
        todo()
    }
    /// One entry.
    pub fn table_entry(&self, table: &str, matches: &[MatchValue], priority: i32) -> Result<TableRow> {
        let _ = (table, matches, priority);
        todo()
    }
    /// Every entry, oldest first.
    pub fn table_entries(&self, table: &str) -> Result<Vec<TableRow>> {
        let _ = table;
        todo()
    }
    /// The default action in force; `None` where a miss does nothing.
    pub fn default_action(&self, table: &str) -> Result<Option<ActionSpec>> {
        let _ = table;
        todo()
    }
    /// Sets the default action; `None` restores the program's own.
    pub fn set_default_action(&mut self, table: &str, action: Option<&ActionSpec>) -> Result<()> {
        let _ = (table, action);
        todo()
    }
    /// The counter of an entry.
    pub fn direct_counter(&self, table: &str, matches: &[MatchValue], priority: i32) -> Result<CounterValue> {
        let _ = (table, matches, priority);
        todo()
    }
    /// Overwrites the counter of an entry.
    pub fn set_direct_counter(
        &mut self,
        table: &str,
        matches: &[MatchValue],
        priority: i32,
        value: CounterValue,
    ) -> Result<()> {
        let _ = (table, matches, priority, value);
        todo()
    }
    /// Configures the meter of an entry; `None` takes it out of service (everything is green).
    pub fn set_direct_meter(
        &mut self,
        table: &str,
        matches: &[MatchValue],
        priority: i32,
        config: Option<MeterConfig>,
    ) -> Result<()> {
        let _ = (table, matches, priority, config);
        todo()
    }
    /// Adds a member to an action profile.
    pub fn member_insert(&mut self, profile: &str, id: u32, call: &ActionCall) -> Result<()> {
        let _ = (profile, id, call);
        todo()
    }
    /// Changes a member's action.
    pub fn member_modify(&mut self, profile: &str, id: u32, call: &ActionCall) -> Result<()> {
        let _ = (profile, id, call);
        todo()
    }
    /// Removes a member that no entry and no group uses.
    pub fn member_delete(&mut self, profile: &str, id: u32) -> Result<()> {
        let _ = (profile, id);
        todo()
    }
    /// Every member, by id.
    pub fn members(&self, profile: &str) -> Result<Vec<Member>> {
        let _ = profile;
        todo()
    }
    /// Adds a group to an action selector.
    pub fn group_insert(&mut self, profile: &str, group: &Group) -> Result<()> {
        let _ = (profile, group);
        todo()
    }
    /// Replaces a group's members.
    pub fn group_modify(&mut self, profile: &str, group: &Group) -> Result<()> {
        let _ = (profile, group);
        todo()
    }
    /// Removes a group that no entry uses.
    pub fn group_delete(&mut self, profile: &str, id: u32) -> Result<()> {
        let _ = (profile, id);
        todo()
    }
    /// Every group, by id.
    pub fn groups(&self, profile: &str) -> Result<Vec<Group>> {
        let _ = profile;
        todo()
    }
    /// Names and sizes of the indirect counters.
    pub fn counters(&self) -> impl Iterator<Item = (&str, usize)> {
        std::iter::empty()
    }
    /// One cell of a counter.
    pub fn counter(&self, counter: &str, index: u64) -> Result<CounterValue> {
        let _ = (counter, index);
        todo()
    }
    /// Overwrites one cell of a counter.
    pub fn set_counter(&mut self, counter: &str, index: u64, value: CounterValue) -> Result<()> {
        let _ = (counter, index, value);
        todo()
    }
    /// Names, sizes and widths in bits of the registers.
    pub fn registers(&self) -> impl Iterator<Item = (&str, usize, u16)> {
        std::iter::empty()
    }
    /// One cell of a register.
    pub fn register(&self, register: &str, index: u64) -> Result<Value> {
        let _ = (register, index);
        todo()
    }
    /// Overwrites one cell of a register.
    pub fn set_register(&mut self, register: &str, index: u64, value: &Value) -> Result<()> {
        let _ = (register, index, value);
        todo()
    }
    /// Names and sizes of the indirect meters.
    pub fn meters(&self) -> impl Iterator<Item = (&str, usize)> {
        std::iter::empty()
    }
    /// One meter's configuration.
    pub fn meter(&self, meter: &str, index: u64) -> Result<Option<MeterConfig>> {
        let _ = (meter, index);
        todo()
    }
    /// Configures one meter; `None` takes it out of service (everything is green).
    pub fn set_meter(&mut self, meter: &str, index: u64, config: Option<MeterConfig>) -> Result<()> {
        let _ = (meter, index, config);
        todo()
    }
    /// Adds a multicast group (id 0 means no multicast and cannot be used).
    pub fn multicast_insert(&mut self, id: u16, replicas: &[Replica]) -> Result<()> {
        let _ = (id, replicas);
        todo()
    }
    /// Replaces the replicas of a multicast group.
    pub fn multicast_modify(&mut self, id: u16, replicas: &[Replica]) -> Result<()> {
        let _ = (id, replicas);
        todo()
    }
    /// Removes a multicast group.
    pub fn multicast_delete(&mut self, id: u16) -> Result<()> {
        let _ = id;
        todo()
    }
    /// Every multicast group, by id.
    pub fn multicast_groups(&self) -> Vec<(u16, Vec<Replica>)> {
        Vec::new()
    }
    /// Adds a clone session.
    pub fn clone_session_insert(&mut self, id: u16, replicas: &[Replica]) -> Result<()> {
        let _ = (id, replicas);
        todo()
    }
    /// Replaces the replicas of a clone session.
    pub fn clone_session_modify(&mut self, id: u16, replicas: &[Replica]) -> Result<()> {
        let _ = (id, replicas);
        todo()
    }
    /// Removes a clone session.
    pub fn clone_session_delete(&mut self, id: u16) -> Result<()> {
        let _ = id;
        todo()
    }
    /// Every clone session, by id.
    pub fn clone_sessions(&self) -> Vec<(u16, Vec<Replica>)> {
        Vec::new()
    }
    /// The members of a parser value set, sorted.
    pub fn value_set(&self, name: &str) -> Result<Vec<Value>> {
        let _ = name;
        todo()
    }
    /// Replaces the members of a parser value set.
    pub fn set_value_set(&mut self, name: &str, members: &[Value]) -> Result<()> {
        let _ = (name, members);
        todo()
    }
}
