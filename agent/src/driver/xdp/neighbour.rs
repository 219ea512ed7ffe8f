// SPDX-License-Identifier: Apache-2.0
//! Where frames go: interfaces and next hops, as the kernel knows them.
//!
//! The kernel resolves addresses, not this. A destination that it has not resolved is sent to by UDP sockets, which makes it do so. It
//! also learns by that whether an address that it has not heard of for a while is still right: one burst a minute or so goes that way.
#![forbid(unsafe_code)]

use crate::driver::netlink::{Question, attributes, open, u16_at, u32_at, word};
use nix::sys::socket::SockProtocol;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// An Ethernet address.
pub(super) type Mac = [u8; 6];

/// What was found is believed for so long,
const KNOWN_NS: u64 = 1_000_000_000;
/// and what was not found for so long.
const UNKNOWN_NS: u64 = 5_000_000;
/// Destinations of one rank, at most; where there are more, all are looked up anew.
const DESTINATIONS: usize = 4_096;

// linux/rtnetlink.h, linux/if_link.h and linux/neighbour.h.
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_VIA: u16 = 18;
const IFLA_ADDRESS: u16 = 1;
const IFLA_MTU: u16 = 4;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_STALE: u16 = 0x04;
/// All in which the address is usable.
const NUD_VALID: u16 = 0xde;
/// Bytes of `struct ifinfomsg`, `struct rtmsg` and `struct ndmsg`.
const INTERFACE: usize = 16;
const ROUTE: usize = 12;
const NEIGHBOUR: usize = 12;
const UNICAST: u8 = 1;

/// An interface, just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interface {
    /// `None` where it is no Ethernet.
    pub(super) mac: Option<Mac>,
    pub(super) is_loopback: bool,
    pub(super) is_up: bool,
    /// Bytes of an IP packet.
    pub(super) mtu: u32,
    /// Receive queues that it may have; it need not have as many now.
    pub(super) queues: u32,
}

/// Asks for an interface by its index.
pub(super) fn interface(fd: &OwnedFd, index: u32) -> io::Result<Interface> {
    let mut body = [0; INTERFACE];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    let answer = Question::new(libc::RTM_GETLINK, &body).ask(fd)?;
    let kind = u16_at(&answer, 2);
    let flags = u32_at(&answer, 8).unwrap_or(0);
    let mut found = Interface {
        mac: None,
        is_loopback: flags & libc::IFF_LOOPBACK as u32 != 0,
        is_up: flags & libc::IFF_UP as u32 != 0,
        mtu: 0,
        queues: 1,
    };
    for (attribute, value) in attributes(answer.get(INTERFACE..).unwrap_or_default()) {
        match attribute {
            IFLA_ADDRESS if kind == Some(libc::ARPHRD_ETHER) => found.mac = value.try_into().ok(),
            IFLA_MTU => found.mtu = u32_at(value, 0).unwrap_or(0),
            IFLA_NUM_RX_QUEUES => found.queues = u32_at(value, 0).unwrap_or(1),
            _ => {}
        }
    }
    Ok(found)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => word::<4>(bytes, 0).map(IpAddr::from),
        _ => word::<16>(bytes, 0).map(IpAddr::from),
    }
}

#[derive(Debug, Clone, Copy)]
struct Known {
    mac: Option<Mac>,
    looked_ns: u64,
}

/// Next hops of one interface.
#[derive(Debug)]
pub(super) struct Neighbours {
    rtnetlink: OwnedFd,
    interface: u32,
    own: IpAddr,
    known: BTreeMap<IpAddr, Known>,
}

impl Neighbours {
    /// Of packets from `own` that leave by an interface.
    pub(super) fn open(interface: u32, own: IpAddr) -> io::Result<Self> {
        let rtnetlink = open(SockProtocol::NetlinkRoute, 0)?;
        Ok(Self { rtnetlink, interface, own, known: BTreeMap::new() })
    }

    /// The interface, just now.
    pub(super) fn interface(&self) -> io::Result<Interface> {
        interface(&self.rtnetlink, self.interface)
    }

    /// Whom to hand packets for `to` to; `None`: to the kernel, which finds out, or takes another way.
    pub(super) fn next_hop(&mut self, to: IpAddr, now_ns: u64) -> Option<Mac> {
        let known = self.known.get(&to);
        if let Some(known) = known.filter(|known| {
            let believed_ns = if known.mac.is_some() { KNOWN_NS } else { UNKNOWN_NS };
            now_ns.saturating_sub(known.looked_ns) < believed_ns
        }) {
            return known.mac;
        }
        let is_new = known.is_none();
        if self.known.len() >= DESTINATIONS {
            self.known.clear();
        }
        // Without an answer there is a way that knows one.
        let found = self.look(to).unwrap_or(None);
        self.known.insert(to, Known { mac: found.map(|(mac, _)| mac), looked_ns: now_ns });
        // The kernel looks whether an address is still right when it sends there itself; what it has for a new one is good enough to begin.
        found.filter(|&(_, stale)| is_new || !stale).map(|(mac, _)| mac)
    }

    /// The next hop's address, and whether the kernel has not heard of it for a while.
    fn look(&self, to: IpAddr) -> io::Result<Option<(Mac, bool)>> {
        if to.is_ipv4() != self.own.is_ipv4() {
            return Ok(None);
        }
        let bits = if to.is_ipv4() { 32 } else { 128 };
        let mut body = [0; ROUTE];
        body[..3].copy_from_slice(&[family(to), bits, bits]);
        let question = Question::new(libc::RTM_GETROUTE, &body);
        let answer =
            question.with(RTA_DST, &octets(to)).with(RTA_SRC, &octets(self.own)).ask(&self.rtnetlink)?;
        let (mut out, mut hop) = (None, to);
        for (attribute, value) in attributes(answer.get(ROUTE..).unwrap_or_default()) {
            match attribute {
                RTA_OIF => out = u32_at(value, 0),
                RTA_GATEWAY => hop = address(value).unwrap_or(hop),
                // Behind its family.
                RTA_VIA => hop = value.get(2..).and_then(address).unwrap_or(hop),
                _ => {}
            }
        }
        // The kind of route: local and multicast ones have no next hop.
        if answer.get(7) != Some(&UNICAST) || out != Some(self.interface) {
            return Ok(None);
        }
        let mut body = [0; NEIGHBOUR];
        body[0] = family(hop);
        body[4..8].copy_from_slice(&self.interface.to_ne_bytes());
        let question = Question::new(libc::RTM_GETNEIGH, &body);
        let answer = question.with(NDA_DST, &octets(hop)).ask(&self.rtnetlink)?;
        let state = u16_at(&answer, 8).unwrap_or(0);
        let mac = attributes(answer.get(NEIGHBOUR..).unwrap_or_default())
            .find_map(|(attribute, value)| (attribute == NDA_LLADDR).then(|| word(value, 0)).flatten());
        Ok(mac.filter(|_| state & NUD_VALID != 0).map(|mac| (mac, state & NUD_STALE != 0)))
    }
}
