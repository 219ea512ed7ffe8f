// SPDX-License-Identifier: Apache-2.0
//! Opening the sockets of a link.
#![forbid(unsafe_code)]

use super::interfaces::{self, describe};
use super::link::LinkError;
use super::options;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, SocketAddr};

/// Half a second of 100 Mbit/s, or 5 ms of 10 Gbit/s, waits in a socket at most.
pub(super) const BUFFER_BYTES: usize = 8 << 20;
/// What one socket may have in the queue in front of the card: enough for it to have something to
/// send while this thread is off its core for a millisecond.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// A socket on an address; datagrams that leave it are never fragmented. What ICMP messages say of
/// paths is not believed, so that nobody who sends one can shorten packets: endpoints find out
/// themselves (RFC 8899). Nothing comes up from one that is left `unread`.
pub(super) fn open(address: SocketAddr, unread: bool) -> Result<Socket, LinkError> {
    let bind = |source| LinkError::Bind { address, source };
    let option = |option, source| LinkError::Option { address: address.ip(), option, source };
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP)).map_err(bind)?;
    socket.set_nonblocking(true).map_err(bind)?;
    if unread {
        options::refuse_all(&socket).map_err(|source| option("SO_ATTACH_FILTER", source))?;
    }
    let discover = options::IP_MTU_DISCOVER;
    // On IPv6 sockets it is for IPv4-mapped addresses, and need not be there.
    let outcome = options::set(&socket, discover, libc::IP_PMTUDISC_PROBE);
    if address.is_ipv4() {
        outcome.map_err(|source| option(discover.2, source))?;
    } else {
        let discover = options::IPV6_MTU_DISCOVER;
        options::set(&socket, discover, libc::IPV6_PMTUDISC_PROBE)
            .map_err(|source| option(discover.2, source))?;
    }
    socket.bind(&zoned(address).into()).map_err(bind)?;
    Ok(socket)
}

/// With the interface that has the address, where it is link-local and the kernel wants to know
/// one. What is sent to other addresses of the kind leaves by it, too.
fn zoned(mut address: SocketAddr) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut address
        && v6.ip().is_unicast_link_local()
        && let Ok(all) = interfaces::interfaces()
        && let Some(own) = all.iter().find(|interface| interface.address == IpAddr::V6(*v6.ip()))
    {
        v6.set_scope_id(if_nametoindex(own.name.as_str()).unwrap_or(0));
    }
    address
}

/// As root beyond the system's limit, otherwise up to it. None has to succeed: less is sent at a
/// time then ([`Link::holds`](super::link::Link::holds)).
pub(super) fn set_buffers(socket: &Socket) {
    let _ = setsockopt(socket, sockopt::RxqOvfl, &1);
    if setsockopt(socket, sockopt::RcvBufForce, &BUFFER_BYTES).is_err() {
        let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
    }
    if setsockopt(socket, sockopt::SndBufForce, &SEND_BUFFER_BYTES).is_err() {
        let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES);
    }
}

/// The MTU that the kernel knows of the way to an address.
pub(super) fn path_mtu(own: SocketAddr, to: SocketAddr) -> Option<u32> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP)).ok()?;
    if own.is_ipv4() == to.is_ipv4() {
        socket.bind(&zoned(SocketAddr::new(own.ip(), 0)).into()).ok()?;
    }
    socket.connect(&to.into()).ok()?;
    let option = if to.is_ipv4() { options::IP_MTU } else { options::IPV6_MTU };
    u32::try_from(options::read(&socket, option).ok()?).ok()
}

/// A packet socket that hears UDP to an address and port, on the interface that has the address.
pub(super) fn open_raw(own: SocketAddr) -> Result<Socket, LinkError> {
    let address = own.ip();
    let all = interfaces::interfaces().map_err(|source| LinkError::Io { what: "list interfaces", source })?;
    let Some(interface) = all.iter().find(|interface| interface.address == address) else {
        return Err(LinkError::NoInterface { address, available: describe(&all) });
    };
    let raw = |source| LinkError::Raw { interface: interface.name.clone(), source };
    let protocol = if address.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 } as u16;
    let index = if_nametoindex(interface.name.as_str()).map_err(|errno| raw(errno.into()))?;
    // No protocol yet, or packets of all interfaces would come until it is bound. SOCK_RAW, because
    // PACKET_VNET_HDR asks for it: a sender on this machine may hand over bursts that nobody has
    // split, and that header tells where.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None).map_err(raw)?;
    socket.set_nonblocking(true).map_err(raw)?;
    for option in [options::PACKET_IGNORE_OUTGOING, options::PACKET_AUXDATA, options::PACKET_VNET_HDR] {
        options::set(&socket, option, 1).map_err(raw)?;
    }
    socket.attach_filter(&options::to_port(address, own.port())).map_err(raw)?;
    set_buffers(&socket);
    options::bind_packet(&socket, index, protocol).map_err(raw)?;
    Ok(socket)
}
