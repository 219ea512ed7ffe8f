// SPDX-License-Identifier: Apache-2.0
//! What the P4 program promises about fairness, priority, paths and events, held against virtual
//! time.

use std::collections::BTreeMap;

use crate::engine_support::{call, direct, entry, exact, lpm};
use etherparse::{IpDscp, IpEcn, Ipv4Extensions, Ipv4Header, PacketBuilder};
use trimwire_switch::engine::entity::{ActionSpec, Group, GroupMember};
use trimwire_switch::{PortConfig, Switch, SwitchConfig};

const RATE: u64 = 1_000_000_000;
/// The congested port.
const OUT: u16 = 2;
/// Ports of the ECMP group behind 10.2.0.0/16.
const SPREAD: [u16; 4] = [10, 11, 12, 13];
const TRIM_QUEUE: u8 = 6;
const FRONT: (u8, u8) = (3, 5);
const BACK: (u8, u8) = (15, 2);
const TRIMMED: u8 = 35;
const HEAD: u64 = 104;
const WHOLE: usize = 1_468;

fn switch() -> Switch {
    let port = PortConfig { rate_bps: RATE, ..PortConfig::default() };
    let mut switch = Switch::new(SwitchConfig { default_port: port, seed: 7, ..SwitchConfig::default() });
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.json");
    switch.load_pipeline(&std::fs::read(path).unwrap()).unwrap();
    let control = switch.pipeline().unwrap().control();
    for port in SPREAD.into_iter().chain([OUT]) {
        let forward = call("Ingress.forward", &[port.into(), 0x02_00_00_00_00_99]);
        control.member_insert("Ingress.ecmp", port.into(), &forward).unwrap();
    }
    let members = SPREAD.map(|port| GroupMember { id: port.into(), weight: 1 }).to_vec();
    control.group_insert("Ingress.ecmp", &Group { id: 1, max_size: 0, members }).unwrap();
    let mut route = |prefix, to| {
        let entry = entry(vec![lpm(prefix, 16)], 0, to);
        control.table_insert("Ingress.ipv4_route", &entry).unwrap();
    };
    route(0x0a01_0000, ActionSpec::Member(OUT.into()));
    route(0x0a02_0000, ActionSpec::Group(1));
    for (dscp, action, queue) in [
        (FRONT.0, "Ingress.set_trimmable", FRONT.1),
        (BACK.0, "Ingress.set_trimmable", BACK.1),
        (TRIMMED, "Ingress.set_trimmed", TRIM_QUEUE),
    ] {
        let class = entry(vec![exact(dscp.into())], 0, direct(action, &[queue.into()]));
        control.table_insert("Ingress.classify", &class).unwrap();
    }
    switch
}

/// Thresholds of both importances: where they trim deeply, and where they drop.
fn police(switch: &mut Switch, queue: u8, deep_at: [u128; 2], trim_drop_at: u128) {
    for (importance, deep_at) in (0..).zip(deep_at) {
        let key = [OUT.into(), queue.into(), importance].map(exact).to_vec();
        let thresholds =
            [deep_at, deep_at, deep_at, 1 << 20, HEAD.into(), HEAD.into(), TRIMMED.into(), TRIM_QUEUE.into()];
        let data: Vec<u128> = thresholds.into_iter().chain([trim_drop_at]).collect();
        let action = direct("Ingress.queue_policy.set_thresholds", &data);
        let control = switch.pipeline().unwrap().control();
        control.table_insert("Ingress.queue_policy.policy", &entry(key, 0, action)).unwrap();
    }
}

/// `percent` of the line for trimmed packets, in the table's units.
fn cap(switch: &mut Switch, percent: u64, burst: u64) {
    let rate = RATE / 8 * percent / 100 * 1_024 / 1_000_000;
    let action = direct("Ingress.trim_cap.set_cap", &[rate.into(), burst.into()]);
    let control = switch.pipeline().unwrap().control();
    control.table_insert("Ingress.trim_cap.cap", &entry(vec![exact(OUT.into())], 0, action)).unwrap();
}

fn frame(dscp: u8, important: bool, to: [u8; 4], source_port: u16, length: usize) -> Vec<u8> {
    let header = Ipv4Header {
        dscp: IpDscp::try_new(dscp).unwrap(),
        ecn: if important { IpEcn::Ect0 } else { IpEcn::NotEct },
        ..Ipv4Header::new(0, 64, etherparse::ip_number::UDP, [10, 9, 9, 9], to).unwrap()
    };
    let ip = etherparse::IpHeaders::Ipv4(header, Ipv4Extensions::default());
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ip(ip);
    let mut frame = Vec::new();
    builder.udp(source_port, 9217).write(&mut frame, &vec![0; length - 42]).unwrap();
    frame
}

