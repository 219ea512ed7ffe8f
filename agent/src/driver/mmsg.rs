//! Batches of datagrams with their TOS, and waiting: sendmmsg, recvmmsg, ppoll.
#![expect(
    unsafe_code,
    reason = "socket2 has neither sendmmsg and recvmmsg nor control messages; this module holds the crate's socket calls"
)]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Datagrams moved by one system call.
pub(super) const BATCH: usize = 64;
/// Longest datagram taken whole: a jumbo frame's.
const BUFFER: usize = 9_216;
/// Room for the control messages that are asked for: one `int`, with its header, aligned.
const CONTROL: usize = 64;

/// Control message buffers have to be aligned as `cmsghdr` is.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL]);

/// A datagram to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) to: SocketAddr,
    pub(super) tos: u8,
    pub(super) payload: &'a [u8],
}

/// Sends in order. Gives how many the kernel took; an error is about the first that it did not take. Neither is
/// reported for those behind it.
pub(super) fn send(fd: BorrowedFd<'_>, batch: &[Outgoing<'_>]) -> (usize, Option<io::Error>) {
    let batch = &batch[..batch.len().min(BATCH)];
    // SAFETY: all of these are plain data for which all zeroes are valid.
    let (mut names, mut vectors, mut headers): (
        [libc::sockaddr_storage; BATCH],
        [libc::iovec; BATCH],
        [libc::mmsghdr; BATCH],
    ) = unsafe { zeroed() };
    let mut controls = [ControlBuffer([0; CONTROL]); BATCH];
    for (i, datagram) in batch.iter().enumerate() {
        let name_len = write_address(datagram.to, &mut names[i]);
        let payload = datagram.payload;
        vectors[i] = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
        let header = &mut headers[i].msg_hdr;
        header.msg_name = (&raw mut names[i]).cast();
        header.msg_namelen = name_len;
        header.msg_iov = &raw mut vectors[i];
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut controls[i]).cast();
        header.msg_controllen = CONTROL as _;
        let (level, kind) = match datagram.to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        // SAFETY: `msg_control` points to CONTROL aligned bytes, more than CMSG_SPACE of one int, so the first header and its data
        // lie inside.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(header);
            (*message).cmsg_level = level;
            (*message).cmsg_type = kind;
            (*message).cmsg_len = libc::CMSG_LEN(size_of::<libc::c_int>() as u32) as _;
            libc::CMSG_DATA(message).cast::<libc::c_int>().write_unaligned(libc::c_int::from(datagram.tos));
            header.msg_controllen = libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) as _;
        }
    }
    // SAFETY: the first `batch.len()` headers point to names, vectors, payloads and control messages that outlive the call;
    // sendmmsg only reads them.
    let count = unsafe {
        libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), batch.len() as u32, libc::MSG_DONTWAIT)
    };
    if count < 0 {
        return (0, Some(io::Error::last_os_error()));
    }
    (count as usize, None)
}

/// Takes an arrival: source (`None` on packet sockets), TOS or traffic class, payload.
pub(super) type Take<'a> = dyn FnMut(Option<SocketAddr>, u8, &[u8]) + 'a;

