//! `check`.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use clap::Args;
use serde::Serialize;
use trimwire_controller::{desired, show, topology};

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
        let entities = desired(&fabric, &routes, artifacts.index()).map_err(bad_input)?;
        self.file.print(&Checked {
            switches: fabric.switches.len(),
            hosts: fabric.hosts.len(),
            links: fabric.links.len(),
            entities: entities.values().map(BTreeMap::len).sum(),
            thresholds: show::planned(&fabric),
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
    thresholds: Vec<show::PolicyRow>,
    warnings: Vec<String>,
}

impl Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { switches, hosts, links, entities, thresholds, warnings } = self;
        writeln!(f, "{}", show::policy_table(thresholds))?;
        write!(
            f,
            "ok: {switches} switches, {hosts} hosts, {links} links, {entities} entities; {} warnings",
            warnings.len()
        )
    }
}
