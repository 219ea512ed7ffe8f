// SPDX-License-Identifier: Apache-2.0
//! What a driver does to its switch when the task says so. Each may be dropped at any time.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use trimwire_p4runtime::client::Client;

use super::converge::{self, converge, pipeline_state};
use super::faults::Detector;
use super::reporter::Findings;
use super::task::{Comparison, Event, Loss};
use super::turns::Order;
use super::wanted::Wanted;
use super::{filled, health, routes, trim_events};
use crate::counters::{self, Counters, Look};
use crate::device::{self, DeviceError};
use crate::reconcile;
use crate::report::{PipelineState, SwitchReport};
use crate::topology::{Avoid, SwitchRoutes};

/// How work ended.
pub(super) struct Worked {
    pub event: Event,
    pub counters: Option<Counters>,
    pub findings: Option<Findings>,
    /// What the switch holds of routes from now on, where that is known.
    pub routes: Option<SwitchRoutes>,
    /// What these leave out.
    pub avoid: Option<Arc<Avoid>>,
}

impl Worked {
    fn done(event: Event, counters: Option<Counters>) -> Self {
        Self { event, counters, findings: None, routes: None, avoid: None }
    }
}

/// What a pass over a switch's tables depends on beside what is wanted.
pub(super) struct Pass {
    pub detector: Detector,
    pub avoid: watch::Receiver<Arc<Avoid>>,
    pub orders: watch::Receiver<BTreeMap<String, Order>>,
    /// What the routes that the switch was last given leave out.
    pub held: Arc<Avoid>,
}

/// Brings a switch in place, if it is its turn or needs none; its routes otherwise.
pub(super) async fn reconcile_switch(client: Arc<Client>, wanted: Arc<Wanted>, pass: Pass) -> Worked {
    let Pass { detector, mut avoid, orders, held } = pass;
    let (shared, name) = (&wanted.shared, &wanted.name);
    if detector.asks(name) {
        let avoided = Arc::clone(&avoid.borrow());
        let comparing = filled::lacks(&client, &wanted, &avoided);
        let lacks = wanted.places.work(comparing).await.unwrap_or_else(|error| Some(error.to_string()));
        detector.change(|faults, _| faults.looked(name, lacks));
    }
    detector.settle().await;
    let has_turn = orders.borrow().get(name) == Some(&Order::Replace);
    let mut report = SwitchReport::new(name, client.address());
    // Hosts that have no other way go on sending over it.
    let is_left_out = avoid.borrow().drained.contains(name);
    if has_turn && is_left_out {
        report.warnings.extend(routes::quiet(&client).await);
    }
    let work = async {
        let avoided = Arc::clone(&avoid.borrow_and_update());
        if wanted.once.is_some() && !has_turn {
            return wait(&client, &wanted, avoided, &held).await;
        }
        let outcome = async {
            let desired = shared.compiler.compile_around(name, shared.around(&avoided).as_deref())?;
            converge(&client, shared, &desired, has_turn, &mut report).await
        };
        let outcome: Result<(), DeviceError> = outcome.await;
        if outcome.is_ok() && report.not_begun {
            return wait(&client, &wanted, avoided, &held).await;
        }
        let loss = loss(outcome.as_ref().err());
        report.error = outcome.err().map(|error| error.to_string());
        let (mut findings, mut counters, mut routes, mut avoid) = (None, None, None, None);
        if loss == Loss::None && report.in_place.is_some() && wanted.once.is_none() {
            let digests = trim_events::subscribe(&client, wanted.index()).await;
            let (warnings, begins) = (report.warnings.clone(), report.pipeline_pushed);
            findings = Some(Findings { digests, warnings, begins });
            counters = read_or_none(&client, &wanted, &Look::default()).await;
        }
        if report.is_ok() {
            routes = Some(shared.routes(name, &avoided));
            avoid = Some(avoided);
        }
        Worked { event: Event::Reconciled(Box::new(report), loss), counters, findings, routes, avoid }
    };
    wanted.places.work(work).await
}

/// A switch keeps what it has for a while. Routes, in the terms of the program that it runs, lead
/// around others all the same.
async fn wait(client: &Client, wanted: &Wanted, avoided: Arc<Avoid>, held: &Arc<Avoid>) -> Worked {
    let (shared, name) = (&wanted.shared, &wanted.name);
    let held = (!wanted.is_meant).then(|| shared.routes(name, held));
    let routes = shared.routes(name, &avoided);
    let written = routes::write(client, name, &routes, held.as_ref(), shared).await;
    let loss = loss(written.as_ref().err());
    let written = written.unwrap_or_else(|error| Err(error.to_string()));
    if let Ok(Some(note)) = &written {
        tracing::warn!(switch = %name, "{note}");
    }
    let avoid = written.is_ok().then_some(avoided);
    let event = Event::Waits(written.map(drop), loss);
    Worked { event, counters: None, findings: None, routes: None, avoid }
}

