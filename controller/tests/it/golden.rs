// SPDX-License-Identifier: Apache-2.0
//! What goes to each kind of switch for one fabric file, Write by Write, against committed text.
//!
//! `TRIMWIRE_UPDATE_GOLDENS=1 cargo test -p trimwire-controller --test it golden::` writes the text
//! anew; the difference is for people to review.

use crate::programs;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use trimwire_controller::{Compiler, actual, batches, difference};
use trimwire_p4runtime::entity::describe_update;

/// Writes to an empty `left`, in words.
fn writes(target: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let text = include_str!("../golden/fabric.yaml").replace("TARGET", target);
    let text = if target.starts_with("stratum") {
        text.replace("PIPELINE", &programs::pipeline(target, folder.path()))
    } else {
        text.replace("    pipeline: PIPELINE\n", "")
    };
    let (fabric, artifacts) = programs::read(&text, folder.path());
    let index = artifacts.of("left").index();
    let wanted = Compiler::new(Arc::new(fabric), &artifacts).compile("left").unwrap();
    let changes = difference(&wanted, &actual(Vec::new(), index).unwrap(), index);
    let mut text = String::new();
    for (number, batch) in batches(&changes, 100).into_iter().enumerate() {
        let _ = writeln!(text, "Write {} to left, {} updates", number + 1, batch.len());
        for change in batch {
            let _ = writeln!(text, "  {}", describe_update(&change.update(), Some(index)));
        }
    }
    text
}

#[test]
fn every_target_is_written_what_is_committed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for target in ["trimwire", "bmv2", "stratum-tofino", "stratum-tofino2"] {
        let (path, found) = (folder.join(format!("{target}.txt")), writes(target));
        if std::env::var_os("TRIMWIRE_UPDATE_GOLDENS").is_some() {
            std::fs::write(&path, &found).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let differs = committed.lines().zip(found.lines()).position(|(old, new)| old != new);
        assert!(
            committed == found,
            "{target} differs from line {} on; review with TRIMWIRE_UPDATE_GOLDENS=1\n{found}",
            differs.unwrap_or(committed.lines().count().min(found.lines().count())) + 1
        );
    }
}
