// SPDX-License-Identifier: Apache-2.0
//! Numbers of more than 64 bits: two's complement on as many limbs as the analysis at load time
//! found to be enough, so that the answers are those of BMv2's unbounded integers. Rare: programs
//! use such widths for wide keys and IPv6-sized concatenations, seldom for more than a few
//! operations.

use std::cmp::Ordering;

use super::bits::mask64;
use super::expression::MOST_LIMBS;

/// A number in two's complement; only the first `words` limbs count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wide {
    limbs: [u64; MOST_LIMBS],
    words: usize,
}

impl Wide {
    fn zero(words: usize) -> Self {
        Self { limbs: [0; MOST_LIMBS], words }
    }

    pub(crate) fn from_limbs(limbs: &[u64], words: usize) -> Self {
        let mut wide = Self::zero(words);
        let shared = limbs.len().min(words);
        wide.limbs[..shared].copy_from_slice(&limbs[..shared]);
        wide
    }

    pub(crate) fn limbs(&self) -> &[u64] {
        &self.limbs[..self.words]
    }

    fn is_negative(&self) -> bool {
        self.limbs[self.words - 1] >> 63 != 0
    }

    fn is_zero(&self) -> bool {
        self.limbs[..self.words].iter().all(|&limb| limb == 0)
    }

    pub(crate) fn limbwise(mut self, other: &Self, op: impl Fn(u64, u64) -> u64) -> Self {
        for (limb, other) in self.limbs[..self.words].iter_mut().zip(&other.limbs) {
            *limb = op(*limb, *other);
        }
        self
    }

    pub(crate) fn complement(mut self) -> Self {
        self.limbs[..self.words].iter_mut().for_each(|limb| *limb = !*limb);
        self
    }

    pub(crate) fn add(mut self, other: &Self, mut carry: bool) -> Self {
        for (limb, other) in self.limbs[..self.words].iter_mut().zip(&other.limbs) {
            let (sum, first) = limb.overflowing_add(*other);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (sum, first || second);
        }
        self
    }

    pub(crate) fn sub(self, other: &Self) -> Self {
        self.add(&other.complement(), true)
    }

    pub(crate) fn mul(&self, other: &Self) -> Self {
        let mut product = Self::zero(self.words);
        for (at, &left) in self.limbs[..self.words].iter().enumerate().filter(|(_, limb)| **limb != 0) {
            let mut carry = 0;
            for (limb, &right) in product.limbs[at..self.words].iter_mut().zip(&other.limbs) {
                let sum = u128::from(left) * u128::from(right) + u128::from(*limb) + carry;
                (*limb, carry) = (sum as u64, sum >> 64);
            }
        }
        product
    }

    pub(crate) fn shifted_left(&self, by: u32) -> Self {
        let mut shifted = Self::zero(self.words);
        let (limbs, bits) = ((by / 64) as usize, by % 64);
        for at in limbs..self.words {
            let high = self.limbs[at - limbs] << bits;
            let low = if bits > 0 && at > limbs { self.limbs[at - limbs - 1] >> (64 - bits) } else { 0 };
            shifted.limbs[at] = high | low;
        }
        shifted
    }

    pub(crate) fn shifted_right(&self, by: u32, signed: bool) -> Self {
        let fill = if signed && self.is_negative() { u64::MAX } else { 0 };
        let limb = |at: usize| if at < self.words { self.limbs[at] } else { fill };
        let (limbs, bits) = ((by / 64) as usize, by % 64);
        let mut shifted = Self::zero(self.words);
        for at in 0..self.words {
            let high = if bits > 0 { limb(at + limbs + 1) << (64 - bits) } else { 0 };
            shifted.limbs[at] = limb(at + limbs) >> bits | high;
        }
        shifted
    }

    /// Quotient and remainder of non-negative numbers, one bit at a time; zero for a division by
    /// zero.
    pub(crate) fn divided(&self, by: &Self) -> (Self, Self) {
        let (mut quotient, mut rest) = (Self::zero(self.words), Self::zero(self.words));
        if by.is_zero() {
            return (quotient, rest);
        }
        for bit in (0..self.words * 64).rev() {
            rest = rest.shifted_left(1);
            rest.limbs[0] |= self.limbs[bit / 64] >> (bit % 64) & 1;
            if rest.compared(by, false).is_ge() {
                rest = rest.sub(by);
                quotient.limbs[bit / 64] |= 1 << (bit % 64);
            }
        }
        (quotient, rest)
    }

    pub(crate) fn compared(&self, other: &Self, signed: bool) -> Ordering {
        if signed && self.is_negative() != other.is_negative() {
            return other.is_negative().cmp(&self.is_negative());
        }
        self.limbs[..self.words].iter().rev().cmp(other.limbs[..other.words].iter().rev())
    }

    /// The low `width` bits, as a signed number.
    pub(crate) fn sign_extended(mut self, width: u32) -> Self {
        let (limb, bits) = (((width - 1) / 64) as usize, (width - 1) % 64);
        if limb >= self.words {
            return self;
        }
        let negative = self.limbs[limb] >> bits & 1 != 0;
        self.limbs[limb] &= mask64(bits + 1);
        self.limbs[limb + 1..self.words].fill(if negative { u64::MAX } else { 0 });
        if negative {
            self.limbs[limb] |= !mask64(bits + 1);
        }
        self
    }

