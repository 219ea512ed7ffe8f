// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;
use trimwire_controller::Fabric;

use super::*;

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

fn layers(text: &str) -> Layers {
    Layers::from_yaml(text, "layers.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn answered(text: &str) -> Answer {
    answer(&layers(text), "layers.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    let answer = Layers::from_yaml(text, "layers.yaml").and_then(|file| answer(&file, "layers.yaml"));
    answer.expect_err("has mistakes").to_string()
}

#[test]
fn more_load_loses_more_and_more_buffer_loses_less() {
    for (name, text) in EXAMPLES {
        let answers = ["0.8", "0.95", "1.2", "2"].map(|load| {
            let at = text.find("load: ").unwrap() + 6;
            let end = at + text[at..].find('\n').unwrap();
            answered(&format!("{}{load}{}", &text[..at], &text[end..]))
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
        let answer = answered(text);
        let pasted = format!("{bare}{}", answer.policy());
        let fabric =
            Fabric::from_yaml(&pasted, "pasted.yaml").unwrap_or_else(|error| panic!("{error}\n{pasted}"));
        let wanted = &answer.trimming;
        let port = &fabric.policies["s1"][&1];
        for (class, queue) in wanted.classes.iter().zip(&fabric.queues.classes) {
            let [less, important] = port.queues[queue];
            let got = [less.shallow_at, less.deep_at, less.drop_at].map(u64::from);
            let expected = [class.less_important_shallow_at, class.less_important_deep_at, class.drop_at];
            assert_eq!(got, expected, "{name}\n{pasted}");
            let got = [important.shallow_at, important.deep_at, important.drop_at].map(u64::from);
            assert_eq!(got, [class.important_shallow_at, class.important_deep_at, class.drop_at], "{name}");
            assert_eq!(u64::from(less.trim_drop_at), wanted.trim_limit);
            assert_eq!(u64::from(less.shallow_size), answer.settings.shallow_size);
        }
        let held: u64 = wanted.classes.iter().map(|class| class.drop_at).sum();
        assert!(held + wanted.trim_limit <= answer.settings.buffer, "{name}");
    }
}

#[test]
fn a_mistake_is_told_with_its_place_and_what_is_valid() {
    let with = |line: &str| GOOD.replace("classes: 2\n", &format!("classes: 2\n{line}\n"));
    let layers = |layers: &str| format!("{}layers: [{layers}]\n", &GOOD[..GOOD.find("layers:\n").unwrap()]);
    for (text, expected) in [
        (String::new(), "missing field `version`"),
        (GOOD.replace("version: 1", "version: 2"), "version: 2 is not read here; valid: 1"),
        (with("modle: x"), "unknown field `modle`, expected one of `version`, `model`"),
        (GOOD.replace("1.1", "0"), "load: '0' is no load, as in 0.9 or 90%"),
        (GOOD.replace("10Gbps", "10Gb"), "line_rate: '10Gb': unknown unit 'Gb' for a speed"),
        (GOOD.replace("30KB", "never"), "buffer: 'never' is no buffer"),
        (GOOD.replace("30KB", "4KB"), "buffer: 4000 bytes are 2 bursts of 1444 bytes"),
        (GOOD.replace("classes: 2", "classes: 9"), "classes: 9; valid are 1 to 8"),
        (GOOD.replace("classes: 2", "classes: 3"), "classes: 3, but there are 2 layers"),
        (with("grouping: dept"), "unknown variant `dept`, expected `depth` or `sensitivity`"),
        (with("trim_cap: 200%"), "trim_cap: '200%' is no share; write 0 to 1, or 0% to 100%"),
        (with("less_important: { share: 10%, energy: 50% }"), "energy is at most share"),
        (with("sensitivity: { front: 0 }"), "sensitivity: front and back are numbers above 0"),
        (with("shallow_size: 8 planes"), "shallow_size: 1444 bytes are a whole packet"),
        (with("shallow_size: 1 plane\ndeep_size: 2 planes"), "412 bytes are more than shallow_size, 240"),
        (layers(""), "layers: 0; valid are 1 to 100000"),
        (layers("{ parameters: 1, bytes: 4 }, { bytes: 4 }"), "layers[0]: 'parameters' beside 'bytes'"),
        (layers("{ parameters: 0 }, { parameters: 4 }"), "layers[0]: a size is a whole number from 1"),
        (layers("{ name: c }, { parameters: 4 }"), "layers[0]: 'parameters' is missing"),
        (layers("{ bytes: 4 }, { parameters: 4 }"), "layers[1]: not counted in what the first layer is"),
        (layers("{ bytes: 4, sensitivity: -1 }, { bytes: 4 }"), "layers[0]: a sensitivity is a number"),
        (
            layers("{ bytes: 4, sensitivity: 0 }, { bytes: 4, sensitivity: 0 }"),
            "none is sensitive to anything",
        ),
    ] {
        let found = error(&text);
        assert!(found.starts_with("layers.yaml: ") && found.contains(expected), "{expected}: {found}");
    }
}

fn classes_of(text: &str, classes: usize) -> Vec<Class> {
    let file = layers(text);
    Class::of(&file.layers(), file.grouping.into(), classes)
}

#[test]
fn layers_are_grouped_as_the_agent_tags_them() {
    let text = format!(
        "version: 1\nload: 1\nline_rate: 1Gbps\nbuffer: 1MB\nlayers:\n{}",
        "  - { parameters: 9 }\n".repeat(10)
    );
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
fn the_documentation_names_every_key() {
    let documentation = include_str!("../../../docs/reference/layers-file.md");
    for key in [
        "version",
        "model",
        "load",
        "line_rate",
        "buffer",
        "classes",
        "grouping",
        "mtu",
        "mean_packet",
        "burst",
        "shallow_size",
        "deep_size",
        "trim_cap",
        "less_important",
        "sensitivity",
        "layers",
        "share",
        "energy",
        "front",
        "back",
        "name",
        "parameters",
        "bytes",
    ] {
        assert!(documentation.contains(&format!("`{key}`")), "docs/reference/layers-file.md: {key}");
        // A misspelt key is answered with the keys that there are.
        let known = error(&format!("{GOOD}wrong: 1\n"));
        let nested = ["share", "energy", "front", "back", "name", "parameters", "bytes"].contains(&key);
        assert!(nested || known.contains(&format!("`{key}`")), "{key}: {known}");
    }
}

proptest! {
    #[test]
    fn any_file_gives_an_answer_or_a_reason(
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
        match Layers::from_yaml(&lines.join("\n"), "layers.yaml") {
            Ok(file) => { let _ = answer(&file, "layers.yaml"); }
            Err(error) => prop_assert!(error.to_string().starts_with("layers.yaml: ")),
        }
    }
}
