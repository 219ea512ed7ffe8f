// SPDX-License-Identifier: Apache-2.0
//! Rows of extreme magnitude are worked on at a power-of-two scale, so that neither sums overflow
//! nor small values lose bits in the subnormal range.

/// A row's working scale: values are multiplied by 2^exponent. Ordinary rows have exponent 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowScale {
    exponent: i32,
}

impl RowScale {
    /// Values between these need no scaling: the squares of transforms of 2^20 of them, and sums of
    /// the squares, fit an f32.
    const ORDINARY: std::ops::Range<f32> = 1.0 / (1u32 << 30) as f32..(1u32 << 30) as f32;

    /// Values are worked on as they are.
    pub(crate) const ONE: Self = Self { exponent: 0 };

    /// Whether values are worked on as they are.
    pub(crate) fn is_one(self) -> bool {
        self.exponent == 0
    }

    pub(crate) fn for_largest(largest: f32) -> Self {
        if largest == 0.0 || Self::ORDINARY.contains(&largest) {
            return Self { exponent: 0 };
        }
        // The f64's exponent field: every f32, subnormal or not, is a normal f64.
        let exponent = (f64::from(largest).to_bits() >> 52) as i32 - 1023;
        Self { exponent: -exponent }
    }

    pub(crate) fn up(self, value: f32) -> f32 {
        if self.exponent == 0 { value } else { (f64::from(value) * self.factor()) as f32 }
    }

    /// What vectors of values are multiplied by, one after the other: 2^exponent may be beyond f32.
    /// Where there are two, values are small, and no product is rounded.
    pub(crate) fn factors(self) -> [f32; 2] {
        let first = self.exponent.min(100);
        let second = self.exponent - first;
        [Self { exponent: first }.factor() as f32, Self { exponent: second }.factor() as f32]
    }

    /// What vectors of values at the scale are multiplied by to be what they were: 2^−exponent,
    /// which f32 holds. The product is rounded once, if at all.
    pub(crate) fn inverse(self) -> f32 {
        Self { exponent: -self.exponent }.factor() as f32
    }

    /// 2^exponent, exactly; |exponent| stays below 160 here.
    pub(crate) fn factor(self) -> f64 {
        f64::from_bits(((1023 + self.exponent.clamp(-1000, 1000)) as u64) << 52)
    }
}
