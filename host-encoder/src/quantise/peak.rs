// SPDX-License-Identifier: Apache-2.0
//! The largest magnitude of a packet, as its header says it: in thirty-seconds of an octave,
//! rounded up.

/// 2^(k/32), k = 0 … 32, and what nothing is above.
const ROOTS: [f32; 34] = {
    const ROOT: f64 = 1.021_897_148_654_116_7;
    let mut roots = [1.0; 34];
    let (mut root, mut k) = (1.0, 1);
    while k < 32 {
        root *= ROOT;
        roots[k] = root as f32;
        k += 1;
    }
    roots[32] = 2.0;
    roots[33] = f32::INFINITY;
    roots
};

/// ⌊32 · log2(1 + i/64)⌋.
static FLOORS: [u8; 64] = {
    let (mut floors, mut k, mut i) = ([0; 64], 0, 0);
    while i < 64 {
        while ROOTS[k + 1] <= 1.0 + i as f32 / 64.0 {
            k += 1;
        }
        floors[i] = k as u8;
        i += 1;
    }
    floors
};

/// The magnitude that a peak byte stands for, 2^(peak/32), in units of σ.
pub const fn peak_magnitude(peak: u8) -> f32 {
    ROOTS[(peak % 32) as usize] * (1u8 << (peak / 32)) as f32
}

/// The smallest peak byte whose magnitude is not below `ratio`. (A packet has at most 8,160
/// coordinates, so its largest is at most √8160 ≈ 90 σ; the byte reaches 250 σ.)
#[inline]
pub fn peak_byte(ratio: f32) -> u8 {
    if ratio <= 1.0 {
        return 0;
    }
    // The octave from the exponent; within it, 2^(k/32) ≥ the mantissa from a guess that is never
    // too high, and too low by two at most.
    let bits = ratio.to_bits();
    let mantissa = f32::from_bits(bits & 0x007f_ffff | 1f32.to_bits());
    let mut k = usize::from(FLOORS[(bits >> 17 & 63) as usize]);
    k += usize::from(ROOTS[k] < mantissa);
    k += usize::from(ROOTS[k] < mantissa);
    (32 * ((bits >> 23) as usize - 127) + k).min(255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_byte_is_never_below_its_magnitude() {
        for tenth in 1..2_500u16 {
            let ratio = f32::from(tenth) / 10.0;
            let byte = peak_byte(ratio);
            assert!(peak_magnitude(byte) >= ratio);
            assert!(byte == 0 || peak_magnitude(byte - 1) < ratio);
        }
        // All mantissas of an octave but for their last two bits.
        for bits in (1f32.to_bits() + 1..2f32.to_bits()).step_by(4) {
            let ratio = f32::from_bits(bits);
            let byte = peak_byte(ratio);
            assert!(peak_magnitude(byte) >= ratio && peak_magnitude(byte - 1) < ratio, "{ratio}");
        }
        for byte in 0..=255 {
            assert_eq!(peak_byte(peak_magnitude(byte)), byte, "a magnitude that is a byte's own");
        }
        assert_eq!([0.0, 0.5, f32::MAX, f32::INFINITY].map(peak_byte), [0, 0, 255, 255]);
        assert_eq!(peak_byte(f32::NAN), 255);
    }
}
