// SPDX-License-Identifier: Apache-2.0
//! Tables: which entry is hit, and what the control plane may and may not do.

use crate::engine_support::{call, direct, entry, exact, forward, load, lpm, range, ternary};
use trimwire_switch::engine::entity::{
    ActionSpec, CounterValue, Group, GroupMember, MatchValue, MeterConfig, Owner, value,
};
use trimwire_switch::engine::{Code, Pipeline};

/// The keys of `tables.p4`.
#[derive(Clone, Copy, Default)]
struct Keys {
    a: u16,
    b: u32,
    c: u128,
    d: u16,
    e: u16,
    f: u8,
}

/// Where `tables.p4` reports each table's result.
const RESULTS: [&str; 13] = [
    "exact1", "exact2", "lpm32", "lpm128", "ternary", "range", "optional", "constant", "member", "hash",
    "branch", "color", "mixed",
];

fn send(pipeline: &mut Pipeline, now_ns: u64, keys: Keys) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(keys.a.to_be_bytes());
    frame.extend(keys.b.to_be_bytes());
    frame.extend(keys.c.to_be_bytes());
    frame.extend(keys.d.to_be_bytes());
    frame.extend((keys.e << 7 | u16::from(keys.f)).to_be_bytes());
    let mut sent = forward(pipeline, now_ns, 0, &frame);
    assert_eq!(sent.len(), 1);
    sent.remove(0).1
}

fn result(pipeline: &mut Pipeline, keys: Keys, table: &str) -> u16 {
    let report = send(pipeline, 0, keys);
    // `color` is the only result of one byte.
    let at = RESULTS.iter().position(|&name| name == table).unwrap();
    match table {
        "color" => u16::from(report[22]),
        "mixed" => u16::from_be_bytes([report[23], report[24]]),
        _ => u16::from_be_bytes([report[at * 2], report[at * 2 + 1]]),
    }
}

fn insert(
    pipeline: &mut Pipeline,
    table: &str,
    matches: Vec<MatchValue>,
    priority: i32,
    action: &str,
    n: u128,
) {
    let action = direct(action, &[n]);
    pipeline.control().table_insert(table, &entry(matches, priority, action)).unwrap();
}

#[test]
fn an_exact_entry_matches_its_key_only() {
    let mut pipeline = load("tables");
    insert(&mut pipeline, "I.t_exact1", vec![exact(7)], 0, "I.exact1", 70);
    let wide = 0x2001_0db8_0000_0000_0000_0000_0000_0001;
    insert(&mut pipeline, "I.t_exact2", vec![exact(7), exact(wide)], 0, "I.exact2", 71);
    assert_eq!(result(&mut pipeline, Keys { a: 7, ..Keys::default() }, "exact1"), 70);
    assert_eq!(result(&mut pipeline, Keys { a: 8, ..Keys::default() }, "exact1"), 0xffff);
    assert_eq!(result(&mut pipeline, Keys { a: 7, c: wide, ..Keys::default() }, "exact2"), 71);
    assert_eq!(result(&mut pipeline, Keys { a: 7, c: wide + 1, ..Keys::default() }, "exact2"), 0);
}

#[test]
fn the_longest_prefix_wins_at_both_widths() {
    let mut pipeline = load("tables");
    for (prefix_len, n) in [(0, 1), (8, 2), (24, 3), (32, 4)] {
        let prefix = 0x0a01_0203_u128 >> (32 - prefix_len) << (32 - prefix_len);
        insert(&mut pipeline, "I.t_lpm32", vec![lpm(prefix, prefix_len)], 0, "I.lpm32", n);
    }
    for (b, expected) in [(0x0a01_0203, 4), (0x0a01_0204, 3), (0x0aff_0000, 2), (0x0b00_0000, 1)] {
        assert_eq!(result(&mut pipeline, Keys { b, ..Keys::default() }, "lpm32"), expected, "{b:x}");
    }
    let c = 0x2001_0db8_0001_0002_0003_0004_0005_0006_u128;
    for (prefix_len, n) in [(32, 1), (64, 2), (65, 3), (128, 4)] {
        let prefix = c >> (128 - prefix_len) << (128 - prefix_len);
        insert(&mut pipeline, "I.t_lpm128", vec![exact(5), lpm(prefix, prefix_len)], 0, "I.lpm128", n);
    }
    for (e, bit, expected) in [(5, 128, 4), (5, 0, 3), (5, 63, 2), (5, 64, 1), (5, 127, 0), (6, 128, 0)] {
        let flipped = if bit < 128 { c ^ 1 << bit } else { c };
        let keys = Keys { c: flipped, e, ..Keys::default() };
        assert_eq!(result(&mut pipeline, keys, "lpm128"), expected, "bit {bit} of group {e}");
    }
}

