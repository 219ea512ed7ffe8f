// SPDX-License-Identifier: Apache-2.0
//! AF_XDP on one interface: datagrams past the kernel's network stack.
//!
//! ```text
//!   burst   ─► headers of ours ─ tx ring of the channel's first queue ─► card
//!   take    ◄─ parsed here, sized by the bytes that came ─ rx ring of each queue ◄─ program in the driver, by address and port
//! ```
//!
//! Frames that leave this way pass queueing disciplines, filters and IPsec by. What the program does not pick, the kernel gets, so that the rest of the host notices nothing.
//! [`super::host::HostLink`] has UDP sockets beside it, for whatever cannot go this way.
#![deny(unsafe_code)]

mod bpf;
mod frame;
mod neighbour;
mod offers;
mod program;
mod socket;

pub use offers::{Offers, offers};

use super::interfaces::interfaces;
use super::netlink;
use super::packet;
use crate::burst::{Arrived, Burst};
use bpf::Mode;
use frame::{ETHERNET, Headers};
use neighbour::{Interface, Mac, Neighbours};
use nix::net::if_::if_nametoindex;
use nix::sys::socket::SockProtocol;
use program::Pick;
use socket::{FRAME_MOST, Opening, Socket};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Queues that are read, of all channels together.
const QUEUES_MOST: u32 = 64;
/// Frames that a channel receives into, of all its queues together: half a second of 100 Mbit/s, or 5 ms of 10 Gbit/s.
const RECEIVING: u32 = 4_096;
/// But so many on each queue at least: what a card hands over at a time.
const RECEIVING_LEAST: u32 = 512;
/// Frames that wait to be sent at most: 1 ms of 10 Gbit/s.
const SENDING: u32 = 1_024;
/// On queues that nothing is sent from: a ring has one entry at least.
const SENDING_LEAST: u32 = 1;
/// Frames received at once.
const BATCH: u32 = 64;
/// Time between two looks at the interface.
const LOOK_NS: u64 = 1_000_000_000;
/// Waits for what is still held: a second in all.
const BUSY_ATTEMPTS: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Bytes of the longest IP packet that fits.
const MTU_MOST: usize = FRAME_MOST - ETHERNET;

/// Why an interface, or a channel, has UDP sockets only.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpError {
    /// No interface has the address.
    #[error("no interface has the address {0}")]
    NoInterface(IpAddr),
    /// Nothing is behind it.
    #[error("'{0}' is the loopback interface")]
    Loopback(String),
    /// Its frames are of another kind.
    #[error("'{0}' is no Ethernet interface")]
    NotEthernet(String),
    /// Its packets do not fit into a page.
    #[error(
        "'{interface}' has an MTU of {mtu} bytes, and AF_XDP takes up to {MTU_MOST}: ip link set {interface} mtu {MTU_MOST}"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU, bytes.
        mtu: u32,
    },
    /// The system refuses.
    #[error("'{interface}': cannot {what}: {source}{}", hint(.source))]
    Refused {
        /// The interface.
        interface: String,
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A queue belongs to one channel.
    #[error(
        "'{interface}' has {queues} receive queues, and a channel takes one: ethtool -L {interface} combined {channels}, or fewer --channels"
    )]
    Queues {
        /// The interface.
        interface: String,
        /// Its queues.
        queues: u32,
        /// The channels that want one.
        channels: u16,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => " (needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF: run as root)",
        Some(libc::EBUSY | libc::EEXIST) => {
            " (another program is there; `ip link show` tells. Two processes cannot share an interface)"
        }
        // veth, whose frames have to leave room in a page for the kernel's bookkeeping.
        Some(libc::ERANGE) => {
            " (its MTU, or that of the other end, is too large for its driver: 3498 bytes fit)"
        }
        Some(libc::ENOBUFS) => " (locked memory is limited: `ulimit -l unlimited`)",
        _ => "",
    }
}

/// The program on an interface, which goes when the last channel does.
#[derive(Debug)]
struct Attachment {
    map: OwnedFd,
    mode: Mode,
    _program: OwnedFd,
    _link: OwnedFd,
}

/// One channel's sockets on one interface.
#[derive(Debug)]
pub(super) struct Card {
    name: String,
    own: SocketAddr,
    now: Interface,
    mac: Mac,
    looked_ns: u64,
    neighbours: Neighbours,
    /// One a queue; the first one sends.
    sockets: Vec<Socket>,
    attachment: Arc<Attachment>,
}

/// What became of a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// So many datagrams of it have left, and there is no more room. 0 of an empty one.
    Some(usize),
    /// It cannot go this way; the kernel may know another.
    ByKernel,
}

