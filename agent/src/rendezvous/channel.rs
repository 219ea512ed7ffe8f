// SPDX-License-Identifier: Apache-2.0
//! A connection between a rank and rank 0: frames over TCP, or over TLS, until a deadline.
#![forbid(unsafe_code)]

use super::frame::{self, FrameError, HEAD_LEN, Kind};
use super::proof::PROOF_LEN;
use crate::driver::Clock;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Label of a connection's own value (RFC 9266 §4).
const BINDING: &[u8] = b"EXPORTER-Channel-Binding";
/// What is read of a connection that has failed, so that what it was told last is not lost with it.
const DRAIN: usize = 64 << 10;
const DRAIN_NS: u64 = 500_000_000;

/// Why a connection is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChannelError {
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// The other side's certificate or protocol; its text has no control characters.
    #[error("does not agree on TLS: {0}")]
    Tls(String),
    #[error("{}", describe(.0))]
    Io(#[from] io::Error),
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "hung up".to_owned(),
        io::ErrorKind::TimedOut => "said nothing in time".to_owned(),
        _ => error.to_string(),
    }
}

/// A socket whose every call ends at a deadline.
#[derive(Debug)]
struct Timed {
    tcp: TcpStream,
    clock: Clock,
    deadline_ns: u64,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        match self.deadline_ns.saturating_sub(self.clock.now_ns()) {
            0 => Err(io::ErrorKind::TimedOut.into()),
            // The system takes a time-out of less than a microsecond for none.
            left_ns => Ok(Duration::from_nanos(left_ns.max(1_000))),
        }
    }
}