#[test]
fn deleting_a_prefix_uncovers_the_shorter_one() {
    let mut pipeline = load("tables");
    insert(&mut pipeline, "I.t_lpm32", vec![lpm(0x0a00_0000, 8)], 0, "I.lpm32", 1);
    insert(&mut pipeline, "I.t_lpm32", vec![lpm(0x0a01_0000, 16)], 0, "I.lpm32", 2);
    let keys = Keys { b: 0x0a01_0101, ..Keys::default() };
    assert_eq!(result(&mut pipeline, keys, "lpm32"), 2);
    pipeline.control().table_delete("I.t_lpm32", &[lpm(0x0a01_0000, 16)], 0).unwrap();
    assert_eq!(result(&mut pipeline, keys, "lpm32"), 1);
    pipeline.control().table_delete("I.t_lpm32", &[lpm(0x0a00_0000, 8)], 0).unwrap();
    assert_eq!(result(&mut pipeline, keys, "lpm32"), 999, "the default action");
}

#[test]
fn the_highest_priority_wins_among_ternary_entries() {
    let mut pipeline = load("tables");
    let any = || ternary(0, 0);
    insert(&mut pipeline, "I.t_ternary", vec![any(), any()], 1, "I.ternary_", 1);
    insert(&mut pipeline, "I.t_ternary", vec![ternary(0x10, 0xf0), any()], 5, "I.ternary_", 2);
    insert(&mut pipeline, "I.t_ternary", vec![any(), ternary(0xff, 0xff)], 3, "I.ternary_", 3);
    insert(&mut pipeline, "I.t_ternary", vec![ternary(0x11, 0xff), any()], 5, "I.ternary_", 4);
    let of = |pipeline: &mut Pipeline, a, b| result(pipeline, Keys { a, b, ..Keys::default() }, "ternary");
    assert_eq!(of(&mut pipeline, 0, 0), 1);
    assert_eq!(of(&mut pipeline, 0, 0x1ff), 3);
    assert_eq!(of(&mut pipeline, 0x12, 0xff), 2);
    assert_eq!(of(&mut pipeline, 0x11, 0xff), 2, "of equal priorities the older entry, as in BMv2");
}

#[test]
fn ranges_include_both_ends() {
    let mut pipeline = load("tables");
    let wide = 1u128 << 100;
    let key = vec![range(10, 20), range(5, wide), exact(3)];
    insert(&mut pipeline, "I.t_range", key, 1, "I.range_", 9);
    for (d, c, expected) in [(10, 5, 9), (20, wide, 9), (9, 5, 0), (21, 5, 0), (15, 4, 0), (15, wide + 1, 0)]
    {
        assert_eq!(result(&mut pipeline, Keys { d, c, e: 3, ..Keys::default() }, "range"), expected);
    }
    insert(&mut pipeline, "I.t_range_packed", vec![range(10, 20), ternary(1, 1)], 1, "I.mixed", 8);
    for (d, f, expected) in [(10, 1, 8), (20, 3, 8), (10, 2, 0), (9, 1, 0), (21, 1, 0)] {
        assert_eq!(result(&mut pipeline, Keys { d, f, ..Keys::default() }, "mixed"), expected);
    }
}

