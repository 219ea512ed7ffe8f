//! Meters, indirect and direct (P4Runtime, "MeterEntry & DirectMeterEntry").

use super::translate::{Refusal, Result, cell_range};
use crate::engine::Control;
use crate::engine::entity::MeterConfig;
use trimwire_p4runtime::p4info::{Index, Named as _};
use trimwire_p4runtime::v1;

/// Configures the meters that an entry names; without configuration they are taken out of service.
pub(super) fn write(control: &mut Control, index: &Index, entry: &v1::MeterEntry) -> Result<()> {
    let name = index.meter(entry.meter_id)?.name();
    let config = entry.config.as_ref().map(|config| config_in(config, name)).transpose()?;
    for cell in cells(control, name, entry.index.as_ref())? {
        control.set_meter(name, cell, config)?;
    }
    Ok(())
}

/// The meters that a filter asks for; id 0 asks for all.
pub(super) fn read(control: &Control, index: &Index, filter: &v1::MeterEntry) -> Result<Vec<v1::MeterEntry>> {
    if filter.meter_id != 0 {
        index.meter(filter.meter_id)?;
    }
    let mut found = Vec::new();
    for meter in index.p4info().meters.iter().filter(|m| filter.meter_id == 0 || m.id() == filter.meter_id) {
        for cell in cells(control, meter.name(), filter.index.as_ref())? {
            found.push(v1::MeterEntry {
                meter_id: meter.id(),
                index: Some(v1::Index { index: cell as i64 }),
                config: control.meter(meter.name(), cell)?.map(config_out),
                ..v1::MeterEntry::default()
            });
        }
    }
    Ok(found)
}

fn cells(control: &Control, name: &str, index: Option<&v1::Index>) -> Result<std::ops::Range<u64>> {
    let size = control.meters().find(|(known, _)| *known == name).map(|(_, size)| size as u64);
    cell_range("meter", name, size, index)
}

/// A received configuration, checked; `owner` is the meter or table.
pub(super) fn config_in(config: &v1::MeterConfig, owner: &str) -> Result<MeterConfig> {
    let v1::MeterConfig { cir, cburst, pir, pburst, eburst } = *config;
    let number = |name: &str, value: i64| {
        u64::try_from(value)
            .map_err(|_| Refusal::invalid(format!("meter of {owner}: {name} {value} is negative")))
    };
    if eburst != 0 {
        return Err(Refusal::unsupported("single-rate meters (eburst); give cir, cburst, pir and pburst"));
    }
    if cir > pir {
        return Err(Refusal::invalid(format!("meter of {owner}: cir {cir} is above pir {pir}")));
    }
    Ok(MeterConfig {
        cir: number("cir", cir)?,
        cburst: number("cburst", cburst)?,
        pir: number("pir", pir)?,
        pburst: number("pburst", pburst)?,
    })
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
