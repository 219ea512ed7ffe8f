// SPDX-License-Identifier: Apache-2.0
//! AF_PACKET sockets: whole Ethernet frames from and to a Linux interface. Beside `ring`, the
//! crate's only unsafe code.
#![expect(
    unsafe_code,
    reason = "libc's packet sockets, recvmmsg and sendmmsg have no safe wrapper with PACKET_AUXDATA"
)]

use super::offload::{Burst, Offload, Refusal};
use super::ring::Ring;
use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Frames moved by one system call.
const BATCH: usize = 32;
/// Longest frame: a jumbo one with a VLAN tag.
const FRAME: usize = 9_234;
const TAG: usize = 4;
/// Room for a burst: 64 KiB of IP, Ethernet's header and tags. Not so many pages, lest all buffers
/// begin in the same lines of a cache.
const BURST: usize = 65_600;
/// Room for one `tpacket_auxdata` control message.
const CONTROL: usize = 64;
/// Asked of the kernel for what waits to be received: 10 ms at 10 Gbit/s.
const RECEIVE_BUFFER: libc::c_int = 16 << 20;
/// Where a VLAN tag stands in a frame.
const TAG_AT: usize = 12;

/// A socket that receives and sends the frames of one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    /// For a batch of bursts, or for one where there is a ring, whose slots are buffers. What is
    /// not used is never touched: no memory.
    buffers: Vec<u8>,
    /// For a frame that gets a tag.
    tagged: Box<[u8; FRAME]>,
    /// Absent where the kernel had no memory for one.
    ring: Option<Ring>,
}

/// What became of a batch of received frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    /// Handed on.
    pub frames: u64,
    /// Bursts that cannot be split into frames, frames that are too long.
    pub refused: u64,
    /// Why, for one of them.
    pub refusal: Option<Refusal>,
    /// Longer than a slot of the ring, and the socket's buffer was full.
    pub missed: u64,
    /// So many frames came that more may wait.
    pub full: bool,
}

/// What became of frames to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Frames dealt with, from the front. Fewer than all: the kernel's buffer is full, the rest can
    /// be sent later.
    pub taken: usize,
    /// Those among them that the interface refused (longer than its MTU, shorter than a header, its
    /// queue full).
    pub refused: usize,
}

