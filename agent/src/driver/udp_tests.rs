// SPDX-License-Identifier: Apache-2.0
use super::link::{Link, LinkError};
use super::udp::UdpLink;
use super::udp_config::{Checksums, Receive, UdpConfig};
use super::{memory::MemoryLink, options};
use crate::burst::{Burst, Origin};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use trimwire_bmv2_tests::{Namespace, namespace};

/// On stderr itself, because the test harness keeps what passing tests print.
pub(super) fn skip(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

#[expect(clippy::disallowed_methods, reason = "sockets live in real time")]
fn now() -> Instant {
    Instant::now()
}

fn on(ip: &str) -> UdpConfig {
    let mut config = UdpConfig::new(SocketAddr::new(ip.parse().expect("literal"), 0));
    config.data_sockets = 4;
    config
}

fn pair(a: UdpConfig, b: UdpConfig) -> Option<[UdpLink; 2]> {
    match UdpLink::open(a).and_then(|a| Ok([a, UdpLink::open(b)?])) {
        Ok(links) => Some(links),
        Err(error @ (LinkError::Raw { .. } | LinkError::Bind { .. })) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Bytes that tell their place.
fn numbered(length: usize, seed: usize) -> Bytes {
    (0..length).map(|i| ((i * 31 + seed * 7) >> 3) as u8).collect()
}

fn burst(to: SocketAddr, path: u16, tos: u8, length: usize, segment: usize) -> Burst {
    Burst { to, origin: Origin::Path(path), tos, payload: numbered(length, usize::from(path)), segment }
}

type Arrival = (SocketAddr, u8, Vec<u8>);

/// All of `bursts` from one link to another, and what arrived, until `count` have or ten seconds
/// are over.
fn carry(from: &mut impl Link, to: &mut impl Link, bursts: &[Burst], count: usize) -> Vec<Arrival> {
    let mut batch: VecDeque<Burst> = bursts.iter().cloned().collect();
    let mut got = Vec::new();
    let end = now() + Duration::from_secs(10);
    while got.len() < count && now() < end {
        if !batch.is_empty() {
            from.send(&mut batch).expect("sends");
        }
        if to
            .receive(&mut |arrived, payload| got.push((arrived.source, arrived.tos, payload.to_vec())))
            .expect("receives")
            == 0
        {
            to.wait(1_000_000, false).expect("waits");
        }
    }
    assert!(batch.is_empty(), "{} bursts found no room", batch.len());
    got
}

/// What `bursts` of one link come to, in order for each source port.
fn expected(link: &impl Link, bursts: &[Burst]) -> Vec<Arrival> {
    let (own, ports) = (link.local_address(), link.data_ports());
    let mut all = Vec::new();
    for burst in bursts {
        let port = match burst.origin {
            Origin::Listening(_) => own.port(),
            Origin::Path(path) => ports[usize::from(path) % ports.len()],
        };
        all.extend(
            burst.datagrams().map(|payload| (SocketAddr::new(own.ip(), port), burst.tos, payload.to_vec())),
        );
    }
    all.sort_by_key(|(source, ..)| source.port());
    all
}

fn by_port(mut got: Vec<Arrival>) -> Vec<Arrival> {
    got.sort_by_key(|(source, ..)| source.port());
    got
}

fn mixed(to: SocketAddr) -> Vec<Burst> {
    let mut bursts = vec![
        burst(to, 0, 0x28, 16 * 1_362, 1_362),
        burst(to, 1, 0x2a, 3 * 1_000 + 17, 1_000),
        burst(to, 0, 0x28, 1, 1),
        burst(to, 6, 0x03, 65_507, 1_458),
        burst(to, 2, 0x00, 300 * 64, 64),
        burst(to, 3, 0xb8, 700, 1_400),
    ];
    let payload = Bytes::from_static(b"control");
    bursts.push(Burst { to, origin: Origin::Listening(0), tos: 0xc0, payload, segment: 7 });
    bursts
}

/// Sends a mixture of bursts and compares all that arrives.
fn bursts_arrive_as_sent(a: &mut impl Link, b: &mut impl Link) {
    let bursts = mixed(b.local_address());
    let want = expected(a, &bursts);
    let got = by_port(carry(a, b, &bursts, want.len()));
    let shape = |all: &[Arrival]| all.iter().map(|(s, tos, p)| (*s, *tos, p.len())).collect::<Vec<_>>();
    assert_eq!(shape(&got), shape(&want));
    assert!(got == want, "contents");
    let (sent, received) = (a.stats(), b.stats());
    assert_eq!((sent.sent, sent.refused), (want.len() as u64, 0));
    assert_eq!(received.received, sent.sent);
    assert_eq!(received.received_bytes, sent.sent_bytes);
}

#[test]
fn bursts_arrive_split_right_with_their_tos_and_source_port() {
    for ip in ["127.0.0.1", "::1"] {
        let Some([mut a, mut b]) = pair(on(ip), on(ip)) else { continue };
        bursts_arrive_as_sent(&mut a, &mut b);
    }
    let mut links = MemoryLink::network(2);
    let (mut b, mut a) = (links.pop().expect("two"), links.pop().expect("two"));
    bursts_arrive_as_sent(&mut a, &mut b);
}

#[test]
fn without_segmentation_the_same_arrives() {
    for ip in ["127.0.0.1", "::1"] {
        for checksums in [Checksums::Filled, Checksums::Zero] {
            let config = UdpConfig { segmentation: false, checksums, ..on(ip) };
            let Some([mut a, mut b]) = pair(config, on(ip)) else { continue };
            assert!(!a.segments());
            bursts_arrive_as_sent(&mut a, &mut b);
        }
    }
}

#[test]
fn a_kernel_that_refuses_to_segment_is_believed_and_nothing_is_lost() {
    for ip in ["127.0.0.1", "::1"] {
        let Some([mut a, mut b]) = pair(on(ip), on(ip)) else { continue };
        // Linux does not segment what it may not write checksums into, and says EINVAL.
        a.forbid_checksums();
        assert!(a.segments());
        bursts_arrive_as_sent(&mut a, &mut b);
        assert!(!a.segments(), "asked once");
        assert!(a.refusal().is_none());
    }
}

#[test]
fn from_an_ipv6_wildcard_ipv4_is_reached_and_heard() {
    let Some([mut a, mut b]) = pair(on("::"), on("127.0.0.1")) else { return };
    let bursts = [burst(b.local_address(), 1, 0x2a, 5_000, 1_000)];
    let got = carry(&mut a, &mut b, &bursts, 5);
    assert!(
        got.iter().all(|(source, tos, payload)| source.is_ipv4() && *tos == 0x2a && payload.len() == 1_000)
    );
    let mut to = a.local_address();
    to.set_ip(b.local_address().ip());
    let got = carry(&mut b, &mut a, &[burst(to, 1, 0x2a, 5_000, 1_000)], 5);
    assert_eq!(got.len(), 5);
    assert!(
        got.iter().all(|(source, tos, _)| source.ip() == b.local_address().ip() && *tos == 0x2a),
        "{got:?}"
    );
}

#[test]
fn what_is_too_long_is_refused_by_address_length_and_mtu() {
    let Some([mut a, mut b]) = pair(on("127.0.0.1"), on("127.0.0.1")) else { return };
    let to = b.local_address();
    // Longer than any UDP datagram.
    let bursts = [burst(to, 0, 0, 65_508, 65_508), burst(to, 0, 0, 10, 10)];
    let got = carry(&mut a, &mut b, &bursts, 1);
    assert_eq!(got.len(), 1, "those behind it are sent");
    let stats = a.stats();
    assert_eq!((stats.sent, stats.refused, stats.too_long), (1, 1, 1));
    let refusal = a.refusal().expect("reported").to_string();
    assert!(refusal.contains("65508 bytes") && refusal.contains(&to.to_string()), "{refusal}");
    assert!(refusal.contains("the MTU there is"), "{refusal}");
}

#[test]
fn whoever_cannot_be_reached_is_reported_and_costs_no_one_else() {
    let Some([mut a, mut b]) = pair(on("127.0.0.1"), on("127.0.0.1")) else { return };
    let strange = ["[2001:db8::1]:9", "127.0.0.1:0"];
    let mut bursts: Vec<Burst> =
        strange.iter().map(|to| burst(to.parse().expect("literal"), 0, 0, 3_000, 1_000)).collect();
    bursts.push(burst(b.local_address(), 0, 0, 3_000, 1_000));
    let got = carry(&mut a, &mut b, &bursts, 3);
    assert_eq!(got.len(), 3);
    assert_eq!((a.stats().sent, a.stats().refused), (3, 6));
    assert!(a.segments(), "an address is no reason");
    assert!(a.refusal().is_some_and(|refusal| strange.contains(&refusal.to.to_string().as_str())));
}

#[test]
fn odd_bursts_are_no_harm() {
    let Some([mut a, mut b]) = pair(on("127.0.0.1"), on("127.0.0.1")) else { return };
    let to = b.local_address();
    let bursts = [
        burst(to, 0, 0, 0, 0),
        burst(to, 0, 0, 3, 0),
        burst(to, 0, 0, 4, usize::MAX / 2),
        burst(to, 9, 0, 5, 70_000),
    ];
    let got = carry(&mut a, &mut b, &bursts, 5);
    assert_eq!(got.iter().map(|(_, _, p)| p.len()).collect::<Vec<_>>(), [1, 1, 1, 4, 5]);
}

#[test]
fn strangers_datagrams_of_any_length_are_handed_over_as_they_are() {
    for receive in [Receive::Socket, Receive::Raw] {
        let config = UdpConfig { receive, ..on("127.0.0.1") };
        let Some([_, mut b]) = pair(on("127.0.0.1"), config) else { continue };
        let stranger = UdpSocket::bind("127.0.0.1:0").expect("binds");
        for length in [0, 1, 9_000, 65_507] {
            stranger.send_to(&numbered(length, 3), b.local_address()).expect("sends");
        }
        // Data ports do not listen.
        for port in b.data_ports() {
            stranger.send_to(b"hello", ("127.0.0.1", port)).expect("sends");
        }
        let mut lengths = Vec::new();
        let end = now() + Duration::from_secs(10);
        while !lengths.contains(&65_507) && now() < end {
            b.wait(1_000_000, false).expect("waits");
            b.receive(&mut |_, payload| lengths.push(payload.len())).expect("receives");
        }
        lengths.retain(|&length| length > 0);
        assert_eq!(lengths, [1, 9_000, 65_507], "{receive:?}");
    }
}

#[test]
fn what_finds_the_receive_buffer_full_is_counted() {
    for receive in [Receive::Socket, Receive::Raw] {
        let Some([mut a, mut b]) = pair(on("127.0.0.1"), UdpConfig { receive, ..on("127.0.0.1") }) else {
            continue;
        };
        b.shrink_receive_buffers(1);
        let to = b.local_address();
        let mut got = 0_u64;
        for round in 1..=3 {
            let mut batch: VecDeque<Burst> = (0..50).map(|_| burst(to, 0, 0, 1_000, 1_000)).collect();
            a.send(&mut batch).expect("sends");
            while b.receive(&mut |_, _| got += 1).expect("receives") > 0 {}
            // The count comes with the next arrival.
            got += carry(&mut a, &mut b, &[burst(to, 0, 0, 1, 1)], 1).len() as u64;
            assert_eq!(got + b.stats().overflowed, round * 51, "{receive:?} {:?}", b.stats());
        }
        assert!(b.stats().overflowed > 0, "room for all");
    }
}

#[test]
fn what_may_be_on_its_way_finds_room_however_slowly_it_is_read() {
    let Some([mut a, mut b]) = pair(on("127.0.0.1"), on("127.0.0.1")) else { return };
    b.shrink_receive_buffers(212_992);
    let mut send = |count| {
        let mut batch: VecDeque<Burst> =
            (0..count).map(|_| burst(b.local_address(), 0, 0, 1_472, 1_472)).collect();
        a.send(&mut batch).expect("sends");
        assert!(batch.is_empty());
    };
    let on_their_way = b.holds() / 1_472;
    send(on_their_way);
    let mut got = 0;
    for _ in 0..1_000 {
        got += u64::from(b.take_one());
        send(1);
    }
    while b.receive(&mut |_, _| got += 1).expect("receives") > 0 {}
    assert_eq!(got, on_their_way + 1_000, "of packets of 1,472 bytes");
}

#[test]
fn opening_fails_with_the_address_and_a_hint() {
    let config = UdpConfig::new("192.0.2.1:9217".parse().expect("literal"));
    let error = UdpLink::open(config).expect_err("TEST-NET-1 is nobody's address").to_string();
    assert!(error.contains("192.0.2.1:9217") && error.contains("ip addr"), "{error}");
}

#[test]
fn raw_reception_leaves_nothing_in_the_ordinary_socket() {
    for ip in ["127.0.0.1", "::1"] {
        let Some([mut a, mut b]) = pair(on(ip), UdpConfig { receive: Receive::Raw, ..on(ip) }) else {
            continue;
        };
        let to = b.local_address();
        let bursts: Vec<Burst> = (0..64).map(|i| burst(to, i, 0x28, 48 * 1_362, 1_362)).collect();
        let want = expected(&a, &bursts);
        let mut got = Vec::new();
        for bursts in bursts.chunks(4) {
            got.extend(carry(&mut a, &mut b, bursts, 4 * 48));
        }
        assert!(by_port(got) == want, "order and contents");
        assert_eq!(b.waiting_bytes(), 0, "of 4 MB, in the socket that nobody reads");
    }
}

#[test]
fn raw_reception_sees_only_its_own_address_and_port() {
    let raw = |ip| UdpConfig { receive: Receive::Raw, ..on(ip) };
    for (ip, other) in [("127.0.0.1", "127.0.0.2"), ("::1", "::1")] {
        let Some([mut a, mut b]) = pair(on(ip), raw(ip)) else { continue };
        let own = b.local_address();
        let mut elsewhere = vec![SocketAddr::new(own.ip(), own.port() ^ 1)];
        if ip != other {
            elsewhere.push(SocketAddr::new(other.parse().expect("literal"), own.port()));
        }
        let mut bursts: Vec<Burst> = elsewhere.iter().map(|&to| burst(to, 0, 0, 30, 10)).collect();
        bursts.push(burst(own, 0, 0x2a, 45, 20));
        let got = carry(&mut a, &mut b, &bursts, 3);
        assert_eq!(
            got.iter().map(|(_, tos, p)| (*tos, p.len())).collect::<Vec<_>>(),
            [(0x2a, 20), (0x2a, 20), (0x2a, 5)]
        );
    }
}

/// Two namespaces and a veth pair, removed with it.
struct Namespaces([Namespace; 2]);

impl Namespaces {
    const ADDRESSES: [[&str; 3]; 2] =
        [["10.83.0.1", "fd83::1", "fe80::83:1"], ["10.83.0.2", "fd83::2", "fe80::83:2"]];

    fn new(test: &str) -> Option<Self> {
        if !namespace::or_skip(test) {
            return None;
        }
        let made = Self(["a", "b"].map(|role| Namespace::new(role).expect("a namespace")));
        let [a, b] = &made.0;
        a.ip(&format!("link add eth0 type veth peer name eth0 netns {}", b.name())).expect("veth");
        Some(made.addressed())
    }

    fn addressed(self) -> Self {
        for (space, [v4, v6, link_local]) in self.0.iter().zip(Self::ADDRESSES) {
            let on = ["-c", "echo 0 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6"];
            space.run("sh", &on).expect("IPv6");
            for words in [
                format!("addr add {v4}/24 dev eth0"),
                format!("addr add {v6}/64 dev eth0 nodad"),
                format!("addr add {link_local}/64 dev eth0 nodad"),
                "link set eth0 up".to_owned(),
            ] {
                space.ip(&words).expect("ip");
            }
        }
        self
    }

    /// Runs a program in one of them.
    fn run(&self, end: usize, words: &str) -> bool {
        let mut words = words.split(' ');
        let mut command = self.0[end].command(words.next().expect("a program"));
        command.args(words).output().is_ok_and(|output| output.status.success())
    }

    /// Does something in one of them, on a thread of its own.
    fn within<T: Send>(&self, end: usize, run: impl FnOnce() -> T + Send) -> T {
        self.0[end].enter(|| Ok(run())).expect("enters")
    }

    fn open(&self, end: usize, family: usize, change: impl FnOnce(&mut UdpConfig) + Send) -> UdpLink {
        self.within(end, || {
            let mut config = on(Self::ADDRESSES[end][family]);
            change(&mut config);
            UdpLink::open(config).expect("opens")
        })
    }
}

#[test]
fn a_full_socket_keeps_what_found_no_room_in_order() {
    let Some(network) = Namespaces::new("a full socket") else { return };
    // What a slow line holds back counts against the socket that sent it.
    if !network.run(0, "tc qdisc add dev eth0 root tbf rate 80mbit burst 70k limit 4m") {
        skip("tc with tbf, to make a line slow");
        return;
    }
    // Over veth, what leaves on two processors arrives in either order.
    let mut one = nix::sched::CpuSet::new();
    one.set(0).expect("a first processor");
    if nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &one).is_err() {
        skip("staying on one processor");
        return;
    }
    for segmentation in [true, false] {
        let mut a = network.open(0, 0, |_| {});
        let mut b = network.open(1, 0, |_| {});
        a.shrink_send_buffers(segmentation);
        let to = b.local_address();
        let bursts: Vec<Burst> = (0..40).map(|i| burst(to, i % 3, i as u8 * 4, 40 * 900, 900)).collect();
        let want = expected(&a, &bursts);
        let mut batch: VecDeque<Burst> = bursts.into_iter().collect();
        let (mut got, mut left) = (Vec::new(), 0);
        let end = now() + Duration::from_secs(10);
        while got.len() < want.len() && now() < end {
            a.send(&mut batch).expect("sends");
            left += batch.len();
            while b.receive(&mut |a, p| got.push((a.source, a.tos, p.to_vec()))).expect("receives") > 0 {}
            a.wait(100_000, !batch.is_empty()).expect("waits");
        }
        assert!(left > 0, "the sockets were never full");
        assert_eq!(got.len(), want.len());
        assert!(by_port(got) == want, "order and contents");
    }
}

fn fits_ethernet(to: SocketAddr) -> Vec<Burst> {
    let most = if to.is_ipv4() { 1_472 } else { 1_452 };
    mixed(to)
        .into_iter()
        .chain([burst(to, 1, 0x28, 40 * 1_362 + 400, 1_362), burst(to, 2, 0x28, 3 * most, most)])
        .map(|burst| Burst { segment: burst.segment.min(most), ..burst })
        .collect()
}

#[test]
fn over_veth_every_way_of_sending_and_receiving_gives_the_same() {
    let Some(network) = Namespaces::new("datagrams between namespaces") else { return };
    for offloads in [true, false] {
        if !offloads {
            for end in [0, 1] {
                network.within(end, || namespace::offloads_off("eth0")).expect("turns them off");
            }
        }
        for family in [0, 1, 2] {
            for receive in [Receive::Socket, Receive::Raw] {
                for (checksums, segmentation) in
                    [(Checksums::Filled, true), (Checksums::Filled, false), (Checksums::Zero, false)]
                {
                    let mut a = network.open(0, family, |config| {
                        config.checksums = checksums;
                        config.segmentation = segmentation;
                    });
                    let mut b = network.open(1, family, |config| config.receive = receive);
                    let bursts = fits_ethernet(b.local_address());
                    let want = expected(&a, &bursts);
                    let got = by_port(carry(&mut a, &mut b, &bursts, want.len()));
                    let what = format!(
                        "offloads {offloads}, {receive:?}, {checksums:?}, segmentation {segmentation}: {:?}",
                        b.stats()
                    );
                    assert_eq!(got.len(), want.len(), "{what}");
                    assert!(got == want, "{what}");
                    assert_eq!(a.segments(), segmentation, "{what}");
                    if receive == Receive::Raw {
                        assert_eq!(b.waiting_bytes(), 0, "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_the_path_cannot_carry_whole_is_refused_and_never_fragmented() {
    let Some(network) = Namespaces::new("datagrams of several sizes") else { return };
    for family in [0, 1] {
        let mut a = network.open(0, family, |_| {});
        let mut b = network.open(1, family, |_| {});
        let to = b.local_address();
        let most = if to.is_ipv4() { 1_472 } else { 1_452 };
        // Of the second burst only the last datagram fits.
        let bursts = [
            burst(to, 0, 0, most * 2, most),
            burst(to, 0, 0, (most + 1) * 2 + 9, most + 1),
            burst(to, 0, 0, 7, 7),
        ];
        let got = carry(&mut a, &mut b, &bursts, 4);
        assert_eq!(got.iter().map(|(_, _, p)| p.len()).collect::<Vec<_>>(), [most, most, 9, 7]);
        assert_eq!((a.stats().refused, a.stats().too_long), (2, 2));
        assert!(a.segments(), "a length is no reason");
    }
}

proptest::proptest! {
    #[test]
    fn any_frame_is_read_without_panic(
        mut frame in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120),
        network in proptest::option::of(0_usize..200),
        segment in 0_u16..40,
    ) {
        // Begins as a whole frame with offloads does.
        let start = [0, 5, 0, 0, segment.to_ne_bytes()[0], segment.to_ne_bytes()[1], 0, 0, 0, 0];
        for (to, from) in frame.iter_mut().zip(start) {
            *to = from;
        }
        for (at, byte) in [(24, 0x45), (33, 17), (30, 0)] {
            if let Some(to) = frame.get_mut(at) {
                *to = byte;
            }
        }
        let own = frame.get(40..44).map_or([0; 4], |v4| v4.try_into().expect("four"));
        let port = frame.get(46..48).map_or(0, |port| u16::from_be_bytes(port.try_into().expect("two")));
        super::listener::read_any_frame(&frame, network, std::net::Ipv4Addr::from(own), port);
    }
}

#[test]
fn the_filter_for_a_port_is_short_and_ends_in_acceptance_and_refusal() {
    for ip in ["10.0.0.1", "fd00::1"] {
        let filter = options::to_port(ip.parse().expect("literal"), 9217);
        assert!(filter.len() < 20);
    }
}
