// SPDX-License-Identifier: Apache-2.0
//! The link on UDP sockets.
//!
//! ```text
//!   Burst ─► socket of its origin ─ sendmmsg: one message a burst (UDP_SEGMENT), or one a datagram where the kernel cannot split them
//!   take  ◄─ listening socket ─ recvmmsg: runs of datagrams as the kernel has put them together (UDP_GRO), taken apart here
//!         ◄─ or packet socket (Receive::Raw), with a filter in the kernel, sized by the bytes that came
//! ```
//!
//! One socket listens and sends control packets; a pool of others, each on a source port of its
//! own, sends DATA: the source port is what switches choose a path by (MLT §4.2.1). Payloads go
//! from the burst's memory to the kernel without a copy in between. Datagrams are never fragmented:
//! those longer than the path's MTU are refused, counted and reported ([`Refusal`]).
#![forbid(unsafe_code)]

use super::interfaces::{check_mtu, mtu_of};
use super::link::{Link, LinkError, LinkStats, Take};
use super::listener::Listener;
use super::mmsg::{self, Inbox, Transmit};
#[cfg(test)]
use super::options;
pub use super::refusal::Refusal;
use super::refusal::{Refusals, is_too_long};
use super::shared::Shared;
use super::sockets::{BUFFER_BYTES, path_mtu};
use super::udp_config::{Checksums, UdpConfig};
use super::waiting::wait;
use super::wake::Wake;
use crate::burst::{Arrived, Burst, Origin};
use crate::config::{MTU_LEAST, MTU_MOST};
use bytes::Buf;
use nix::errno::Errno;
use nix::sys::prctl::set_timerslack;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::Socket;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
#[cfg(test)]
use std::os::fd::AsRawFd as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Once};
use std::time::{SystemTime, UNIX_EPOCH};

/// Datagrams that the kernel splits one message into: 64 before Linux 6.10, 128 since
/// (UDP_MAX_SEGMENTS).
const SEGMENTS: usize = 64;
/// A free port is looked for so often that has free ones behind it.
const TIMES: u32 = 64;
/// Longest UDP payload of IPv4.
const PAYLOAD: usize = 65_507;

/// A datagram has not waited longer: somebody has set the clock.
pub(super) const AGE_MOST_NS: u64 = 1_000_000_000;

/// The clock that the kernel stamps arrivals with, ns.
#[expect(clippy::disallowed_methods, reason = "the driver is where the real clock comes in")]
fn real_time_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// UDP sockets of one endpoint.
#[derive(Debug)]
pub struct UdpLink {
    config: UdpConfig,
    /// One an interface.
    listeners: Vec<Listener>,
    /// DATA's.
    paths: Vec<Arc<Socket>>,
    inbox: Inbox,
    /// Whether bursts are left to the kernel to split.
    segmentation: bool,
    /// Indices into the batch; kept for their allocation.
    order: Vec<usize>,
    /// Sockets without room: the listening ones, then those of the paths.
    full: Vec<usize>,
    stats: LinkStats,
    refusals: Refusals,
    /// Every listener had less than was asked for.
    drained: bool,
    /// Ends a wait.
    wake: Option<Arc<Wake>>,
}

impl UdpLink {
    /// Opens sockets of its own, and lets the calling thread's timers be exact.
    ///
    /// # Errors
    /// When an address cannot be bound or an option is refused; see [`LinkError`].
    pub fn open(config: UdpConfig) -> Result<Self, LinkError> {
        Self::open_sharing(config, &Shared::default())
    }

