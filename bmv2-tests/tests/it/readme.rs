// SPDX-License-Identifier: Apache-2.0
//! What the documentation says to type does what it says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trimwire_bmv2_tests::process::Running;
use trimwire_bmv2_tests::{Programs, exclusive};

const LIMIT: Duration = Duration::from_secs(60);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The first block of shell commands below a heading, to the letter.
fn block(document: &str, heading: &str) -> String {
    let text = std::fs::read_to_string(repository().join(document)).expect("a document");
    let section = text.split_once(&format!("\n{heading}\n")).expect("a heading").1;
    let section = section.split("\n## ").next().expect("a first part");
    let block = section.split_once("```sh\n").expect("a block").1;
    block.split_once("\n```").expect("its end").0.to_owned()
}

/// Runs commands as root would in the repository, in namespaces of their own, where `cargo build`
/// has left `programs`.
fn run(commands: &str, programs: &Programs) -> (bool, String) {
    let folder = programs.agent.parent().expect("a folder");
    // The block puts target/release first; here the programs may be elsewhere.
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let script = format!("mount -t tmpfs none /run/netns\nip link set lo up\nset -eux\n{commands}");
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "bash",
        "-c",
        &script,
    ]);
    command.current_dir(repository()).env("PATH", path);
    let output = Running::start(&mut command).expect("starts").finish(LIMIT).expect("ends");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), text.join("\n"))
}

#[test]
fn two_hosts_and_a_switch_trim_and_decode() {
    let _turn = exclusive();
    let Some(programs) = Programs::or_skip("two hosts and a switch") else { return };
    let commands = block("docs/start/fabric.md", "## Two hosts and a switch");
    // What was built for this test, not what somebody left in target/release.
    let commands = commands.replacen("export PATH=$PWD/target/release:$PATH", "", 1);
    let (ended_well, text) = run(&commands, &programs);
    assert!(ended_well, "{text}");
    // The receiver's row: size, count, type, redop, time, algbw, busbw, trimmed %.
    let rows = text.lines().filter_map(|line| line.trim().strip_prefix("4194304 "));
    let shares = rows.filter_map(|row| row.split_whitespace().nth(6)?.parse::<f64>().ok());
    let most = shares.fold(0.0, f64::max);
    assert!(most > 4.3, "at half as much again as the port serves: {text}");
    let trimmed = text.lines().find(|line| line.contains("class0") && line.starts_with("s1:2"));
    assert!(trimmed.is_some(), "h2's port is in the table: {text}");
}
