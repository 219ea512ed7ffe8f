// SPDX-License-Identifier: Apache-2.0
//! Random values that meet: the same few numbers of every width, in frames and in table entries.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// A number of `width` bits, most significant bit first, and more often than not one of six: 0,
    /// 1, the largest, the top bit alone, and two that depend on the width alone.
    pub(crate) fn number(&mut self, width: usize) -> Vec<bool> {
        let scattered = |seed: u64| {
            let mut random = Random(seed << 32 | width as u64);
            (0..width).map(|_| random.below(2) == 1).collect()
        };
        match self.below(9) {
            0 => vec![false; width],
            1 => (0..width).map(|bit| bit + 1 == width).collect(),
            2 => vec![true; width],
            3 => (0..width).map(|bit| bit == 0).collect(),
            4 | 5 => scattered(1),
            6 => scattered(2),
            _ => (0..width).map(|_| self.below(2) == 1).collect(),
        }
    }
}

/// Bits as a big-endian number, padded with zeros at the front.
pub(crate) fn to_bytes(bits: &[bool]) -> Vec<u8> {
    let padding = bits.len().wrapping_neg() % 8;
    let padded: Vec<bool> = std::iter::repeat_n(false, padding).chain(bits.iter().copied()).collect();
    padded.chunks(8).map(|byte| byte.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit))).collect()
}

/// A header in the making.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits(Vec<bool>);

impl Bits {
    pub(crate) fn push(mut self, width: u32, value: u64) -> Self {
        self.0.extend((0..width).rev().map(|bit| value.checked_shr(bit).unwrap_or(0) & 1 == 1));
        self
    }

    /// A random number of every width.
    pub(crate) fn numbers(mut self, random: &mut Random, widths: &[usize]) -> Self {
        for &width in widths {
            self.0.extend(random.number(width));
        }
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        assert!(self.0.len().is_multiple_of(8), "a header of {} bits", self.0.len());
        to_bytes(&self.0)
    }
}