#[test]
fn an_optional_key_matches_its_value_or_anything() {
    let mut pipeline = load("tables");
    let some = |number| MatchValue::Optional(Some(value(number)));
    insert(&mut pipeline, "I.t_optional", vec![some(4), MatchValue::Optional(None)], 1, "I.optional_", 1);
    insert(&mut pipeline, "I.t_optional", vec![some(4), some(9)], 2, "I.optional_", 2);
    let of = |pipeline: &mut Pipeline, a, d| result(pipeline, Keys { a, d, ..Keys::default() }, "optional");
    assert_eq!(of(&mut pipeline, 4, 1), 1);
    assert_eq!(of(&mut pipeline, 4, 9), 2);
    assert_eq!(of(&mut pipeline, 5, 9), 0);
}

#[test]
fn entries_compiled_into_the_program_match_in_their_order_and_stay() {
    let mut pipeline = load("tables");
    let of = |pipeline: &mut Pipeline, a, d| result(pipeline, Keys { a, d, ..Keys::default() }, "constant");
    assert_eq!(of(&mut pipeline, 1, 0x15), 1);
    assert_eq!(of(&mut pipeline, 1, 0x25), 2);
    assert_eq!(of(&mut pipeline, 2, 5), 3);
    assert_eq!(of(&mut pipeline, 2, 6), 0);
    let rows = pipeline.control().table_entries("I.t_constant").unwrap();
    assert!(rows.len() == 3 && rows.iter().all(|row| row.is_const));
    let first = &rows[0].entry;
    let error = pipeline.control().table_delete("I.t_constant", &first.matches, first.priority).unwrap_err();
    assert_eq!(error.code, Code::PermissionDenied);
    let error = pipeline.control().set_default_action("I.t_constant", None).unwrap_err();
    assert_eq!(error.code, Code::PermissionDenied);
}

#[test]
fn control_flow_follows_the_action_that_ran() {
    let mut pipeline = load("tables");
    pipeline.control().table_insert("I.t_branch", &entry(vec![exact(1)], 0, direct("I.left", &[]))).unwrap();
    insert(&mut pipeline, "I.t_branch", vec![exact(2)], 0, "I.right", 40);
    for (f, expected) in [(1, 0x1111), (2, 41), (3, 0x3333)] {
        assert_eq!(result(&mut pipeline, Keys { f, ..Keys::default() }, "branch"), expected);
    }
}

#[test]
fn a_direct_counter_counts_the_packets_that_hit_its_entry() {
    let mut pipeline = load("tables");
    insert(&mut pipeline, "I.t_exact1", vec![exact(7)], 0, "I.exact1", 70);
    for a in [7, 7, 8] {
        send(&mut pipeline, 0, Keys { a, ..Keys::default() });
    }
    let key = [exact(7)];
    let owner = Owner::Entry { matches: &key, priority: 0 };
    let direct = pipeline.control().direct("I.t_exact1", owner).unwrap();
    assert_eq!(direct.counter, Some(CounterValue { packets: 2, bytes: 2 * 26 }));
    pipeline.control().set_direct_counter("I.t_exact1", owner, CounterValue::default()).unwrap();
    let row = pipeline.control().table_entry("I.t_exact1", &[exact(7)], 0).unwrap();
    assert_eq!(row.direct.counter, Some(CounterValue::default()));
    let missing = Owner::Entry { matches: &[lpm(0, 0)], priority: 0 };
    let error = pipeline.control().direct("I.t_lpm32", missing).unwrap_err();
    assert_eq!(error.code, Code::NotFound);
}

#[test]
fn a_direct_meter_colors_what_hits_its_entry() {
    let mut pipeline = load("tables");
    insert(&mut pipeline, "I.t_exact2", vec![exact(7), exact(0)], 0, "I.exact2", 1);
    let config = MeterConfig { cir: 1, cburst: 1, pir: 2, pburst: 2 };
    let key = [exact(7), exact(0)];
    let owner = Owner::Entry { matches: &key, priority: 0 };
    pipeline.control().set_direct_meter("I.t_exact2", owner, Some(config)).unwrap();
    let keys = Keys { a: 7, ..Keys::default() };
    let colors: Vec<u16> = (0..3).map(|_| result(&mut pipeline, keys, "color")).collect();
    assert_eq!(colors, [0, 1, 2]);
    let row = pipeline.control().table_entry("I.t_exact2", &[exact(7), exact(0)], 0).unwrap();
    assert_eq!(row.direct.meter, Some(config));
}