/// What left, in bytes, by DSCP.
type Sent = BTreeMap<u8, u64>;

/// Offers `overload` times the line rate for `duration_ns`, frames in turn; counts what has left by
/// the end of it.
fn overload(switch: &mut Switch, frames: &[Vec<u8>], overload: u64, duration_ns: u64) -> Sent {
    let (mut sent, mut now_ns) = (Sent::new(), 0);
    for frame in frames.iter().cycle() {
        if now_ns >= duration_ns {
            return sent;
        }
        switch.handle_frame(now_ns, 1, frame);
        now_ns += frame.len() as u64 * 8 * 1_000_000_000 / RATE / overload;
        while let Some(transmit) = switch.poll_transmit() {
            *sent.entry(transmit.frame[15] >> 2).or_default() += transmit.frame.len() as u64;
            switch.recycle(transmit.frame);
        }
    }
    sent
}

fn counter(switch: &mut Switch, name: &str, queue: u8) -> (u64, u64) {
    let index = u64::from(OUT) * 8 + u64::from(queue);
    let counter = switch.pipeline().unwrap().control().counter(name, index).unwrap();
    (counter.packets, counter.bytes)
}

#[test]
fn capped_heads_leave_half_of_the_port_to_whole_packets() {
    const DURATION_NS: u64 = 50_000_000;
    let line_bytes = RATE / 8 * DURATION_NS / 1_000_000_000;
    let share = |percent: Option<u64>| {
        let mut switch = switch();
        police(&mut switch, FRONT.1, [12_000; 2], 100_000);
        if let Some(percent) = percent {
            cap(&mut switch, percent, 8_000);
        }
        // Heads alone are 1.4 times what the port can send.
        let sent = overload(&mut switch, &[frame(FRONT.0, true, [10, 1, 0, 1], 5, WHOLE)], 20, DURATION_NS);
        let of_line = |dscp: u8| sent.get(&dscp).copied().unwrap_or(0) as f64 / line_bytes as f64;
        (of_line(TRIMMED), of_line(FRONT.0))
    };
    let (heads, whole) = share(None);
    assert!(heads > 0.97 && whole < 0.03, "without a cap heads starve the rest: {heads}, {whole}");
    for percent in [25, 50, 75] {
        let (heads, whole) = share(Some(percent));
        let wanted = percent as f64 / 100.0;
        assert!((heads - wanted).abs() < 0.01, "{percent} %: heads {heads}");
        assert!((heads + whole - 1.0).abs() < 0.02, "{percent} %: the line is full: {heads} + {whole}");
    }
}

#[test]
fn a_cap_holds_for_packets_trimmed_upstream_too() {
    const DURATION_NS: u64 = 50_000_000;
    let mut switch = switch();
    police(&mut switch, TRIM_QUEUE, [1 << 20; 2], 100_000);
    cap(&mut switch, 50, 8_000);
    let sent = overload(&mut switch, &[frame(TRIMMED, true, [10, 1, 0, 1], 5, 104)], 1, DURATION_NS);
    let share = sent[&TRIMMED] as f64 / (RATE / 8 * DURATION_NS / 1_000_000_000) as f64;
    assert!((share - 0.5).abs() < 0.01, "{share}");
    let (dropped, _) = counter(&mut switch, "Ingress.tail_dropped", TRIM_QUEUE);
    let (admitted, _) = counter(&mut switch, "Ingress.admitted", TRIM_QUEUE);
    assert!(dropped.abs_diff(admitted) < admitted / 20, "half of them: {admitted}, {dropped}");
}

#[test]
fn an_idle_port_owes_nothing_however_long_it_was_idle() {
    // 2^20 µs is where the token bucket stops to multiply, 2^32 µs where 32 bits would have
    // wrapped.
    for idle_ns in [1_000_000_u64, (1 << 20) * 1_000 - 1, (1 << 20) * 1_000, ((1 << 32) + 5) * 1_000] {
        let mut switch = switch();
        police(&mut switch, TRIM_QUEUE, [1 << 20; 2], 100_000);
        cap(&mut switch, 50, 1_040);
        let head = frame(TRIMMED, true, [10, 1, 0, 1], 5, 104);
        for now_ns in [0, idle_ns] {
            for _ in 0..20 {
                switch.handle_frame(now_ns, 1, &head);
            }
            let (admitted, _) = counter(&mut switch, "Ingress.admitted", TRIM_QUEUE);
            assert_eq!(
                admitted,
                if now_ns == 0 { 10 } else { 20 },
                "a burst of ten heads, after {idle_ns} ns"
            );
        }
    }
}

