// SPDX-License-Identifier: Apache-2.0
//! Routes around switches while their programs are replaced.
//!
//! All other switches hold them, each in the terms of the program that it runs: in the middle of a roll-out some run the old one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use trimwire_p4runtime::client::Client;

use super::converge;
use super::device::{self, DeviceError};
use super::fleet::{Options, Shared};
use super::places::Places;
use super::report::SwitchReport;
use crate::counters::{Counter, read_counters};
use crate::program::names;
use crate::reconcile;
use crate::topology::SwitchRoutes;

/// How long packets may still leave a switch that nobody sends any.
const PATIENCE: Duration = Duration::from_secs(2);
/// Nothing may leave it for so long.
const QUIET: Duration = Duration::from_millis(100);

/// What routes leave out.
pub(crate) struct Bypass {
    shared: Arc<Shared>,
    /// Of these, the switches that are meant; empty for all.
    only: BTreeSet<String>,
    places: Places,
    /// By switch: the routes that it should hold.
    routes: BTreeMap<String, SwitchRoutes>,
}

impl Bypass {
    /// Routes leave out what is drained, and nothing else yet.
    pub(crate) fn new(shared: &Arc<Shared>, options: &Options) -> Self {
        Self {
            shared: Arc::clone(shared),
            only: options.only.clone(),
            places: Places::new(shared.compiler.fabric().controller.concurrency),
            routes: shared.routes(),
        }
    }

    /// From now on routes leave these out, and no others. An error names the switch that cannot be made to, and why; notes name those that
    /// are not ours to tell.
    pub(crate) async fn around(&mut self, out: &BTreeSet<String>) -> Result<Vec<String>, String> {
        self.shared.leave_out(out);
        let before = std::mem::replace(&mut self.routes, self.shared.routes());
        let mut writing = JoinSet::new();
        for (name, routes) in &self.routes {
            let Some(before) = before.get(name).filter(|before| *before != routes) else { continue };
            if out.contains(name) {
                continue;
            }
            let is_meant = self.only.is_empty() || self.only.contains(name);
            let held = (!is_meant).then(|| before.clone());
            let (name, routes, shared) = (name.clone(), routes.clone(), Arc::clone(&self.shared));
            let places = self.places.clone();
            writing.spawn(async move {
                let written = places.work(write(&name, &routes, held.as_ref(), &shared)).await;
                (name, written)
            });
        }
        let mut done: BTreeMap<String, Result<Option<String>, String>> = BTreeMap::new();
        while let Some(written) = writing.join_next().await {
            let (name, written) = written.map_err(|error| error.to_string())?;
            done.insert(name, written);
        }
        let mut notes = Vec::new();
        for (name, written) in done {
            match written {
                Ok(note) => notes.extend(note.map(|note| format!("{name} {note}"))),
                Err(why) => return Err(format!("{name}: {why}")),
            }
        }
        Ok(notes)
    }

    /// Waits until nothing leaves a switch; says so where something does.
    pub(crate) async fn quiet(&self, name: &str) -> Option<String> {
        let switch = self.shared.compiler.fabric().switches.get(name)?;
        match self.shared.reach(name, switch).observe().await {
            Ok(client) => quiet(&client).await,
            Err(error) => Some(not_known(&error)),
        }
    }
}

/// Waits until nothing leaves a switch; says so where something does.
pub(crate) async fn quiet(client: &Client) -> Option<String> {
    let began = Instant::now();
    let mut last = sent(client).await;
    loop {
        tokio::time::sleep(QUIET).await;
        let sent = sent(client).await;
        match (&last, &sent) {
            (Ok(last), Ok(sent)) if last == sent => return None,
            (_, Err(error)) => return Some(not_known(error)),
            _ if began.elapsed() >= PATIENCE => {
                return Some("packets left it to the last, though no route leads over it".to_owned());
            }
            _ => last = sent,
        }
    }
}

fn not_known(error: &DeviceError) -> String {
    format!("whether packets leave it is not known: {error}")
}

/// Packets that it has sent, as far as its program counts them.
async fn sent(client: &Client) -> Result<i64, DeviceError> {
    let Some(index) = device::running(client).await? else { return Ok(0) };
    let counters = read_counters(client, &index, None).await?;
    let sent = counters.queues.values().filter_map(|queue| queue.counts.get(&Counter::Transmitted));
    Ok(sent.map(|count| count.packets).sum())
}

/// Brings a switch's routes to these; to nothing else of it. With `held` only where it holds those.
async fn write(
    name: &str,
    routes: &SwitchRoutes,
    held: Option<&SwitchRoutes>,
    shared: &Shared,
) -> Result<Option<String>, String> {
    let Some(switch) = shared.compiler.fabric().switches.get(name) else { return Ok(None) };
    let client = shared.reach(name, switch).primary(shared.election_id).await;
    let written = match client {
        Ok(client) => write_to(&client, name, routes, held, shared).await,
        Err(error) => Err(error),
    };
    written.unwrap_or_else(|error| Err(error.to_string()))
}

/// The same over a connection of which we are the primary. The outer error is the call's, the inner one the switch's.
pub(crate) async fn write_to(
    client: &Client,
    name: &str,
    routes: &SwitchRoutes,
    held: Option<&SwitchRoutes>,
    shared: &Shared,
) -> Result<Result<Option<String>, String>, DeviceError> {
    // What runs no program sends nothing over anybody.
    let Some(index) = device::running(client).await? else { return Ok(Ok(None)) };
    if index.table(names::IPV4_ROUTE).is_err() || index.action_profile(names::ECMP).is_err() {
        return Ok(Ok(Some("runs another maker's program, whose routes stay".to_owned())));
    }
    let entities = |routes: &SwitchRoutes| shared.compiler.entities_in(name, routes, &index);
    client.use_index(index.clone());
    let actual = reconcile::routes(device::actual(client, &index).await?, &index);
    if let Some(held) = held
        && !reconcile::difference(&entities(held)?, &actual, &index).is_empty()
    {
        return Ok(Err(
            "it is not among the switches that are meant, and its routes are not this file's".to_owned()
        ));
    }
    let changes = reconcile::difference(&entities(routes)?, &actual, &index);
    let mut report = SwitchReport::new(name, client.address());
    converge::write(client, &changes, shared, &mut report).await?;
    Ok(match report.refused.first() {
        None => Ok(None),
        Some(refusal) => Err(format!("it refused {}: {}", refusal.change, refusal.error)),
    })
}
