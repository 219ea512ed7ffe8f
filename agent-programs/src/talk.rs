// SPDX-License-Identifier: Apache-2.0
//! Two commands on two hosts that talk over TCP, a line of JSON a word, and open connections to do
//! so.

use crate::{Failure, bad_input, failed};
use anyhow::{Context as _, anyhow, bail};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use serde::Serialize;
use serde::de::DeserializeOwned;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

/// Longest line that is read.
pub(crate) const LONGEST: u64 = 64 << 10;
/// Segments so short that they get through where switches trim whatever is longer than a head.
const SEGMENT: u32 = 128;
/// An answer that needs no work takes no longer.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);
/// A server that does not listen yet is tried again after this.
const AGAIN: Duration = Duration::from_millis(50);

/// The other end.
#[derive(Debug)]
pub(crate) struct Line {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    pub(crate) address: SocketAddr,
}

impl Line {
    fn new(stream: TcpStream, address: SocketAddr) -> anyhow::Result<Self> {
        let _ = stream.set_nodelay(true);
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, reader, address })
    }

    /// Waits for somebody to connect.
    pub(crate) fn accept(listener: &TcpListener) -> anyhow::Result<Self> {
        let (stream, address) = listener.accept()?;
        Self::new(stream, SocketAddr::new(address.ip().to_canonical(), address.port()))
    }

    /// The own end's address.
    pub(crate) fn local_ip(&self) -> anyhow::Result<IpAddr> {
        Ok(self.stream.local_addr()?.ip().to_canonical())
    }

    /// Whether the other end has said something, or has ended: [`Self::hear`] does not wait long
    /// then.
    pub(crate) fn has_word(&self) -> bool {
        if !self.reader.buffer().is_empty() {
            return true;
        }
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        // A connection that was reset says so when it is read.
        recv(self.stream.as_raw_fd(), &mut [0], flags) != Err(Errno::EAGAIN)
    }

    pub(crate) fn say(&mut self, word: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string(word)?;
        text.push('\n');
        self.stream.write_all(text.as_bytes()).with_context(|| format!("{} is gone", self.address))
    }

    /// The next word; `None` waits for it as long as the other end lives.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self, patience: Option<Duration>) -> anyhow::Result<T> {
        let address = self.address;
        self.stream.set_read_timeout(patience)?;
        let mut text = String::new();
        let read = self.reader.by_ref().take(LONGEST).read_line(&mut text);
        read.with_context(|| format!("{address} says nothing"))?;
        if text.is_empty() {
            bail!("{address} has ended");
        }
        let text = text.trim_end();
        serde_json::from_str(text).map_err(|_| {
            let start: String = text.chars().take(60).collect();
            anyhow!("{address} says what is not understood here: {start:?}")
        })
    }
}

/// Connects to a command that may not listen yet; `command` is what should run there.
pub(crate) fn call(
    to: SocketAddr,
    own: Option<IpAddr>,
    patience: Duration,
    command: &str,
) -> Result<Line, Failure> {
    let mut left = patience.min(ANSWER);
    let stream = loop {
        match connect(to, own) {
            Ok(stream) => break stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && !left.is_zero() => {
                std::thread::sleep(AGAIN);
                left = left.saturating_sub(AGAIN);
            }
            Err(error) => {
                let hint = hint(&error, command);
                return Err(failed(anyhow!("cannot connect to TCP {to}: {error}{hint}")));
            }
        }
    };
    Line::new(stream, to).map_err(failed)
}

fn hint(error: &std::io::Error, command: &str) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => format!(" (does `{command}` run there?)"),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::TimedOut => {
            " (no route, or nobody answers for its MAC address: switches answer ARP for the fabric file's hosts only, Tofinos not at \
             all: those want `ip neigh add … nud permanent` on every host; all count what they have no route for as UNROUTABLE)"
                .to_owned()
        }
        _ => String::new(),
    }
}

fn connect(to: SocketAddr, own: Option<IpAddr>) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    // Only a wish: what it is for is rare.
    let _ = socket.set_tcp_mss(SEGMENT);
    if let Some(own) = own {
        socket.bind(&SocketAddr::new(own, 0).into())?;
    }
    socket.connect_timeout(&to.into(), ANSWER)?;
    Ok(socket.into())
}

/// Listens at an address, or at all of them.
pub(crate) fn listen(own: Option<IpAddr>, port: u16) -> Result<TcpListener, Failure> {
    let open = |address: SocketAddr| -> std::io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.ip().is_unspecified() && address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        let _ = socket.set_tcp_mss(SEGMENT);
        socket.bind(&address.into())?;
        socket.listen(64)?;
        Ok(socket.into())
    };
    let all = || {
        let v6 = SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), port);
        open(v6).or_else(|_| open(SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), port)))
    };
    own.map_or_else(all, |ip| open(SocketAddr::new(ip, port))).map_err(|error| {
        let at = own.map_or_else(|| format!("port {port}"), |ip| SocketAddr::new(ip, port).to_string());
        failed(anyhow!("cannot listen on TCP {at}: {error}"))
    })
}

/// Address of `HOST[:PORT]`.
pub(crate) fn resolve(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    if let Ok(ip) = host.parse() {
        return Ok(SocketAddr::new(ip, port));
    }
    let named = |error: &dyn std::fmt::Display| {
        bad_input(anyhow!(
            "'{host}': {error} (valid: a name or an IP address, with or without :PORT, as in [fd00::1]:9217)"
        ))
    };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let found = if has_port { host.to_socket_addrs() } else { (host, port).to_socket_addrs() };
    let mut found: Vec<SocketAddr> = found.map_err(|error| named(&error))?.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    found.first().copied().ok_or_else(|| named(&"has no address"))
}
