// SPDX-License-Identifier: Apache-2.0
//! `trimwire-lab plan`, as users run it.

use std::path::PathBuf;
use std::process::{Command, Output};

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/plans").join(name)
}

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trimwire-lab")).arg("plan").args(args).output().expect("runs")
}

fn paths(model: &str, cluster: &str) -> [String; 2] {
    [example(model), example(cluster)].map(|path| path.display().to_string())
}

fn json(args: &[&str]) -> serde_json::Value {
    let output = run(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// What the page prints of VGG16 is what its readers get. All rows are held against the planner
/// itself, by a test of its own.
#[test]
fn a_plan_names_an_option_for_each_tensor_and_is_as_fast_as_the_page_prints() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/figures/papers-espresso.md");
    let page = std::fs::read_to_string(page).unwrap();
    let row = page.lines().find(|line| line.starts_with("| pcie-25g | vgg16 |")).expect("a row");
    let [model, cluster] = paths("vgg16.yaml", "pcie-25g.yaml");
    let plan = json(&[&model, &cluster, "--json"]);
    let seconds = |key: &str| plan[key].as_f64().expect("a number");
    let over = seconds("uncompressed_seconds") / seconds("iteration_seconds");
    assert!(row.contains(&format!("| 3.69; {over:.2} |")), "{over} is not in {row}");
    assert!(seconds("upper_bound_seconds") <= seconds("iteration_seconds"));
    assert_eq!(plan["options"], 4341);
    let strategy = plan["strategy"].as_array().expect("a list");
    assert_eq!(strategy.len(), 32);
    assert!(strategy.iter().all(|choice| choice["why"].is_string() && choice["option"].is_string()));
}

#[test]
fn a_plan_is_drawn_and_checked_against_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let [lstm, pcie] = paths("lstm.yaml", "pcie-25g.yaml");
    let [gpt, _] = paths("gpt-2.yaml", "");
    let drawing = folder.path().join("timeline.html").display().to_string();
    let made = run(&[&lstm, &pcie, "--json", "--report", &drawing]);
    let plan = folder.path().join("plan.json");
    std::fs::write(&plan, &made.stdout).unwrap();
    let plan = plan.display().to_string();
    let page = std::fs::read_to_string(&drawing).unwrap();
    assert!(
        page.contains("<h1>LSTM on 8 x 8 V100")
            && page.contains("<title>T9</title>")
            && page.contains("between machines")
    );

    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let again = json(&[&lstm, &pcie, "--plan", &plan, "--json"]);
    let (made, again) = (&made["iteration_seconds"], &again["iteration_seconds_by_congestion"][0]);
    assert!((made.as_f64().unwrap() - again.as_f64().unwrap()).abs() < 1e-9);

    let refused = run(&[&gpt, &pcie, "--plan", &plan]);
    assert_eq!(refused.status.code(), Some(3));
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("the plan was made for LSTM: it has 10 tensors, and GPT-2 148"), "{message}");
}

#[test]
fn bad_input_names_the_culprit_and_leaves_with_3() {
    let folder = tempfile::tempdir().unwrap();
    let [lstm, pcie] = paths("lstm.yaml", "pcie-25g.yaml");
    let damaged = |file: &str, from: &str, to: &str| {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains(from), "{file}");
        let path = folder.path().join("damaged.yaml");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        path.display().to_string()
    };
    let message = |args: &[&str]| {
        let output = run(args);
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let model = damaged(&lstm, "elements: 6000", "elements: -6000");
    let error = message(&[&model, &pcie]);
    assert!(error.contains("rnns.1.bias_hh_l0.elements: -6000; valid are 1 to 2^40"), "{error}");
    let cluster = damaged(&pcie, "gbps: 25", "gbps: 0");
    assert!(message(&[&lstm, &cluster]).contains("inter.gbps: 0; valid are bandwidths above 0"));
    let model = damaged(&lstm, "elements: 6000", "after: [rnns.1.bias_hh_l0], elements: 6000");
    assert!(
        message(&[&model, &pcie]).contains("cycle of tensors that wait for each other: rnns.1.bias_hh_l0")
    );
    assert!(message(&["no-such.yaml", &pcie]).contains("cannot read no-such.yaml"));
    // Said once, and in so many words.
    let model = damaged(&lstm, "elements: 6000", "elements: [6000]");
    assert_eq!(message(&[&model, &pcie]).matches("expected i64").count(), 1);
    let model = damaged(&lstm, "elements: 6000", &format!("{}: 6000", "e".repeat(1_000_000)));
    assert!(message(&[&model, &pcie]).len() < 2000);
    // A device that never ends.
    let error = message(&["/dev/zero", &pcie]);
    assert!(error.contains("cannot read /dev/zero: more than 16777216 bytes"), "{error}");
}

#[test]
fn thresholds_print_a_report_and_the_policy_that_it_comes_to() {
    let layers = example("../models/resnet-50.yaml").display().to_string();
    let output = run(&["thresholds", &layers]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["Poisson", "by buffer", "times less", "\npolicy:\n  shallow_size: 584B\n"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let (_, curve) = text.split_once("The same by buffer").unwrap();
    let answer = json(&["thresholds", &layers, "--json"]);
    let points = curve.lines().skip(2).take_while(|line| !line.is_empty()).count();
    assert!(points > 5 && points == answer["curve"].as_array().unwrap().len(), "{curve}");
    assert!(answer["saved"].as_f64().unwrap() > 1.0);
    assert_eq!(answer["trimming"]["classes"].as_array().unwrap().len(), 4);
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.yaml").display().to_string();
    std::fs::write(&broken, "version: 1\nlod: 1\n").unwrap();
    let output = run(&["thresholds", &broken]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(3) && words.contains("unknown field `lod`"), "{words}");
}
