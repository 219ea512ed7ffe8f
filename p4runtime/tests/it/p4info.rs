// SPDX-License-Identifier: Apache-2.0
//! P4Info as people and compilers write it, and as nobody should.

use proptest::prelude::*;
use trimwire_p4runtime::config::MatchField;
use trimwire_p4runtime::config::match_field::MatchType;
use trimwire_p4runtime::p4info::{Index, IndexError, P4Info, P4InfoError};

const SAMPLE: &str = include_str!("../../testdata/sample.p4info.txtpb");

fn sample() -> (P4Info, Index) {
    let p4info = P4Info::from_text(SAMPLE).unwrap();
    let index = Index::new(&p4info).unwrap();
    (p4info, index)
}

/// The committed P4Info of the trimming program, as p4c wrote it.
fn compiled_text() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.p4info.txtpb");
    std::fs::read_to_string(path).unwrap()
}

fn compiled() -> P4Info {
    P4Info::from_text(&compiled_text()).unwrap()
}

#[test]
fn text_is_written_as_p4c_writes_it() {
    let text = compiled_text();
    let lines = text.lines().skip_while(|line| line.starts_with('#') || line.is_empty());
    let without_comments = lines.flat_map(|line| [line, "\n"]).collect::<String>();
    assert!(without_comments.len() > 1000);
    assert_eq!(compiled().to_text(), without_comments);
}

#[test]
fn text_and_binary_hold_the_same() {
    for p4info in [sample().0, compiled()] {
        let text = p4info.to_text();
        assert_eq!(P4Info::from_text(&text).unwrap(), p4info);
        let binary = prost::Message::encode_to_vec(&p4info);
        assert_eq!(P4Info::from_binary(&binary).unwrap(), p4info);
        assert_eq!(P4Info::from_bytes(&binary).unwrap(), p4info);
        assert_eq!(P4Info::from_bytes(text.as_bytes()).unwrap(), p4info);
        assert_eq!(P4Info::from_text(&text).unwrap().to_text(), text);
    }
}

#[test]
fn every_field_of_the_sample_is_read() {
    let (p4info, index) = sample();
    let doc = p4info.pkg_info.as_ref().unwrap().doc.as_ref().unwrap();
    assert_eq!(doc.description, "with \"quotes\" and a {brace");
    let acl = index.table("Ingress.acl").unwrap();
    let kinds: Vec<_> = acl.table.match_fields.iter().map(MatchField::kind).collect();
    assert_eq!(kinds, [MatchType::Ternary, MatchType::Range, MatchType::Optional, MatchType::Exact]);
    assert!(acl.needs_priority());
    assert!(!index.table("nexthop").unwrap().needs_priority());
    assert_eq!(acl.direct_counter().unwrap().preamble.as_ref().unwrap().name, "Ingress.acl_hits");
    assert!(acl.direct_meter().is_some());
    assert_eq!(
        acl.actions().map(|action| action.name()).collect::<Vec<_>>(),
        ["Ingress.forward", "Ingress.drop", "NoAction"]
    );
    let types = p4info.type_info.unwrap();
    assert_eq!(types.serializable_enums["kind_t"].members[0].value, [1]);
    assert_eq!(index.extern_instance("Ingress.widget").unwrap().preamble.as_ref().unwrap().id, 0x8100_0001);
}

#[test]
fn objects_are_found_by_name_alias_and_id() {
    let (_, index) = sample();
    for key in ["Ingress.nexthop", "nexthop"] {
        assert_eq!(index.table(key).unwrap().id(), 33_554_434);
    }
    assert_eq!(index.table(33_554_434).unwrap().name(), "Ingress.nexthop");
    assert_eq!(index.counter("bytes").unwrap().size, 512);
    assert_eq!(index.register(369_098_753).unwrap().size, 4096);
    assert_eq!(index.table("acl").unwrap().match_field("vlan").unwrap().id, 3);
    assert_eq!(index.table("acl").unwrap().match_field(4).unwrap().name, "ingress_port");
    assert_eq!(index.action("Ingress.forward").unwrap().param("dst_mac").unwrap().id, 2);
}

