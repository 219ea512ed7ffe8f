//! Memory that will be asked for soon.

use crate::packet::BLOCK;

/// Coordinates whose memory is brought closer while others are worked on, where the machine can be asked for that.
///
/// A row is worked on for tens of microseconds within the second-level cache. Meanwhile the memory stands idle, unless it is told
/// what comes next. It is told a block at a time: a processor waits for only some twenty lines at once, and requests that come
/// together get in the way of the work's own.
#[derive(Clone)]
pub(crate) struct Ahead<'a>(std::slice::Iter<'a, [f32; BLOCK]>);

impl<'a> Ahead<'a> {
    #[inline]
    pub(crate) fn new(values: &'a [f32]) -> Self {
        Self(values.as_chunks().0.iter())
    }

    /// Asks for the next block, if there is one. Nothing else happens.
    #[inline(always)]
    pub(crate) fn block(&mut self) {
        let block = self.0.next();
        #[cfg(target_arch = "x86_64")]
        if let Some(block) = block {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

            const LINE: usize = 64;
            let start = block.as_ptr().cast::<i8>();
            for offset in (0..size_of_val(block)).step_by(LINE) {
                // SAFETY: a prefetch is a hint that reads nothing; besides, the address is within the block.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(offset)) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = block;
    }
}
