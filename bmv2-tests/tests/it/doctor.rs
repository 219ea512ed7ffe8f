// SPDX-License-Identifier: Apache-2.0
//! What the doctor says of fabrics that are well, and of some that are not.

use serde_json::Value;
use std::time::Duration;
use trimwire_bmv2_tests::{Kind, Network, Programs, exclusive};

const LIMIT: Duration = Duration::from_secs(60);
const TRIM: &str = "{ shallow_size: 3 planes, deep_size: 1 plane, mark_at: 10KB, shallow_at: 15KB, deep_at: 40KB, \
                    drop_at: 70KB, trim_limit: 400KB }";
const DROP_TAIL: &str = "{ trim: off, mark_at: 40KB, drop_at: 40KB }";

/// What h1's doctor says of the way to h2 and back, and its exit code.
fn examine(network: &Network) -> (Option<i32>, Value) {
    let listener = network.agent(2, "doctor --listen --bind 10.0.0.2").expect("starts");
    let doctor = network.agent(1, "doctor --peer 10.0.0.2 --bind 10.0.0.1").expect("starts");
    let output = doctor.finish(LIMIT).expect("ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report = serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text} {}", String::from_utf8_lossy(&output.stderr)));
    listener.finish(LIMIT).expect("ends");
    (output.status.code(), report)
}

fn finding(report: &Value, check: &str) -> (String, String) {
    let findings = report["findings"].as_array().expect("findings");
    let found = findings.iter().find(|finding| finding["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no {check}: {report}"));
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("found") + " " + &text("do"))
}

#[test]
fn a_fabric_that_cuts_and_mends_is_found_to_and_one_that_drops_too() {
    let _turn = exclusive();
    let test = "the doctor through trimwire-switch";
    let Some(programs) = Programs::or_skip(test) else { return };
    let network = Network::start(&programs, &Kind::ours(&programs), 2, 100_000_000).expect("network");
    network.apply(TRIM).expect("controller applies");
    let (_, report) = examine(&network);
    for way in ["to 10.0.0.2", "from 10.0.0.2"] {
        for check in ["MTU of the path", "DSCP", "UDP without checksums", "trimming"] {
            let (state, text) = finding(&report, &format!("{way}: {check}"));
            assert_eq!(state, "fine", "{way}, {check}: {text}");
        }
        let (_, text) = finding(&report, &format!("{way}: trimming"));
        assert!(text.contains("lengths and checksums are mended"), "{text}");
        eprintln!("{test}: {way}: {text}");
    }
    assert_eq!(finding(&report, "to 10.0.0.2: round trip").0, "fine", "{report}");

    network.apply(DROP_TAIL).expect("controller applies");
    let (code, report) = examine(&network);
    assert_eq!((code, &report["fine"]), (Some(1), &Value::Bool(false)), "{report}");
    let (state, text) = finding(&report, "to 10.0.0.2: trimming");
    assert!(state == "bad" && text.contains("trimming is off on the way"), "{state}: {text}");
}
