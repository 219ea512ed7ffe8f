// SPDX-License-Identifier: Apache-2.0
//! The demo as a user runs it: a short one, through the program itself.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn trimwire(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trimwire")).args(arguments).current_dir(folder).output().unwrap()
}

fn short_demo(extra: &[&str], folder: &Path) -> Output {
    let mut arguments = vec!["demo", "--workers", "4", "--steps", "6", "--json", "out.json"];
    arguments.extend(extra);
    trimwire(&arguments, folder)
}

fn runs(json: &Value) -> Vec<&Value> {
    json["runs"].as_array().unwrap().iter().collect()
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut outputs = Vec::new();
    for seed in ["7", "7", "8"] {
        let output = short_demo(&["--seed", seed, "--report", "report"], folder.path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read = |name| std::fs::read(folder.path().join(name)).unwrap();
        outputs.push((output.stdout, read("out.json"), read("report/index.html")));
    }
    assert!(outputs[0] == outputs[1]);
    assert!(outputs[0].1 != outputs[2].1);
}

#[test]
fn the_figures_say_what_happened_to_the_packets() {
    let folder = tempfile::tempdir().unwrap();
    assert!(short_demo(&["--report", "r"], folder.path()).status.success());
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("out.json")).unwrap()).unwrap();
    let runs = runs(&json);
    let names: Vec<&str> = runs.iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["idle", "repair", "trim-paper", "trim"]);
    let figure = |run: &Value, name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name} in {run}"));
    for run in &runs {
        for name in [
            "final_accuracy",
            "allreduce_p50_s",
            "allreduce_p99_s",
            "trimmed_share",
            "dropped_share",
            "repaired_share",
            "nmse",
            "replica_drift",
        ] {
            assert!(figure(run, name).is_finite(), "{name}");
        }
        assert!(run.as_object().unwrap().contains_key("seconds_to_baseline_accuracy"));
        let counted = |name: &str| run["switch_counters"][name].as_i64().unwrap_or(0);
        assert!(counted("admitted") > 0, "the controller read the switch's counters");
        assert_eq!(counted("trimmed") > 0, figure(run, "trimmed_share") > 0.0);
    }
    let [idle, repair, paper, trim] = runs[..] else { panic!("{} runs", runs.len()) };
    assert!(figure(idle, "nmse") < 1e-11 && figure(repair, "nmse") < 1e-11, "repaired sums are exact");
    assert!(figure(repair, "dropped_share") > 0.0 && figure(repair, "trimmed_share") == 0.0);
    assert!(figure(paper, "trimmed_share") > 0.0 && figure(trim, "trimmed_share") > 0.0);
    assert!(figure(trim, "allreduce_p99_s") < figure(repair, "allreduce_p99_s"));
    let page = std::fs::read_to_string(folder.path().join("r/index.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    for name in names {
        let key = format!(">{name}</text>");
        assert_eq!(page.matches(&key).count(), 3, "{name} is in each legend");
    }
    assert!(page.contains("class=\"level\""), "the baseline is drawn");
    for reference in ["<script", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(reference), "the page is self-contained: {reference}");
    }
    assert!(page.len() < 500_000, "{} bytes", page.len());
}

/// Half a minute of virtual time and codec: the only test of the demo as `make demo` runs it.
#[test]
fn the_readme_shows_what_the_demo_prints() {
    let folder = tempfile::tempdir().unwrap();
    let output = trimwire(&["demo", "--json", "out.json"], folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("out.json")).unwrap()).unwrap();
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap();
    let time = |seconds: f64| {
        if seconds < 1e-3 { format!("{:.0} µs", seconds * 1e6) } else { format!("{:.2} ms", seconds * 1e3) }
    };
    let share = |share: f64| if share == 0.0 { "0 %".to_owned() } else { format!("{:.2} %", share * 100.0) };
    for run in runs(&json) {
        let figure = |name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name} in {run}"));
        let expected = [
            share(figure("final_accuracy")),
            time(figure("allreduce_p50_s")),
            time(figure("allreduce_p99_s")),
            share(figure("trimmed_share")),
            share(figure("dropped_share")),
        ];
        let name = run["name"].as_str().unwrap();
        let row = readme.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("README.md has no row of {name}"));
        // The run's name and the network's description come first.
        let shown: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).skip(2).collect();
        assert_eq!(shown, expected, "README.md's row of {name}: `make demo` prints other figures");
    }
}

#[test]
fn bad_flags_are_named_with_what_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, message) in [
        (["--workers", "1"], "--workers 1: valid are 2 to 64"),
        (["--congestion", "99"], "--congestion 99: valid are 1 to 16"),
        (["--steps", "0"], "--steps 0: valid are 1 to 100000"),
    ] {
        let output = trimwire(&["demo", arguments[0], arguments[1]], folder.path());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(message), "{text}");
        assert_eq!(output.status.code(), Some(2));
    }
    let output = trimwire(&["demo", "--steps", "1", "--report", "/proc/nowhere"], folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/proc/nowhere"));
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_the_runs_and_not_after() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, path) in [("--json", "/nosuch/x"), ("--report", "/proc/nosuch")] {
        // A run of so many steps would take hours.
        let output = trimwire(&["demo", "--steps", "100000", flag, path], folder.path());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{flag}: {error}");
        assert!(output.stdout.is_empty() && error.contains(&format!("{flag} {path}")), "{flag}: {error}");
    }
}
