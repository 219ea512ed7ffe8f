// SPDX-License-Identifier: Apache-2.0
//! Memory that will be asked for soon.

/// Bytes that memory moves at once, on most machines.
const LINE: usize = 64;

/// Memory that is brought closer while other memory is worked on, where the machine can be asked
/// for that.
///
/// A row is worked on for tens of microseconds within the second-level cache. Meanwhile the memory
/// stands idle, unless it is told what comes next. It is told a line at a time, all the way: a
/// processor waits for only some twenty lines at once, and requests that come together get in the
/// way of the work's own. Nothing is borrowed: who asks reads nothing.
pub(crate) struct Ahead {
    next: *const i8,
    lines: usize,
}

impl Ahead {
    /// Of memory that will be read or written.
    #[inline]
    pub(crate) fn new<T>(memory: &[T]) -> Self {
        Self { next: memory.as_ptr().cast(), lines: size_of_val(memory).div_ceil(LINE) }
    }

    /// The earlier half, and the later one.
    #[inline]
    pub(crate) fn halves(&self) -> [Self; 2] {
        let lines = self.lines / 2;
        let later = self.next.wrapping_add(lines * LINE);
        [Self { next: self.next, lines }, Self { next: later, lines: self.lines - lines }]
    }

    /// Nothing to ask for.
    #[inline]
    pub(crate) const fn none() -> Self {
        Self { next: std::ptr::null(), lines: 0 }
    }

    /// Whether there is nothing to ask for.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// Asks for the next line, if there is one. Nothing else happens.
    #[inline(always)]
    pub(crate) fn line(&mut self) {
        if self.lines > 0 {
            self.ask(1);
        }
    }

    /// Asks for the next lines, as many as there are.
    #[inline(always)]
    pub(crate) fn lines(&mut self, count: usize) {
        self.ask(count.min(self.lines));
    }

    /// Asks for all that is left.
    #[inline(always)]
    pub(crate) fn rest(&mut self) {
        self.ask(self.lines);
    }

    /// `count` is not more than there are.
    #[inline(always)]
    fn ask(&mut self, count: usize) {
        for _ in 0..count {
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

                // To the second-level cache: the first has no room for what is not needed yet.
                // SAFETY: a prefetch is a hint; it reads nothing that could be seen, whatever the
                // address.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(self.next) };
            }
            // The intrinsic is not stable (1.95).
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            unsafe {
                std::arch::asm!("prfm pldl2keep, [{}]", in(reg) self.next, options(nostack, preserves_flags, readonly));
            }
            self.next = self.next.wrapping_add(LINE);
        }
        self.lines -= count;
    }
}
