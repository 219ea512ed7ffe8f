// SPDX-License-Identifier: Apache-2.0
//! The committed programs' P4Infos, with stand-ins for what only a Tofino reads.

use std::path::Path;

use trimwire_controller::{Artifacts, Fabric};

/// Writes the files that a switch of this target names in its `pipeline`, and gives that mapping.
pub(crate) fn pipeline(target: &str, folder: &Path) -> String {
    let generation = if target == "stratum-tofino" { "tofino" } else { "tofino2" };
    let p4info = format!("{}/../p4/build/{generation}/trimwire.p4info.txtpb", env!("CARGO_MANIFEST_DIR"));
    std::fs::copy(p4info, folder.join("p4info.txtpb")).unwrap();
    for (name, content) in [("bfrt.json", "{}"), ("context.json", "{}"), ("tofino.bin", "binary")] {
        std::fs::write(folder.join(name), content).unwrap();
    }
    "{ p4info: p4info.txtpb, bfrt: bfrt.json, context: context.json, binary: tofino.bin }".to_owned()
}

/// A fabric and its programs.
pub(crate) fn read(text: &str, folder: &Path) -> (Fabric, Artifacts) {
    let fabric = Fabric::from_yaml(text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"));
    let artifacts = Artifacts::embedded().unwrap().for_fabric(&fabric, folder);
    (fabric, artifacts.unwrap_or_else(|error| panic!("{error}")))
}
