// SPDX-License-Identifier: Apache-2.0
//! Primitives do to their arguments what BMv2's do.

use crate::engine_support::forward;
use crate::engine_support::smallest::{STANDARD, assign, field, header, number, primitive, program, send_to};
use serde_json::{Value, json};
use trimwire_switch::engine::Pipeline;
use trimwire_switch::engine::entity::Replica;

fn load(ingress: &[Value], egress: &[Value]) -> Pipeline {
    Pipeline::load(program(ingress, egress).to_string().as_bytes()).unwrap()
}

fn mark_to_drop(header: &str) -> Value {
    primitive("mark_to_drop", &[json!({"type": "header", "value": header})])
}

/// `to = from`, field by field, as p4c copies structures.
fn copy_standard(to: &str, from: &str) -> Vec<Value> {
    STANDARD.iter().map(|(name, _)| assign(field(to, name), field(from, name))).collect()
}

/// What p4c makes of a call to `action(inout standard_metadata_t s) { mark_to_drop(s); }`.
fn drop_by_copy() -> Vec<Value> {
    [
        copy_standard("copy", "standard_metadata"),
        vec![mark_to_drop("copy")],
        copy_standard("standard_metadata", "copy"),
    ]
    .concat()
}

fn ports(pipeline: &mut Pipeline) -> Vec<u16> {
    forward(pipeline, 0, 1, b"frame").iter().map(|(port, _)| *port).collect()
}

#[test]
fn a_drop_of_a_copy_of_the_metadata_holds_when_it_is_copied_back() {
    let marked = [vec![send_to(3)], drop_by_copy()].concat();
    assert_eq!(ports(&mut load(&[send_to(3)], &[])), [3], "without a drop");
    assert!(ports(&mut load(&marked, &[])).is_empty(), "in ingress");
    assert!(ports(&mut load(&[send_to(3)], &drop_by_copy())).is_empty(), "in egress");
}

#[test]
fn a_drop_of_a_copy_that_is_not_copied_back_changes_nothing() {
    assert_eq!(ports(&mut load(&[send_to(3), mark_to_drop("copy")], &[])), [3]);
    assert_eq!(ports(&mut load(&[send_to(3)], &[mark_to_drop("copy")])), [3]);
}

#[test]
fn a_drop_takes_the_multicast_group_of_the_metadata_that_it_is_given() {
    let group = assign(field("standard_metadata", "mcast_grp"), number(9));
    let sent = |ingress: &[Value]| {
        let mut pipeline = load(ingress, &[]);
        pipeline.control().multicast_insert(9, &[Replica { instance: 1, port: 4 }]).unwrap();
        ports(&mut pipeline)
    };
    assert_eq!(sent(std::slice::from_ref(&group)), [4]);
    assert!(sent(&[group.clone(), mark_to_drop("standard_metadata")]).is_empty());
    assert_eq!(sent(&[group.clone(), mark_to_drop("copy")]), [4]);
    assert!(sent(&[vec![group], drop_by_copy()].concat()).is_empty());
}

#[test]
fn a_drop_marks_the_drop_port_for_the_program_to_see() {
    let seen = assign(field("locals", "number"), field("copy", "egress_spec"));
    let show = assign(field("bytes", "second"), field("locals", "number"));
    let mut pipeline = load(&[mark_to_drop("copy"), seen, show, send_to(3)], &[]);
    // The low byte of port 511.
    assert_eq!(forward(&mut pipeline, 0, 1, b"ab"), [(3, vec![b'a', 0xff])]);
}

/// P4-14's: the standard metadata, whatever there is besides it.
#[test]
fn a_drop_without_an_argument_is_of_the_packets_own_metadata() {
    let drop = || primitive("drop", &[]);
    assert!(ports(&mut load(&[send_to(3), drop()], &[])).is_empty());
    assert!(ports(&mut load(&[send_to(3)], &[drop()])).is_empty());
}

