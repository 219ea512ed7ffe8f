// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::buffers::{alpha, limit_of};
use super::*;

/// A field as its YANG model has it.
#[derive(Clone, Copy)]
enum Kind {
    /// A whole number in a range.
    Number(i64, i64),
    /// One of these.
    Word(&'static [&'static str]),
    /// Either.
    NumberOr(i64, i64, &'static str),
    /// The name of a row of another table (leafref).
    Row(&'static str),
    /// A row of a table that the switch has already.
    Foreign,
    /// Rows of a table that the switch has already.
    Foreigns,
    /// Anything of a length.
    Text(usize),
    /// An IPv4 or IPv6 prefix.
    Prefix(bool),
    /// A leaf-list of these.
    Words(&'static [&'static str]),
    /// A name of a map or WRED profile: `[a-zA-Z0-9]{1}([-a-zA-Z0-9_]{0,31})`.
    Named,
}
use Kind::{Foreign, Foreigns, Named, Number, NumberOr, Prefix, Row, Text, Word, Words};

const BIG: i64 = i64::MAX;
const YES: &[&str] = &["true", "false"];

/// Tables, what their keys are made of (parts are divided by `|`), their fields, and those that are
/// mandatory. Read off sonic-net/sonic-buildimage at 086b03bd70f9, folder `src/sonic-yang-models`:
/// `yang-models/*.yang`, and for ACLs `yang-templates/sonic-acl.yang.j2` with
/// `sonic-types.yang.j2`.
type Model = (&'static str, &'static [Kind], &'static [(&'static str, Kind)], &'static [&'static str]);
const YANG: &[Model] = &[
    // sonic-trimming.yang
    (
        "SWITCH_TRIMMING",
        &[Word(&["GLOBAL"])],
        &[
            ("size", Number(0, u32::MAX as i64)),
            ("dscp_value", NumberOr(0, 63, "from-tc")),
            ("tc_value", Number(0, 255)),
            ("queue_index", NumberOr(0, 255, "dynamic")),
        ],
        &[],
    ),
    // sonic-buffer-profile.yang
    (
        "BUFFER_PROFILE",
        &[Text(255)],
        &[
            ("static_th", Number(0, BIG)),
            ("dynamic_th", Number(-8, 7)),
            ("size", Number(0, BIG)),
            ("pool", Foreign),
            ("packet_discard_action", Word(&["drop", "trim"])),
        ],
        &["size", "pool"],
    ),
    // sonic-buffer-queue.yang: qindex (1[0-5]|[0-9])((-)(1[0-5]|[0-9]))?
    ("BUFFER_QUEUE", &[Foreign, Number(0, 15)], &[("profile", Row("BUFFER_PROFILE"))], &[]),
    // sonic-scheduler.yang; cbs needs cir, pbs needs pir, pir ≥ cir, pbs ≥ cbs: checked below.
    (
        "SCHEDULER",
        &[Text(255)],
        &[
            ("type", Word(&["DWRR", "WRR", "STRICT"])),
            ("weight", Number(1, 100)),
            ("meter_type", Word(&["packets", "bytes"])),
            ("cir", Number(0, BIG)),
            ("pir", Number(0, BIG)),
            ("cbs", Number(0, u32::MAX as i64)),
            ("pbs", Number(0, u32::MAX as i64)),
        ],
        &[],
    ),
    // sonic-queue.yang
    (
        "QUEUE",
        &[Foreign, Number(0, 7)],
        &[("scheduler", Row("SCHEDULER")), ("wred_profile", Row("WRED_PROFILE"))],
        &[],
    ),
    // sonic-wred-profile.yang; max ≥ min: checked below.
    (
        "WRED_PROFILE",
        &[Named],
        &[
            ("green_min_threshold", Number(0, BIG)),
            ("green_max_threshold", Number(0, BIG)),
            ("yellow_min_threshold", Number(0, BIG)),
            ("yellow_max_threshold", Number(0, BIG)),
            ("red_min_threshold", Number(0, BIG)),
            ("red_max_threshold", Number(0, BIG)),
            ("ecn", Word(&["ecn_none", "ecn_green", "ecn_yellow", "ecn_red", "ecn_all"])),
            ("wred_green_enable", Word(YES)),
            ("wred_yellow_enable", Word(YES)),
            ("wred_red_enable", Word(YES)),
            ("green_drop_probability", Number(0, 100)),
            ("yellow_drop_probability", Number(0, 100)),
            ("red_drop_probability", Number(0, 100)),
        ],
        &[],
    ),
    // sonic-port-qos-map.yang
    (
        "PORT_QOS_MAP",
        &[Foreign],
        &[
            ("dscp_to_tc_map", Row("DSCP_TO_TC_MAP")),
            ("tc_to_queue_map", Row("TC_TO_QUEUE_MAP")),
            ("tc_to_dscp_map", Row("TC_TO_DSCP_MAP")),
        ],
        &[],
    ),
    // sonic-acl.yang.j2
    (
        "ACL_TABLE_TYPE",
        &[Text(255)],
        &[
            // Strings to YANG; the names are those that aclorch knows.
            (
                "MATCHES",
                Words(&[
                    "SRC_IP",
                    "DST_IP",
                    "SRC_IPV6",
                    "DST_IPV6",
                    "IP_PROTOCOL",
                    "L4_SRC_PORT",
                    "L4_DST_PORT",
                    "DSCP",
                ]),
            ),
            ("ACTIONS", Words(&["DISABLE_TRIM_ACTION"])),
            ("BIND_POINTS", Words(&["PORT", "PORTCHANNEL"])),
        ],
        &["MATCHES", "BIND_POINTS"],
    ),
    (
        "ACL_TABLE",
        &[Text(255)],
        &[
            ("policy_desc", Text(255)),
            ("type", Row("ACL_TABLE_TYPE")),
            ("stage", Word(&["ingress", "egress", "INGRESS", "EGRESS"])),
            ("ports", Foreigns),
        ],
        &["type"],
    ),
    (
        "ACL_RULE",
        &[Row("ACL_TABLE"), Text(255)],
        &[
            ("PRIORITY", Number(0, 999_999)),
            ("PACKET_ACTION", Word(&["DROP", "ACCEPT", "FORWARD", "REDIRECT", "DO_NOT_NAT", "DISABLE_TRIM"])),
            ("SRC_IP", Prefix(true)),
            ("DST_IP", Prefix(true)),
            ("SRC_IPV6", Prefix(false)),
            ("DST_IPV6", Prefix(false)),
            ("IP_PROTOCOL", Number(1, 143)),
            ("L4_SRC_PORT", Number(0, 65_535)),
            ("L4_DST_PORT", Number(0, 65_535)),
            ("DSCP", Number(0, 255)),
        ],
        &["PRIORITY"],
    ),
];