impl PacketSocket {
    /// Opens an interface, in promiscuous mode and without its own outgoing frames. What waits to
    /// be received lies in a ring of `ring_bytes`, or in the socket's buffer where that is 0 or
    /// more than the kernel has to give.
    ///
    /// # Errors
    /// Those of `if_nametoindex`, `socket` (EPERM without CAP_NET_RAW), `setsockopt` and `bind`.
    pub fn open(interface: &str, ring_bytes: usize) -> io::Result<Self> {
        let name = CString::new(interface).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: `name` is a NUL-terminated string that lives through the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // Protocol 0: until `bind` names the interface, frames of every interface would come in
        // (packet(7)). SAFETY: no pointers are passed; the result is checked before use.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let on: libc::c_int = 1;
        set_option(&fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, &on)?;
        set_option(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &on)?;
        set_option(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &on)?;
        // Beyond net.core.rmem_max with CAP_NET_ADMIN; without it, as much as that allows.
        set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER)
            .or_else(|_| set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER))?;
        let ring = if ring_bytes == 0 { None } else { Ring::new(&fd, ring_bytes).ok() };
        // SAFETY: packet_mreq is plain data for which all zeroes are valid.
        let mut membership: libc::packet_mreq = unsafe { zeroed() };
        membership.mr_ifindex = index as libc::c_int;
        membership.mr_type = libc::PACKET_MR_PROMISC as u16;
        set_option(&fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
        // SAFETY: sockaddr_ll is plain data for which all zeroes are valid.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as libc::c_int;
        // SAFETY: the pointer and the length describe `address`, which lives through the call.
        let bound = unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        // The interface is down: `bind` succeeds and leaves the error with the socket.
        fail(option(&fd, libc::SOL_SOCKET, libc::SO_ERROR)?)?;
        let most = if ring.is_some() { 1 } else { BATCH };
        Ok(Self { fd, buffers: vec![0; most * BURST], tagged: Box::new([0; FRAME]), ring })
    }

    /// Whether the cable's other end is there. What cannot be found out is taken for yes: `failed`
    /// frames tell what is gone.
    pub fn has_carrier(&self, interface: &str) -> bool {
        // SAFETY: ifreq is plain data for which all zeroes are valid.
        let mut request: libc::ifreq = unsafe { zeroed() };
        // One byte stays 0: names are NUL-terminated.
        let room = request.ifr_name.len() - 1;
        for (to, from) in request.ifr_name.iter_mut().take(room).zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: SIOCGIFFLAGS reads the name and writes the flags of the ifreq that is pointed at,
        // which lives through the call.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) };
        // SAFETY: after a successful call `ifru_flags` is what was written.
        done < 0 || unsafe { request.ifr_ifru.ifru_flags } & libc::IFF_RUNNING as libc::c_short != 0
    }

    /// Frames lost since the last call because the receive buffer was full.
    pub fn missed(&self) -> u64 {
        // struct tpacket_stats: packets, drops. Reading sets both to 0.
        option::<[u32; 2]>(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS)
            .map_or(0, |[_, drops]| u64::from(drops))
    }

    /// Hands the frames that wait to `take`, with their times of arrival (ns since the epoch) where
    /// the kernel notes them: a batch, or more where bursts among them are split into more. A VLAN
    /// tag that the kernel took off is put back, a checksum that was left to the interface is
    /// computed.
    ///
    /// # Errors
    /// Those that mean that the interface is gone or down.
    pub fn receive(&mut self, mut take: impl FnMut(Option<u64>, &[u8])) -> io::Result<Received> {
        let Self { fd, buffers, tagged, ring } = self;
        let Some(ring) = ring else {
            return receive_copies(fd, buffers, tagged, &mut |frame: &[u8]| take(None, frame));
        };
        let mut received = Received::default();
        for _ in 0..BATCH {
            if received.frames >= BATCH as u64 {
                break;
            }
            let slot = ring.take(|slot| {
                let mut take = |frame: &[u8]| take(Some(slot.unix_ns), frame);
                if slot.is_copied {
                    return receive_copies(fd, buffers, tagged, &mut take);
                }
                let mut one = Received::default();
                let offload = Offload::of(slot.offload);
                if slot.frame.len() < slot.length {
                    let burst = Burst::parse(slot.frame, slot.length, &offload, FRAME - TAG);
                    one.missed = burst.map_or(1, |burst| burst.frames() as u64);
                } else {
                    one.hand_on(&offload, slot.frame, slot.vlan, tagged, &mut take);
                }
                Ok(one)
            });
            let Some(slot) = slot else {
                if received == Received::default() {
                    // Something else than a frame woke the caller.
                    fail(option(fd, libc::SOL_SOCKET, libc::SO_ERROR)?)?;
                }
                return Ok(received);
            };
            let one = slot?;
            received.frames += one.frames;
            received.refused += one.refused;
            received.refusal = received.refusal.or(one.refusal);
            received.missed += one.missed;
        }
        received.full = true;
        Ok(received)
    }

    /// Sends frames in order.
    ///
    /// # Errors
    /// Those that mean that the interface is gone or down. A frame that it refuses holds up no
    /// other.
    pub fn send(&self, frames: &[Vec<u8>]) -> io::Result<Sent> {
        let mut sent = Sent::default();
        let plain = [0u8; Offload::BYTES];
        while sent.taken < frames.len() {
            let rest = &frames[sent.taken..];
            // SAFETY: iovec and mmsghdr are plain data for which all zeroes are valid.
            let (mut vectors, mut headers): ([[libc::iovec; 2]; BATCH], [libc::mmsghdr; BATCH]) =
                unsafe { zeroed() };
            let batch = rest.len().min(BATCH);
            for (i, frame) in rest[..batch].iter().enumerate() {
                vectors[i] = [
                    libc::iovec { iov_base: plain.as_ptr().cast_mut().cast(), iov_len: Offload::BYTES },
                    libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() },
                ];
                headers[i].msg_hdr.msg_iov = vectors[i].as_mut_ptr();
                headers[i].msg_hdr.msg_iovlen = 2;
            }
            // SAFETY: the first `batch` headers point to iovecs and frames that outlive the call;
            // sendmmsg reads only.
            let count = unsafe {
                libc::sendmmsg(self.fd.as_raw_fd(), headers.as_mut_ptr(), batch as u32, libc::MSG_DONTWAIT)
            };
            if count >= 0 {
                // Fewer than asked for: the next call tells why.
                sent.taken += count as usize;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => break,
                Some(libc::EINTR) => {}
                Some(libc::EMSGSIZE | libc::EINVAL | libc::ENOBUFS) => {
                    sent.taken += 1;
                    sent.refused += 1;
                }
                _ => return Err(error),
            }
        }
        Ok(sent)
    }
}

