// SPDX-License-Identifier: Apache-2.0
//! `trimwire-agent perf` as launchers start it: by torchrun's environment.

use serde_json::Value;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use trimwire_bmv2_tests::ports;

const SMALL: &str = "perf all-reduce -b 64K -e 64K -n 2 --exact --timeout 20s --json";

fn start(words: &str, variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwire-agent"));
    for (name, _) in std::env::vars() {
        let launchers = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
        if launchers.contains(&name.as_str())
            || name.starts_with("TRIMWIRE_")
            || name.starts_with("TORCHELASTIC_")
        {
            command.env_remove(name);
        }
    }
    command.envs(variables.iter().copied()).args(words.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
}

/// As torchrun starts a rank.
fn rank(rank: u16, world: u16, master: &str, port: u16, words: &str, more: &[(&str, &str)]) -> Child {
    let (rank, world, port) = (rank.to_string(), world.to_string(), port.to_string());
    let ours = [("RANK", &*rank), ("WORLD_SIZE", &world), ("MASTER_ADDR", master), ("MASTER_PORT", &port)];
    start(words, &[&ours, more].concat())
}

fn finish(child: Child) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().expect("ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// That all summed right, under one seed; gives it.
fn summed(ranks: Vec<Child>) -> u64 {
    let world = ranks.len();
    let reports: Vec<Value> = ranks
        .into_iter()
        .map(|rank| {
            let (code, stdout, stderr) = finish(rank);
            assert_eq!(code, Some(0), "{stderr}");
            serde_json::from_str(&stdout).expect("JSON")
        })
        .collect();
    for report in &reports {
        assert_eq!(report["world"].as_u64(), Some(world as u64));
        assert_eq!(report["seed"], reports[0]["seed"]);
        assert!(report["rows"][0]["nmse"].as_f64().is_some_and(|nmse| nmse < 1e-12), "{report}");
    }
    reports[0]["seed"].as_u64().expect("a number")
}

#[test]
fn ranks_started_by_torchruns_variables_meet_and_sum_under_a_seed_of_their_own() {
    let port = ports::free("127.0.0.1");
    let run = || summed((0..3).map(|number| rank(number, 3, "127.0.0.1", port, SMALL, &[])).collect());
    assert_ne!(run(), run());
    let words = format!("{SMALL} --seed 9");
    let seed = summed((0..2).map(|number| rank(number, 2, "localhost", port, &words, &[])).collect());
    assert_eq!(seed, 9);
}

#[test]
fn ranks_meet_over_ipv6() {
    if TcpListener::bind("[::1]:0").is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no IPv6 on loopback");
        return;
    }
    let port = ports::free("::1");
    summed((0..2).map(|number| rank(number, 2, "::1", port, SMALL, &[])).collect());
}

#[test]
fn ranks_meet_beside_torchruns_own_store() {
    let port = ports::free("127.0.0.1");
    let store = TcpListener::bind(("127.0.0.1", port)).expect("free");
    let torchrun = [("TORCHELASTIC_USE_AGENT_STORE", "True"), ("LOCAL_RANK", "0")];
    summed((0..2).map(|number| rank(number, 2, "127.0.0.1", port, SMALL, &torchrun)).collect());
    drop(store);
}

#[test]
fn what_keeps_ranks_apart_is_said_to_each() {
    let port = ports::free("127.0.0.1");
    let short = format!("{SMALL} --set rendezvous-timeout=2s");
    let (code, _, stderr) = finish(rank(0, 3, "127.0.0.1", port, &short, &[]));
    assert!(code == Some(1) && stderr.contains("ranks 1 and 2 of 3 did not come within 2 s"), "{stderr}");
    let (code, _, stderr) = finish(rank(1, 3, "127.0.0.1", port, &short, &[]));
    let nobody = format!("rank 0 did not answer at 127.0.0.1:{port} within 2 s");
    assert!(code == Some(1) && stderr.contains(&nobody), "{stderr}");
    let other = rank(0, 2, "127.0.0.1", port, SMALL, &[]);
    let (code, _, stderr) = finish(rank(1, 2, "127.0.0.1", port, &format!("{SMALL} --planes 9"), &[]));
    assert!(code == Some(3) && stderr.contains("--planes is 9 at rank 1 and 10 at rank 0"), "{stderr}");
    let (code, _, stderr) = finish(other);
    assert!(code == Some(3) && stderr.contains("--planes is 10 at rank 0 and 9 at rank 1"), "{stderr}");
    let (code, _, stderr) = finish(start(SMALL, &[("RANK", "0"), ("WORLD_SIZE", "2")]));
    assert!(code == Some(3) && stderr.contains("MASTER_ADDR is not set"), "{stderr}");
    let (code, _, stderr) = finish(rank(2, 2, "127.0.0.1", port, SMALL, &[]));
    assert!(code == Some(3) && stderr.contains("rank 2 of 2 ranks"), "{stderr}");
}

#[test]
fn ranks_with_the_jobs_key_meet_and_one_with_another_key_is_sent_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = |name: &str, byte| {
        let path = folder.path().join(name);
        std::fs::write(&path, [byte; 32]).expect("written");
        path.display().to_string()
    };
    let (right, wrong) = (key("right", 7), key("wrong", 8));
    let port = ports::free("127.0.0.1");
    let keyed = |number, key: &str| rank(number, 2, "127.0.0.1", port, SMALL, &[("TRIMWIRE_SEAL_KEY", key)]);
    let rank_0 = keyed(0, &right);
    let (code, _, stderr) = finish(keyed(1, &wrong));
    assert!(code == Some(1) && stderr.contains("does not have rank 0's job key"), "{stderr}");
    summed(vec![rank_0, keyed(1, &right)]);
}

#[test]
fn a_run_that_is_repeated_has_the_seed_that_it_drew() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = ports::free("127.0.0.1");
    let run = |how: &str| {
        let words = format!(
            "perf all-reduce -b 64K -e 64K -n 2 --timeout 20s --json {how} {}",
            folder.path().join("t").display()
        );
        let ranks: Vec<Child> =
            (0..2).map(|number| rank(number, 2, "127.0.0.1", port, &words, &[])).collect();
        let reports = ranks.into_iter().map(|rank| {
            let (code, stdout, stderr) = finish(rank);
            assert_eq!(code, Some(0), "{stderr}");
            let report: Value = serde_json::from_str(&stdout).expect("JSON");
            (report["seed"].clone(), report["rows"][0]["sha256"].clone())
        });
        reports.collect::<Vec<_>>()
    };
    let recorded = run("--set faults=truncate=0.1 --record");
    assert!(recorded.iter().all(|(seed, digest)| seed.is_u64() && digest.is_string()), "{recorded:?}");
    assert_eq!(run("--reliable --replay"), recorded);
}
