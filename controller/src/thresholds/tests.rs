use proptest::prelude::*;

use super::appendix_b;
use super::model::{LAYER, LESS_IMPORTANT, SENSITIVITY, TOP};
use super::port::{ClassLimits, PortLimits, Rungs, Traffic, fate};
use super::queue::{Limits, Shared, loss};
use super::solve::solve;
use super::*;
use crate::Fabric;

mod simulated;

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

/// Numbers that are the same on every run; not for anything but tests.
fn splitmix(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

fn traffic(random: &mut u64, classes: usize) -> Traffic {
    let load = 0.3 + 1.7 * splitmix(random);
    let shares: Vec<f64> = (0..classes).map(|_| 0.05 + splitmix(random)).collect();
    let sum: f64 = shares.iter().sum();
    Traffic {
        arrivals: shares.iter().map(|share| load * share / sum).collect(),
        weights: (0..classes).map(|_| splitmix(random)).collect(),
        less_important: 0.2 + 0.6 * splitmix(random),
        less_important_energy: 0.02 + 0.15 * splitmix(random),
    }
}

fn rungs(random: &mut u64) -> Rungs {
    let deep = 0.05 + 0.2 * splitmix(random);
    let shallow = deep + 0.3 * splitmix(random);
    let cost = 0.05 * splitmix(random);
    Rungs {
        sizes: [shallow, deep],
        costs: [cost, cost + 0.5 * splitmix(random)],
        cap: 0.2 + 0.5 * splitmix(random),
    }
}

/// The paper's formula, and its limits.
#[test]
fn the_loss_is_the_papers_formula_at_every_load() {
    for rho in [0.1_f64, 0.5, 0.9, 1.1, 3.0] {
        for m in 0..40 {
            let printed = (rho.powi(m) - rho.powi(m + 1)) / (1.0 - rho.powi(m + 1));
            assert!((loss(rho, f64::from(m)) / printed - 1.0).abs() < 1e-9, "{rho} {m}");
        }
    }
    // Where the formula is 0/0: one of m + 1 equally likely states.
    assert!((loss(1.0, 9.0) - 0.1).abs() < 1e-6 && (loss(1.0 + 1e-10, 9.0) - 0.1).abs() < 1e-6);
    // An overloaded queue loses what it cannot serve, whatever its buffer; an empty one nothing.
    assert!((loss(4.0, 1e6) - 0.75).abs() < 1e-12);
    assert_eq!((loss(0.0, 3.0), loss(f64::INFINITY, 3.0), loss(0.5, 1e9)), (0.0, 1.0, 0.0));
}

proptest! {
    /// The state probabilities written down one by one, against the closed sums.
    #[test]
    fn a_shared_queue_is_its_birth_death_chain(
        arrivals in 0.01_f64..3.0, theta in 0.0_f64..1.0, first in 0_u32..20, rest in 0_u32..20, from in 0_u32..45,
    ) {
        let limits = Limits { less_important: first, all: first + rest };
        let mut weights = vec![1.0];
        for n in 0..limits.all {
            let births = if n < first { arrivals } else { arrivals * (1.0 - theta) };
            weights.push(weights[n as usize] * births);
        }
        let sum: f64 = weights.iter().sum();
        let tail = |n: u32| weights.iter().skip(n as usize).sum::<f64>() / sum;
        let queue = Shared::new(arrivals, theta, 1.0, limits);
        let refused = queue.refusals();
        prop_assert!((refused.less_important - tail(first)).abs() < 1e-9);
        prop_assert!((refused.important - tail(limits.all)).abs() < 1e-9);
        let from = from.max(first);
        prop_assert!((queue.at_least(from) - tail(from)).abs() < 1e-9);
        // With equal limits it is the paper's queue.
        let one = Shared::new(arrivals, theta, 1.0, Limits { less_important: first, all: first });
        prop_assert!((one.refusals().important - loss(arrivals, f64::from(first))).abs() < 1e-9);
    }

    #[test]
    fn no_load_and_no_limit_leads_out_of_probabilities(
        arrivals in 1e-6_f64..1e3, theta in 0.0_f64..=1.0, capacity in 0.0_f64..1.0, first in 0_u32..100_000, rest in 0_u32..100_000,
    ) {
        let limits = Limits { less_important: first, all: first + rest };
        let queue = Shared::new(arrivals, theta, capacity, limits);
        let refused = queue.refusals();
        let tail = queue.at_least(first + rest / 2);
        for share in [refused.less_important, refused.important, tail] {
            prop_assert!((0.0..=1.0).contains(&share), "{refused:?} {tail}");
        }
        prop_assert!(refused.important <= refused.less_important);
    }
}

/// Every S'_i, L'_i that fits, tried.
#[test]
fn appendix_b_s_optimum_is_the_least_of_all_there_are() {
    let mut random = 1;
    for _ in 0..60 {
        let traffic = traffic(&mut random, 2);
        for buffer in 0..8_u32 {
            let mut least = f64::INFINITY;
            for_each_sum(buffer, &mut [0; 4], 0, &mut |parts| {
                let rooms = [(parts[0], parts[1]), (parts[2], parts[3])];
                let theta = traffic.less_important;
                let ordered = |(small, large): &(u32, u32)| {
                    f64::from(*small) / theta <= f64::from(small + large) + 1e-9
                };
                if rooms.iter().all(ordered) {
                    least = least.min(appendix_b::weighted_loss(&traffic, &rooms));
                }
            });
            let found = appendix_b::optimum(&traffic, buffer);
            assert!((found.loss - least).abs() < 1e-12, "{traffic:?} {buffer}: {found:?}, least {least}");
            assert!((appendix_b::weighted_loss(&traffic, &found.rooms) - least).abs() < 1e-12);
        }
    }
}

fn for_each_sum(left: u32, parts: &mut [u32; 4], position: usize, visit: &mut impl FnMut(&[u32; 4])) {
    if position == parts.len() {
        visit(parts);
        return;
    }
    for own in 0..=left {
        parts[position] = own;
        for_each_sum(left - own, parts, position + 1, visit);
    }
}

/// Every limit, deep point and trim room that fits, tried.
fn least_of_all(traffic: &Traffic, rungs: Option<&Rungs>, buffer: u32) -> f64 {
    let mut of_class = Vec::new();
    for all in 0..=buffer {
        for less_important in 0..=all {
            let limits = Limits { less_important, all };
            if rungs.is_none() {
                of_class.push(ClassLimits { limits, deep: all + 1, important_deep: false });
                continue;
            }
            for deep in less_important..=all + 1 {
                of_class.extend([false, true].map(|important_deep| ClassLimits {
                    limits,
                    deep,
                    important_deep,
                }));
            }
        }
    }
    let mut least = f64::INFINITY;
    for first in &of_class {
        for second in &of_class {
            let room = first.limits.all + second.limits.all;
            if room > buffer {
                continue;
            }
            // Room that nothing takes is no better than room for heads.
            let trim = if rungs.is_some() { buffer - room } else { 0 };
            let limits = PortLimits { classes: vec![*first, *second], trim };
            least = least.min(fate(traffic, rungs, &limits).weighted_loss);
        }
    }
    least
}

#[test]
fn thresholds_for_dropping_are_the_best_of_all_there_are() {
    let mut random = 2;
    for _ in 0..60 {
        let traffic = traffic(&mut random, 2);
        for buffer in 1..8 {
            let (found, least) = (solve(&traffic, None, buffer), least_of_all(&traffic, None, buffer));
            assert!(found.limits.room() <= buffer);
            let found = found.fate.weighted_loss;
            assert!(found <= least * (1.0 + 1e-6) + 1e-15, "{traffic:?}, {buffer}: {found} for {least}");
        }
    }
}

#[test]
fn thresholds_for_trimming_are_the_best_of_all_there_are() {
    let mut random = 3;
    for _ in 0..12 {
        let (traffic, rungs) = (traffic(&mut random, 2), rungs(&mut random));
        for buffer in 1..5 {
            let found = solve(&traffic, Some(&rungs), buffer);
            let least = least_of_all(&traffic, Some(&rungs), buffer);
            assert!(found.limits.room() <= buffer);
            let found = found.fate.weighted_loss;
            assert!(
                found <= least * (1.0 + 1e-6) + 1e-15,
                "{traffic:?}, {rungs:?}, {buffer}: {found} for {least}"
            );
        }
    }
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

/// MLT §4.2.2: what matters less has the lower threshold.
#[test]
fn a_class_that_matters_more_gets_no_lower_threshold() {
    let mut random = 4;
    for _ in 0..40 {
        let mut traffic = traffic(&mut random, 2);
        let mut before = 0;
        for weight in [0.1, 0.3, 1.0, 3.0, 10.0] {
            traffic.weights[1] = weight;
            let all = appendix_b::optimum(&traffic, 30).thresholds(traffic.less_important)[1].1;
            assert!(all >= before, "{traffic:?}: {all} after {before}");
            before = all;
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

#[test]
fn layers_are_grouped_as_the_agent_tags_them() {
    let text = format!("version: 1\nload: 1\nbuffer: 1MB\nlayers:\n{}", "  - { parameters: 9 }\n".repeat(10));
    let classes = Class::of(&model(&text), 4);
    // ⌊4 i / 10⌋: 3, 2, 3, 2 layers.
    let counts: Vec<usize> = classes.iter().map(|class| class.layers.len()).collect();
    assert_eq!(counts, [3, 2, 3, 2]);
    assert!(classes.is_sorted_by(|front, back| front.weight / front.share < back.weight / back.share));
    assert!((classes.iter().map(|class| class.share).sum::<f64>() - 1.0).abs() < 1e-12);
    assert!((classes.iter().map(|class| class.weight).sum::<f64>() - 1.0).abs() < 1e-12);

    let text =
        text.replace("load: 1\n", "load: 1\ngrouping: sensitivity\nsensitivity: { front: 2, back: 1 }\n");
    let classes = Class::of(&model(&text), 2);
    assert_eq!(classes[0].layers, ["5", "6", "7", "8", "9"], "what matters least is served, and cut, first");
}

#[test]
fn the_schema_and_the_documentation_know_the_same_keys_as_the_reader() {
    let schema: serde_json::Value = serde_json::from_str(LAYERS_SCHEMA).unwrap();
    let documentation = include_str!("../../../docs/thresholds.md");
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
            assert!(documentation.contains(&format!("`{key}`")), "docs/thresholds.md does not mention {key}");
        }
    }
}

#[test]
fn the_drawing_shows_both_curves() {
    let answer = answer(&model(GOOD), None).unwrap();
    let svg = draw(&answer);
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    assert_eq!(svg.matches("<circle").count(), 2 * answer.curve.len());
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
