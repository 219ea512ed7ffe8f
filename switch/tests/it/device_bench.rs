// SPDX-License-Identifier: Apache-2.0
//! The measurement: its JSON has what its readers need, and it measures packets that get through.

use crate::driver_support::isolate;
use std::process::Command;

fn bench(words: &[&str]) -> (Option<i32>, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_trimwire-switch")).arg("bench").args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_bench_gives_rates_and_stages_for_both_lengths() {
    let (code, json, error) = bench(&["--json", "--seconds", "0.4"]);
    assert_eq!(code, Some(0), "{error}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let results = json["results"].as_array().unwrap();
    let lengths: Vec<_> = results.iter().map(|result| result["packet_bytes"].as_u64().unwrap()).collect();
    assert_eq!(lengths, [102, 1_470]);
    for result in results {
        let rate = result["packets_per_second"].as_f64().unwrap();
        let stages = &result["nanoseconds_per_packet"];
        let stage = |name: &str| stages[name].as_f64().unwrap_or_else(|| panic!("no {name} in {stages}"));
        assert!((rate * stage("total") / 1e9 - 1.0).abs() < 0.01, "{result}: the rate is one over the time");
        for name in ["parse", "deparse", "tm"] {
            assert!(stage(name) > 0.0, "{result}: {name}");
        }
        // These are differences: on a busy machine a short one may come out as anything.
        assert!(stage("match").is_finite() && stage("actions").is_finite(), "{result}");
    }
}

#[test]
fn no_frame_is_lost_while_routes_are_written() {
    if !isolate("no_frame_is_lost_while_routes_are_written") {
        return;
    }
    let (code, json, error) = bench(&["--json", "--routes", "3000", "--packet-bytes", "102"]);
    assert_eq!(code, Some(0), "{error}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = json["veth"].as_array().unwrap();
    let beside: Vec<_> = rows.iter().map(|row| row["beside"].as_str().unwrap()).collect();
    assert_eq!(beside, ["nothing", "a busy thread", "routes"]);
    for row in rows {
        assert!(row["packets"].as_u64().unwrap() > 1_000, "{row}");
        assert_eq!(row["lost"].as_u64(), Some(0), "{row}");
        assert!(row["over_1_ms"].as_u64() <= row["packets"].as_u64(), "{row}");
        assert!(row["longest_ms"].as_f64().unwrap() >= 0.0, "{row}");
    }
}

#[test]
fn a_bench_that_cannot_be_done_says_why() {
    let (code, _, error) = bench(&["--packet-bytes", "20"]);
    assert_eq!((code, error.contains("60 to 9000")), (Some(2), true), "{error}");
    let (code, _, error) = bench(&["--program", "x.json"]);
    assert_eq!((code, error.contains("--p4info")), (Some(2), true), "{error}");
    let (code, _, error) = bench(&["--program", "/nonexistent/x.json", "--p4info", "y"]);
    assert_eq!((code, error.contains("/nonexistent/x.json")), (Some(1), true), "{error}");
}
