// SPDX-License-Identifier: Apache-2.0
//! What carries datagrams between endpoints.
#![forbid(unsafe_code)]

use super::wake::Wake;
use crate::burst::{Arrived, Burst};
use crate::config::MTU_LEAST;
use crate::wire::ADDRESSES_MAX;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Why a link cannot be opened or used.
#[expect(missing_docs, reason = "messages say what the fields are")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// An address cannot be bound.
    #[error("cannot listen on UDP {address}: {source}{}", bind_hint(.source))]
    Bind { address: SocketAddr, source: io::Error },
    /// A socket option is refused.
    #[error("UDP socket on {address}: cannot set {option}: {source}")]
    Option { address: IpAddr, option: &'static str, source: io::Error },
    /// Raw reception is refused.
    #[error("cannot receive raw packets on interface '{interface}': {source}{}", raw_hint(.source))]
    Raw { interface: String, source: io::Error },
    /// No interface has the address.
    #[error("no interface has the address {address}; there are: {available}")]
    NoInterface { address: IpAddr, available: String },
    /// No address to listen on is given.
    #[error("no address to listen on")]
    NoAddress,
    /// An endpoint's addresses are of one family.
    #[error("{other} is of another family than {first}")]
    Families { first: IpAddr, other: IpAddr },
    /// Too many addresses.
    #[error("{count} addresses; at most {ADDRESSES_MAX}")]
    Addresses { count: usize },
    /// The MTU of an interface is too small.
    #[error(
        "interface '{interface}' ({address}) has an MTU of {mtu} bytes; at least {MTU_LEAST} are needed: ip link set {interface} mtu 1500"
    )]
    Mtu {
        interface: String,
        address: IpAddr,
        /// Its MTU, bytes.
        mtu: u32,
    },
    /// A peer cannot be reached from the address that is bound.
    #[error("rank {rank} has the address {peer}, of another family than this endpoint's {own}")]
    Family { rank: u16, peer: SocketAddr, own: IpAddr },
    /// A port of a channel is not free.
    #[error(
        "{channels} channels listen on UDP ports {port} and those behind it, of which {taken} is not free (--port chooses another, --channels takes fewer)"
    )]
    Ports { port: u16, channels: u16, taken: u16 },
    /// Receiving or waiting failed for good.
    #[error("cannot {what}: {source}")]
    Io { what: &'static str, source: io::Error },
}

fn bind_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => " (another agent runs here? `ss -ulnp` tells; --port chooses another)",
        io::ErrorKind::AddrNotAvailable => " (no interface has this address; `ip addr` lists them)",
        _ => "",
    }
}

fn raw_hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied { " (needs CAP_NET_RAW: run as root)" } else { "" }
}

/// Totals of a link since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Datagrams received.
    pub received: u64,
    /// Their payload bytes.
    pub received_bytes: u64,
    /// Datagrams, or runs of them that the kernel had put together, that came and found the receive
    /// buffer full: lost, at this end. Known when the next one is received.
    pub overflowed: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Their payload bytes.
    pub sent_bytes: u64,
    /// Datagrams that the system refused (no route, too long); lost.
    pub refused: u64,
    /// Of these, the ones longer than the path's MTU allows.
    pub too_long: u64,
    /// Datagrams for nobody that is known; lost.
    pub unaddressed: u64,
}

/// What a link hands an arrival and its payload to.
pub type Take<'a> = dyn FnMut(Arrived, &[u8]) + 'a;

/// Carries datagrams. Losing, trimming, duplicating and reordering them is allowed.
pub trait Link {
    /// Takes bursts from the front of `batch` and sends their datagrams, in order for each origin.
    /// What is left there, whole bursts or the ends of some, found no room and is to be offered
    /// again after a [`Self::wait`] with `room`.
    ///
    /// # Errors
    /// When the link cannot be used any more. A datagram that cannot be sent is counted and lost.
    fn send(&mut self, batch: &mut VecDeque<Burst>) -> Result<(), LinkError>;

    /// Hands over some of what waits, one datagram a call of `take`; gives their number, which is 0
    /// when nothing waits. Does a bounded amount of work and does not block.
    ///
    /// # Errors
    /// When the link cannot be used any more.
    fn receive(&mut self, take: &mut Take<'_>) -> Result<usize, LinkError>;

    /// Whether nothing waited behind what the last [`Self::receive`] has handed over, as far as is
    /// known: asking again at once would be in vain.
    fn is_drained(&self) -> bool {
        false
    }

    /// Waits until there may be something to receive, at most `timeout_ns`; with `room`, also until
    /// there may be room to send. May return early.
    ///
    /// # Errors
    /// When the link cannot be used any more.
    fn wait(&mut self, timeout_ns: u64, room: bool) -> Result<(), LinkError>;

    /// From now on [`Self::wait`] ends, too, when `wake` is woken. `false`: this link cannot do
    /// that.
    fn wake_by(&mut self, wake: Arc<Wake>) -> bool {
        let _ = wake;
        false
    }

    /// Bytes of the longest IP packet that its interfaces carry just now; `None`: there is no such
    /// limit. Asked again when datagrams were too long for them ([`LinkStats::too_long`]).
    fn mtu(&self) -> Option<u16> {
        None
    }

    /// Payload bytes that wait in its receive buffers at most, as far as is known.
    fn holds(&self) -> u64 {
        u64::MAX
    }

    /// Totals.
    fn stats(&self) -> LinkStats;

    /// The source ports that bursts of [`Origin::Path`](crate::burst::Origin::Path) leave from, by
    /// index; at least one. Higher indices begin again at the first.
    fn data_ports(&self) -> Vec<u16>;

    /// The address that is listened on, with its port, and that bursts of
    /// [`Origin::Listening`](crate::burst::Origin::Listening) leave from; with several interfaces,
    /// the first one's.
    fn local_address(&self) -> SocketAddr;

    /// All addresses that are listened on, where there are several.
    fn addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }
}

impl std::ops::AddAssign for LinkStats {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.overflowed += other.overflowed;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.refused += other.refused;
        self.too_long += other.too_long;
        self.unaddressed += other.unaddressed;
    }
}
