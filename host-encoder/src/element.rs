//! The number formats that gradients come in and go out in.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A gradient's number format. All of them are encoded by way of f32, which holds every value of the narrow ones, and decoded to f32, then rounded.
pub trait Element: Copy + Send + Sync + private::Sealed {
    /// What rows that are not finite decode to.
    #[doc(hidden)]
    const NAN: Self;
    /// Zero.
    #[doc(hidden)]
    const ZERO: Self;

    /// The values as f32: the slice itself where it already is, otherwise converted into `buffer`.
    #[doc(hidden)]
    fn widen<'a>(values: &'a [Self], buffer: &'a mut Vec<f32>) -> &'a [f32];

    /// The values, if they are f32.
    #[doc(hidden)]
    fn as_f32(_: &[Self]) -> &[f32] {
        &[]
    }

    /// The same, to be written; `None` if they are not.
    #[doc(hidden)]
    fn as_f32_mut(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }

    /// Where f32s go that shall become the values: the slice itself where it is f32, otherwise `buffer`, made as long ([`Self::settle`]).
    #[doc(hidden)]
    fn as_f32_or<'a>(values: &'a mut [Self], buffer: &'a mut Vec<f32>) -> &'a mut [f32];

    /// Rounds what went to `buffer`, where it did.
    #[doc(hidden)]
    fn settle(buffer: &[f32], values: &mut [Self]);

    /// Rounds as many values as both have: to nearest, ties to even; beyond the range to infinity.
    #[doc(hidden)]
    fn narrow(values: &[f32], out: &mut [Self]);

    /// Adds as many values as both have, in f32, and rounds the sums.
    #[doc(hidden)]
    fn add(values: &[f32], out: &mut [Self]);
}

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

impl Element for f32 {
    const NAN: Self = Self::NAN;
    const ZERO: Self = 0.0;

    #[inline]
    fn widen<'a>(values: &'a [Self], _: &'a mut Vec<f32>) -> &'a [f32] {
        values
    }

    fn as_f32(values: &[Self]) -> &[f32] {
        values
    }

    fn as_f32_mut(values: &mut [Self]) -> Option<&mut [f32]> {
        Some(values)
    }

    fn as_f32_or<'a>(values: &'a mut [Self], _: &'a mut Vec<f32>) -> &'a mut [f32] {
        values
    }

    fn settle(_: &[f32], _: &mut [Self]) {}

    fn narrow(values: &[f32], out: &mut [Self]) {
        out.iter_mut().zip(values).for_each(|(out, value)| *out = *value);
    }

    fn add(values: &[f32], out: &mut [Self]) {
        out.iter_mut().zip(values).for_each(|(out, value)| *out += value);
    }
}

macro_rules! half_formats {
    ($($half:ty),+) => {$(
        impl Element for $half {
            const NAN: Self = <$half>::NAN;
            const ZERO: Self = <$half>::ZERO;

            fn widen<'a>(values: &'a [Self], buffer: &'a mut Vec<f32>) -> &'a [f32] {
                buffer.resize(values.len(), 0.0);
                values.convert_to_f32_slice(buffer);
                buffer
            }

            fn as_f32_or<'a>(values: &'a mut [Self], buffer: &'a mut Vec<f32>) -> &'a mut [f32] {
                buffer.resize(values.len(), 0.0);
                buffer
            }

            fn settle(buffer: &[f32], values: &mut [Self]) {
                Self::narrow(buffer, values);
            }

            fn narrow(values: &[f32], out: &mut [Self]) {
                let length = values.len().min(out.len());
                out[..length].convert_from_f32_slice(&values[..length]);
            }

            fn add(values: &[f32], out: &mut [Self]) {
                /// Sums that are converted at once.
                const PIECE: usize = 256;
                let mut sums = [0.0; PIECE];
                for (values, out) in values.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
                    let length = values.len().min(out.len());
                    let sums = &mut sums[..length];
                    out[..length].convert_to_f32_slice(sums);
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                    out[..length].convert_from_f32_slice(sums);
                }
            }
        }
    )+};
}

half_formats!(f16, bf16);
