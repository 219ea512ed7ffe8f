// SPDX-License-Identifier: Apache-2.0
//! Counters and registers (P4Runtime, "CounterEntry & DirectCounterEntry", "RegisterEntry").

use super::keys::DirectKey;
use super::target::{Kind, Refusal, Result, Target, arrays, cells};
use crate::engine::entity::CounterValue;
use std::ops::Range;
use trimwire_p4runtime::bytes;
use trimwire_p4runtime::config::p4_bitstring_like_type_spec::TypeSpec as Bits;
use trimwire_p4runtime::config::p4_data_type_spec::TypeSpec;
use trimwire_p4runtime::p4info::Named as _;
use trimwire_p4runtime::{config, v1};

impl Target<'_> {
    /// Without data nothing changes.
    pub(super) fn write_counter(&mut self, entry: &v1::CounterEntry) -> Result<()> {
        let name = self.index.counter(entry.counter_id)?.name();
        let cells = cells("counter", name, self.counter_size(name), entry.index.as_ref())?;
        let Some(data) = &entry.data else { return Ok(()) };
        Ok(self.control.fill_counter(name, cells, value_in(data))?)
    }

    /// Without data nothing changes.
    pub(super) fn write_direct_counter(&mut self, entry: &v1::DirectCounterEntry) -> Result<()> {
        let row = entry.table_entry.clone().unwrap_or_default();
        let table = self.index.table(row.table_id)?;
        let key = DirectKey::of(table, &row)?;
        let before = self.control.direct(table.name(), key.owner())?.counter;
        let value = entry.data.as_ref().map_or(before.unwrap_or_default(), value_in);
        Ok(self.control.set_direct_counter(table.name(), key.owner(), value)?)
    }

    pub(super) fn write_register(&mut self, entry: &v1::RegisterEntry) -> Result<()> {
        let register = self.index.register(entry.register_id)?;
        let name = register.name();
        let Some(v1::p4_data::Data::Bitstring(value)) =
            entry.data.as_ref().and_then(|data| data.data.as_ref())
        else {
            return Err(Refusal::invalid(format!("register {name}: data is not a bitstring")));
        };
        let (width, signed) = register_type(register)?;
        let value = if signed { sign_extended(value, width) } else { value.clone() };
        let cells = cells("register", name, self.register_size(name), entry.index.as_ref())?;
        Ok(self.control.fill_register(name, cells, &value)?)
    }

    /// The counters that a filter asks for, and which of their cells.
    pub(super) fn counter_arrays(&self, filter: &v1::CounterEntry) -> Result<Vec<(Kind, Range<u64>)>> {
        let all = &self.index.p4info().counters;
        let of = |counter_id| Kind::CounterEntry(v1::CounterEntry { counter_id, index: None, data: None });
        let found = arrays(all, filter.counter_id, filter.index.as_ref(), |name| self.counter_size(name))?;
        Ok(found.into_iter().map(|(id, cells)| (of(id), cells)).collect())
    }

    /// Cells of the counter that a filter names.
    pub(super) fn read_counters(&self, filter: &v1::CounterEntry, cells: Range<u64>) -> Result<Vec<Kind>> {
        let counter_id = filter.counter_id;
        let name = self.index.counter(counter_id)?.name();
        let read = |cell: u64| {
            let data = Some(value_out(self.control.counter(name, cell)?));
            let index = Some(v1::Index { index: cell as i64 });
            Ok(Kind::CounterEntry(v1::CounterEntry { counter_id, index, data }))
        };
        cells.map(read).collect()
    }

    /// As [`Self::counter_arrays`].
    pub(super) fn register_arrays(&self, filter: &v1::RegisterEntry) -> Result<Vec<(Kind, Range<u64>)>> {
        let all = &self.index.p4info().registers;
        let of =
            |register_id| Kind::RegisterEntry(v1::RegisterEntry { register_id, index: None, data: None });
        let found = arrays(all, filter.register_id, filter.index.as_ref(), |name| self.register_size(name))?;
        for (id, _) in &found {
            register_type(self.index.register(*id)?)?;
        }
        Ok(found.into_iter().map(|(id, cells)| (of(id), cells)).collect())
    }

    /// As [`Self::read_counters`].
    pub(super) fn read_registers(&self, filter: &v1::RegisterEntry, cells: Range<u64>) -> Result<Vec<Kind>> {
        let register_id = filter.register_id;
        let register = self.index.register(register_id)?;
        let (name, (width, signed)) = (register.name(), register_type(register)?);
        let read = |cell: u64| {
            let value = self.control.register(name, cell)?;
            let value = if signed { shortest_signed(&value, width) } else { value };
            let data = Some(v1::P4Data { data: Some(v1::p4_data::Data::Bitstring(value)) });
            let index = Some(v1::Index { index: cell as i64 });
            Ok(Kind::RegisterEntry(v1::RegisterEntry { register_id, index, data }))
        };
        cells.map(read).collect()
    }

    fn counter_size(&self, name: &str) -> Option<usize> {
        self.control.counters().find(|(known, _)| *known == name).map(|(_, size)| size)
    }

    fn register_size(&self, name: &str) -> Option<usize> {
        self.control.registers().find(|(known, ..)| *known == name).map(|(_, size, _)| size)
    }
}

