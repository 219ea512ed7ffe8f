// SPDX-License-Identifier: Apache-2.0
//! `run` and `watch` as processes: signals, exit codes, output.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::run_support::{Embedded, eventually, frame, single};
use trimwire_controller::{Artifacts, Fabric, Options, apply};

fn start(arguments: &[&str], stderr: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_trimwire-controller"))
        .args(arguments)
        .env_remove("TRIMWIRE_DEBUG")
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(stderr).unwrap())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

async fn logged(stderr: &Path, words: &str) {
    eventually("logged", || {
        let text = std::fs::read_to_string(stderr).unwrap();
        if text.contains(words) { Ok(()) } else { Err(format!("no '{words}' in\n{text}")) }
    })
    .await;
}

async fn exit_code(child: &mut Child) -> Option<i32> {
    let mut code = None;
    eventually("the process ends", || {
        code = child.try_wait().unwrap().map(|status| status.code());
        if code.is_some() { Ok(()) } else { Err("it runs".to_owned()) }
    })
    .await;
    code.flatten()
}

#[tokio::test]
async fn run_takes_a_changed_file_on_sighup_keeps_the_old_one_when_it_is_wrong_and_ends_well_on_sigterm() {
    let switch = Embedded::start(1);
    let folder = tempfile::tempdir().unwrap();
    let (file, stderr) = (folder.path().join("fabric.yaml"), folder.path().join("stderr"));
    let text = single(switch.address, "interval: 200ms, metrics: off");
    std::fs::write(&file, &text).unwrap();
    let name = file.display().to_string();
    let mut child = start(&["run", &name], &stderr);
    logged(&stderr, "in place after").await;

    std::fs::write(&file, text.replace("drop_at: 120us", "drop_at: 12parsec")).unwrap();
    signal(&child, "-HUP");
    logged(&stderr, "going on with the fabric as it was").await;
    logged(&stderr, "unknown unit 'parsec'").await;

    std::fs::write(&file, text.replace("drop_at: 120us", "drop_at: 200us")).unwrap();
    signal(&child, "-HUP");
    logged(&stderr, &format!("took {name} again")).await;
    eventually("the changed file is in place", || {
        let text = std::fs::read_to_string(&stderr).unwrap();
        let count = text.matches("in place after").count();
        if count == 2 { Ok(()) } else { Err(text) }
    })
    .await;
    signal(&child, "-TERM");
    assert_eq!(exit_code(&mut child).await, Some(0));
    assert!(!std::fs::read_to_string(&stderr).unwrap().contains("drifted"));
}

