//! The number formats that gradients come in.

use half::slice::HalfFloatSliceExt;

/// A gradient's number format. All of them are encoded by way of f32, which holds every value of the narrow ones.
pub trait Element: Copy + Send + Sync + private::Sealed {
    /// The values as f32: the slice itself where it already is, otherwise converted into `buffer`.
    #[doc(hidden)]
    fn widen<'a>(values: &'a [Self], buffer: &'a mut Vec<f32>) -> &'a [f32];

    /// The values, if they are f32.
    #[doc(hidden)]
    fn as_f32(_: &[Self]) -> &[f32] {
        &[]
    }
}

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

impl Element for f32 {
    #[inline]
    fn widen<'a>(values: &'a [Self], _: &'a mut Vec<f32>) -> &'a [f32] {
        values
    }

    fn as_f32(values: &[Self]) -> &[f32] {
        values
    }
}

impl Element for half::f16 {
    fn widen<'a>(values: &'a [Self], buffer: &'a mut Vec<f32>) -> &'a [f32] {
        buffer.resize(values.len(), 0.0);
        values.convert_to_f32_slice(buffer);
        buffer
    }
}

impl Element for half::bf16 {
    fn widen<'a>(values: &'a [Self], buffer: &'a mut Vec<f32>) -> &'a [f32] {
        buffer.resize(values.len(), 0.0);
        values.convert_to_f32_slice(buffer);
        buffer
    }
}