#[test]
fn a_wrong_name_gets_the_nearest_and_its_place() {
    let (_, index) = sample();
    let message = |error: trimwire_p4runtime::p4info::LookupError| error.to_string();
    assert_eq!(
        message(index.table("Ingress.nexthops").unwrap_err()),
        r#"the P4Info has no table "Ingress.nexthops"; did you mean Ingress.nexthop?"#
    );
    assert_eq!(
        message(index.table("nxethop").unwrap_err()),
        r#"the P4Info has no table "nxethop"; did you mean Ingress.nexthop?"#
    );
    assert_eq!(
        message(index.table("acl").unwrap().match_field("vlna").unwrap_err()),
        r#"table "Ingress.acl" has no match field "vlna"; did you mean vlan?"#
    );
    assert_eq!(
        message(index.action("Ingress.forward").unwrap().param("mac").unwrap_err()),
        r#"action "Ingress.forward" has no parameter "mac"; valid: port, dst_mac"#
    );
    assert_eq!(
        message(index.table("nexthop").unwrap().action("Ingress.drop").unwrap_err()),
        r#"table "Ingress.nexthop" has no action "Ingress.drop"; valid: Ingress.forward"#
    );
    assert_eq!(
        message(index.register(0x0200_0001).unwrap_err()),
        "the P4Info has no register with id 0x02000001; valid: Ingress.occupancy, Ingress.balance"
    );
    assert_eq!(
        message(index.action("Ingress.drop").unwrap().param(1).unwrap_err()),
        r#"action "Ingress.drop" has no parameter with id 1; there are none"#
    );
}

#[test]
fn the_compiled_program_is_read_and_indexed() {
    let index = Index::new(&compiled()).unwrap();
    let policy = index.table("Ingress.queue_policy.policy").unwrap();
    assert_eq!(policy.match_field("egress_port").unwrap().bitwidth, 9);
    let thresholds = policy.action("Ingress.queue_policy.set_thresholds").unwrap();
    assert_eq!(thresholds.param("deep_at").unwrap().bitwidth, 32);
    assert!(index.table("Ingress.ipv4_route").unwrap().implementation().unwrap().with_selector);
    for counter in ["Ingress.trimmed", "Ingress.admitted", "Egress.trim_transmitted"] {
        assert_eq!(index.counter(counter).unwrap().size, 4096);
    }
}

#[test]
fn a_text_error_has_line_column_and_reason() {
    let error = P4Info::from_text("tables {\n  preamble { id: 1 nmae: \"x\" }\n}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "P4Info text, line 2, column 20: field 'nmae' not found for message 'p4.config.v1.Preamble'"
    );
    let P4InfoError::Text { line: 1, column, .. } =
        P4Info::from_text("tables { size: \"big\" }").unwrap_err()
    else {
        panic!("not a text error in line 1");
    };
    assert_eq!(column, 16);
    assert!(matches!(P4Info::from_text("tables {"), Err(P4InfoError::Text { line: 1, .. })));
}

#[test]
fn nesting_that_would_exhaust_the_stack_is_refused() {
    // P4DataTypeSpec holds itself through tuples: legal, and as deep as one likes.
    let nest = |depth: usize, before: &str| {
        let open = "tuple { members { ".repeat(depth);
        format!("registers {{ {before} type_spec {{ {open}{} }} }}", "} }".repeat(depth))
    };
    P4Info::from_text(&nest(20, "")).unwrap();
    for before in ["", "# {\n", "preamble { name: '{\\'\"}}' }", "preamble { name: \"}}}}}}}}\\\"}}\" }"] {
        let error = P4Info::from_text(&nest(100_000, before)).unwrap_err();
        assert!(error.to_string().contains("nested deeper than 100"), "{error}");
    }
    // The same as binary: field 11 registers, 2 type_spec, then 3 tuple, 1 members, from the inside
    // out.
    let mut binary = Vec::new();
    for tag in std::iter::repeat_n([0x1a, 0x0a], 100).flatten().chain([0x12, 0x5a]) {
        let mut outer = vec![tag];
        prost::encoding::encode_varint(binary.len() as u64, &mut outer);
        outer.extend(binary);
        binary = outer;
    }
    assert!(matches!(P4Info::from_binary(&binary), Err(P4InfoError::Binary { .. })));
}

