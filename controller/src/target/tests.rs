// SPDX-License-Identifier: Apache-2.0
use prost::Message;
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::packet_replication_engine_entry::Type as Pre;

use super::*;
use crate::program::Artifacts;

/// One switch of a kind, with two hosts, for its conversions; files are not looked at.
pub(super) fn fabric(target: &str, policy: &str) -> Fabric {
    let files = if target.starts_with("stratum") {
        ", pipeline: { p4info: a, bfrt: b, context: c, binary: d }"
    } else {
        ""
    };
    let text = format!(
        "version: 1
switches: {{ s1: {{ address: 127.0.0.1:1, device_id: 1, target: {target}{files} }} }}
hosts:
  h1: {{ ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }}
  h2: {{ ip: 10.0.0.2, mac: \"02:00:00:00:00:02\" }}
links:
  - {{ a: h1, b: \"s1:4\", speed: 10Gbps }}
  - {{ a: h2, b: \"s1:5\", speed: 10Gbps }}
{policy}"
    );
    Fabric::from_yaml(&text, "f.yaml").unwrap_or_else(|error| panic!("{error}"))
}

const POLICY: &str = "policy: { mark_at: 1000B, shallow_at: 10000B, deep_at: 30001B, drop_at: never, shallow_size: 510B, deep_size: 118B }\n";

/// Class 0, important.
fn class0(fabric: &Fabric) -> crate::model::QueuePolicy {
    let target = fabric.switches["s1"].target;
    target.convert(&fabric.policies["s1"], &fabric.queues)[&4].queues[&5][1]
}

#[test]
fn bytes_stay_bytes_where_the_program_counts_them() {
    for target in ["trimwire", "bmv2"] {
        let values = class0(&fabric(target, POLICY));
        assert_eq!(
            [values.mark_at, values.shallow_at, values.deep_at, values.drop_at],
            [1000, 10_000, 30_001, u32::MAX]
        );
        assert_eq!((values.shallow_size, values.deep_size), (510, 118));
    }
}

#[test]
fn a_meters_thresholds_are_whole_kilobits() {
    let values = class0(&fabric("stratum-tofino", POLICY));
    // 10,000 bytes are 80 kbit; 30,001 are 240.008.
    assert_eq!((values.shallow_at, values.deep_at), (10_000, 30_000));
}

#[test]
fn a_cell_is_not_full_before_its_last_byte_is_asked_for_and_lengths_are_what_sessions_have() {
    let values = class0(&fabric("stratum-tofino2", POLICY));
    // 1000 / 176 = 5.7, 10,000 / 176 = 56.8, 30,001 / 176 = 170.5.
    assert_eq!([values.mark_at, values.shallow_at, values.deep_at, values.drop_at], [6, 57, 171, u32::MAX]);
    assert_eq!((values.shallow_size, values.deep_size), (480, 96));
}

#[test]
fn what_a_target_cannot_do_is_said_before_it_is_tried() {
    let warnings = fabric("stratum-tofino", POLICY).warnings.join("\n");
    assert!(
        warnings.contains(
            "f.yaml:2: switches.s1: Tofino 1's meters have two thresholds: packets are marked at shallow_at and what is not \
             trimmed is dropped at deep_at (at port 4: 10000 and 30001 bytes), whatever mark_at and drop_at say"
        ),
        "{warnings}"
    );
    assert!(
        warnings.contains("puts what Tofino 1 has trimmed into queue 0, and not into queue 6"),
        "{warnings}"
    );
    let moved = fabric("stratum-tofino", "queues: { trimmed: 0, best_effort: 6 }\n").warnings.join("\n");
    assert!(!moved.contains("into queue 0"), "{moved}");
    let uneven = "policy: { queues: { class0: { deep_size: 1 plane }, class1: { deep_size: 2 planes } } }\n";
    let warnings = fabric("stratum-tofino", uneven).warnings.join("\n");
    assert!(
        warnings.contains("all queues of a port trim to the same sizes: port 4 to 584 and 412 bytes"),
        "{warnings}"
    );
    let warnings = fabric("stratum-tofino2", POLICY).warnings.join("\n");
    assert!(
        warnings.contains("Tofino 2 trims to multiples of 32 bytes: to 480 instead of 510"),
        "{warnings}"
    );
    let sealed = "policy: { sealed: on, shallow_size: 3 planes }\n";
    let warnings = fabric("stratum-tofino2", sealed).warnings.join("\n");
    assert!(
        warnings.contains("to 576 instead of 592; of a sealed packet that may trim off the tag"),
        "{warnings}"
    );
    let warnings = fabric("bmv2", "policy: { drop_at: 200000B }\n").warnings.join("\n");
    // 64 × 1444 bytes; 200,000 / 60 = 3333.3.
    assert!(
        warnings.contains("64 packets (92416 bytes of full ones)")
            && warnings.contains("set_queue_depth 3334"),
        "{warnings}"
    );
    // 64 × 240 bytes; 20,000 / 240 = 83.3.
    let warnings = fabric("bmv2", "policy: { drop_at: 85000B, trim_limit: 20000B }\n").warnings.join("\n");
    assert!(
        warnings.contains("(15360 bytes of the most deeply trimmed)")
            && warnings.contains("set_queue_depth 84"),
        "{warnings}"
    );
    assert_eq!(
        fabric("bmv2", "policy: { drop_at: 85000B, trim_limit: 6000B }\n").warnings,
        Vec::<String>::new()
    );
}

#[test]
fn a_cap_that_no_table_holds_is_a_step_for_a_person() {
    let steps = manual_steps(&fabric("stratum-tofino", "policy: { trim_cap: 40%, trim_limit: 50us }\n"));
    assert_eq!(steps.len(), 4);
    let limits = "s1:4: bound queues in the traffic manager, in cells of 80 bytes: 5 to ";
    assert!(steps[0].starts_with(limits) && steps[0].contains("have to be deflected"), "{steps:?}");
    assert!(
        steps[2].starts_with(
            "s1:4: set the maximum rate of queue 6 in the traffic manager to 4000000 kbit/s (40% of 10Gbps), burst 62500 bytes"
        ),
        "{steps:?}"
    );
    assert!(manual_steps(&fabric("trimwire", "")).is_empty());
    assert!(manual_steps(&fabric("stratum-tofino2", "policy: { trim_cap: never }\n")).is_empty());
}

/// `stratum/hal/lib/barefoot/bf.proto`, field by field, by hand.
#[test]
fn the_device_config_is_stratums_message() {
    let config = stratum_device_config(("prog", "pipe", &[0, 1]), b"{}".to_vec(), b"[]".to_vec(), vec![0xff]);
    let mut expected = vec![0x0a, 4];
    expected.extend(b"prog"); // 1: p4_name
    expected.extend([0x12, 2]);
    expected.extend(b"{}"); // 2: bfruntime_info
    let mut profile = vec![0x0a, 4];
    profile.extend(b"pipe"); // 1: profile_name
    profile.extend([0x12, 2]);
    profile.extend(b"[]"); // 2: context
    profile.extend([0x1a, 1, 0xff]); // 3: binary
    profile.extend([0x22, 2, 0, 1]); // 4: pipe_scope, packed
    expected.extend([0x1a, profile.len() as u8]); // 3: profiles
    expected.extend(profile);
    assert_eq!(config, expected);
}

#[test]
fn a_session_has_one_replica_with_a_numeric_port_and_its_length_counts_the_mirror_header() {
    let session = stratum::session(9, 4, 412, 6);
    // session_id = 1, replicas = 2 { egress_port = 1 }, class_of_service = 3, packet_length_bytes =
    // 4; numbers of p4runtime.proto.
    let Some(Kind::PacketReplicationEngineEntry(entry)) = session.entity else { panic!() };
    let Some(Pre::CloneSessionEntry(session)) = entry.r#type else { panic!() };
    assert_eq!(session.encode_to_vec(), [0x08, 9, 0x12, 2, 0x08, 4, 0x18, 6, 0x20, 0xa8, 0x03]);
}

/// The compiler pads fields marked `@flexible` to bytes, but for what it packs together; the
/// program's own words say what it made of them.
#[test]
fn the_mirror_header_is_as_long_as_the_program_says_and_holds_its_fields() {
    let source = include_str!("../../../p4/tofino/headers.p4");
    let header = source.split("header trim_t {").nth(1).and_then(|text| text.split('}').next()).unwrap();
    let bits: u16 = header
        .split("bit<")
        .skip(1)
        .map(|text| text.split('>').next().unwrap().parse::<u16>().unwrap())
        .sum();
    assert_eq!(bits.div_ceil(8), 12, "{header}");
    assert_eq!(stratum::MIRROR_HEADER, bits.div_ceil(8));
}

#[test]
fn a_p4info_of_another_architecture_is_refused_with_the_line_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let embedded = Artifacts::embedded().unwrap();
    for (name, content) in
        [("a", embedded.p4info().to_text().as_bytes()), ("b", b"{}"), ("c", b"{"), ("d", b"x")]
    {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let fabric = fabric("stratum-tofino", "");
    let refused =
        |fabric: &Fabric| embedded.clone().for_fabric(fabric, folder.path()).unwrap_err().to_string();
    let found = refused(&fabric);
    assert!(found.starts_with("f.yaml:2: switches.s1.pipeline.context: 'c' is not JSON"), "{found}");
    std::fs::write(folder.path().join("c"), "{}").unwrap();
    assert_eq!(
        refused(&fabric),
        "f.yaml:2: switches.s1.pipeline: the P4Info is of a program for v1model; stratum-tofino runs programs for tna"
    );
    std::fs::remove_file(folder.path().join("d")).unwrap();
    let found = refused(&fabric);
    assert!(found.contains("f.yaml:2: switches.s1.pipeline.binary: 'd' cannot be read"), "{found}");
    // And one that fits is taken, for this switch alone.
    std::fs::write(folder.path().join("d"), "x").unwrap();
    let text = embedded.p4info().to_text().replace("arch: \"v1model\"", "arch: \"tna\"");
    std::fs::write(folder.path().join("a"), text).unwrap();
    let programs = embedded.clone().for_fabric(&fabric, folder.path()).unwrap();
    assert_ne!(programs.of("s1").cookie(), embedded.cookie());
    assert_eq!(programs.of("s2").cookie(), embedded.cookie());
    assert!(programs.of("s1").device_config().starts_with(b"\x0a\x08trimwire"));
}

#[test]
fn every_session_of_every_port_is_ours_and_within_what_stratum_takes() {
    let ports = Target::StratumTofino.ports();
    let last = u32::from(*ports.end()) * 2 + 2;
    assert_eq!((*stratum_tofino::SESSIONS.start(), *stratum_tofino::SESSIONS.end()), (1, last));
    // kMaxCloneSessionId of bfrt_constants.h.
    assert!(last <= 1015);
}
