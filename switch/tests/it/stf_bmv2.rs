// SPDX-License-Identifier: Apache-2.0
//! The program's STF files say what BMv2 does: some of them on `simple_switch_grpc`, where it is
//! installed.

use crate::bmv2_support::observed::{assert_same, frame_line, ours};
use crate::bmv2_support::{Case, Write, bmv2_is_installed, switch};
use crate::ladder_support::stf_folder;
use std::path::PathBuf;
use trimwire_switch::stf::{self, Command, Script};
use trimwire_switch::{Switch, SwitchConfig};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4");
/// One for each thing that can become of a packet; BMv2 takes seconds for each.
const FILES: [(&str, &str); 9] = [
    ("stf-deep", "at-deep-at-it-is-trimmed-to-deep-size"),
    ("stf-one-byte", "one-byte-more-trimmed"),
    ("stf-trim-queue", "trim-queue-full-drop-at-reached-dropped"),
    ("stf-room", "trim-queue-full-drop-at-not-reached-admitted-whole"),
    ("stf-claim", "a-host-port-that-claims-control-is-best-effort"),
    ("stf-mark", "not-trimmable-at-mark-at-ect-is-marked"),
    ("stf-tunnel", "trimmed-to-shallow-size-of-the-inner-frame"),
    ("stf-tunnel-head", "never-trimmed-inside-the-inner-head"),
    ("stf-extensions", "three-extension-headers-part-of-the-head"),
];

/// What a file writes, read back from our switch after it has run there.
fn writes(switch: &mut Switch) -> Vec<Write> {
    let control = switch.pipeline().unwrap().control();
    let members = control.members("Ingress.ecmp").unwrap();
    let mut writes: Vec<Write> =
        members.into_iter().map(|member| Write::Member("Ingress.ecmp", member.id, member.call)).collect();
    for table in ["ipv4_route", "ipv6_route", "classify", "trust", "queue_policy.policy"] {
        let table = format!("Ingress.{table}");
        let rows = control.table_entries(&table).unwrap();
        writes.extend(rows.into_iter().map(|row| Write::Entry(table.clone(), row.entry)));
    }
    writes
}

fn case(name: &'static str, script: &Script) -> Case {
    let json = PathBuf::from(format!("{FOLDER}/build/bmv2/trimwire.json"));
    let mut switch = Switch::new(SwitchConfig::default());
    switch.load_pipeline(&std::fs::read(&json).unwrap()).unwrap();
    assert!(stf::run(script, &mut switch).unwrap().passed());
    let frames = script.statements.iter().filter_map(|statement| match &statement.command {
        Command::Packet { port, data } => Some((*port, data.clone())),
        _ => None,
    });
    Case {
        name,
        p4info: json.with_extension("p4info.txtpb"),
        json,
        writes: writes(&mut switch),
        frames: frames.collect(),
        packet_outs: Vec::new(),
    }
}

fn holds_on_bmv2(name: &'static str, file: &str) {
    let text = std::fs::read_to_string(stf_folder().join(format!("{file}.stf"))).unwrap();
    let script = Script::parse(&text).unwrap();
    let case = case(name, &script);
    let bmv2 = switch::bmv2(&case);
    let mut expected: Vec<String> = script
        .statements
        .iter()
        .filter_map(|statement| match &statement.command {
            Command::Expect { port, pattern: Some(pattern) } => {
                Some(format!("{}{}", frame_line(*port, &[]), pattern.to_string().trim_end_matches('$')))
            }
            _ => None,
        })
        .collect();
    expected.sort();
    let sent: Vec<String> = bmv2.iter().filter(|line| line.starts_with("out ")).cloned().collect();
    assert_eq!(sent, expected, "{file}: BMv2's frames");
    assert_same(file, &ours(&case), &bmv2);
}

#[test]
fn the_stf_files_hold_on_bmv2() {
    if !bmv2_is_installed() {
        eprintln!("SKIPPED: there is no simple_switch_grpc to run STF files on");
        return;
    }
    std::thread::scope(|scope| {
        for (name, file) in FILES {
            scope.spawn(move || holds_on_bmv2(name, file));
        }
    });
}