    fn open_sharing(mut config: UdpConfig, shared: &Shared) -> Result<Self, LinkError> {
        config.data_sockets = config.data_sockets.clamp(1, 256);
        let mut listeners = vec![Listener::open(config.bind, config.receive)?];
        // A port that the system has chosen is the same on all.
        let port = listeners.first().map_or(config.bind, Listener::address).port();
        for &own in &config.further {
            listeners.push(Listener::open(SocketAddr::new(own, port), config.receive)?);
        }
        let granted = listeners.iter().map(Listener::granted).min().unwrap_or(0);
        if granted < BUFFER_BYTES {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                tracing::warn!(
                    "the system grants sockets receive buffers of {} KiB instead of {}, so less is sent at a time; \
                     `sysctl -w net.core.rmem_max={BUFFER_BYTES}` on every host, or CAP_NET_ADMIN, allows more",
                    granted >> 10,
                    BUFFER_BYTES >> 10
                );
            });
        }
        let own: Vec<IpAddr> = listeners.iter().map(|listener| listener.address().ip()).collect();
        let all = usize::from(config.data_sockets);
        let mut of_each = Vec::new();
        for (nth, &own) in own.iter().enumerate() {
            let count = (nth..all).step_by(listeners.len()).count();
            of_each.push(shared.paths(own, config.checksums, count)?.into_iter());
        }
        let interfaces = of_each.len().max(1);
        let next = |path: usize| of_each.get_mut(path % interfaces)?.next();
        let paths: Vec<_> = (0..all).map_while(next).collect();
        // The kernel splits only what it may write checksums into. One that does not know the
        // option would take a burst for a datagram.
        let segmentation = config.segmentation
            && config.checksums == Checksums::Filled
            && paths.iter().all(|socket| setsockopt(socket, sockopt::UdpGsoSegment, &0).is_ok());
        check_mtu(&own)?;
        // Failure leaves the default of 50 µs, which is only less exact.
        let _ = set_timerslack(1_000);
        Ok(Self {
            listeners,
            inbox: Inbox::new(),
            segmentation,
            order: Vec::new(),
            paths,
            full: Vec::new(),
            stats: LinkStats::default(),
            refusals: Refusals::default(),
            drained: false,
            wake: None,
            config,
        })
    }

    /// The links of a rank's channels: on a port and as many behind it as there are channels, each
    /// with its part of DATA's sockets, which it has together with other links of `shared`. Where
    /// the system is to choose the port, it does so until the next ones are free, too.
    ///
    /// # Errors
    /// As [`Self::open`]; [`LinkError::Ports`] where the next ports are not free.
    pub fn open_channels(config: &UdpConfig, channels: u16, shared: &Shared) -> Result<Vec<Self>, LinkError> {
        let of = |port| {
            let mut config =
                UdpConfig { data_sockets: config.data_sockets.div_ceil(channels.max(1)), ..config.clone() };
            config.bind.set_port(port);
            config
        };
        let given = config.bind.port();
        let mut times = if given == 0 { TIMES } else { 1 };
        loop {
            let first = Self::open_sharing(of(given), shared)?;
            let port = first.local_address().port();
            let mut links = vec![first];
            let mut missing = None;
            for channel in 1..channels {
                let opened = port.checked_add(channel).map(|port| Self::open_sharing(of(port), shared));
                match opened {
                    Some(Ok(link)) => links.push(link),
                    Some(Err(LinkError::Bind { source, .. }))
                        if source.kind() == io::ErrorKind::AddrInUse =>
                    {
                        missing = Some(LinkError::Ports { port, channels, taken: port + channel });
                    }
                    Some(Err(error)) => return Err(error),
                    None => missing = Some(LinkError::Ports { port, channels, taken: u16::MAX }),
                }
                if missing.is_some() {
                    break;
                }
            }
            let Some(missing) = missing else { return Ok(links) };
            times -= 1;
            if times == 0 {
                return Err(missing);
            }
        }
    }

    /// Whether bursts are left to the kernel to split: asked for, and not refused so far.
    pub fn segments(&self) -> bool {
        self.segmentation
    }

    /// The latest datagram, of those whose address and reason had not been met before, that the
    /// system would not send.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusals.latest()
    }

    /// Bytes that wait in the socket that listens, with the kernel's bookkeeping; 0 where the
    /// system does not tell.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.listeners.iter().map(Listener::waiting_bytes).sum()
    }

    /// Reads one datagram and forgets it; whether there was one.
    #[cfg(test)]
    pub(super) fn take_one(&self) -> bool {
        let fd = self.listeners.first().expect("one at least").reading();
        nix::sys::socket::recv(fd.as_raw_fd(), &mut [0; 2_048], nix::sys::socket::MsgFlags::MSG_DONTWAIT)
            .is_ok()
    }

    /// Makes the kernel refuse to split bursts, as an old one does.
    #[cfg(test)]
    pub(super) fn forbid_checksums(&self) {
        let check = if self.config.bind.is_ipv4() { options::SO_NO_CHECK } else { options::UDP_NO_CHECK6_TX };
        for socket in &self.paths {
            options::set(socket, check, 1).expect("known option");
        }
    }

    /// Leaves room for so much; for few arrivals at least.
    #[cfg(test)]
    pub(super) fn shrink_receive_buffers(&self, bytes: usize) {
        self.listeners.iter().for_each(|listener| listener.shrink(bytes));
    }

    /// Leaves room for little, with or without segmentation.
    #[cfg(test)]
    pub(super) fn shrink_send_buffers(&mut self, segmentation: bool) {
        self.segmentation = segmentation;
        for socket in &self.paths {
            socket.set_send_buffer_size(1).expect("rounded up");
        }
    }

    fn refuse(&mut self, to: SocketAddr, length: usize, datagrams: usize, error: io::Error) {
        self.stats.refused += datagrams as u64;
        if is_too_long(&error) {
            self.stats.too_long += datagrams as u64;
        }
        if self.refusals.is_news(to, &error) {
            self.refusals.report(Refusal { to, length, mtu: path_mtu(self.local_address(), to), error });
        }
    }

    /// The socket that a burst leaves from, by its number in `full`.
    fn socket_of(&self, burst: &Burst) -> usize {
        match burst.origin {
            Origin::Listening(interface) => usize::from(interface) % self.listeners.len().max(1),
            Origin::Path(path) => self.listeners.len() + usize::from(path) % self.paths.len().max(1),
        }
    }

    /// Sends what of `turn` finds room in one socket; gives whether all of it did.
    fn send_turn(&mut self, socket: usize, turn: &[usize], batch: &mut VecDeque<Burst>) -> bool {
        let mapped = self.config.bind.is_ipv6();
        let mut rest = turn;
        // The burst at the front, sent one datagram a message, because the kernel refused it in one
        // piece, and why.
        let mut singly: Option<io::Error> = None;
        while let Some(&front) = rest.first() {
            let together = self.segmentation && singly.is_none();
            let turn = if singly.is_some() { &rest[..1] } else { rest };
            let messages = turn
                .iter()
                .filter_map(|&index| batch.get(index))
                .flat_map(|burst| messages(burst, together, mapped));
            let Some(fd) = self.fd(socket) else { return true };
            let (taken, error) = mmsg::send(fd, messages);
            if taken > 0
                && let Some(error) = &singly
                && !is_too_long(error)
                && batch.get(front).is_some_and(|burst| burst.payload.len() >= burst.segment.max(1))
            {
                self.segmentation = false;
                tracing::warn!(
                    "the kernel does not segment UDP on this path ({error}): each datagram is sent on its own from here on, which costs \
                     about twice the processor time"
                );
                singly = None;
            }
            for _ in 0..taken {
                let Some(burst) = rest.first().and_then(|&index| batch.get_mut(index)) else { break };
                let length = message_length(burst, together).min(burst.payload.len());
                self.stats.sent += length.div_ceil(burst.segment.max(1)) as u64;
                self.stats.sent_bytes += length as u64;
                burst.payload.advance(length);
                if burst.payload.is_empty() {
                    rest = &rest[1..];
                    singly = None;
                }
            }
            let Some(burst) = rest.first().and_then(|&index| batch.get_mut(index)) else { break };
            let Some(error) = error else {
                if taken == 0 {
                    return false;
                }
                continue;
            };
            let splits = together && burst.count() > 1;
            match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EINTR) => {}
                Some(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => return false,
                Some(
                    Errno::EINVAL | Errno::EIO | Errno::EOPNOTSUPP | Errno::ENOPROTOOPT | Errno::EMSGSIZE,
                ) if splits => singly = Some(error),
                _ => {
                    let (to, length) = (burst.to, message_length(burst, together).min(burst.payload.len()));
                    let datagram = burst.segment.max(1).min(length);
                    burst.payload.advance(length);
                    if burst.payload.is_empty() {
                        rest = &rest[1..];
                        singly = None;
                    }
                    self.refuse(to, datagram, length.div_ceil(datagram), error);
                }
            }
        }
        true
    }

    /// All addresses that are listened on.
    fn own_addresses(&self) -> Vec<IpAddr> {
        self.listeners.iter().map(|listener| listener.address().ip()).collect()
    }

    /// The socket of a number in `full`.
    fn fd(&self, socket: usize) -> Option<BorrowedFd<'_>> {
        let path = || Some(self.paths.get(socket.checked_sub(self.listeners.len())?)?.as_fd());
        self.listeners.get(socket).map(Listener::sending).or_else(path)
    }
}

