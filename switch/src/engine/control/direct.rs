// SPDX-License-Identifier: Apache-2.0
//! Direct counters and meters: those of table entries, the default entry's among them.

use super::super::entity::{CounterValue, DirectResources, MeterConfig, Owner, TableInfo};
use super::super::table::Direct;
use super::tables::{lacks, no_entry};
use super::{Control, Result, check_meter};

impl Direct {
    pub(super) fn resources(&self, table: &TableInfo) -> DirectResources {
        DirectResources {
            counter: table.has_counter.then_some(self.counter),
            meter: self.meter.config(),
            colors: table.has_meter.then(|| self.meter.colors()),
        }
    }
}

impl Control {
    /// The counter and meter of an entry.
    pub fn direct(&self, table: &str, owner: Owner<'_>) -> Result<DirectResources> {
        if let Owner::Entry { matches, priority } = owner {
            return Ok(self.table_entry(table, matches, priority)?.direct);
        }
        let table = &self.tables[self.table_index(table)?];
        Ok(table.default_direct.resources(&table.info))
    }

    /// Overwrites the counter of an entry.
    pub fn set_direct_counter(&mut self, table: &str, owner: Owner<'_>, value: CounterValue) -> Result<()> {
        if !self.table(table)?.has_counter {
            return Err(lacks(table, "counter"));
        }
        self.direct_mut(table, owner)?.counter = value;
        Ok(())
    }

    /// Configures the meter of an entry; `None` takes it out of service: everything is green, and
    /// what misses keeps the colour that it has.
    pub fn set_direct_meter(
        &mut self,
        table: &str,
        owner: Owner<'_>,
        config: Option<MeterConfig>,
    ) -> Result<()> {
        check_meter(config)?;
        self.check_has_meter(table)?;
        self.direct_mut(table, owner)?.meter.configure(config);
        Ok(())
    }

    /// Sets what an entry's meter has counted by colour to 0.
    pub fn clear_direct_colors(&mut self, table: &str, owner: Owner<'_>) -> Result<()> {
        self.check_has_meter(table)?;
        self.direct_mut(table, owner)?.meter.clear_colors();
        Ok(())
    }

    fn check_has_meter(&self, table: &str) -> Result<()> {
        if self.table(table)?.has_meter { Ok(()) } else { Err(lacks(table, "meter")) }
    }

    fn direct_mut(&mut self, table: &str, owner: Owner<'_>) -> Result<&mut Direct> {
        let Owner::Entry { matches, priority } = owner else {
            let index = self.table_index(table)?;
            self.note_default(index);
            return Ok(&mut self.tables[index].default_direct);
        };
        let (index, place) = self.locate(table, matches, priority)?;
        self.note_entry(index, place);
        let entry = self.tables[index].entries.get_mut(place as usize).and_then(Option::as_mut);
        Ok(&mut entry.ok_or_else(|| no_entry(table))?.direct)
    }
}
