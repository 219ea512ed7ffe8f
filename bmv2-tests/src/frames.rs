// SPDX-License-Identifier: Apache-2.0
//! Whole Ethernet frames into and out of an interface.
//!
//! pnet's channel is not used: the kernel takes VLAN tags off what packet sockets receive and says
//! so in PACKET_AUXDATA, which pnet does not read, and tests compare tagged frames.
#![expect(
    unsafe_code,
    reason = "packet sockets with PACKET_AUXDATA have no safe wrapper among the dependencies"
)]

use crate::Namespace;
use crate::packets::Burst;
use anyhow::Context;
use std::ffi::CString;
use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

const FRAME: usize = 65_536;
const TAG_AT: usize = 12;
/// Of a socket's buffer: a test that is not scheduled for a while misses nothing.
const BUFFER: libc::c_int = 64 << 20;

fn check(outcome: libc::c_int) -> io::Result<libc::c_int> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}

/// A packet socket on an interface, with options of (level, name, value).
fn open(
    interface: &str,
    protocol: u16,
    options: &[(libc::c_int, libc::c_int, libc::c_int)],
) -> io::Result<OwnedFd> {
    let name = CString::new(interface)?;
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: every pointer is to a local that outlives its call, with its own size; sockaddr_ll is
    // plain data for which all zeroes are valid; the descriptor is checked before it is owned.
    unsafe {
        let fd = OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))?);
        for (level, name, value) in options {
            let size = size_of_val(value) as libc::socklen_t;
            check(libc::setsockopt(fd.as_raw_fd(), *level, *name, (&raw const *value).cast(), size))?;
        }
        let mut address: libc::sockaddr_ll = zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as libc::c_int;
        if address.sll_ifindex == 0 {
            return Err(io::Error::last_os_error());
        }
        let size = size_of_val(&address) as libc::socklen_t;
        check(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size))?;
        Ok(fd)
    }
}

fn send(fd: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `bytes`, which lives through the call.
    let sent = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A packet socket on one interface.
#[derive(Debug)]
pub struct FrameSocket {
    fd: OwnedFd,
}

impl FrameSocket {
    /// Opens an interface of a namespace.
    pub fn open(namespace: &Namespace, interface: &str) -> anyhow::Result<Self> {
        namespace.enter(|| Self::open_here(interface))
    }

    /// Opens an interface where the calling thread is; frames that are sent on it do not come back.
    pub fn open_here(interface: &str) -> anyhow::Result<Self> {
        let options = [
            (libc::SOL_PACKET, libc::PACKET_AUXDATA, 1),
            (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1),
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER),
        ];
        let fd = open(interface, libc::ETH_P_ALL as u16, &options);
        Ok(Self { fd: fd.with_context(|| format!("packet socket on {interface}"))? })
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(&self.fd, frame)
    }

    /// The next frame, if one comes within that time.
    pub fn receive_within(&self, time: Duration) -> anyhow::Result<Option<Vec<u8>>> {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to one pollfd, which lives through the call.
        unsafe { libc::poll(&raw mut poll, 1, time.as_millis() as libc::c_int) };
        self.receive()
    }

    /// The next frame that has arrived. A VLAN tag that the kernel took off is put back.
    pub fn receive(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let mut buffer = vec![0_u8; FRAME];
        let mut control = [0_u64; 16];
        let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: FRAME };
        // SAFETY: msghdr is plain data for which all zeroes are valid.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the header points to a vector, a buffer and a control area that outlive the call,
        // with their lengths.
        let length = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut header, 0) };
        if length < 0 {
            let error = io::Error::last_os_error();
            // A packet socket is told once that its interface went down, and works when it is up
            // again.
            let nothing = [libc::EAGAIN, libc::ENETDOWN].map(Some).contains(&error.raw_os_error());
            return if nothing { Ok(None) } else { Err(error.into()) };
        }
        buffer.truncate(length as usize);
        // SAFETY: the kernel has filled the control area that `header` describes; a message is read
        // where its length says that it is whole.
        unsafe {
            let mut message = libc::CMSG_FIRSTHDR(&raw const header);
            while !message.is_null() {
                let room = (*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                if (*message).cmsg_level == libc::SOL_PACKET
                    && (*message).cmsg_type == libc::PACKET_AUXDATA
                    && room >= size_of::<libc::tpacket_auxdata>()
                {
                    let data = libc::CMSG_DATA(message).cast::<libc::tpacket_auxdata>().read_unaligned();
                    if data.tp_status & libc::TP_STATUS_VLAN_VALID != 0 && buffer.len() >= TAG_AT {
                        let tpid = data.tp_vlan_tpid.to_be_bytes();
                        let tci = data.tp_vlan_tci.to_be_bytes();
                        buffer.splice(TAG_AT..TAG_AT, [tpid[0], tpid[1], tci[0], tci[1]]);
                    }
                }
                message = libc::CMSG_NXTHDR(&raw const header, message);
            }
        }
        Ok(Some(buffer))
    }
}

/// A socket that hands frames to an interface with what is still to be done about them.
#[derive(Debug)]
pub struct BurstSocket {
    fd: OwnedFd,
}

impl BurstSocket {
    /// Opens an interface where the calling thread is.
    pub fn open_here(interface: &str) -> anyhow::Result<Self> {
        let fd = open(interface, 0, &[(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)]);
        Ok(Self { fd: fd.with_context(|| format!("packet socket on {interface}"))? })
    }

    /// Sends one frame that stands for many packets.
    pub fn send(&self, burst: &Burst) -> io::Result<()> {
        send(&self.fd, &[&burst.offload[..], &burst.frame].concat())
    }
}
