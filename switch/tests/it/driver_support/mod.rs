// SPDX-License-Identifier: Apache-2.0
//! Veth pairs in a network namespace of the calling thread, and raw sockets on their far ends.
#![allow(dead_code, reason = "every test binary uses its own part")]

use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trimwire_switch::SharedSwitch;
use trimwire_switch::driver::{Attachment, Driver};

/// Moves the calling thread into a network namespace of its own, which goes away with it. Without
/// the right to do so says loudly that the test is skipped, past the test harness's capture, and
/// gives false.
pub(crate) fn enter_namespace(test: &str) -> bool {
    // SAFETY: no pointers are passed.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 {
        if Command::new("ip").arg("-V").output().is_ok() {
            // Neighbour discovery's frames would be counted.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            return true;
        }
        let _ = writeln!(io::stderr(), "SKIPPED {test}: `ip` (iproute2) is not installed");
    } else {
        let error = io::Error::last_os_error();
        let _ = writeln!(io::stderr(), "SKIPPED {test}: no network namespaces here: {error} (run as root)");
    }
    assert!(std::env::var_os("TRIMWIRE_REQUIRE_NETNS").is_none(), "TRIMWIRE_REQUIRE_NETNS is set");
    false
}

pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Pairs `sN` (the switch's side) and `hN` (the far end) for ports 0 to `ports - 1`, up.
pub(crate) fn veth_pairs(ports: u16) -> Vec<Attachment> {
    for port in 0..ports {
        ip(&format!("link add s{port} type veth peer name h{port}"));
        ip(&format!("link set s{port} up"));
        ip(&format!("link set h{port} up"));
    }
    for port in 0..ports {
        ready(&format!("s{port}"));
        ready(&format!("h{port}"));
    }
    (0..ports).map(|port| Attachment { port, interface: format!("s{port}") }).collect()
}

/// Waits for an interface's carrier and queue, which the kernel brings up in the background: before
/// that, it discards frames silently.
pub(crate) fn ready(interface: &str) {
    until(&format!("{interface} is up"), || {
        let output = Command::new("ip").args(["link", "show", interface]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("state UP")
    });
}

#[expect(clippy::disallowed_methods, reason = "these tests run on the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Polls until `done` says so; fails after ten seconds.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A far end: every frame on its interface, and nothing but frames.
pub(crate) struct Wire(OwnedFd);

impl Wire {
    pub(crate) fn open(interface: &str) -> Self {
        let name = std::ffi::CString::new(interface).unwrap();
        // SAFETY: plain system calls; every pointer is to a local that outlives its call, with its
        // own size.
        unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            let fd = libc::socket(libc::AF_PACKET, kind, 0);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(fd);
            let option = |level, name, value: libc::c_int| {
                let size = size_of_val(&value) as libc::socklen_t;
                let done = libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size);
                assert_eq!(done, 0, "{}", io::Error::last_os_error());
            };
            option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
            option(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1);
            option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20);
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            assert_ne!(address.sll_ifindex, 0, "no interface {interface}");
            let size = size_of_val(&address) as libc::socklen_t;
            let bound = libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size);
            assert_eq!(bound, 0, "{}", io::Error::last_os_error());
            Self(fd)
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) -> bool {
        // SAFETY: the pointer and the length describe `frame`.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        sent == frame.len() as isize
    }

    /// The next frame, its VLAN tag where the kernel reports one; `None` after `wait_ms` without a
    /// frame.
    pub(crate) fn receive(&self, wait_ms: i32) -> Option<Vec<u8>> {
        let mut frame = vec![0u8; 65_536];
        let mut control = [0u64; 8];
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut vector = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        // SAFETY: all zeroes are a valid msghdr; the pointers and lengths set describe locals that
        // outlive the calls; the kernel wrote the control message that is read, a tpacket_auxdata.
        let (length, tag) = unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
            (header.msg_control, header.msg_controllen) =
                (control.as_mut_ptr().cast(), size_of_val(&control));
            libc::poll(&raw mut poll, 1, wait_ms);
            let length = libc::recvmsg(self.0.as_raw_fd(), &raw mut header, 0);
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            let tag = (length > 0 && !message.is_null())
                .then(|| libc::CMSG_DATA(message).cast::<libc::tpacket_auxdata>().read_unaligned())
                .filter(|report| report.tp_status & libc::TP_STATUS_VLAN_VALID != 0)
                .map(|report| [report.tp_vlan_tpid.to_be_bytes(), report.tp_vlan_tci.to_be_bytes()].concat());
            (length, tag)
        };
        frame.truncate(usize::try_from(length).ok()?);
        if let Some(tag) = tag {
            frame.splice(12..12, tag);
        }
        Some(frame)
    }
}

/// A driver at work on a thread.
pub(crate) struct Running {
    pub(crate) switch: SharedSwitch,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Driver>>,
}

impl Running {
    pub(crate) fn start(switch: SharedSwitch, attachments: Vec<Attachment>) -> Self {
        Self::with_threads(1, switch, attachments)
    }

    pub(crate) fn with_threads(threads: usize, switch: SharedSwitch, attachments: Vec<Attachment>) -> Self {
        let mut driver = Driver::new(switch.clone(), attachments).unwrap();
        driver.set_threads(threads);
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let thread = std::thread::spawn(move || {
            driver.run(&flag).unwrap();
            driver
        });
        Self { switch, stop, thread: Some(thread) }
    }

    /// Stops it; the driver's counters can then be read.
    pub(crate) fn stop(mut self) -> Driver {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
