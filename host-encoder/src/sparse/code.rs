// SPDX-License-Identifier: Apache-2.0
//! Entries as bits and back (docs/reference/wire-format.md §13, "Entries").
//!
//! A level and a place in the packet's range are one number, the key: levels downwards, and places upwards in each. Keys ascend, so their gaps are all that is
//! sent, in a code that needs no state: whatever prefix arrives decodes as far as it goes.

use super::Entry;
use super::header::SparseHeader;
use super::level::{level, value};

/// The fields of a packet's heads that its entries decide, and how long they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) sigma: f32,
    pub(super) order: u8,
    /// Bytes of all entries.
    pub(super) len: usize,
}

/// Plans a packet of `entries`, whose values have no more than their fraction bits, in ascending order of places, and leaves in `gaps` what [`write`] needs.
/// `None` if there are none.
pub(super) fn plan(entries: &[Entry], fraction_bits: u8, gaps: &mut Vec<u64>) -> Option<Plan> {
    let (first, last) = (entries.first()?.index, entries.last()?.index);
    let sigma = entries.iter().fold(0.0, |most: f32, entry| most.max(entry.value.abs()));
    let (top, span) = (level(sigma, fraction_bits), u64::from(last - first) + 1);
    gaps.clear();
    // Keys have 63 bits at most, which leaves one for the sign.
    gaps.extend(entries.iter().map(|entry| {
        let down = u64::from(top - level(entry.value, fraction_bits));
        (down * span + u64::from(entry.index - first)) << 1 | u64::from(entry.value.is_sign_negative())
    }));
    gaps.sort_unstable();
    let (mut next, mut bits) = (0, 0);
    for gap in gaps.iter_mut() {
        let key = *gap >> 1;
        *gap = (key - next) << 1 | *gap & 1;
        bits += u64::from(u64::BITS - (key - next).leading_zeros());
        next = key + 1;
    }
    // The mean length of a gap, rounded, less 1: within 1 % of the best order.
    let count = gaps.len() as u64;
    let order = ((4 * bits + 3 * count) / (4 * count)).saturating_sub(1) as u32;
    let bits: u64 = gaps.iter().map(|gap| u64::from(code(gap >> 1, order).1)).sum();
    Some(Plan { first, last, sigma, order: order as u8, len: bits.div_ceil(8) as usize })
}

/// x of a gap, and the bits of its code and the sign together.
fn code(gap: u64, order: u32) -> (u64, u32) {
    let x = gap + (1 << order);
    (x, 2 * (u64::BITS - x.leading_zeros()) - order)
}

/// Appends the entries that [`plan`] left in `gaps`.
pub(super) fn write(gaps: &[u64], order: u8, out: &mut Vec<u8>) {
    let order = u32::from(order);
    // The lowest `held` bits are not written yet; there are fewer than 8 between codes.
    let (mut bits, mut held) = (0u128, 0);
    let mut put = |value: u64, count: u32| {
        bits = bits << count | u128::from(value);
        held += count;
        while held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
        held
    };
    let mut left = 0;
    for gap in gaps {
        let (x, length) = code(gap >> 1, order);
        let zeros = u32::midpoint(length, order) - 1 - order;
        // The zeros in front are those of the number.
        if length <= u64::BITS {
            left = put(x << 1 | gap & 1, length);
        } else {
            put(0, zeros);
            put(x, length - zeros - 1);
            left = put(gap & 1, 1);
        }
    }
    if left > 0 {
        put(0, 8 - left);
    }
}

/// What follows the entries that were read is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoEntry;