/// Maps: their fields are the keys of a list. sonic-dscp-tc-map.yang, sonic-tc-queue-map.yang,
/// sonic-tc-dscp-map.yang.
type Map = (&'static str, (i64, i64), (i64, i64));
const MAPS: &[Map] = &[
    ("DSCP_TO_TC_MAP", (0, 63), (0, 15)),
    ("TC_TO_QUEUE_MAP", (0, 15), (0, 9)),
    ("TC_TO_DSCP_MAP", (0, 15), (0, 63)),
];

fn fits(kind: Kind, value: &Field, export: &Export) -> bool {
    let whole = |text: &str, low: i64, high: i64| {
        text.parse::<i64>().is_ok_and(|number| (low..=high).contains(&number) && number.to_string() == text)
    };
    match (kind, value) {
        (Number(low, high), Field::Text(text)) => whole(text, low, high),
        (Word(words), Field::Text(text)) => words.contains(&text.as_str()),
        (NumberOr(low, high, word), Field::Text(text)) => text == word || whole(text, low, high),
        (Row(table), Field::Text(text)) => {
            export.config_db.get(table).is_some_and(|rows| rows.contains_key(text))
        }
        (Foreign, Field::Text(text)) => !text.is_empty(),
        (Foreigns, Field::List(list)) => !list.is_empty(),
        (Text(most), Field::Text(text)) => (1..=most).contains(&text.len()),
        (Prefix(ipv4), Field::Text(text)) => text.split_once('/').is_some_and(|(address, bits)| {
            let address: std::net::IpAddr = address.parse().expect("an address");
            address.is_ipv4() == ipv4 && whole(bits, 0, if ipv4 { 32 } else { 128 })
        }),
        (Words(words), Field::List(list)) => {
            !list.is_empty() && list.iter().all(|word| words.contains(&word.as_str()))
        }
        (Named, Field::Text(text)) => {
            text.len() <= 32
                && text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        }
        _ => false,
    }
}

pub(super) fn conforms(export: &Export) {
    for (table, rows) in &export.config_db {
        if let Some((_, keys, values)) = MAPS.iter().find(|(name, ..)| name == table) {
            for (name, fields) in rows {
                assert!(fits(Named, &Field::Text(name.clone()), export), "{table}|{name}");
                for (key, value) in fields {
                    assert!(
                        fits(Number(keys.0, keys.1), &Field::Text(key.clone()), export),
                        "{table}|{name} {key}"
                    );
                    assert!(
                        fits(Number(values.0, values.1), value, export),
                        "{table}|{name} {key} {value:?}"
                    );
                }
            }
            continue;
        }
        let Some((_, parts, known, mandatory)) = YANG.iter().find(|(name, ..)| name == table) else {
            panic!("no model of {table}");
        };
        for (key, fields) in rows {
            let key_parts: Vec<&str> = key.split('|').collect();
            assert_eq!(key_parts.len(), parts.len(), "{table}|{key}");
            for (part, kind) in key_parts.iter().zip(*parts) {
                assert!(fits(*kind, &Field::Text((*part).to_owned()), export), "{table}|{key}");
            }
            for (field, value) in fields {
                let Some((_, kind)) = known.iter().find(|(name, _)| name == field) else {
                    panic!("{table} has no field {field}");
                };
                assert!(fits(*kind, value, export), "{table}|{key} {field} {value:?}");
            }
            for field in *mandatory {
                assert!(fields.contains_key(*field), "{table}|{key} needs {field}");
            }
            must(table, key, fields);
        }
    }
}

/// The `must` statements between fields.
fn must(table: &str, key: &str, fields: &BTreeMap<String, Field>) {
    let number = |field: &str| match fields.get(field) {
        Some(Field::Text(text)) => text.parse::<u64>().ok(),
        _ => None,
    };
    match table {
        "SCHEDULER" => {
            assert!(
                number("pir").is_none() || number("pir") >= number("cir") && number("cir") > Some(0),
                "{key}"
            );
            assert!(number("cbs").is_none() || number("cir") > Some(0), "{key}");
            assert!(
                number("pbs").is_none() || number("pbs") >= number("cbs") && number("pir") > Some(0),
                "{key}"
            );
        }
        "WRED_PROFILE" => {
            for colour in ["green", "yellow", "red"] {
                let of = |bound| number(&format!("{colour}_{bound}_threshold"));
                assert!(of("max") >= of("min"), "{key}");
            }
        }
        "BUFFER_PROFILE" => {
            assert!(number("static_th").is_some() != fields.contains_key("dynamic_th"), "{key}");
        }
        _ => {}
    }
}

pub(super) const FABRIC: &str = "\
version: 1
switches:
  s1: { address: 127.0.0.1:9559, device_id: 1 }
  s2: { address: 127.0.0.1:9560, device_id: 2 }
hosts:
  h1: { ip: 10.0.0.1, ip6: \"fd00::1\", mac: \"02:00:00:00:00:01\" }
  h2: { ip: 10.0.0.2, mac: \"02:00:00:00:00:02\" }
links:
  - { a: h1, b: \"s1:1\", speed: 10Gbps }
  - { a: \"s1:2\", b: \"s2:2\", speed: 100Gbps }
  - { a: h2, b: \"s2:1\", speed: 10Gbps }
";

fn exported(more: &str, platform: &Platform) -> Export {
    let fabric = Fabric::from_yaml(&format!("{FABRIC}{more}"), "fabric.yaml")
        .unwrap_or_else(|error| panic!("{error}"));
    let export = export(&fabric, "s1", platform).unwrap();
    conforms(&export);
    export
}

fn text<'e>(export: &'e Export, table: &str, key: &str, field: &str) -> &'e str {
    match &export.config_db[table][key][field] {
        Field::Text(text) => text,
        Field::List(list) => panic!("{list:?}"),
    }
}

/// What notes of a kind say of a knob's way into a field.
fn messages<'e>(export: &'e Export, fidelity: Fidelity, knob: &str, field: &str) -> Vec<&'e str> {
    let about =
        |note: &&Note| note.fidelity == fidelity && note.knob == knob && note.sonic.starts_with(field);
    export.notes.iter().filter(about).map(|note| note.message.as_str()).collect()
}

fn said(export: &Export, fidelity: Fidelity, knob: &str) -> bool {
    export.notes.iter().any(|note| note.fidelity == fidelity && note.knob.contains(knob))
}

#[test]
fn a_symmetric_policy_is_the_hld_s_first_sample() {
    let export = exported("policy: { shallow_at: 30us, shallow_size: 256B }\n", &Platform::default());
    let trimming = |field| text(&export, "SWITCH_TRIMMING", "GLOBAL", field);
    assert_eq!([trimming("size"), trimming("dscp_value"), trimming("queue_index")], ["256", "35", "6"]);
    assert!(!export.config_db["SWITCH_TRIMMING"]["GLOBAL"].contains_key("tc_value"));
    assert!(!export.config_db.contains_key("TC_TO_DSCP_MAP"));
    // 30 us of 10 and of 100 Gbit/s, each queue with the port's own.
    for (port, bytes) in [("Ethernet1", 37_500), ("Ethernet2", 375_000)] {
        for queue in [5, 4, 3, 2] {
            let profile = text(&export, "BUFFER_QUEUE", &format!("{port}|{queue}"), "profile");
            assert_eq!(text(&export, "BUFFER_PROFILE", profile, "static_th"), bytes.to_string());
            assert_eq!(text(&export, "BUFFER_PROFILE", profile, "packet_discard_action"), "trim");
        }
        for queue in [7, 6, 0] {
            let profile = text(&export, "BUFFER_QUEUE", &format!("{port}|{queue}"), "profile");
            assert_eq!(text(&export, "BUFFER_PROFILE", profile, "packet_discard_action"), "drop");
        }
    }
    // The sample's size keeps less than the signs over IPv6.
    assert!(said(&export, Fidelity::Near, "policy.shallow_size"));
}

#[test]
fn code_points_that_differ_by_port_are_the_hld_s_asymmetric_sample() {
    let export = exported("dscp: { trimmed_last_hop: 43 }\n", &Platform::default());
    let trimming = |field| text(&export, "SWITCH_TRIMMING", "GLOBAL", field);
    assert_eq!(trimming("dscp_value"), "from-tc");
    let tc = trimming("tc_value");
    // Queue 1 is nobody's: traffic class 1 is that of packets trimmed here, and no others are
    // remarked.
    assert_eq!(tc, "1");
    assert_eq!(text(&export, "TC_TO_QUEUE_MAP", "TRIMWIRE", tc), "6");
    assert!((0..64).all(|dscp| text(&export, "DSCP_TO_TC_MAP", "TRIMWIRE", &dscp.to_string()) != tc));
    for (port, dscp) in [("Ethernet1", "43"), ("Ethernet2", "35")] {
        let map = text(&export, "PORT_QOS_MAP", port, "tc_to_dscp_map").to_owned();
        assert_eq!(export.config_db["TC_TO_DSCP_MAP"][&map].len(), 1);
        assert_eq!(text(&export, "TC_TO_DSCP_MAP", &map, tc), dscp);
    }
}

#[test]
fn every_code_point_leads_to_its_queue() {
    let export = exported("", &Platform::default());
    for (dscp, queue) in [
        (3, "5"),
        (7, "4"),
        (11, "3"),
        (15, "2"),
        (19, "5"),
        (31, "2"),
        (35, "6"),
        (39, "7"),
        (0, "0"),
        (1, "0"),
    ] {
        let tc = text(&export, "DSCP_TO_TC_MAP", "TRIMWIRE", &dscp.to_string());
        assert_eq!(text(&export, "TC_TO_QUEUE_MAP", "TRIMWIRE", tc), queue, "{dscp}");
    }
}

#[test]
fn the_trim_queue_is_shaped_to_its_cap_in_bytes_per_second() {
    let export = exported(
        "policy: { trim_cap: 40%, ports: { \"s1:2\": { trim_cap: never } } }\n",
        &Platform::default(),
    );
    let scheduler = text(&export, "QUEUE", "Ethernet1|6", "scheduler");
    assert_eq!(text(&export, "SCHEDULER", scheduler, "pir"), "500000000", "40 % of 10 Gbit/s");
    assert_eq!(text(&export, "SCHEDULER", scheduler, "type"), "STRICT");
    assert_eq!(text(&export, "QUEUE", "Ethernet2|6", "scheduler"), "trimwire_strict");
}

#[test]
fn opt_outs_and_droppable_packets_are_rules_that_disable_trimming() {
    let rules = "\
disable_trim:
  - { src: h1, dst_port: 4791 }
  - { dst: 10.0.0.0/24, protocol: udp }
  - { protocol: 200 }
  - { src_port: 7, switches: [s2] }
dscp: { droppable: [19] }
";
    let export = exported(rules, &Platform::default());
    let rows: Vec<(&str, Vec<(&str, &str)>)> = export.config_db["ACL_RULE"]
        .iter()
        .map(|(key, fields)| {
            let of =
                fields.iter().filter(|(field, _)| !["PRIORITY", "PACKET_ACTION"].contains(&field.as_str()));
            let of = of.map(|(field, _)| (field.as_str(), text(&export, "ACL_RULE", key, field)));
            (key.split('|').next().unwrap(), of.collect())
        })
        .collect();
    for expected in [
        ("TRIMWIRE_V4", vec![("L4_DST_PORT", "4791"), ("SRC_IP", "10.0.0.1/32")]),
        ("TRIMWIRE_V6", vec![("L4_DST_PORT", "4791"), ("SRC_IPV6", "fd00::1/128")]),
        ("TRIMWIRE_V4", vec![("DST_IP", "10.0.0.0/24"), ("IP_PROTOCOL", "17")]),
        ("TRIMWIRE_V4", vec![("DSCP", "19")]),
        ("TRIMWIRE_V6", vec![("DSCP", "19")]),
    ] {
        assert!(rows.contains(&expected), "{expected:?} in {rows:?}");
    }
    assert_eq!(rows.len(), 5);
    assert!(said(&export, Fidelity::Missing, "disable_trim[2]"), "protocol 200 is no SONiC rule's");
}

#[test]
fn without_trimming_wred_drops_and_marks_as_mlt_has_it() {
    let export = exported(
        "policy: { trim: off, selective_drop: on, less_important: { shallow_at: 8us } }\n",
        &Platform::default(),
    );
    assert!(!export.config_db.contains_key("SWITCH_TRIMMING") && !export.config_db.contains_key("ACL_RULE"));
    let profile = text(&export, "QUEUE", "Ethernet1|5", "wred_profile");
    for bound in ["green_min_threshold", "green_max_threshold"] {
        assert_eq!(text(&export, "WRED_PROFILE", profile, bound), "10000", "8 us of 10 Gbit/s");
    }
    assert_eq!(text(&export, "WRED_PROFILE", profile, "ecn"), "ecn_all");
    assert!(
        export.config_db["BUFFER_PROFILE"]
            .values()
            .all(|profile| { profile["packet_discard_action"] == Field::Text("drop".to_owned()) })
    );
    let plain = exported("policy: { trim: off }\n", &Platform::default());
    assert!(!plain.config_db.contains_key("WRED_PROFILE"));
}

#[test]
fn trimmable_queues_are_marked_on_request_only() {
    let plain = exported("", &Platform::default());
    assert!(
        !plain.config_db.contains_key("WRED_PROFILE") && said(&plain, Fidelity::Missing, "policy.mark_at")
    );
    let marked = exported("", &Platform { mark_trimmable: true, ..Platform::default() });
    assert_eq!(text(&marked, "QUEUE", "Ethernet1|5", "wred_profile"), "trimwire_mark_25000");
}

#[test]
fn what_sonic_lacks_is_said() {
    let export = exported(
        "policy: { shallow_size: 300B, deep_size: 118B, queues: { class0: { shallow_size: 200B } } }\n",
        &Platform::default(),
    );
    assert_eq!(text(&export, "SWITCH_TRIMMING", "GLOBAL", "size"), "200");
    for (fidelity, knob) in [
        (Fidelity::Missing, "deep_at"),
        (Fidelity::Missing, "important"),
        (Fidelity::Missing, "drop_at"),
        (Fidelity::Near, "shallow_size"),
        (Fidelity::Near, "shallow_at"),
        (Fidelity::Check, "queues.trimmed"),
        (Fidelity::Check, "links"),
    ] {
        assert!(said(&export, fidelity, knob), "{fidelity:?} {knob}: {:?}", export.notes);
    }
    assert!(export.notes.is_sorted_by_key(|note| note.fidelity), "the worst first");
}

/// α is at least 2⁻⁸, which of 32 MB is 125 KB: five times what one class asks for, ten times what
/// the other does.
#[test]
fn what_a_dynamic_threshold_becomes_is_said_in_bytes_and_is_a_warning_where_it_is_far_from_the_file() {
    let dynamic =
        |pool_size| Platform { thresholds: Thresholds::Dynamic { pool_size }, ..Platform::default() };
    let policy = "policy: { mark_at: 10KB, shallow_at: 25KB, drop_at: 400KB, trim_limit: 50KB, queues: { class0: { shallow_at: 12500 }, \
                  control: { drop_at: 200KB } } }\n";
    let field = "BUFFER_PROFILE.dynamic_th";
    let large = exported(policy, &dynamic(32_000_000));
    let near = messages(&large, Fidelity::Near, "policy.shallow_at", field);
    let [near] = near[..] else { panic!("{near:?}") };
    assert!(
        near.ends_with(
            ": class0 12500 → about 125000 B (α = 2^-8, the least); class1, class2, class3 25000 → about 125000 B (α = 2^-8, the least)"
        ),
        "{near}"
    );
    let lost = messages(&large, Fidelity::Missing, "policy.shallow_at", field);
    let [far, alike] = lost[..] else { panic!("{lost:?}") };
    assert!(far.starts_with("more than twice what the file says"), "{far}");
    assert!(
        far.contains("class0 12500 → about 125000 B") && far.contains("125000 to 31800000 bytes"),
        "{far}"
    );
    assert_eq!(
        alike,
        "these differ in the file and are the same on the switch, about 125000 B (α = 2^-8): class0 12500; class1, class2, class3 25000"
    );
    let lost = messages(&large, Fidelity::Missing, "policy.trim_limit", field);
    assert!(matches!(lost[..], [far] if far.contains("trimmed 50000 → about 125000 B")), "{lost:?}");
    assert_eq!(
        messages(&large, Fidelity::Missing, "policy.drop_at", field),
        [""; 0],
        "powers between are near"
    );

    // Where a power of two is near each of them, and they get different ones, there is nothing to
    // warn of.
    let small = exported(policy, &dynamic(1_000_000));
    let near = messages(&small, Fidelity::Near, "policy.shallow_at", field);
    assert!(
        matches!(near[..], [near] if near.contains("class0 12500 → about 15400 B (α = 2^-6);")),
        "{near:?}"
    );
    for knob in ["policy.shallow_at", "policy.drop_at", "policy.trim_limit"] {
        assert_eq!(messages(&small, Fidelity::Missing, knob, field), [""; 0], "{knob}");
    }

    // In bytes there is nothing to lose, and without a limit nothing to miss.
    let exact = exported(policy, &Platform::default());
    assert!(exact.notes.iter().all(|note| !note.sonic.starts_with(field)));
    let never = exported("policy: { trim: off, drop_at: never }\n", &dynamic(32_000_000));
    let lost = messages(&never, Fidelity::Missing, "policy.drop_at", field);
    assert!(lost.iter().all(|message| !message.contains(&u32::MAX.to_string())), "{lost:?}");
}

#[test]
fn a_fabric_of_many_speeds_has_the_first_of_its_limits_in_a_note_and_a_count() {
    let link = |port: u16| format!("  - {{ a: \"s1:{port}\", b: \"s2:{port}\", speed: {port}Gbps }}\n");
    let links: Vec<String> = (3..40).map(link).collect();
    let platform = Platform { thresholds: Thresholds::Dynamic { pool_size: 1 << 25 }, ..Platform::default() };
    let export = exported(&links.concat(), &platform);
    let near = messages(&export, Fidelity::Near, "policy.trim_limit", "BUFFER_PROFILE.dynamic_th");
    assert!(matches!(near[..], [near] if near.ends_with("; … and 26 more")), "{near:?}");
}

#[test]
fn a_size_is_what_the_chip_takes_and_is_exact_where_that_is_known_only() {
    for (asic, size, written, fidelity) in [
        (Asic::Spectrum4, "512B", "512", Fidelity::Exact),
        (Asic::Spectrum4, "3 planes", "604", Fidelity::Exact),
        (Asic::Spectrum4, "200B", "256", Fidelity::Near),
        (Asic::Spectrum4, "1100B", "1024", Fidelity::Near),
        (Asic::Th5 { queue: 9 }, "206B", "206", Fidelity::Near),
        (Asic::Th5 { queue: 9 }, "1024B", "206", Fidelity::Near),
        (Asic::Unknown, "512B", "512", Fidelity::Check),
    ] {
        let platform = Platform { asic, ..Platform::default() };
        let export = exported(&format!("policy: {{ shallow_size: {size} }}\n"), &platform);
        assert_eq!(text(&export, "SWITCH_TRIMMING", "GLOBAL", "size"), written, "{asic:?} {size}");
        let said = messages(&export, fidelity, "policy.shallow_size", "SWITCH_TRIMMING.size");
        assert_eq!(said.len(), 1, "{asic:?} {size}: {:?}", export.notes);
        let signs = said[0].contains("Signs of packets of eight planes take 260 bytes");
        assert_eq!(signs, written.parse::<u16>().unwrap() < 260, "{asic:?} {size}: {said:?}");
    }
}

#[test]
fn a_chip_s_own_trim_queue_takes_the_place_of_the_file_s() {
    let th5 = |queue: u8| Platform { asic: Asic::Th5 { queue }, ..Platform::default() };
    let export = exported("", &th5(9));
    assert_eq!(text(&export, "SWITCH_TRIMMING", "GLOBAL", "queue_index"), "9");
    assert_eq!(text(&export, "TC_TO_QUEUE_MAP", "TRIMWIRE", "9"), "9");
    assert!(export.config_db["BUFFER_QUEUE"].contains_key("Ethernet1|9"));
    assert!(!export.config_db["QUEUE"].contains_key("Ethernet1|9"));
    assert!(said(&export, Fidelity::Near, "queues.trimmed") && said(&export, Fidelity::Missing, "trim_cap"));
    // Some models have 4, which is a class of the default plan.
    let export = exported("", &th5(4));
    assert_eq!(text(&export, "SWITCH_TRIMMING", "GLOBAL", "queue_index"), "4");
    assert!(said(&export, Fidelity::Missing, "queues.trimmed"), "{:?}", export.notes);
    let moved = "queues: { trimmed: 4, classes: [5, 3, 2, 1] }\n";
    assert!(said(&exported(moved, &th5(4)), Fidelity::Near, "queues.trimmed"));
}

#[test]
fn wrong_names_are_reported_with_the_valid_ones() {
    let fabric = Fabric::from_yaml(FABRIC, "fabric.yaml").unwrap();
    let error = |switch: &str, ports: &[(u16, &str)]| {
        let ports = ports.iter().map(|(port, name)| (*port, (*name).to_owned())).collect();
        export(&fabric, switch, &Platform { ports, ..Platform::default() }).unwrap_err().to_string()
    };
    assert_eq!(error("s3", &[]), "no switch 's3' in fabric.yaml; did you mean 's1'? (valid: s1, s2)");
    assert_eq!(
        error("s1", &[(9, "Ethernet9")]),
        "--platform-ports: no link of the file ends at port 9 of s1; linked are 1, 2"
    );
    assert_eq!(
        error("s1", &[(1, "Ethernet2")]),
        "ports 1 and 2 are both named Ethernet2; name them with --platform-ports"
    );
}

proptest! {
    /// The limit that a power of two gives a lone queue, against the limit asked for: no other
    /// power is nearer in ratio.
    #[test]
    fn the_dynamic_threshold_is_the_nearest_power(limit in 1_u64..1 << 30, pool in 1_u64..1 << 32) {
        let found = alpha(limit, pool);
        prop_assert!((-8..=7).contains(&found));
        if limit < pool {
            let wanted = (limit as f64 / (pool - limit) as f64).log2();
            for other in -8..=7 {
                let (distance, of_other) = ((wanted - f64::from(found)).abs(), (wanted - f64::from(other)).abs());
                prop_assert!(distance <= of_other + 1e-9);
            }
        }
    }

    /// A byte of rounding on either side of α (pool − limit) = limit.
    #[test]
    fn a_lone_queue_takes_its_share_of_what_is_free(exponent in -8_i32..=7, pool in 1_u64..1 << 40) {
        let limit = limit_of(exponent, pool);
        let share = 2_f64.powi(exponent);
        prop_assert!(limit <= pool);
        prop_assert!((limit as f64 - share * (pool - limit) as f64).abs() <= 1.0 + share);
    }

    #[test]
    fn any_policy_gives_rows_that_the_yang_models_take(
        shallow in 0_u64..2_000_000, room in 1_u64..2_000_000, size in 116_u64..1000, cap in 1_u32..=100, pool in 1_u64..1 << 33,
        dynamic: bool, mark: bool, last_hop: bool,
    ) {
        let more = format!(
            "dscp: {{ trimmed_last_hop: {} }}\npolicy: {{ mark_at: 0, shallow_at: {shallow}, drop_at: {}, shallow_size: {size}B, trim_cap: {cap}% }}\n",
            if last_hop { "43" } else { "~" },
            shallow + room
        );
        let thresholds = if dynamic { Thresholds::Dynamic { pool_size: pool } } else { Thresholds::Static };
        exported(&more, &Platform { thresholds, mark_trimmable: mark, ..Platform::default() });
    }
}

/// The documentation's table of knobs has every table that is written.
#[test]
fn the_documentation_names_every_table() {
    let documentation = include_str!("../../../../docs/how-to/sonic.md");
    let tables = YANG.iter().map(|(name, ..)| *name).chain(MAPS.iter().map(|(name, ..)| *name));
    for table in tables {
        assert!(documentation.contains(table), "docs/how-to/sonic.md does not mention {table}");
    }
}