#[test]
fn a_p4info_that_contradicts_itself_is_refused_by_name() {
    let index = |text: &str| Index::new(&P4Info::from_text(text).unwrap()).map(drop);
    let table = |id: u32, name: &str, rest: &str| {
        format!("tables {{ preamble {{ id: {id} name: '{name}' }} {rest} }}")
    };
    assert_eq!(
        index(&(table(7, "a", "") + &table(7, "b", ""))).unwrap_err().to_string(),
        r#"P4Info: table "b" and "a" share the id 0x00000007"#
    );
    assert_eq!(
        index(&(table(7, "a", "") + &table(8, "a", ""))).unwrap_err().to_string(),
        r#"P4Info: two objects of kind table are named "a""#
    );
    assert_eq!(index("tables { size: 3 }").unwrap_err(), IndexError::Nameless { kind: "table", position: 0 });
    assert_eq!(
        index(&table(7, "a", "action_refs { id: 16777217 }")).unwrap_err().to_string(),
        r#"P4Info: table "a" refers to an action with id 0x01000001, which does not exist"#
    );
    assert_eq!(
        index(&table(7, "a", "implementation_id: 5")).unwrap_err().to_string(),
        r#"P4Info: table "a" refers to an action profile with id 0x00000005, which does not exist"#
    );
    assert_eq!(
        index(&table(7, "a", "match_fields { id: 1 name: 'f' bitwidth: -1 }")).unwrap_err().to_string(),
        r#"P4Info: table "a": match field "f" is -1 bits wide"#
    );
    assert_eq!(
        index(&table(7, "a", "match_fields { id: 1 name: 'f' bitwidth: 2147483647 }"))
            .unwrap_err()
            .to_string(),
        r#"P4Info: table "a": match field "f" is 2147483647 bits wide; 65536 is the most"#
    );
    let twice = "match_fields { id: 1 name: 'f' } match_fields { id: 1 name: 'g' }";
    assert_eq!(
        index(&table(7, "a", twice)).unwrap_err().to_string(),
        r#"P4Info: table "a": match field "g" has the id 1 of another"#
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(p4info) = P4Info::from_bytes(&bytes) {
            let _ = Index::new(&p4info);
        }
        let _ = P4Info::from_binary(&bytes);
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,300}") {
        let _ = P4Info::from_text(&text);
    }

    /// Text made of the format's own tokens gets further into the parser than random characters do.
    #[test]
    fn any_sequence_of_tokens_is_read_or_refused(tokens in proptest::collection::vec(
        prop::sample::select(vec![
            "tables", "preamble", "type_info", "structs", "key", "value", "id", "name", "match_type", "LPM",
            "type_spec", "other_properties", "size", "{", "}", "[", "]", "<", ">", ":", ",", ";", "-", "/", ".",
            "type.googleapis.com", "p4.config.v1.Table", "1", "-1", "0x", "07", "09", "1e400f", "0f", "99999999999999999999",
            "\"a\"", "'", "\"", "\\", "\"\\777\"", "'\\ud800'", "#", "\n", "inf", "true", "é", "externs", "info",
        ]), 0..40))
    {
        let _ = P4Info::from_text(&tokens.join(" "));
        let _ = P4Info::from_text(&tokens.concat());
    }

    #[test]
    fn a_damaged_p4info_is_read_or_refused(at in 0_usize..4000, byte: u8, less in 0_usize..4000) {
        let mut text = SAMPLE.as_bytes().to_vec();
        let at = at.min(text.len() - 1);
        text[at] = byte;
        text.truncate(text.len().max(less) - less);
        if let Ok(p4info) = P4Info::from_bytes(&text) {
            let _ = Index::new(&p4info);
        }
        let mut binary = prost::Message::encode_to_vec(&P4Info::from_text(SAMPLE).unwrap());
        let at = at % binary.len();
        binary[at] = byte;
        if let Ok(p4info) = P4Info::from_binary(&binary) {
            let _ = Index::new(&p4info);
            let _ = p4info.to_text();
        }
    }
}
