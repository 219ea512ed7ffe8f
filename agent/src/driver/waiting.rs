// SPDX-License-Identifier: Apache-2.0
//! Waiting for sockets, to the microsecond where it is short.
#![forbid(unsafe_code)]

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Longest wait whose end is met by spinning. Those of pacing are shorter; time-outs, for which a
/// late end does no harm, longer.
const SHORT_NS: u64 = 1_000_000;

/// Waits until one of `readable` can be read or one of `writable` written, at most `timeout_ns`. Of
/// a short wait the last `spin_ns` are spent looking instead of sleeping. A signal ends it early.
pub(super) fn wait<'a>(
    readable: impl Iterator<Item = BorrowedFd<'a>>,
    writable: impl Iterator<Item = BorrowedFd<'a>>,
    timeout_ns: u64,
    spin_ns: u64,
) -> io::Result<()> {
    let mut sockets: Vec<_> = readable.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    sockets.extend(writable.map(|fd| PollFd::new(fd, PollFlags::POLLOUT)));
    let spin_ns = if timeout_ns <= SHORT_NS { spin_ns.min(timeout_ns) } else { 0 };
    let start = now();
    let sleep_ns = timeout_ns - spin_ns;
    if (sleep_ns > 0 || spin_ns == 0) && poll(&mut sockets, sleep_ns)? {
        return Ok(());
    }
    if spin_ns == 0 {
        return Ok(());
    }
    let timeout = Duration::from_nanos(timeout_ns);
    while start.elapsed() < timeout {
        if poll(&mut sockets, 0)? {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the driver is where the real clock comes in")]
fn now() -> Instant {
    Instant::now()
}

/// Whether one is ready, or a signal came.
fn poll(sockets: &mut [PollFd<'_>], timeout_ns: u64) -> io::Result<bool> {
    match ppoll(sockets, Some(TimeSpec::from_duration(Duration::from_nanos(timeout_ns))), None) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_wait_ends_with_an_arrival_or_its_time() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("binds");
        let start = now();
        for (timeout_ns, spin_ns) in
            [(0, 0), (0, 20_000), (30_000, 20_000), (10_000, 20_000), (2_000_000, 20_000)]
        {
            let start = now();
            wait(std::iter::once(socket.as_fd()), std::iter::empty(), timeout_ns, spin_ns).expect("waits");
            assert!(start.elapsed() >= Duration::from_nanos(timeout_ns), "{timeout_ns} ns");
        }
        socket.send_to(&[1], socket.local_addr().expect("bound")).expect("sends");
        for timeout_ns in [10_000, 500_000, 600_000_000_000] {
            wait(std::iter::once(socket.as_fd()), std::iter::empty(), timeout_ns, 20_000).expect("waits");
        }
        wait(std::iter::once(socket.as_fd()), [socket.as_fd()].into_iter(), 600_000_000_000, 0)
            .expect("waits");
        assert!(start.elapsed() < Duration::from_secs(60), "did not sleep its time out");
    }
}
