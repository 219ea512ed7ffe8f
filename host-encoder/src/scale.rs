//! Rows of extreme magnitude are worked on at a power-of-two scale, so that neither sums overflow nor small values
//! lose bits in the subnormal range.

/// A row's working scale: values are multiplied by 2^exponent. Ordinary rows have exponent 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowScale {
    exponent: i32,
}

impl RowScale {
    /// Values between these need no scaling: the sum of 2^20 of them, and their squares' share of it, fit an f32.
    const ORDINARY: std::ops::Range<f32> = 1e-18..1e18;

    pub(crate) fn of(values: &[f32]) -> Self {
        Self::for_largest(largest_magnitude(values))
    }

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
        if self.exponent == 0 { value } else { self.up64(value) as f32 }
    }

    pub(crate) fn up64(self, value: f32) -> f64 {
        f64::from(value) * power_of_two(self.exponent)
    }

    pub(crate) fn down(self, value: f64) -> f32 {
        (value * power_of_two(-self.exponent)) as f32
    }
}

/// 2^exponent, exactly; |exponent| stays below 160 here.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent.clamp(-1000, 1000)) as u64) << 52)
}

/// The largest |v| of finite values, over eight running maxima (comparing has no rounding: any order gives the same).
pub(crate) fn largest_magnitude(values: &[f32]) -> f32 {
    let mut largest = [0.0f32; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for i in 0..8 {
            let magnitude = chunk[i].abs();
            largest[i] = if magnitude > largest[i] { magnitude } else { largest[i] };
        }
    }
    rest.iter().chain(&largest).fold(0.0, |m, v| m.max(v.abs()))
}
