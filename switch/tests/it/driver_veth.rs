// SPDX-License-Identifier: Apache-2.0
//! The driver on veth pairs: what goes in comes out, at the configured rate, whatever happens to
//! the interfaces.

use crate::driver_support::{Running, Wire, ip, isolate, now, until, veth_pairs};
use crate::ladder_support::{Case, PROGRAM, apply, cases, install, install_for_hosts, take_counts};
use std::io::Write as _;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trimwire_bmv2_tests::packets::mend_ipv4_checksum;
use trimwire_bmv2_tests::skip;
use trimwire_p4runtime::client::{Client, Role};
use trimwire_p4runtime::entity::TableEntryBuilder;
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_switch::driver::{Attachment, Driver, DriverError};
use trimwire_switch::server::serve;
use trimwire_switch::{PortConfig, SharedSwitch, Switch, SwitchConfig};

fn switch(line: PortConfig) -> SharedSwitch {
    let mut switch = Switch::new(SwitchConfig { default_port: line, ..SwitchConfig::default() });
    switch.load_pipeline(PROGRAM).unwrap();
    install_for_hosts(switch.pipeline().unwrap().control());
    Arc::new(Mutex::new(switch))
}

/// As `ladder.json` has it.
fn ladder() -> SharedSwitch {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.load_pipeline(PROGRAM).unwrap();
    install(switch.pipeline().unwrap().control());
    Arc::new(Mutex::new(switch))
}

/// A case that port 1 sends on whole: an IPv4 packet without a policy.
fn plain() -> Case {
    cases()
        .into_iter()
        .find(|case| case.name == "IPv4, ECN 0: without a policy everything is admitted")
        .unwrap()
}

/// The plain packet with a UDP payload of `payload` bytes and valid lengths.
fn frame(payload: usize) -> Vec<u8> {
    let mut frame = plain().frame;
    frame.resize(42 + payload, 0x5a);
    frame[16..18].copy_from_slice(&(28 + payload as u16).to_be_bytes());
    frame[38..40].copy_from_slice(&(8 + payload as u16).to_be_bytes());
    mend_ipv4_checksum(&mut frame[14..]);
    frame
}

#[test]
fn every_packet_with_a_known_answer_tagged_or_not_gets_it_on_real_interfaces() {
    if !isolate("driver_veth: known answers") {
        return;
    }
    let attachments = veth_pairs(3);
    for threads in [1, 3] {
        known_answers(Running::with_threads(threads, ladder(), attachments.clone()));
    }
}

fn known_answers(running: Running) {
    let wires: Vec<_> = (0..3).map(|port| Wire::open(&format!("h{port}"))).collect();
    let mut sent = 0;
    // The kernel sends no frame shorter than an Ethernet header.
    for case in cases().iter().filter(|case| case.frame.len() >= 14) {
        let name = &case.name;
        {
            let mut switch = running.switch.lock().unwrap();
            apply(switch.pipeline().unwrap().control(), case);
        }
        assert!(wires[usize::from(case.ingress_port)].send(&case.frame), "{name}");
        sent += 1;
        match &case.expect {
            Some((port, frame)) => {
                let got = wires[usize::from(*port)].receive(10_000);
                assert_eq!(got.as_ref(), Some(frame), "{name}");
            }
            None => {
                until("the packet is dropped", || running.switch.lock().unwrap().stats().received == sent);
            }
        }
        let mut switch = running.switch.lock().unwrap();
        assert_eq!(take_counts(switch.pipeline().unwrap().control()), case.counters, "{name}");
    }
    for wire in &wires {
        assert_eq!(wire.receive(50), None, "nothing beyond the answers");
    }
    let stats = running.stop().stats();
    assert_eq!(stats.values().map(|port| port.received).sum::<u64>(), sent);
    assert!(stats.values().all(|port| port.lost + port.missed + port.refused == 0), "{stats:?}");
}