#[test]
fn less_important_packets_are_trimmed_first() {
    let mut switch = switch();
    police(&mut switch, FRONT.1, [6_000, 60_000], 1 << 20);
    let [less, more] = [false, true].map(|important| frame(FRONT.0, important, [10, 1, 0, 1], 5, WHOLE));
    // Twice the line: if all less important ones are trimmed, what is left fits.
    let mut trimmed = [0_u64; 2];
    let mut offered = 0;
    for (turn, now_ns) in (0..4_000).zip((0..).step_by(WHOLE * 4)) {
        switch.handle_frame(now_ns, 1, if turn % 2 == 0 { &less } else { &more });
        offered += 1;
        while let Some(sent) = switch.poll_transmit() {
            if sent.frame[15] >> 2 == TRIMMED {
                trimmed[usize::from(sent.frame[15] & 3 != 0)] += 1;
            }
        }
    }
    assert!(
        trimmed[0] > offered / 2 * 9 / 10,
        "nearly all less important ones are trimmed: {trimmed:?} of {offered}"
    );
    assert!(trimmed[1] < offered / 2 / 10, "hardly any important one: {trimmed:?} of {offered}");
}

#[test]
fn front_layers_overtake_back_layers() {
    let mut switch = switch();
    for queue in [FRONT.1, BACK.1] {
        police(&mut switch, queue, [1 << 19; 2], 1 << 20);
    }
    let frames = [BACK.0, FRONT.0].map(|dscp| frame(dscp, true, [10, 1, 0, 1], 5, WHOLE));
    let sent = overload(&mut switch, &frames, 2, 3_000_000);
    // Each class offers what the line can carry.
    assert!(sent[&FRONT.0] > 50 * sent.get(&BACK.0).copied().unwrap_or(1), "{sent:?}");
}

#[test]
fn offered_is_admitted_trimmed_or_dropped_whatever_the_traffic() {
    let mut switch = switch();
    police(&mut switch, FRONT.1, [3_000, 9_000], 4_000);
    police(&mut switch, BACK.1, [0, 30_000], 4_000);
    police(&mut switch, TRIM_QUEUE, [0; 2], 3_000);
    police(&mut switch, 0, [5_000, 20_000], 4_000);
    cap(&mut switch, 10, 2_000);
    // A linear congruential generator (Knuth, MMIX): any mix will do.
    let mut state = 42_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut offered: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
    let mut now_ns = 0;
    for _ in 0..20_000 {
        let (dscp, queue) = [FRONT, BACK, (TRIMMED, TRIM_QUEUE), (0, 0)][draw(4) as usize];
        let length = 60 + draw(1_440);
        let frame = frame(dscp, draw(2) == 0, [10, 1, 0, 1], 5, length as usize);
        let sum = offered.entry(queue).or_default();
        *sum = (sum.0 + 1, sum.1 + length);
        switch.handle_frame(now_ns, 1, &frame);
        // Three times the line on average.
        now_ns += draw(length * 16 / 3);
    }
    let now_ns = now_ns + 1_000_000_000;
    switch.handle_timeout(now_ns);
    while switch.poll_transmit().is_some() {}

    let mut trimmed = 0;
    for (queue, offered) in offered {
        let names = ["admitted", "trimmed", "trim_dropped", "selective_dropped", "tail_dropped"];
        let counts = names.map(|name| counter(&mut switch, &format!("Ingress.{name}"), queue));
        let sum = counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        assert_eq!(sum, offered, "queue {queue}: {names:?} = {counts:?}");
        assert_eq!(counter(&mut switch, "Egress.trim_transmitted", queue), counts[1], "queue {queue}");
        if queue != TRIM_QUEUE {
            assert_eq!(counter(&mut switch, "Egress.transmitted", queue), counts[0], "queue {queue}");
        }
        trimmed += counts[1].0;
    }
    let (heads, _) = counter(&mut switch, "Egress.transmitted", TRIM_QUEUE);
    let (upstream, _) = counter(&mut switch, "Ingress.admitted", TRIM_QUEUE);
    assert!(trimmed > 500 && upstream > 500, "the mix reaches every rung: {trimmed}, {upstream}");
    assert_eq!(heads, trimmed + upstream);
}

