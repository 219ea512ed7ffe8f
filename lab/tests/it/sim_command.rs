// SPDX-License-Identifier: Apache-2.0
//! `trimwire-lab sim`, as users call it.

use std::path::Path;
use std::process::{Command, Output};

const SCENARIO: &str = "\
scenario: small
payload: 4032
topology: { star: { hosts: 4, rate: 100Gbps, delay: 1us } }
workload: { incast: { senders: 3, bytes: 100KB } }
runs:
  - { name: trim, transport: { trimwire: {} } }
  - { name: \"ndp <b>\", transport: { ndp: {} } }
seeds: 2
quick: true
claims: [{ says: trimming beside NDP, run: trim, beside: \"ndp <b>\", of: max, paper: -50 }]
";

fn trimwire(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trimwire-lab")).args(args).current_dir(folder).output().unwrap()
}

fn json(bytes: &[u8]) -> serde_json::Value {
    let mut value: serde_json::Value = serde_json::from_slice(bytes).unwrap();
    for run in value["runs"].as_array_mut().unwrap() {
        assert!(run["packet_hops_per_second"].take().as_f64().unwrap() > 0.0);
    }
    value
}

fn folder_with(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("scenarios")).unwrap();
    std::fs::write(folder.path().join("scenarios/small.yaml"), text).unwrap();
    folder
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let folder = folder_with(SCENARIO);
    let run = |threads: &str| {
        let output =
            trimwire(&["sim", "scenarios/small.yaml", "--json", "--threads", threads], folder.path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json(&output.stdout)
    };
    let once = run("1");
    assert_eq!(once, run("2"));
    assert_eq!(once["runs"][1]["name"], "ndp <b>");
}

#[test]
fn a_report_has_the_table_the_command_and_every_run() {
    let folder = folder_with(SCENARIO);
    let output = trimwire(&["sim", "scenarios/small.yaml", "--report", "re port"], folder.path());
    assert!(output.status.success());
    let page = std::fs::read_to_string(folder.path().join("re port/index.html")).unwrap();
    assert!(page.contains("trimwire-lab sim scenarios/small.yaml --report 're port'"));
    assert!(page.contains("ndp &lt;b&gt;") && !page.contains("<b>"));
    assert!(page.contains("FCT mean"));
}

fn figures(folder: &Path, more: &[&str]) -> Output {
    trimwire(&[&["sim", "figures", "scenarios", "--results", "kept"], more].concat(), folder)
}

#[test]
fn figures_that_are_there_are_not_made_again_and_changed_ones_are() {
    let folder = folder_with(SCENARIO);
    let made = || {
        let output = figures(folder.path(), &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read(folder.path().join("kept/small/results.json")).unwrap()
    };
    let all = made();
    assert_eq!(json(&all)["runs"].as_array().unwrap().len(), 2);
    // The speed of a run is never the same twice: whoever has the same bytes has kept them.
    assert_eq!(made(), all);
    // What is damaged is made again.
    std::fs::write(folder.path().join("kept/small/00-trim-1.run.json"), "{").unwrap();
    assert_eq!(json(&made()), json(&all));
    let changed = SCENARIO.replace("100KB", "200KB");
    std::fs::write(folder.path().join("scenarios/small.yaml"), changed).unwrap();
    assert_ne!(json(&made())["runs"][0], json(&all)["runs"][0]);
}

#[test]
fn a_page_is_written_and_what_it_prints_is_compared() {
    let folder = folder_with(SCENARIO);
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    let page = folder.path().join("docs").join("page.md");
    std::fs::write(&page, "# A\n\n<!-- generated: small nothing -->\n<!-- end -->\n\nB\n").unwrap();
    let check = |more: &[&str]| figures(folder.path(), &[&["--check"], more].concat());
    let failed = check(&[]);
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && said.contains("page.md:3: small has other rows"), "{said}");
    assert!(figures(folder.path(), &["--write"]).status.success());
    let written = std::fs::read_to_string(&page).unwrap();
    assert!(written.starts_with("# A\n") && written.ends_with("<!-- end -->\n\nB\n"), "{written}");
    assert!(written.contains("| ndp <b> |") && written.contains("Median of 2 seeds"), "{written}");
    assert!(written.contains("| trimming beside NDP | -50.0 % | "), "{written}");
    assert!(check(&[]).status.success());
    // One digit is enough.
    std::fs::write(&page, written.replacen("| trim | 0.0", "| trim | 0.1", 1)).unwrap();
    let failed = check(&[]);
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && said.contains("printed | trim | 0.1"), "{said}");
    // Where runs take long and are not kept, the key says whether they begin as those that were
    // printed.
    let long = SCENARIO.replace("quick: true", "quick: false").replace("100KB", "200KB");
    std::fs::write(folder.path().join("scenarios/small.yaml"), long).unwrap();
    let told = check(&[]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    assert!(
        String::from_utf8_lossy(&told.stderr)
            .contains("small is of another scenario, or its runs begin otherwise")
    );
}

const TUNED: &str = "\
scenario: tuned
payload: 4032
topology: { star: { hosts: 4, rate: 100Gbps, delay: 1us } }
workload: { incast: { senders: 3, bytes: 100KB } }
columns: [p99, nmse]
seeds: 2
quick: true
runs:
  - { name: trim, transport: { trimwire: {} } }
  - name: DCTCP
    transport: { dctcp: {} }
    switch: { buffer: 20KB }
    tune:
      by: p99
      transport.dctcp: [{}, { spray: true, duplicates: 1000 }]
      transport.dctcp.rto_min: [1ms, 10ms]
      switch.buffer: [20KB, 5MB]
";

#[test]
fn a_grid_is_tried_with_one_seed_and_its_best_made_with_all_beside_the_run() {
    let folder = folder_with(TUNED);
    std::fs::create_dir_all(folder.path().join("docs/figures")).unwrap();
    let page = folder.path().join("docs").join("page.md");
    std::fs::write(&page, "<!-- generated: small nothing -->\n<!-- end -->\n").unwrap();
    let output = figures(folder.path(), &["--write"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written = std::fs::read_to_string(&page).unwrap();
    // A path for each packet is worth nothing at one switch, and neither is a short time-out where
    // nothing is dropped: the first of equals is printed.
    for row in ["| trim | 0.0", "| DCTCP | 0.0", "| DCTCP, best of 8: rto_min 1ms, buffer 5MB | 0.0"] {
        assert!(written.contains(row), "{row}: {written}");
    }
    let tried: Vec<f64> = written
        .lines()
        .filter(|line| line.starts_with("| DCTCP | ") && line.contains("buffer"))
        .map(|line| line.split(" | ").nth(2).unwrap().parse().unwrap())
        .collect();
    assert!(tried.len() == 8 && tried.is_sorted() && tried[7] > 10.0 * tried[0], "{written}");
    let kept = std::fs::read_dir(folder.path().join("kept/small")).unwrap();
    let made = kept.filter(|file| file.as_ref().unwrap().path().display().to_string().ends_with(".run.json"));
    assert_eq!(made.count(), 2 + 2 + 8 + 1, "two seeds of both runs, one of the grid, two of its best");
    assert!(figures(folder.path(), &["--check"]).status.success());
    let picture = folder.path().join("docs/figures/small.svg");
    assert!(std::fs::read_to_string(&picture).unwrap().contains("3 DCTCP, best of 8"));
    std::fs::write(&picture, "<svg/>").unwrap();
    let failed = figures(folder.path(), &["--check"]);
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && said.contains("figures/small.svg is another"), "{said}");
    // `sim` makes a setting that is named, and no grid otherwise.
    let runs = |more: &[&str]| {
        let args = [&["sim", "scenarios/small.yaml", "--json"], more].concat();
        json(&trimwire(&args, folder.path()).stdout)["runs"].as_array().unwrap().len()
    };
    assert_eq!(runs(&[]), 2);
    assert_eq!(runs(&["--run", "DCTCP: rto_min 10ms, buffer 20KB"]), 1);
}

#[test]
fn mistakes_in_a_grid_are_named_with_their_line_and_key() {
    for (from, to, says) in [
        ("dctcp.rto_min:", "dctcp.rto_mim:", ":16: tune: transport.dctcp.rto_mim: unknown field `rto_mim`"),
        ("[1ms, 10ms]", "[1ms, 10 parsec]", ":16: tune: transport.dctcp.rto_min: invalid value"),
        ("[1ms, 10ms]", "1ms", ":16: tune: transport.dctcp.rto_min: valid is a list"),
        ("[1ms, 10ms]", "[1ms, 0ms]", ":16: rto_min: 0; valid are times above 0"),
        ("switch.buffer: [20KB, 5MB]", "switch.packets: [8]", ":17: packets: switches of dctcp do not"),
        ("switch.buffer: [20KB, 5MB]", "switch.buffer: []", ":17: tune: switch.buffer: valid is a list"),
        ("switch.buffer: [20KB, 5MB]", "switch.buffer.x: [1]", ":17: tune: switch.buffer.x: x: what it"),
        ("switch.buffer: [20KB, 5MB]", "name: [a, b]", ":17: tune: name: valid are the other keys"),
        (
            "transport.dctcp: [{}, {",
            "transport: [{ ndp: {} }, {",
            ":15: tune: transport: unknown field `spray`",
        ),
        ("by: p99", "by: p98", "unknown variant `p98`"),
        ("by: p99\n", "\n", "missing field `by`"),
    ] {
        let text = TUNED.replace(from, to);
        assert_ne!(text, TUNED, "{from}");
        let folder = folder_with(&text);
        let output = trimwire(&["sim", "scenarios/small.yaml"], folder.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains(says), "{to}: {said}");
    }
}

#[test]
fn planes_are_bytes_of_a_coordinate_in_packets_of_as_many_coordinates() {
    let run = |transport: &str| {
        let text = SCENARIO.replace("{ trimwire: {} }", transport);
        let output =
            trimwire(&["sim", "scenarios/small.yaml", "--json", "--run", "trim"], folder_with(&text).path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let run = json(&output.stdout)["runs"][0].take();
        (run["packets"].as_u64().unwrap(), run["ideal_s"].as_f64().unwrap(), run["nmse"].as_f64().unwrap())
    };
    let (_, whole_s, _) = run("{ ndp: {} }");
    // 100 KB in f32 are 25,000 coordinates, in packets of 1,344.
    let repaired = |planes: u8| run(&format!("{{ trimwire: {{ planes: {planes}, window: 24KB }} }}"));
    let mut errors = Vec::new();
    for (planes, of_f32) in [(10, 0.75), (9, 0.5), (8, 0.25), (1, 1.0 / 32.0)] {
        let (packets, ideal_s, nmse) = repaired(planes);
        assert_eq!(packets, 3 * 19, "{planes} planes");
        assert!((ideal_s / whole_s - of_f32).abs() < 1e-3, "{planes} planes: {ideal_s}");
        errors.push(nmse);
    }
    // By the closed form, where nothing is trimmed.
    assert!(errors.is_sorted() && errors[0] < 1e-8 && errors[3] > 0.57, "{errors:?}");
    for (transport, says) in [
        ("{ trimwire: { planes: 11 } }", "small.yaml:6: planes: 11; valid are 1 to 10"),
        ("{ trimwire: { planes: 9 } }, compression: 2", "small.yaml:6: compression: planes say"),
    ] {
        let folder = folder_with(&SCENARIO.replace("{ trimwire: {} }", transport));
        let output = trimwire(&["sim", "scenarios/small.yaml"], folder.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains(says), "{said}");
    }
}

#[test]
fn quick_figures_of_the_repository_are_what_its_pages_print() {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let results = folder.path().display().to_string();
    let output = trimwire(&["sim", "figures", "--results", &results, "--quick", "--check"], &root);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn mistakes_are_named_with_their_line_before_anything_is_run() {
    for (from, to, says) in [
        ("run: trim,", "run: tram,", "small.yaml:10: claims: there is no run 'tram'"),
        ("seeds: 2", "seeds: 0", "small.yaml:8: seeds: 0; valid are 1 to 1000"),
        ("seeds: 2", "limit: 0s", "small.yaml:8: limit: 0; valid are times above 0"),
        ("\"ndp <b>\", transport", "trim, transport", "small.yaml:7: name: another run is 'trim', too"),
        ("{ trimwire: {} }", "{ trimwire: {} }, switch: { mark_at: 1KB }", "small.yaml:6: mark_at: switches"),
        ("star:", "fabric: nowhere.yaml, star:", "small.yaml:3: topology: give either fabric or a shape"),
        (
            "star: { hosts: 4, rate: 100Gbps, delay: 1us }",
            "fabric: nowhere.yaml",
            "cannot read scenarios/nowhere.yaml",
        ),
        (
            "runs:",
            "links: [{ at: 1us, switch: 1, up: false }]\nruns:",
            "small.yaml:5: switch: 1; the topology has 1, from 0",
        ),
        (
            "runs:",
            "links: [{ at: 1us, up: false }]\nruns:",
            "small.yaml:5: links: give either link or switch",
        ),
    ] {
        let text = SCENARIO.replace(from, to);
        assert_ne!(text, SCENARIO);
        let folder = folder_with(&text);
        let output = trimwire(&["sim", "scenarios/small.yaml"], folder.path());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(says), "{error}");
        assert_eq!(output.status.code(), Some(3));
    }
    let folder = folder_with(SCENARIO);
    assert_eq!(trimwire(&["sim"], folder.path()).status.code(), Some(2));
    assert_eq!(trimwire(&["sim", "figures", "nowhere"], folder.path()).status.code(), Some(3));
}

#[test]
fn flows_that_did_not_finish_are_told_beside_the_times_of_the_others() {
    // Most flows take 28 us, those of the run in the middle 5.
    let text = SCENARIO.replace("seeds: 2", "limit: 10us").replace(
        "  - { name: \"ndp",
        "  - { name: short, transport: { ndp: {} }, workload: { incast: { senders: 3, bytes: 10KB } } }\n  - { name: \"ndp",
    );
    let folder = folder_with(&text);
    let output = trimwire(&["sim", "scenarios/small.yaml", "--report", "page"], folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(folder.path().join("page/index.html")).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    for text in [&*said, page.as_str()] {
        assert!(text.contains("trim: 3 flows did not finish; times are of the others."), "{text}");
    }
    assert!(said.matches("did not finish").count() == 2 && !said.contains("short: "), "{said}");
}

#[test]
fn where_nothing_finished_there_are_no_times_and_no_error() {
    let folder = folder_with(&SCENARIO.replace("seeds: 2", "limit: 1us"));
    let json_of = trimwire(&["sim", "scenarios/small.yaml", "--json"], folder.path());
    let value: serde_json::Value = serde_json::from_slice(&json_of.stdout).unwrap();
    let run = &value["runs"][0];
    assert_eq!(run["unfinished"], 3);
    for key in ["fct_mean_s", "fct_p50_s", "fct_p99_s", "fct_p999_s", "fct_max_s", "completion_s", "nmse"] {
        assert!(run[key].is_null(), "{key}: {}", run[key]);
    }
    let said = trimwire(&["sim", "scenarios/small.yaml"], folder.path());
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let row = said.lines().find(|line| line.starts_with("trim ")).unwrap();
    assert_eq!(row.matches('–').count(), 5, "{row}");
    assert!(figures(folder.path(), &[]).status.success());
    let table = std::fs::read_to_string(folder.path().join("kept/small/table.md")).unwrap();
    assert!(table.contains("| trim (3 flows not over) | – | – | – |"), "{table}");
}

/// Help of a command and of all below it, by the words that call it.
fn help(words: &[String], found: &mut Vec<(String, String)>) {
    let folder = tempfile::tempdir().unwrap();
    let args: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
    let output = trimwire(&args, folder.path());
    assert!(output.status.success(), "{words:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let commands = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    // A command stands two columns in; what continues a description, further.
    let below: Vec<String> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    found.push((words.join(" "), text));
    for name in below {
        help(&[words, &[name]].concat(), found);
    }
}

#[test]
fn files_figures_and_runs_that_help_names_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut helps = Vec::new();
    help(&[], &mut helps);
    assert!(helps.iter().any(|(command, _)| command == "sim figures"), "{helps:?}");
    let (mut files, mut figures, mut runs) = (0, 0, 0);
    for (command, text) in &helps {
        for line in text.lines().filter(|line| line.trim_start().starts_with("trimwire-lab ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let values = |option: &'static str| {
                words.windows(2).filter(move |pair| pair[0] == option).map(|pair| pair[1])
            };
            let named: Vec<&&str> = words.iter().filter(|word| word.starts_with("examples/")).collect();
            for file in &named {
                assert!(root.join(file).is_file(), "trimwire-lab {command} --help names {file}: {line}");
            }
            for figure in values("--only") {
                let file = root.join(format!("examples/figures/{figure}.yaml"));
                assert!(file.is_file(), "trimwire-lab {command} --help names {figure}: {line}");
                figures += 1;
            }
            for run in values("--run") {
                let text = std::fs::read_to_string(root.join(named[0])).unwrap();
                let is_there = text.contains(&format!("name: {run},"));
                assert!(is_there, "trimwire-lab {command} --help names the run {run}: {line}");
                runs += 1;
            }
            files += named.len();
        }
    }
    assert!(files > 5 && figures > 1 && runs > 1, "{files} files, {figures} figures, {runs} runs");
}

#[test]
fn scenarios_that_the_reference_shows_are_valid() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/scenario.md");
    let page = std::fs::read_to_string(page).unwrap();
    let shown = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut count = 0;
    for text in shown {
        let folder = folder_with(text);
        let output = trimwire(&["sim", "scenarios/small.yaml"], folder.path());
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        count += 1;
    }
    assert!(count > 1);
}

const TRAINING: &str = "\
scenario: trained
topology: { leaf_spine: { leaves: 2, spines: 2, hosts_per_leaf: 4, rate: 1Gbps, delay: 1us } }
workload: { background: { sizes: web-search, load: 0.4, until: 5ms } }
training: { hidden: 64, steps: 16, every: 4, batch: 32, learning_rate: 0.1, compute: 100us, jitter: 1us, target: 0.5 }
runs:
  - { name: trim, transport: { trimwire: {} } }
  - { name: dctcp, transport: { dctcp: {} } }
";

#[test]
fn a_training_is_the_same_with_any_number_of_threads_and_its_page_shows_its_accuracy() {
    let folder = folder_with(TRAINING);
    let run = |threads: &str| {
        let args = ["sim", "scenarios/small.yaml", "--json", "--report", "page", "--threads", threads];
        let output = trimwire(&args, folder.path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json(&output.stdout)
    };
    let once = run("1");
    assert_eq!(once, run("2"));
    let [trim, dctcp] = [0, 1].map(|run| &once["runs"][run]["training"]);
    for trained in [trim, dctcp] {
        assert_eq!((&trained["workers"], &trained["steps"]), (&8.into(), &16.into()));
        // Three images in four after sixteen steps, where chance has one in ten.
        assert!(trained["accuracy"].as_f64().unwrap() > 0.75, "{trained}");
        let (target, end) =
            (trained["seconds_to_target"].as_f64().unwrap(), 16.0 * trained["step_p99_s"].as_f64().unwrap());
        assert!(target > 4.0 * 100e-6 && target < end, "{trained}");
    }
    // Packets that were sent again have the replicas exact; what was trimmed has not.
    assert_eq!(
        (&dctcp["drift"], &dctcp["nmse"].as_f64().map(|nmse| nmse < 1e-12)),
        (&0.0.into(), &Some(true))
    );
    let page = std::fs::read_to_string(folder.path().join("page/index.html")).unwrap();
    assert!(page.contains("Accuracy against time") && page.contains("to target"));
}

#[test]
fn a_training_that_makes_no_sense_is_refused_by_name_and_line() {
    let cases = [
        ("hidden: 64", "hidden: 0", "small.yaml:4: hidden: 0; valid are 1"),
        ("hidden: 64", "hidden: 5000", "which are 4194304 a worker; valid are up to 32768"),
        ("hosts_per_leaf: 4", "hosts_per_leaf: 129", "training: 258 hosts; valid are up to 256 workers"),
        ("learning_rate: 0.1", "learning_rate: -1", "learning_rate: -1; valid are positive"),
        ("target: 0.5", "target: 50", "target: 50; valid are 0 to 1"),
        ("{ trimwire: {} }", "{ trimwire: {} }, compression: 2", "take three bytes a coordinate"),
        ("{ dctcp: {} }", "{ dctcp: {} }, compression: 3", "valid in a training are 1, f32, and 2, f16"),
        ("{ trimwire: {} }", "{ trimwire: {} }, payload: 1368", "multiples of 96"),
        (
            "workload: { background",
            "workload: { permutation: { bytes: 1KB }, background",
            "valid beside it is background",
        ),
        ("compute: 100us, ", "", "compute"),
    ];
    for (from, to, expected) in cases {
        assert!(TRAINING.contains(from), "{from}");
        let folder = folder_with(&TRAINING.replace(from, to));
        let output = trimwire(&["sim", "scenarios/small.yaml"], folder.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{to}: {said}");
        assert!(said.contains(expected), "{to}: {said}");
    }
}

#[test]
fn a_training_that_would_take_all_memory_is_refused() {
    let large =
        TRAINING.replace("hosts_per_leaf: 4", "hosts_per_leaf: 128").replace("hidden: 64", "hidden: 1000");
    let folder = folder_with(&large);
    let output = trimwire(&["sim", "scenarios/small.yaml"], folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("hidden: 1000 makes 536870912 coordinates of 256 workers together"), "{said}");
}

#[test]
fn keys_are_set_and_a_key_that_is_given_again_is_a_sweep() {
    let folder = folder_with(SCENARIO);
    let run = |more: &[&str]| trimwire(&[&["sim", "scenarios/small.yaml"], more].concat(), folder.path());
    let swept = run(&[
        "--json",
        "--set",
        "seed=3",
        "--set",
        "workload.incast.senders=1",
        "--set",
        "workload.incast.senders=3",
        "--report",
        "report",
    ]);
    assert!(swept.status.success(), "{}", String::from_utf8_lossy(&swept.stderr));
    let swept = json(&swept.stdout);
    assert_eq!(swept["seed"], 3);
    let found: Vec<(&str, u64)> = swept["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| (run["name"].as_str().unwrap(), run["flows"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            ("trim, senders 1", 1),
            ("ndp <b>, senders 1", 1),
            ("trim, senders 3", 3),
            ("ndp <b>, senders 3", 3)
        ]
    );
    let page = std::fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    assert!(page.contains("Sweep"));
    // What is set is what a file with it would give.
    std::fs::write(folder.path().join("scenarios/small.yaml"), SCENARIO.replace("senders: 3", "senders: 2"))
        .unwrap();
    let written = json(&run(&["--json"]).stdout);
    std::fs::write(folder.path().join("scenarios/small.yaml"), SCENARIO).unwrap();
    assert_eq!(json(&run(&["--json", "--set", "workload.incast.senders=2"]).stdout), written);
    for (set, word) in [
        ("seed", "KEY=VALUE"),
        ("workload.incast.sender=2", "sender"),
        ("workload.incast.senders=9", "senders: 9"),
        ("payload.size=3", "what it stands in has no keys"),
    ] {
        let output = run(&["--set", set]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(2 | 3)) && said.contains(word), "{set}: {said}");
    }
}

#[test]
fn a_report_keeps_each_flow_and_slowdowns_by_size_as_hpcc_has_them() {
    let folder = folder_with(SCENARIO);
    // Forty flows on an idle network, a hundred microseconds one after the other, of growing sizes.
    let row = |at| format!("0 1 3 100 {} 0.{:07}", 1_000 * (at + 1), at * 1_000);
    let rows: Vec<String> = (0..40).map(row).collect();
    let text = format!("40\n{}\n", rows.join("\n"));
    std::fs::write(folder.path().join("scenarios/flows.txt"), text).unwrap();
    let scenario = SCENARIO
        .replace("incast: { senders: 3, bytes: 100KB }", "trace: { file: flows.txt, format: hpcc }")
        .replace("trim, transport", "\"a, b\", transport")
        .replace("run: trim,", "run: \"a, b\",");
    std::fs::write(folder.path().join("scenarios/small.yaml"), scenario).unwrap();
    let output =
        trimwire(&["sim", "scenarios/small.yaml", "--run", "a, b", "--report", "out"], folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = |name: &str| -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(folder.path().join("out").join(name)).unwrap();
        let rows = text.lines().skip(1).map(|line| line.rsplit(',').map(str::to_owned).collect());
        rows.collect()
    };
    let (flows, parts) = (rows("flows.csv"), rows("slowdown.csv"));
    assert_eq!((flows.len(), parts.len()), (40, 20));
    for (part, row) in parts.iter().enumerate() {
        // Two flows a part, the larger of which names it; alone on the network nothing is slower.
        assert_eq!(row[3], (2_000 * (part + 1)).to_string());
        for slowdown in &row[..3] {
            let slowdown: f64 = slowdown.parse().unwrap();
            assert!((1.0..1.02).contains(&slowdown), "{row:?}");
        }
    }
    for row in &flows {
        let (took, alone): (f64, f64) = (row[2].parse().unwrap(), row[1].parse().unwrap());
        assert!((took / alone - 1.0).abs() < 0.02, "{row:?}");
    }
}
