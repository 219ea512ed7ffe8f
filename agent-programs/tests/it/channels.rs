// SPDX-License-Identifier: Apache-2.0
//! `perf` over several channels.

use serde_json::Value;
use std::process::{Child, Command, Stdio};
use trimwire_bmv2_tests::ports;

fn start(words: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwire-agent"));
    command.args(words.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("starts")
}

fn finish(child: Child) -> (Option<i32>, Value, String) {
    let output = child.wait_with_output().expect("ends");
    let value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), value, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn two(words: [&str; 2]) -> [(Option<i32>, Value, String); 2] {
    let port = ports::free("127.0.0.1");
    let at = format!("--world 2 --master-addr 127.0.0.1 --master-port {port} --json");
    let ranks = [0, 1].map(|rank| start(&format!("perf all-reduce --rank {rank} {at} {}", words[rank])));
    ranks.map(finish)
}

#[test]
fn perf_counts_all_channels_sealed_and_not_and_repeats_a_run_that_was_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, [9; 32]).expect("written");
    let words = format!("-b 1M -e 1M -n 3 --mtu 1500 --channels 2 --seal-key {}", key.display());
    for rank in two([&words, &words]) {
        let (code, report, stderr) = rank;
        assert_eq!(code, Some(0), "{stderr}");
        assert!(report["rows"][0]["nmse"].as_f64().is_some_and(|nmse| nmse < 1e-9), "{report}");
        // Four operations of a megabyte, half of it each way each phase.
        let packets = report["totals"]["data_received"].as_u64();
        assert!(packets >= Some(4 * (1 << 18) / 448), "{report}");
    }
    let hash = |report: &Value| report["rows"][0]["sha256"].as_str().map(str::to_owned);
    let files = |option: &str| format!("--{option} {}", folder.path().join("run").display());
    let lossy = format!(
        "-b 512K -e 512K -n 2 --channels 2 --seed 3 --set faults=trim=0.1,drop=0.01 --loss 0.05 {}",
        files("record")
    );
    let recorded = two([&lossy, &lossy]);
    let reliable = format!("-b 512K -e 512K -n 2 --channels 2 --loss 0.05 {}", files("replay"));
    let repeated = two([&reliable, &reliable]);
    for (first, second) in recorded.iter().zip(&repeated) {
        assert_eq!((first.0, second.0), (Some(0), Some(0)), "{} {}", first.2, second.2);
        assert!(hash(&first.1).is_some() && hash(&first.1) == hash(&second.1));
    }
}

#[test]
fn ranks_of_other_numbers_of_channels_are_told_by_the_options_name() {
    let words = "-b 64K -e 64K -n 1 --set rendezvous-timeout=20s";
    let ranks = two([&format!("{words} --channels 2"), words]);
    for (code, _, stderr) in ranks {
        assert!(code != Some(0) && stderr.contains("channels"), "{stderr}");
    }
    // Without a rendezvous, too.
    let port = ports::free("127.0.0.1");
    let ranks = [0, 1].map(|rank| {
        start(&format!(
            "perf all-reduce --rank {rank} --world 2 --peers 127.0.0.1,127.0.0.2 --port {port} -b 1M -e 1M -n 1 --json --channels {}",
            rank + 1
        ))
    });
    for (code, _, stderr) in ranks.map(finish) {
        assert!(code == Some(3) && stderr.contains("--channels is"), "{stderr}");
    }
}
