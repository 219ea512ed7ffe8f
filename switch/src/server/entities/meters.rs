// SPDX-License-Identifier: Apache-2.0
//! Meters, indirect and direct (P4Runtime, "MeterEntry & DirectMeterEntry").

use super::arrays::value_out;
use super::keys::DirectKey;
use super::target::{Kind, Refusal, Result, Target, arrays, cells};
use crate::engine::entity::{ColorCounters, MeterConfig};
use std::ops::Range;
use trimwire_p4runtime::p4info::Named as _;
use trimwire_p4runtime::v1;

impl Target<'_> {
    /// Configures the meters that an entry names; without configuration they are taken out of
    /// service.
    pub(super) fn write_meter(&mut self, entry: &v1::MeterEntry) -> Result<()> {
        let name = self.index.meter(entry.meter_id)?.name();
        let config = entry.config.as_ref().map(config_in);
        supported(entry.config.as_ref())?;
        for cell in cells("meter", name, self.meter_size(name), entry.index.as_ref())? {
            self.control.set_meter(name, cell, config)?;
            if entry.counter_data.is_some() {
                self.control.clear_meter_colors(name, cell)?;
            }
        }
        Ok(())
    }

    pub(super) fn write_direct_meter(&mut self, entry: &v1::DirectMeterEntry) -> Result<()> {
        let row = entry.table_entry.clone().unwrap_or_default();
        let table = self.index.table(row.table_id)?;
        supported(entry.config.as_ref())?;
        let config = entry.config.as_ref().map(config_in);
        let key = DirectKey::of(table, &row)?;
        self.control.set_direct_meter(table.name(), key.owner(), config)?;
        if entry.counter_data.is_some() {
            self.control.clear_direct_colors(table.name(), key.owner())?;
        }
        Ok(())
    }

    /// The meters that a filter asks for, and which of their cells.
    pub(super) fn meter_arrays(&self, filter: &v1::MeterEntry) -> Result<Vec<(Kind, Range<u64>)>> {
        let all = &self.index.p4info().meters;
        let counter_data = filter.counter_data;
        let of = |meter_id| v1::MeterEntry { meter_id, counter_data, ..v1::MeterEntry::default() };
        let found = arrays(all, filter.meter_id, filter.index.as_ref(), |name| self.meter_size(name))?;
        Ok(found.into_iter().map(|(id, cells)| (Kind::MeterEntry(of(id)), cells)).collect())
    }

    /// Cells of the meter that a filter names.
    pub(super) fn read_meters(&self, filter: &v1::MeterEntry, cells: Range<u64>) -> Result<Vec<Kind>> {
        let meter_id = filter.meter_id;
        let name = self.index.meter(meter_id)?.name();
        let read = |cell: u64| {
            Ok(Kind::MeterEntry(v1::MeterEntry {
                meter_id,
                index: Some(v1::Index { index: cell as i64 }),
                config: self.control.meter(name, cell)?.map(config_out),
                counter_data: match filter.counter_data {
                    Some(_) => Some(colors_out(self.control.meter_colors(name, cell)?)),
                    None => None,
                },
            }))
        };
        cells.map(read).collect()
    }

    fn meter_size(&self, name: &str) -> Option<usize> {
        self.control.meters().find(|(known, _)| *known == name).map(|(_, size)| size)
    }
}

/// BMv2's meters have two rates: an excess burst has no place in them.
pub(super) fn supported(config: Option<&v1::MeterConfig>) -> Result<()> {
    match config {
        Some(config) if config.eburst != 0 => {
            Err(Refusal::unsupported("meters with an excess burst (eburst): v1model's have two rates"))
        }
        _ => Ok(()),
    }
}

/// A configuration that has been checked: nothing in it is negative.
pub(super) fn config_in(config: &v1::MeterConfig) -> MeterConfig {
    let number = |value: i64| value.max(0) as u64;
    MeterConfig {
        cir: number(config.cir),
        cburst: number(config.cburst),
        pir: number(config.pir),
        pburst: number(config.pburst),
    }
}

pub(super) fn config_out(config: MeterConfig) -> v1::MeterConfig {
    // What came in fits.
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    v1::MeterConfig {
        cir: number(config.cir),
        cburst: number(config.cburst),
        pir: number(config.pir),
        pburst: number(config.pburst),
        eburst: 0,
    }
}

pub(super) fn colors_out(colors: ColorCounters) -> v1::MeterCounterData {
    let ColorCounters { green, yellow, red } = colors;
    let [green, yellow, red] = [green, yellow, red].map(|count| Some(value_out(count)));
    v1::MeterCounterData { green, yellow, red }
}
