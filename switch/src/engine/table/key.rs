// SPDX-License-Identifier: Apache-2.0
//! Match values from the control plane, checked and packed into limbs.

use super::super::bits::{bytes_from_limbs, limbs_for, limbs_from_bytes, mask64};
use super::super::entity::{MatchKind, MatchValue};
use super::super::error::ControlError;
use super::{Key, Table, shift_in};

type Result<T, E = ControlError> = std::result::Result<T, E>;

/// A table entry's key: `packet key & mask == value`, and every range holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompiledKey {
    pub(super) value: Box<[u64]>,
    pub(super) mask: Box<[u64]>,
    /// Total length of the prefix, in bits; only tables without priority use it.
    pub(super) prefix_len: u32,
    ranges: Vec<RangePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RangePart {
    /// Place in a packed key: bits to shift right; in an unpacked one, the first limb.
    at: u32,
    width: u32,
    packed: bool,
    low: Box<[u64]>,
    high: Box<[u64]>,
}

impl CompiledKey {
    /// The key lies in every range.
    pub(super) fn in_ranges(&self, key: &[u64]) -> bool {
        self.ranges.iter().all(|range| range.holds(key))
    }

    /// What makes two entries the same entry.
    pub(super) fn identity(&self, priority: i32) -> Vec<u64> {
        let mut identity = Vec::with_capacity(self.value.len() * 2 + 1);
        identity.extend_from_slice(&self.value);
        identity.extend_from_slice(&self.mask);
        for range in &self.ranges {
            identity.extend_from_slice(&range.low);
            identity.extend_from_slice(&range.high);
        }
        identity.push(u64::from(priority.cast_unsigned()));
        identity
    }
}

impl RangePart {
    fn holds(&self, key: &[u64]) -> bool {
        if self.packed {
            let value = key[0].checked_shr(self.at).unwrap_or(0) & mask64(self.width);
            return self.low[0] <= value && value <= self.high[0];
        }
        let value = &key[self.at as usize..self.at as usize + self.low.len()];
        value.iter().rev().ge(self.low.iter().rev()) && value.iter().rev().le(self.high.iter().rev())
    }
}

impl Table {
    /// Checks match values against the table's keys and packs them; also returns them in canonical
    /// form.
    pub(crate) fn compile_key(&self, matches: &[MatchValue]) -> Result<(CompiledKey, Vec<MatchValue>)> {
        let table = &self.info.name;
        if self.keys.is_empty() {
            return Err(ControlError::invalid(format!(
                "table `{table}` has no keys: only its default action can be set"
            )));
        }
        if matches.len() != self.keys.len() {
            let names: Vec<&str> = self.info.keys.iter().map(|key| key.name.as_str()).collect();
            return Err(ControlError::invalid(format!(
                "table `{table}` has {} keys ({}), the entry has {}",
                self.keys.len(),
                names.join(", "),
                matches.len()
            )));
        }
        let mut packer = Packer::new(self.packed);
        let mut canonical = Vec::new();
        for ((key, info), value) in self.keys.iter().zip(&self.info.keys).zip(matches) {
            canonical.push(packer.add(key, value).map_err(|what| {
                ControlError::invalid(format!("key `{}` of table `{table}`: {what}", info.name))
            })?);
        }
        let total: u32 = self.keys.iter().map(|key| key.slot.width).sum();
        Ok((packer.finish(total), canonical))
    }
}

struct Packer {
    packed: bool,
    value: Vec<u64>,
    mask: Vec<u64>,
    prefix_len: u32,
    /// Bits so far, for packed range keys.
    bits: u32,
    ranges: Vec<RangePart>,
}

impl Packer {
    fn new(packed: bool) -> Self {
        let limbs = if packed { vec![0] } else { Vec::new() };
        Self { packed, value: limbs.clone(), mask: limbs, prefix_len: 0, bits: 0, ranges: Vec::new() }
    }

    fn push(&mut self, width: u32, value: &[u64], mask: &[u64]) {
        if self.packed {
            self.value[0] = shift_in(self.value[0], width) | value[0];
            self.mask[0] = shift_in(self.mask[0], width) | mask[0];
        } else {
            self.value.extend_from_slice(value);
            self.mask.extend_from_slice(mask);
        }
        self.bits += width;
    }

