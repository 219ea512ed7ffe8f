// SPDX-License-Identifier: Apache-2.0
//! Many datagrams a system call, with their control messages: sendmmsg with UDP_SEGMENT, recvmmsg
//! with UDP_GRO.
#![expect(
    unsafe_code,
    reason = "nix's sendmmsg gives all messages the same control messages, and its recvmmsg keeps raw pointers that no thread may take along"
)]

use nix::sys::socket::{SockaddrIn, SockaddrIn6, SockaddrLike};
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Messages moved by one system call.
pub(super) const BATCH: usize = 64;
/// Messages received at once while they are long: what they hold stays in the second-level cache
/// until it is read.
const LONG_BATCH: usize = 8;
/// Mean length, in bytes, from which messages are long.
const LONG: usize = 8_192;
/// Room for the longest message: 65,535 bytes of IP and what stands before them on a packet socket.
/// Odd in 4 KiB on purpose: the beginnings of buffers a power of two apart would all want the same
/// few lines of the cache.
const BUFFER: usize = 65_536 + 1_536;
/// Room for the control messages that are asked for: a TOS and a segment's length, or an auxiliary
/// record of 20 bytes, a count, and a time.
const CONTROL: usize = 128;

/// Control message buffers have to be aligned as `cmsghdr` is.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control(MaybeUninit<[u8; CONTROL]>);

enum Name {
    V4(SockaddrIn),
    V6(SockaddrIn6),
}

/// One message to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transmit<'a> {
    pub(super) to: SocketAddr,
    pub(super) tos: u8,
    pub(super) payload: &'a [u8],
    /// The kernel, or the card, splits the payload into datagrams of this length.
    pub(super) segment: Option<u16>,
}

/// Sends in order, at most [`BATCH`]. Gives how many messages the kernel took; an error is about
/// the first of them, which it did not take. What is wrong with a later one is said when it is the
/// first.
pub(super) fn send<'a>(
    fd: BorrowedFd<'_>,
    messages: impl Iterator<Item = Transmit<'a>>,
) -> (usize, Option<io::Error>) {
    let mut names = [const { MaybeUninit::<Name>::uninit() }; BATCH];
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
    let mut controls = [Control(MaybeUninit::uninit()); BATCH];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    let mut count = 0;
    for (i, message) in messages.take(BATCH).enumerate() {
        let name = names[i].write(match message.to {
            SocketAddr::V4(v4) => Name::V4(v4.into()),
            SocketAddr::V6(v6) => Name::V6(v6.into()),
        });
        let (name, name_len, level, kind) = match name {
            Name::V4(v4) => (v4.as_ptr(), v4.len(), libc::IPPROTO_IP, libc::IP_TOS),
            // The kernel sends to IPv4-mapped addresses as IPv4, whose options count then.
            Name::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
                (v6.as_ptr(), v6.len(), libc::IPPROTO_IP, libc::IP_TOS)
            }
            Name::V6(v6) => (v6.as_ptr(), v6.len(), libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        let vector = vectors[i].write(libc::iovec {
            iov_base: message.payload.as_ptr().cast_mut().cast(),
            iov_len: message.payload.len(),
        });
        // SAFETY: mmsghdr is plain data for which all zeroes are valid.
        let header = headers[i].write(unsafe { zeroed() });
        header.msg_hdr.msg_name = name.cast_mut().cast();
        header.msg_hdr.msg_namelen = name_len;
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = controls[i].0.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = CONTROL as _;
        let tos = libc::c_int::from(message.tos);
        let segment = message.segment.map(u16::to_ne_bytes);
        // SAFETY: `msg_control` points to CONTROL aligned bytes. A TOS and a segment's length take
        // CMSG_SPACE of 4 and 2 bytes, 48 of them, so the headers and their data lie inside.
        header.msg_hdr.msg_controllen = unsafe {
            let first = libc::CMSG_FIRSTHDR(&raw const header.msg_hdr);
            let mut end = push(first, level, kind, &tos.to_ne_bytes());
            if let Some(segment) = &segment {
                let next = first.byte_add(end as usize);
                end += push(next, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
            }
            end as _
        };
        count = i + 1;
    }
    if count == 0 {
        return (0, None);
    }
    // SAFETY: the first `count` headers are written and point to names, vectors, payloads and
    // control messages that outlive the call; sendmmsg writes nothing but their msg_len.
    let taken = unsafe {
        libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr().cast(), count as u32, libc::MSG_DONTWAIT)
    };
    if taken < 0 {
        return (0, Some(io::Error::last_os_error()));
    }
    ((taken as usize).min(count), None)
}

/// Writes a control message; gives the room it takes.
///
/// # Safety
/// `message` is aligned as `cmsghdr` is and has room for CMSG_SPACE of the data.
unsafe fn push(message: *mut libc::cmsghdr, level: i32, kind: i32, data: &[u8]) -> u32 {
    // SAFETY: by the caller's promise, header and data have room.
    unsafe {
        (&raw mut (*message).cmsg_level).write(level);
        (&raw mut (*message).cmsg_type).write(kind);
        (&raw mut (*message).cmsg_len).write(libc::CMSG_LEN(data.len() as u32) as _);
        libc::CMSG_DATA(message).copy_from_nonoverlapping(data.as_ptr(), data.len());
        libc::CMSG_SPACE(data.len() as u32)
    }
}

/// One message received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received<'a> {
    /// `None` on packet sockets.
    pub(super) source: Option<SocketAddr>,
    /// TOS or traffic class; 0 when the kernel does not tell.
    pub(super) tos: u8,
    /// Length of the datagrams that the payload was put together of; the last may be shorter.
    pub(super) segment: Option<usize>,
    /// When the kernel took it in, ns of its real-time clock.
    pub(super) stamp_ns: Option<u64>,
    /// Where the IP header begins, on packet sockets.
    pub(super) network: Option<usize>,
    /// Messages that the socket has lost since it was opened, for want of room; `None` as long as
    /// it is none.
    pub(super) lost: Option<u32>,
    pub(super) payload: &'a [u8],
}

