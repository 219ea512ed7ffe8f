// SPDX-License-Identifier: Apache-2.0
//! Number formats of files, and how their numbers become those that a codec is handed.

use super::super::source::Dtype;
use anyhow::{Result, bail};
use trimwire_encoder::{bf16, f16};

/// How a floating-point number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// IEEE 754 half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
}

/// How all numbers of a tensor are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Of each.
    pub format: Format,
    /// Whether the byte with the sign comes first.
    pub big_endian: bool,
}

impl Format {
    /// Bytes of a number.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// The format of the codecs' that holds such numbers with the least loss.
    pub(super) fn dtype(self) -> Dtype {
        match self {
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::Bf16,
            Self::F32 | Self::F64 => Dtype::F32,
        }
    }
}

impl From<Dtype> for Format {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::F16 => Self::F16,
            Dtype::Bf16 => Self::Bf16,
        }
    }
}

impl Numbers {
    /// Little-endian ones.
    pub(super) fn little(format: Format) -> Self {
        Self { format, big_endian: false }
    }

    /// The number in `bytes`, which are as many as the format has.
    pub(super) fn value(self, bytes: &[u8]) -> f64 {
        let mut le = [0; 8];
        for (to, from) in le.iter_mut().zip(bytes) {
            *to = *from;
        }
        let [a, b, c, d, ..] = le;
        let half = if self.big_endian { [b, a] } else { [a, b] };
        match self.format {
            Format::F16 => f16::from_le_bytes(half).to_f64(),
            Format::Bf16 => bf16::from_le_bytes(half).to_f64(),
            Format::F32 if self.big_endian => f32::from_be_bytes([a, b, c, d]).into(),
            Format::F32 => f32::from_le_bytes([a, b, c, d]).into(),
            Format::F64 if self.big_endian => f64::from_be_bytes(le),
            Format::F64 => f64::from_le_bytes(le),
        }
    }
}

/// Rounds to what `dtype` holds. Errors are measured on finite numbers, so what it does not hold is refused, as coordinate `at` of `place`.
pub(super) fn narrow(value: f64, dtype: Dtype, place: &str, at: usize) -> Result<f32> {
    let mut rounded = [value as f32];
    dtype.round(&mut rounded);
    if rounded[0].is_finite() {
        return Ok(rounded[0]);
    }
    if !value.is_finite() {
        bail!("{place}: coordinate {at} is {value}; errors are measured on finite gradients");
    }
    let (name, largest) = match dtype {
        Dtype::F32 => ("f32", f32::MAX),
        Dtype::F16 => ("f16", f16::MAX.to_f32()),
        Dtype::Bf16 => ("bf16", bf16::MAX.to_f32()),
    };
    bail!("{place}: coordinate {at} is {value:e}, beyond what {name} holds (at most {largest:e})");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_read_in_both_orders() {
        for (format, bytes) in [
            (Format::F16, &[0x00, 0xbe][..]),
            (Format::Bf16, &[0xc0, 0xbf]),
            (Format::F32, &[0, 0, 0xc0, 0xbf]),
            (Format::F64, &[0, 0, 0, 0, 0, 0, 0xf8, 0xbf]),
        ] {
            assert_eq!(format.bytes(), bytes.len());
            assert_eq!(Numbers::little(format).value(bytes), -1.5, "{format:?}");
            let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
            assert_eq!(Numbers { format, big_endian: true }.value(&reversed), -1.5, "{format:?}");
        }
    }

    #[test]
    fn what_a_format_does_not_hold_is_refused_with_its_place() {
        assert_eq!(narrow(1.0 + 1e-12, Dtype::F32, "w", 0).unwrap(), 1.0);
        for (value, dtype, said) in [
            (1e300, Dtype::F32, "w: coordinate 7 is 1e300, beyond what f32 holds"),
            (-7e4, Dtype::F16, "w: coordinate 7 is -7e4, beyond what f16 holds (at most 6.5504e4)"),
            (3.4e38, Dtype::Bf16, "beyond what bf16 holds"),
            (f64::NAN, Dtype::F32, "w: coordinate 7 is NaN; errors are measured on finite gradients"),
            (f64::NEG_INFINITY, Dtype::F16, "coordinate 7 is -inf"),
        ] {
            let error = narrow(value, dtype, "w", 7).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
