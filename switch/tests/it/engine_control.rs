// SPDX-License-Identifier: Apache-2.0
//! The control plane is told what is wrong, in words and with the code that P4Runtime wants, and
//! nothing changes.

use crate::engine_support::{call, direct, entry, exact, load, lpm, program, range, ternary};
use trimwire_switch::engine::entity::{
    ActionSpec, CounterValue, Group, GroupMember, MatchValue, MeterConfig, Replica, TableEntry, value,
};
use trimwire_switch::engine::{Code, ControlError, LoadError, Pipeline};

fn refused(result: Result<(), ControlError>, code: Code, words: &[&str]) {
    let error = result.expect_err("should be refused");
    assert_eq!(error.code, code, "{error}");
    for word in words {
        assert!(error.message.contains(word), "`{word}` is not in: {error}");
    }
}

#[test]
fn bad_entries_are_refused_by_name() {
    let mut pipeline = load("tables");
    let control = pipeline.control();
    let one = |action| entry(vec![exact(1)], 0, action);
    let ok = direct("I.exact1", &[1]);
    let mut insert = |table: &str, entry: TableEntry| control.table_insert(table, &entry);
    refused(
        insert("I.t_exact", one(ok.clone())),
        Code::NotFound,
        &["I.t_exact`", "I.t_exact1", "I.t_branch"],
    );
    refused(
        insert("I.t_exact1", one(direct("I.lpm32", &[1]))),
        Code::InvalidArgument,
        &["I.lpm32", "I.exact1"],
    );
    refused(insert("I.t_exact1", one(direct("I.exact1", &[]))), Code::InvalidArgument, &["1 parameters (n)"]);
    let wide = direct("I.exact1", &[0x1_0000]);
    refused(insert("I.t_exact1", one(wide)), Code::InvalidArgument, &["`n`", "0x010000", "16 bits"]);
    let key = entry(vec![exact(0x1_0000)], 0, ok.clone());
    refused(insert("I.t_exact1", key), Code::InvalidArgument, &["hdr.k.a", "16 bits"]);
    let two = entry(vec![exact(1), exact(1)], 0, ok.clone());
    refused(insert("I.t_exact1", two), Code::InvalidArgument, &["has 1 keys", "the entry has 2"]);
    let kind = entry(vec![ternary(1, 1)], 0, ok.clone());
    refused(insert("I.t_exact1", kind), Code::InvalidArgument, &["matches exact"]);
    refused(
        insert("I.t_exact1", entry(vec![exact(1)], 1, ok.clone())),
        Code::InvalidArgument,
        &["no priority"],
    );
    let member = one(ActionSpec::Member(1));
    refused(insert("I.t_exact1", member), Code::InvalidArgument, &["no action profile"]);
    refused(insert("I.t_member", one(direct("I.member", &[1]))), Code::InvalidArgument, &["I.profile"]);
    refused(insert("I.t_member", one(ActionSpec::Member(9))), Code::NotFound, &["no member 9"]);
    let bits = entry(vec![lpm(0x0a00_0001, 8)], 0, direct("I.lpm32", &[1]));
    refused(insert("I.t_lpm32", bits), Code::InvalidArgument, &["beyond its prefix length 8"]);
    let long = entry(vec![lpm(0, 33)], 0, direct("I.lpm32", &[1]));
    refused(insert("I.t_lpm32", long), Code::InvalidArgument, &["33", "32 bits"]);
    let outside = vec![ternary(3, 1), ternary(0, 0)];
    let outside = entry(outside, 1, direct("I.ternary_", &[1]));
    refused(insert("I.t_ternary", outside), Code::InvalidArgument, &["outside its mask"]);
    let none = entry(vec![ternary(0, 0), ternary(0, 0)], 0, direct("I.ternary_", &[1]));
    refused(insert("I.t_ternary", none), Code::InvalidArgument, &["priority above 0"]);
    let empty = entry(vec![range(2, 1), ternary(0, 0)], 1, direct("I.mixed", &[1]));
    refused(insert("I.t_range_packed", empty), Code::InvalidArgument, &["is empty"]);
}

