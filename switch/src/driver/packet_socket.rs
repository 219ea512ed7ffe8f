//! AF_PACKET sockets: whole Ethernet frames from and to a Linux interface. The crate's only unsafe code.
#![expect(
    unsafe_code,
    reason = "libc's packet sockets, recvmmsg and sendmmsg have no safe wrapper with PACKET_AUXDATA"
)]

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Frames moved by one system call.
const BATCH: usize = 32;
/// Longest frame: a jumbo one with a VLAN tag.
const FRAME: usize = 9_234;
/// Room for one `tpacket_auxdata` control message.
const CONTROL: usize = 64;
/// Where a VLAN tag stands in a frame.
const TAG_AT: usize = 12;

/// A socket that receives and sends the frames of one interface.
#[derive(Debug)]
pub(super) struct PacketSocket {
    fd: OwnedFd,
    buffers: Vec<[u8; FRAME]>,
}

impl PacketSocket {
    /// Opens an interface, in promiscuous mode and without its own outgoing frames.
    ///
    /// # Errors
    /// Those of `if_nametoindex`, `socket` (EPERM without CAP_NET_RAW), `setsockopt` and `bind`.
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: `name` is a NUL-terminated string that lives through the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers are passed; the result is checked before use.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, i32::from(protocol)) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let on: libc::c_int = 1;
        set_option(&fd, libc::PACKET_AUXDATA, &on)?;
        set_option(&fd, libc::PACKET_IGNORE_OUTGOING, &on)?;
        // SAFETY: packet_mreq is plain data for which all zeroes are valid.
        let mut membership: libc::packet_mreq = unsafe { zeroed() };
        membership.mr_ifindex = index as libc::c_int;
        membership.mr_type = libc::PACKET_MR_PROMISC as u16;
        set_option(&fd, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
        // SAFETY: sockaddr_ll is plain data for which all zeroes are valid.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
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
        Ok(Self { fd, buffers: vec![[0; FRAME]; BATCH] })
    }

    /// Hands the frames that wait, at most a batch, to `take`; gives their number. A VLAN tag that the kernel took off is
    /// put back.
    pub(super) fn receive(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut controls = [[0u64; CONTROL / 8]; BATCH];
        // SAFETY: iovec and mmsghdr are plain data for which all zeroes are valid.
        let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) = unsafe { zeroed() };
        for i in 0..BATCH {
            // Room for a tag is left at the end of each buffer.
            vectors[i] = libc::iovec { iov_base: self.buffers[i].as_mut_ptr().cast(), iov_len: FRAME - 4 };
            headers[i].msg_hdr.msg_iov = &raw mut vectors[i];
            headers[i].msg_hdr.msg_iovlen = 1;
            headers[i].msg_hdr.msg_control = controls[i].as_mut_ptr().cast();
            headers[i].msg_hdr.msg_controllen = CONTROL as _;
        }
        // SAFETY: every header points to an iovec, a buffer and a control area that outlive the call, with their lengths.
        let count = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        }
        let count = (count as usize).min(BATCH);
        for (buffer, header) in self.buffers.iter_mut().zip(&headers[..count]) {
            let mut length = (header.msg_len as usize).min(FRAME - 4);
            if let Some([high, low, tag0, tag1]) = vlan_tag(&header.msg_hdr).filter(|_| length >= TAG_AT) {
                buffer.copy_within(TAG_AT..length, TAG_AT + 4);
                buffer[TAG_AT..TAG_AT + 4].copy_from_slice(&[high, low, tag0, tag1]);
                length += 4;
            }
            take(&buffer[..length]);
        }
        Ok(count)
    }

    /// Sends frames in order; gives how many the kernel took. Fewer than all means that its buffer is full.
    pub(super) fn send(&self, frames: &[Vec<u8>]) -> io::Result<usize> {
        let mut sent = 0;
        for chunk in frames.chunks(BATCH) {
            // SAFETY: iovec and mmsghdr are plain data for which all zeroes are valid.
            let (mut vectors, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
                unsafe { zeroed() };
            for (i, frame) in chunk.iter().enumerate() {
                vectors[i] = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
                headers[i].msg_hdr.msg_iov = &raw mut vectors[i];
                headers[i].msg_hdr.msg_iovlen = 1;
            }
            // SAFETY: the first `chunk.len()` headers point to iovecs and frames that outlive the call; sendmmsg reads only.
            let count = unsafe {
                libc::sendmmsg(
                    self.fd.as_raw_fd(),
                    headers.as_mut_ptr(),
                    chunk.len() as u32,
                    libc::MSG_DONTWAIT,
                )
            };
            if count < 0 {
                let error = io::Error::last_os_error();
                let full = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS));
                return if full { Ok(sent) } else { Err(error) };
            }
            sent += count as usize;
            if (count as usize) < chunk.len() {
                break;
            }
        }
        Ok(sent)
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Waits until a descriptor can be read or the time is up; gives which can.
pub(super) fn wait(descriptors: &[RawFd], timeout_ns: Option<u64>) -> io::Result<Vec<bool>> {
    let mut polls: Vec<libc::pollfd> =
        descriptors.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let timeout = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let pointer = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `polls` and `timeout` outlive the call and the count is the vector's length; no signal mask is passed.
    let ready =
        unsafe { libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, pointer, std::ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        // A signal: nothing is ready, and the caller looks at its flags.
        return if error.kind() == io::ErrorKind::Interrupted {
            Ok(vec![false; polls.len()])
        } else {
            Err(error)
        };
    }
    Ok(polls.iter().map(|poll| poll.revents != 0).collect())
}

fn set_option<T>(fd: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The four bytes of a VLAN tag that the kernel moved out of the frame into the control message.
fn vlan_tag(header: &libc::msghdr) -> Option<[u8; 4]> {
    // SAFETY: the kernel filled `header`, whose control area is still alive; CMSG_FIRSTHDR checks its length.
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
