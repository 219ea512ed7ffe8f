// SPDX-License-Identifier: Apache-2.0
//! A socket that hands bursts to an interface which has segmentation offloads, or has not.

pub(crate) mod recipe;

use recipe::Burst;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// A socket that hands frames to an interface with what is to be done about them.
pub(crate) struct Sender(OwnedFd);

impl Sender {
    pub(crate) fn open(interface: &str) -> Self {
        let name = std::ffi::CString::new(interface).unwrap();
        // SAFETY: plain system calls; every pointer is to a local that outlives its call, with its
        // own size.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(fd);
            let on: libc::c_int = 1;
            let size = size_of_val(&on) as libc::socklen_t;
            let done = libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_VNET_HDR,
                (&raw const on).cast(),
                size,
            );
            assert_eq!(done, 0, "{}", io::Error::last_os_error());
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            assert_ne!(address.sll_ifindex, 0, "no interface {interface}");
            let size = size_of_val(&address) as libc::socklen_t;
            let bound = libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size);
            assert_eq!(bound, 0, "{}", io::Error::last_os_error());
            Self(fd)
        }
    }

    /// # Errors
    /// The kernel's, where it takes the burst for none.
    pub(crate) fn send(&self, burst: &Burst) -> io::Result<()> {
        let bytes = [&burst.offload[..], &burst.frame].concat();
        // SAFETY: the pointer and the length describe `bytes`.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// What `ethtool -K INTERFACE tx off gso off` does: checksums and segments are made by the kernel
/// before frames leave.
pub(crate) fn offloads_off(interface: &str) {
    // linux/ethtool.h: ETHTOOL_STXCSUM, ETHTOOL_SGSO, SIOCETHTOOL.
    let socket = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("0.0.0.0:0")).unwrap();
    for command in [0x17u32, 0x24] {
        let mut value = [command, 0];
        // SAFETY: ifreq is plain data for which all zeroes are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request points to a struct ethtool_value (two words); both outlive the call.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), 0x8946, &raw mut request) };
        assert_eq!(done, 0, "{interface}: {}", io::Error::last_os_error());
    }
}
