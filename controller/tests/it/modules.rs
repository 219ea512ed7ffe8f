// SPDX-License-Identifier: Apache-2.0
//! Modules form a tree of uses: types at the bottom, who reads them above, who computes on them
//! above that, and no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Modules that a file names behind `root`, without those that only its tests name.
fn uses(text: &str, root: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]").next().unwrap();
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let mut uses = BTreeSet::new();
    for (_, behind) in code.match_indices(root).map(|(at, found)| code.split_at(at + found.len())) {
        // `use crate::{a, b::c};` names several.
        let names = match behind.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap().split(',').map(|name| word(name.trim())).collect(),
            None => vec![word(behind)],
        };
        uses.extend(names);
    }
    uses
}

type Graph = BTreeMap<String, BTreeSet<String>>;

fn read(folder: &Path, root: &str, module: Option<&str>, graph: &mut Graph) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let module = module.unwrap_or(&stem);
        if path.is_dir() {
            read(&path, root, Some(module), graph);
        } else if path.extension().is_some_and(|kind| kind == "rs") && stem != "tests" {
            let text = std::fs::read_to_string(&path).unwrap();
            graph.entry(module.to_owned()).or_default().extend(uses(&text, root));
        }
    }
}

#[test]
fn modules_do_not_use_each_other_in_a_circle() {
    let mut graph = Graph::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "crate::", None, &mut graph);
    for root in ["lib", "main", "command"] {
        graph.remove(root);
    }
    for (module, uses) in &mut graph {
        let unknown: Vec<&String> =
            uses.iter().filter(|name| !name.starts_with(char::is_lowercase)).collect();
        assert!(unknown.is_empty(), "{module} names {unknown:?} by the crate's root, not by where it stands");
    }
    assert!(graph.len() > 20, "{graph:?}");
    assert_tree(graph);
}

#[test]
fn neither_do_the_parts_of_the_engine() {
    let mut graph = Graph::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine"), "super::", None, &mut graph);
    assert!(graph.len() > 8, "{graph:?}");
    assert_tree(graph);
}

/// What uses nothing that is left is taken away, until nothing is left.
fn assert_tree(mut graph: Graph) {
    let known: BTreeSet<String> = graph.keys().cloned().collect();
    for (module, uses) in &mut graph {
        uses.retain(|name| name != module && known.contains(name));
    }
    while !graph.is_empty() {
        let bottom: BTreeSet<String> =
            graph.iter().filter(|(_, uses)| uses.is_empty()).map(|(module, _)| module.clone()).collect();
        assert!(!bottom.is_empty(), "each of these uses another of them: {graph:#?}");
        graph.retain(|module, _| !bottom.contains(module));
        graph.values_mut().for_each(|uses| uses.retain(|name| !bottom.contains(name)));
    }
}
