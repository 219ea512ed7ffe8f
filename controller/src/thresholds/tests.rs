// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;
use trimwire_planner::thresholds::Class;

use super::model::{LAYER, LESS_IMPORTANT, SENSITIVITY, TOP};
use super::*;
use crate::Fabric;

const EXAMPLES: [(&str, &str); 2] = [
    ("resnet-50.yaml", include_str!("../../../examples/models/resnet-50.yaml")),
    ("gpt-2.yaml", include_str!("../../../examples/models/gpt-2.yaml")),
];

const GOOD: &str = "\
version: 1
model: two layers
load: 1.1
line_rate: 10Gbps
buffer: 30KB
classes: 2
layers:
  - { name: front, parameters: 1000 }
  - { name: back, parameters: 3000, sensitivity: 2 }
";

fn model(text: &str) -> Model {
    Model::from_yaml(text, "layers.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn errors(text: &str) -> String {
    Model::from_yaml(text, "layers.yaml").expect_err("has mistakes").to_string()
}

#[test]
fn more_load_loses_more_and_more_buffer_loses_less() {
    for (name, text) in EXAMPLES {
        let answers = ["0.8", "0.95", "1.2", "2"].map(|load| {
            let at = text.find("load: ").unwrap() + 6;
            let end = at + text[at..].find('\n').unwrap();
            answer(&model(&format!("{}{load}{}", &text[..at], &text[end..])), None).unwrap()
        });
        for pair in answers.windows(2) {
            assert!(pair[0].dropping.weighted_loss < pair[1].dropping.weighted_loss, "{name}");
            assert!(pair[0].trimming.weighted_loss <= pair[1].trimming.weighted_loss, "{name}");
            assert!(pair[0].appendix_b.predicted_loss < pair[1].appendix_b.predicted_loss, "{name}");
        }
        for answer in answers {
            assert!(answer.trimming.weighted_loss < answer.dropping.weighted_loss, "{name}");
            for points in answer.curve.windows(2) {
                assert!(points[1].dropping <= points[0].dropping * 1.001, "{name} {points:?}");
                assert!(points[1].trimming <= points[0].trimming * 1.001, "{name} {points:?}");
            }
        }
    }
}

#[test]
fn a_policy_pasted_into_a_fabric_says_the_thresholds_of_the_answer() {
    const FABRIC: &str = include_str!("../../../examples/fabrics/single-switch.yaml");
    let bare = &FABRIC[..FABRIC.find("# A queue that holds").unwrap()];
    for (name, text) in EXAMPLES.into_iter().chain([("good", GOOD)]) {
        let model = model(text);
        for trims in [true, false] {
            let plain = Fabric::from_yaml(bare, "bare.yaml").unwrap();
            let answer = answer(&model, Some(&plain)).unwrap();
            let pasted = format!("{bare}{}", fragment(&answer, trims));
            let fabric =
                Fabric::from_yaml(&pasted, "pasted.yaml").unwrap_or_else(|error| panic!("{error}\n{pasted}"));
            let wanted = if trims { &answer.trimming } else { &answer.dropping };
            let port = &fabric.policies["s1"][&1];
            for (class, queue) in wanted.classes.iter().zip(&fabric.queues.classes) {
                let [less, important] = port.queues[queue];
                let got = [less.shallow_at, less.drop_at, important.drop_at].map(u64::from);
                assert_eq!(
                    got,
                    [class.less_important_shallow_at, class.drop_at, class.drop_at],
                    "{name}\n{pasted}"
                );
                if trims {
                    let got = [less.deep_at, important.shallow_at, important.deep_at].map(u64::from);
                    let expected =
                        [class.less_important_deep_at, class.important_shallow_at, class.important_deep_at];
                    assert_eq!(got, expected, "{name}");
                    assert_eq!(u64::from(less.trim_drop_at), wanted.trim_limit);
                    assert_eq!(u64::from(less.shallow_size), answer.settings.shallow_size);
                }
            }
            let held: u64 = wanted.classes.iter().map(|class| class.drop_at).sum();
            assert!(held + wanted.trim_limit <= answer.settings.buffer, "{name}");
        }
    }
}

#[test]
fn every_mistake_of_a_layers_file_is_reported_at_once() {
    let text = "\
version: 2
modle: x
load: 0
line_rate: 10Gb
buffer: never
classes: 9
grouping: dept
trim_cap: 200%
less_important: { share: 10%, energy: 50%, weight: 1 }
sensitivity: { front: none }
layers:
  - { name: a, parameters: 10, bytes: 40 }
  - { nam: b, parameters: 0 }
  - { name: c }
  - { name: d, bytes: 4 }
  - { name: e, parameters: 4, sensitivity: -1 }
";
    assert_eq!(
        errors(text),
        "\
layers.yaml:1: version: '2' is not a version that this controller reads; valid: 1
layers.yaml:2: modle: unknown key; did you mean 'model'? (valid: version, model, load, line_rate, buffer, classes, grouping, mtu, mean_packet, burst, shallow_size, deep_size, trim_cap, less_important, sensitivity, layers)
layers.yaml:3: load: '0' is no load, as in 0.9 or 90%; valid are numbers above 0 and up to 100, or in per cent
layers.yaml:4: line_rate: '10Gb': unknown unit 'Gb' for a speed (units: bps, kbps, Mbps, Gbps, Tbps)
layers.yaml:5: buffer: 'never' is no buffer; write bytes (512KiB) or a time at line rate (400us), not zero
layers.yaml:6: classes: '9' is not a whole number from 1 to 8
layers.yaml:7: grouping: 'dept' is not valid here; did you mean 'depth'? (valid: depth, sensitivity)
layers.yaml:8: trim_cap: '200%' is no share, as in 50%; valid are numbers above 0 and up to 1, or in per cent
layers.yaml:9: less_important: 0.1 of the packets carry 0.5 of the energy: then they are the more important ones; energy is at most share
layers.yaml:9: less_important.weight: unknown key; valid: share, energy
layers.yaml:10: sensitivity.front: 'none' is no sensitivity of the rule, whose steps are ratios; valid are numbers above 0 and up to 1000000000000, or in per cent
layers.yaml:12: layers[0].bytes: beside 'parameters'; write one of the two
layers.yaml:13: layers[1].nam: unknown key; did you mean 'name'? (valid: name, parameters, bytes, sensitivity)
layers.yaml:13: layers[1].parameters: '0' is not a whole number from 1 to 1125899906842624
layers.yaml:14: layers[2]: 'parameters' is missing; write parameters: 2049000, or bytes: 8196000
layers.yaml:16: layers[4].parameters: the layer of line 15 is counted in bytes; count all alike
layers.yaml:16: layers[4].sensitivity: '-1' is no sensitivity; write a number, 0 or more"
    );
    for (text, expected) in [
        ("", "layers.yaml:1: 'layers' is missing"),
        ("a: [", "not YAML: "),
        ("layers: 3\n", "layers.yaml:1: layers: is a single value; a list of layers is wanted, front first"),
        (&GOOD.replace("classes: 2", "classes: 3"), "layers.yaml:6: classes: 3 classes, but only 2 layers"),
        (
            "version: 1\nload: 1\nbuffer: 1KiB\nlayers: [{ parameters: 1, sensitivity: 0 }]\n",
            "layers.yaml:4: layers: no layer is sensitive to anything",
        ),
    ] {
        assert!(errors(text).contains(expected), "{}", errors(text));
    }
}

#[test]
fn what_does_not_fit_port_or_fabric_is_reported_with_its_line() {
    let fabric =
        Fabric::from_yaml(include_str!("../../../examples/fabrics/single-switch.yaml"), "f.yaml").unwrap();
    let layers = "  - { parameters: 9 }\n".repeat(6);
    for (text, fabric, expected) in [
        (
            GOOD.replace("buffer: 30KB", "buffer: 4KB"),
            None,
            "layers.yaml:5: buffer: 4000 bytes are 2 bursts of 1406 bytes",
        ),
        (GOOD.replace("line_rate: 10Gbps\n", ""), None, "layers.yaml:1: 'line_rate' is missing"),
        (
            GOOD.replace("classes: 2", "shallow_size: 10 planes"),
            None,
            "layers.yaml:6: shallow_size: 1406 bytes are a whole packet",
        ),
        (
            GOOD.replace("classes: 2", "shallow_size: 1 plane\ndeep_size: 2 planes"),
            None,
            "layers.yaml:7: deep_size: 174 bytes are more than shallow_size, 118",
        ),
        (
            GOOD.replace("classes: 2", "classes: 6") + &layers,
            Some(&fabric),
            "layers.yaml:6: classes: 6 classes, but the fabric has 4 (queues.classes)",
        ),
    ] {
        let error = answer(&model(&text), fabric).expect_err("does not fit").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

fn classes_of(text: &str, classes: usize) -> Vec<Class> {
    let model = model(text);
    Class::of(&model.layers, model.grouping, classes)
}

#[test]
fn layers_are_grouped_as_the_agent_tags_them() {
    let text = format!("version: 1\nload: 1\nbuffer: 1MB\nlayers:\n{}", "  - { parameters: 9 }\n".repeat(10));
    let classes = classes_of(&text, 4);
    // ⌊4 i / 10⌋: 3, 2, 3, 2 layers.
    let counts: Vec<usize> = classes.iter().map(|class| class.layers.len()).collect();
    assert_eq!(counts, [3, 2, 3, 2]);
    assert!(classes.is_sorted_by(|front, back| front.weight / front.share < back.weight / back.share));
    assert!((classes.iter().map(|class| class.share).sum::<f64>() - 1.0).abs() < 1e-12);
    assert!((classes.iter().map(|class| class.weight).sum::<f64>() - 1.0).abs() < 1e-12);

    let text =
        text.replace("load: 1\n", "load: 1\ngrouping: sensitivity\nsensitivity: { front: 2, back: 1 }\n");
    let classes = classes_of(&text, 2);
    assert_eq!(
        classes[0].layers,
        ["5", "6", "7", "8", "9"],
        "what matters least is served, and trimmed, first"
    );
}

#[test]
fn the_schema_and_the_documentation_know_the_same_keys_as_the_reader() {
    let schema: serde_json::Value = serde_json::from_str(LAYERS_SCHEMA).unwrap();
    let documentation = include_str!("../../../docs/reference/layers-file.md");
    let definitions = &schema["$defs"];
    for (at, keys) in [
        (&schema, TOP),
        (&definitions["less_important"], LESS_IMPORTANT),
        (&definitions["sensitivity"], SENSITIVITY),
        (&definitions["layer"], LAYER),
    ] {
        let mut known: Vec<&str> = at["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut valid = keys.to_vec();
        known.sort_unstable();
        valid.sort_unstable();
        assert_eq!(known, valid);
        assert_eq!(at["additionalProperties"], false);
        for key in keys {
            assert!(
                documentation.contains(&format!("`{key}`")),
                "docs/reference/layers-file.md does not mention {key}"
            );
        }
    }
}

#[test]
fn the_report_has_a_line_for_every_point_of_the_curve() {
    let answer = answer(&model(GOOD), None).unwrap();
    let text = answer.to_string();
    let (_, table) = text.split_once("The same by buffer").unwrap();
    let rows = table.lines().skip(2).take_while(|line| !line.is_empty());
    assert_eq!(rows.count(), answer.curve.len());
    assert!(answer.curve.len() > 5);
}

proptest! {
    #[test]
    fn any_file_gives_a_model_or_lines_that_exist(
        edits in proptest::collection::vec((0_usize..9, 0_usize..4, "[ -~]{0,12}"), 0..5),
    ) {
        let mut lines: Vec<String> = GOOD.lines().map(str::to_owned).collect();
        for (line, edit, garbage) in edits {
            let at = line.min(lines.len() - 1);
            match edit {
                0 => { lines.remove(at); lines.push(String::new()); }
                1 => { let copy = lines[at].clone(); lines.insert(at, copy); }
                2 => lines[at].push_str(&garbage),
                _ => lines[at] = garbage,
            }
        }
        let count = lines.len();
        match Model::from_yaml(&lines.join("\n"), "layers.yaml") {
            Ok(model) => { let _ = answer(&model, None); }
            Err(error) => {
                prop_assert!(!error.problems().is_empty());
                for problem in error.problems() {
                    prop_assert!((1..=count + 1).contains(&problem.line), "{problem:?}");
                }
            }
        }
    }
}
