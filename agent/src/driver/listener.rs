// SPDX-License-Identifier: Apache-2.0
//! Where datagrams come in: one address and port.
#![forbid(unsafe_code)]

use super::link::LinkError;
use super::mmsg::{Inbox, Received};
use super::sockets::{open, open_raw, set_buffers};
use super::udp_config::Receive;
use super::{options, packet};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::Socket;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// An address that is listened on, and that control packets leave from.
#[derive(Debug)]
pub(super) struct Listener {
    address: SocketAddr,
    listening: Socket,
    /// Reads whole packets of the interface instead.
    raw: Option<Socket>,
    /// The kernel's latest count of datagrams that found no room.
    lost: u32,
}

impl Listener {
    pub(super) fn open(bind: SocketAddr, receive: Receive) -> Result<Self, LinkError> {
        let own = bind.ip();
        let option = |option, source| LinkError::Option { address: own, option, source };
        let listening = open(bind, receive == Receive::Raw)?;
        set_buffers(&listening);
        if own.is_ipv4() {
            listening.set_recv_tos_v4(true).map_err(|source| option("IP_RECVTOS", source))?;
        } else {
            listening.set_recv_tclass_v6(true).map_err(|source| option("IPV6_RECVTCLASS", source))?;
            // What comes over IPv4 to [::] has its TOS there. Harmless elsewhere.
            let _ = listening.set_recv_tos_v4(true);
            // RFC 6935: trimmed packets come with checksum 0, which IPv6 sockets refuse unless
            // told.
            let check = options::UDP_NO_CHECK6_RX;
            options::set(&listening, check, 1).map_err(|source| option(check.2, source))?;
        }
        let port = listening.local_addr().ok().and_then(|a| a.as_socket()).unwrap_or(bind).port();
        let address = SocketAddr::new(own, port);
        // In the way of a packet socket, too: a socket that takes datagrams one by one has the
        // kernel split bursts before its filter refuses them.
        if let Err(error) = setsockopt(&listening, sockopt::UdpGroSegment, &true) {
            tracing::info!("no UDP_GRO here: {error}; each datagram is received on its own");
        }
        let raw = match receive {
            Receive::Socket => None,
            Receive::Raw => Some(open_raw(address)?),
        };
        // What a datagram waits here is not the network's doing. Without, round trips are longer,
        // and vary with what this host does.
        for socket in raw.iter().chain([&listening]) {
            let _ = options::set(socket, options::SO_TIMESTAMPNS, 1);
        }
        Ok(Self { address, listening, raw, lost: 0 })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes of the receive buffer that was granted: the system says twice as many, since its own
    /// bookkeeping counts (socket(7)).
    pub(super) fn granted(&self) -> usize {
        let socket = self.raw.as_ref().unwrap_or(&self.listening);
        socket.recv_buffer_size().map_or(usize::MAX, |bytes| bytes / 2)
    }

    pub(super) fn is_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// What control packets leave from.
    pub(super) fn sending(&self) -> BorrowedFd<'_> {
        self.listening.as_fd()
    }

    /// What is readable when something has come.
    pub(super) fn reading(&self) -> BorrowedFd<'_> {
        self.raw.as_ref().unwrap_or(&self.listening).as_fd()
    }

    /// Hands over some of what waits; those that found no room are added to `overflowed`.
    pub(super) fn receive(
        &mut self,
        inbox: &mut Inbox,
        overflowed: &mut u64,
        mut take: impl FnMut(Received<'_>),
    ) -> io::Result<()> {
        let Self { address, listening, raw, lost } = self;
        let mut deliver = |incoming: Received<'_>| {
            if let Some(now) = incoming.lost {
                // The kernel's count begins again at 0 behind 2^32.
                *overflowed += u64::from(now.wrapping_sub(*lost));
                *lost = now;
            }
            take(incoming);
        };
        match raw {
            None => inbox.receive(listening.as_fd(), deliver)?,
            Some(raw) => {
                let own = match address.ip() {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                let own = own.octets();
                inbox.receive(raw.as_fd(), |frame| {
                    if let Some(incoming) = read_frame(&frame, own, address.port()) {
                        deliver(incoming);
                    }
                })?
            }
        };
        Ok(())
    }

    /// Bytes that wait in the socket that listens, with the kernel's bookkeeping; 0 where the
    /// system does not tell.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        options::receive_memory(&self.listening)
    }

    /// Leaves room for so much; for few arrivals at least.
    #[cfg(test)]
    pub(super) fn shrink(&self, bytes: usize) {
        for socket in self.raw.iter().chain([&self.listening]) {
            socket.set_recv_buffer_size(bytes).expect("rounded up");
        }
    }
}

/// Source, TOS, payload and segment of a frame from the packet socket.
fn read_frame<'a>(frame: &Received<'a>, own: [u8; 16], port: u16) -> Option<Received<'a>> {
    let (offloads, link) = frame.payload.split_at_checked(packet::OFFLOADS)?;
    const ETHERNET: usize = 14;
    let found = packet::parse(link.get(frame.network.unwrap_or(ETHERNET)..)?)?;
    // The filter lets nothing else up; another's, changed from outside, might.
    if found.port != port || found.destination != own {
        return None;
    }
    Some(Received {
        source: Some(SocketAddr::new(IpAddr::from(found.source).to_canonical(), found.source_port)),
        tos: found.tos,
        segment: packet::segment(offloads),
        stamp_ns: frame.stamp_ns,
        network: None,
        lost: frame.lost,
        payload: found.payload,
    })
}

/// [`read_frame`] of any bytes; gives the number of datagrams.
#[cfg(test)]
pub(super) fn read_any_frame(
    frame: &[u8],
    network: Option<usize>,
    own: std::net::Ipv4Addr,
    port: u16,
) -> usize {
    let frame =
        Received { source: None, tos: 0, segment: None, stamp_ns: None, network, lost: None, payload: frame };
    read_frame(&frame, own.to_ipv6_mapped().octets(), port)
        .map_or(0, |found| found.payload.chunks(found.segment.unwrap_or(1)).count())
}
