// SPDX-License-Identifier: Apache-2.0
//! The driver at work on veth pairs in a network namespace of the calling thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trimwire_bmv2_tests::process::poll;
use trimwire_bmv2_tests::{FrameSocket, namespace};
use trimwire_switch::SharedSwitch;
use trimwire_switch::driver::{Attachment, Driver};

pub(crate) use trimwire_bmv2_tests::namespace::{ip, isolate};

/// Pairs `sN` (the switch's side) and `hN` (the far end) for ports 0 to `ports - 1`, up.
pub(crate) fn veth_pairs(ports: u16) -> Vec<Attachment> {
    namespace::veth_pairs(ports);
    (0..ports).map(|port| Attachment { port, interface: format!("s{port}") }).collect()
}

#[expect(clippy::disallowed_methods, reason = "these tests run on the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Polls until `done` says so; fails after ten seconds.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    poll(what, Duration::from_secs(10), || Ok(done().then_some(()))).unwrap();
}

/// A far end: every frame on its interface, and nothing but frames.
pub(crate) struct Wire(FrameSocket);

impl Wire {
    pub(crate) fn open(interface: &str) -> Self {
        Self(FrameSocket::open_here(interface).unwrap())
    }

    pub(crate) fn send(&self, frame: &[u8]) -> bool {
        self.0.send(frame).is_ok()
    }

    /// The next frame; `None` after `wait_ms` without one.
    pub(crate) fn receive(&self, wait_ms: u64) -> Option<Vec<u8>> {
        self.0.receive_within(Duration::from_millis(wait_ms)).unwrap()
    }
}

/// A driver at work on a thread.
pub(crate) struct Running {
    pub(crate) switch: SharedSwitch,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Driver>>,
}

impl Running {
    pub(crate) fn start(switch: SharedSwitch, attachments: Vec<Attachment>) -> Self {
        Self::with_threads(1, switch, attachments)
    }

    pub(crate) fn with_threads(threads: usize, switch: SharedSwitch, attachments: Vec<Attachment>) -> Self {
        let mut driver = Driver::new(switch.clone(), attachments).unwrap();
        driver.set_threads(threads);
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let thread = std::thread::spawn(move || {
            driver.run(&flag).unwrap();
            driver
        });
        Self { switch, stop, thread: Some(thread) }
    }

    /// Stops it; the driver's counters can then be read.
    pub(crate) fn stop(mut self) -> Driver {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