/// Buffers for arrivals, used again for each batch.
pub(super) struct Inbox {
    buffers: Box<[[u8; BUFFER]]>,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("buffers", &self.buffers.len()).finish()
    }
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { buffers: vec![[0; BUFFER]; BATCH].into_boxed_slice() }
    }

    /// Hands what waits, at most [`BATCH`], to `take`; gives the number.
    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>, take: &mut Take<'_>) -> io::Result<usize> {
        // SAFETY: all of these are plain data for which all zeroes are valid.
        let (mut names, mut vectors, mut headers): (
            [libc::sockaddr_storage; BATCH],
            [libc::iovec; BATCH],
            [libc::mmsghdr; BATCH],
        ) = unsafe { zeroed() };
        let mut controls = [ControlBuffer([0; CONTROL]); BATCH];
        for i in 0..BATCH {
            vectors[i] = libc::iovec { iov_base: self.buffers[i].as_mut_ptr().cast(), iov_len: BUFFER };
            let header = &mut headers[i].msg_hdr;
            header.msg_name = (&raw mut names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut vectors[i];
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut controls[i]).cast();
            header.msg_controllen = CONTROL as _;
        }
        // SAFETY: every header points to a name, a vector, a buffer and a control area that outlive the call, with their
        // lengths; the time-out is none.
        let count = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            // ECONNREFUSED and its like report an ICMP error about something sent earlier; it was taken off the socket.
            return match error.raw_os_error() {
                Some(
                    libc::EAGAIN | libc::EINTR | libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH,
                ) => Ok(0),
                _ => Err(error),
            };
        }
        let count = (count as usize).min(BATCH);
        for i in 0..count {
            let length = (headers[i].msg_len as usize).min(BUFFER);
            take(read_address(&names[i]), traffic_class(&headers[i].msg_hdr), &self.buffers[i][..length]);
        }
        Ok(count)
    }
}

/// The TOS or traffic class that came with a datagram; 0 when none did.
fn traffic_class(header: &libc::msghdr) -> u8 {
    // SAFETY: the kernel has filled the control area that `header` describes, and it is alive; CMSG_FIRSTHDR and
    // CMSG_NXTHDR stay inside it, and each message's data is read only as far as its length says.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let data = libc::CMSG_DATA(message);
            let length = (*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_TOS) if length >= 1 => return *data,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if length >= size_of::<libc::c_int>() => {
                    return data.cast::<libc::c_int>().read_unaligned() as u8;
                }
                _ => message = libc::CMSG_NXTHDR(header, message),
            }
        }
    }
    0
}

fn write_address(address: SocketAddr, storage: &mut libc::sockaddr_storage) -> libc::socklen_t {
    match address {
        SocketAddr::V4(v4) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is made to hold any address, with its alignment.
            unsafe { (&raw mut *storage).cast::<libc::sockaddr_in>().write(name) };
            size_of::<libc::sockaddr_in>() as _
        }
        SocketAddr::V6(v6) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as _,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut *storage).cast::<libc::sockaddr_in6>().write(name) };
            size_of::<libc::sockaddr_in6>() as _
        }
    }
}

fn read_address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that the storage holds a sockaddr_in, for which any bytes are valid.
            let name = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(name.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: likewise a sockaddr_in6.
            let name = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some(SocketAddr::V6(std::net::SocketAddrV6::new(
                ip,
                u16::from_be(name.sin6_port),
                0,
                name.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

/// Waits until one of `readable` can be read or one of `writable` written, at most `timeout_ns`.
pub(super) fn wait(readable: &[RawFd], writable: &[RawFd], timeout_ns: u64) -> io::Result<()> {
    let entry = |events| move |&fd| libc::pollfd { fd, events, revents: 0 };
    let mut polls: Vec<libc::pollfd> = readable.iter().map(entry(libc::POLLIN)).collect();
    polls.extend(writable.iter().map(entry(libc::POLLOUT)));
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as _,
        tv_nsec: (timeout_ns % 1_000_000_000) as _,
    };
    // SAFETY: `polls` and `timeout` live through the call and the count is that of `polls`; no signal mask is given.
    let ready = unsafe {
        libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, &raw const timeout, std::ptr::null())
    };
    if ready < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

/// Sets an `int` option.
pub(super) fn set_option(fd: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    let outcome = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets this thread's timers be late by 1 µs instead of 50.
pub(super) fn sharpen_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes a number and no pointers. Failure leaves the default, which is only less exact.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_u64, 0, 0, 0) };
}

/// Binds a packet socket to an interface.
pub(super) fn bind_packet(fd: BorrowedFd<'_>, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: sockaddr_ll is plain data for which all zeroes are valid.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as i32;
    // SAFETY: the pointer and the length describe `address`, which lives through the call.
    let outcome = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
