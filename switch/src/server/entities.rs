// SPDX-License-Identifier: Apache-2.0
//! P4Runtime's entities, by id, to and from the engine's, by name.

mod actions;
mod arrays;
mod digest;
mod keys;
mod meters;
mod one_shot;
mod profiles;
mod replication;
mod rows;
mod tables;
mod target;
mod value_sets;

use super::limits::MOST_PARTS;
use super::refusal::{Refusal, Result};
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::update::Type;

pub(super) use arrays::shortest_signed;
pub(super) use digest::subscribe;
pub(super) use rows::entry_of;
pub(super) use target::{Piece, Target};

impl Target<'_> {
    /// Carries out an update that [`trimwire_p4runtime::entity::check_update`] has accepted.
    /// Nothing is changed by one that is refused.
    pub(super) fn write(&mut self, kind: Type, entity: &Kind) -> Result<()> {
        match entity {
            Kind::TableEntry(entry) => self.write_table(kind, entry),
            Kind::ActionProfileMember(member) => self.write_member(kind, member),
            Kind::ActionProfileGroup(group) => self.write_group(kind, group),
            Kind::CounterEntry(entry) => self.write_counter(entry),
            Kind::DirectCounterEntry(entry) => self.write_direct_counter(entry),
            Kind::RegisterEntry(entry) => self.write_register(entry),
            Kind::MeterEntry(entry) => self.write_meter(entry),
            Kind::DirectMeterEntry(entry) => self.write_direct_meter(entry),
            Kind::PacketReplicationEngineEntry(entry) => self.write_replication(kind, entry),
            Kind::ValueSetEntry(entry) => self.write_value_set(entry),
            Kind::DigestEntry(entry) => self.write_digest(kind, entry),
            Kind::ExternEntry(_) => Err(Refusal::unsupported("externs of its own")),
        }
    }

    /// What a filter of a Read asks for, which [`trimwire_p4runtime::entity::check`] has accepted,
    /// in pieces.
    pub(super) fn pieces(&self, filter: Kind) -> Result<Vec<Piece>> {
        let arrays = match &filter {
            Kind::CounterEntry(filter) => self.counter_arrays(filter)?,
            Kind::RegisterEntry(filter) => self.register_arrays(filter)?,
            Kind::MeterEntry(filter) => self.meter_arrays(filter)?,
            Kind::TableEntry(_) | Kind::DirectCounterEntry(_) | Kind::DirectMeterEntry(_) => {
                return self.table_pieces(&filter);
            }
            Kind::ActionProfileMember(_) | Kind::ActionProfileGroup(_) => {
                return self.profile_pieces(&filter);
            }
            Kind::PacketReplicationEngineEntry(filter) => return Ok(vec![self.replication(filter)?]),
            Kind::ValueSetEntry(_) | Kind::DigestEntry(_) | Kind::ExternEntry(_) => {
                return Ok(vec![Piece { filter, cells: None }]);
            }
        };
        Ok(arrays.into_iter().map(|(filter, cells)| Piece { filter, cells: Some(cells) }).collect())
    }

    /// The first so many cells of a piece, or fewer where they hold more than [`MOST_PARTS`]
    /// replicas, members and actions together. Entries differ: one cell may hold a thousand.
    pub(super) fn portion(&self, piece: &mut Piece, most: u64) -> Result<Option<Piece>> {
        let whole = piece.clone();
        let mut most = most;
        loop {
            let Some(part) = piece.take(most) else { return Ok(None) };
            if part.len() <= 1 || self.parts_of(&part)? as u64 <= MOST_PARTS {
                return Ok(Some(part));
            }
            most = part.len() / 2;
            *piece = whole.clone();
        }
    }

    /// Replicas, members and actions that the entries of a piece hold.
    fn parts_of(&self, piece: &Piece) -> Result<usize> {
        let cells = piece.cells.clone().unwrap_or_default();
        match &piece.filter {
            Kind::PacketReplicationEngineEntry(filter) => Ok(self.replicas_of(filter, cells)),
            Kind::ActionProfileGroup(filter) => self.members_of(filter, cells),
            Kind::TableEntry(filter) => self.one_shots_of(filter, cells),
            _ => Ok(0),
        }
    }

    /// Cells, replicas, members and actions that an update writes, and itself.
    pub(super) fn weight(&self, entity: &Kind) -> u64 {
        let cells = match entity {
            Kind::CounterEntry(entry) if entry.index.is_none() => self.counter_arrays(entry),
            Kind::RegisterEntry(entry) if entry.index.is_none() => self.register_arrays(entry),
            Kind::MeterEntry(entry) if entry.index.is_none() => self.meter_arrays(entry),
            _ => Ok(Vec::new()),
        };
        // One that is wrong is refused where it is carried out.
        let cells: u64 = cells.unwrap_or_default().iter().map(|(_, cells)| cells.end - cells.start).sum();
        let parts = match entity {
            Kind::PacketReplicationEngineEntry(entry) => replication::replicas_in(entry),
            Kind::ActionProfileGroup(group) => group.members.len(),
            Kind::ValueSetEntry(entry) => entry.members.len(),
            Kind::TableEntry(entry) => one_shot::shares_in(entry),
            _ => 0,
        };
        1 + cells + parts as u64
    }

    /// Everything in a piece.
    pub(super) fn read(&self, piece: &Piece) -> Result<Vec<Kind>> {
        let cells = piece.cells.clone().unwrap_or_default();
        Ok(match &piece.filter {
            Kind::TableEntry(filter) => self.read_table(filter, piece.cells.clone())?,
            Kind::DirectCounterEntry(filter) => self.read_direct_counters(filter, piece.cells.clone())?,
            Kind::DirectMeterEntry(filter) => self.read_direct_meters(filter, piece.cells.clone())?,
            Kind::ActionProfileMember(filter) => self.read_members(filter, piece.cells.as_ref())?,
            Kind::ActionProfileGroup(filter) => self.read_groups(filter, piece.cells.as_ref())?,
            Kind::CounterEntry(filter) => self.read_counters(filter, cells)?,
            Kind::RegisterEntry(filter) => self.read_registers(filter, cells)?,
            Kind::MeterEntry(filter) => self.read_meters(filter, cells)?,
            Kind::PacketReplicationEngineEntry(filter) => self.read_replication(filter, cells)?,
            Kind::ValueSetEntry(filter) => self.read_value_sets(filter)?,
            Kind::DigestEntry(filter) => self.read_digests(filter),
            // The wildcard is part of reading everything ("Wildcard Reads"); there is nothing of
            // this kind.
            Kind::ExternEntry(filter) if filter.extern_type_id == 0 && filter.extern_id == 0 => Vec::new(),
            Kind::ExternEntry(_) => return Err(Refusal::unsupported("externs of its own")),
        })
    }
}
