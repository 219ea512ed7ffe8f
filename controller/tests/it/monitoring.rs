// SPDX-License-Identifier: Apache-2.0
//! Alert rules and the dashboard of `packaging/monitoring` speak of metrics, labels and causes that
//! there are.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use trimwire_controller::counters::{Count, Counter, QueueCounters, Waiting};
use trimwire_controller::run::{Cause, Fault, Status, SwitchStatus, TrimmingStatus, metrics_text};

fn file(name: &str) -> (PathBuf, String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../packaging/monitoring").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (path, text)
}

/// Everything that is exported of a switch that has everything: names, and all of it.
fn exported() -> (BTreeSet<String>, String) {
    let mut status = Status::default();
    let mut switch = SwitchStatus::default();
    (switch.in_place, switch.last_success) = (Some(true), Some(1.0));
    switch.trimming.insert((1, 5), TrimmingStatus::default());
    let counters =
        Counter::ALL.map(|counter| (counter, Count { packets: 1, bytes: 1 })).into_iter().collect();
    let waiting = Some(Waiting { now: 1, peak: Some(1) });
    let counted = Arc::make_mut(&mut switch.counters);
    counted.queues.insert((1, 5), QueueCounters { counts: counters, waiting });
    counted.strays.insert((1, "turned_back"), 1);
    status.switches.insert("s1".to_owned(), switch);
    let causes = [
        Cause::Dead,
        Cause::Link,
        Cause::Miscabled,
        Cause::OneWay,
        Cause::Lossy,
        Cause::Drained,
        Cause::Replaced,
    ];
    status.faults = causes
        .map(|cause| Fault {
            switch: "s1".to_owned(),
            port: Some(1),
            cause,
            reason: String::new(),
            held: false,
            failures: 1,
        })
        .to_vec();
    let text = metrics_text(&status);
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names =
        types.map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() });
    (names.collect(), text)
}

/// Metrics that an expression names.
fn named(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("trimwire_")).map(str::to_owned).collect()
}

fn known(expressions: &[String], place: &str) -> BTreeSet<String> {
    let (names, _) = exported();
    let mut all = BTreeSet::new();
    for expression in expressions {
        let found = named(expression);
        assert!(!found.is_empty(), "{place}: {expression} names no metric");
        let unknown: Vec<_> = found.difference(&names).collect();
        assert!(unknown.is_empty(), "{place}: {expression} names {unknown:?}; there are {names:#?}");
        all.extend(found);
    }
    all
}

#[test]
fn alerts_are_about_metrics_that_exist_and_prometheus_takes_them() {
    let (path, text) = file("trimwire.rules.yml");
    let rules: serde_json::Value = yaml_serde::from_str(&text).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    let alerts: Vec<&serde_json::Value> =
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    for alert in &alerts {
        for key in ["/alert", "/expr", "/labels/severity", "/annotations/summary", "/annotations/description"]
        {
            assert!(alert.pointer(key).is_some_and(serde_json::Value::is_string), "{key} of {alert}");
        }
    }
    let expressions: Vec<String> =
        alerts.iter().map(|alert| alert["expr"].as_str().unwrap().to_owned()).collect();
    known(&expressions, "trimwire.rules.yml");
    // Causes and outcomes that are asked for are exported.
    let (_, text) = exported();
    let values = expressions.iter().flat_map(|text| text.split('"').skip(1).step_by(2));
    for value in values.flat_map(|value| value.split('|')) {
        let is_cause = text.contains(&format!("=\"{value}\"")) || value == "tail";
        assert!(is_cause, "no label has the value {value:?}");
    }
    match std::process::Command::new("promtool").args(["check", "rules"]).arg(&path).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            eprintln!("SKIPPED: promtool does not start ({error}); Prometheus has not seen the rules");
        }
    }
}

#[test]
fn the_dashboard_shows_metrics_that_exist_and_its_panels_do_not_overlap() {
    let (_, text) = file("trimwire.dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut expressions = Vec::new();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        for target in panel["targets"].as_array().unwrap() {
            expressions.push(target["expr"].as_str().unwrap().to_owned());
        }
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(w > 0 && h > 0 && x + w <= 24, "{}", panel["title"]);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{} overlaps another panel at {cell:?}", panel["title"]);
        }
    }
    let shown = known(&expressions, "trimwire.dashboard.json");
    assert!(shown.len() >= 15, "{shown:?}");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables: BTreeSet<&str> =
        variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(variables, BTreeSet::from(["datasource", "switch"]));
}

/// The lines that describe metrics, and the labels of one series of each: what `make reference`
/// prints.
fn described(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let mut kept = String::new();
    while let Some(line) = lines.next() {
        let series = lines.peek().filter(|next| line.starts_with('#') && !next.starts_with('#'));
        if line.starts_with("# ") && line != "# EOF" {
            kept.push_str(line);
            kept.push('\n');
        }
        if let Some((series, _)) = series.and_then(|series| series.rsplit_once(' ')) {
            // Which of several series comes first is not the same each time.
            let labels: Vec<&str> = series.split('"').step_by(2).collect();
            kept.push_str(&labels.join("\"\""));
            kept.push('\n');
        }
    }
    kept
}

#[test]
fn the_reference_describes_every_metric() {
    let found = described(&exported().1);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/metrics.txt");
    if std::env::var_os("TRIMWIRE_UPDATE_GOLDENS").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(found, committed, "review with TRIMWIRE_UPDATE_GOLDENS=1, then run make reference");
}