#[test]
fn an_indirect_entry_does_what_its_member_says() {
    let mut pipeline = load("tables");
    let control = pipeline.control();
    control.member_insert("I.profile", 11, &call("I.member", &[5])).unwrap();
    control.table_insert("I.t_member", &entry(vec![exact(1)], 0, ActionSpec::Member(11))).unwrap();
    let keys = Keys { a: 1, ..Keys::default() };
    assert_eq!(result(&mut pipeline, keys, "member"), 5);
    pipeline.control().member_modify("I.profile", 11, &call("I.member", &[6])).unwrap();
    assert_eq!(result(&mut pipeline, keys, "member"), 6);
    assert_eq!(pipeline.control().member_delete("I.profile", 11).unwrap_err().code, Code::FailedPrecondition);
    pipeline.control().table_delete("I.t_member", &[exact(1)], 0).unwrap();
    pipeline.control().member_delete("I.profile", 11).unwrap();
    assert_eq!(result(&mut pipeline, keys, "member"), 0);
}

/// CRC-32 (ISO-HDLC), a bit at a time.
fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ (0xedb8_8320 * (crc & 1)))
    })
}

#[test]
fn a_selector_takes_the_member_at_hash_modulo_group_size() {
    let mut pipeline = load("tables");
    let control = pipeline.control();
    // Members are chosen in the order in which they were made, whatever their ids.
    for (id, n) in [(30, 300), (10, 100), (20, 200)] {
        control.member_insert("I.selector_", id, &call("I.hashed", &[n])).unwrap();
    }
    let members = [10, 20, 30].map(|id| GroupMember { id, weight: 1 }).to_vec();
    control.group_insert("I.selector_", &Group { id: 1, max_size: 0, members }).unwrap();
    control.table_insert("I.t_hash", &entry(vec![exact(1)], 0, ActionSpec::Group(1))).unwrap();
    let choices = [300, 100, 200];
    let mut seen = [0; 3];
    for b in 0..64u32 {
        let d = b as u16 * 7;
        let hash = crc32(&[&b.to_be_bytes()[..], &d.to_be_bytes()[..]].concat()) as usize % 3;
        let chosen = result(&mut pipeline, Keys { a: 1, b, d, ..Keys::default() }, "hash");
        assert_eq!(chosen, choices[hash]);
        seen[hash] += 1;
    }
    assert!(seen.iter().all(|&count| count > 10), "{seen:?}");
}

#[test]
fn weights_are_shares_of_the_group() {
    let mut pipeline = load("tables");
    let control = pipeline.control();
    for id in 1..=2 {
        control.member_insert("I.selector_", id, &call("I.hashed", &[u128::from(id)])).unwrap();
    }
    let members = vec![GroupMember { id: 1, weight: 3 }, GroupMember { id: 2, weight: 1 }];
    let group = Group { id: 1, max_size: 4, members };
    control.group_insert("I.selector_", &group).unwrap();
    assert_eq!(control.groups("I.selector_").unwrap(), std::slice::from_ref(&group));
    control.table_insert("I.t_hash", &entry(vec![exact(1)], 0, ActionSpec::Group(1))).unwrap();
    // Handles: member 1 has 0, 2, 3; member 2 has 1.
    let choices = [1, 2, 1, 1];
    for b in 0..32u32 {
        let hash = crc32(&[&b.to_be_bytes()[..], &[0, 0]].concat()) as usize % 4;
        assert_eq!(result(&mut pipeline, Keys { a: 1, b, ..Keys::default() }, "hash"), choices[hash]);
    }
    let empty = Group { members: Vec::new(), ..group };
    pipeline.control().group_modify("I.selector_", &empty).unwrap();
    assert_eq!(
        result(&mut pipeline, Keys { a: 1, ..Keys::default() }, "hash"),
        0,
        "an empty group does nothing"
    );
}
