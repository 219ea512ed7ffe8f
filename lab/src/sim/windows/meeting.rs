// SPDX-License-Identifier: Apache-2.0
//! Where threads wait for each other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Looks before the processor is left to others. A window takes microseconds, less than sleeping
/// and being woken.
const LOOKS: u32 = 10_000;

/// A barrier whose threads stay awake, and that nobody waits at for a thread that has panicked.
#[derive(Debug)]
pub(super) struct Meeting {
    threads: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    abandoned: AtomicBool,
}

/// A thread that others wait for.
pub(super) struct Attendance<'a>(&'a Meeting);

impl Meeting {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            abandoned: AtomicBool::new(false),
        }
    }

    /// To be kept by every thread for as long as it may be waited for.
    pub(super) fn attend(&self) -> Attendance<'_> {
        Attendance(self)
    }

    /// Waits until all are here. `false`: one will not come.
    pub(super) fn wait(&self) -> bool {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            return true;
        }
        let mut looks = 0;
        while self.round.load(Ordering::Acquire) == round {
            if self.abandoned.load(Ordering::Acquire) {
                return false;
            }
            if looks < LOOKS {
                looks += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        true
    }
}

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abandoned.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_goes_on_before_all_are_there() {
        const ROUNDS: usize = 1_000;
        let (meeting, met) = (Meeting::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=ROUNDS {
                        met.fetch_add(1, Ordering::SeqCst);
                        assert!(meeting.wait());
                        assert!(met.load(Ordering::SeqCst) >= 3 * round);
                    }
                });
            }
        });
        assert_eq!(met.into_inner(), 3 * ROUNDS);
    }

    #[test]
    fn a_thread_that_panics_is_not_waited_for() {
        let meeting = Meeting::new(2);
        std::thread::scope(|scope| {
            let lost = scope.spawn(|| {
                let _attends = meeting.attend();
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(!meeting.wait());
            assert!(lost.join().is_err());
        });
    }
}
