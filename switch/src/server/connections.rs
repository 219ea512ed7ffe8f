// SPDX-License-Identifier: Apache-2.0
//! Who is let in: so many connections at a time, and only those that say something.

use super::limits::Limits;
use super::peer::Peer;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// What HTTP/2 begins with (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Pause after the system refused to accept, for want of files mostly: trying at once again would
/// keep a core busy.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection, which counts until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    peer: Arc<Peer>,
    _place: OwnedSemaphorePermit,
}

/// Accepts for as long as somebody takes. With TLS who begins a handshake is let in; its end is the
/// server's business.
pub(super) fn accept(
    listener: TcpListener,
    limits: Arc<Limits>,
    tls: bool,
) -> ReceiverStream<io::Result<Connection>> {
    let (accepted, connections) = mpsc::channel(1);
    let (most, greeting) = (limits.connections.max(1), limits.greeting);
    let places = Arc::new(Semaphore::new(most));
    tokio::spawn(async move {
        let mut full = false;
        while !accepted.is_closed() {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("cannot accept a P4Runtime connection: {error}");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                if !std::mem::replace(&mut full, true) {
                    tracing::warn!("{most} P4Runtime connections are open; more are closed at once");
                }
                continue;
            };
            full = false;
            let accepted = accepted.clone();
            let peer = Peer::new(limits.connection_bytes, limits.reads_of_one());
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let greeted = tokio::time::timeout(greeting, greets(&stream, tls)).await;
                if matches!(greeted, Ok(Ok(true))) {
                    let _ = accepted.send(Ok(Connection { stream, peer, _place: place })).await;
                }
            });
        }
    });
    ReceiverStream::new(connections)
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

impl Connected for Connection {
    type ConnectInfo = Arc<Peer>;

    fn connect_info(&self) -> Arc<Peer> {
        Arc::clone(&self.peer)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.peer.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
