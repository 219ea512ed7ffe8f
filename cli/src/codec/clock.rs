// SPDX-License-Identifier: Apache-2.0
//! Time, as measurements see it: seconds, and the processor's time-stamp counter beside them.

use std::time::Instant;

/// How long a piece of work took.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub(crate) struct Span {
    /// Seconds.
    pub seconds: f64,
    /// Ticks of the time-stamp counter; 0 where there is none.
    pub ticks: u64,
}

/// Times `work`.
#[expect(clippy::disallowed_methods, reason = "a measurement of real time is the point")]
pub(crate) fn time(work: impl FnOnce()) -> Span {
    let (start, ticks) = (Instant::now(), ticks());
    work();
    let ticks = self::ticks().wrapping_sub(ticks);
    Span { seconds: start.elapsed().as_secs_f64(), ticks }
}

/// Whether ticks mean something here.
pub(crate) const HAS_TICKS: bool = cfg!(target_arch = "x86_64");

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn ticks() -> u64 {
    // SAFETY: RDTSC has no operands and touches no memory; every x86-64 processor has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}