/// Bytes of a burst that are one message.
fn message_length(burst: &Burst, together: bool) -> usize {
    let segment = burst.segment.max(1);
    if together { segment * SEGMENTS.min(PAYLOAD / segment).max(1) } else { segment }
}

fn messages(burst: &Burst, together: bool, mapped: bool) -> impl Iterator<Item = Transmit<'_>> {
    let to = match (burst.to, burst.to.ip()) {
        (to, IpAddr::V4(v4)) if mapped => SocketAddr::new(v4.to_ipv6_mapped().into(), to.port()),
        (to, _) => to,
    };
    burst.payload.chunks(message_length(burst, together)).map(move |payload| Transmit {
        to,
        tos: burst.tos,
        payload,
        segment: u16::try_from(burst.segment.max(1))
            .ok()
            .filter(|&segment| payload.len() > usize::from(segment)),
    })
}

impl Link for UdpLink {
    fn send(&mut self, batch: &mut VecDeque<Burst>) -> Result<(), LinkError> {
        self.full.clear();
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(
            (0..batch.len()).filter(|&index| batch.get(index).is_some_and(|burst| !burst.payload.is_empty())),
        );
        // In the order in which they came, or receivers would see as lost what merely another
        // socket's turn came before.
        let mut rest = &order[..];
        while let Some(socket) =
            rest.first().and_then(|&index| batch.get(index)).map(|burst| self.socket_of(burst))
        {
            let same =
                |&&index: &&usize| batch.get(index).is_some_and(|burst| self.socket_of(burst) == socket);
            let (turn, others) = rest.split_at(rest.iter().take_while(same).count());
            rest = others;
            if !self.full.contains(&socket) && !self.send_turn(socket, turn, batch) {
                self.full.push(socket);
            }
        }
        self.order = order;
        if self.full.is_empty() {
            batch.clear();
        } else {
            batch.retain(|burst| !burst.payload.is_empty());
        }
        Ok(())
    }

