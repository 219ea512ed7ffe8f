// SPDX-License-Identifier: Apache-2.0
//! AF_XDP over veth, beside sockets. Needs root and iproute2; skipped loudly otherwise.

use super::host::{Carrier, HostLink};
use super::link::Link;
use super::options;
use super::tests::all_reduce;
use super::udp_config::{Checksums, Receive, UdpConfig};
use super::udp_tests::{Namespaces, burst, by_port, carry, expected, fits_ethernet, on, skip};
use crate::endpoint::Reliability;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};
use socket2::{Domain, Socket, Type};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use trimwire_encoder::wire::{Kind, Prefix};

fn open(
    network: &Namespaces,
    end: usize,
    family: usize,
    carrier: Carrier,
    change: impl FnOnce(&mut UdpConfig) + Send,
) -> HostLink {
    let ip = Namespaces::ADDRESSES[end][family];
    let mut links = network.within(end, || {
        let mut config = on(ip);
        change(&mut config);
        HostLink::open_channels(&config, 1, carrier).expect("opens")
    });
    let link = links.pop().expect("one");
    assert_eq!(link.is_xdp(), carrier == Carrier::Xdp, "falls back");
    link
}

/// Namespaces, where the system has AF_XDP.
fn network(tag: &str) -> Option<Namespaces> {
    Namespaces::new(tag).filter(has_afxdp)
}

fn has_afxdp(network: &Namespaces) -> bool {
    let config = on(Namespaces::ADDRESSES[0][0]);
    let links =
        network.within(0, || HostLink::open_channels(&config, 1, Carrier::Xdp).expect("sockets open"));
    let is_xdp = links.iter().any(HostLink::is_xdp);
    if !is_xdp {
        skip("AF_XDP over veth: the system refuses it");
    }
    is_xdp
}

/// Has the kernel resolve addresses, which sockets do by themselves.
fn greet(a: &mut HostLink, b: &mut HostLink) {
    for _ in 0..1_000 {
        assert_eq!(carry(a, b, &[burst(b.local_address(), 0, 0, 9, 9)], 1).len(), 1);
        assert_eq!(carry(b, a, &[burst(a.local_address(), 0, 0, 9, 9)], 1).len(), 1);
        if [&*a, &*b].iter().all(|link| !link.is_xdp() || link.xdp_stats().sent > 0) {
            return;
        }
        a.wait(1_000_000, false).expect("waits");
    }
    panic!("the kernel resolves nothing");
}

/// A packet socket on an interface.
fn tap(interface: &str) -> Socket {
    let socket = Socket::new(Domain::PACKET, Type::RAW, None).expect("root");
    options::set(&socket, options::PACKET_IGNORE_OUTGOING, 1).expect("known");
    let index = if_nametoindex(interface).expect("exists");
    options::bind_packet(&socket, index, libc::ETH_P_ALL as u16).expect("binds");
    socket
}