/// The output of a command that ends with exit code 0.
async fn output(arguments: &[&str], stderr: &Path) -> String {
    let mut child = start(arguments, stderr);
    assert_eq!(exit_code(&mut child).await, Some(0), "{}", std::fs::read_to_string(stderr).unwrap());
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

/// What is in the history of the file, once it has this.
async fn recorded(name: &str, stderr: &Path, words: &str) -> Vec<String> {
    let mut text = String::new();
    for _ in 0..200 {
        text = output(&["history", name], stderr).await;
        if text.contains(words) {
            return text.lines().map(str::to_owned).collect();
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    panic!("no '{words}' in {text}");
}

#[tokio::test]
async fn files_that_run_takes_are_in_history_with_what_changed_and_rollback_finds_the_one_before() {
    let switch = Embedded::start(1);
    let folder = tempfile::tempdir().unwrap();
    let [file, stderr, others] = ["fabric.yaml", "stderr", "others"].map(|name| folder.path().join(name));
    let first = single(switch.address, "interval: 200ms, metrics: off, timeout: 60s");
    let second = first.replace("drop_at: 120us", "drop_at: 200us");
    assert_ne!(first, second);
    std::fs::write(&file, &first).unwrap();
    let name = file.display().to_string();
    let mut child = start(&["run", &name], &stderr);
    let lines = recorded(&name, &others, "run: succeeded; 1 in place").await;
    assert_eq!(lines.len(), 1, "{lines:?}");

    // What was not taken is not there.
    std::fs::write(&file, "version: 7").unwrap();
    signal(&child, "-HUP");
    logged(&stderr, "going on with the fabric as it was").await;
    std::fs::write(&file, &second).unwrap();
    signal(&child, "-HUP");
    let lines = recorded(&name, &others, "run, SIGHUP: succeeded; 1 in place").await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    let changed = ["drop_at: 120us", "drop_at: 200us"];
    assert!(
        changed.iter().all(|line| lines[1].contains(line)) && lines[1].contains("; changed: - "),
        "{lines:?}"
    );
    signal(&child, "-TERM");
    assert_eq!(exit_code(&mut child).await, Some(0));

    // Started anew with the same file: no news.
    let mut child = start(&["run", &name], &stderr);
    logged(&stderr, "in place after").await;
    signal(&child, "-TERM");
    assert_eq!(exit_code(&mut child).await, Some(0));
    assert_eq!(recorded(&name, &others, "run, SIGHUP").await, lines);

    output(&["rollback", "--settle", "0", &name], &others).await;
    std::fs::write(&file, &first).unwrap();
    output(&["plan", "--detailed-exitcode", &name], &others).await;
    let lines = recorded(&name, &others, "rollback to 1: succeeded").await;
    assert_eq!(lines.len(), 3, "{lines:?}");
}

fn next(lines: &mut BufReader<ChildStdout>) -> serde_json::Value {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// What a counter did at port 2's class 0 in one interval.
fn did(interval: &serde_json::Value, counter: &str) -> u64 {
    let rows = interval["queues"].as_array().unwrap();
    let row = rows.iter().find(|row| row["port"] == 2 && row["queue"] == 5);
    row.map_or(0, |row| {
        let rate = &row["counters"][counter];
        let (packets, per_second) = (rate["packets"].as_u64(), rate["packets_per_second"].as_f64());
        assert_eq!(packets > Some(0), per_second > Some(0.0), "{row}");
        packets.unwrap()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_accounts_for_every_packet_and_a_restart_gives_no_negative_rates() {
    let mut switch = Embedded::start(1);
    let text = single(switch.address, "timeout: 2s");
    let fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap();
    let bring_up = || async {
        let report = apply(&fabric, &Artifacts::embedded().unwrap(), &Options::default()).await.unwrap();
        assert!(report.is_ok(), "{report}");
    };
    bring_up().await;
    let folder = tempfile::tempdir().unwrap();
    let (file, stderr) = (folder.path().join("fabric.yaml"), folder.path().join("stderr"));
    std::fs::write(&file, &text).unwrap();
    let name = file.display().to_string();
    // A switch that has not answered within the interval is left out of it, and processors may be
    // busy.
    let mut child = start(&["watch", "--json", "--interval", "1s", &name], &stderr);
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let first = next(&mut lines);
    assert_eq!(
        (first["interval"].as_u64(), first["queues"].as_array().unwrap().len()),
        (Some(1), 4 * 7),
        "{first}"
    );
    let until = |lines: &mut BufReader<ChildStdout>, wanted: u64| {
        let mut sums = [0; 5];
        for _ in 0..100 {
            let interval = next(lines);
            for (sum, counter) in sums.iter_mut().zip([
                "admitted",
                "trimmed",
                "trim_transmitted",
                "tail_dropped",
                "transmitted",
            ]) {
                *sum += did(&interval, counter);
            }
            if sums[0] + sums[1] >= wanted {
                return sums;
            }
        }
        panic!("{sums:?} after 100 intervals");
    };
    switch.forward(0, &vec![frame(); 100]);
    // All but 19 are trimmed (implementations.rs).
    assert_eq!(until(&mut lines, 100), [19, 81, 81, 0, 19]);

    switch.restart();
    bring_up().await;
    switch.forward(0, &vec![frame(); 10]);
    assert_eq!(until(&mut lines, 10), [10, 0, 0, 0, 10]);
    signal(&child, "-INT");
    assert_eq!(exit_code(&mut child).await, Some(0));

    let mut child = start(&["watch", "--interval", "1s", "--count", "2", &name], &stderr);
    assert_eq!(exit_code(&mut child).await, Some(0));
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(
        text.contains("interval 1\n") && text.contains("interval 2\n") && text.contains("28 queues idle"),
        "{text}"
    );
    let mut child = start(&["watch", "--switch", "s9", &name], &stderr);
    assert_eq!(exit_code(&mut child).await, Some(2));
    logged(&stderr, "has no such switch; valid: s1").await;
}