    fn receive(&mut self, take: &mut Take<'_>) -> Result<usize, LinkError> {
        let Self { listeners, inbox, stats, refusals, drained, .. } = self;
        *drained = true;
        let mut count = 0;
        let mut real_ns = None;
        for listener in listeners {
            let outcome = listener.receive(inbox, &mut stats.overflowed, |incoming| {
                let Some(source) = incoming.source else { return };
                let segment = incoming.segment.unwrap_or(incoming.payload.len()).max(1);
                stats.received_bytes += incoming.payload.len() as u64;
                let age_ns = incoming.stamp_ns.map_or(0, |stamp_ns| {
                    real_ns.get_or_insert_with(real_time_ns).saturating_sub(stamp_ns).min(AGE_MOST_NS)
                });
                let arrived = Arrived { source, tos: incoming.tos, age_ns };
                for datagram in incoming.payload.chunks(segment) {
                    stats.received += 1;
                    count += 1;
                    take(arrived, datagram);
                }
            });
            let Err(error) = outcome else {
                *drained &= inbox.is_drained();
                continue;
            };
            match error.raw_os_error().map(Errno::from_raw) {
                // The latter ones are said once: an ICMP error about something sent earlier, an
                // interface that went down and may come back.
                Some(
                    Errno::EAGAIN
                    | Errno::EINTR
                    | Errno::ENETDOWN
                    | Errno::ECONNREFUSED
                    | Errno::EHOSTUNREACH
                    | Errno::ENETUNREACH,
                ) => {}
                // PACKET_VNET_HDR has no words for it; the frame was taken off the socket.
                Some(Errno::EINVAL) if listener.is_raw() => {
                    if refusals.is_news(listener.address(), &error) {
                        tracing::warn!(
                            "this kernel cannot hand over bursts that a sender on this machine left whole; they are lost. Turn that off at \
                             the sender: ethtool -K IFACE tx-udp-segmentation off"
                        );
                    }
                }
                _ => return Err(LinkError::Io { what: "receive", source: error }),
            }
        }
        Ok(count)
    }

    fn is_drained(&self) -> bool {
        self.drained
    }

    fn wait(&mut self, timeout_ns: u64, room: bool) -> Result<(), LinkError> {
        let readable = self.listeners.iter().map(Listener::reading);
        let readable = readable.chain(self.wake.iter().map(|wake| wake.as_fd()));
        let full = if room { self.full.as_slice() } else { &[] };
        // ENOBUFS says that a queue of the system is full, which poll does not see: look again
        // soon.
        let timeout_ns = if room { timeout_ns.min(1_000_000) } else { timeout_ns };
        let writable = full.iter().filter_map(|&socket| self.fd(socket));
        wait(readable, writable, timeout_ns, self.config.spin_ns)
            .map_err(|source| LinkError::Io { what: "wait", source })
    }

    fn mtu(&self) -> Option<u16> {
        Some(mtu_of(&self.own_addresses())?.clamp(MTU_LEAST.into(), MTU_MOST.into()) as u16)
    }

    fn wake_by(&mut self, wake: Arc<Wake>) -> bool {
        self.wake = Some(wake);
        true
    }

    fn holds(&self) -> u64 {
        // Of what was read the kernel takes up to a quarter of the room back later
        // (`udp_rmem_release`). What root gets has room to spare.
        let holds = |granted: usize| if granted < BUFFER_BYTES { granted / 4 * 3 } else { granted };
        self.listeners.iter().map(|one| holds(one.granted()) as u64).fold(0, u64::saturating_add)
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn data_ports(&self) -> Vec<u16> {
        let port = |socket: &Arc<Socket>| Some(socket.local_addr().ok()?.as_socket()?.port());
        self.paths.iter().filter_map(port).collect()
    }

    fn local_address(&self) -> SocketAddr {
        self.listeners.first().map_or(self.config.bind, Listener::address)
    }

    fn addresses(&self) -> Vec<IpAddr> {
        if self.config.further.is_empty() {
            return Vec::new();
        }
        self.own_addresses()
    }
}
