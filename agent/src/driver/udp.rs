//! The link on UDP sockets.
//!
//! One socket listens; a pool of others, each on a source port of its own, sends: the source port is what switches choose a
//! path by, so taking another socket per packet sprays packets over paths (MLT §4.2.1). An endpoint's
//! [`Transmit::source_port`] picks the socket, modulo their number. DATA and control packets have a pool each: the former leave without a
//! UDP checksum, the latter with a right one (docs/wire-format.md).
#![forbid(unsafe_code)]

use super::interfaces::{self, describe};
use super::link::{Link, LinkError, LinkStats};
use super::mmsg::{self, BATCH, Inbox, Outgoing};
use super::packet;
use crate::endpoint::Transmit;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use trimwire_encoder::wire::{Kind, Prefix};

/// The port on which agents listen.
pub const DEFAULT_PORT: u16 = 9217;
/// Half a second of 100 Mbit/s, or 5 ms of 10 Gbit/s, waits in a socket at most.
const BUFFER_BYTES: i32 = 8 << 20;

/// How datagrams are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Receive {
    /// From an ordinary UDP socket: for switches that fix the lengths of what they cut.
    #[default]
    Socket,
    /// From a packet socket, sized by the bytes that came: for switches that leave the lengths alone. Needs CAP_NET_RAW.
    Raw,
}

/// What a link is opened with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpConfig {
    /// Address and port to listen on.
    pub bind: SocketAddr,
    /// The job; an address is learned from this job's datagrams only.
    pub job: u8,
    /// Addresses of ranks.
    pub peers: BTreeMap<u16, SocketAddr>,
    /// Learn the addresses of ranks that are not in `peers`: the source IP of the first datagram that names the rank, and
    /// the port of `bind`.
    pub learn: bool,
    /// Sockets to spray DATA over, 1 to 256, and control packets over as many others.
    pub source_sockets: u16,
    /// How to receive.
    pub receive: Receive,
}

/// UDP sockets of one endpoint.
#[derive(Debug)]
pub struct UdpLink {
    config: UdpConfig,
    listening: Socket,
    /// Reads whole IP packets of an interface.
    raw: Option<Socket>,
    /// `source_sockets` for DATA, without checksums, and as many for control packets, with.
    sending: Vec<Socket>,
    inbox: Inbox,
    /// Indices into the batch, by socket; kept for their allocation.
    turns: Vec<Vec<usize>>,
    full: Vec<RawFd>,
    stats: LinkStats,
    warned: bool,
}

