// SPDX-License-Identifier: Apache-2.0
//! `check`.

use std::fmt::{self, Display};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use trimwire_controller::topology::inventory;
use trimwire_controller::{Compiler, Fabric, manual_steps, show, start_commands};

use super::file::FileArgs;
use super::outcome::{Outcome, bad_input, print};

#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    file: FileArgs,
    /// Print the command that starts each switch instead.
    #[arg(long, conflicts_with = "json")]
    start: bool,
}

impl Check {
    pub(crate) fn run(&self) -> Outcome {
        let (fabric, artifacts) = self.file.read()?;
        if self.start {
            print(&start_commands(&fabric).join("\n"))?;
            return Ok(0);
        }
        let compiler = Compiler::new(Arc::new(fabric), &artifacts);
        let fabric = compiler.fabric();
        let names: Vec<&str> = fabric.switches.keys().map(String::as_str).collect();
        let entities = compiler.count(&names).map_err(bad_input)?;
        self.file.print(&Checked {
            switches: fabric.switches.len(),
            hosts: fabric.hosts.len(),
            links: fabric.links.len(),
            entities,
            tiers: inventory::tiers(fabric),
            thresholds: show::Planned(fabric),
            manual_steps: manual_steps(fabric),
            fabric: Inventory(fabric),
            warnings: &fabric.warnings,
        })
    }
}

/// What `check` says.
#[derive(Serialize)]
struct Checked<'f> {
    switches: usize,
    hosts: usize,
    links: usize,
    /// Entities of all switches together.
    entities: usize,
    /// Ports, capacities and oversubscription of switches that are alike.
    tiers: Vec<inventory::Tier>,
    thresholds: show::Planned<'f>,
    /// What P4Runtime does not reach and a person has to do.
    manual_steps: Vec<String>,
    /// Everything by name, what was generated included.
    fabric: Inventory<'f>,
    warnings: &'f [String],
}

/// Written out only where it is asked for.
struct Inventory<'f>(&'f Fabric);

impl Serialize for Inventory<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        inventory::Expanded::of(self.0).serialize(serializer)
    }
}

impl Display for Checked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { switches, hosts, links, entities, tiers, thresholds, manual_steps, warnings, .. } = self;
        writeln!(f, "{}\n", inventory::table(tiers))?;
        writeln!(f, "{thresholds}")?;
        for step in manual_steps {
            writeln!(f, "by hand: {step}")?;
        }
        write!(
            f,
            "ok: {switches} switches, {hosts} hosts, {links} links, {entities} entities; {} warnings",
            warnings.len()
        )
    }
}
