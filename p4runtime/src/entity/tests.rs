// SPDX-License-Identifier: Apache-2.0
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::bytes::Value;
use crate::p4info::{Index, P4Info};
use crate::v1::field_match::{Exact, FieldMatchType, Lpm, Range, Ternary};
use crate::v1::{Entity, FieldMatch, TableEntry};

const ACL: u32 = 33_554_433;
const NEXTHOP: u32 = 33_554_434;

fn index() -> Index {
    Index::new(&P4Info::from_text(include_str!("../../testdata/sample.p4info.txtpb")).unwrap()).unwrap()
}

fn acl(index: &Index) -> TableEntryBuilder<'_> {
    TableEntryBuilder::new(index, "Ingress.acl").exact("ingress_port", 3_u16).priority(10)
}

fn failure<T: std::fmt::Debug>(result: Result<T, EntityError>) -> (tonic::Code, String) {
    let error = result.unwrap_err();
    (error.code(), error.to_string())
}

#[test]
fn a_built_entry_has_ids_and_canonical_values() {
    let index = index();
    let entry = acl(&index)
        .optional("vlan", 7_u8)
        .range("l4_port", 80_u16, 443_u16)
        .ternary(
            "src_addr",
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0),
            Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0),
        )
        .action("Ingress.forward")
        .param("dst_mac", [0, 0, 0, 0, 0, 9])
        .param("port", 256_u32)
        .build()
        .unwrap();
    let mut address = vec![0xfd];
    address.resize(16, 0);
    let mut mask = vec![0xff];
    mask.resize(16, 0);
    let field = |field_id, kind| FieldMatch { field_id, field_match_type: Some(kind) };
    assert_eq!(entry.table_id, ACL);
    assert_eq!(
        entry.r#match,
        [
            field(1, FieldMatchType::Ternary(Ternary { value: address, mask })),
            field(2, FieldMatchType::Range(Range { low: vec![80], high: vec![1, 187] })),
            field(3, FieldMatchType::Optional(v1::field_match::Optional { value: vec![7] })),
            field(4, FieldMatchType::Exact(Exact { value: vec![3] })),
        ]
    );
    let Some(v1::table_action::Type::Action(action)) = entry.action.unwrap().r#type else {
        panic!("no action")
    };
    assert_eq!(
        action.params,
        [
            v1::action::Param { param_id: 1, value: vec![1, 0] },
            v1::action::Param { param_id: 2, value: vec![9] },
        ]
    );
}

