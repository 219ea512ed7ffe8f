// SPDX-License-Identifier: Apache-2.0
//! Frames in memory that is shared with the kernel (PACKET_RX_RING, TPACKET_V2; packet(7) and
//! packet_mmap in the kernel's documentation): what waits is seen without a system call, and was
//! copied by whoever sent it.
#![expect(unsafe_code, reason = "memory that the kernel writes has no safe wrapper")]

use super::packet_socket::set_option;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a slot: a frame of 1,518 bytes, and what the kernel puts in front of it. Longer ones
/// come through the socket.
const SLOT: usize = 2_048;
const HEAD: usize = size_of::<libc::tpacket2_hdr>();
/// Slots in one piece of the kernel's memory.
const BLOCK: usize = 16;

/// The slots of one socket, which are filled in their order, round and round.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    slots: usize,
    next: usize,
}

// SAFETY: the memory belongs to the ring alone, whichever thread holds it; the kernel does not ask
// who looks.
unsafe impl Send for Ring {}

/// A frame in a slot.
pub(super) struct Slot<'a> {
    /// `struct virtio_net_hdr` and the frame, as far as it has room.
    pub(super) offload: [u8; super::offload::Offload::BYTES],
    pub(super) frame: &'a mut [u8],
    /// The tag that the kernel took off: protocol and value.
    pub(super) vlan: Option<[u8; 4]>,
    /// The whole frame waits in the socket.
    pub(super) is_copied: bool,
    /// When it arrived, by the system's clock: ns since the epoch.
    pub(super) unix_ns: u64,
    /// Bytes of the frame before it was put here: more where it had no room, and if it is not
    /// copied, nobody has the rest.
    pub(super) length: usize,
}

impl Ring {
    /// Makes a ring of about so many bytes for a socket that is bound to nothing yet.
    ///
    /// # Errors
    /// Those of `setsockopt` and `mmap`: no memory, no such option.
    pub(super) fn new(socket: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let slots = (bytes / SLOT).next_multiple_of(BLOCK).max(BLOCK);
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let copies: libc::c_int = 1;
        set_option(socket, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, &copies)?;
        let wanted = libc::tpacket_req {
            tp_block_size: (SLOT * BLOCK) as u32,
            tp_block_nr: (slots / BLOCK) as u32,
            tp_frame_size: SLOT as u32,
            tp_frame_nr: slots as u32,
        };
        set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &wanted)?;
        // SAFETY: no address is asked for, and the length is that of the ring that was just made.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SLOT * slots,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // Frames would go where nobody sees them.
            let none =
                libc::tpacket_req { tp_block_size: 0, tp_block_nr: 0, tp_frame_size: 0, tp_frame_nr: 0 };
            set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &none)?;
            return Err(error);
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, slots, next: 0 })
    }

    /// Gives the frame that waits longest to `take`, and its slot back to the kernel; `None` where
    /// nothing waits.
    pub(super) fn take<R>(&mut self, take: impl FnOnce(Slot<'_>) -> R) -> Option<R> {
        // SAFETY: `next` is below `slots`, so that the slot lies within the memory.
        let slot = unsafe { self.memory.add(self.next * SLOT) };
        // SAFETY: every slot begins with a tpacket2_hdr, whose first field is its status, in memory
        // that is aligned to pages and shared with a kernel that accesses it atomically.
        let status = unsafe { slot.cast::<AtomicU32>().as_ref() };
        let held = status.load(Ordering::Acquire);
        if held & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: with TP_STATUS_USER, seen with acquire, the slot is ours alone until the status
        // is set back; the header is plain data.
        let header = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        // SAFETY: as above; the bytes behind the header, which `status` is part of, are the
        // kernel's or those of fresh pages.
        let bytes = unsafe { std::slice::from_raw_parts_mut(slot.add(HEAD).as_ptr(), SLOT - HEAD) };
        let at = usize::from(header.tp_mac).saturating_sub(HEAD).min(bytes.len());
        let (front, frame) = bytes.split_at_mut(at);
        let length = (header.tp_snaplen as usize).min(frame.len());
        let known = held & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let [high, low] = if known { header.tp_vlan_tpid } else { 0x8100 }.to_be_bytes();
        let [tag0, tag1] = header.tp_vlan_tci.to_be_bytes();
        let result = take(Slot {
            offload: front.last_chunk().copied().unwrap_or_default(),
            frame: &mut frame[..length],
            vlan: (held & libc::TP_STATUS_VLAN_VALID != 0).then_some([high, low, tag0, tag1]),
            is_copied: held & libc::TP_STATUS_COPY != 0,
            unix_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            length: header.tp_len as usize,
        });
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.slots;
        Some(result)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this, and nobody holds a slot.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), SLOT * self.slots) };
    }
}
