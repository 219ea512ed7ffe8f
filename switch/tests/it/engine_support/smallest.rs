// SPDX-License-Identifier: Apache-2.0
//! The smallest program: one action in ingress and one in egress, made of the primitives that a
//! test gives.

use serde_json::{Value, json};

/// p4c's standard metadata, as far as these programs use it.
pub(crate) const STANDARD: [(&str, u32); 7] = [
    ("ingress_port", 9),
    ("egress_spec", 9),
    ("egress_port", 9),
    ("instance_type", 32),
    ("packet_length", 32),
    ("mcast_grp", 16),
    ("_padding", 5),
];

fn fields(fields: &[(&str, u32)]) -> Vec<Value> {
    fields.iter().map(|(name, width)| json!([name, width, false])).collect()
}

/// A header of two bytes, metadata, a second instance of the standard metadata and one action per
/// pipeline.
pub(crate) fn program(ingress: &[Value], egress: &[Value]) -> Value {
    let table = |name: &str, id: u32| {
        json!({
            "name": name, "id": id, "key": [], "match_type": "exact", "type": "simple", "max_size": 1,
            "with_counters": false, "support_timeout": false, "direct_meters": null,
            "action_ids": [id], "actions": [name], "base_default_next": null, "next_tables": {name: null},
            "default_entry":
                {"action_id": id, "action_const": true, "action_data": [], "action_entry_const": true},
        })
    };
    let pipeline = |name: &str, id: u32| {
        json!({
            "name": name, "id": id, "init_table": format!("{name}_action"),
            "tables": [table(&format!("{name}_action"), id)],
            "action_profiles": [], "conditionals": [],
        })
    };
    let action = |name: &str, id: u32, primitives: &[Value]| json!({"name": name, "id": id, "runtime_data": [], "primitives": primitives});
    let extract = json!({"op": "extract", "parameters": [{"type": "regular", "value": "bytes"}]});
    let accept = json!({"type": "default", "value": null, "mask": null, "next_state": null});
    let start = json!({
        "name": "start", "id": 0, "parser_ops": [extract], "transitions": [accept], "transition_key": [],
    });
    json!({
        "__meta__": {"version": [2, 23]},
        "header_types": [
            {"name": "standard_metadata", "id": 0, "fields": fields(&STANDARD)},
            {"name": "bytes_t", "id": 1, "fields": fields(&[("first", 8), ("second", 8)])},
            {"name": "locals_t", "id": 2, "fields": fields(&[("number", 16)])},
        ],
        "headers": [
            {"name": "standard_metadata", "id": 0, "header_type": "standard_metadata", "metadata": true},
            {"name": "copy", "id": 1, "header_type": "standard_metadata", "metadata": true},
            {"name": "locals", "id": 2, "header_type": "locals_t", "metadata": true},
            {"name": "bytes", "id": 3, "header_type": "bytes_t", "metadata": false},
        ],
        "header_stacks": [], "field_lists": [], "errors": [], "enums": [],
        "parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": [start]}],
        "deparsers": [{"name": "deparser", "id": 0, "order": ["bytes"], "primitives": []}],
        "meter_arrays": [], "counter_arrays": [], "register_arrays": [], "calculations": [],
        "learn_lists": [], "checksums": [], "force_arith": [], "extern_instances": [],
        "actions": [action("ingress_action", 0, ingress), action("egress_action", 1, egress)],
        "pipelines": [pipeline("ingress", 0), pipeline("egress", 1)],
        "field_aliases": [["intrinsic_metadata.mcast_grp", ["standard_metadata", "mcast_grp"]]],
    })
}

pub(crate) fn primitive(op: &str, parameters: &[Value]) -> Value {
    json!({"op": op, "parameters": parameters})
}

pub(crate) fn field(header: &str, field: &str) -> Value {
    json!({"type": "field", "value": [header, field]})
}

pub(crate) fn number(number: u32) -> Value {
    json!({"type": "hexstr", "value": format!("{number:#x}")})
}

pub(crate) fn assign(to: Value, from: Value) -> Value {
    primitive("assign", &[to, from])
}

pub(crate) fn send_to(port: u32) -> Value {
    assign(field("standard_metadata", "egress_spec"), number(port))
}

pub(crate) fn header(name: &str) -> Value {
    json!({"type": "header", "value": name})
}