    /// `2^bits - 1`.
    fn ones(bits: u32, words: usize) -> Self {
        let mut ones = Self::zero(words);
        for (at, limb) in (0..).zip(&mut ones.limbs[..words]) {
            *limb = mask64(bits.saturating_sub(at * 64).min(64));
        }
        ones
    }

    pub(crate) fn saturated(self, width: u32, to_signed: bool, from_signed: bool) -> Self {
        let largest = Self::ones(if to_signed { width - 1 } else { width }, self.words);
        if !(from_signed && self.is_negative()) {
            return if self.compared(&largest, false).is_gt() { largest } else { self };
        }
        if !to_signed {
            return Self::zero(self.words);
        }
        let smallest = largest.complement();
        if self.compared(&smallest, true).is_lt() { smallest } else { self }
    }

    /// In decimal.
    pub(crate) fn decimal(&self, signed: bool) -> String {
        const GROUP: u64 = 10_000_000_000_000_000_000;
        let negative = signed && self.is_negative();
        let mut rest = if negative { Self::zero(self.words).sub(self) } else { *self };
        let mut groups = Vec::new();
        loop {
            let mut remainder = 0;
            for limb in rest.limbs[..rest.words].iter_mut().rev() {
                let value = remainder << 64 | u128::from(*limb);
                (*limb, remainder) = ((value / u128::from(GROUP)) as u64, value % u128::from(GROUP));
            }
            groups.push(remainder);
            if rest.is_zero() {
                break;
            }
        }
        let sign = if negative { "-" } else { "" };
        let first = groups.pop().unwrap_or(0);
        groups.iter().rev().fold(format!("{sign}{first}"), |text, group| format!("{text}{group:019}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(value: i128, words: usize) -> Wide {
        let value = value.cast_unsigned();
        let mut limbs = vec![value as u64, (value >> 64) as u64];
        limbs.resize(words, if value >> 127 != 0 { u64::MAX } else { 0 });
        Wide::from_limbs(&limbs, words)
    }

    proptest::proptest! {
        /// In numbers that 128 bits hold, the wide operations are the machine's.
        #[test]
        fn small_numbers_behave_as_machine_words(left in proptest::num::i64::ANY, right in proptest::num::i64::ANY, by in 0u32..200) {
            let (a, b) = (i128::from(left), i128::from(right));
            let (wide_a, wide_b) = (word(a, 5), word(b, 5));
            proptest::prop_assert_eq!(wide_a.add(&wide_b, false).decimal(true), (a + b).to_string());
            proptest::prop_assert_eq!(wide_a.sub(&wide_b).decimal(true), (a - b).to_string());
            proptest::prop_assert_eq!(wide_a.mul(&wide_b).decimal(true), (a * b).to_string());
            proptest::prop_assert_eq!(wide_a.compared(&wide_b, true), a.cmp(&b));
            proptest::prop_assert_eq!(wide_a.shifted_right(by, true).decimal(true), (a >> by.min(127)).to_string());
            proptest::prop_assert_eq!(wide_a.sign_extended(9).decimal(true), (a << 119 >> 119).to_string());
            let clamped = |low: i128, high: i128| a.clamp(low, high).to_string();
            proptest::prop_assert_eq!(wide_a.saturated(20, true, true).decimal(true), clamped(-(1 << 19), (1 << 19) - 1));
            proptest::prop_assert_eq!(wide_a.saturated(20, false, true).decimal(true), clamped(0, (1 << 20) - 1));
            if a >= 0 && b > 0 {
                let (quotient, rest) = wide_a.divided(&wide_b);
                proptest::prop_assert_eq!(quotient.decimal(false), (a / b).to_string());
                proptest::prop_assert_eq!(rest.decimal(false), (a % b).to_string());
            }
        }

        /// Identities of arithmetic modulo 2^576 that tie the operations to each other.
        #[test]
        fn wide_numbers_obey_the_laws_of_arithmetic(
            a in proptest::array::uniform9(0u64..), b in proptest::array::uniform9(0u64..),
            c in proptest::array::uniform9(0u64..), by in 0u32..576,
        ) {
            let [a, b, c] = [a, b, c].map(|limbs| Wide::from_limbs(&limbs, 9));
            let same = |left: &Wide, right: &Wide| left.limbs[..9] == right.limbs[..9];
            proptest::prop_assert!(same(&a.add(&b, false).sub(&b), &a));
            proptest::prop_assert!(same(&a.mul(&b.add(&c, false)), &a.mul(&b).add(&a.mul(&c), false)));
            let mut power = Wide::zero(9);
            power.limbs[(by / 64) as usize] = 1 << (by % 64);
            proptest::prop_assert!(same(&a.shifted_left(by), &a.mul(&power)));
            let (quotient, rest) = a.divided(&b);
            proptest::prop_assert!(same(&quotient.mul(&b).add(&rest, false), &a));
            proptest::prop_assert!(rest.compared(&b, false).is_lt());
            proptest::prop_assert!(same(&a.shifted_right(by, false), &a.divided(&power).0));
        }
    }
}
