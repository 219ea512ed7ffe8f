//! `check`.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use clap::Args;
use serde::Serialize;
use trimwire_controller::{desired, inventory, manual_steps, show, topology};

use super::file::FileArgs;
use super::outcome::{Outcome, bad_input};

#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    file: FileArgs,
}

impl Check {
    pub(crate) fn run(&self) -> Outcome {
        let (fabric, artifacts) = self.file.read()?;
        let routes = topology::Routes::of(&fabric);
        let entities = desired(&fabric, &routes, &artifacts).map_err(bad_input)?;
        self.file.print(&Checked {
            switches: fabric.switches.len(),
            hosts: fabric.hosts.len(),
            links: fabric.links.len(),
            entities: entities.values().map(BTreeMap::len).sum(),
            tiers: inventory::tiers(&fabric),
            thresholds: show::planned(&fabric),
            manual_steps: manual_steps(&fabric),
            fabric: inventory::Expanded::of(&fabric),
            warnings: fabric.warnings,
        })
    }
}

/// What `check` says.
#[derive(Serialize)]
struct Checked {
    switches: usize,
    hosts: usize,
    links: usize,
    /// Entities of all switches together.
    entities: usize,
    /// Ports, capacities and oversubscription of switches that are alike.
    tiers: Vec<inventory::Tier>,
    thresholds: Vec<show::PolicyRow>,
    /// What P4Runtime does not reach and a person has to do.
    manual_steps: Vec<String>,
    /// Everything by name, what was generated included.
    fabric: inventory::Expanded,
    warnings: Vec<String>,
}

impl Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { switches, hosts, links, entities, tiers, thresholds, manual_steps, warnings, .. } = self;
        writeln!(f, "{}\n", inventory::table(tiers))?;
        writeln!(f, "{}", show::policy_table(thresholds))?;
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
