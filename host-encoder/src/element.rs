// SPDX-License-Identifier: Apache-2.0
//! The number formats that gradients come in and go out in.

use crate::simd::Ahead;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A gradient's number format. All of them are encoded by way of f32, which holds every value of
/// the narrow ones, and decoded to f32, then rounded.
pub trait Element: Copy + Send + Sync + private::Sealed {
    /// What rows that are not finite decode to.
    #[doc(hidden)]
    const NAN: Self;
    /// Zero.
    #[doc(hidden)]
    const ZERO: Self;

    /// The values, with their format.
    #[doc(hidden)]
    fn values(values: &[Self]) -> Values<'_>;

    /// The same, to be written.
    #[doc(hidden)]
    fn values_mut(values: &mut [Self]) -> ValuesMut<'_>;

    /// The values as f32: the slice itself where it already is, otherwise converted into `buffer`.
    #[doc(hidden)]
    fn widen<'a>(values: &'a [Self], buffer: &'a mut Vec<f32>) -> &'a [f32] {
        Self::values(values).widened(buffer)
    }

    /// Rounds as many values as both have: to nearest, ties to even; beyond the range to infinity.
    #[doc(hidden)]
    fn narrow(values: &[f32], out: &mut [Self]) {
        Self::values_mut(out).put(values, false);
    }

    /// Adds as many values as both have, in f32, and rounds the sums.
    #[doc(hidden)]
    fn add(values: &[f32], out: &mut [Self]) {
        Self::values_mut(out).put(values, true);
    }
}

/// Values of some format. Kernels take these instead of a type parameter: so they are compiled
/// once, with this crate.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
}

/// Values of some format, to be written.
#[doc(hidden)]
#[derive(Debug)]
pub enum ValuesMut<'a> {
    F32(&'a mut [f32]),
    F16(&'a mut [f16]),
    Bf16(&'a mut [bf16]),
}

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

macro_rules! elements {
    ($($element:ty, $variant:ident;)+) => {$(
        impl Element for $element {
            const NAN: Self = <$element>::NAN;
            const ZERO: Self = <$element>::from_bits(0);

            fn values(values: &[Self]) -> Values<'_> {
                Values::$variant(values)
            }

            fn values_mut(values: &mut [Self]) -> ValuesMut<'_> {
                ValuesMut::$variant(values)
            }
        }
    )+};
}

elements! {
    f32, F32;
    f16, F16;
    bf16, Bf16;
}

impl<'a> Values<'a> {
    /// To be asked for: not more of them than `most`.
    pub(crate) fn ahead(self, most: usize) -> Ahead {
        match self {
            Self::F32(values) => Ahead::new(&values[..most.min(values.len())]),
            Self::F16(values) => Ahead::new(&values[..most.min(values.len())]),
            Self::Bf16(values) => Ahead::new(&values[..most.min(values.len())]),
        }
    }

    /// The values as f32: the slice itself where it already is, otherwise converted into `buffer`.
    pub(crate) fn widened(self, buffer: &'a mut Vec<f32>) -> &'a [f32] {
        match self {
            Self::F32(values) => return values,
            Self::F16(values) => {
                buffer.resize(values.len(), 0.0);
                values.convert_to_f32_slice(buffer);
            }
            Self::Bf16(values) => {
                buffer.resize(values.len(), 0.0);
                values.convert_to_f32_slice(buffer);
            }
        }
        buffer
    }

    /// How many there are.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }
}

impl ValuesMut<'_> {
    /// The same for a while.
    pub(crate) fn reborrow(&mut self) -> ValuesMut<'_> {
        match self {
            Self::F32(values) => ValuesMut::F32(values),
            Self::F16(values) => ValuesMut::F16(values),
            Self::Bf16(values) => ValuesMut::Bf16(values),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// To be asked for.
    pub(crate) fn ahead(&self) -> Ahead {
        match self {
            Self::F32(values) => Ahead::new(values),
            Self::F16(values) => Ahead::new(values),
            Self::Bf16(values) => Ahead::new(values),
        }
    }

    /// Where they lie.
    pub(crate) fn address(&self) -> *const u8 {
        match self {
            Self::F32(values) => values.as_ptr().cast(),
            Self::F16(values) => values.as_ptr().cast(),
            Self::Bf16(values) => values.as_ptr().cast(),
        }
    }

    /// Makes all of them the same.
    pub(crate) fn fill(&mut self, value: f32) {
        match self {
            Self::F32(values) => values.fill(value),
            Self::F16(values) => values.fill(f16::from_f32(value)),
            Self::Bf16(values) => values.fill(bf16::from_f32(value)),
        }
    }

    /// Replaces as many values as both have, or adds to them in f32: rounded to nearest, ties to
    /// even; beyond the range to infinity.
    pub(crate) fn put(&mut self, from: &[f32], add: bool) {
        /// Sums that are converted at once.
        const PIECE: usize = 256;
        fn halves<H>(values: &mut [H], from: &[f32], add: bool)
        where
            [H]: HalfFloatSliceExt,
        {
            let length = from.len().min(values.len());
            if !add {
                return values[..length].convert_from_f32_slice(&from[..length]);
            }
            for (from, out) in from[..length].chunks(PIECE).zip(values[..length].chunks_mut(PIECE)) {
                let mut sums = [0.0; PIECE];
                out.convert_to_f32_slice(&mut sums[..from.len()]);
                sums.iter_mut().zip(from).for_each(|(sum, value)| *sum += value);
                out.convert_from_f32_slice(&sums[..from.len()]);
            }
        }
        match self {
            Self::F32(values) if add => values.iter_mut().zip(from).for_each(|(to, value)| *to += value),
            Self::F32(values) => values.iter_mut().zip(from).for_each(|(to, value)| *to = *value),
            Self::F16(values) => halves(values, from, add),
            Self::Bf16(values) => halves(values, from, add),
        }
    }
}
