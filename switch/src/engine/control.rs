// SPDX-License-Identifier: Apache-2.0
//! The control plane's view of a loaded program.

mod batch;
mod direct;
mod idle;
mod journal;
mod profiles;
mod tables;
mod timers;
mod value_sets;
mod watch;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::action::Action;
use super::arrays::Arrays;
use super::bits::{bytes_from_limbs, limbs_from_bytes};
use super::entity::{CloneOptions, ColorCounters, CounterValue, DigestInfo, MeterConfig, Replica, Value};
use super::error::{Code, ControlError};
use super::meter::{Meter, MeterArray};
use super::parser::ValueSet;
use super::profile::Profile;
use super::replication::Replication;
use super::shared::Shared;
use super::state::InitialState;
use super::table::Table;
use journal::Journal;
use timers::IdleTimers;

type Result<T> = std::result::Result<T, ControlError>;

/// Tables, action profiles, counters, registers, meters, multicast groups and clone sessions, by
/// full name.
///
/// Nothing is changed when a call fails; the error names the culprit and the valid choices.
#[derive(Clone, Debug)]
pub struct Control {
    pub(super) actions: Arc<[Action]>,
    pub(super) tables: Vec<Shared<Table>>,
    pub(super) profiles: Vec<Profile>,
    pub(super) arrays: Arrays,
    pub(super) meters: Vec<MeterArray>,
    pub(super) value_sets: Vec<ValueSet>,
    pub(super) multicast: Replication,
    pub(super) clone_sessions: Replication,
    clone_options: BTreeMap<u16, CloneOptions>,
    digests: Vec<DigestInfo>,
    timers: IdleTimers,
    /// Another one after each write that packets may see in tables and profiles.
    pub(super) generation: u64,
    /// Present within a batch.
    journal: Option<Box<Journal>>,
    /// Entries, members, groups and replicas together.
    most_entries: usize,
}

/// An object of that name, or an error that lists the names there are.
fn named<'a, T: 'a>(
    items: impl Iterator<Item = &'a T> + Clone,
    kind: &str,
    wanted: &str,
    name: impl Fn(&T) -> &str,
) -> Result<usize> {
    if let Some(index) = items.clone().position(|item| name(item) == wanted) {
        return Ok(index);
    }
    const MOST: usize = 20;
    let mut known: Vec<&str> = items.take(MOST + 1).map(name).collect();
    let more = if known.len() > MOST { ", …" } else { "" };
    known.truncate(MOST);
    let known = if known.is_empty() {
        "the program has none".to_owned()
    } else {
        format!("there are: {}{more}", known.join(", "))
    };
    Err(ControlError::not_found(format!("there is no {kind} `{wanted}`; {known}")))
}

fn out_of_range(kind: &str, name: &str, index: u64, size: usize) -> ControlError {
    ControlError::new(
        Code::OutOfRange,
        format!("index {index} lies outside {kind} `{name}`, which has {size} cells"),
    )
}

