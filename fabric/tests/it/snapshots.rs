//! Incasts and a permutation, as the scenarios under examples/figures have them: the table in docs/scale.md is a snapshot of what they come to.
//! `TRIMWIRE_UPDATE_GOLDENS=1 cargo test -p trimwire-fabric --test it snapshots::` writes it anew; the difference is for review.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use trimwire_fabric::sim::program::Programs;
use trimwire_fabric::sim::report::report;
use trimwire_fabric::sim::run::run;
use trimwire_fabric::sim::scenario::{File, Files, Programmed};
use trimwire_fabric::sim::topology::Topology;
use trimwire_planner::espresso::Model;

/// These scenarios name no other file.
struct Alone;

fn none<T>() -> Result<T, String> {
    Err("a snapshot's scenario names no other file".to_owned())
}

impl Files for Alone {
    fn model(&mut self, _: &str) -> Result<Model, String> {
        none()
    }

    fn fabric(&mut self, _: &str) -> Result<Topology, String> {
        none()
    }

    fn parameters(&mut self, _: u32) -> Result<usize, String> {
        none()
    }

    fn programs(&mut self, _: &Programmed<'_>) -> Result<Programs, String> {
        none()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rows(name: &str) -> String {
    let text =
        std::fs::read_to_string(root().join(format!("examples/figures/{name}.yaml"))).expect("a scenario");
    let file = File::from_yaml(&text, name).expect("valid");
    let mut rows = String::new();
    for prepared in file.prepare(&text, name, &mut Alone).expect("valid") {
        let outcome = run(&prepared.setup, 2, |_| {});
        let figures = report(&prepared, &outcome, 1.0);
        let over = |seconds: f64| seconds / figures.ideal_s;
        let _ = writeln!(
            rows,
            "| {name} | {} | {:.3} | {:.3} | {:.1} % | {:.1} % | {:.1} % | {:.1e} |",
            prepared.name,
            over(figures.fct_max_s),
            over(figures.fct_p50_s),
            100.0 * figures.cut_share,
            100.0 * figures.dropped_share,
            100.0 * figures.repaired_share,
            figures.nmse,
        );
    }
    rows
}

#[test]
fn the_documented_incasts_and_permutation_are_what_the_simulator_gives() {
    const BEGIN: &str = "<!-- generated: incasts and permutation -->\n";
    const END: &str = "<!-- end -->";
    let path = root().join("docs/scale.md");
    let page = std::fs::read_to_string(&path).expect("docs/scale.md");
    let (before, rest) = page.split_once(BEGIN).expect("the table's beginning");
    let (committed, after) = rest.split_once(END).expect("the table's end");
    let mut found = String::from(
        "| scenario | run | slowest, of the ideal | median | cut | dropped | sent again | NMSE |\n|---|---|---|---|---|---|---|---|\n",
    );
    for name in ["incast-15", "incast-127", "permutation"] {
        found += &rows(name);
    }
    if std::env::var_os("TRIMWIRE_UPDATE_GOLDENS").is_some() {
        return std::fs::write(&path, format!("{before}{BEGIN}{found}{END}{after}")).expect("writable");
    }
    for (old, new) in committed.lines().zip(found.lines()) {
        assert_eq!(old, new, "review with TRIMWIRE_UPDATE_GOLDENS=1");
    }
    assert_eq!(committed, found);
}
