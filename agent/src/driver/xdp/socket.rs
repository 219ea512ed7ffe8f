// SPDX-License-Identifier: Apache-2.0
//! An AF_XDP socket on one queue: memory that the kernel reads and writes frames in, and the rings that hand frames over.
//!
//! ```text
//!   free receiving frames ─ fill ring ─► kernel ─ rx ring ─► frame, read in place, then free
//!   free sending frames ─► frame, written in place ─ tx ring ─► kernel ─ completion ring ─► free
//! ```
//!
//! Each frame is at one place at a time; only those that are here are read or written. (linux/if_xdp.h; Documentation/networking/af_xdp.rst.)
#![expect(
    unsafe_code,
    reason = "memory and rings are shared with the kernel, and its options have no wrapper"
)]

use super::program::STAMP;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a frame's place: what the kernel hands to a socket in one piece.
const CHUNK: usize = 4_096;
/// What the kernel keeps free in front of a received frame (XDP_PACKET_HEADROOM).
const HEADROOM: usize = 256;
/// Bytes of the longest frame that is received or sent.
pub(super) const FRAME_MOST: usize = CHUNK - HEADROOM;
/// Frames sent by one system call in copy mode, unless the kernel takes fewer (TX_BATCH_SIZE).
const KICKS: usize = 64;

// What the libc crate has not, of linux/if_xdp.h, is nothing.
use libc::{
    SOL_XDP, XDP_COPY, XDP_MMAP_OFFSETS, XDP_OPTIONS, XDP_OPTIONS_ZEROCOPY, XDP_RING_NEED_WAKEUP,
    XDP_RX_RING, XDP_STATISTICS, XDP_TX_RING, XDP_UMEM_COMPLETION_RING, XDP_UMEM_FILL_RING, XDP_UMEM_REG,
    XDP_USE_NEED_WAKEUP,
};