/// An index as a place in an array; one that no array has where it does not fit.
fn place_of(index: u64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

fn check_meter(config: Option<MeterConfig>) -> Result<()> {
    match config {
        Some(MeterConfig { cir, pir, .. }) if cir > pir => {
            Err(ControlError::invalid(format!("the committed rate {cir} exceeds the peak rate {pir}")))
        }
        _ => Ok(()),
    }
}

impl Control {
    pub(super) fn new(state: InitialState, digests: Vec<DigestInfo>) -> Self {
        let InitialState { actions, tables, profiles, arrays, meters, value_sets } = state;
        let (multicast, clone_sessions) = (Replication::multicast(), Replication::clone_sessions());
        Self {
            actions,
            tables: tables.into_iter().map(Shared::new).collect(),
            profiles,
            arrays,
            meters,
            value_sets,
            multicast,
            clone_sessions,
            clone_options: BTreeMap::new(),
            digests,
            timers: IdleTimers::default(),
            generation: 0,
            journal: None,
            most_entries: usize::MAX,
        }
    }

    /// From here on entries, members, groups and replicas together are at most so many.
    pub fn limit_entries(&mut self, most: usize) {
        self.most_entries = most;
    }

    /// Whether there is room for so many more.
    fn check_room(&self, more: usize) -> Result<()> {
        let entries: usize = self.tables.iter().map(|table| table.len()).sum();
        let profiles: usize =
            self.profiles.iter().map(|profile| profile.member_count() + profile.group_count()).sum();
        let there = entries + profiles + self.multicast.replicas() + self.clone_sessions.replicas();
        let most = self.most_entries;
        if there + more > most {
            return Err(ControlError::new(
                Code::ResourceExhausted,
                format!(
                    "{there} entries, members, groups and replicas are there; at most {most} may be (--limit entries)"
                ),
            ));
        }
        Ok(())
    }

    /// Names and sizes of the indirect counters.
    pub fn counters(&self) -> impl Iterator<Item = (&str, usize)> {
        self.arrays.counters.iter().map(|counter| (counter.name.as_str(), counter.size))
    }

    fn counter_index(&self, counter: &str) -> Result<usize> {
        named(self.arrays.counters.iter(), "counter", counter, |counter| &counter.name)
    }

    /// One cell of a counter.
    pub fn counter(&self, counter: &str, index: u64) -> Result<CounterValue> {
        let number = self.counter_index(counter)?;
        let value = self.arrays.counter(number, place_of(index));
        value.ok_or_else(|| out_of_range("counter", counter, index, self.arrays.counters[number].size))
    }

    /// Overwrites one cell of a counter.
    pub fn set_counter(&mut self, counter: &str, index: u64, value: CounterValue) -> Result<()> {
        self.fill_counter(counter, index..index.saturating_add(1), value)
    }

    /// Overwrites cells of a counter with one value.
    pub(crate) fn fill_counter(
        &mut self,
        counter: &str,
        cells: Range<u64>,
        value: CounterValue,
    ) -> Result<()> {
        let number = self.counter_index(counter)?;
        for index in cells {
            self.note_counter(number, place_of(index));
            if !self.arrays.set_counter(number, place_of(index), value) {
                return Err(out_of_range("counter", counter, index, self.arrays.counters[number].size));
            }
        }
        Ok(())
    }

    /// Names, sizes and widths in bits of the registers.
    pub fn registers(&self) -> impl Iterator<Item = (&str, usize, u16)> {
        let registers = self.arrays.registers.iter();
        registers.map(|register| (register.name.as_str(), register.size, register.width as u16))
    }

    fn register_index(&self, register: &str) -> Result<usize> {
        named(self.arrays.registers.iter(), "register", register, |register| &register.name)
    }

    /// One cell of a register.
    pub fn register(&self, register: &str, index: u64) -> Result<Value> {
        let number = self.register_index(register)?;
        let size = self.arrays.registers[number].size;
        let cell = u32::try_from(index).ok().and_then(|index| self.arrays.register(number, index));
        cell.map(bytes_from_limbs).ok_or_else(|| out_of_range("register", register, index, size))
    }

    /// Overwrites one cell of a register.
    pub fn set_register(&mut self, register: &str, index: u64, value: &[u8]) -> Result<()> {
        self.fill_register(register, index..index.saturating_add(1), value)
    }

    /// Overwrites cells of a register with one value.
    pub(crate) fn fill_register(&mut self, register: &str, cells: Range<u64>, value: &[u8]) -> Result<()> {
        let number = self.register_index(register)?;
        let array = &self.arrays.registers[number];
        let (size, width) = (array.size, array.width);
        let limbs = limbs_from_bytes(value, width).ok_or_else(|| {
            ControlError::invalid(format!("the value does not fit register `{register}` of {width} bits"))
        })?;
        for index in cells {
            self.note_register(number, u32::try_from(index).unwrap_or(u32::MAX));
            let cell = u32::try_from(index).ok().and_then(|index| self.arrays.register_mut(number, index));
            cell.ok_or_else(|| out_of_range("register", register, index, size))?.copy_from_slice(&limbs);
        }
        Ok(())
    }

    /// Names and sizes of the indirect meters.
    pub fn meters(&self) -> impl Iterator<Item = (&str, usize)> {
        self.meters.iter().map(|meter| (meter.name.as_str(), meter.cells.len()))
    }

    fn meter_index(&self, meter: &str) -> Result<usize> {
        named(self.meters.iter(), "meter", meter, |meter| &meter.name)
    }

    /// One meter's configuration.
    pub fn meter(&self, meter: &str, index: u64) -> Result<Option<MeterConfig>> {
        let cells = &self.meters[self.meter_index(meter)?].cells;
        let cell = usize::try_from(index).ok().and_then(|index| cells.get(index));
        Ok(cell.ok_or_else(|| out_of_range("meter", meter, index, cells.len()))?.config())
    }

    /// What one meter has marked.
    pub fn meter_colors(&self, meter: &str, index: u64) -> Result<ColorCounters> {
        let cells = &self.meters[self.meter_index(meter)?].cells;
        let cell = usize::try_from(index).ok().and_then(|index| cells.get(index));
        Ok(cell.ok_or_else(|| out_of_range("meter", meter, index, cells.len()))?.colors())
    }

    /// Sets what one meter has marked to 0.
    pub fn clear_meter_colors(&mut self, meter: &str, index: u64) -> Result<()> {
        self.meter_mut(meter, index)?.clear_colors();
        Ok(())
    }

    fn meter_mut(&mut self, meter: &str, index: u64) -> Result<&mut Meter> {
        let number = self.meter_index(meter)?;
        self.note_meter(number, place_of(index));
        let cells = &mut self.meters[number].cells;
        let size = cells.len();
        cells.get_mut(place_of(index)).ok_or_else(|| out_of_range("meter", meter, index, size))
    }

    /// Configures one meter; `None` takes it out of service (everything is green).
    pub fn set_meter(&mut self, meter: &str, index: u64, config: Option<MeterConfig>) -> Result<()> {
        check_meter(config)?;
        self.meter_mut(meter, index)?.configure(config);
        Ok(())
    }

    /// Adds a multicast group (id 0 means no multicast and cannot be used).
    pub fn multicast_insert(&mut self, id: u16, replicas: &[Replica]) -> Result<()> {
        self.check_room(1 + replicas.len())?;
        self.note_multicast(id);
        self.multicast.insert(id, replicas)
    }

    /// Replaces the replicas of a multicast group.
    pub fn multicast_modify(&mut self, id: u16, replicas: &[Replica]) -> Result<()> {
        self.check_room(replicas.len())?;
        self.note_multicast(id);
        self.multicast.modify(id, replicas)
    }

    /// Removes a multicast group.
    pub fn multicast_delete(&mut self, id: u16) -> Result<()> {
        self.note_multicast(id);
        self.multicast.delete(id)
    }

    /// Every multicast group, by id; replicas by instance, then port.
    pub fn multicast_groups(&self) -> Vec<(u16, Vec<Replica>)> {
        self.multicast.all()
    }

    /// Adds a clone session.
    pub fn clone_session_insert(&mut self, id: u16, replicas: &[Replica]) -> Result<()> {
        self.check_room(1 + replicas.len())?;
        self.note_clone(id);
        self.clone_sessions.insert(id, replicas)
    }

    /// Replaces the replicas of a clone session.
    pub fn clone_session_modify(&mut self, id: u16, replicas: &[Replica]) -> Result<()> {
        self.check_room(replicas.len())?;
        self.note_clone(id);
        self.clone_sessions.modify(id, replicas)
    }

    /// Removes a clone session.
    pub fn clone_session_delete(&mut self, id: u16) -> Result<()> {
        self.note_clone(id);
        self.clone_sessions.delete(id)?;
        self.clone_options.remove(&id);
        Ok(())
    }

    /// Says what becomes of a clone session's copies. Without it they are whole and go to queue 0.
    pub fn set_clone_options(&mut self, id: u16, options: CloneOptions) -> Result<()> {
        if self.clone_sessions.get(id).is_none() {
            return Err(ControlError::not_found(format!("there is no clone session {id}")));
        }
        if options.queue > 7 {
            return Err(ControlError::invalid(format!(
                "clone session {id}: queue {} is none of 0 to 7",
                options.queue
            )));
        }
        self.note_clone(id);
        self.clone_options.insert(id, options);
        Ok(())
    }

    /// What becomes of a clone session's copies.
    pub fn clone_options(&self, id: u16) -> CloneOptions {
        self.clone_options.get(&id).copied().unwrap_or_default()
    }

    /// Every clone session, by id; replicas by instance, then port.
    pub fn clone_sessions(&self) -> Vec<(u16, Vec<Replica>)> {
        self.clone_sessions.all()
    }

    /// The digests that the program may send.
    pub fn digests(&self) -> &[DigestInfo] {
        &self.digests
    }
}