    fn add(&mut self, key: &Key, value: &MatchValue) -> Result<MatchValue, String> {
        let width = key.slot.width;
        let fit = |bytes: &[u8]| {
            limbs_from_bytes(bytes, width).ok_or_else(|| format!("{} does not fit {width} bits", show(bytes)))
        };
        // The bits that a look-up compares: the packet's key has no others.
        let compared = |mut limbs: Vec<u64>| {
            let mask = key.mask.iter().flatten();
            limbs.iter_mut().zip(mask).for_each(|(limb, mask)| *limb &= mask);
            limbs
        };
        let ones = prefix_mask(width, width);
        Ok(match (key.kind, value) {
            (MatchKind::Exact, MatchValue::Exact(bytes)) => {
                let limbs = compared(fit(bytes)?);
                self.push(width, &limbs, &ones);
                self.prefix_len += width;
                MatchValue::Exact(bytes_from_limbs(&limbs))
            }
            (MatchKind::Lpm, MatchValue::Lpm { value, prefix_len }) => {
                let length = u32::from(*prefix_len);
                if length > width {
                    return Err(format!("prefix length {length} is more than its {width} bits"));
                }
                let limbs = fit(value)?;
                let mask = prefix_mask(width, length);
                if outside(&limbs, &mask) {
                    return Err(format!("{} has bits beyond its prefix length {length}", show(value)));
                }
                let limbs = compared(limbs);
                self.push(width, &limbs, &mask);
                self.prefix_len += length;
                MatchValue::Lpm { value: bytes_from_limbs(&limbs), prefix_len: *prefix_len }
            }
            (MatchKind::Ternary, MatchValue::Ternary { value, mask }) => {
                let (limbs, mask_limbs) = (fit(value)?, fit(mask)?);
                if outside(&limbs, &mask_limbs) {
                    return Err(format!("{} has bits outside its mask {}", show(value), show(mask)));
                }
                let limbs = compared(limbs);
                self.push(width, &limbs, &mask_limbs);
                MatchValue::Ternary { value: bytes_from_limbs(&limbs), mask: bytes_from_limbs(&mask_limbs) }
            }
            (MatchKind::Ternary, MatchValue::Optional(Some(value))) => {
                let limbs = compared(fit(value)?);
                self.push(width, &limbs, &ones);
                MatchValue::Ternary { value: bytes_from_limbs(&limbs), mask: bytes_from_limbs(&ones) }
            }
            (MatchKind::Ternary, MatchValue::Optional(None)) => {
                let zeros = vec![0; ones.len()];
                self.push(width, &zeros, &zeros);
                MatchValue::Ternary { value: vec![0], mask: vec![0] }
            }
            (MatchKind::Range, MatchValue::Range { low, high }) => {
                let (low_limbs, high_limbs) = (fit(low)?, fit(high)?);
                if low_limbs.iter().rev().gt(high_limbs.iter().rev()) {
                    return Err(format!("the range {} to {} is empty", show(low), show(high)));
                }
                let at = if self.packed { self.bits } else { self.value.len() as u32 };
                let zeros = vec![0; ones.len()];
                self.push(width, &zeros, &zeros);
                let canonical = MatchValue::Range {
                    low: bytes_from_limbs(&low_limbs),
                    high: bytes_from_limbs(&high_limbs),
                };
                let (low, high) = (low_limbs.into(), high_limbs.into());
                self.ranges.push(RangePart { at, width, packed: self.packed, low, high });
                canonical
            }
            (kind, _) => return Err(format!("it matches {}", kind.name())),
        })
    }

    fn finish(mut self, total: u32) -> CompiledKey {
        if self.packed {
            for range in &mut self.ranges {
                range.at = total - range.at - range.width;
            }
        }
        CompiledKey {
            value: self.value.into(),
            mask: self.mask.into(),
            prefix_len: self.prefix_len,
            ranges: self.ranges,
        }
    }
}

fn outside(value: &[u64], mask: &[u64]) -> bool {
    value.iter().zip(mask).any(|(value, mask)| value & !mask != 0)
}

/// The first `length` of `width` bits set.
fn prefix_mask(width: u32, length: u32) -> Vec<u64> {
    let zeros = width - length;
    (0..limbs_for(width) as u32)
        .map(|limb| {
            let (from, to) = (limb * 64, ((limb + 1) * 64).min(width));
            mask64(to - from) & !mask64(zeros.saturating_sub(from).min(to - from))
        })
        .collect()
}

pub(super) fn show(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
