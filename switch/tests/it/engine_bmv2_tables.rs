// SPDX-License-Identifier: Apache-2.0
//! Tables, selectors and our own program against BMv2: random entries, random frames, the same
//! outputs.
//!
//! What BMv2 1.15.5 sent is recorded in `testdata/engine/*.bmv2.txt`, so that the comparison runs
//! without it. Where `simple_switch_grpc` is installed, `TRIMWIRE_RECORD_BMV2=1 cargo test -p
//! trimwire-switch --test it engine_bmv2_tables::` writes the recordings anew; it gives BMv2 the
//! same entries over P4Runtime and the same frames from a capture file.

use std::path::PathBuf;

use crate::bmv2_support::observed::{assert_same, ours, recorded};
use crate::bmv2_support::random::Random;
use crate::bmv2_support::{Case, Write, taken};
use crate::engine_support::{call, entry, exact, lpm, range, ternary};
use trimwire_switch::engine::entity::{ActionSpec, Group, GroupMember, MatchValue, value};

fn check(case: &Case) {
    assert_same(case.name, &ours(case), &recorded("testdata/engine", case));
}

fn direct(action: &str, n: u64) -> ActionSpec {
    ActionSpec::Direct(call(action, &[n.into()]))
}

fn some_prefix(random: &mut Random, number: u128, width: u32) -> MatchValue {
    let length = random.below(u64::from(width) + 1) as u32;
    let zeros = width - length;
    lpm(if zeros >= 128 { 0 } else { number >> zeros << zeros }, length as u16)
}

fn some_ternary(random: &mut Random, number: u64, masks: &[u128]) -> MatchValue {
    let mask = masks[random.below(masks.len() as u64) as usize];
    ternary(u128::from(number) & mask, mask)
}

#[test]
fn every_kind_of_table_hits_what_bmv2_hits() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/engine"));
    let mut random = Random(1);
    let mut writes = Vec::new();
    let small = |random: &mut Random| random.below(4);
    let address =
        |random: &mut Random| 0x0a00_0000 | random.below(4) << 22 | random.below(4) << 7 | random.below(4);
    let wide = |random: &mut Random| {
        u128::from(random.below(3)) << 126 | u128::from(random.below(3)) << 63 | u128::from(random.below(3))
    };
    for id in 1..=4 {
        writes.push(Write::Member("I.profile", id, call("I.member", &[u128::from(id)])));
    }
    for id in [9, 3, 7, 1, 5] {
        writes.push(Write::Member("I.selector_", id, call("I.hashed", &[u128::from(id)])));
    }
    for (id, members) in [(1, vec![(1, 1), (3, 2), (9, 1)]), (2, vec![(5, 3), (7, 1)]), (3, vec![(3, 1)])] {
        let members = members.into_iter().map(|(id, weight)| GroupMember { id, weight }).collect();
        writes.push(Write::Group("I.selector_", Group { id, max_size: 0, members }));
    }
    for n in 0..40 {
        let mut add = |table: &str, matches: Vec<MatchValue>, priority, action| {
            writes.push(Write::Entry(String::from(table), entry(matches, priority, action)));
        };
        let priority = 1 + random.below(6) as i32;
        let (a, b, c) = (small(&mut random), address(&mut random), wide(&mut random));
        add("I.t_exact1", vec![exact(a.into())], 0, direct("I.exact1", n));
        add("I.t_exact2", vec![exact(a.into()), exact(c)], 0, direct("I.exact2", n));
        let prefix = some_prefix(&mut random, b.into(), 32);
        add("I.t_lpm32", vec![prefix], 0, direct("I.lpm32", n));
        let prefix = some_prefix(&mut random, c, 128);
        add("I.t_lpm128", vec![exact(small(&mut random).into()), prefix], 0, direct("I.lpm128", n));
        let keys = vec![
            some_ternary(&mut random, a, &[0, 1, 2, 0xffff]),
            some_ternary(&mut random, b, &[0, 0xff00_0000, 0xff, 0x181, 0xffff_ffff]),
        ];
        add("I.t_ternary", keys, priority, direct("I.ternary_", n));
        let (low, high) = (random.below(4), random.below(8));
        let keys =
            vec![range(low.into(), (low + high).into()), range(0, c), exact(small(&mut random).into())];
        add("I.t_range", keys, priority, direct("I.range_", n));
        let keys = vec![range(low.into(), (low + high).into()), some_ternary(&mut random, a, &[0, 1, 3])];
        add("I.t_range_packed", keys, priority, direct("I.mixed", n));
        let optional = |random: &mut Random| {
            let number = random.below(6);
            MatchValue::Optional(Some(value(number.into())).filter(|_| number < 4))
        };
        let keys = vec![optional(&mut random), optional(&mut random)];
        add("I.t_optional", keys, priority, direct("I.optional_", n));
        add("I.t_member", vec![exact(a.into())], 0, ActionSpec::Member(1 + small(&mut random) as u32));
        add("I.t_hash", vec![exact(a.into())], 0, ActionSpec::Group(1 + random.below(3) as u32));
    }
    writes.push(Write::Entry(
        "I.t_branch".into(),
        entry(vec![exact(1)], 0, ActionSpec::Direct(call("I.left", &[]))),
    ));
    writes.push(Write::Entry("I.t_branch".into(), entry(vec![exact(2)], 0, direct("I.right", 70))));
    let frames = (0..300u64)
        .map(|number| {
            let mut frame = Vec::new();
            frame.extend((small(&mut random) as u16).to_be_bytes());
            frame.extend((address(&mut random) as u32).to_be_bytes());
            frame.extend(wide(&mut random).to_be_bytes());
            frame.extend((random.below(10) as u16).to_be_bytes());
            frame.extend(((small(&mut random) << 7 | small(&mut random)) as u16).to_be_bytes());
            frame.extend(number.to_be_bytes());
            (0, frame)
        })
        .collect();
    let json = folder.join("tables.json");
    let writes = taken(&json, writes);
    let p4info = folder.join("tables.p4info.txtpb");
    check(&Case { name: "tables", json, p4info, writes, frames, packet_outs: Vec::new() });
}