/// Whether a switch is healthy that was changed. A `run` believes one to be so whose counters
/// cannot be read.
pub(super) async fn checked(client: Arc<Client>, wanted: Arc<Wanted>) -> Result<(), String> {
    if wanted.settle.is_zero()
        || wanted.once.is_none() && read_or_none(&client, &wanted, &Look::default()).await.is_none()
    {
        return Ok(());
    }
    health::check(&client, wanted.index(), &wanted.ports, wanted.settle).await
}

/// What routes have changed, without reading. One that fails leaves the switch in between: then all
/// of it is read.
pub(super) async fn reroute(
    client: Arc<Client>,
    wanted: Arc<Wanted>,
    held: Option<SwitchRoutes>,
    avoid: Arc<Avoid>,
) -> Worked {
    let (shared, name) = (&wanted.shared, &wanted.name);
    let work = async {
        let Some(held) = held else { return Ok(Err("what it holds is not known".to_owned())) };
        let routes = shared.routes(name, &avoid);
        // Most failures concern few switches, and few routes of these: what stays is not built.
        if routes == held {
            return Ok(Ok((0, held)));
        }
        let (wanted_now, goes) = (
            shared.compiler.entities_of(name, &routes, &held)?,
            shared.compiler.entities_of(name, &held, &routes)?,
        );
        let actual = goes.into_iter().map(|(key, held)| (key, held.entity)).collect();
        let changes = reconcile::difference(&wanted_now, &actual, wanted.index());
        let mut report = SwitchReport::new(name, client.address());
        converge::write(&client, &changes, shared, &mut report).await?;
        Ok(match report.refused.first() {
            None => Ok((changes.len(), routes)),
            Some(refusal) => Err(format!(
                "{} of {} updates refused ({}: {})",
                report.refused.len(),
                changes.len(),
                refusal.change,
                refusal.error
            )),
        })
    };
    let written: Result<Result<(usize, SwitchRoutes), String>, DeviceError> = wanted.places.work(work).await;
    let loss = loss(written.as_ref().err());
    let (outcome, routes) = match written.unwrap_or_else(|error| Err(error.to_string())) {
        Ok((count, routes)) => (Ok(count), Some(routes)),
        Err(reason) => (Err(reason), None),
    };
    let avoid = outcome.is_ok().then_some(avoid);
    Worked { event: Event::Rerouted(outcome, loss), counters: None, findings: None, routes, avoid }
}

pub(super) async fn compare(client: Arc<Client>, wanted: Arc<Wanted>, avoid: Arc<Avoid>) -> Worked {
    let shared = &wanted.shared;
    let comparing = async {
        let desired = shared.compiler.compile_around(&wanted.name, shared.around(&avoid).as_deref())?;
        if pipeline_state(&client, shared.artifacts(&wanted.name)).await? != PipelineState::Same {
            return Ok(Comparison { differing: desired.len(), program: false });
        }
        let actual = device::actual(&client, wanted.index()).await?;
        let differing = reconcile::difference(&desired, &actual, wanted.index()).len();
        Ok(Comparison { differing, program: true })
    };
    let work = async {
        let compared: Result<Comparison, DeviceError> = comparing.await;
        let loss = loss(compared.as_ref().err());
        let counters = match &compared {
            Ok(Comparison { program: true, .. }) => read_or_none(&client, &wanted, &Look::default()).await,
            _ => None,
        };
        Worked::done(Event::Compared(compared.map_err(|error| error.to_string()), loss), counters)
    };
    wanted.places.work(work).await
}

/// Between two audits: whether the switch still runs the program, and its counters.
pub(super) async fn read_counters(client: Arc<Client>, wanted: Arc<Wanted>, look: Look) -> Worked {
    let work = async {
        let state = pipeline_state(&client, wanted.shared.artifacts(&wanted.name)).await;
        let loss = loss(state.as_ref().err());
        let same = state.map(|state| state == PipelineState::Same);
        let counters = match same {
            Ok(true) => read_or_none(&client, &wanted, &look).await,
            _ => None,
        };
        Worked::done(Event::CountersRead(same.map_err(|error| error.to_string()), loss), counters)
    };
    wanted.places.work(work).await
}

fn loss(error: Option<&DeviceError>) -> Loss {
    if error.is_some_and(DeviceError::is_connection_loss) { Loss::Connection } else { Loss::None }
}

/// Counters are for watching; a switch that does not give them is in place all the same.
async fn read_or_none(client: &Client, wanted: &Wanted, look: &Look) -> Option<Counters> {
    let taken = counters::read(client, wanted.index(), Some(&wanted.ports), look).await;
    taken.inspect_err(|error| tracing::warn!(switch = %wanted.name, "no counters: {error}")).ok()
}
