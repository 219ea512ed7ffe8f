// SPDX-License-Identifier: Apache-2.0
//! How clients' work and packets take turns at the switch's lock.
//!
//! Whoever waits for a lock that is free for a moment only does not get it: it has to be woken
//! first. So work is done in slices, with a pause behind each; and where packets came meanwhile,
//! the work takes a twentieth of the time at most.

use crate::Switch;
use std::time::{Duration, Instant};

/// Longest slice of work that can be interrupted.
const SLICE: Duration = Duration::from_micros(250);
/// Time in which a thread that waits for the lock gets it.
const HAND_OVER: Duration = Duration::from_micros(20);
/// How much longer a pause is than the slice before it while packets come.
const PACKETS_SHARE: u32 = 19;

/// The turns of one call.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Frames that had been received at the end of the last slice.
    frames: Option<u64>,
    busy: bool,
}

/// A slice that has begun, under the lock.
#[derive(Debug)]
pub(super) struct Slice(Instant);

impl Slice {
    /// Whether it has taken its time.
    pub(super) fn is_over(&self) -> bool {
        self.0.elapsed() >= SLICE
    }
}

impl Pace {
    /// A slice begins; the caller has just taken the lock.
    #[expect(clippy::disallowed_methods, reason = "slices are by the server's clock")]
    pub(super) fn begin(&mut self, switch: &Switch) -> Slice {
        self.busy = self.frames.is_some_and(|frames| frames != switch.stats().received);
        Slice(Instant::now())
    }

    /// A slice ends; the caller gives the lock back next. How long to rest then, with [`rest`].
    pub(super) fn end(&mut self, slice: &Slice, switch: &Switch) -> Duration {
        self.frames = Some(switch.stats().received);
        if self.busy { slice.0.elapsed() * PACKETS_SHARE } else { Duration::ZERO }
    }
}

/// Leaves the lock to others for so long. The caller holds none.
pub(super) async fn rest(time: Duration) {
    if time < Duration::from_millis(1) {
        // The runtime's clock is too coarse, and nobody else has anything to do in so short a time.
        std::thread::sleep(time.max(HAND_OVER));
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(time).await;
    }
}