/// Width in bits, and whether it is signed.
fn register_type(register: &config::Register) -> Result<(u32, bool)> {
    let of = register.type_spec.as_ref().and_then(|spec| spec.type_spec.as_ref());
    match of {
        Some(TypeSpec::Bitstring(config::P4BitstringLikeTypeSpec { type_spec: Some(bits), .. })) => {
            match bits {
                Bits::Bit(bit) => Ok((bit.bitwidth.unsigned_abs(), false)),
                Bits::Int(int) => Ok((int.bitwidth.unsigned_abs(), true)),
                Bits::Varbit(_) => Err(Refusal::unsupported("registers of varbit")),
            }
        }
        _ => Err(Refusal::unsupported(&format!("registers of structs, such as {}", register.name()))),
    }
}

/// A canonical `int<width>` as the engine's unsigned number of `width` bits.
fn sign_extended(value: &[u8], width: u32) -> Vec<u8> {
    let negative = value.first().is_some_and(|byte| byte >> 7 == 1);
    if !negative {
        return value.to_vec();
    }
    let mut whole = vec![0xff; (width.div_ceil(8) as usize).saturating_sub(value.len())];
    whole.extend_from_slice(value);
    let mask = bytes::prefix_mask(width, width);
    let skip = whole.len().saturating_sub(mask.len());
    whole.iter().skip(skip).zip(&mask).map(|(byte, mask)| byte & mask).collect()
}

/// The way back, in canonical form ("Bytestrings").
pub(crate) fn shortest_signed(value: &[u8], width: u32) -> Vec<u8> {
    let mut whole = bytes::padded(value, width);
    let negative = width > 0 && bytes::bits(value) == u64::from(width);
    if negative && let Some(first) = whole.first_mut().filter(|_| !width.is_multiple_of(8)) {
        *first |= 0xff << (width % 8);
    } else if !negative && bytes::bits(value).is_multiple_of(8) && bytes::bits(value) > 0 {
        // The sign takes a byte of its own.
        whole.insert(0, 0);
    }
    bytes::check_signed(&whole, width.next_multiple_of(8) + 8).map_or(whole.clone(), <[u8]>::to_vec)
}

/// Negative counts, which mean nothing, read as 0.
pub(super) fn value_in(data: &v1::CounterData) -> CounterValue {
    CounterValue { packets: data.packet_count.max(0) as u64, bytes: data.byte_count.max(0) as u64 }
}

pub(super) fn value_out(value: CounterValue) -> v1::CounterData {
    v1::CounterData { packet_count: value.packets as i64, byte_count: value.bytes as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_values_keep_their_value_there_and_back() {
        for (width, number, canonical) in [
            (8, -99, &[0x9d][..]),
            (12, -739, &[0xfd, 0x1d]),
            (16, 0, &[0]),
            (16, 255, &[0, 0xff]),
            (9, -256, &[0xff, 0]),
            (8, 127, &[0x7f]),
            (32, -1, &[0xff]),
        ] {
            let engine = sign_extended(canonical, width);
            let unsigned = bytes::decode(&engine, width).unwrap();
            assert_eq!(unsigned as i128, i128::from(number) & ((1 << width) - 1), "int<{width}> {number}");
            assert_eq!(shortest_signed(bytes::shortest(&engine), width), canonical, "int<{width}> {number}");
        }
    }
}
