// SPDX-License-Identifier: Apache-2.0
//! Wakes a thread that waits for frames, and tells the time.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Wakes a driver after the control plane has changed something.
#[derive(Debug, Clone)]
pub struct Waker(Arc<UnixStream>);

impl Waker {
    /// Makes the driver look at the switch soon. Never blocks: a full pipe is as good as a woken
    /// driver.
    pub fn wake(&self) {
        let _ = (&*self.0).write(&[0]);
    }
}

/// What is readable when its waker was used.
pub(super) fn waker() -> io::Result<(UnixStream, Waker)> {
    let (woken, waker) = UnixStream::pair()?;
    woken.set_nonblocking(true)?;
    waker.set_nonblocking(true)?;
    Ok((woken, Waker(Arc::new(waker))))
}

/// The system's clock.
#[expect(clippy::disallowed_methods, reason = "the driver is where the real clock comes in")]
pub(super) fn unix_time_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
