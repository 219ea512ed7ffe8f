// SPDX-License-Identifier: Apache-2.0
//! Espresso's tables 5 and 6 and figure 13, predicted: `cargo run --release -p trimwire-lab
//! --example strategies -- docs/figures` writes `strategies.md` there, and prints what selection
//! and offloading took on this machine, which the file leaves out.

use std::fmt::Write as _;
use trimwire_lab::espresso::{Cluster, plan};
use trimwire_lab::models::{Device, model, names};

/// Times are the least of so many: what else the machine does only adds to them.
const ROUNDS: usize = 7;

#[expect(clippy::disallowed_methods, reason = "a report of how long planning takes")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "docs/figures".to_owned());
    let began = std::time::Instant::now();
    let mut now = || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut text = String::from(
        "| cluster | network | tensors | compressed | on processors | without, ms | planned, ms | costless, ms | planned over costless |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    println!("cluster          network    tensors  selection, ms    offload, ms");
    for cluster_name in ["nvlink-100g", "pcie-25g", "shared-ethernet"] {
        let file = format!("{}/../examples/plans/{cluster_name}.yaml", env!("CARGO_MANIFEST_DIR"));
        let cluster = Cluster::from_yaml(&std::fs::read_to_string(&file)?, &file)?;
        for name in names() {
            let Some(model) = model(name, Device::default()) else { continue };
            let model = model.check()?;
            let (mut selection, mut offload) = (f64::INFINITY, f64::INFINITY);
            let mut last = None;
            for _ in 0..ROUNDS {
                let (made, _) = plan(&model, &cluster, &mut now)?;
                selection = selection.min(made.selection_seconds);
                offload = offload.min(made.offload_seconds);
                last = Some(made);
            }
            let Some(made) = last else { continue };
            println!(
                "{cluster_name:<16} {name:<10} {:>7} {:>14.3} {:>14.3}",
                made.tensors,
                selection * 1e3,
                offload * 1e3
            );
            let count = |word: &[&str]| {
                made.strategy
                    .iter()
                    .filter(|choice| word.iter().any(|word| choice.option.contains(word)))
                    .count()
            };
            let (with, without) = (made.iteration_seconds, made.uncompressed_seconds);
            let _ = writeln!(
                text,
                "| {cluster_name} | {name} | {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.3} |",
                made.tensors,
                count(&["compress", "encode"]),
                count(&["cpu"]),
                without * 1e3,
                with * 1e3,
                made.upper_bound_seconds * 1e3,
                with / made.upper_bound_seconds
            );
        }
    }
    std::fs::write(format!("{folder}/strategies.md"), text)?;
    Ok(())
}