/// Buffers for arrivals, used again for each batch.
pub(super) struct Inbox {
    /// BATCH times BUFFER. What is never written is never backed by memory.
    buffers: Box<[u8]>,
    /// Messages asked for at once.
    batch: usize,
    /// The last time fewer came than were asked for.
    drained: bool,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("batch", &self.batch).finish_non_exhaustive()
    }
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { buffers: vec![0; BATCH * BUFFER].into_boxed_slice(), batch: BATCH, drained: false }
    }

    /// Whether the last socket that was read had no more messages.
    pub(super) fn is_drained(&self) -> bool {
        self.drained
    }

    /// Hands what waits, at most [`BATCH`] messages, to `take`; gives their number.
    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        mut take: impl FnMut(Received<'_>),
    ) -> io::Result<usize> {
        let mut names = [const { MaybeUninit::<libc::sockaddr_in6>::uninit() }; BATCH];
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        let mut controls = [Control(MaybeUninit::uninit()); BATCH];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        for (i, buffer) in self.buffers.chunks_exact_mut(BUFFER).take(self.batch).enumerate() {
            let vector =
                vectors[i].write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
            // SAFETY: mmsghdr is plain data for which all zeroes are valid.
            let header = headers[i].write(unsafe { zeroed() });
            header.msg_hdr.msg_name = names[i].as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = controls[i].0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL as _;
        }
        // SAFETY: the first `batch` headers are written and point to a name, a vector, a buffer and
        // a control area that outlive the call, with their lengths; the time-out is none.
        let count = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                self.batch as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        let count = (count as usize).min(self.batch);
        let mut bytes = 0;
        for (header, buffer) in headers.iter().take(count).zip(self.buffers.chunks_exact(BUFFER)) {
            // SAFETY: `count` is at most the number of headers that were written.
            let header = unsafe { header.assume_init_ref() };
            let length = (header.msg_len as usize).min(BUFFER);
            bytes += length;
            let mut incoming = Received {
                // SAFETY: the kernel has written the name that the header points to, as long as it
                // says.
                source: unsafe { source(&header.msg_hdr) },
                tos: 0,
                segment: None,
                stamp_ns: None,
                network: None,
                lost: None,
                payload: &buffer[..length],
            };
            // SAFETY: the kernel has filled the control area that the header describes, and it is
            // alive.
            unsafe { read_controls(&header.msg_hdr, &mut incoming) };
            take(incoming);
        }
        self.drained = count < self.batch;
        self.batch = if bytes > count * LONG { LONG_BATCH } else { BATCH };
        Ok(count)
    }
}

/// # Safety
/// `msg_name` points to `msg_namelen` bytes that the kernel wrote.
unsafe fn source(header: &libc::msghdr) -> Option<SocketAddr> {
    let (name, length) = (header.msg_name, header.msg_namelen as usize);
    if length < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: an address begins with its family, which says which structure it is; each is read
    // only when it is there whole.
    unsafe {
        match i32::from(name.cast::<libc::sa_family_t>().read_unaligned()) {
            libc::AF_INET => {
                let name = name.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
            }
            libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
                let name = name.cast::<libc::sockaddr_in6>().read_unaligned();
                let (ip, port) = (Ipv6Addr::from(name.sin6_addr.s6_addr), u16::from_be(name.sin6_port));
                Some(match ip.to_ipv4_mapped() {
                    Some(v4) => SocketAddrV4::new(v4, port).into(),
                    // Who wants to know the interface knows it from the socket.
                    None => SocketAddrV6::new(ip, port, 0, 0).into(),
                })
            }
            _ => None,
        }
    }
}

/// # Safety
/// The kernel has filled the control area that `header` describes, and it is alive.
unsafe fn read_controls(header: &libc::msghdr, incoming: &mut Received<'_>) {
    // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR stay inside the area, and each message's data is read
    // only as far as its length says.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let data = libc::CMSG_DATA(message);
            let length = ((*message).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_TOS) if length >= 1 => incoming.tos = *data,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if length >= size_of::<libc::c_int>() => {
                    incoming.tos = data.cast::<libc::c_int>().read_unaligned() as u8;
                }
                (libc::SOL_UDP, libc::UDP_GRO) if length >= size_of::<libc::c_int>() => {
                    let segment = data.cast::<libc::c_int>().read_unaligned();
                    incoming.segment = usize::try_from(segment).ok().filter(|&segment| segment > 0);
                }
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) if length >= size_of::<libc::tpacket_auxdata>() => {
                    let record = data.cast::<libc::tpacket_auxdata>().read_unaligned();
                    incoming.network = Some(usize::from(record.tp_net));
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) if length >= size_of::<libc::timespec>() => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    incoming.stamp_ns = Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) if length >= size_of::<u32>() => {
                    incoming.lost = Some(data.cast::<u32>().read_unaligned());
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
}