/// Frames that the kernel copies out of the socket, at most one for each buffer.
fn receive_copies(
    fd: &OwnedFd,
    buffers: &mut [u8],
    tagged: &mut [u8; FRAME],
    take: &mut impl FnMut(&[u8]),
) -> io::Result<Received> {
    let mut controls = [[0u64; CONTROL / 8]; BATCH];
    // SAFETY: iovec and mmsghdr are plain data for which all zeroes are valid.
    let (mut vectors, mut headers): ([[libc::iovec; 2]; BATCH], [libc::mmsghdr; BATCH]) = unsafe { zeroed() };
    let mut offloads = [[0u8; Offload::BYTES]; BATCH];
    let batch = (buffers.len() / BURST).min(BATCH);
    for (i, buffer) in buffers.chunks_exact_mut(BURST).take(batch).enumerate() {
        vectors[i] = [
            libc::iovec { iov_base: offloads[i].as_mut_ptr().cast(), iov_len: Offload::BYTES },
            libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: BURST },
        ];
        headers[i].msg_hdr.msg_iov = vectors[i].as_mut_ptr();
        headers[i].msg_hdr.msg_iovlen = 2;
        headers[i].msg_hdr.msg_control = controls[i].as_mut_ptr().cast();
        headers[i].msg_hdr.msg_controllen = CONTROL as _;
    }
    // SAFETY: every header points to an iovec, a buffer and a control area that outlive the call,
    // with their lengths.
    let count = unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            batch as u32,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
        )
    };
    if count < 0 {
        let error = io::Error::last_os_error();
        let mut received = Received::default();
        return match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(received),
            // PACKET_VNET_HDR cannot say what it is; it was taken off the socket.
            Some(libc::EINVAL) => {
                received.refuse(Refusal::Unnamed);
                Ok(received)
            }
            _ => Err(error),
        };
    }
    let count = (count as usize).min(batch);
    let mut received = Received { full: count == batch, ..Received::default() };
    let buffers = buffers.chunks_exact_mut(BURST);
    for ((buffer, header), offload) in buffers.zip(&headers[..count]).zip(&offloads) {
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            received.refuse(Refusal::TooLong);
            continue;
        }
        let length = (header.msg_len as usize).saturating_sub(Offload::BYTES).min(BURST);
        let (frame, vlan) = (&mut buffer[..length], vlan_tag(&header.msg_hdr));
        received.hand_on(&Offload::of(*offload), frame, vlan, tagged, take);
    }
    Ok(received)
}

