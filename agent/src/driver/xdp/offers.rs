// SPDX-License-Identifier: Apache-2.0
//! What an interface's driver knows of XDP, as the kernel tells (netdev netlink family; Linux 6.3 and later).
#![forbid(unsafe_code)]

use crate::driver::netlink::{Question, attributes, open, u16_at, word};
use nix::net::if_::if_nametoindex;
use nix::sys::socket::SockProtocol;
use std::io;

// linux/genetlink.h and linux/netdev.h.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
/// NETDEV_XDP_ACT_BASIC and NETDEV_XDP_ACT_REDIRECT.
const NATIVE: u64 = 3;
const ZERO_COPY: u64 = 8;
/// Bytes of `struct genlmsghdr`.
const HEADER: usize = 4;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offers {
    /// It runs programs that hand frames to sockets.
    pub native: bool,
    /// Its card reads and writes frames in a socket's memory.
    pub zero_copy: bool,
}

/// Asks for an interface.
///
/// # Errors
/// Where there is no such interface, or the kernel does not tell.
pub fn offers(interface: &str) -> io::Result<Offers> {
    let index = if_nametoindex(interface)?;
    let fd = open(SockProtocol::NetlinkGeneric, 0)?;
    let family = Question::new(GENL_ID_CTRL, &[CTRL_CMD_GETFAMILY, 1, 0, 0])
        .with(CTRL_ATTR_FAMILY_NAME, b"netdev\0")
        .ask(&fd)?;
    let untold = || io::Error::other("the kernel does not tell (Linux 6.3 does)");
    let id = attributes(family.get(HEADER..).unwrap_or_default())
        .find_map(|(kind, value)| (kind == CTRL_ATTR_FAMILY_ID).then(|| u16_at(value, 0)).flatten())
        .ok_or_else(untold)?;
    let device = Question::new(id, &[NETDEV_CMD_DEV_GET, 1, 0, 0])
        .with(NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes())
        .ask(&fd)?;
    let features = attributes(device.get(HEADER..).unwrap_or_default())
        .find_map(|(kind, value)| (kind == NETDEV_A_DEV_XDP_FEATURES).then(|| word(value, 0)).flatten())
        .map(u64::from_ne_bytes)
        .ok_or_else(untold)?;
    Ok(Offers { native: features & NATIVE == NATIVE, zero_copy: features & ZERO_COPY != 0 })
}
