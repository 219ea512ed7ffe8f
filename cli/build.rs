// SPDX-License-Identifier: Apache-2.0
//! Hashes of the sources that simulated figures are made of: `trimwire sim figures` keys what it keeps by them.
//!
//! Lines that are comments, and a file's tests, make no figure. Dependencies are pinned by Cargo.lock and are left out.

use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};

/// How results are written, which changes no result.
const TABLES: &str = "TABLES";
const LAYOUT: &str = "fabric/src/sim/scenario/figure.rs";

/// What codecs encode and decode to, bit for bit: a faster pass makes no figure old.
const VECTORS: &str = "host-encoder/tests/vectors.json";

/// Folders and files below a part's paths that are another part's.
const ELSEWHERE: [&str; 9] = [
    // What they make of words and seeds is hashed itself.
    "fabric/src/sim/scenario",
    "fabric/src/sim/workload",
    "fabric/src/sim/quantity.rs",
    "fabric/src/sim/transport/trimwire",
    "fabric/src/sim/transport/dcqcn",
    "fabric/src/sim/transport/swift",
    "fabric/src/sim/discipline/red.rs",
    "fabric/src/sim/pfc.rs",
    "fabric/src/sim/program.rs",
];

/// Name of the variable, and the paths from the workspace's root.
const PARTS: [(&str, &[&str]); 8] = [
    (
        "LAWS",
        &[
            "planner/src/scenarios",
            "planner/src/sensing",
            "planner/src/compress",
            "cli/src/plan/train",
            "cli/src/training",
            "cli/data",
            VECTORS,
        ],
    ),
    ("SIMULATOR", &["fabric/src/sim", "fabric/src/sim.rs", "fabric/src/calendar.rs"]),
    // Transports that other figures do not have: a change of one makes none of those old.
    (
        "DCQCN",
        &[
            "fabric/src/sim/transport/dcqcn",
            "fabric/src/sim/transport/dcqcn.rs",
            "fabric/src/sim/discipline/red.rs",
            "fabric/src/sim/pfc.rs",
        ],
    ),
    ("SWIFT", &["fabric/src/sim/transport/swift", "fabric/src/sim/transport/swift.rs"]),
    (TABLES, &[LAYOUT, "cli/src/sim/figures/tables.rs"]),
    // Our transport, and what `fabric/src/sim` takes from the agent (a test holds this list against its imports).
    (
        "AGENT",
        &[
            "fabric/src/sim/transport/trimwire",
            "fabric/src/sim/transport/trimwire.rs",
            "agent/src/config.rs",
            "agent/src/pacing.rs",
            "agent/src/rate",
            "agent/src/rate.rs",
            "agent/src/rtt.rs",
            "agent/src/spray.rs",
            "agent/src/transfer/path.rs",
            "agent/src/transfer/silence.rs",
            "host-encoder/src/quantise/tables.rs",
        ],
    ),
    (
        "PROGRAM",
        &[
            "switch/src/engine",
            "switch/src/engine.rs",
            "switch/src/traffic",
            "switch/src/traffic.rs",
            "cli/src/sim/program.rs",
            "fabric/src/sim/program.rs",
            "p4/build/bmv2",
        ],
    ),
    (
        "TRAINING",
        &[
            "cli/src/sim/training.rs",
            "cli/src/training",
            "cli/src/training.rs",
            "cli/data",
            // Each step's setup.
            "fabric/src/sim/scenario/training.rs",
            "fabric/src/sim/workload.rs",
            "fabric/src/sim/workload/all_reduce.rs",
            "fabric/src/sim/workload/background.rs",
            VECTORS,
        ],
    ),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, paths) in PARTS {
        // The package of crates.io has this crate alone: there are no figures to make there.
        if !root.join("fabric").is_dir() {
            println!("cargo::rustc-env=TRIMWIRE_SOURCES_{name}=unknown");
            continue;
        }
        let mut hash = Sha256::new();
        for path in paths {
            println!("cargo::rerun-if-changed=../{path}");
            for file in files(&root.join(path)) {
                let below = |other: &&str| file.to_string_lossy().contains(*other);
                if name != "SIMULATOR" || !ELSEWHERE.iter().any(below) {
                    take(&root, &file, &mut hash);
                }
            }
        }
        let digest =
            hash.finalize().iter().take(8).fold(0_u64, |digest, byte| digest << 8 | u64::from(*byte));
        println!("cargo::rustc-env=TRIMWIRE_SOURCES_{name}={digest:016x}");
    }
}

/// All files below a path, in one order on every machine.
fn files(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        assert!(path.is_file(), "{}: there is no such file or folder", path.display());
        return vec![path.to_owned()];
    }
    let mut inside: Vec<PathBuf> = std::fs::read_dir(path)
        .expect("a readable folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    inside.sort();
    inside.iter().flat_map(|path| files(path)).collect()
}

fn take(root: &Path, file: &Path, hash: &mut Sha256) {
    let name = file.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
    if name.ends_with("tests.rs") || name.contains("/tests/") {
        return;
    }
    let bytes = std::fs::read(file).expect("a readable file");
    hash.update(&name);
    if file.extension().is_none_or(|extension| extension != "rs") {
        return hash.update(bytes);
    }
    let text = String::from_utf8(bytes).expect("UTF-8");
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    for line in code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")) {
        hash.update(line);
        hash.update("\n");
    }
}
