// SPDX-License-Identifier: Apache-2.0
//! The client at the other end of a connection.

use super::limits::Limits;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::Semaphore;
use tonic::codegen::http::Extensions;
use tonic::transport::server::TlsConnectInfo;

/// RPCs and streams that a connection may have open; HTTP/2 holds the others back.
pub(super) const CALLS: usize = 64;

/// Bytes of answers that may wait for a connection's client.
const UNSENT: usize = 128 << 10;

/// What has been made for a client and is not on its socket yet.
#[derive(Debug, Default)]
struct Unsent {
    /// Of answers, at least since all had been sent.
    bytes: usize,
    /// The socket takes no more.
    blocked: bool,
    /// Answers that wait.
    waiting: Vec<Waker>,
}

/// What a connection's requests share, and how they end it.
#[derive(Debug)]
pub(super) struct Peer {
    /// Room for requests, in KiB: a quarter of what everybody has.
    pub(super) memory: Arc<Semaphore>,
    /// Places for Reads: a quarter of the server's, so that one connection does not have them all.
    pub(super) reads: Arc<Semaphore>,
    /// Places for calls.
    pub(super) calls: Arc<Semaphore>,
    /// Its certificate is a controller's.
    named: AtomicBool,
    /// Its streams that are primary of a role that has a lane.
    primaries: AtomicUsize,
    /// When it last made a call: a number that grows from call to call.
    used: AtomicU64,
    /// Bytes that calls have made of what came, since [`Self::take_earned`].
    earned: AtomicU64,
    unsent: Mutex<Unsent>,
    closed: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

impl Peer {
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let places = |count| Arc::new(Semaphore::new(count));
        let peer = Self {
            memory: places(limits.memory_of_one().div_ceil(1 << 10)),
            reads: places(super::gate::READS_OF_ONE as usize),
            calls: places(CALLS),
            named: AtomicBool::new(false),
            primaries: AtomicUsize::new(0),
            used: AtomicU64::new(0),
            earned: AtomicU64::new(0),
            unsent: Mutex::default(),
            closed: AtomicBool::new(false),
            reader: Mutex::default(),
        };
        peer.touch();
        Arc::new(peer)
    }

    /// Whose request it is, where its connection was accepted here.
    pub(super) fn of(extensions: &Extensions) -> Option<Arc<Self>> {
        let plain = extensions.get::<Arc<Self>>();
        let inside = || extensions.get::<TlsConnectInfo<Arc<Self>>>().map(TlsConnectInfo::get_ref);
        plain.or_else(inside).cloned()
    }

    /// Whether it has what strangers cannot take: it is primary, or has a controller's certificate.
    pub(super) fn has_lane(&self) -> bool {
        self.named.load(Relaxed) || self.primaries.load(Relaxed) > 0
    }

    /// Its certificate is a controller's.
    pub(super) fn name(&self) {
        self.named.store(true, Relaxed);
    }

    /// It makes a call.
    pub(super) fn touch(&self) {
        static CALLS_SO_FAR: AtomicU64 = AtomicU64::new(0);
        self.used.store(CALLS_SO_FAR.fetch_add(1, Relaxed), Relaxed);
    }

    /// When it last made a call, if none is open and others may have its place.
    pub(super) fn idle_since(&self) -> Option<u64> {
        (!self.has_lane() && self.calls.available_permits() == CALLS).then(|| self.used.load(Relaxed))
    }

    /// Calls have made use of so many bytes.
    pub(super) fn earn(&self, bytes: usize) {
        self.earned.fetch_add(bytes as u64, Relaxed);
    }

    /// What [`Self::earn`] has added up to.
    pub(super) fn take_earned(&self) -> u64 {
        self.earned.swap(0, Relaxed)
    }

    /// Ready when an answer may go on.
    pub(super) fn poll_unsent(&self, cx: &Context<'_>) -> Poll<()> {
        let mut unsent = self.unsent();
        if !unsent.blocked && unsent.bytes <= UNSENT {
            return Poll::Ready(());
        }
        if !unsent.waiting.iter().any(|known| known.will_wake(cx.waker())) {
            unsent.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// So many bytes of an answer are on their way.
    pub(super) fn send(&self, bytes: usize) {
        self.unsent().bytes += bytes;
    }

    /// Whether the client's socket takes no more.
    pub(super) fn block(&self, blocked: bool) {
        self.unsent().blocked = blocked;
    }

    /// All that HTTP/2 might send has been sent, or is of no use any more: answers go on, unless
    /// the client's socket takes nothing.
    pub(super) fn sent(&self) {
        let unsent = &mut *self.unsent();
        if !unsent.blocked {
            unsent.bytes = 0;
            unsent.waiting.drain(..).for_each(Waker::wake);
        }
    }

    fn unsent(&self) -> MutexGuard<'_, Unsent> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection, with all that it has open.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
        if let Some(waker) = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }

    /// An error once the connection has been closed; until then whoever reads is woken when it is.
    pub(super) fn check(&self, cx: &Context<'_>) -> io::Result<()> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if self.closed.load(Relaxed) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !reader.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *reader = Some(cx.waker().clone());
        }
        Ok(())
    }
}

/// A primary's lane, for as long as it is one.
#[derive(Debug)]
pub(super) struct Lane(Arc<Peer>);

impl Lane {
    pub(super) fn new(peer: &Arc<Peer>) -> Self {
        peer.primaries.fetch_add(1, Relaxed);
        Self(Arc::clone(peer))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.0.primaries.fetch_sub(1, Relaxed);
    }
}
