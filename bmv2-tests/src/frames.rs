// SPDX-License-Identifier: Apache-2.0
//! Whole Ethernet frames into and out of an interface.
#![expect(
    unsafe_code,
    reason = "packet sockets with PACKET_AUXDATA have no safe wrapper among the dependencies"
)]

use crate::Namespace;
use anyhow::{Context, bail};
use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const FRAME: usize = 9_216;
const TAG_AT: usize = 12;

/// A packet socket on one interface.
#[derive(Debug)]
pub struct FrameSocket {
    fd: OwnedFd,
}

fn check(outcome: libc::c_int) -> io::Result<libc::c_int> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}

impl FrameSocket {
    /// Opens an interface of a namespace; frames that it sends itself do not come back.
    pub fn open(namespace: &Namespace, interface: &str) -> anyhow::Result<Self> {
        namespace
            .enter(|| Self::open_here(interface).with_context(|| format!("packet socket on {interface}")))
    }

    fn open_here(interface: &str) -> anyhow::Result<Self> {
        let name = CString::new(interface)?;
        // SAFETY: `name` is a NUL-terminated string that lives through the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            bail!(io::Error::last_os_error());
        }
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers are passed; the result is checked before it is owned.
        let fd =
            unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, i32::from(protocol)))?) };
        for option in [libc::PACKET_AUXDATA, libc::PACKET_IGNORE_OUTGOING] {
            let on: libc::c_int = 1;
            // SAFETY: the pointer and the length describe `on`, which lives through the call.
            check(unsafe {
                libc::setsockopt(
                    fd.as_raw_fd(),
                    libc::SOL_PACKET,
                    option,
                    (&raw const on).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            })?;
        }
        // SAFETY: sockaddr_ll is plain data for which all zeroes are valid.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as libc::c_int;
        // SAFETY: the pointer and the length describe `address`, which lives through the call.
        check(unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })?;
        Ok(Self { fd })
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) -> anyhow::Result<()> {
        // SAFETY: the pointer and the length describe `frame`, which lives through the call.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 {
            bail!("sending a frame of {} bytes: {}", frame.len(), io::Error::last_os_error());
        }
        Ok(())
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
        // SAFETY: the header points to a vector, a buffer and a control area that outlive the call, with their lengths.
        let length = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        if length < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error.into()) };
        }
        buffer.truncate(length as usize);
        // SAFETY: the kernel has filled the control area that `header` describes; messages are read as far as their lengths say.
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
