// SPDX-License-Identifier: Apache-2.0
//! The command `trimwire-switch stf`: exit codes and what it prints.

use crate::ladder_support::stf_folder;
use std::path::PathBuf;
use std::process::{Command, Output};

const JSON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.json");
const P4INFO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.p4info.txtpb");

/// A file that passes.
fn trimmed() -> String {
    stf_folder().join("at-deep-at-it-is-trimmed-to-deep-size.stf").to_str().unwrap().to_owned()
}

fn stf(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_trimwire-switch")).arg("stf").args(arguments).output().unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("trimwire-{}-{name}.stf", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn exit_codes_tell_pass_difference_usage_and_bad_input_apart() {
    let (code, out, _) = stf(&["--json", JSON, &trimmed()]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("pass"), "{out}");

    let wrong =
        file("wrong", &std::fs::read_to_string(trimmed()).unwrap().replace("expect 1 02", "expect 1 03"));
    let (code, out, _) = stf(&["--json", JSON, wrong.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("differs from byte 0") && out.contains("FAIL"), "{out}");

    assert_eq!(stf(&["--json", JSON]).0, Some(2));
    assert_eq!(stf(&[&trimmed()]).0, Some(2));

    let typo = file("typo", "\nexcept 1\n");
    let typo_name = typo.to_str().unwrap();
    for (arguments, words) in [
        (vec!["--json", JSON, typo_name], vec![&*format!("{typo_name}:2:"), "'except'", "'expect'"]),
        (vec!["--json", "nosuch.json", &trimmed()], vec!["nosuch.json"]),
        (vec!["--json", P4INFO, &trimmed()], vec!["txtpb", "not a BMv2 JSON"]),
        (vec!["--json", JSON, "nosuch.stf"], vec!["nosuch.stf"]),
    ] {
        let (code, _, error) = stf(&arguments);
        assert_eq!(code, Some(3), "{arguments:?}: {error}");
        for word in words {
            assert!(error.contains(word), "{arguments:?} should name {word}: {error}");
        }
    }
    std::fs::remove_file(wrong).unwrap();
    std::fs::remove_file(typo).unwrap();
}

#[test]
fn a_json_trace_is_json() {
    let (code, _, error) = stf(&["--json", JSON, "--trace=json", &trimmed()]);
    assert_eq!(code, Some(0), "{error}");
    let events: Vec<serde_json::Value> =
        error.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in ["received", "parser_state", "table", "enqueued", "truncated", "transmitted"] {
        assert!(events.iter().any(|found| found["event"] == event), "{event}");
    }
}
