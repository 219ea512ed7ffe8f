// SPDX-License-Identifier: Apache-2.0
//! Values in the packet header vector: reading and writing a slot as a word or as limbs.

use super::bits::{mask64, mask128};
use super::layout::Slot;

pub(crate) fn sign_extend(value: u128, width: u32) -> u128 {
    let shift = 128 - width.clamp(1, 128);
    ((value << shift).cast_signed() >> shift).cast_unsigned()
}

/// A slot's value as a word; of a slot above 128 bits, the low 128.
#[inline]
pub(crate) fn load(limbs: &[u64], slot: Slot) -> u128 {
    let at = slot.at as usize;
    let mut value = u128::from(limbs[at]);
    if slot.width > 64 {
        value |= u128::from(limbs[at + 1]) << 64;
    }
    if slot.signed && limbs[slot.unsigned_flag()] == 0 { sign_extend(value, slot.width) } else { value }
}

/// Stores the low bits of a number of one limb.
#[inline]
pub(crate) fn store64(limbs: &mut [u64], slot: Slot, value: u64) {
    if slot.width <= 64 && !slot.signed {
        limbs[slot.at as usize] = value & mask64(slot.width);
    } else {
        store(limbs, slot, u128::from(value));
    }
}

/// Stores the low bits of a word in a slot; limbs above 128 bits become 0.
#[inline]
pub(crate) fn store(limbs: &mut [u64], slot: Slot, value: u128) {
    let at = slot.at as usize;
    if slot.signed {
        // Wider ones are assigned as limbs.
        limbs[slot.unsigned_flag()] = u64::from(slot.width < 128 && value >> (slot.width - 1) == 1);
    }
    if slot.width <= 64 {
        limbs[at] = value as u64 & mask64(slot.width);
        return;
    }
    let value = value & mask128(slot.width);
    limbs[slot.limbs()].fill(0);
    limbs[at] = value as u64;
    limbs[at + 1] = (value >> 64) as u64;
}