/// EAGAIN is what a socket's time-out is called.
fn timed(result: io::Result<usize>) -> io::Result<usize> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(Some(self.left()?))?;
        timed(self.tcp.read(bytes))
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(Some(self.left()?))?;
        timed(self.tcp.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

#[derive(Debug)]
enum Stream {
    Plain(Timed),
    Server(Box<StreamOwned<ServerConnection, Timed>>),
    Client(Box<StreamOwned<ClientConnection, Timed>>),
}

trait Both: Read + Write {}
impl<T: Read + Write> Both for T {}

/// A connection on which nothing is under way.
#[derive(Debug)]
pub(super) struct Channel(Stream);

impl Channel {
    /// Rank 0's end, without TLS.
    pub(super) fn accept(tcp: TcpStream, clock: Clock, deadline_ns: u64) -> Result<Self, ChannelError> {
        tcp.set_nonblocking(false)?;
        let _ = tcp.set_nodelay(true);
        Ok(Self(Stream::Plain(Timed { tcp, clock, deadline_ns })))
    }

    /// Another rank's end. With `tls` the handshake is over when this returns.
    pub(super) fn connect(
        tcp: TcpStream,
        tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
        clock: Clock,
        deadline_ns: u64,
    ) -> Result<Self, ChannelError> {
        let _ = tcp.set_nodelay(true);
        let mut tcp = Timed { tcp, clock, deadline_ns };
        let Some((config, name)) = tls else { return Ok(Self(Stream::Plain(tcp))) };
        let connection = ClientConnection::new(config, name);
        let mut connection = connection.map_err(|error| ChannelError::Tls(error.to_string()))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut tcp).map_err(of_tls)?;
        }
        Ok(Self(Stream::Client(Box::new(StreamOwned::new(connection, tcp)))))
    }

    /// The first byte that the other end of a connection without TLS sends, which stays unread.
    pub(super) fn first(&mut self) -> Result<u8, ChannelError> {
        let (tcp, mut first) = (self.timed(), [0]);
        tcp.tcp.set_read_timeout(Some(tcp.left()?))?;
        match timed(tcp.tcp.peek(&mut first))? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            _ => Ok(first[0]),
        }
    }

    /// Goes on over TLS, as the server; the handshake is over when this returns.
    pub(super) fn secure(self, config: Arc<ServerConfig>) -> Result<Self, ChannelError> {
        let Stream::Plain(mut tcp) = self.0 else { return Ok(self) };
        let connection = ServerConnection::new(config);
        let mut connection = connection.map_err(|error| ChannelError::Tls(error.to_string()))?;
        while connection.is_handshaking() {
            if let Err(error) = connection.complete_io(&mut tcp) {
                drain(&mut tcp);
                return Err(of_tls(error));
            }
        }
        Ok(Self(Stream::Server(Box::new(StreamOwned::new(connection, tcp)))))
    }

    fn timed(&mut self) -> &mut Timed {
        match &mut self.0 {
            Stream::Plain(tcp) => tcp,
            Stream::Server(tls) => &mut tls.sock,
            Stream::Client(tls) => &mut tls.sock,
        }
    }

    fn both(&mut self) -> &mut dyn Both {
        match &mut self.0 {
            Stream::Plain(tcp) => tcp,
            Stream::Server(tls) => tls.as_mut(),
            Stream::Client(tls) => tls.as_mut(),
        }
    }

    /// What only the two ends of this connection know; `None` without TLS.
    pub(super) fn binding(&self) -> Option<[u8; PROOF_LEN]> {
        let none = [0; PROOF_LEN];
        match &self.0 {
            Stream::Plain(_) => None,
            Stream::Server(tls) => tls.conn.export_keying_material(none, BINDING, None).ok(),
            Stream::Client(tls) => tls.conn.export_keying_material(none, BINDING, None).ok(),
        }
    }

    /// From now on everything has to be over by then.
    pub(super) fn set_deadline(&mut self, deadline_ns: u64) {
        self.timed().deadline_ns = deadline_ns;
    }

    pub(super) fn send(&mut self, kind: Kind, body: &[u8]) -> Result<(), ChannelError> {
        if body.len() > kind.most() {
            let (length, most) = (body.len() as u32, kind.most());
            return Err(FrameError::Length { length, most }.into());
        }
        let frame = [&frame::head(kind, body.len())[..], body].concat();
        let stream = self.both();
        stream.write_all(&frame).and_then(|()| stream.flush()).map_err(of_tls)
    }

    /// A frame of a kind that is due.
    pub(super) fn receive(&mut self, due: &[Kind]) -> Result<(Kind, Vec<u8>), ChannelError> {
        let mut head = [0; HEAD_LEN];
        self.both().read_exact(&mut head).map_err(of_tls)?;
        let (kind, length) = frame::parse(&head, due)?;
        let mut body = vec![0; length];
        self.both().read_exact(&mut body).map_err(of_tls)?;
        Ok((kind, body))
    }

    /// Ends the connection so that what was sent arrives.
    pub(super) fn close(mut self) {
        match &mut self.0 {
            Stream::Plain(_) => {}
            Stream::Server(tls) => {
                tls.conn.send_close_notify();
                let _ = tls.flush();
            }
            Stream::Client(tls) => {
                tls.conn.send_close_notify();
                let _ = tls.flush();
            }
        }
        let _ = self.timed().tcp.shutdown(Shutdown::Write);
    }

    /// Likewise where the other side has said what nobody has read, which would make the system take back what we said.
    pub(super) fn hang_up(mut self) {
        drain(self.timed());
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Stream::Plain(tcp) => tcp.tcp.as_fd(),
            Stream::Server(tls) => tls.sock.tcp.as_fd(),
            Stream::Client(tls) => tls.sock.tcp.as_fd(),
        }
    }
}

fn drain(tcp: &mut Timed) {
    let _ = tcp.tcp.shutdown(Shutdown::Write);
    tcp.deadline_ns = tcp.deadline_ns.min(tcp.clock.now_ns().saturating_add(DRAIN_NS));
    let (mut bytes, mut read) = ([0; 4096], 0);
    while let Ok(count) = tcp.read(&mut bytes) {
        read += count;
        if count == 0 || read >= DRAIN {
            break;
        }
    }
}

/// rustls wraps what is wrong with TLS itself as InvalidData; that rank 0 refuses a certificate is heard of only behind the handshake.
fn of_tls(error: io::Error) -> ChannelError {
    match error.kind() {
        io::ErrorKind::InvalidData => ChannelError::Tls(error.to_string()),
        _ => error.into(),
    }
}
