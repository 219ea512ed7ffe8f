// SPDX-License-Identifier: Apache-2.0
//! The client at the other end of a connection.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use tokio::sync::Semaphore;

/// What a connection's requests share, and how they end it.
#[derive(Debug)]
pub(super) struct Peer {
    /// Room for requests, in KiB.
    pub(super) memory: Arc<Semaphore>,
    /// Places for Reads: a quarter of the server's, so that one connection does not have them all.
    pub(super) reads: Arc<Semaphore>,
    closed: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

impl Peer {
    /// `bytes` of requests, and so many Reads at a time.
    pub(super) fn new(bytes: usize, reads: usize) -> Arc<Self> {
        let memory = Arc::new(Semaphore::new(bytes.div_ceil(1 << 10)));
        let reads = Arc::new(Semaphore::new(reads));
        Arc::new(Self { memory, reads, closed: AtomicBool::new(false), reader: Mutex::default() })
    }

    /// Ends the connection, with all that it has open.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Some(waker) = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }

    /// An error once the connection has been closed; until then whoever reads is woken when it is.
    pub(super) fn check(&self, cx: &Context<'_>) -> io::Result<()> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if self.closed.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !reader.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *reader = Some(cx.waker().clone());
        }
        Ok(())
    }
}
