//! Programs for targets that no compiled artifact is committed for: BMv2's P4Info with what the Tofino builds add and leave out
//! (`p4/README.md`, "Tables").

use std::path::Path;

use trimwire_controller::{Artifacts, Fabric};
use trimwire_p4runtime::config::meter_spec::{Type, Unit};
use trimwire_p4runtime::config::{Meter, MeterSpec, Preamble};

/// A program for an architecture, `tna` or `t2na`, in P4Info's text form.
fn p4info(architecture: &str) -> String {
    let mut p4info = Artifacts::embedded().unwrap().p4info().clone();
    architecture.clone_into(&mut p4info.pkg_info.as_mut().unwrap().arch);
    let named = |preamble: &Option<Preamble>, part: &str| {
        preamble.as_ref().is_some_and(|preamble| preamble.name.contains(part))
    };
    // There the traffic manager's shaper caps.
    p4info.tables.retain(|table| !named(&table.preamble, "trim_cap"));
    p4info.actions.retain(|action| !named(&action.preamble, "trim_cap"));
    p4info.registers.clear();
    if architecture == "tna" {
        for (id, name) in [(0x1400_0001, "virtual_queue_low"), (0x1400_0002, "virtual_queue_high")] {
            p4info.meters.push(Meter {
                preamble: Some(Preamble {
                    id,
                    name: format!("Ingress.{name}"),
                    alias: name.to_owned(),
                    ..Preamble::default()
                }),
                spec: Some(MeterSpec { unit: Unit::Bytes.into(), r#type: Type::TwoRateThreeColor.into() }),
                size: 4096,
                ..Meter::default()
            });
        }
    }
    p4info.to_text()
}

/// Writes the files that a switch of this target names in its `pipeline`, and gives that mapping.
pub(crate) fn pipeline(target: &str, folder: &Path) -> String {
    let architecture = if target == "stratum-tofino" { "tna" } else { "t2na" };
    for (name, content) in [
        ("p4info.txtpb", p4info(architecture).as_str()),
        ("bfrt.json", "{}"),
        ("context.json", "{}"),
        ("tofino.bin", "binary"),
    ] {
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