/// A frame around an IPv4 datagram of 10.83.0.1 to 10.83.0.2, to whatever station.
fn frame(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend([2; 6]);
    bytes.extend([
        8, 0, 0x45, 0x28, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 83, 0, 1, 10, 83, 0, 2, 0x30, 0x39,
    ]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 0, 0, 0]);
    bytes.extend(payload);
    let length = (payload.len() + 28) as u16;
    bytes[16..18].copy_from_slice(&length.to_be_bytes());
    bytes[38..40].copy_from_slice(&(length - 20).to_be_bytes());
    let sum: u32 = bytes[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// What comes until a burst of `a` does that nobody confuses with it.
fn until_marked(a: &mut impl Link, b: &mut impl Link) -> Vec<Vec<u8>> {
    let mut batch: VecDeque<_> = [burst(b.local_address(), 1, 0x2a, 5, 5)].into();
    a.send(&mut batch).expect("sends");
    let (mut got, mut marked) = (Vec::new(), false);
    for _ in 0..5_000 {
        b.receive(&mut |arrived, payload| {
            if arrived.tos == 0x2a { marked = true } else { got.push(payload.to_vec()) }
        })
        .expect("receives");
        if marked {
            return got;
        }
        b.wait(1_000_000, false).expect("waits");
    }
    panic!("nothing more comes: {got:?}");
}

/// The kernel takes a socket's rings back after it was closed.
#[test]
fn a_job_that_follows_another_at_once_has_afxdp_too() {
    let Some(network) = network("again") else { return };
    for _ in 0..50 {
        drop(open(&network, 0, 0, Carrier::Xdp, |_| {}));
    }
}

#[test]
fn afxdp_and_sockets_understand_each_other_in_both_families() {
    let Some(network) = network("x") else { return };
    for family in [0, 1] {
        for (from, to) in
            [(Carrier::Xdp, Carrier::Xdp), (Carrier::Xdp, Carrier::Sockets), (Carrier::Sockets, Carrier::Xdp)]
        {
            for checksums in [Checksums::Filled, Checksums::Zero] {
                let mut a = open(&network, 0, family, from, |config| config.checksums = checksums);
                let mut b = open(&network, 1, family, to, |_| {});
                greet(&mut a, &mut b);
                let before = [a.xdp_stats().sent, b.xdp_stats().received];
                let bursts = fits_ethernet(b.local_address());
                let want = expected(&a, &bursts);
                // In parts, as veth holds 256 frames.
                let mut got = Vec::new();
                for part in bursts.chunks(1) {
                    got.extend(carry(&mut a, &mut b, part, part[0].count()));
                }
                let what = format!("{from:?} to {to:?}, family {family}, {checksums:?}: {:?}", b.stats());
                assert_eq!(got.len(), want.len(), "{what}");
                assert!(by_port(got) == want, "{what}");
                let count = want.len() as u64;
                let by_xdp = [a.xdp_stats().sent - before[0], b.xdp_stats().received - before[1]];
                assert_eq!(by_xdp[0], if from == Carrier::Xdp { count } else { 0 }, "{what}");
                assert_eq!(by_xdp[1], if to == Carrier::Xdp { count } else { 0 }, "{what}");
            }
        }
    }
}

#[test]
fn arrivals_tell_how_long_they_waited() {
    let Some(network) = network("w") else { return };
    let [mut a, mut b] = [0, 1].map(|end| open(&network, end, 0, Carrier::Xdp, |_| {}));
    greet(&mut a, &mut b);
    let mut batch: VecDeque<_> = [burst(b.local_address(), 0, 0, 9, 9)].into();
    a.send(&mut batch).expect("sends");
    std::thread::sleep(std::time::Duration::from_millis(30));
    let mut age_ns = None;
    b.receive(&mut |arrived, _| age_ns = Some(arrived.age_ns)).expect("receives");
    assert!(age_ns.is_some_and(|age_ns| (20_000_000..900_000_000).contains(&age_ns)), "{age_ns:?}");
}

#[test]
fn frames_whose_lengths_nobody_mended_are_sized_by_what_came() {
    let Some(network) = network("t") else { return };
    let [mut a, mut b] = [0, 1].map(|end| open(&network, end, 0, Carrier::Xdp, |_| {}));
    greet(&mut a, &mut b);
    let tap = network.within(0, || tap("eth0"));
    let payload: Vec<u8> = (0..1_000_u32).map(|i| (i >> 2) as u8).collect();
    let whole = frame(b.local_address().port(), &payload);
    for length in [43, 60, 118, 510, whole.len()] {
        tap.send(&whole[..length]).expect("sends");
    }
    let got = until_marked(&mut a, &mut b);
    let want: Vec<Vec<u8>> = [1, 18, 76, 468, 1_000].map(|length| payload[..length].to_vec()).into();
    assert_eq!(got, want);
}

#[test]
fn what_strangers_send_is_counted_and_changes_nothing() {
    let Some(network) = network("g") else { return };
    let [mut a, mut b] = [0, 1].map(|end| open(&network, end, 0, Carrier::Xdp, |_| {}));
    greet(&mut a, &mut b);
    let tap = network.within(0, || tap("eth0"));
    let whole = frame(b.local_address().port(), &[7; 100]);
    let before = b.stats();
    for (at, values) in [
        // IP's length: shorter than its header, or than UDP's.
        (16, [0, 0]),
        (16, [0, 27]),
        // UDP's says: nothing.
        (38, [0, 8]),
        // Fragments; another version; options that are not there; another protocol; another address.
        (20, [0x20, 0]),
        (20, [0, 9]),
        (14, [0x55, 0]),
        (14, [0x4f, 0]),
        (22, [64, 6]),
        (32, [9, 9]),
    ] {
        let mut bytes = whole.clone();
        bytes[at..at + 2].copy_from_slice(&values);
        tap.send(&bytes).expect("sends");
    }
    for length in 14..42 {
        tap.send(&whole[..length]).expect("sends");
    }
    let got = until_marked(&mut a, &mut b);
    assert!(got.iter().all(Vec::is_empty), "{got:?}");
    let after = b.stats();
    assert_eq!(after.malformed - before.malformed, 3, "those that the program picks");
    // More than all frames that there are to receive into.
    for _ in 0..100 {
        let mut bytes = whole.clone();
        bytes[17] = 20;
        for _ in 0..100 {
            tap.send(&bytes).expect("sends");
        }
        while b.receive(&mut |_, _| ()).expect("receives") > 0 || !b.is_drained() {}
    }
    assert_eq!(until_marked(&mut a, &mut b).len(), 0);
}

#[test]
fn the_rest_of_the_host_notices_nothing_and_the_program_goes_with_the_link() {
    let Some(network) = network("h") else { return };
    let shown = |network: &Namespaces| network.output(1, "ip -d link show dev eth0").contains("xdp");
    assert!(!shown(&network));
    for family in [0, 1] {
        let [mut a, mut b] = [0, 1].map(|end| open(&network, end, family, Carrier::Xdp, |_| {}));
        assert!(shown(&network));
        greet(&mut a, &mut b);
        let ip: IpAddr = Namespaces::ADDRESSES[1][family].parse().expect("literal");
        // The port beside, and TCP of the same port.
        let port = b.local_address().port();
        let beside = network.within(1, || UdpSocket::bind((ip, 0)).expect("binds"));
        let listener = network.within(1, || TcpListener::bind((ip, port)).expect("free"));
        let from = SocketAddr::new(a.local_address().ip(), 0);
        let stranger = network.within(0, || UdpSocket::bind(from).expect("binds"));
        let mut client = network
            .within(0, || TcpStream::connect(listener.local_addr().expect("bound")).expect("connects"));
        let (mut served, _) = listener.accept().expect("accepts");
        for round in 0..50_u8 {
            let bursts = [burst(b.local_address(), 0, 0, 9_000, 900)];
            assert_eq!(carry(&mut a, &mut b, &bursts, 10).len(), 10);
            stranger.send_to(&[round; 9], beside.local_addr().expect("bound")).expect("sends");
            let mut bytes = [0; 9];
            assert_eq!(beside.recv(&mut bytes).expect("receives"), 9);
            client.write_all(&[round; 5_000]).expect("writes");
            let mut bytes = [0; 5_000];
            served.read_exact(&mut bytes).expect("reads");
            assert_eq!(bytes, [round; 5_000]);
        }
        drop((a, b));
        assert!(!shown(&network), "still there");
    }
}

#[test]
fn who_cannot_have_it_has_sockets_and_the_reason_is_told() {
    let Some(network) = network("f") else { return };
    let ip = Namespaces::ADDRESSES[1][0];
    let mut a = open(&network, 0, 0, Carrier::Xdp, |_| {});
    // veth has one queue: for the first channel.
    let mut channels =
        network.within(1, || HostLink::open_channels(&on(ip), 2, Carrier::Xdp).expect("opens"));
    assert_eq!(channels.iter().map(HostLink::is_xdp).collect::<Vec<_>>(), [true, false]);
    // Another process.
    let second = network.within(1, || HostLink::open_channels(&on(ip), 1, Carrier::Xdp).expect("opens"));
    assert_eq!(second.iter().map(HostLink::is_xdp).collect::<Vec<_>>(), [false]);
    for link in channels.iter_mut().chain(&mut second.into_iter().collect::<Vec<_>>()) {
        greet(&mut a, link);
        let bursts = [burst(link.local_address(), 0, 0x28, 9_000, 900)];
        assert_eq!(carry(&mut a, link, &bursts, 10).len(), 10);
    }
    drop(channels);
    let refusal = |own: SocketAddr| super::xdp::open(own, 1).expect_err("refused").to_string();
    let own = SocketAddr::new(ip.parse().expect("literal"), 9);
    let told = network.within(1, || refusal(([127, 0, 0, 1], 9).into()));
    assert!(told.contains("'lo' is the loopback interface"), "{told}");
    let told = network.within(1, || refusal(([192, 0, 2, 1], 9).into()));
    assert!(told.contains("no interface has the address 192.0.2.1"), "{told}");
    for (mtu, text) in
        [(9_000, "'eth0' has an MTU of 9000 bytes, and AF_XDP takes up to 3826"), (3_800, "3498 bytes fit")]
    {
        for end in [0, 1] {
            network.output(end, &format!("ip link set eth0 mtu {mtu}"));
        }
        // The other end has a program: its MTU is limited, too.
        drop(std::mem::replace(&mut a, open(&network, 0, 0, Carrier::Sockets, |_| {})));
        for end in [0, 1] {
            network.output(end, &format!("ip link set eth0 mtu {mtu}"));
        }
        let told = network.within(1, || refusal(own));
        assert!(told.contains(text), "{mtu}: {told}");
    }
}

#[test]
fn datagrams_longer_than_the_interface_carries_are_refused_as_sockets_refuse_them() {
    let Some(network) = network("l") else { return };
    for family in [0, 1] {
        let [mut a, mut b] = [0, 1].map(|end| open(&network, end, family, Carrier::Xdp, |_| {}));
        greet(&mut a, &mut b);
        let most = if family == 0 { 1_472 } else { 1_452 };
        let to = b.local_address();
        let bursts =
            [burst(to, 0, 0, most * 2, most), burst(to, 0, 0, most * 2, most + 1), burst(to, 0, 0, 7, 7)];
        let got = carry(&mut a, &mut b, &bursts, 4);
        assert_eq!(got.iter().map(|(_, _, p)| p.len()).collect::<Vec<_>>().len(), 4);
        assert_eq!((a.stats().refused, a.stats().too_long), (1, 1));
    }
}

#[test]
fn sums_over_afxdp_are_those_over_sockets() {
    let Some(network) = network("s") else { return };
    for family in [0, 1] {
        for mtu in [1_450, 1_500] {
            for end in [0, 1] {
                network.output(end, &format!("ip link set eth0 mtu {mtu}"));
            }
            let [sockets, xdp] = [Carrier::Sockets, Carrier::Xdp].map(|carrier| {
                let links = [0, 1].map(|end| open(&network, end, family, carrier, |_| {}));
                all_reduce(links, 1, 3, Reliability::Full)
            });
            assert!(sockets == xdp);
        }
    }
}

/// Ends the relay, also where a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Forwards frames between two interfaces, DATA trimmed to `most` bytes and its lengths left as they were.
fn relay(ends: [&Socket; 2], most: usize, over: &AtomicBool, trimmed: &AtomicU32) {
    let mut frame = vec![0; 70_000];
    while !over.load(Ordering::Relaxed) {
        let mut readable = ends.map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN));
        let _ = poll(&mut readable, PollTimeout::from(10_u8));
        for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            while let Ok(length) = recv(from.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT) {
                let mut bytes = &frame[..length];
                let payload = bytes.get(14..).and_then(super::packet::parse).map(|found| found.payload);
                let is_data = payload.and_then(|payload| Prefix::parse(payload).ok());
                if length > most && is_data.is_some_and(|prefix| prefix.kind == Kind::Data) {
                    bytes = &bytes[..most];
                    trimmed.fetch_add(1, Ordering::Relaxed);
                }
                let _ = to.send(bytes);
            }
        }
    }
}

#[test]
fn a_sum_of_trimmed_packets_is_that_of_raw_sockets() {
    let Some(network) = Namespaces::with_middle("r").filter(has_afxdp) else { return };
    let taps = ["port0", "port1"].map(|port| network.within(2, || tap(port)));
    let (over, trimmed) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| relay([&taps[0], &taps[1]], 510, &over, &trimmed));
        let _ends = Ends(&over);
        let sums = [Carrier::Sockets, Carrier::Xdp].map(|carrier| {
            let links = [0, 1].map(|end| {
                // Nothing in the middle splits bursts.
                open(&network, end, 0, carrier, |config| {
                    config.receive = Receive::Raw;
                    config.segmentation = false;
                })
            });
            all_reduce(links, 1, 2, Reliability::Bounded { loss: 0.0 })
        });
        assert!(trimmed.load(Ordering::Relaxed) > 300, "{trimmed:?}");
        assert!(sums[0] == sums[1]);
    });
}
