// SPDX-License-Identifier: Apache-2.0
//! Magnitudes with a few fraction bits (docs/reference/wire-format.md §13, "Magnitudes").

/// Most fraction bits: those of an f32.
pub(super) const MOST_FRACTION_BITS: u8 = 23;
const SIGN: u32 = 1 << 31;
const LARGEST: u32 = 0x7f7f_ffff;

/// Bits of an f32 that are not sent.
pub(super) fn unsent_bits(fraction_bits: u8) -> u32 {
    u32::from(MOST_FRACTION_BITS.saturating_sub(fraction_bits))
}

/// The level of a finite value: its exponent and upper fraction bits, rounded to nearest, ties to even. A carry out of the fraction is right in the
/// exponent; one into infinity is not, and the largest level stays below it.
pub(super) fn level(value: f32, fraction_bits: u8) -> u32 {
    let (magnitude, shift) = (value.to_bits() & !SIGN, unsent_bits(fraction_bits));
    if shift == 0 {
        return magnitude.min(LARGEST);
    }
    let half = (1 << (shift - 1)) - 1 + (magnitude >> shift & 1);
    ((magnitude + half) >> shift).min(LARGEST >> shift)
}

/// What receivers make of a level below [`level`]'s largest.
pub(super) fn value(level: u32, negative: bool, fraction_bits: u8) -> f32 {
    f32::from_bits(level << unsent_bits(fraction_bits) | if negative { SIGN } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn seven_fraction_bits_are_bf16_and_23_are_f32() {
        for x in [1.0f32, -1.07, 1e-39, 65_519.0, -3.38e38, f32::MIN_POSITIVE, 0.0] {
            let sent = |bits| value(level(x, bits), x < 0.0, bits);
            assert_eq!(sent(7), half::bf16::from_f32(x).to_f32(), "{x}");
            assert_eq!(sent(23), x);
        }
        assert!(value(level(f32::MAX, 0), false, 0).is_finite());
    }

    proptest! {
        #[test]
        fn a_level_is_within_half_a_step_of_its_value(x in prop::num::f32::NORMAL, bits in 0u8..=23) {
            // Values that would round to infinity go down instead.
            prop_assume!(x.abs() < 1.7e38);
            let sent = f64::from(value(level(x, bits), x < 0.0, bits));
            let error = (sent - f64::from(x)).abs() / f64::from(x).abs();
            prop_assert!(error <= 0.5f64.powi(i32::from(bits) + 1), "{x} with {bits} bits is {sent}");
        }
    }
}
