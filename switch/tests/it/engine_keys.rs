// SPDX-License-Identifier: Apache-2.0
//! What a table's key is made of, as BMv2 makes it: a table that sends what hits it to port 4,
//! everything else to port 3.

use crate::engine_support::smallest::{assign, field, header, number, primitive, program, send_to};
use crate::engine_support::{direct, entry, exact, forward, lpm, ternary};
use serde_json::{Value, json};
use trimwire_switch::engine::entity::MatchValue;
use trimwire_switch::engine::{Code, Pipeline};

/// The table with these keys, behind an action of these primitives.
fn keyed(before: &[Value], match_type: &str, keys: &Value) -> Pipeline {
    let mut root = program(&[before, &[send_to(3)]].concat(), &[]);
    let hit = assign(field("standard_metadata", "egress_spec"), number(4));
    let action = json!({"name": "hit", "id": 2, "runtime_data": [], "primitives": [hit]});
    root["actions"].as_array_mut().unwrap().push(action);
    let tables = root["pipelines"][0]["tables"].as_array_mut().unwrap();
    tables[0]["base_default_next"] = json!("keyed");
    tables[0]["next_tables"] = json!({"ingress_action": "keyed"});
    tables.push(json!({
        "name": "keyed", "id": 2, "key": keys, "match_type": match_type, "type": "simple", "max_size": 16,
        "with_counters": false, "support_timeout": false, "direct_meters": null,
        "action_ids": [2], "actions": ["hit"], "base_default_next": null, "next_tables": {"hit": null},
    }));
    Pipeline::load(root.to_string().as_bytes()).unwrap()
}

fn key(match_type: &str, field: &str, mask: Option<&str>) -> Value {
    json!({"match_type": match_type, "name": field, "target": ["bytes", field], "mask": mask})
}

fn insert(pipeline: &mut Pipeline, matches: Vec<MatchValue>, priority: i32) {
    pipeline.control().table_insert("keyed", &entry(matches, priority, direct("hit", &[]))).unwrap();
}

fn hits(pipeline: &mut Pipeline, frame: &[u8]) -> bool {
    forward(pipeline, 0, 1, frame)[0].0 == 4
}

#[test]
fn a_field_of_a_header_that_is_not_valid_is_a_key_of_0() {
    let gone = [primitive("remove_header", &[header("bytes")])];
    let both = json!([key("exact", "first", None), key("exact", "second", None)]);
    for (before, found) in [(&gone[..], true), (&[], false)] {
        let mut table = keyed(before, "exact", &both);
        insert(&mut table, vec![exact(0), exact(0)], 0);
        assert_eq!(hits(&mut table, b"ab"), found, "exact");
        let mut table = keyed(before, "lpm", &json!([key("lpm", "first", None)]));
        insert(&mut table, vec![lpm(0, 8)], 0);
        assert_eq!(hits(&mut table, b"ab"), found, "lpm");
        let mut table = keyed(before, "ternary", &json!([key("ternary", "first", None)]));
        insert(&mut table, vec![ternary(0, 0xff)], 1);
        assert_eq!(hits(&mut table, b"ab"), found, "ternary");
    }
}

#[test]
fn metadata_and_validity_are_keys_as_they_are() {
    let gone = primitive("remove_header", &[header("bytes")]);
    let keys = json!([
        {"match_type": "exact", "name": "number", "target": ["locals", "number"], "mask": null},
        {"match_type": "exact", "name": "there", "target": ["bytes", "$valid$"], "mask": null},
    ]);
    let set = assign(field("locals", "number"), number(7));
    let mut table = keyed(std::slice::from_ref(&set), "exact", &keys);
    insert(&mut table, vec![exact(7), exact(1)], 0);
    assert!(hits(&mut table, b"ab"));
    let mut table = keyed(&[set, gone], "exact", &keys);
    insert(&mut table, vec![exact(7), exact(0)], 0);
    assert!(hits(&mut table, b"ab"));
}

#[test]
fn bits_of_an_entry_outside_the_mask_of_its_key_do_not_matter() {
    for (kind, value, priority) in
        [("exact", exact(0xab), 0), ("lpm", lpm(0xab, 8), 0), ("ternary", ternary(0xab, 0xff), 1)]
    {
        let mut table = keyed(&[], kind, &json!([key(kind, "first", Some("0x0f"))]));
        insert(&mut table, vec![value], priority);
        assert!(hits(&mut table, b"\x0bx") && hits(&mut table, b"\xfbx"), "{kind}");
        assert!(!hits(&mut table, b"\xacx"), "{kind}");
    }
}

#[test]
fn entries_that_differ_outside_the_mask_of_their_key_are_one() {
    let mut table = keyed(&[], "exact", &json!([key("exact", "first", Some("0x0f"))]));
    insert(&mut table, vec![exact(0xab)], 0);
    let again = entry(vec![exact(0x1b)], 0, direct("hit", &[]));
    assert_eq!(table.control().table_insert("keyed", &again).unwrap_err().code, Code::AlreadyExists);
    table.control().table_delete("keyed", &[exact(0x2b)], 0).unwrap();
    assert!(!hits(&mut table, b"\x0bx"));
}