#[test]
fn an_entry_exists_once_and_only_existing_ones_change() {
    let mut pipeline = load("tables");
    let control = pipeline.control();
    let first = entry(vec![exact(1)], 0, direct("I.exact1", &[1]));
    let second = entry(vec![MatchValue::Exact(vec![0, 0, 1])], 0, direct("I.exact1", &[2]));
    control.table_insert("I.t_exact1", &first).unwrap();
    refused(control.table_insert("I.t_exact1", &second), Code::AlreadyExists, &["I.t_exact1"]);
    control.table_modify("I.t_exact1", &second).unwrap();
    let rows = control.table_entries("I.t_exact1").unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        rows[0].entry,
        entry(vec![exact(1)], 0, direct("I.exact1", &[2])),
        "read back in canonical form"
    );
    refused(control.table_delete("I.t_exact1", &[exact(2)], 0), Code::NotFound, &["no such entry"]);
    control.table_delete("I.t_exact1", &[exact(1)], 0).unwrap();
    refused(control.table_modify("I.t_exact1", &first), Code::NotFound, &["no such entry"]);
}

#[test]
fn a_full_table_takes_no_more_until_one_is_deleted() {
    let mut pipeline = load("tables");
    let control = pipeline.control();
    let number = |n: u128| entry(vec![exact(n)], 0, direct("I.exact1", &[n]));
    for n in 0..4 {
        control.table_insert("I.t_exact1", &number(n)).unwrap();
    }
    refused(control.table_insert("I.t_exact1", &number(4)), Code::ResourceExhausted, &["holds 4 entries"]);
    control.table_delete("I.t_exact1", &[exact(2)], 0).unwrap();
    control.table_insert("I.t_exact1", &number(4)).unwrap();
}

#[test]
fn the_default_action_can_be_set_and_restored() {
    let mut pipeline = load("tables");
    let control = pipeline.control();
    assert_eq!(control.default_action("I.t_lpm32").unwrap(), Some(direct("I.lpm32", &[999])));
    let other = direct("I.lpm32", &[5]);
    control.set_default_action("I.t_lpm32", Some(&other)).unwrap();
    assert_eq!(control.default_action("I.t_lpm32").unwrap(), Some(other));
    control.set_default_action("I.t_lpm32", None).unwrap();
    assert_eq!(control.default_action("I.t_lpm32").unwrap(), Some(direct("I.lpm32", &[999])));
    let constant = direct("NoAction", &[]);
    refused(control.set_default_action("I.t_exact2", Some(&constant)), Code::PermissionDenied, &["constant"]);
}

#[test]
fn groups_and_members_hold_on_to_each_other() {
    let mut pipeline = load("tables");
    let control = pipeline.control();
    let profile = "I.selector_";
    let group = |members: &[(u32, u32)]| Group {
        id: 1,
        max_size: 3,
        members: members.iter().map(|&(id, weight)| GroupMember { id, weight }).collect(),
    };
    let hashed = call("I.hashed", &[1]);
    control.member_insert(profile, 1, &hashed).unwrap();
    refused(control.member_insert(profile, 1, &hashed), Code::AlreadyExists, &["member 1"]);
    refused(control.member_modify(profile, 2, &hashed), Code::NotFound, &["member 2"]);
    refused(control.group_insert(profile, &group(&[(2, 1)])), Code::NotFound, &["member 2"]);
    refused(control.group_insert(profile, &group(&[(1, 0)])), Code::InvalidArgument, &["weight 0"]);
    refused(control.group_insert(profile, &group(&[(1, 1), (1, 1)])), Code::InvalidArgument, &["twice"]);
    refused(control.group_insert(profile, &group(&[(1, 4)])), Code::ResourceExhausted, &["add up to 4"]);
    refused(
        control.group_insert("I.profile", &group(&[])),
        Code::InvalidArgument,
        &["not an action selector"],
    );
    control.group_insert(profile, &group(&[(1, 2)])).unwrap();
    refused(control.member_delete(profile, 1), Code::FailedPrecondition, &["group 1"]);
    control.table_insert("I.t_hash", &entry(vec![exact(1)], 0, ActionSpec::Group(1))).unwrap();
    refused(control.group_delete(profile, 1), Code::FailedPrecondition, &["1 table entries"]);
    control.table_delete("I.t_hash", &[exact(1)], 0).unwrap();
    control.group_delete(profile, 1).unwrap();
    control.member_delete(profile, 1).unwrap();
    for id in 0..4 {
        control.member_insert("I.profile", id, &call("I.member", &[1])).unwrap();
    }
    refused(
        control.member_insert("I.profile", 4, &call("I.member", &[1])),
        Code::ResourceExhausted,
        &["holds 4 members"],
    );
}