/// Thresholds that give one verdict whatever is queued, so that BMv2's timing does not matter.
const VERDICTS: [[u128; 4]; 5] = [
    // mark, shallow, deep, drop
    [1 << 31, 1 << 31, 1 << 31, 1 << 31],
    [0, 1 << 31, 1 << 31, 1 << 31],
    [0, 0, 1 << 31, 1 << 31],
    [0, 0, 0, 1 << 31],
    [0, 0, 0, 0],
];

#[test]
fn our_program_sends_what_it_sends_on_bmv2() {
    let build = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2"));
    let mut random = Random(2);
    let mut writes = Vec::new();
    for port in 1..=3u128 {
        let forward = call("Ingress.forward", &[port, 0x0200_0000_0000 + port]);
        writes.push(Write::Member("Ingress.ecmp", port as u32, forward));
    }
    let members = [(1, 2), (2, 1), (3, 1)].map(|(id, weight)| GroupMember { id, weight }).to_vec();
    writes.push(Write::Group("Ingress.ecmp", Group { id: 1, max_size: 0, members }));
    let mut add =
        |table: &str, matches, action| writes.push(Write::Entry(table.into(), entry(matches, 0, action)));
    add("Ingress.ipv4_route", vec![lpm(0x0a00_0000, 8)], ActionSpec::Group(1));
    add("Ingress.ipv4_route", vec![lpm(0x0a01_0000, 16)], ActionSpec::Member(2));
    add("Ingress.ipv6_route", vec![lpm(0x2001_0db8 << 96, 32)], ActionSpec::Group(1));
    for (dscp, action, queue) in [
        (3, "Ingress.set_trimmable", 5),
        (7, "Ingress.set_trimmable", 4),
        (35, "Ingress.set_trimmed", 6),
        (19, "Ingress.set_plain", 3),
        (39, "Ingress.set_plain", 7),
    ] {
        add("Ingress.classify", vec![exact(dscp)], direct(action, queue));
    }
    for port in 1..=3u128 {
        for queue in 3..=6u128 {
            for importance in 0..2u128 {
                let [mark, shallow, deep, drop] = VERDICTS[(port + 3 * queue + 7 * importance) as usize % 5];
                let trim_full = if port == 3 && queue == 6 { 0 } else { 1 << 31 };
                let parameters = [mark, shallow, deep, drop, 200, 90, 35, 6, trim_full];
                let key = [port, queue, importance].map(exact).to_vec();
                let action = call("Ingress.queue_policy.set_thresholds", &parameters);
                add("Ingress.queue_policy.policy", key, ActionSpec::Direct(action));
            }
        }
    }
    let frames: Vec<(u16, Vec<u8>)> = (0..300).map(|_| (0, some_frame(&mut random))).collect();
    let json = build.join("trimwire.json");
    let writes = taken(&json, writes);
    let p4info = build.join("trimwire.p4info.txtpb");
    check(&Case { name: "trimwire", json, p4info, writes, frames, packet_outs: Vec::new() });
}

/// IPv4 or IPv6 over Ethernet or VLAN, some of it damaged.
fn some_frame(random: &mut Random) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if random.below(5) == 0 {
        frame.extend([0x81, 0x00, 0x20, random.below(256) as u8]);
    }
    let dscp = [3, 3, 3, 7, 19, 35, 39, 1][random.below(8) as usize];
    let ecn = random.below(4) as u8;
    let payload = random.below(400) as usize;
    let udp_bytes = (payload + 8) as u16;
    let protocol = if random.below(8) == 0 { 6 } else { 17 };
    let hops = if random.below(12) == 0 { 1 } else { 64 };
    if random.below(2) == 0 {
        let words = if random.below(6) == 0 { 7 } else { 5 };
        frame.extend([0x08, 0x00]);
        let mut ip = vec![0x40 | words, dscp << 2 | ecn];
        ip.extend((u16::from(words) * 4 + udp_bytes).to_be_bytes());
        ip.extend([0x12, 0x34, 0x40, 0, hops, protocol, 0, 0, 10, 9, 9, random.below(4) as u8]);
        ip.extend([10, random.below(3) as u8, 1, random.below(8) as u8]);
        ip.resize(usize::from(words) * 4, 1);
        let sum: u32 = ip.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let mut checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
        if random.below(10) == 0 {
            checksum ^= 0x0101;
        }
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(ip);
    } else {
        frame.extend([0x86, 0xdd, 0x60 | dscp >> 2, (dscp << 6) | ecn << 4, 0, 0]);
        frame.extend(udp_bytes.to_be_bytes());
        frame.extend([protocol, hops]);
        for last in [random.below(4), random.below(8)] {
            frame.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last as u8]);
        }
    }
    frame.extend((1024 + random.below(60_000) as u16).to_be_bytes());
    frame.extend(9217u16.to_be_bytes());
    frame.extend(udp_bytes.to_be_bytes());
    frame.extend([0xbe, 0xef]);
    frame.extend((0..payload).map(|_| random.below(256) as u8));
    if random.below(15) == 0 {
        frame.truncate(random.below(60) as usize + 1);
    }
    frame
}