impl UdpLink {
    /// Opens the sockets, and lets the calling thread's timers be exact.
    ///
    /// # Errors
    /// When an address cannot be bound or an option is refused; see [`LinkError`].
    pub fn open(mut config: UdpConfig) -> Result<Self, LinkError> {
        config.source_sockets = config.source_sockets.clamp(1, 256);
        let own = config.bind.ip();
        for (&rank, &peer) in &config.peers {
            if peer.is_ipv4() != own.is_ipv4() {
                return Err(LinkError::Family { rank, peer, own });
            }
        }
        let listening = open(config.bind)?;
        set_buffer(&listening, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF);
        let option = |option, source| LinkError::Option { address: own, option, source };
        if own.is_ipv4() {
            listening.set_recv_tos_v4(true).map_err(|source| option("IP_RECVTOS", source))?;
        } else {
            listening.set_recv_tclass_v6(true).map_err(|source| option("IPV6_RECVTCLASS", source))?;
            // RFC 6935: cut packets come with checksum 0, which IPv6 sockets refuse unless told.
            mmsg::set_option(listening.as_fd(), libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)
                .map_err(|source| option("UDP_NO_CHECK6_RX", source))?;
        }
        let raw = match config.receive {
            Receive::Socket => None,
            Receive::Raw => Some(open_raw(own)?),
        };
        let mut sending = Vec::new();
        for data in [true, false] {
            for _ in 0..config.source_sockets {
                let socket = open(SocketAddr::new(own, 0))?;
                set_buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF);
                if data {
                    // A cut makes a checksum wrong. A switch should set it to 0 then (docs/wire-format.md); one that mends
                    // lengths alone cannot do harm where it is 0 from the start. Control packets are never cut, and have nothing
                    // else that tells their damage, so theirs is the kernel's.
                    let (level, name, what) = if own.is_ipv4() {
                        (libc::SOL_SOCKET, libc::SO_NO_CHECK, "SO_NO_CHECK")
                    } else {
                        (libc::IPPROTO_UDP, UDP_NO_CHECK6_TX, "UDP_NO_CHECK6_TX")
                    };
                    mmsg::set_option(socket.as_fd(), level, name, 1)
                        .map_err(|source| option(what, source))?;
                }
                sending.push(socket);
            }
        }
        mmsg::sharpen_timers();
        let turns = vec![Vec::new(); sending.len()];
        Ok(Self {
            config,
            listening,
            raw,
            sending,
            inbox: Inbox::new(),
            turns,
            full: Vec::new(),
            stats: LinkStats::default(),
            warned: false,
        })
    }

    /// The address that is listened on, with the port that port 0 became.
    pub fn local_address(&self) -> SocketAddr {
        self.listening.local_addr().ok().and_then(|a| a.as_socket()).unwrap_or(self.config.bind)
    }

    /// Tells the address of a rank.
    pub fn set_peer(&mut self, rank: u16, address: SocketAddr) {
        self.config.peers.insert(rank, address);
    }

    /// The address of a rank, as given or learned.
    pub fn peer(&self, rank: u16) -> Option<SocketAddr> {
        self.config.peers.get(&rank).copied()
    }

    fn refuse(&mut self, to: SocketAddr, error: &io::Error) {
        self.stats.refused += 1;
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!("cannot send to {to}: {error}; counted, and not reported again");
        }
    }
}

// linux/udp.h; the libc crate has them for some targets only.
const UDP_NO_CHECK6_TX: i32 = 101;
const UDP_NO_CHECK6_RX: i32 = 102;

fn is_data(payload: &[u8]) -> bool {
    Prefix::parse(payload).is_ok_and(|prefix| prefix.kind == Kind::Data)
}

fn open(address: SocketAddr) -> Result<Socket, LinkError> {
    let bind = |source| LinkError::Bind { address, source };
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP)).map_err(bind)?;
    socket.set_nonblocking(true).map_err(bind)?;
    socket.bind(&address.into()).map_err(bind)?;
    Ok(socket)
}

/// As root beyond the system's limit, otherwise up to it. Neither has to succeed: what overflows is repaired.
fn set_buffer(socket: &Socket, force: i32, ordinary: i32) {
    if mmsg::set_option(socket.as_fd(), libc::SOL_SOCKET, force, BUFFER_BYTES).is_err() {
        let _ = mmsg::set_option(socket.as_fd(), libc::SOL_SOCKET, ordinary, BUFFER_BYTES);
    }
}

fn open_raw(own: IpAddr) -> Result<Socket, LinkError> {
    let all = interfaces::interfaces().map_err(|source| LinkError::Io { what: "list interfaces", source })?;
    let Some(interface) = all.iter().find(|interface| interface.address == own) else {
        return Err(LinkError::NoInterface { address: own, available: describe(&all) });
    };
    let raw = |source| LinkError::Raw { interface: interface.name.clone(), source };
    let protocol = if own.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 } as u16;
    let index = interfaces::index(&interface.name).map_err(raw)?;
    // SOCK_DGRAM: the link layer's header is taken off, whatever it is. No protocol yet, or packets of all interfaces would come
    // until it is bound.
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, None).map_err(raw)?;
    socket.set_nonblocking(true).map_err(raw)?;
    mmsg::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1).map_err(raw)?;
    mmsg::bind_packet(socket.as_fd(), index, protocol).map_err(raw)?;
    set_buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF);
    Ok(socket)
}

impl Link for UdpLink {
    fn batch(&self) -> usize {
        BATCH
    }