/// Opens the sockets of all channels, whose ports are `own`'s and those behind it, on the interface that has the address; gives them in order, or why a channel has none.
///
/// # Errors
/// Where no channel has any.
pub(super) fn open(own: SocketAddr, channels: u16) -> Result<Vec<Result<Card, XdpError>>, XdpError> {
    let none = || XdpError::NoInterface(own.ip());
    let all = interfaces().map_err(|_| none())?;
    let name = all.into_iter().find(|interface| interface.address == own.ip()).ok_or_else(none)?.name;
    let refused = |what| {
        let interface = name.clone();
        move |source| XdpError::Refused { interface, what, source }
    };
    let index = if_nametoindex(name.as_str()).map_err(|_| none())?;
    let route = netlink::open(SockProtocol::NetlinkRoute, 0).map_err(refused("ask rtnetlink"))?;
    let now = neighbour::interface(&route, index).map_err(refused("ask rtnetlink"))?;
    if now.is_loopback {
        return Err(XdpError::Loopback(name));
    }
    let mac = now.mac.ok_or_else(|| XdpError::NotEthernet(name.clone()))?;
    if now.mtu as usize > MTU_MOST {
        return Err(XdpError::Mtu { interface: name, mtu: now.mtu });
    }
    let most = now.queues.clamp(1, QUEUES_MOST);
    let pick = Pick { own: own.ip(), port: own.port(), channels, queues: most };
    let attachment = Arc::new(attach(index, &pick).map_err(|(what, error)| refused(what)(error))?);
    let each = most.div_ceil(u32::from(channels.max(1)));
    let mut sockets: Vec<Vec<Socket>> = (0..channels).map(|_| Vec::new()).collect();
    let mut queues = 0;
    for queue in 0..most {
        let Some(of) = sockets.get_mut((queue % u32::from(channels.max(1))) as usize) else { break };
        let opening = Opening {
            interface: index,
            queue,
            receiving: (RECEIVING / each.next_power_of_two()).max(RECEIVING_LEAST),
            sending: if of.is_empty() { SENDING } else { SENDING_LEAST },
            copy: attachment.mode == Mode::Generic,
        };
        match while_busy(|| Socket::open(&opening)) {
            Ok(socket) => {
                bpf::set_socket(attachment.map.as_fd(), queue, socket.as_fd())
                    .map_err(refused("give a queue to an AF_XDP socket"))?;
                of.push(socket);
                queues += 1;
            }
            // It has had more queues, or may have.
            Err(error) if queue > 0 && error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(refused("open an AF_XDP socket")(error)),
        }
    }
    let cards = sockets.into_iter().zip(own.port()..).map(|(sockets, port)| {
        if sockets.is_empty() {
            return Err(XdpError::Queues { interface: name.clone(), queues, channels });
        }
        let neighbours = Neighbours::open(index, own.ip()).map_err(refused("ask rtnetlink"))?;
        let own = SocketAddr::new(own.ip(), port);
        let attachment = Arc::clone(&attachment);
        Ok(Card { name: name.clone(), own, now, mac, looked_ns: 0, neighbours, sockets, attachment })
    });
    Ok(cards.collect())
}

/// Tries until the kernel has let go of what a socket or program before this one held: it does so after these were closed, at its leisure.
fn while_busy<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..BUSY_ATTEMPTS {
        match attempt() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(BUSY_PAUSE),
            outcome => return outcome,
        }
    }
    attempt()
}

/// Natively where the driver knows how.
fn attach(index: u32, pick: &Pick) -> Result<Attachment, (&'static str, io::Error)> {
    let map = bpf::socket_map(pick.queues).map_err(|error| ("make a BPF map", error))?;
    let program =
        bpf::load(&program::program(pick, map.as_raw_fd())).map_err(|error| ("load a BPF program", error))?;
    let mut mode = Mode::Native;
    let link = match while_busy(|| bpf::attach(program.as_fd(), index, mode)) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            mode = Mode::Generic;
            while_busy(|| bpf::attach(program.as_fd(), index, mode))
        }
        outcome => outcome,
    };
    let link = link.map_err(|error| ("attach a BPF program", error))?;
    Ok(Attachment { map, mode, _program: program, _link: link })
}

impl Card {
    /// What it offers, in words; `true`: as much as it can.
    pub(super) fn describe(&self) -> (String, bool) {
        let zero_copy = self.sockets.iter().all(Socket::is_zero_copy);
        let how = match (self.attachment.mode, zero_copy) {
            (Mode::Native, true) => "in the driver, without a copy",
            (Mode::Native, false) => "in the driver, with a copy",
            (Mode::Generic, _) => {
                "behind the driver, which does not know XDP, with a copy: sockets may cost less. Bursts that senders on this machine leave whole are lost: ethtool -K IFACE tx-udp-segmentation off there"
            }
        };
        let queues = self.sockets.len();
        let text = format!("AF_XDP on '{}', {queues} queues for port {}: {how}", self.name, self.own.port());
        (text, self.attachment.mode == Mode::Native)
    }

