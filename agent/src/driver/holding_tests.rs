// SPDX-License-Identifier: Apache-2.0
use super::link::{Link, LinkError};
use super::mmsg::{self, Transmit};
use super::udp::UdpLink;
use super::udp_config::UdpConfig;
use super::udp_tests::skip;
use super::{Clock, Pacing};
use crate::burst::{Burst, Origin};
use bytes::Bytes;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use std::collections::VecDeque;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

fn loopback(pacing: Pacing) -> UdpConfig {
    UdpConfig { data_sockets: 2, pacing, ..UdpConfig::new("127.0.0.1:0".parse().expect("literal")) }
}

#[test]
fn the_kernel_takes_departures_of_sockets_that_have_leave_and_of_no_others() {
    let from = UdpSocket::bind("127.0.0.1:0").expect("binds");
    let to = UdpSocket::bind("127.0.0.1:0").expect("binds");
    to.set_read_timeout(Some(Duration::from_secs(10))).expect("an option");
    let payload = [7_u8; 300];
    let message = |departs_ns| Transmit {
        to: to.local_addr().expect("bound"),
        tos: 0x0c,
        payload: &payload,
        segment: Some(100),
        departs_ns,
    };
    let clock = Clock::start();
    let departs_ns = Some(clock.to_monotonic_ns(clock.now_ns() + 1_000));
    let (taken, error) = mmsg::send(from.as_fd(), std::iter::once(message(departs_ns)));
    assert_eq!((taken, error.and_then(|error| error.raw_os_error())), (0, Some(libc::EINVAL)), "no leave");
    let option = libc::sock_txtime { clockid: libc::CLOCK_MONOTONIC, flags: 0 };
    setsockopt(&from, sockopt::TxTime, &option).expect("Linux 4.19");
    assert_eq!(getsockopt(&from, sockopt::TxTime).map(|got| (got.clockid, got.flags)), Ok((1, 0)));
    for departs_ns in [departs_ns, Some(1), None] {
        let (taken, error) = mmsg::send(from.as_fd(), std::iter::once(message(departs_ns)));
        assert!(taken == 1 && error.is_none(), "{departs_ns:?}: {error:?}");
        let mut buffer = [0; 400];
        let arrived = (0..3).map(|_| to.recv(&mut buffer).expect("arrives"));
        assert_eq!(arrived.collect::<Vec<_>>(), [100; 3], "{departs_ns:?}: beside the segment's length");
    }
}

#[test]
fn a_link_that_the_kernel_is_to_pace_and_does_not_says_which_interface_and_what_it_has() {
    let error = UdpLink::open(loopback(Pacing::Kernel)).map(|_| ()).expect_err("loopback does not pace");
    let LinkError::Pacing { interface, .. } = &error else {
        return skip(&format!("no queueing disciplines to be seen: {error}"));
    };
    let text = error.to_string();
    assert!(text.contains(&format!("{interface} (127.0.0.1) has ")), "{text}");
    assert!(text.contains(&format!("tc qdisc replace dev {interface} root fq")), "{text}");
    for pacing in [Pacing::Auto, Pacing::User] {
        let mut link = UdpLink::open(loopback(pacing)).expect("opens");
        link.set_clock(Clock::start());
        assert!(!link.is_paced_by_kernel());
        assert_eq!((link.lead_ns(0), link.lead_ns(1_000_000_000)), (0, 0), "{pacing:?}");
    }
}

#[test]
fn bursts_with_departures_arrive_whole_and_a_kernel_that_does_not_hold_them_is_not_trusted() {
    let mut from = UdpLink::open(loopback(Pacing::Auto)).expect("opens");
    let mut to = UdpLink::open(loopback(Pacing::User)).expect("opens");
    let clock = Clock::start();
    from.set_clock(clock);
    from.pretend_held();
    assert!(from.lead_ns(clock.now_ns()) > 0);
    let payload = Bytes::from((0..3_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
    let origins = [Origin::Listening(0), Origin::Path(0), Origin::Path(1)];
    let burst = |origin| Burst {
        to: to.local_address(),
        origin,
        tos: 0x0e,
        payload: payload.clone(),
        segment: 1_000,
        departs_ns: clock.now_ns() + 100_000,
    };
    let mut batch: VecDeque<Burst> = origins.into_iter().map(burst).collect();
    let (mut arrived, end_ns) = (Vec::new(), clock.now_ns() + 10_000_000_000);
    while arrived.len() < 9 && clock.now_ns() < end_ns {
        from.send(&mut batch).expect("sends");
        to.receive(&mut |how, datagram| arrived.push((how.tos, datagram.to_vec()))).expect("receives");
        to.wait(1_000_000, false).expect("waits");
    }
    assert_eq!((arrived.len(), from.stats().refused), (9, 0));
    assert!(
        arrived.iter().all(|(tos, bytes)| *tos == 0x0e && payload.chunks(1_000).any(|part| part == bytes))
    );
    from.not_held();
    assert_eq!((from.is_paced_by_kernel(), from.lead_ns(clock.now_ns())), (false, 0));
}
