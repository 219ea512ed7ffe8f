// SPDX-License-Identifier: Apache-2.0
//! P4Runtime's entities, by id, to and from the engine's, by name.

mod actions;
mod arrays;
mod digest;
mod meters;
mod one_shot;
mod profiles;
mod replication;
mod rows;
mod tables;
mod value_sets;

use super::ledger::Ledger;
use super::refusal::{Refusal, Result};
use crate::engine::Control;
use std::ops::Range;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::update::Type;

pub(super) use arrays::shortest_signed;
pub(super) use digest::subscribe;
pub(super) use rows::entry_of;

/// One program, and all that has been written for it.
pub(super) struct Target<'a> {
    pub(super) control: &'a mut Control,
    pub(super) ledger: &'a mut Ledger,
    pub(super) index: &'a Index,
    /// The switch's clock.
    pub(super) now_ns: u64,
}

impl Target<'_> {
    /// Carries out an update that [`trimwire_p4runtime::entity::check_update`] has accepted. Nothing is changed by one that is
    /// refused.
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

    /// What a filter of a Read asks for, which [`trimwire_p4runtime::entity::check`] has accepted, in pieces.
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
            Kind::PacketReplicationEngineEntry(_)
            | Kind::ValueSetEntry(_)
            | Kind::DigestEntry(_)
            | Kind::ExternEntry(_) => return Ok(vec![Piece { filter, cells: None }]),
        };
        Ok(arrays.into_iter().map(|(filter, cells)| Piece { filter, cells: Some(cells) }).collect())
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
            Kind::PacketReplicationEngineEntry(filter) => self.read_replication(filter)?,
            Kind::ValueSetEntry(filter) => self.read_value_sets(filter)?,
            Kind::DigestEntry(filter) => self.read_digests(filter),
            // The wildcard is part of reading everything ("Wildcard Reads"); there is nothing of this kind.
            Kind::ExternEntry(filter) if filter.extern_type_id == 0 && filter.extern_id == 0 => Vec::new(),
            Kind::ExternEntry(_) => return Err(Refusal::unsupported("externs of its own")),
        })
    }
}

/// Part of what a filter asks for: cells of one array, places of one table or action profile, or all there is of anything else.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    filter: Kind,
    cells: Option<Range<u64>>,
}

impl Piece {
    /// The same in pieces of at most so many cells.
    pub(super) fn parts(self, most: u64) -> impl Iterator<Item = Self> {
        let Self { filter, cells } = self;
        let range = cells.clone().unwrap_or(0..1);
        let step = usize::try_from(most).unwrap_or(usize::MAX);
        range.clone().step_by(step).map(move |start| {
            let cells = cells.as_ref().map(|_| start..start.saturating_add(most).min(range.end));
            Self { filter: filter.clone(), cells }
        })
    }
}

/// The element that an update or filter names, or all of them.
fn elements(what: &str, name: &str, size: usize, index: Option<&v1::Index>) -> Result<std::ops::Range<u64>> {
    let size = size as u64;
    let Some(v1::Index { index }) = index else { return Ok(0..size) };
    match u64::try_from(*index) {
        Ok(cell) if cell < size => Ok(cell..cell + 1),
        Ok(_) => Err(Refusal::new(
            tonic::Code::OutOfRange,
            format!("{what} {name} has no cell {index}; valid are 0 to {}", size.saturating_sub(1)),
        )),
        Err(_) => Err(Refusal::invalid(format!("{what} {name}: index {index} is negative"))),
    }
}
