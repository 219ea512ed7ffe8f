// SPDX-License-Identifier: Apache-2.0
//! Who is let in: so many connections at a time, and only those that say something; and how much
//! of the server's time what they say may take.

use super::limits::Limits;
use super::peer::Peer;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// What HTTP/2 begins with (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Pause after the system refused to accept, for want of files mostly: trying at once again would
/// keep a core busy.
const PAUSE: Duration = Duration::from_millis(100);
/// Places beyond the limit for those who come when all are taken. The latest take them from each
/// other, so that a controller always has time to show its certificate, or to bid.
const TRIALS: usize = 8;

/// Bytes that are read of a connection before others have their turn. An empty SETTINGS takes nine,
/// and some microseconds.
const TURN: usize = 4 << 10;
/// Bytes that a connection may send and no call makes use of (PINGs, SETTINGS, headers of calls
/// that are reset): so many at once, which is more than HTTP/2 takes in before anybody looks at it,
/// and so many a second.
const OVERHEAD: u64 = 256 << 10;
const OVERHEAD_A_SECOND: u64 = 16 << 10;
/// The runtime's timers are not finer, and a client's time is not worth more.
const NAP: Duration = Duration::from_millis(20);

/// All connections, oldest first.
#[derive(Debug, Clone, Default)]
struct Open(Arc<Mutex<Vec<Arc<Peer>>>>);

impl Open {
    /// Takes a place for a client. When there is none, the connection without calls that has been
    /// idle for longest loses its own; or else the oldest of those that came when all were taken.
    fn admit(&self, peer: &Arc<Peer>, most: usize) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= most + TRIALS {
            let idle = open.iter().enumerate().filter_map(|(at, peer)| Some((peer.idle_since()?, at)));
            let idle = idle.min().map(|(_, at)| at);
            let trial = || (most..open.len()).find(|at| open.get(*at).is_some_and(|peer| !peer.has_lane()));
            let Some(out) = idle.or_else(trial) else { return false };
            open.remove(out).close();
        }
        open.push(Arc::clone(peer));
        true
    }

    fn leave(&self, peer: &Arc<Peer>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, peer));
    }
}

/// A client's place, until it is dropped.
#[derive(Debug)]
struct Place(Open, Arc<Peer>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leave(&self.1);
    }
}

/// A connection, which counts until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    place: Place,
    meter: Meter,
}

/// Accepts for as long as somebody takes. With TLS who begins a handshake is let in; its end is the
/// server's business.
pub(super) fn accept(
    listener: TcpListener,
    limits: Arc<Limits>,
    tls: bool,
) -> ReceiverStream<io::Result<Connection>> {
    let (accepted, connections) = mpsc::channel(1);
    let open = Open::default();
    tokio::spawn(async move {
        while !accepted.is_closed() {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("cannot accept a P4Runtime connection: {error}");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let peer = Peer::new(&limits);
            if !open.admit(&peer, limits.connections.max(1)) {
                continue;
            }
            let (accepted, patience) = (accepted.clone(), limits.patience);
            let place = Place(open.clone(), peer);
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let greeted = tokio::select! {
                    () = ended(&place.1) => return,
                    greeted = tokio::time::timeout(patience, greets(&stream, tls)) => greeted,
                };
                if matches!(greeted, Ok(Ok(true))) {
                    let _ = accepted.send(Ok(Connection { stream, place, meter: Meter::new() })).await;
                }
            });
        }
    });
    ReceiverStream::new(connections)
}

/// When the connection has been closed.
async fn ended(peer: &Peer) {
    poll_fn(|cx| if peer.check(cx).is_err() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Whether a client begins as it should.
async fn greets(stream: &TcpStream, tls: bool) -> io::Result<bool> {
    let expected = if tls { &PREFACE[..1] } else { PREFACE };
    let mut bytes = [0; PREFACE.len()];
    loop {
        let came = stream.peek(&mut bytes[..expected.len()]).await?;
        // A handshake's first byte is 22; what it is not, TLS will say.
        if came == 0 || (!tls && bytes[..came] != expected[..came]) {
            return Ok(false);
        }
        if came == expected.len() {
            return Ok(true);
        }
        // What has been looked at stays readable, so that readiness says nothing about more.
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// What a connection has sent of late.
#[derive(Debug)]
struct Meter {
    /// Bytes since others had their turn.
    turn: usize,
    /// Bytes that no call has made use of, less what time has forgiven.
    overhead: u64,
    at: Instant,
    nap: Option<Pin<Box<Sleep>>>,
}

impl Meter {
    fn new() -> Self {
        Self { turn: 0, overhead: 0, at: Instant::now(), nap: None }
    }

    /// Ready when the connection may be read from.
    fn poll(&mut self, cx: &mut Context<'_>, peer: &Peer) -> Poll<()> {
        if self.turn >= TURN {
            self.turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            if let Some(nap) = &mut self.nap {
                ready!(nap.as_mut().poll(cx));
                self.nap = None;
            }
            let now = Instant::now();
            let forgiven = now.duration_since(self.at).as_millis() as u64 * OVERHEAD_A_SECOND / 1_000;
            if forgiven > 0 {
                self.at = now;
            }
            self.overhead = self.overhead.saturating_sub(forgiven).saturating_sub(peer.take_earned());
            if peer.has_lane() {
                self.overhead = 0;
            }
            if self.overhead <= OVERHEAD {
                return Poll::Ready(());
            }
            self.nap = Some(Box::pin(tokio::time::sleep(NAP)));
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Arc<Peer>;

    fn connect_info(&self) -> Arc<Peer> {
        Arc::clone(&self.place.1)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, place: Place(_, peer), meter } = &mut *self;
        peer.check(cx)?;
        ready!(meter.poll(cx, peer));
        let most = buffer.remaining().min(TURN);
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
        let read = Pin::new(stream).poll_read(cx, &mut part);
        let came = part.filled().len();
        buffer.advance(came);
        meter.turn = if read.is_pending() { 0 } else { meter.turn + came };
        meter.overhead += came as u64;
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // A client that takes nothing in keeps its connection from being read.
        self.place.1.check(cx)?;
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.place.1.block(written.is_pending());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.place.1.sent();
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.place.1.check(cx)?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.place.1.block(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