/// Appends the entries that arrived whole, as many as the packet has at most, in its order. `out` takes no more room than their bits justify.
pub(super) fn read(header: &SparseHeader, content: &[u8], out: &mut Vec<Entry>) -> Result<(), NoEntry> {
    let (order, fraction_bits) = (u32::from(header.order), header.fraction_bits);
    let (span, bits) = (header.span(), content.len() * 8);
    out.reserve(header.entries.min(bits / (order as usize + 2)));
    let most_zeros = 63 - order;
    let (mut level, mut place, mut at) = (header.top(), 0u64, 0);
    for _ in 0..header.entries {
        let (ahead, left) = (peek(content, at), bits - at);
        let zeros = ahead.leading_zeros();
        if zeros > most_zeros {
            // Behind the end there are zeros, too.
            return if left > most_zeros as usize { Err(NoEntry) } else { Ok(()) };
        }
        let digits = zeros + 1 + order;
        let length = (zeros + digits + 1) as usize;
        if length > left {
            return Ok(());
        }
        let (x, negative) = if length <= 64 {
            // Behind the zeros: x and the sign.
            let both = ahead >> (64 - length);
            (both >> 1, both & 1 != 0)
        } else {
            let x = peek(content, at + zeros as usize) >> (64 - digits);
            (x, peek(content, at + length - 1) >> 63 != 0)
        };
        at += length;
        // x has its highest bit at 2^order or above.
        place = place.checked_add(x - (1 << order)).ok_or(NoEntry)?;
        if place >= span {
            let down = place / span;
            place %= span;
            level = u32::try_from(down).ok().and_then(|down| level.checked_sub(down)).ok_or(NoEntry)?;
        }
        if level == 0 {
            return Err(NoEntry);
        }
        // Below the span, which is in 32 bits behind the first.
        let index = header.first + place as u32;
        out.push(Entry { index, value: value(level, negative, fraction_bits) });
        place += 1;
    }
    Ok(())
}

/// 64 bits from a bit on; zeros behind the end.
#[inline]
fn peek(content: &[u8], bit: usize) -> u64 {
    let (byte, shift) = (bit / 8, bit % 8);
    let rest = content.get(byte..).unwrap_or_default();
    let window = rest.first_chunk().copied().unwrap_or_else(|| {
        let mut window = [0; 9];
        window[..rest.len()].copy_from_slice(rest);
        window
    });
    let [high @ .., low] = window;
    u64::from_be_bytes(high) << shift | u64::from(low) >> (8 - shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Kind, Prefix, StreamId};
    use proptest::prelude::*;

    fn packet(entries: &[Entry], fraction_bits: u8) -> (SparseHeader, Vec<u8>) {
        let (mut gaps, mut out) = (Vec::new(), Vec::new());
        let plan = plan(entries, fraction_bits, &mut gaps).unwrap();
        write(&gaps, plan.order, &mut out);
        assert_eq!(out.len(), plan.len);
        let prefix = Prefix {
            kind: Kind::Data,
            codec: 6,
            important: true,
            layer_class: 0,
            last: true,
            stream: StreamId::new(0, 0).unwrap(),
            message: 0,
        };
        let Plan { first, last, sigma, order, .. } = plan;
        let entries = entries.len();
        (
            SparseHeader { prefix, index: 0, packets: 1, entries, sigma, fraction_bits, first, last, order },
            out,
        )
    }

    proptest! {
        #[test]
        fn every_prefix_holds_the_first_entries_by_magnitude(
            values in prop::collection::btree_map(any::<u32>(), prop::num::f32::NORMAL, 1..60),
            near in any::<bool>(), fraction_bits in 0u8..=23,
        ) {
            let entries: Vec<Entry> = values
                .into_iter()
                .enumerate()
                .map(|(nth, (index, value))| Entry {
                    index: if near { 3 * nth as u32 } else { index },
                    value: super::super::level::value(level(value, fraction_bits), value < 0.0, fraction_bits),
                })
                .collect();
            let (header, bytes) = packet(&entries, fraction_bits);
            let mut sorted = entries;
            sorted.sort_by(|a, b| b.value.abs().total_cmp(&a.value.abs()).then(a.index.cmp(&b.index)));
            let mut before = 0;
            for cut in 0..=bytes.len() {
                let mut out = Vec::new();
                prop_assert_eq!(read(&header, &bytes[..cut], &mut out), Ok(()));
                prop_assert!(out.len() >= before && out[..] == sorted[..out.len()]);
                before = out.len();
            }
            prop_assert_eq!(before, sorted.len());
        }
    }
}