#[test]
fn a_header_without_an_egress_port_is_left_as_it_is() {
    assert_eq!(
        forward(&mut load(&[send_to(3), mark_to_drop("bytes")], &[]), 0, 1, b"ab"),
        [(3, b"ab".to_vec())]
    );
}

/// The program with more header types, headers behind `bytes` in the packet, parser operations and
/// other members.
fn program_with(
    ingress: &[Value],
    types: &[Value],
    headers: &[(&str, &str)],
    parser: &[Value],
    others: &Value,
) -> Value {
    let mut root = program(&[&[send_to(3)], ingress].concat(), &[show_length()]);
    let list = |root: &mut Value, path: &str, items: Vec<Value>| {
        root.pointer_mut(path).and_then(Value::as_array_mut).unwrap().extend(items);
    };
    list(&mut root, "/header_types", types.to_vec());
    let header = |(number, (name, kind)): (usize, &(&str, &str))| json!({"name": name, "id": 4 + number, "header_type": kind, "metadata": false});
    list(&mut root, "/headers", headers.iter().enumerate().map(header).collect());
    list(&mut root, "/deparsers/0/order", headers.iter().map(|(name, _)| json!(name)).collect());
    list(&mut root, "/parsers/0/parse_states/0/parser_ops", parser.to_vec());
    for (name, value) in others.as_object().unwrap() {
        root[name] = value.clone();
    }
    root
}

/// Shows egress's packet length in the second byte.
fn show_length() -> Value {
    assign(field("bytes", "second"), field("standard_metadata", "packet_length"))
}

fn sent(root: &Value, frame: &[u8]) -> Vec<u8> {
    let mut pipeline = Pipeline::load(root.to_string().as_bytes()).unwrap();
    let mut sent = forward(&mut pipeline, 0, 1, frame);
    assert_eq!(sent.len(), 1);
    sent.remove(0).1
}

/// A header of a byte and as many bytes as the frame's first byte says, and an instance that is not
/// in the packet.
fn variable(ingress: &[Value]) -> Value {
    let kind = json!({"name": "variable_t", "id": 3, "fields": [["length", 8, false], ["data", "*", false]], "max_length": 9});
    let bits = json!({"op": "<<", "left": field("bytes", "first"), "right": number(3)});
    let length = json!({"type": "expression", "value": {"type": "expression", "value": bits}});
    let extract = primitive("extract_VL", &[json!({"type": "regular", "value": "there"}), length]);
    program_with(
        ingress,
        &[kind],
        &[("there", "variable_t"), ("elsewhere", "variable_t")],
        &[extract],
        &json!({}),
    )
}

#[test]
fn a_header_that_is_added_again_keeps_the_length_of_its_variable_field() {
    let remove = primitive("remove_header", &[header("there")]);
    let add = primitive("add_header", &[header("there")]);
    assert_eq!(sent(&variable(&[]), b"\x03?7abcpay"), b"\x03\x097abcpay");
    assert_eq!(sent(&variable(&[remove, add]), b"\x03?7abcpay"), b"\x03\x09\0\0\0\0pay");
}

#[test]
fn a_header_is_added_with_the_length_that_its_variable_field_was_given_before() {
    let assign = primitive("assign_VL", &[field("elsewhere", "data"), field("there", "data")]);
    let add = primitive("add_header", &[header("elsewhere")]);
    assert_eq!(sent(&variable(&[assign, add]), b"\x02?7abpay"), b"\x02\x0b7ab\0\0\0pay");
}

#[test]
fn a_member_of_a_union_may_be_copied_to_another_of_its_type() {
    let kind = json!({"name": "byte_t", "id": 3, "fields": [["value", 8, false]]});
    let union = json!({
        "header_union_types": [{"name": "union_t", "id": 0, "headers": [["left", "byte_t"], ["right", "byte_t"]]}],
        "header_unions": [{"name": "union", "id": 0, "union_type": "union_t", "header_ids": [4, 5]}],
    });
    let ingress = [
        primitive("add_header", &[header("left")]),
        assign(field("left", "value"), number(5)),
        primitive("assign_header", &[header("right"), header("left")]),
    ];
    let root = program_with(&ingress, &[kind], &[("left", "byte_t"), ("right", "byte_t")], &[], &union);
    // The left one is in the packet no longer.
    assert_eq!(sent(&root, b"ab"), b"a\x03\x05");
}