impl Received {
    /// Does what was left to the interface and hands the frames that come of it to `take`; `tagged`
    /// is for one that gets a tag.
    fn hand_on(
        &mut self,
        offload: &Offload,
        frame: &mut [u8],
        vlan: Option<[u8; TAG]>,
        tagged: &mut [u8; FRAME],
        take: &mut impl FnMut(&[u8]),
    ) {
        if offload.is_burst() {
            match Burst::parse(frame, frame.len(), offload, FRAME - TAG) {
                Ok(burst) => burst.split(frame, |frame| self.hand_on_whole(frame, vlan, tagged, take)),
                Err(why) => self.refuse(why),
            }
        } else if frame.len() > FRAME - TAG {
            self.refuse(Refusal::TooLong);
        } else {
            offload.finish(frame);
            self.hand_on_whole(frame, vlan, tagged, take);
        }
    }

    fn hand_on_whole(
        &mut self,
        frame: &[u8],
        vlan: Option<[u8; TAG]>,
        tagged: &mut [u8; FRAME],
        take: &mut impl FnMut(&[u8]),
    ) {
        self.frames += 1;
        match (vlan, frame.split_at_checked(TAG_AT), tagged.get_mut(..frame.len() + TAG)) {
            (Some(tag), Some((addresses, rest)), Some(tagged)) => {
                tagged[..TAG_AT].copy_from_slice(addresses);
                tagged[TAG_AT..TAG_AT + TAG].copy_from_slice(&tag);
                tagged[TAG_AT + TAG..].copy_from_slice(rest);
                take(tagged);
            }
            _ => take(frame),
        }
    }

    fn refuse(&mut self, why: Refusal) {
        self.refused += 1;
        self.refusal = self.refusal.or(Some(why));
    }
}

/// An error number as a result.
fn fail(number: libc::c_int) -> io::Result<()> {
    if number == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(number)) }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Waits until something can be done with a descriptor (`POLLIN`, `POLLOUT`), a signal comes or the
/// time is up; says which have a frame or an error to give.
pub(crate) fn wait(descriptors: &[(RawFd, libc::c_short)], timeout_ns: u64) -> io::Result<Vec<bool>> {
    let mut polls: Vec<libc::pollfd> =
        descriptors.iter().map(|&(fd, events)| libc::pollfd { fd, events, revents: 0 }).collect();
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `polls` and `timeout` outlive the call and the count is the vector's length; no
    // signal mask is passed.
    let ready = unsafe {
        libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, &raw const timeout, std::ptr::null())
    };
    if ready < 0 {
        let error = io::Error::last_os_error();
        // A signal: the caller looks at its flags.
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(polls.iter().map(|poll| poll.revents & !libc::POLLOUT != 0).collect())
}

pub(super) fn set_option<T>(
    fd: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An option made of integers.
fn option<T: Default>(fd: &OwnedFd, level: libc::c_int, option: libc::c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointers describe `value` and its length, which live through the call; T is plain
    // integers.
    let done =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut length) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// The four bytes of a VLAN tag that the kernel moved out of the frame into the control message.
fn vlan_tag(header: &libc::msghdr) -> Option<[u8; TAG]> {
    // SAFETY: the kernel filled `header`, whose control area is still alive; CMSG_FIRSTHDR checks
    // its length.
    let message = unsafe { libc::CMSG_FIRSTHDR(header).as_ref() }?;
    if (message.cmsg_level, message.cmsg_type) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
        return None;
    }
    // SAFETY: a PACKET_AUXDATA message carries one tpacket_auxdata, for which CONTROL has room.
    let data = unsafe { libc::CMSG_DATA(message).cast::<libc::tpacket_auxdata>().read_unaligned() };
    if data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let [high, low] = if known { data.tp_vlan_tpid } else { 0x8100 }.to_be_bytes();
    let [tag0, tag1] = data.tp_vlan_tci.to_be_bytes();
    Some([high, low, tag0, tag1])
}