#[test]
fn dont_care_matches_are_left_out() {
    let index = index();
    let entry = acl(&index)
        .ternary("src_addr", 0_u8, 0_u8)
        .range("l4_port", 0_u16, u16::MAX)
        .action("Ingress.drop")
        .build()
        .unwrap();
    assert_eq!(entry.r#match.len(), 1);
    let entry = TableEntryBuilder::new(&index, "nexthop").lpm("dst_addr", 0_u32, 0).group(1).build().unwrap();
    assert_eq!(entry.r#match, []);
}

#[test]
fn mistakes_name_the_field_the_table_and_the_rule() {
    let index = index();
    let invalid = |result: Result<TableEntry, EntityError>, message: &str| {
        assert_eq!(failure(result), (tonic::Code::InvalidArgument, message.to_owned()));
    };
    let nexthop = || TableEntryBuilder::new(&index, "Ingress.nexthop");
    invalid(
        nexthop().lpm("dst_addr", Ipv4Addr::new(10, 0, 1, 1), 24).group(1).build(),
        r#"match field "dst_addr" of table "Ingress.nexthop": value 0x0a000101 has bits behind its prefix of 24 bits"#,
    );
    invalid(
        nexthop().lpm("dst_addr", 0_u32, 33).group(1).build(),
        r#"match field "dst_addr" of table "Ingress.nexthop": prefix length 33 is not in 1..=32; leave the field out to match anything"#,
    );
    invalid(
        nexthop().exact("dst_addr", 1_u8).build(),
        r#"match field "dst_addr" of table "Ingress.nexthop": is lpm, given exact"#,
    );
    invalid(
        nexthop().lpm("dst_addr", "10.0.0.0", 8).build(),
        r#"match field "dst_addr" of table "Ingress.nexthop": text "10.0.0.0" for bit<32>, which takes a number or bytes"#,
    );
    invalid(
        acl(&index).ternary("src_addr", 3_u8, 1_u8).build(),
        r#"match field "src_addr" of table "Ingress.acl": value 0x03 has bits outside of its mask 0x01"#,
    );
    invalid(
        acl(&index).range("l4_port", 256_u16, 255_u8).build(),
        r#"match field "l4_port" of table "Ingress.acl": low 0x0100 is above high 0xff"#,
    );
    invalid(
        acl(&index).optional("vlan", 4096_u16).build(),
        r#"match field "vlan" of table "Ingress.acl": value 0x1000 does not fit bit<12>"#,
    );
    invalid(
        acl(&index).exact("ingress_port", 4_u8).build(),
        r#"match field "ingress_port" of table "Ingress.acl": is given twice"#,
    );
    invalid(
        TableEntryBuilder::new(&index, "acl").priority(1).build(),
        r#"match field "ingress_port" of table "Ingress.acl": is exact and must be given"#,
    );
    invalid(
        acl(&index).priority(0).build(),
        r#"table "Ingress.acl", priority 0: needs a priority above 0, having ternary, range or optional match fields"#,
    );
    invalid(
        nexthop().priority(5).build(),
        r#"table "Ingress.nexthop", priority 5: takes no priority, having neither ternary, range nor optional match fields"#,
    );
    invalid(
        acl(&index).action("Ingress.forward").param("port", 1_u8).build(),
        r#"action "Ingress.forward": lacks parameter "dst_mac""#,
    );
    invalid(
        acl(&index).action("Ingress.forward").param("port", 512_u16).build(),
        r#"parameter "port" of action "Ingress.forward": value 0x0200 does not fit bit<9>"#,
    );
    invalid(
        acl(&index).group(1).build(),
        r#"table "Ingress.acl": has no action profile: it takes an action, not a member or group"#,
    );
    invalid(
        nexthop().action("Ingress.forward").param("port", 1_u8).param("dst_mac", 1_u8).build(),
        r#"table "Ingress.nexthop": is implemented by action profile "Ingress.ecmp": it takes a member, a group or an action set, not an action"#,
    );
    invalid(
        acl(&index).param("port", 1_u8).build(),
        r#"parameter "port" for table "Ingress.acl": comes before an action"#,
    );
    invalid(
        TableEntryBuilder::new(&index, "Egress.keyless").action("drop").build(),
        r#"table "Egress.keyless": has no key, so it takes a default action but no entries"#,
    );
    assert_eq!(failure(acl(&index).insert()).1, r#"table "Ingress.acl": an entry to insert needs an action"#);
    // The first mistake is the one reported.
    invalid(
        TableEntryBuilder::new(&index, "acls").exact("nonsense", 1_u8).build(),
        r#"the P4Info has no table "acls"; did you mean Ingress.acl?"#,
    );
}

#[test]
fn what_the_program_made_constant_is_denied() {
    let index = index();
    let denied = |result: Result<v1::Update, EntityError>, message: &str| {
        assert_eq!(failure(result), (tonic::Code::PermissionDenied, message.to_owned()));
    };
    denied(
        TableEntryBuilder::default_entry(&index, "Ingress.nexthop").modify(),
        r#"default entry of table "Ingress.nexthop": is constant in the program"#,
    );
    denied(
        TableEntryBuilder::new(&index, "ethertypes").exact("ether_type", 0x800_u16).action("drop").insert(),
        r#"table "Ingress.ethertypes": its entries are constant in the program"#,
    );
    denied(
        acl(&index).action("NoAction").insert(),
        r#"table "Ingress.acl": action "NoAction" may not be an entry's action (DefaultOnly)"#,
    );
    denied(
        TableEntryBuilder::default_entry(&index, "acl").action("drop").modify(),
        r#"table "Ingress.acl": action "Ingress.drop" may not be a default action (TableOnly)"#,
    );
    TableEntryBuilder::default_entry(&index, "acl").action("NoAction").modify().unwrap();
    TableEntryBuilder::default_entry(&index, "acl").modify().unwrap();
    assert_eq!(
        failure(TableEntryBuilder::default_entry(&index, "acl").delete()).1,
        r#"default entry of table "Ingress.acl": always exists; the only update it takes is MODIFY"#
    );
}

#[test]
fn string_types_take_names_and_nothing_else() {
    let index = index();
    let entry = |value: Value| {
        TableEntryBuilder::new(&index, "interface").exact("name", value).action("drop").build()
    };
    let built = entry("eth0".into()).unwrap();
    assert_eq!(
        built.r#match[0].field_match_type,
        Some(FieldMatchType::Exact(Exact { value: b"eth0".to_vec() }))
    );
    assert_eq!(describe(&built.into(), Some(&index)), r#"Ingress.interface{name="eth0"} -> Ingress.drop()"#);
    entry(Value::Number(5)).unwrap_err();
    entry("".into()).unwrap_err();
}

#[test]
fn received_entities_come_out_canonical() {
    let index = index();
    let received = TableEntry {
        table_id: NEXTHOP,
        r#match: vec![FieldMatch {
            field_id: 1,
            field_match_type: Some(FieldMatchType::Lpm(Lpm {
                value: vec![0, 0, 10, 0, 0, 0],
                prefix_len: 8,
            })),
        }],
        action: Some(v1::TableAction { r#type: Some(v1::table_action::Type::ActionProfileGroupId(1)) }),
        ..TableEntry::default()
    };
    let wanted =
        TableEntryBuilder::new(&index, "nexthop").lpm("dst_addr", [10, 0, 0, 0], 8).group(1).build().unwrap();
    let checked = check(&received.clone().into(), &index, Purpose::Insert).unwrap();
    assert_eq!(checked, wanted.clone().into());
    assert_eq!(EntityKey::of(&checked), EntityKey::of(&wanted.into()));
    assert_ne!(EntityKey::of(&checked), EntityKey::of(&received.into()));
}

#[test]
fn reads_may_leave_out_what_writes_may_not() {
    let index = index();
    for entity in [
        Entity::from(TableEntry::default()),
        TableEntry { table_id: ACL, ..TableEntry::default() }.into(),
        v1::CounterEntry::default().into(),
        v1::ActionProfileMember::default().into(),
        v1::ActionProfileGroup::default().into(),
        v1::RegisterEntry { register_id: 369_098_753, ..v1::RegisterEntry::default() }.into(),
        v1::MulticastGroupEntry::default().into(),
        v1::DirectCounterEntry {
            table_entry: Some(TableEntry { table_id: ACL, ..TableEntry::default() }),
            data: None,
        }
        .into(),
    ] {
        check(&entity, &index, Purpose::Read).unwrap();
        check(&entity, &index, Purpose::Insert).unwrap_err();
    }
}

#[test]
fn array_elements_are_held_to_their_size() {
    let index = index();
    let at = |element| check(&counter(&index, "bytes", element).unwrap().into(), &index, Purpose::Modify);
    at(None).unwrap();
    at(Some(511)).unwrap();
    assert_eq!(
        failure(at(Some(512))),
        (
            tonic::Code::OutOfRange,
            r#"counter "Egress.bytes": index 512 is beyond its size of 512"#.to_owned()
        )
    );
    assert_eq!(failure(at(Some(-1))).0, tonic::Code::InvalidArgument);
    check(&meter(&index, "rate", Some(3)).unwrap().into(), &index, Purpose::Modify).unwrap();
    check(&meter(&index, "rate", Some(4)).unwrap().into(), &index, Purpose::Modify).unwrap_err();
}

#[test]
fn register_values_are_held_to_their_type() {
    let index = index();
    let write = |name: &str, value: &[u8]| {
        let data = v1::P4Data { data: Some(v1::p4_data::Data::Bitstring(value.to_vec())) };
        let entry = v1::RegisterEntry { data: Some(data), ..register(&index, name, Some(0)).unwrap() };
        check(&entry.into(), &index, Purpose::Modify)
    };
    let Ok(Entity { entity: Some(Kind::RegisterEntry(entry)) }) = write("occupancy", &[0, 0, 0, 0, 0, 5])
    else {
        panic!("refused")
    };
    assert_eq!(entry.data.unwrap().data, Some(v1::p4_data::Data::Bitstring(vec![5])));
    assert_eq!(
        failure(write("occupancy", &[1, 0, 0, 0, 0])).1,
        r#"register "Ingress.occupancy": value 0x0100000000 does not fit bit<32>"#
    );
    write("balance", &[0xff, 0x80]).unwrap();
    write("balance", &[0x00, 0x80]).unwrap_err();
}

#[test]
fn members_and_groups_are_checked() {
    let index = index();
    let action = || ActionBuilder::new(&index, "Ingress.forward").param("port", 1_u8).param("dst_mac", 2_u8);
    let one = member(&index, "ecmp", 1, action()).unwrap();
    check(&one.clone().into(), &index, Purpose::Insert).unwrap();
    assert_eq!(
        describe(&one.clone().into(), Some(&index)),
        "Ingress.ecmp member 1 -> Ingress.forward(port=1, dst_mac=00:00:00:00:00:02)"
    );
    let stranger = member(&index, "ecmp", 1, ActionBuilder::new(&index, "drop")).unwrap();
    assert_eq!(
        failure(check(&stranger.into(), &index, Purpose::Insert)).1,
        r#"table "Ingress.nexthop" has no action with id 0x01000002; valid: Ingress.forward"#
    );
    let zero = v1::ActionProfileMember { member_id: 0, ..one };
    check(&zero.into(), &index, Purpose::Insert).unwrap_err();

    let group = |members: &[(u32, i32)], size| {
        let group = member_group(&index, "ecmp", 5, members.iter().copied(), size).unwrap();
        check(&group.into(), &index, Purpose::Insert)
    };
    let good = group(&[(2, 1), (1, 3)], 16).unwrap();
    assert_eq!(describe(&good, Some(&index)), "Ingress.ecmp group 5 -> members [1×3, 2]");
    assert_eq!(
        failure(group(&[(1, 0)], 0)).1,
        r#"member 1 of group 5 of action profile "Ingress.ecmp": weight 0 is not above 0"#
    );
    group(&[(1, 1), (1, 1)], 0).unwrap_err();
    assert_eq!(
        failure(group(&[(1, 1)], 17)).1,
        r#"group 5 of action profile "Ingress.ecmp": max_size 17 is not in 0..=16"#
    );
}

#[test]
fn replication_entries_are_checked() {
    let index = index();
    let replica = |port: &[u8], instance| v1::Replica {
        port_kind: Some(v1::replica::PortKind::Port(port.to_vec())),
        instance,
        backup_replicas: Vec::new(),
    };
    let group = |id, replicas| {
        let entry = v1::MulticastGroupEntry { multicast_group_id: id, replicas, metadata: Vec::new() };
        check(&entry.into(), &index, Purpose::Insert)
    };
    let good = group(1, vec![replica(&[0, 2], 0), replica(&[1], 3)]).unwrap();
    assert_eq!(describe(&good, None), "multicast group 1 -> ports [1#3, 2]");
    assert_eq!(
        failure(group(1, vec![replica(&[2], 7), replica(&[0, 2], 7)])).1,
        "multicast group 1: has port 0x02 with instance 7 twice"
    );
    group(0, Vec::new()).unwrap_err();
    group(1, vec![v1::Replica::default()]).unwrap_err();
}

#[test]
fn packet_metadata_takes_every_field_once() {
    let index = index();
    let metadata =
        packet_metadata(&index, "packet_out", [("_pad", 0_u8.into()), ("egress_port", 300_u16.into())]);
    assert_eq!(
        metadata.unwrap(),
        [
            v1::PacketMetadata { metadata_id: 1, value: vec![1, 44] },
            v1::PacketMetadata { metadata_id: 2, value: vec![0] },
        ]
    );
    let missing = packet_metadata(&index, "packet_out", [("_pad", 0_u8.into())]);
    assert_eq!(failure(missing).1, r#"controller header "packet_out": lacks field "egress_port""#);
    let wrong = packet_metadata(&index, "packet_out", [("egress", 0_u8.into())]);
    assert_eq!(
        failure(wrong).1,
        r#"controller header "packet_out" has no field "egress"; valid: egress_port, _pad"#
    );
}

#[test]
fn entities_are_described_without_an_index_too() {
    let index = index();
    let entry = acl(&index).optional("vlan", 7_u8).action("Ingress.drop").insert().unwrap();
    assert_eq!(
        describe_update(&entry, Some(&index)),
        "INSERT Ingress.acl{vlan=7, ingress_port=3} priority 10 -> Ingress.drop()"
    );
    assert_eq!(
        describe_update(&entry, None),
        "INSERT table 0x02000001{#3=0x07, #4=0x03} priority 10 -> action 0x01000002()"
    );
}

#[test]
fn keys_tell_entities_apart_by_identity_alone() {
    let index = index();
    let drop = acl(&index).action("Ingress.drop").build().unwrap();
    let same =
        acl(&index).metadata(*b"x").action("Ingress.forward").param("port", 1_u8).param("dst_mac", 1_u8);
    assert_eq!(EntityKey::of(&drop.clone().into()), EntityKey::of(&same.build().unwrap().into()));
    let other = acl(&index).priority(11).action("Ingress.drop").build().unwrap();
    assert_ne!(EntityKey::of(&drop.into()), EntityKey::of(&other.into()));
    assert_eq!(EntityKey::of(&Entity::default()), None);
    let key = |element| EntityKey::of(&counter(&index, "bytes", Some(element)).unwrap().into());
    assert!(key(2) < key(10));
}

fn any_match() -> impl Strategy<Value = FieldMatch> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..18);
    let kind = prop_oneof![
        bytes().prop_map(|value| FieldMatchType::Exact(Exact { value })),
        (bytes(), any::<i32>())
            .prop_map(|(value, prefix_len)| FieldMatchType::Lpm(Lpm { value, prefix_len })),
        (bytes(), bytes()).prop_map(|(value, mask)| FieldMatchType::Ternary(Ternary { value, mask })),
        (bytes(), bytes()).prop_map(|(low, high)| FieldMatchType::Range(Range { low, high })),
        bytes().prop_map(|value| FieldMatchType::Optional(v1::field_match::Optional { value })),
    ];
    (0_u32..6, prop::option::of(kind))
        .prop_map(|(field_id, field_match_type)| FieldMatch { field_id, field_match_type })
}

proptest! {
    #[test]
    fn any_table_entry_is_accepted_or_refused_and_can_be_described(
        table in 0_u32..7,
        matches in prop::collection::vec(any_match(), 0..5),
        priority in -1_i32..3,
        action_id in 16_777_216_u32..16_777_221,
        value in prop::collection::vec(any::<u8>(), 0..9),
        is_default_action: bool,
    ) {
        let index = index();
        let action = v1::Action { action_id, params: vec![v1::action::Param { param_id: 1, value }] };
        let entry = TableEntry {
            table_id: 33_554_432 + table,
            r#match: matches,
            priority,
            is_default_action,
            action: Some(v1::TableAction { r#type: Some(v1::table_action::Type::Action(action)) }),
            ..TableEntry::default()
        };
        let entity = Entity::from(entry);
        let _ = (describe(&entity, Some(&index)), describe(&entity, None), EntityKey::of(&entity));
        for purpose in [Purpose::Insert, Purpose::Modify, Purpose::Delete, Purpose::Read] {
            if let Ok(checked) = check(&entity, &index, purpose) {
                // Canonical already: a second check changes nothing.
                prop_assert_eq!(check(&checked, &index, purpose).unwrap(), checked);
            }
        }
    }

    #[test]
    fn a_prefix_is_accepted_exactly_if_its_host_bits_are_zero(address: u32, prefix in 1_u32..=32) {
        let index = index();
        let built = TableEntryBuilder::new(&index, "nexthop").lpm("dst_addr", address, prefix).group(1).build();
        let host_bits = u64::from(address) & ((1_u64 << (32 - prefix)) - 1);
        prop_assert_eq!(built.is_ok(), host_bits == 0);
    }

    #[test]
    fn any_bytes_as_an_update_are_accepted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let index = index();
        if let Ok(update) = <v1::Update as prost::Message>::decode(bytes.as_slice()) {
            let _ = check_update(&update, &index);
            let _ = describe_update(&update, Some(&index));
        }
    }
}