#[test]
fn a_stack_is_emptied_by_any_shift_that_is_longer_than_it() {
    let kind = json!({"name": "byte_t", "id": 3, "fields": [["value", 8, false]]});
    let stack = json!({"header_stacks": [{"name": "stack", "id": 0, "header_type": "byte_t", "size": 2, "header_ids": [4, 5]}]});
    let shifted = |op: &str, count: &str| {
        let count = json!({"type": "hexstr", "value": count});
        let ingress = [
            primitive("add_header", &[header("one")]),
            primitive(op, &[json!({"type": "header_stack", "value": "stack"}), count]),
        ];
        sent(
            &program_with(
                &ingress,
                std::slice::from_ref(&kind),
                &[("one", "byte_t"), ("two", "byte_t")],
                &[],
                &stack,
            ),
            b"ab",
        )
    };
    for op in ["push", "pop"] {
        assert_eq!(shifted(op, "0x0"), b"a\x03\0");
        for count in ["0x2", "0x3", "0x100000000"] {
            assert_eq!(shifted(op, count), b"a\x03", "{op} {count}");
        }
    }
}

#[test]
fn a_primitive_with_an_argument_too_few_or_too_many_is_refused() {
    let four = [field("bytes", "first"), number(1), number(2), number(3), number(4)];
    let refused = |op: &str, arguments: &[Value]| {
        let error =
            Pipeline::load(program(&[primitive(op, arguments)], &[]).to_string().as_bytes()).unwrap_err();
        let few = format!("parameter {} is missing from {{\"op\":\"{op}\"", arguments.len());
        let many = format!("and is given {}", arguments.len());
        assert!(error.to_string().contains(&few) || error.to_string().ends_with(&many), "{op}: {error}");
    };
    refused("mark_to_drop", &[]);
    refused("mark_to_drop", &[header("copy"), header("copy")]);
    refused("drop", &[header("standard_metadata")]);
    refused("exit", &four[..1]);
    refused("assign", &four[..1]);
    refused("assign", &four[..3]);
    refused("add_header", &[header("bytes"), header("bytes")]);
    refused("modify_field_rng_uniform", &four[..4]);
    refused("truncate", &four[1..3]);
    refused("clone_ingress_pkt_to_egress", &four[1..2]);
}

/// Adds 1 to `locals.number`, `times` times.
fn counted(times: u32) -> Vec<Value> {
    let expression = |op: &str, left: Value, right: Value| {
        let value = json!({"op": op, "left": left, "right": right});
        json!({"type": "expression", "value": {"type": "expression", "value": value}})
    };
    let count = || field("locals", "number");
    vec![
        send_to(3),
        // Out of the loop when it has gone round often enough.
        primitive("_jump_if_zero", &[expression("!=", count(), number(times)), number(4)]),
        assign(count(), expression("+", count(), number(1))),
        primitive("_jump", &[number(1)]),
        assign(field("bytes", "second"), count()),
    ]
}

#[test]
fn a_loop_of_many_rounds_comes_to_its_end() {
    assert_eq!(forward(&mut load(&counted(0xfedc), &[]), 0, 1, b"ab"), [(3, b"a\xdc".to_vec())]);
}

#[test]
fn a_packet_in_an_endless_loop_is_dropped() {
    // Sixteen bits never hold that number.
    let endless = counted(0x1_0000);
    assert!(forward(&mut load(&endless, &[]), 0, 1, b"ab").is_empty(), "in ingress");
    assert!(forward(&mut load(&[send_to(3)], &endless), 0, 1, b"ab").is_empty(), "in egress");
}
