// SPDX-License-Identifier: Apache-2.0
//! Pages of papers' numbers beside ours are what the planner gives.

#[path = "../../examples/papers/tables.rs"]
mod tables;

use std::path::Path;

#[test]
fn the_printed_numbers_of_the_papers_are_what_the_planner_gives() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/figures");
    for (name, text) in tables::all().expect("tables") {
        let path = folder.join(format!("{name}.md"));
        let printed = std::fs::read_to_string(&path).expect("a page");
        for (old, new) in printed.lines().zip(text.lines()) {
            assert_eq!(old, new, "{name}: cargo run -p trimwire-lab --example papers writes it anew");
        }
        assert_eq!(printed, text, "{name}");
    }
}
