// SPDX-License-Identifier: Apache-2.0
//! Bursts that a sender left to its interface, or that the kernel put together: a switch sees the
//! packets that they are.

use crate::driver_support::{Running, Wire, ip, isolate, until, veth_pairs};
use crate::fuzz_support::dice::Dice;
use crate::ladder_support::{PROGRAM, install_for_hosts};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trimwire_bmv2_tests::BurstSocket;
use trimwire_bmv2_tests::namespace::{offloads_off, ready};
use trimwire_bmv2_tests::packets::{Burst, Recipe};
use trimwire_switch::driver::PacketSocket;
use trimwire_switch::engine::entity::{ActionCall, ActionSpec, MatchValue, TableEntry, value};
use trimwire_switch::{SharedSwitch, Switch, SwitchConfig};

/// Routes as the ladder's, 10.0.1.0/24 to port 1 among them, and 10.0.0.0/24 to `NEAR` on port 0.
fn switch() -> SharedSwitch {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.load_pipeline(PROGRAM).unwrap();
    let control = switch.pipeline().unwrap().control();
    install_for_hosts(control);
    let params = vec![value(0), NEAR.to_vec()];
    let call = ActionCall { action: "Ingress.forward".to_owned(), params };
    control.member_insert("Ingress.ecmp", 9, &call).unwrap();
    let matches = vec![MatchValue::Lpm { value: vec![10, 0, 0, 0], prefix_len: 24 }];
    let back = TableEntry { matches, priority: 0, action: ActionSpec::Member(9), metadata: Vec::new() };
    control.table_insert("Ingress.ipv4_route", &back).unwrap();
    Arc::new(Mutex::new(switch))
}

const PATIENCE: Duration = Duration::from_secs(10);
const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 10];

/// A burst of any shape that a kernel makes.
fn any_burst(dice: &mut Dice) -> Burst {
    let is_v6 = dice.below(2) == 1;
    let tags = match dice.below(4) {
        0 | 1 => Vec::new(),
        2 => vec![[0x8100, dice.roll() as u16]],
        _ => vec![[0x88a8, dice.roll() as u16], [0x8100, dice.roll() as u16]],
    };
    let is_tcp = dice.below(2) == 1;
    let segment = *dice.one(&[48, 200, 1_000, 1_400, 1_448, 2_100, 8_900]);
    // The kernel takes at most 128 datagrams for one (UDP_MAX_SEGMENTS), and 64 KiB.
    let most = (65_000 / segment).min(if is_tcp { 1_000 } else { 120 });
    let payload = segment + 1 + dice.below(segment * (most - 1));
    Recipe {
        tags,
        is_v6,
        ip_options: if is_v6 { 0 } else { 4 * dice.below(3) },
        tcp_options: 4 * dice.below(11),
        extension: if is_v6 { dice.below(3) } else { 0 },
        // ACK is set in whatever is longer than a header.
        tcp_flags: is_tcp.then(|| 0x10 | dice.roll() as u8 & 0xe9),
        dscp_ecn: dice.roll() as u8,
        id: dice.roll() as u16,
        sequence: dice.roll() as u32,
        segment,
        payload: (0..payload).map(|_| dice.roll() as u8).collect(),
    }
    .burst()
}

#[test]
fn bursts_become_the_frames_that_the_kernel_would_have_made_of_them() {
    if !isolate("driver_bursts: the kernel's frames") {
        return;
    }
    // Pair 0 takes bursts as they are. The kernel segments those of pair 1 before they leave.
    veth_pairs(2);
    for interface in ["h0", "s0", "h1", "s1"] {
        ip(&format!("link set {interface} mtu 9200"));
    }
    offloads_off("h1").unwrap();
    let senders = ["h0", "h1"].map(|interface| BurstSocket::open_here(interface).unwrap());
    let oracle = Wire::open("s1");
    let mut ways = [4 << 20, 0].map(|ring| PacketSocket::open("s0", ring).unwrap());
    let mut dice = Dice::new(0x6275);
    let (mut bursts, mut frames) = (0, 0);
    while bursts < 300 {
        let burst = any_burst(&mut dice);
        for sender in &senders {
            sender.send(&burst).unwrap();
        }
        let count = (burst.frame.len() - burst.headers).div_ceil(burst.segment);
        let expected: Vec<Vec<u8>> = (0..count).map(|_| oracle.receive(10_000).unwrap()).collect();
        for socket in &mut ways {
            let mut came = Vec::new();
            until("the burst has come", || {
                let received = socket.receive(|_, frame| came.push(frame.to_vec())).unwrap();
                assert_eq!(
                    (received.refused, received.missed),
                    (0, 0),
                    "{:02x?}",
                    &burst.frame[..burst.headers]
                );
                came.len() >= count
            });
            for (i, (came, expected)) in came.iter().zip(&expected).enumerate() {
                assert_eq!(came, expected, "frame {i} of {:02x?}", &burst.frame[..burst.headers]);
                assert!(came.len() <= burst.headers + burst.segment);
            }
            assert_eq!(came.len(), count);
        }
        (bursts, frames) = (bursts + 1, frames + count);
    }
    assert_eq!(oracle.receive(50), None);
    assert!(frames > 5 * bursts, "{frames} frames of {bursts} bursts: nothing was segmented");
}