    /// The address and port that it receives at.
    pub(super) fn own(&self) -> SocketAddr {
        self.own
    }

    /// What becomes readable when something has come.
    pub(super) fn reading(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(Socket::as_fd)
    }

    /// Whether frames wait for the kernel to send them.
    pub(super) fn is_sending(&self) -> bool {
        self.now.is_up && self.sockets.first().is_some_and(Socket::is_sending)
    }

    /// Datagrams that came and found no room.
    pub(super) fn overflowed(&self) -> u64 {
        self.sockets.iter().map(Socket::overflowed).sum()
    }

    /// Hands over what has come, at most [`BATCH`] frames a queue, with the time that each has waited; `false`: a frame that is no datagram to here. Gives the number of frames, and whether more may wait.
    pub(super) fn receive(
        &mut self,
        monotonic_ns: u64,
        mut take: impl FnMut(Option<(Arrived, &[u8])>),
    ) -> (usize, bool) {
        let own = self.own;
        let (mut count, mut more) = (0, false);
        for socket in &mut self.sockets {
            let got =
                socket.receive(BATCH, |stamp_ns, frame| take(read_frame(frame, own, stamp_ns, monotonic_ns)));
            count += got as usize;
            more |= got == BATCH;
        }
        (count, more)
    }

    /// Writes a burst's datagrams behind those that wait already, from a port of this interface's address. [`Self::flush`] sends them.
    pub(super) fn send(&mut self, burst: &Burst, port: u16, checksum: bool, now_ns: u64) -> Sent {
        if now_ns.saturating_sub(self.looked_ns) >= LOOK_NS || self.looked_ns == 0 {
            self.looked_ns = now_ns.max(1);
            self.look();
        }
        let to = SocketAddr::new(burst.to.ip().to_canonical(), burst.to.port());
        let segment = burst.segment.max(1).min(burst.payload.len());
        let from = SocketAddr::new(self.own.ip(), port);
        let Some(socket) = self.sockets.first_mut().filter(|_| self.now.is_up) else { return Sent::ByKernel };
        let Some(hop) = self.neighbours.next_hop(to.ip(), now_ns) else { return Sent::ByKernel };
        let Some(headers) = Headers::new([self.mac, hop], from, to, burst.tos, checksum) else {
            return Sent::ByKernel;
        };
        // The kernel refuses it, and says so.
        if headers.frame_length(segment) > ETHERNET + (self.now.mtu as usize).min(MTU_MOST) {
            return Sent::ByKernel;
        }
        let mut count = 0;
        for payload in burst.datagrams() {
            if !socket.send(headers.frame_length(payload.len()), |frame| headers.write(frame, payload)) {
                break;
            }
            count += 1;
        }
        Sent::Some(count)
    }

    fn look(&mut self) {
        match self.neighbours.interface() {
            Ok(now) => {
                self.now = now;
                self.mac = now.mac.unwrap_or(self.mac);
            }
            Err(_) => self.now.is_up = false,
        }
    }

    /// Has the kernel send what was written; what it does not take now goes with the next call.
    pub(super) fn flush(&mut self) {
        let Some(socket) = self.sockets.first_mut() else { return };
        if let Err(error) = socket.kick() {
            // Down, or gone: the kernel knows other ways, or refuses.
            if std::mem::replace(&mut self.now.is_up, false) {
                tracing::warn!("AF_XDP on '{}': {error}; sockets send until it is up", self.name);
            }
        }
    }
}

/// A datagram to `own`, with its source; `None`: the frame is something else.
fn read_frame(frame: &[u8], own: SocketAddr, stamp_ns: u64, monotonic_ns: u64) -> Option<(Arrived, &[u8])> {
    let found = packet::parse(frame.get(ETHERNET..)?)?;
    let to = SocketAddr::new(IpAddr::from(found.destination).to_canonical(), found.port);
    if to != own || found.payload.is_empty() {
        return None;
    }
    let source = SocketAddr::new(IpAddr::from(found.source).to_canonical(), found.source_port);
    let age_ns =
        if stamp_ns == 0 { 0 } else { monotonic_ns.saturating_sub(stamp_ns).min(super::udp::AGE_MOST_NS) };
    Some((Arrived { source, tos: found.tos, age_ns }, found.payload))
}
