// SPDX-License-Identifier: Apache-2.0
//! What an interface does for the kernel (`ethtool -k`, `ethtool -i`).
#![expect(unsafe_code, reason = "SIOCETHTOOL has no safe wrapper among the dependencies")]

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

/// linux/ethtool.h.
const GET_DRIVER: u32 = 0x03;
const GET_TX_CHECKSUM: u32 = 0x16;
const GET_SEGMENTATION: u32 = 0x23;
const SIOCETHTOOL: libc::Ioctl = 0x8946;
/// Bytes of `struct ethtool_drvinfo`, the longest answer asked for.
const LONGEST: usize = 196;
/// Where the driver's name stands in it.
const DRIVER: std::ops::Range<usize> = 4..36;

/// An interface's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offloads {
    /// Its driver's name: `veth` is one that joins namespaces of a machine.
    pub driver: String,
    /// It fills in checksums: a software switch at its other end finds packets without.
    pub checksums: bool,
    /// It splits bursts into datagrams: a software switch at its other end finds them whole.
    pub segmentation: bool,
}

/// Asks the kernel. Loopback answers as others do.
///
/// # Errors
/// When there is no such interface, or its driver does not tell.
pub fn offloads(interface: &str) -> io::Result<Offloads> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let ask = |command: u32| -> io::Result<[u8; LONGEST]> {
        let mut answer = Answer([0; LONGEST]);
        answer.0[..4].copy_from_slice(&command.to_ne_bytes());
        // SAFETY: ifreq is plain data for which all zeroes are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays the name's end.
        for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut answer).cast();
        // SAFETY: the request points to as many bytes as the longest of these answers has, aligned
        // for its words; both outlive the call.
        if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(answer.0)
    };
    let flag = |command| ask(command).map(|answer| answer[4..8] != [0; 4]);
    let driver = ask(GET_DRIVER).map(|answer| {
        let name = answer[DRIVER].iter().take_while(|&&byte| byte != 0).copied().collect();
        String::from_utf8(name).unwrap_or_default()
    });
    // Not every driver has a name to tell; an interface that is not there has no flags either.
    Ok(Offloads {
        driver: driver.unwrap_or_default(),
        checksums: flag(GET_TX_CHECKSUM)?,
        segmentation: flag(GET_SEGMENTATION)?,
    })
}

/// `struct ethtool_value` and `struct ethtool_drvinfo` begin with words.
#[repr(C, align(8))]
struct Answer([u8; LONGEST]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_answers_and_what_is_not_there_does_not() {
        assert!(offloads("no such interface").is_err());
        assert!(offloads("a name that is longer than any interface may have").is_err());
        assert_ne!(offloads("lo").map(|loopback| loopback.driver).ok().as_deref(), Some("veth"));
    }
}
