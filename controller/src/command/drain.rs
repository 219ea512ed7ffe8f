// SPDX-License-Identifier: Apache-2.0
//! `drain` and `undrain`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;
use trimwire_controller::model::{End, Fabric};
use trimwire_controller::report::SwitchPlan;
use trimwire_controller::show::{Rows, What, show_blocking};
use trimwire_controller::topology::Topology;
use trimwire_controller::{Artifacts, Options, plan_blocking, units};

use super::file::FileArgs;
use super::outcome::{FAILED, Failure, Outcome, USAGE, bad_input, failed, say};
use super::rollout::StateArgs;

/// Between two looks at whether it is done.
const PAUSE: Duration = Duration::from_millis(300);

#[derive(Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Switches to drain or to undrain.
    #[arg(value_name = "SWITCH", required = true)]
    switches: Vec<String>,
    /// Wait this long for a `run` to change the routes.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = wait)]
    wait: Duration,
    #[command(flatten)]
    state: StateArgs,
}

#[derive(Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    common: DrainArgs,
    /// Reason to show in metrics and `watch`.
    #[arg(long, value_name = "TEXT", default_value = "by hand")]
    reason: String,
    /// Drain them even where hosts have no other way to each other, and keep this one.
    #[arg(long)]
    yes: bool,
}

#[derive(Args)]
pub(crate) struct Undrain {
    #[command(flatten)]
    common: DrainArgs,
}

fn wait(text: &str) -> Result<Duration, String> {
    units::time(text).map(Duration::from_nanos)
}

/// What became of it.
#[derive(Serialize)]
struct Drained {
    is_out: bool,
    switches: Vec<String>,
    /// Switches beside them, all of which hold the routes that are wanted.
    neighbours: usize,
    /// Packets that they sent in the last moment.
    packets: Option<i64>,
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_out, switches, neighbours, packets } = self;
        let be = if switches.len() == 1 { "is" } else { "are" };
        let word = if *is_out { "out of routes" } else { "in routes again" };
        write!(f, "{} {be} {word} of {neighbours} neighbours", switches.join(", "))?;
        match packets {
            Some(0) => f.write_str("; no packet leaves it"),
            Some(packets) => {
                write!(f, "; {packets} packets left it in {PAUSE:?}: its own hosts', or somebody else's")
            }
            None => Ok(()),
        }
    }
}

impl Drain {
    pub(crate) fn run(&self) -> Outcome {
        self.common.run(Some((&self.reason, self.yes)))
    }
}

impl Undrain {
    pub(crate) fn run(&self) -> Outcome {
        self.common.run(None)
    }
}

impl DrainArgs {
    /// With a reason, and whether it is one beyond dispute, to drain; without, to undrain.
    fn run(&self, reason: Option<(&str, bool)>) -> Outcome {
        let (fabric, artifacts) = self.file.read()?;
        if let Some(unknown) = self.switches.iter().find(|name| !fabric.switches.contains_key(*name)) {
            let valid: Vec<&str> = fabric.switches.keys().map(String::as_str).collect();
            let error = anyhow!("{} has no switch {unknown}; valid: {}", fabric.file, valid.join(", "));
            return Err(Failure { code: USAGE, error });
        }
        let records = self.state.records(&self.file);
        let mut drained = records.drained().map_err(bad_input)?;
        let topology = Topology::of(&fabric);
        if let Some((_, is_forced)) = reason {
            self.spare(&topology, &drained, is_forced)?;
        }
        for name in &self.switches {
            match reason {
                Some((reason, _)) => drop(drained.insert(name.clone(), reason.to_owned())),
                None if drained.remove(name).is_none() => say(format_args!("{name} was not drained")),
                None => {}
            }
        }
        records.set_drained(&drained).map_err(failed)?;
        let mut neighbours = BTreeSet::new();
        for name in &self.switches {
            for neighbour in topology.neighbours(name).into_iter().flatten() {
                match &neighbour.1.end {
                    End::Port(other, _) if !self.switches.contains(other) => {
                        neighbours.insert(other.clone());
                    }
                    End::Host(host) if reason.is_some() => {
                        say(format_args!("host {host} has no other way than {name}, and keeps it"));
                    }
                    _ => {}
                }
            }
        }
        let options = Options {
            only: neighbours.clone(),
            drained: drained.keys().cloned().collect(),
            ..Options::default()
        };
        self.until_in_place(&fabric, &artifacts, &options)?;
        let packets = if reason.is_some() { self.sent(&fabric, &artifacts) } else { None };
        let switches = self.switches.clone();
        self.file.print(&Drained {
            is_out: reason.is_some(),
            switches,
            neighbours: neighbours.len(),
            packets,
        })
    }

