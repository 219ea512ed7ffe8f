// SPDX-License-Identifier: Apache-2.0
//! Options of sockets that neither socket2 nor nix has, and the kernel's filters.
#![expect(
    unsafe_code,
    reason = "setsockopt of options, and the address of a packet socket, that have no wrapper"
)]

use socket2::{SockAddr, SockFilter, Socket};
use std::io;
use std::mem::size_of;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

/// Level and name of an `int` option.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number(i32, i32, pub(super) &'static str);

// linux/udp.h; the libc crate has them for some targets only.
pub(super) const UDP_NO_CHECK6_TX: Number = Number(libc::IPPROTO_UDP, 101, "UDP_NO_CHECK6_TX");
pub(super) const UDP_NO_CHECK6_RX: Number = Number(libc::IPPROTO_UDP, 102, "UDP_NO_CHECK6_RX");
pub(super) const SO_NO_CHECK: Number = Number(libc::SOL_SOCKET, libc::SO_NO_CHECK, "SO_NO_CHECK");
pub(super) const IP_MTU_DISCOVER: Number = Number(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, "IP_MTU_DISCOVER");
pub(super) const IPV6_MTU_DISCOVER: Number =
    Number(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, "IPV6_MTU_DISCOVER");
pub(super) const IP_MTU: Number = Number(libc::IPPROTO_IP, libc::IP_MTU, "IP_MTU");
pub(super) const IPV6_MTU: Number = Number(libc::IPPROTO_IPV6, libc::IPV6_MTU, "IPV6_MTU");
pub(super) const SO_TIMESTAMPNS: Number = Number(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, "SO_TIMESTAMPNS");
pub(super) const PACKET_IGNORE_OUTGOING: Number =
    Number(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING");
pub(super) const PACKET_AUXDATA: Number = Number(libc::SOL_PACKET, libc::PACKET_AUXDATA, "PACKET_AUXDATA");
pub(super) const PACKET_VNET_HDR: Number = Number(libc::SOL_PACKET, libc::PACKET_VNET_HDR, "PACKET_VNET_HDR");

/// Sets an option.
pub(super) fn set(socket: &Socket, option: Number, value: i32) -> io::Result<()> {
    let Number(level, name, _) = option;
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option.
pub(super) fn read(socket: &Socket, option: Number) -> io::Result<i32> {
    let Number(level, name, _) = option;
    let mut value = 0_i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointers are to `value` and to its length, which live through the call.
    let outcome = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Binds a packet socket to an interface, from which packets of `protocol` come then.
pub(super) fn bind_packet(socket: &Socket, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: the storage is zeroed, holds any address with its alignment, and a sockaddr_ll as
    // long as `length` is written to it.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            let address = storage.cast::<libc::sockaddr_ll>();
            (*address).sll_family = libc::AF_PACKET as u16;
            (*address).sll_protocol = protocol.to_be();
            (*address).sll_ifindex = index as i32;
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })?
    };
    socket.bind(&address)
}

/// Lets nothing up: for sockets that only send, and for the one that holds the port which a packet
/// socket reads.
pub(super) fn refuse_all(socket: &Socket) -> io::Result<()> {
    socket.attach_filter(&[SockFilter::new(RETURN, 0, 0, 0)])
}

// linux/filter.h and linux/bpf_common.h.
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const LOAD_WORD: u16 = 0x20;
/// Of the half word at the index register and an offset.
const LOAD_HALF_INDEXED: u16 = 0x48;
const AND: u16 = 0x54;
const SHIFT_LEFT: u16 = 0x64;
const TO_INDEX: u16 = 0x07;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_BITS: u16 = 0x45;
const RETURN: u16 = 0x06;
/// Offsets from here count from the IP header (SKF_NET_OFF), whatever stands before it.
const IP: u32 = 0xfff0_0000;
const UDP: u32 = 17;

/// The kernel's filter for a packet socket: UDP to an address and port, no fragments, in IPv4 or in
/// IPv6 without extension headers. A packet too short to tell does not pass.
pub(super) fn to_port(own: IpAddr, port: u16) -> Vec<SockFilter> {
    // (code, offset or value, which outcome leads to the refusal at the end)
    let load = |code, at: u32| (code, IP.wrapping_add(at), None);
    let must_be = |value| (JUMP_EQUAL, value, Some(false));
    let port = u32::from(port);
    let steps = match own {
        IpAddr::V4(v4) => vec![
            load(LOAD_BYTE, 9),
            must_be(UDP),
            load(LOAD_HALF, 6),
            (JUMP_BITS, 0x3fff, Some(true)),
            load(LOAD_WORD, 16),
            must_be(v4.to_bits()),
            load(LOAD_BYTE, 0),
            (AND, 0xf, None),
            (SHIFT_LEFT, 2, None),
            (TO_INDEX, 0, None),
            load(LOAD_HALF_INDEXED, 2),
            must_be(port),
        ],
        IpAddr::V6(v6) => {
            let words = v6.to_bits();
            let mut steps = vec![load(LOAD_BYTE, 6), must_be(UDP)];
            for (at, shift) in [(24, 96), (28, 64), (32, 32), (36, 0)] {
                steps.extend([load(LOAD_WORD, at), must_be((words >> shift) as u32)]);
            }
            steps.extend([load(LOAD_HALF, 42), must_be(port)]);
            steps
        }
    };
    let count = steps.len();
    let mut filter: Vec<SockFilter> = Vec::with_capacity(count + 2);
    for (at, (code, value, refused_if)) in steps.into_iter().enumerate() {
        // Jumps count from the next step; the refusal stands one behind the acceptance.
        let refusal = (count - at) as u8;
        let (if_true, if_false) = match refused_if {
            None => (0, 0),
            Some(true) => (refusal, 0),
            Some(false) => (0, refusal),
        };
        filter.push(SockFilter::new(code, if_true, if_false, value));
    }
    filter.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
    filter.push(SockFilter::new(RETURN, 0, 0, 0));
    filter
}

/// Bytes that a socket's receive queue holds, as the kernel accounts for them (SO_MEMINFO); 0 where
/// it does not tell.
#[cfg(test)]
pub(super) fn receive_memory(socket: &Socket) -> usize {
    // linux/sock_diag.h: SK_MEMINFO_RMEM_ALLOC is the first of nine.
    let mut values = [0_u32; 9];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the pointers are to `values` and to its length, which live through the call.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if outcome < 0 { 0 } else { values[0] as usize }
}
