// SPDX-License-Identifier: Apache-2.0
//! Ending another thread's wait for sockets.
#![forbid(unsafe_code)]

use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// Nobody waits.
const IDLE: u8 = 0;
/// Somebody waits: who wakes them writes to the descriptor, which is a system call.
const WAITING: u8 = 1;
/// Somebody was woken who did not wait: they are not to begin.
const WOKEN: u8 = 2;

/// A descriptor that can be read once somebody has called [`Self::wake`] during a wait. For one
/// waiting thread and any number of others.
#[derive(Debug)]
pub struct Wake {
    event: EventFd,
    state: AtomicU8,
}

impl Wake {
    /// # Errors
    /// When the system refuses a descriptor.
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { event, state: AtomicU8::new(IDLE) })
    }

    /// A wait is about to begin. `false`: not now, there is news since the last one ended.
    pub fn prepare(&self) -> bool {
        let begun = self.state.compare_exchange(IDLE, WAITING, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !begun {
            self.state.store(IDLE, Ordering::SeqCst);
        }
        begun
    }

    /// The wait is over. To be called before looking for news.
    pub fn clear(&self) {
        self.state.store(IDLE, Ordering::SeqCst);
        // Nothing there is the usual case.
        let _ = self.event.read();
    }

    /// Ends the wait, or keeps the next one from beginning.
    pub fn wake(&self) {
        if self.state.swap(WOKEN, Ordering::SeqCst) == WAITING {
            // Refused only where it counts to 2^64.
            let _ = self.event.write(1);
        }
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::waiting::wait;
    use super::*;
    use std::sync::Arc;

    const LONG_NS: u64 = 600_000_000_000;

    #[test]
    fn who_was_woken_before_does_not_wait_and_who_waits_is_woken() {
        let wake = Arc::new(Wake::new().expect("a descriptor"));
        wake.wake();
        assert!(!wake.prepare() && wake.prepare());
        wake.clear();
        for _ in 0..100 {
            let other = Arc::clone(&wake);
            let thread = std::thread::spawn(move || other.wake());
            if wake.prepare() {
                wait(std::iter::once(wake.as_fd()), std::iter::empty(), LONG_NS, 0).expect("waits");
                wake.clear();
            }
            thread.join().expect("ends");
            // What was written late, or nothing.
            wake.clear();
        }
    }
}