    /// Refuses what would leave hosts without a way: their routes would keep what is drained, and
    /// with it what was drained before.
    fn spare(
        &self,
        topology: &Topology,
        drained: &BTreeMap<String, String>,
        is_forced: bool,
    ) -> Result<(), Failure> {
        let before: BTreeSet<String> = drained.keys().cloned().collect();
        let out: BTreeSet<String> = self.switches.iter().cloned().collect();
        let Some((one, other)) = topology.parted(&out, &before) else { return Ok(()) };
        let names = self.switches.join(", ");
        let others: Vec<&str> = before.difference(&out).map(String::as_str).collect();
        let beside = if others.is_empty() {
            String::new()
        } else {
            format!(" while {} {} drained", others.join(", "), if others.len() == 1 { "is" } else { "are" })
        };
        if is_forced {
            say(format_args!(
                "hosts of {one} and {other} have no way to each other without {names}{beside}: their routes keep what is drained"
            ));
            return Ok(());
        }
        let error = anyhow!(
            "hosts of {one} and {other} have no way to each other without {names}{beside}. Nothing was noted; undrain something first, or \
             --yes notes it, and their routes keep what is drained"
        );
        Err(Failure { code: FAILED, error })
    }

    /// Waits for somebody to write it.
    fn until_in_place(
        &self,
        fabric: &Fabric,
        artifacts: &Artifacts,
        options: &Options,
    ) -> Result<(), Failure> {
        if options.only.is_empty() {
            return Ok(());
        }
        #[expect(clippy::disallowed_methods, reason = "a command waits by the real clock")]
        let began = Instant::now();
        loop {
            let plan = plan_blocking(fabric, artifacts, options).map_err(failed)?;
            let others: Vec<&SwitchPlan> =
                plan.switches.iter().filter(|plan| plan.error.is_some() || plan.changes_routes()).collect();
            let Some(first) = others.first() else { return Ok(()) };
            if began.elapsed() >= self.wait {
                let why = first.error.clone().unwrap_or_else(|| "its routes are the old ones".to_owned());
                let error = anyhow!(
                    "noted, but {} of {} neighbours do not route so yet ({}: {why}). A `run` of this fabric with the same --state does it by \
                     itself; without one, apply does",
                    others.len(),
                    plan.switches.len(),
                    first.switch
                );
                return Err(Failure { code: FAILED, error });
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// What they send in a moment; `None` where one does not tell.
    fn sent(&self, fabric: &Fabric, artifacts: &Artifacts) -> Option<i64> {
        let options = Options { only: self.switches.iter().cloned().collect(), ..Options::default() };
        let sum = || {
            let shown = show_blocking(fabric, artifacts, &options, What::Counters).ok()?;
            let Rows::Counters(rows) = shown.rows else { return None };
            let counts = rows.iter().flat_map(|row| &row.counters);
            let sent =
                counts.filter(|(name, _)| ["transmitted", "trim_transmitted"].contains(&name.as_str()));
            shown.errors.is_empty().then(|| sent.map(|(_, count)| count.packets).sum::<i64>())
        };
        let before = sum()?;
        std::thread::sleep(PAUSE);
        Some(sum()? - before)
    }
}