#[test]
fn a_queue_says_once_that_it_starts_to_trim_and_once_that_it_stops() {
    let mut switch = switch();
    police(&mut switch, FRONT.1, [12_000; 2], 1 << 20);
    let packet = frame(FRONT.0, true, [10, 1, 0, 1], 5, WHOLE);
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let mut events = Vec::new();
    // Bursts of twenty packets every millisecond: each makes the queue trim, and the next one finds
    // it empty.
    for now_ns in (0..3).map(|burst| burst * 1_000_000) {
        for _ in 0..20 {
            switch.handle_frame(now_ns, 1, &packet);
            for digest in switch.pipeline().unwrap().take_digests() {
                assert_eq!(digest.name, "trimming_t");
                events.push(digest.fields.iter().map(|field| number(field)).collect::<Vec<_>>());
            }
        }
    }
    let (port, queue) = (u64::from(OUT), u64::from(FRONT.1));
    assert_eq!(events.len(), 5, "{events:?}");
    for (position, event) in events.iter().enumerate() {
        if position % 2 == 0 {
            assert_eq!(event[..3], [port, queue, 1], "{events:?}");
            assert!((12_000..12_000 + WHOLE as u64).contains(&event[3]), "{events:?}");
        } else {
            assert_eq!(event[..4], [port, queue, 0, 0], "{events:?}");
        }
        assert_eq!(event[4], position as u64 + 1, "its turns are numbered: {events:?}");
    }
}

/// Packets by egress port, of `packets` to the group; `source_port` from a packet's number.
fn spread(switch: &mut Switch, packets: u16, source_port: impl Fn(u16) -> u16) -> BTreeMap<u16, u64> {
    let mut ports = BTreeMap::new();
    for (packet, now_ns) in (0..packets).zip((switch.now_ns()..).step_by(100_000)) {
        switch.handle_frame(now_ns, 1, &frame(FRONT.0, true, [10, 2, 0, 1], source_port(packet), 200));
        switch.handle_timeout(now_ns + 50_000);
        while let Some(sent) = switch.poll_transmit() {
            *ports.entry(sent.port).or_default() += 1;
        }
    }
    ports
}

fn balance(switch: &mut Switch, action: &str, params: &[u128]) {
    let control = switch.pipeline().unwrap().control();
    let entry = entry(vec![exact(FRONT.0.into())], 0, direct(action, params));
    control.table_insert("Ingress.load_balance", &entry).unwrap();
}

#[test]
fn the_sender_sprays_evenly_with_its_source_port() {
    for base in [4_000, 10_000, 49_152] {
        let mut switch = switch();
        let ports = spread(&mut switch, 640, |packet| base + packet % 64);
        for port in SPREAD {
            assert!((120..200).contains(&ports[&port]), "from port {base}: {ports:?}");
        }
    }
}

#[test]
fn a_flow_keeps_its_path_whatever_its_source_port() {
    for half in [0, 1] {
        let mut switch = switch();
        balance(&mut switch, "Ingress.hash_flow", &[half]);
        assert_eq!(spread(&mut switch, 200, |packet| 4_000 + packet).len(), 1);
    }
}

#[test]
fn the_switch_sprays_a_single_flow_evenly() {
    let mut switch = switch();
    balance(&mut switch, "Ingress.spray_packet", &[]);
    let ports = spread(&mut switch, 4_000, |_| 4_000);
    for port in SPREAD {
        // Five standard deviations of a fair draw: 5 √(4000 · 1/4 · 3/4) = 137.
        assert!(ports[&port].abs_diff(1_000) < 137, "{ports:?}");
    }
}

#[test]
fn tiers_on_different_halves_of_the_hash_choose_independently() {
    // Which member each source port gets from a switch that uses one half.
    let choices = |half: u128| {
        let mut switch = switch();
        balance(&mut switch, "Ingress.hash_five_tuple", &[half]);
        (0..64_u16)
            .map(|packet| {
                let from = 4_000 + packet;
                *spread(&mut switch, 1, |_| from).keys().next().unwrap()
            })
            .collect::<Vec<_>>()
    };
    let [first, second] = [0, 1].map(choices);
    for reached in SPREAD {
        let mut onward: BTreeMap<u16, u64> = BTreeMap::new();
        for (_, next) in first.iter().zip(&second).filter(|(first, _)| **first == reached) {
            *onward.entry(*next).or_default() += 1;
        }
        assert_eq!(onward.len(), SPREAD.len(), "those that the first tier sent to {reached}: {onward:?}");
    }
}
