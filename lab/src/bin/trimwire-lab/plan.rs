// SPDX-License-Identifier: Apache-2.0
//! `trimwire-lab plan`: which tensors of a model to compress, how, and on which device.
//!
//! ```text
//! MODEL.yaml, CLUSTER.yaml ─► trimwire_lab::espresso ─► table, JSON, page
//! ```

mod options;
mod report;
mod thresholds;
mod timeline;

use crate::failure::{Failure, Outcome};
use crate::output::{print, print_json};
use anyhow::Context as _;
pub(crate) use options::Options;
use options::Subcommand;
use std::io::Read as _;
use std::path::Path;
use trimwire_lab::espresso::{Cluster, LARGEST, Model, Plan, check, plan};

/// Plans, or looks at a plan made earlier.
pub(crate) fn run(options: &Options) -> Outcome {
    if let Some(Subcommand::Thresholds(options)) = &options.command {
        return thresholds::run(options);
    }
    let (Some(model), Some(cluster)) = (&options.model, &options.cluster) else {
        return Err(Failure::usage(anyhow::anyhow!("MODEL.yaml and CLUSTER.yaml are wanted")));
    };
    let model = Model::from_yaml(&read(model)?, &name(model)).map_err(Failure::input)?;
    let cluster = Cluster::from_yaml(&read(cluster)?, &name(cluster)).map_err(Failure::input)?;
    if let Some(file) = &options.plan {
        let made: Plan = serde_json::from_str(&read(file)?)
            .with_context(|| format!("{} is no plan", file.display()))
            .map_err(Failure::input)?;
        let seconds = check(&made, &model, &cluster).with_context(|| name(file)).map_err(Failure::input)?;
        return if options.json {
            Ok(print_json(&serde_json::json!({ "iteration_seconds_by_congestion": seconds }))?)
        } else {
            Ok(print(&report::checked(&made, &cluster, &seconds))?)
        };
    }
    let (made, schedule) = plan(&model, &cluster, &mut clock()).map_err(Failure::input)?;
    if let Some(file) = &options.report {
        let page =
            timeline::page(&schedule, &made, model.forward_ms * 1e6, report::table(&made, &cluster, true));
        std::fs::write(file, page.html())
            .with_context(|| format!("cannot write --output {}", file.display()))?;
    }
    if options.json { Ok(print_json(&made)?) } else { Ok(print(&report::table(&made, &cluster, false))?) }
}

fn read(path: &Path) -> Result<String, Failure> {
    let text = || -> anyhow::Result<String> {
        let mut bytes = Vec::new();
        // No more than tells that it is too much: a file may be a device that never ends.
        std::fs::File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
        anyhow::ensure!(bytes.len() as u64 <= LARGEST, "more than {LARGEST} bytes");
        Ok(String::from_utf8(bytes)?)
    };
    text().with_context(|| format!("cannot read {}", path.display())).map_err(Failure::input)
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// Tells what planning takes.
#[expect(
    clippy::disallowed_methods,
    reason = "a report of how long planning took; the plan does not depend on it"
)]
fn clock() -> impl FnMut() -> u64 {
    let began = std::time::Instant::now();
    move || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
