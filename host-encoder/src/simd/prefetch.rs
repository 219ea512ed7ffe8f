//! Memory that will be asked for soon.

/// Has the memory of `values` brought closer, where the machine can be asked for that; nothing else happens.
///
/// A row is worked on for tens of microseconds within the second-level cache. Meanwhile the memory stands idle, unless it is
/// told what the next row is.
#[inline(always)]
pub(crate) fn prefetch<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        const LINE: usize = 64;
        let start = values.as_ptr().cast::<i8>();
        for offset in (0..size_of_val(values)).step_by(LINE) {
            // SAFETY: a prefetch is a hint that reads nothing; besides, the address is within the slice.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}
