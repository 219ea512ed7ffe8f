// SPDX-License-Identifier: Apache-2.0
//! Processes that die in the middle of `perf --on-failure shrink`, on sockets: the others go on.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use trimwire_bmv2_tests::ports;

const WORDS: &str = "perf all-reduce -b 256K -e 256K -w 0 --on-failure shrink --timeout 4s --json";

/// Operations: so many that the last has not ended when the first have.
const MANY: usize = 400;

fn start(rank: usize, world: usize, port: u16, words: &str, key: Option<&str>) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwire-agent"));
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", world.to_string());
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.env("TRIMWIRE_DEBUG", "info").args(words.split_whitespace());
    if let Some(key) = key {
        command.env("TRIMWIRE_SEAL_KEY", key);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).expect("alive");
}

/// Waits for a process to say something.
fn wait_for(child: &mut Child, what: &str) {
    let stderr = child.stderr.as_mut().expect("piped");
    let mut lines = BufReader::new(stderr).lines();
    while let Some(Ok(line)) = lines.next() {
        if line.contains(what) {
            return;
        }
    }
    panic!("it never said {what:?}");
}

/// Waits until a process has sent some: it is in the middle of its operations.
fn wait_until_it_works(child: &Child) {
    let path = format!("/proc/{}/stat", child.id());
    loop {
        let stat = std::fs::read_to_string(&path).expect("alive");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
        assert_ne!(fields[0], "Z", "it has ended");
        // User time, in ticks of 10 ms.
        if fields[11].parse::<u64>().expect("a number") >= 5 {
            return;
        }
        std::thread::yield_now();
    }
}

fn report(child: Child) -> Value {
    let output = child.wait_with_output().expect("ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn went_on(report: &Value, members: &[u16]) {
    let epochs = report["epochs"].as_array().expect("an epoch began");
    let last = epochs.last().expect("one at least");
    assert_eq!(last["members"], serde_json::json!(members), "{report}");
    let row = &report["rows"][0];
    assert_eq!(row["seconds_each"].as_array().map(Vec::len), Some(MANY));
    // Each operation's, against the sum over the ranks that were left then.
    assert!(row["nmse"].as_f64().is_some_and(|nmse| nmse < 0.02), "{row}");
}

#[test]
fn one_of_four_is_killed_and_the_others_finish_with_right_sums_over_three() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, [7; 32]).expect("written");
    let key = key.display().to_string();
    // Shards of four rows, so that both channels have some.
    let channels = " --channels 2 --set row-log2=12";
    for (words, key) in [
        (" --channels 1", None),
        (" --channels 1 --exact --algorithm ring", None),
        (" --channels 1", Some(&*key)),
        (channels, None),
        (channels, Some(&*key)),
    ] {
        let (port, words) = (ports::free("127.0.0.1"), format!("{WORDS} -n {MANY}{words}"));
        let mut ranks: Vec<Child> = (0..4).map(|rank| start(rank, 4, port, &words, key)).collect();
        wait_until_it_works(&ranks[2]);
        let mut killed = ranks.remove(2);
        signal(&killed, Signal::SIGKILL);
        killed.wait().expect("gone");
        for rank in ranks {
            went_on(&report(rank), &[0, 1, 3]);
        }
    }
}

#[test]
fn one_of_four_is_stopped_for_longer_than_others_wait_and_gets_an_error_when_it_comes_to() {
    let (port, words) = (ports::free("127.0.0.1"), format!("{WORDS} --channels 1 -n {MANY}"));
    let mut ranks: Vec<Child> = (0..4).map(|rank| start(rank, 4, port, &words, None)).collect();
    wait_until_it_works(&ranks[1]);
    let stopped = ranks.remove(1);
    signal(&stopped, Signal::SIGSTOP);
    wait_for(&mut ranks[0], "agree on who is left");
    signal(&stopped, Signal::SIGCONT);
    let output = stopped.wait_with_output().expect("ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let told = stderr.contains("epoch 1 has begun without this rank");
    assert!(output.stdout.is_empty() && told, "{stderr}");
    for rank in ranks {
        went_on(&report(rank), &[0, 2, 3]);
    }
}