    fn send(&mut self, batch: &mut Vec<Transmit>) -> Result<(), LinkError> {
        self.full.clear();
        for (index, datagram) in batch.iter().enumerate() {
            if self.config.peers.contains_key(&datagram.to_rank) {
                let sockets = usize::from(self.config.source_sockets);
                let control = if is_data(&datagram.payload) { 0 } else { sockets };
                self.turns[control + usize::from(datagram.source_port) % sockets].push(index);
            } else {
                self.stats.unaddressed += 1;
            }
        }
        let mut left = Vec::new();
        let mut turns = std::mem::take(&mut self.turns);
        for (socket, turn) in turns.iter_mut().enumerate() {
            let mut rest = turn.as_slice();
            while !rest.is_empty() {
                let outgoing: Vec<Outgoing<'_>> = rest
                    .iter()
                    .take(BATCH)
                    .filter_map(|&index| batch.get(index))
                    .filter_map(|datagram| {
                        let to = *self.config.peers.get(&datagram.to_rank)?;
                        Some(Outgoing { to, tos: datagram.tos, payload: &datagram.payload })
                    })
                    .collect();
                let (taken, error) = mmsg::send(self.sending[socket].as_fd(), &outgoing);
                let taken = taken.min(outgoing.len());
                self.stats.sent += taken as u64;
                self.stats.sent_bytes +=
                    outgoing[..taken].iter().map(|o| o.payload.len() as u64).sum::<u64>();
                let first_to = outgoing.get(taken).map(|o| o.to);
                rest = rest.get(taken..).unwrap_or_default();
                match error.as_ref().map(io::Error::raw_os_error) {
                    None if taken > 0 => {}
                    Some(Some(libc::EINTR)) => {}
                    None | Some(Some(libc::EAGAIN | libc::ENOBUFS)) => {
                        self.full.push(self.sending[socket].as_raw_fd());
                        left.extend_from_slice(rest);
                        break;
                    }
                    Some(_) => {
                        if let (Some(to), Some(error)) = (first_to, &error) {
                            self.refuse(to, error);
                        }
                        rest = rest.get(1..).unwrap_or_default();
                    }
                }
            }
            turn.clear();
        }
        self.turns = turns;
        if left.is_empty() {
            batch.clear();
        } else {
            left.sort_unstable();
            let mut index = 0;
            batch.retain(|_| {
                index += 1;
                left.binary_search(&(index - 1)).is_ok()
            });
        }
        Ok(())
    }

    fn receive(&mut self, take: &mut dyn FnMut(u8, &[u8])) -> Result<usize, LinkError> {
        let Self { config, inbox, stats, listening, raw, .. } = self;
        let receive = |source| LinkError::Io { what: "receive", source };
        let mut deliver = |source: Option<IpAddr>, tos: u8, payload: &[u8]| {
            stats.received += 1;
            stats.received_bytes += payload.len() as u64;
            if config.learn
                && let (Ok(prefix), Some(source)) = (Prefix::parse(payload), source)
                && prefix.stream.job() == config.job
            {
                let address = SocketAddr::new(source, config.bind.port());
                config.peers.entry(prefix.stream.rank()).or_insert(address);
            }
            take(tos, payload);
        };
        let Some(raw) = raw else {
            let mut from_socket = |source: Option<SocketAddr>, tos: u8, payload: &[u8]| {
                deliver(source.map(|s| s.ip()), tos, payload);
            };
            return inbox.receive(listening.as_fd(), &mut from_socket).map_err(receive);
        };
        let own = match config.bind.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let port = config.bind.port();
        inbox
            .receive(raw.as_fd(), &mut |_, _, bytes| {
                if let Some(found) = packet::parse(bytes)
                    && found.port == port
                    && found.destination == own
                {
                    deliver(Some(IpAddr::from(found.source).to_canonical()), found.tos, found.payload);
                }
            })
            .map_err(receive)
    }

    fn wait(&mut self, timeout_ns: u64, room: bool) -> Result<(), LinkError> {
        let readable = self.raw.as_ref().unwrap_or(&self.listening).as_raw_fd();
        let writable = if room { self.full.as_slice() } else { &[] };
        // ENOBUFS says that a queue of the system is full, which poll does not see: look again soon.
        let timeout_ns = if room { timeout_ns.min(1_000_000) } else { timeout_ns };
        mmsg::wait(&[readable], writable, timeout_ns).map_err(|source| LinkError::Io { what: "wait", source })
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }
}