#[test]
fn datagrams_given_to_the_kernel_in_one_piece_leave_the_switch_one_by_one() {
    if !isolate("driver_bursts: UDP_SEGMENT") {
        return;
    }
    let running = Running::start(switch(), veth_pairs(2));
    ip("address add 10.0.0.1/24 dev h0");
    ip("route add 10.0.1.0/24 via 10.0.0.2");
    ip("neighbour add 10.0.0.2 lladdr 02:00:00:00:00:01 dev h0");
    let far = Wire::open("h1");
    let socket = UdpSocket::bind("10.0.0.1:4000").unwrap();
    let segment: libc::c_int = 1_200;
    // SAFETY: the pointer and the length describe `segment`.
    let done = unsafe {
        let size = size_of_val(&segment) as libc::socklen_t;
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const segment).cast(),
            size,
        )
    };
    assert_eq!(done, 0);
    let sent: Vec<u8> =
        (0..40 * 1_200 + 77u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert_eq!(socket.send_to(&sent, "10.0.1.9:9").unwrap(), sent.len());
    let mut came: Vec<u8> = Vec::new();
    while came.len() < sent.len() {
        let frame = far.receive(10_000).unwrap();
        let parsed = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(etherparse::NetSlice::Ipv4(ip)) = parsed.net else { panic!("no IPv4") };
        let Some(etherparse::TransportSlice::Udp(udp)) = parsed.transport else { panic!("no UDP") };
        let expected = udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload()).unwrap();
        assert_eq!(udp.checksum(), expected);
        assert!(udp.payload().len() <= 1_200);
        came.extend(udp.payload());
    }
    assert_eq!(came, sent);
    let stats = running.stop().stats();
    assert_eq!((stats[&0].received, stats[&0].refused, stats[&1].sent), (41, 0, 41));
}

#[test]
fn tcp_goes_both_ways_through_the_switch_with_all_offloads_on() {
    if !isolate("driver_bursts: TCP") {
        return;
    }
    let running = Running::start(switch(), veth_pairs(2));
    ip("link set h0 address 02:00:00:00:00:0a");
    ip("address add 10.0.0.1/24 dev h0");
    ip("route add 10.0.1.0/24 via 10.0.0.2");
    ip("neighbour add 10.0.0.2 lladdr 02:00:00:00:00:01 dev h0");
    let sent: Arc<Vec<u8>> =
        Arc::new((0..8u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect());
    let (tell, told) = std::sync::mpsc::channel();
    let (tell_ready, is_ready) = std::sync::mpsc::channel();
    let back = sent.clone();
    let peer = std::thread::spawn(move || {
        // A namespace of this thread's own, where the far end's addresses are.
        // SAFETY: no pointers are passed.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        // SAFETY: as above.
        tell.send(unsafe { libc::gettid() }).unwrap();
        is_ready.recv().unwrap();
        // As the ladder's routes have it.
        ip("link set h1 address 02:00:00:00:00:02 up");
        ip("address add 10.0.1.9/24 dev h1");
        ip("route add 10.0.0.0/24 via 10.0.1.1");
        ip("neighbour add 10.0.1.1 lladdr 02:00:00:00:00:01 dev h1");
        ready("h1");
        let listener = TcpListener::bind("10.0.1.9:5001").unwrap();
        tell.send(0).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut came = vec![0; back.len()];
        stream.read_exact(&mut came).unwrap();
        assert!(came == *back, "other bytes came than were sent");
        stream.write_all(&came).unwrap();
    });
    let thread = told.recv().unwrap();
    ip(&format!("link set h1 netns {thread}"));
    tell_ready.send(()).unwrap();
    told.recv().unwrap();
    let mut stream = TcpStream::connect("10.0.1.9:5001").unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let all = sent.clone();
    let writer = std::thread::spawn(move || writer.write_all(&all).unwrap());
    let mut came = vec![0; sent.len()];
    stream.read_exact(&mut came).unwrap();
    assert!(came == *sent, "other bytes came back than were sent");
    writer.join().unwrap();
    peer.join().unwrap();
    let stats = running.stop().stats();
    assert_eq!((stats[&0].refused, stats[&1].refused), (0, 0), "{stats:?}");
    // 1,448 bytes a frame: the switch saw frames, not bursts.
    assert!(stats[&0].received as usize >= sent.len() / 1_448, "{stats:?}");
}