#[test]
fn a_port_s_frames_leave_in_the_order_in_which_they_came_whichever_threads_had_them() {
    // A ring has room for all of a port's.
    const FRAMES: u32 = 3_000;
    if !isolate("driver_veth: order") {
        return;
    }
    // Frames wait, and it may be any thread that finds their time come.
    let line = PortConfig { rate_bps: 300_000_000, queue_limit_bytes: 64 << 20 };
    let running = Running::with_threads(3, switch(line), veth_pairs(4));
    let far = Wire::open("h1");
    // From the port that the frames leave at, too.
    let senders: Vec<_> = (0..4_u8).map(|port| (port, Wire::open(&format!("h{port}")))).collect();
    let mut next = [0; 4];
    std::thread::scope(|scope| {
        for (port, wire) in &senders {
            scope.spawn(move || {
                let mut frame = frame(100);
                for number in 0..FRAMES {
                    frame[50] = *port;
                    frame[60..64].copy_from_slice(&number.to_be_bytes());
                    while !wire.send(&frame) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        for _ in 0..FRAMES * senders.len() as u32 {
            let frame = far.receive(10_000).expect("no frame is lost");
            let number = u32::from_be_bytes([frame[60], frame[61], frame[62], frame[63]]);
            let next = &mut next[usize::from(frame[50])];
            assert_eq!(number, *next, "from port {}", frame[50]);
            *next += 1;
        }
    });
    let stats = running.stop().stats();
    assert_eq!(stats.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(stats[&1].sent, u64::from(4 * FRAMES), "{stats:?}");
    assert!(stats.values().all(|port| port.received == u64::from(FRAMES)), "{stats:?}");
}

#[test]
fn a_line_keeps_its_rate() {
    if !isolate("driver_veth: rate") {
        return;
    }
    const RATE: u64 = 40_000_000;
    const PAYLOAD: usize = 1_200;
    let line = PortConfig { rate_bps: RATE, queue_limit_bytes: 16 << 20 };
    // What comes in at one thread's port leaves at the other's, at times when neither receives.
    let running = Running::with_threads(2, switch(line), veth_pairs(2));
    let (near, far) = (Wire::open("h0"), Wire::open("h1"));
    let frame = frame(PAYLOAD);
    // 2 s of the line at once: the queue holds it, the line never idles.
    let count = RATE as usize * 2 / 8 / frame.len();
    // Never faster; and slower only while the machine has other things to do.
    let is_kept = (0..5).any(|_| {
        let start = now();
        for _ in 0..count {
            assert!(near.send(&frame));
        }
        // The first frame leaves at once, each other when the one before it has left the line.
        for i in 0..count {
            assert!(far.receive(10_000).is_some(), "frame {i} of {count}");
        }
        let elapsed = start.elapsed().as_secs_f64();
        let share = ((count - 1) * frame.len() * 8) as f64 / elapsed / RATE as f64;
        let _ = writeln!(std::io::stderr(), "{count} frames, {share:.4} of the configured rate");
        assert!(share < 1.02, "{share} of {RATE} bit/s");
        share > 0.98
    });
    assert!(is_kept, "slower five times");
    drop(running);
}

#[test]
fn an_interface_that_is_slower_than_its_port_fills_the_ports_queues_and_loses_nothing() {
    if !isolate("driver_veth: slow interface") {
        return;
    }
    let attachments = veth_pairs(2);
    // 40 Mbit/s; what waits there is more than a socket's buffer holds.
    let shape = "qdisc add dev s1 root tbf rate 40mbit burst 4000 limit 4000000";
    let shaped = std::process::Command::new("tc").args(shape.split(' ')).output();
    if !shaped.is_ok_and(|output| output.status.success()) {
        skip("driver_veth: slow interface", "no tc, or a kernel without tbf");
        return;
    }
    let running = Running::start(switch(PortConfig::default()), attachments);
    let (near, far) = (Wire::open("h0"), Wire::open("h1"));
    const FRAMES: usize = 2_500;
    let frame = frame(1_200);
    for _ in 0..FRAMES {
        assert!(near.send(&frame));
    }
    for i in 0..FRAMES {
        assert!(far.receive(10_000).is_some(), "frame {i} of {FRAMES}");
    }
    let queues = running.switch.lock().unwrap().all_queue_stats();
    let most =
        queues.iter().filter(|((port, _), _)| *port == 1).map(|(_, queue)| queue.watermark_packets).max();
    assert!(most > Some(500), "{most:?}: a program that looks at its queue sees none");
    let stats = running.stop().stats();
    assert_eq!((stats[&0].missed, stats[&1].sent, stats[&1].lost), (0, FRAMES as u64, 0));
}

#[test]
fn an_interface_that_goes_and_returns_is_taken_up_again() {
    if !isolate("driver_veth: interface gone") {
        return;
    }
    let running = Running::start(switch(PortConfig::default()), veth_pairs(3));
    let near = Wire::open("h0");
    let case = plain();
    let expected = case.expect.clone().map(|(_, frame)| frame);
    let far = Wire::open("h1");
    assert!(near.send(&case.frame));
    assert_eq!(far.receive(10_000), expected);
    ip("link del s1");
    // Frames to the port that is gone are lost; the switch works on.
    for _ in 0..10 {
        assert!(near.send(&case.frame));
    }
    until("the switch has seen them", || running.switch.lock().unwrap().stats().received == 11);
    ip("link add s1 type veth peer name h1");
    ip("link set h1 up");
    ip("link set s1 up");
    let far = Wire::open("h1");
    until("frames arrive again", || {
        assert!(near.send(&case.frame));
        far.receive(20) == expected
    });
    let stats = running.stop().stats();
    assert!(stats[&1].lost >= 10, "{stats:?}");
}

#[test]
fn an_interface_that_is_down_is_waited_for() {
    if !isolate("driver_veth: interface down") {
        return;
    }
    let attachments = veth_pairs(2);
    ip("link set s1 down");
    let running = Running::start(switch(PortConfig::default()), attachments);
    let (near, case) = (Wire::open("h0"), plain());
    ip("link set s1 up");
    let far = Wire::open("h1");
    let expected = case.expect.map(|(_, frame)| frame);
    until("frames arrive", || {
        assert!(near.send(&case.frame));
        far.receive(20) == expected
    });
    drop(running);
}

#[test]
fn frames_for_ports_on_no_interface_are_counted() {
    if !isolate("driver_veth: unattached") {
        return;
    }
    let running = Running::start(switch(PortConfig::default()), veth_pairs(1));
    let near = Wire::open("h0");
    for _ in 0..5 {
        assert!(near.send(&plain().frame));
    }
    until("controllers are told", || {
        let switch = running.switch.lock().unwrap();
        switch.ports().any(|port| !switch.is_port_usable(port))
    });
    until("the switch has seen them", || running.switch.lock().unwrap().stats().received == 5);
    assert_eq!(running.stop().unattached(), 5);
}

#[test]
fn a_frame_longer_than_the_mtu_is_lost_and_holds_up_no_other() {
    if !isolate("driver_veth: MTU") {
        return;
    }
    let attachments = veth_pairs(2);
    ip("link set h0 mtu 4000");
    ip("link set s0 mtu 4000");
    let running = Running::start(switch(PortConfig::default()), attachments);
    let (near, far) = (Wire::open("h0"), Wire::open("h1"));
    let (long, short) = (frame(3_000), frame(100));
    for _ in 0..20 {
        assert!(near.send(&long) && near.send(&short));
    }
    for i in 0..20 {
        assert_eq!(far.receive(10_000).map(|frame| frame.len()), Some(short.len()), "{i}");
    }
    let stats = running.stop().stats();
    assert_eq!((stats[&1].sent, stats[&1].lost), (20, 20));
}

/// Inserts routes to hosts that no frame is for, in one request, into a program that is pushed
/// first.
async fn write_routes(switch: &SharedSwitch, address: &str, routes: u32, pushed: &AtomicBool) {
    let mut client = Client::connect(address).await.unwrap();
    client.arbitrate(0, 1, Role::default()).await.unwrap();
    let p4info = P4Info::from_text(trimwire_p4::P4INFO).unwrap();
    let index = Index::new(&p4info).unwrap();
    client.set_pipeline(p4info, PROGRAM.to_vec(), None, Action::VerifyAndCommit).await.unwrap();
    install(switch.lock().unwrap().pipeline().unwrap().control());
    pushed.store(true, Ordering::Relaxed);
    let route = |number: u32| {
        let entry = TableEntryBuilder::new(&index, "Ingress.ipv4_route");
        entry.lpm("dst_addr", u128::from(0x6440_0000 + number), 32).group(1).insert().unwrap()
    };
    client.write((0..routes).map(route).collect(), Atomicity::ContinueOnError).await.unwrap();
}

#[test]
fn no_frame_is_lost_while_routes_are_written() {
    if !isolate("driver_veth: routes") {
        return;
    }
    ip("link set lo up");
    let attachments = veth_pairs(2);
    let running = Running::start(switch(PortConfig::default()), attachments);
    let server = serve(running.switch.clone(), ([127, 0, 0, 1], 0).into()).unwrap();
    let (address, pushed) = (server.local_addr().to_string(), AtomicBool::new(false));
    let (near, far) = (Wire::open("h0"), Wire::open("h1"));
    let frame = frame(100);
    let mut sent = 0;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(write_routes(&running.switch, &address, 2_000, &pushed));
        });
        until("the program is there", || pushed.load(Ordering::Relaxed) || writer.is_finished());
        while sent < 2_000 || !writer.is_finished() {
            assert!(near.send(&frame));
            sent += 1;
            std::thread::sleep(Duration::from_micros(100));
        }
    });
    for number in 0..sent {
        assert!(far.receive(10_000).is_some(), "frame {number} of {sent} is lost");
    }
}

#[test]
fn frames_of_any_length_up_to_the_mtu_come_whole_and_in_order() {
    if !isolate("driver_veth: lengths") {
        return;
    }
    let attachments = veth_pairs(2);
    for interface in ["h0", "s0", "h1", "s1"] {
        ip(&format!("link set {interface} mtu 9000"));
    }
    let running = Running::start(switch(PortConfig::default()), attachments);
    let (near, far) = (Wire::open("h0"), Wire::open("h1"));
    // Around the end of a slot of the ring, and around what a slot has in front of the frame.
    let lengths: Vec<usize> =
        (1_850..2_060).step_by(3).flat_map(|payload| [payload, 60]).chain([8_900, 20]).collect();
    for &length in &lengths {
        assert!(near.send(&frame(length)));
    }
    for (i, &length) in lengths.iter().enumerate() {
        let sent = frame(length);
        let came = far.receive(10_000).unwrap_or_else(|| panic!("frame {i} of {length} bytes"));
        assert_eq!((came.len(), &came[34..]), (sent.len(), &sent[34..]), "frame {i}");
    }
    let stats = running.stop().stats();
    assert_eq!((stats[&0].missed, stats[&0].refused, stats[&1].sent), (0, 0, lengths.len() as u64));
}

#[test]
fn a_checksum_left_to_the_interface_is_computed() {
    if !isolate("driver_veth: checksum") {
        return;
    }
    let running = Running::start(switch(PortConfig::default()), veth_pairs(2));
    // A local UDP sender: on veth its checksum is left undone, and the frame says so only beside
    // its bytes.
    ip("address add 10.0.0.1/24 dev h0");
    ip("route add 10.0.1.0/24 via 10.0.0.2");
    ip("neighbour add 10.0.0.2 lladdr 02:00:00:00:00:01 dev h0");
    let far = Wire::open("h1");
    let socket = UdpSocket::bind("10.0.0.1:4000").unwrap();
    for payload in [&b"even"[..], b"odd", b""] {
        socket.send_to(payload, "10.0.1.9:9").unwrap();
        let frame = far.receive(10_000).unwrap();
        let parsed = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(etherparse::NetSlice::Ipv4(ip)) = parsed.net else { panic!("no IPv4") };
        let Some(etherparse::TransportSlice::Udp(udp)) = parsed.transport else { panic!("no UDP") };
        let expected = udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload()).unwrap();
        assert_eq!(udp.payload(), payload);
        assert_eq!(udp.checksum(), expected);
    }
    drop(running);
}

#[test]
fn an_interface_that_does_not_exist_is_named() {
    let attachment = Attachment { port: 3, interface: "nosuch0".to_owned() };
    let error = Driver::new(switch(PortConfig::default()), vec![attachment]).unwrap_err();
    let DriverError::Open { port, interface, .. } = &error else { panic!("{error}") };
    assert_eq!((*port, interface.as_str()), (3, "nosuch0"));
    assert!(error.to_string().contains("ip link"), "{error}");
}
