// SPDX-License-Identifier: Apache-2.0
//! Hashes of the sources that simulated figures are made of: `trimwire sim figures` says which tables of `plan train` are of others.
//!
//! Lines that are comments, and a file's tests, make no figure. Dependencies are pinned by Cargo.lock and are left out.

use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};

/// What codecs encode and decode to, bit for bit: a faster pass makes no figure old.
const VECTORS: &str = "host-encoder/tests/vectors.json";

/// Name of the variable, and the paths from the workspace's root.
const PARTS: [(&str, &[&str]); 1] = [(
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
)];

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
                take(&root, &file, &mut hash);
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
