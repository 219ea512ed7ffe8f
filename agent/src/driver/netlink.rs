// SPDX-License-Identifier: Apache-2.0
//! Messages of netlink: attributes, and questions that have one answer.
#![forbid(unsafe_code)]

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes of `struct nlmsghdr`.
pub(super) const HEADER: usize = 16;
/// Bytes of the longest answer to a question about one thing.
const ANSWER: usize = 16_384;

pub(super) fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    word(bytes, at).map(u16::from_ne_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    word(bytes, at).map(u32::from_ne_bytes)
}

/// The (type, value) pairs of attributes, up to one that does not fit.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        // Nested ones, and those in network order, are marked by the upper bits.
        let kind = u16_at(bytes, 2)? & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// A socket that hears these multicast groups, and does not block.
pub(super) fn open(protocol: SockProtocol, groups: u32) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(fd)
}

/// A question that the kernel answers at once, in one message.
#[derive(Debug)]
pub(super) struct Question {
    bytes: Vec<u8>,
}

impl Question {
    /// Of a type, with what stands in front of its attributes.
    pub(super) fn new(kind: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        bytes.extend_from_slice(body);
        Self { bytes }
    }

    /// With an attribute, of a few bytes.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self
    }

    /// Asks; gives what stands behind the answer's header.
    ///
    /// # Errors
    /// The kernel's reason not to answer.
    pub(super) fn ask(mut self, fd: &OwnedFd) -> io::Result<Vec<u8>> {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        send(fd.as_raw_fd(), &self.bytes, MsgFlags::empty())?;
        let mut answer = vec![0; ANSWER];
        let length = loop {
            match recv(fd.as_raw_fd(), &mut answer, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                outcome => break outcome?,
            }
        };
        answer.truncate(length);
        if u16_at(&answer, 4).map(i32::from) == Some(libc::NLMSG_ERROR) {
            let errno =
                word(&answer, HEADER).map_or(libc::EIO, |errno| i32::from_ne_bytes(errno).saturating_neg());
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(answer.split_off(HEADER.min(answer.len())))
    }
}
