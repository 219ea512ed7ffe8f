// SPDX-License-Identifier: Apache-2.0
use super::tests::{cluster, trimming};
use super::*;
use proptest::prelude::*;

const MODEL: &str = "\
model: two
forward_ms: 1
tensors:
  - { name: b, elements: 10, compute_us: 5 }
  - { name: a, elements: 20, compute_us: 6 }
";

#[test]
fn mistakes_of_a_model_file_name_the_culprit() {
    assert_eq!(Model::from_yaml(MODEL, "m.yaml").unwrap().tensors.len(), 2);
    for (from, to, wanted) in [
        ("elements: 20", "elements: -20", "m.yaml: a.elements: -20; valid are 1 to 2^40"),
        ("elements: 20", "elements: 0", "m.yaml: a.elements: 0; valid are 1 to 2^40"),
        ("compute_us: 6", "compute_us: .nan", "m.yaml: a.compute_us: NaN; valid are 0 to 1000000000"),
        ("forward_ms: 1", "forward_ms: -1", "m.yaml: two.forward_ms: -1; valid are 0 to 1000000000"),
        ("name: a", "name: b", "m.yaml: two tensors are called 'b'"),
        ("compute_us: 6", "compute_us: 6, after: [c]", "m.yaml: a.after: there is no tensor 'c'"),
        (
            "compute_us: 6",
            "compute_us: 6, after: [a]",
            "m.yaml: cycle of tensors that wait for each other: a → a",
        ),
    ] {
        let error = Model::from_yaml(&MODEL.replace(from, to), "m.yaml").unwrap_err().to_string();
        assert_eq!(error, wanted);
    }
    let cycle = MODEL
        .replace("compute_us: 6", "compute_us: 6, after: [b]")
        .replace("compute_us: 5", "compute_us: 5, after: [a]");
    let error = Model::from_yaml(&cycle, "m.yaml").unwrap_err().to_string();
    assert_eq!(error, "m.yaml: cycle of tensors that wait for each other: b → a → b");
    let later = MODEL.replace("compute_us: 5", "compute_us: 5, after: [a]");
    let names: Vec<String> =
        Model::from_yaml(&later, "m.yaml").unwrap().tensors.into_iter().map(|tensor| tensor.name).collect();
    assert_eq!(names, ["a", "b"]);
    let error =
        Model::from_yaml(&MODEL.replace("elements: 20", "elemnts: 20"), "m.yaml").unwrap_err().to_string();
    assert!(error.contains("m.yaml: ") && error.contains("elemnts") && error.contains("line 5"), "{error}");
    assert!(Model::from_yaml("", "m.yaml").is_err() && Model::from_yaml("model: [", "m.yaml").is_err());
}

#[test]
fn nothing_of_a_file_reaches_a_terminal_as_it_is_or_at_any_length() {
    let error = |text: &str| Model::from_yaml(text, "m.yaml").unwrap_err().to_string();
    assert_eq!(
        error(&MODEL.replace("name: a", "name: \"a\\e[2J\"")),
        "m.yaml: tensors[1].name: 'a\\u{1b}[2J'; valid are names of 1 to 1000 characters that can be printed"
    );
    for (from, to) in [
        ("name: a", "name: ''"),
        ("name: a", "name: \"a\\u202e\""),
        ("model: two", "model: \"\\n\""),
        ("compute_us: 6", "compute_us: 6, after: [\"\\0\"]"),
        ("elements: 20", "\"\\e[2J\": 20"),
        ("elements: 20", "elements: \"\\e[2J\""),
    ] {
        let text = MODEL.replace(from, to);
        assert_ne!(text, MODEL);
        assert!(!error(&text).chars().any(char::is_control), "{:?}", error(&text));
    }
    for long in [format!("name: {}", "a".repeat(1_000_000)), format!("name: a, {}: 1", "a".repeat(1_000_000))]
    {
        let error = error(&MODEL.replace("name: a", &long));
        assert!(error.len() < 1000 && error.starts_with("m.yaml: "), "{error}");
    }
    let mut cluster = cluster(&mut 1);
    cluster.cluster = "\u{1b}c".to_owned();
    let said = cluster.check().unwrap_err().to_string();
    assert!(said.starts_with("cluster: \\u{1b}c; "), "{said}");
}

/// Without a limit a file of 100,000 brackets took minutes.
#[test]
fn what_would_take_for_ever_to_read_or_to_plan_is_refused() {
    let error = |text: &str| Model::from_yaml(text, "m.yaml").unwrap_err().to_string();
    assert_eq!(
        error(&format!("model: x\ntensors: {}", "[".repeat(100_000))),
        "m.yaml: line 2: more than 1000 brackets within each other"
    );
    assert_eq!(error(&"{a: ".repeat(100_000)), "m.yaml: line 1: more than 1000 brackets within each other");
    let large = " ".repeat(17 << 20);
    assert_eq!(error(&large), "m.yaml: 17825792 bytes; valid are up to 16777216");
    let tensor = |i| Tensor { name: format!("t{i}"), elements: 1, compute_us: 1.0, after: Vec::new() };
    let many = Model { model: "m".to_owned(), forward_ms: 1.0, tensors: (0..10_001).map(tensor).collect() };
    assert_eq!(many.check().unwrap_err().to_string(), "tensors: 10001; valid are up to 10000");
}

#[test]
fn mistakes_of_a_cluster_name_the_culprit() {
    let good = cluster(&mut 1);
    good.check().unwrap();
    let wrong = |change: &dyn Fn(&mut Cluster)| {
        let mut cluster = good.clone();
        change(&mut cluster);
        cluster.check().unwrap_err().to_string()
    };
    assert_eq!(
        wrong(&|cluster| cluster.inter.gbps = 0.0),
        "inter.gbps: 0; valid are bandwidths above 0, up to 1000000"
    );
    assert_eq!(
        wrong(&|cluster| cluster.intra.latency_us = f64::NAN),
        "intra.latency_us: NaN; valid are 0 to 1000000000"
    );
    assert_eq!(wrong(&|cluster| cluster.machines = 0), "machines: 0; valid are 1 to 65536");
    assert_eq!(
        wrong(&|cluster| cluster.compressor.cpu.compress.gbytes_per_s = -1.0),
        "compressor.cpu.compress.gbytes_per_s: -1; valid are rates above 0, up to 1000000"
    );
    assert_eq!(
        wrong(&|cluster| cluster.congestion = vec![Congestion { share: 0.5, bandwidth: 1.0 }]),
        "congestion: shares add up to 0.5; valid are shares that add up to 1"
    );
    assert_eq!(
        wrong(&|cluster| cluster.trimming = Some(Trimming { planes: vec![11], ..trimming() })),
        "trimming.planes: [11]; valid are one or more of 1 to 10"
    );
}

proptest! {
    #[test]
    fn files_of_any_text_are_answered(text in "\\PC{0,80}", at in 0_usize..120, with in "[-0-9a-z:\\[\\]{},. \\n]{0,6}") {
        let _ = Model::from_yaml(&text, "m");
        let mut damaged = MODEL.to_owned();
        damaged.insert_str(at.min(MODEL.len()), &with);
        if let Ok(model) = Model::from_yaml(&damaged, "m") {
            prop_assert!(model.tensors.iter().all(|tensor| tensor.elements > 0));
        }
    }
}