/// Memory mapped from the kernel.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Of `fd` at an offset, or of nothing.
    fn new(length: usize, fd: Option<(BorrowedFd<'_>, u64)>) -> io::Result<Self> {
        let (flags, fd, offset) = match fd {
            Some((fd, offset)) => (libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory that is in use.
        let start = unsafe { libc::mmap(null_mut(), length, access, flags, fd, offset as libc::off_t) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast::<libc::c_void>() != libc::MAP_FAILED => {
                Ok(Self { start, length })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A 32-bit number that the kernel shares, at an offset of its own.
    fn number(&self, offset: u64) -> io::Result<NonNull<AtomicU32>> {
        self.at(offset, size_of::<AtomicU32>())
    }

    fn at<T>(&self, offset: u64, length: usize) -> io::Result<NonNull<T>> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(io::Error::other("AF_XDP: a ring reaches beyond its mapping"));
        }
        // SAFETY: the offset is inside the mapping.
        let found = unsafe { self.start.add(offset) }.cast::<T>();
        if found.is_aligned() { Ok(found) } else { Err(io::Error::other("AF_XDP: a ring is not aligned")) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and nothing outlives it that points into it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// One of a socket's rings: this side moves one index, the kernel the other.
#[derive(Debug)]
struct Ring<T> {
    /// What the pointers point into.
    _mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    /// Whether this side produces.
    produces: bool,
    /// This side's index, ahead of what the kernel has been told.
    own: u32,
    /// The kernel's, as last seen.
    other: u32,
}

// SAFETY: the pointers are into the mapping that goes along; entries are plain data.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// `option` sets its size, a power of two.
    fn new(
        socket: &OwnedFd,
        (option, page, produces): (libc::c_int, u64, bool),
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        set(socket, option, &size)?;
        let length = offsets.desc as usize + size as usize * size_of::<T>();
        let mapping = Mapping::new(length, Some((socket.as_fd(), page)))?;
        Ok(Self {
            producer: mapping.number(offsets.producer)?,
            consumer: mapping.number(offsets.consumer)?,
            flags: mapping.number(offsets.flags)?,
            entries: mapping.at(offsets.desc, size as usize * size_of::<T>())?,
            mask: size - 1,
            produces,
            own: 0,
            other: 0,
            _mapping: mapping,
        })
    }

    fn index(&self, producer: bool) -> &AtomicU32 {
        let index = if producer { self.producer } else { self.consumer };
        // SAFETY: it points into the mapping, which lives as long as this; the kernel changes it atomically.
        unsafe { index.as_ref() }
    }

    /// Entries that this side may write, or read, now; looks at the kernel's index only where fewer than `wanted` were known of.
    fn available(&mut self, wanted: u32) -> u32 {
        let known = |ring: &Self| {
            if ring.produces {
                // As much as the ring holds, less what the kernel has not taken.
                (ring.mask + 1).saturating_sub(ring.own.wrapping_sub(ring.other))
            } else {
                ring.other.wrapping_sub(ring.own).min(ring.mask + 1)
            }
        };
        let before = known(self);
        if before >= wanted {
            return before;
        }
        // What the kernel did before it moved its index is seen from here on.
        self.other = self.index(!self.produces).load(Ordering::Acquire);
        known(self)
    }

    /// Writes the next entry, which must be available.
    fn write(&mut self, entry: T) {
        // SAFETY: the masked index is inside the ring, and the kernel reads the entry only when it has been told.
        unsafe { self.entries.add((self.own & self.mask) as usize).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// Reads the next entry, which must be available.
    fn read(&mut self) -> T {
        // SAFETY: the masked index is inside the ring, and the kernel writes the entry no more until it is told that it was read.
        let entry = unsafe { self.entries.add((self.own & self.mask) as usize).read() };
        self.own = self.own.wrapping_add(1);
        entry
    }

    /// Tells the kernel of what was written or read.
    fn tell(&self) {
        self.index(self.produces).store(self.own, Ordering::Release);
    }

    /// The kernel has entries that it has not taken.
    fn is_pending(&self) -> bool {
        self.produces && self.index(false).load(Ordering::Acquire) != self.own
    }

    /// The kernel asks to be called.
    fn wants_wakeup(&self) -> bool {
        // SAFETY: as in `index`.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & XDP_RING_NEED_WAKEUP != 0
    }
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            SOL_XDP,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// # Safety
/// Any bytes are a valid `T`.
unsafe fn read<T>(socket: &OwnedFd, option: libc::c_int) -> io::Result<T> {
    // SAFETY: zeroes are valid by the caller's promise, and so is what the kernel writes, at most the length that it is told.
    unsafe {
        let mut value: T = zeroed();
        let mut length = size_of::<T>() as libc::socklen_t;
        let at = (&raw mut value).cast();
        if libc::getsockopt(socket.as_raw_fd(), SOL_XDP, option, at, &raw mut length) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(value)
    }
}

/// What a socket is opened with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    /// The interface, by index.
    pub(super) interface: u32,
    pub(super) queue: u32,
    /// Frames to receive into, a power of two.
    pub(super) receiving: u32,
    /// Frames to send from, a power of two.
    pub(super) sending: u32,
    /// Not without a copy, even where the interface can.
    pub(super) copy: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Socket {
    // The rings and the socket close before the memory does.
    fill: Ring<u64>,
    rx: Ring<libc::xdp_desc>,
    tx: Ring<libc::xdp_desc>,
    completion: Ring<u64>,
    fd: OwnedFd,
    memory: Mapping,
    /// Where frames to send from begin that are here.
    free: Vec<u64>,
    zero_copy: bool,
}

impl Socket {
    /// Opens a socket and binds it. Nothing comes until a program sends it something.
    pub(super) fn open(opening: &Opening) -> io::Result<Self> {
        // SAFETY: a new socket, that is nobody else's.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let frames = opening.receiving + opening.sending;
        let memory = Mapping::new(frames as usize * CHUNK, None)?;
        // SAFETY: plain numbers, for which zeroes are valid.
        let mut registration: libc::xdp_umem_reg = unsafe { zeroed() };
        registration.addr = memory.start.as_ptr() as u64;
        registration.len = memory.length as u64;
        registration.chunk_size = CHUNK as u32;
        set(&socket, XDP_UMEM_REG, &registration)?;
        // SAFETY: plain numbers.
        let offsets: libc::xdp_mmap_offsets = unsafe { read(&socket, XDP_MMAP_OFFSETS)? };
        let fill = (XDP_UMEM_FILL_RING, libc::XDP_UMEM_PGOFF_FILL_RING, true);
        let completion = (XDP_UMEM_COMPLETION_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING, false);
        let rx = (XDP_RX_RING, libc::XDP_PGOFF_RX_RING as u64, false);
        let tx = (XDP_TX_RING, libc::XDP_PGOFF_TX_RING as u64, true);
        let mut fill = Ring::new(&socket, fill, &offsets.fr, opening.receiving)?;
        let completion = Ring::new(&socket, completion, &offsets.cr, opening.sending)?;
        let rx = Ring::new(&socket, rx, &offsets.rx, opening.receiving)?;
        let tx = Ring::new(&socket, tx, &offsets.tx, opening.sending)?;
        for frame in 0..opening.receiving.min(fill.available(opening.receiving)) {
            fill.write(u64::from(frame) * CHUNK as u64);
        }
        fill.tell();
        let free = (opening.receiving..frames).rev().map(|frame| u64::from(frame) * CHUNK as u64).collect();
        // SAFETY: plain numbers, for which zeroes are valid.
        let mut address: libc::sockaddr_xdp = unsafe { zeroed() };
        address.sxdp_family = libc::AF_XDP as u16;
        address.sxdp_flags = XDP_USE_NEED_WAKEUP | if opening.copy { XDP_COPY } else { 0 };
        address.sxdp_ifindex = opening.interface;
        address.sxdp_queue_id = opening.queue;
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the address is as long as it says and lives through the call.
        if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: plain numbers.
        let options: libc::xdp_options = unsafe { read(&socket, XDP_OPTIONS)? };
        let zero_copy = options.flags & XDP_OPTIONS_ZEROCOPY != 0;
        Ok(Self { fill, rx, tx, completion, fd: socket, memory, free, zero_copy })
    }

    /// Whether the card reads and writes the frames itself.
    pub(super) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Bytes of memory, of those that the kernel calls by offset; `None` where they are not all inside a chunk.
    fn frame(&mut self, at: u64, length: usize) -> Option<&mut [u8]> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(length).filter(|&end| end <= self.memory.length)?;
        if length > 0 && at / CHUNK != (end - 1) / CHUNK {
            return None;
        }
        // SAFETY: inside the memory. The caller has the frame, so that the kernel neither reads nor writes it, and `self` is borrowed
        // while the slice is in use, so that nobody gives it back.
        Some(unsafe { std::slice::from_raw_parts_mut(self.memory.start.add(at).as_ptr(), length) })
    }

    /// Hands over what has come, at most so many frames, each with its time of arrival (CLOCK_MONOTONIC, ns; 0: not known); gives their number.
    pub(super) fn receive(&mut self, most: u32, mut take: impl FnMut(u64, &[u8])) -> u32 {
        let count = self.rx.available(most).min(most);
        for _ in 0..count {
            let found = self.rx.read();
            let (at, length) = (found.addr, (found.len as usize).min(CHUNK));
            let stamp = at.checked_sub(STAMP as u64).and_then(|before| self.frame(before, STAMP));
            let stamp_ns = stamp.map_or(0, |stamp| {
                let mut bytes = [0; STAMP];
                bytes.copy_from_slice(stamp);
                // A driver that leaves the next one out must not leave this one.
                stamp.fill(0);
                u64::from_ne_bytes(bytes)
            });
            if let Some(frame) = self.frame(at, length) {
                take(stamp_ns, frame);
            }
            // There is room: as many frames receive as the ring has entries.
            if self.fill.available(1) > 0 {
                self.fill.write(at / CHUNK as u64 * CHUNK as u64);
            }
        }
        if count > 0 {
            self.rx.tell();
            self.fill.tell();
            if self.fill.wants_wakeup() {
                self.wake_receiving();
            }
        }
        count
    }

    /// Has the kernel take frames from the fill ring; only cards without a copy ask for it.
    fn wake_receiving(&self) {
        // SAFETY: nothing is written: there is no buffer.
        unsafe { libc::recv(self.fd.as_raw_fd(), null_mut(), 0, libc::MSG_DONTWAIT) };
    }

    /// Takes back frames that have left.
    fn reclaim(&mut self) {
        let count = self.completion.available(1);
        for _ in 0..count {
            let at = self.completion.read();
            self.free.push(at / CHUNK as u64 * CHUNK as u64);
        }
        if count > 0 {
            self.completion.tell();
        }
    }

    /// Room for a frame of `length` bytes, which `write` fills; `false`: there is none just now. It leaves with the next [`Self::kick`].
    pub(super) fn send(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        if length > FRAME_MOST || self.tx.available(1) == 0 {
            return false;
        }
        let Some(at) = self.free.pop() else { return false };
        if let Some(frame) = self.frame(at, length) {
            write(frame);
        }
        self.tx.write(libc::xdp_desc { addr: at, len: length as u32, options: 0 });
        true
    }

    /// Has the kernel send what was written; gives whether it took everything.
    ///
    /// # Errors
    /// When it cannot any more: the interface is gone or down.
    pub(super) fn kick(&mut self) -> io::Result<bool> {
        self.tx.tell();
        for _ in 0..KICKS {
            if !self.tx.is_pending() {
                return Ok(true);
            }
            if !self.tx.wants_wakeup() {
                return Ok(false);
            }
            // SAFETY: nothing is read: there is no buffer and no address.
            let outcome = unsafe {
                libc::sendto(self.fd.as_raw_fd(), null_mut(), 0, libc::MSG_DONTWAIT, null_mut(), 0)
            };
            if outcome < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // One call takes a few frames, and says so.
                    Some(libc::EAGAIN) => self.reclaim(),
                    Some(libc::EBUSY | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => return Ok(false),
                    _ => return Err(error),
                }
            }
        }
        Ok(false)
    }

    /// Whether frames wait here for the kernel.
    pub(super) fn is_sending(&self) -> bool {
        self.tx.is_pending()
    }

    /// Frames that came and found no room.
    pub(super) fn overflowed(&self) -> u64 {
        // SAFETY: plain numbers. Kernels that know fewer leave the rest zero.
        let found = unsafe { read::<libc::xdp_statistics>(&self.fd, XDP_STATISTICS) };
        found.map_or(0, |found| found.rx_dropped + found.rx_ring_full)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