#[test]
fn arrays_have_ends_and_widths() {
    let mut pipeline = load("externs");
    let control = pipeline.control();
    let some = CounterValue { packets: 3, bytes: 5 };
    control.set_counter("I.counted", 7, some).unwrap();
    assert_eq!(control.counter("I.counted", 7).unwrap(), some);
    refused(control.set_counter("I.counted", 8, some), Code::OutOfRange, &["index 8", "8 cells"]);
    control.set_register("I.cells48", 1, &value(0xffff_ffff_ffff)).unwrap();
    assert_eq!(control.register("I.cells48", 1).unwrap(), value(0xffff_ffff_ffff));
    let wide = value(1 << 48);
    refused(control.set_register("I.cells48", 1, &wide), Code::InvalidArgument, &["48 bits"]);
    refused(control.set_register("I.cell", 1, &wide), Code::NotFound, &["I.cells", "I.wide_cells"]);
    let config = MeterConfig { cir: 2, cburst: 1, pir: 1, pburst: 1 };
    refused(
        control.set_meter("I.meters", 0, Some(config)),
        Code::InvalidArgument,
        &["exceeds the peak rate"],
    );
    let replica = Replica { instance: 1, port: 2 };
    refused(control.multicast_insert(0, &[replica]), Code::InvalidArgument, &["ids run from 1"]);
    refused(control.multicast_insert(1, &[replica, replica]), Code::InvalidArgument, &["twice"]);
    refused(control.multicast_modify(1, &[replica]), Code::NotFound, &["multicast group 1"]);
    control.multicast_insert(1, &[replica]).unwrap();
    refused(control.multicast_insert(1, &[replica]), Code::AlreadyExists, &["multicast group 1"]);
    assert_eq!(control.multicast_groups(), [(1, vec![replica])]);
    refused(control.clone_session_delete(3), Code::NotFound, &["clone session 3"]);
}

fn edited(name: &str, from: &str, to: &str) -> Result<Pipeline, LoadError> {
    let text = String::from_utf8(program(name)).unwrap();
    assert!(text.contains(from), "{from}");
    Pipeline::load(text.replacen(from, to, 1).as_bytes())
}

#[test]
fn what_is_not_supported_is_refused_by_name_and_place() {
    let cases = [
        ("\"op\" : \"truncate\"", "\"op\" : \"teleport\"", "primitive `teleport` (externs.p4:"),
        ("\"algo\" : \"crc16\"", "\"algo\" : \"sha3\"", "hash algorithm `sha3`"),
        ("\"extern_instances\" : []", "\"extern_instances\" : [{\"type\": \"oracle\"}]", "extern `oracle`"),
        ("\"op\" : \"extract\"", "\"op\" : \"guess\"", "parser operation `guess`"),
    ];
    for (from, to, words) in cases {
        let error = edited("externs", from, to).expect_err(to).to_string();
        assert!(error.starts_with("unsupported by this switch: ") && error.contains(words), "{error}");
    }
}

#[test]
fn a_broken_program_is_refused_in_words() {
    let cases = [
        ("\"version\" : [2", "\"version\" : [9", "version"),
        ("\"init_table\" : \"", "\"init_table\" : \"no_", "there is no table or conditional `no_"),
        ("[\"command\", \"op\"]", "[\"command\", \"opp\"]", "`command` has no field `opp`; it has: op, arg"),
        ("\"header_type\" : \"command_t\"", "\"header_type\" : \"x\"", "header type `x`"),
    ];
    for (from, to, words) in cases {
        let error = edited("externs", from, to).expect_err(to).to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(matches!(Pipeline::load(b"{"), Err(LoadError::Syntax(_))));
    assert!(matches!(Pipeline::load(b"[]"), Err(LoadError::Syntax(_))));
}
