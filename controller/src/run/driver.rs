// SPDX-License-Identifier: Apache-2.0
//! Runs a [`SwitchTask`] on a real connection and the real clock.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use trimwire_p4runtime::admin::{PortState, PortStates};
use trimwire_p4runtime::client::{Arbitration, Client, ClientError};
use trimwire_p4runtime::server::tonic::Streaming;
use trimwire_p4runtime::v1::DigestList;

use super::board::Board;
use super::election::{Elections, View};
use super::faults::{Detector, Element};
use super::filled;
use super::interfaces::Listener;
use super::replacing::{Order, Replacements, Seen};
use super::reporter::{Findings, Reporter};
use super::task::{Action, Comparison, Event, Loss, Runs, Standing, SwitchTask};
use super::trim_events;
use super::wanted::Wanted;
use crate::counters::{self, Counters};
use crate::model::End;
use crate::reconcile;
use crate::rollout::bypass;
use crate::rollout::converge::{self, converge, pipeline_state};
use crate::rollout::device::{self, DeviceError, Reach};
use crate::rollout::fleet::Shared;
use crate::rollout::health;
use crate::rollout::report::{PipelineState, SwitchReport};
use crate::topology::{Avoid, Detours, SwitchRoutes};

/// What stays the same for as long as a driver runs.
#[derive(Clone, PartialEq)]
pub(super) struct Terms {
    pub name: String,
    pub reach: Reach,
    pub election_id: u128,
    pub interval_ns: u64,
    pub audit_ns: u64,
}

/// What all drivers have in common.
#[derive(Debug, Clone)]
pub(super) struct Common {
    pub board: Board,
    pub elections: Elections,
    pub detector: Detector,
    pub replacements: Replacements,
}

struct Session {
    client: Arc<Client>,
    /// What was last told of it.
    seen: Arbitration,
    digests: Option<mpsc::Receiver<DigestList>>,
    ports: PortStream,
}

/// What a switch tells of its ports, if it does.
enum PortStream {
    Unasked,
    Silent,
    Open { states: Box<Streaming<PortStates>>, heard: Instant },
}

/// A switch that tells of its ports does so every second, and is dead when it does not.
const SILENCE: Duration = Duration::from_secs(3);

/// What a switch should hold of routes.
fn routes_of(shared: &Shared, name: &str, detours: Option<&Detours>) -> SwitchRoutes {
    shared.compiler.topology().routes_around(shared.compiler.fabric(), name, detours)
}

/// How work ended.
enum Done {
    Connected(Box<Result<Client, DeviceError>>),
    Worked(Worked),
}

struct Worked {
    event: Event,
    counters: Option<Counters>,
    findings: Option<Findings>,
    /// What the switch holds of routes from now on, where that is known.
    routes: Option<SwitchRoutes>,
    /// What these leave out.
    avoid: Option<Arc<Avoid>>,
}

impl Worked {
    fn done(event: Event, counters: Option<Counters>) -> Done {
        Done::Worked(Self { event, counters, findings: None, routes: None, avoid: None })
    }
}

type Work = Pin<Box<dyn Future<Output = Done> + Send>>;
/// A check of a switch's counters after it was given another program.
type Check = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Keeps one switch at what is wanted, until `wanted` is closed.
pub(super) async fn drive(terms: Terms, mut wanted: watch::Receiver<Arc<Wanted>>, common: Common) {
    let Common { board, elections, detector, replacements } = common;
    let started = Instant::now();
    let now = || u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let Terms { name, reach, election_id, interval_ns, audit_ns } = terms;
    let mut task = SwitchTask::new(&name, election_id, interval_ns, audit_ns, now());
    let mut session: Option<Session> = None;
    let mut work: Option<Work> = None;
    let mut reporter = Reporter::new(name.clone(), board.clone());
    let _listener = Listener::start(reach.clone(), wanted.clone(), detector.clone());
    let mut leads = elections.subscribe();
    task.handle_event(now(), Event::Leads(*leads.borrow_and_update()));
    let mut avoid = detector.subscribe();
    // Of routes, as last written or read.
    let mut routes: Option<SwitchRoutes> = None;
    // What these leave out.
    let mut held = Arc::<Avoid>::default();
    let mut number = wanted.borrow_and_update().number;
    let mut orders = replacements.subscribe();
    orders.mark_changed();
    let mut check: Option<Check> = None;
    let mut own_order = None;
    let mut seen = (number, Seen::Unknown(String::new()));
    let mut is_well = None;
    let mut lost = "not reached yet".to_owned();
    // Another controller is primary with our election id: the switch works, and does not want us.
    let mut is_anothers = false;
    let mut view = View::Unreached;
    elections.change(|election| election.see(&name, view));
    loop {
        while let Some(action) = task.poll_action() {
            let current = || Arc::clone(&wanted.borrow());
            let client = session.as_ref().map(|session| Arc::clone(&session.client));
            match (action, client) {
                (Action::Abandon, _) => work = None,
                (Action::Disconnect, _) => (work, session, routes, check) = (None, None, None, None),
                (Action::Connect(bid), _) => work = Some(Box::pin(connect(reach.clone(), bid))),
                (Action::Reconcile, Some(client)) => {
                    routes = None;
                    let (detector, avoid, orders) = (detector.clone(), avoid.clone(), orders.clone());
                    work = Some(Box::pin(reconcile_switch(client, current(), detector, avoid, orders)));
                }
                (Action::Reroute, Some(client)) => {
                    let avoided = Arc::clone(&avoid.borrow());
                    work = Some(Box::pin(reroute(client, current(), routes.take(), avoided)));
                }
                (Action::Compare, Some(client)) => {
                    work = Some(Box::pin(compare(client, current(), Arc::clone(&avoid.borrow()))));
                }
                (Action::ReadCounters, Some(client)) => {
                    work = Some(Box::pin(read_counters(client, current())));
                }
                // The task asks for work only while it is connected.
                (Action::Reconcile | Action::Reroute | Action::Compare | Action::ReadCounters, None) => {}
            }
        }
        if task.is_stopped() {
            // The board may already be another driver's.
            return;
        }
        reporter.report(now(), &mut task, number);
        if std::mem::replace(&mut view, task.view(now())) != view {
            elections.change(|election| election.see(&name, view));
        }
        let now_well = well(&task, is_anothers);
        if now_well.is_some() && std::mem::replace(&mut is_well, now_well) != now_well {
            let element = Element::Switch(name.clone());
            detector.change(|faults, now| match now_well {
                Some(true) => faults.well(now, &element),
                _ => faults.failed(now, element, lost.clone()),
            });
        }
        let seen_now = (number, how_it_stands(&task, is_anothers, &held, &lost));
        if seen_now != seen {
            replacements.change(|replacer| replacer.see(number, &name, seen_now.1.clone()));
            seen = seen_now;
        }
        let wake = task.poll_timeout();
        let (told, digests, ports) = match &mut session {
            Some(Session { client, seen, digests, ports }) => {
                (Some((&*client, &*seen)), digests.as_mut(), Some((&*client, ports)))
            }
            None => (None, None, None),
        };
        // In this order, so that whoever is demoted hears of it before anything else.
        let event = tokio::select! {
            biased;
            changed = wanted.changed() => if changed.is_ok() {
                number = wanted.borrow_and_update().number;
                Event::FabricChanged
            } else {
                Event::Stop
            },
            Ok(()) = leads.changed() => Event::Leads(*leads.borrow_and_update()),
            Ok(()) = avoid.changed() => {
                avoid.mark_unchanged();
                Event::Detoured
            }
            Ok(()) = orders.changed() => {
                let order = orders.borrow_and_update().get(&name).copied();
                let is_new = std::mem::replace(&mut own_order, order) != order;
                check = match (order, &session) {
                    (Some(Order::Check), Some(session)) => Some(check.take().unwrap_or_else(|| {
                        Box::pin(checked(Arc::clone(&session.client), Arc::clone(&wanted.borrow())))
                    })),
                    _ => None,
                };
                if order != Some(Order::Replace) || !is_new {
                    continue;
                }
                Event::MayReplace
            }
            outcome = concluded(&mut check) => {
                check = None;
                replacements.change(|replacer| replacer.checked(&name, outcome));
                continue;
            }
            told = port_states(ports) => match told {
                Ok(states) => {
                    let port = |state: PortState| Some((u16::try_from(state.port).ok()?, state.usable));
                    let ports = states.ports.into_iter().filter_map(port);
                    tell_ports(&detector, &wanted.borrow(), ports, "the switch says that the port or its link is down");
                    continue;
                }
                Err(reason) => Event::Lost(reason),
            },
            told = standing(told) => match told {
                Ok(arbitration) => {
                    let event = Event::Arbitrated(standing_of(&arbitration));
                    if let Some(session) = &mut session {
                        session.seen = arbitration;
                    }
                    event
                }
                Err(error) => Event::Lost(error.to_string()),
            },
            done = finished(&mut work) => {
                work = None;
                match done {
                    Done::Connected(connected) => match connected.and_then(begin).inspect_err(|error| {
                        is_anothers = matches!(error, DeviceError::ElectionIdInUse { .. });
                    }) {
                        Ok(begun) => {
                            let event = Event::Arbitrated(standing_of(&begun.seen));
                            session = Some(begun);
                            event
                        }
                        Err(error) => Event::Lost(error.to_string()),
                    },
                    Done::Worked(worked) => {
                        routes = worked.routes.or(routes);
                        held = worked.avoid.unwrap_or(held);
                        if Arc::ptr_eq(&held, &avoid.borrow()) {
                            task.handle_event(now(), Event::KnewDetours);
                        }
                        reporter.worked(worked.counters, worked.findings);
                        if matches!(worked.event, Event::Reconciled(..) | Event::Waits(..)) {
                            // What it was found to lack, it has by now.
                            is_well = None;
                        }
                        worked.event
                    }
                }
            }
            () = sleep_until(started, wake) => {
                task.handle_timeout(now());
                continue;
            }
            list = next(digests) => {
                if let Some(session) = &session {
                    reporter.digest(now(), &session.client, &list, &wanted.borrow());
                    tokio::select! {
                        biased;
                        _ = session.client.acknowledge_digest(list.digest_id, list.list_id) => {}
                        // Who does not read acknowledgements is not waited for.
                        () = std::future::ready(()) => {}
                    }
                }
                continue;
            }
        };
        // Digests go to the primary alone: what was told before is not known.
        if !task.is_primary() && matches!(event, Event::Arbitrated(Standing::Primary)) {
            reporter.begin();
        }
        if let Event::Lost(reason) = &event {
            lost.clone_from(reason);
        }
        task.handle_event(now(), event);
    }
}

/// How a switch stands to a new program. Its routes leave out `held`.
fn how_it_stands(task: &SwitchTask, is_anothers: bool, held: &Arc<Avoid>, lost: &str) -> Seen {
    if !task.is_up() {
        return match task.failures() {
            // A switch that another controller has, works, and may lead anywhere.
            _ if is_anothers => Seen::Unknown("another controller has our election id there".to_owned()),
            0 => Seen::Unknown("it is being connected to".to_owned()),
            _ => Seen::Unreached(lost.to_owned()),
        };
    }
    match (task.runs(), task.failure()) {
        _ if !task.is_primary() => Seen::Unknown("another controller is its primary".to_owned()),
        (Runs::Another, None) => Seen::Another(Ok(Arc::clone(held))),
        (Runs::Another, Some(why)) => Seen::Another(Err(why.to_owned())),
        (_, Some(why)) => Seen::Failed(why.to_owned()),
        (Runs::Wanted, None) => Seen::InPlace(Arc::clone(held)),
        (Runs::Unknown, None) => Seen::Unknown("its tables are being read".to_owned()),
    }
}

/// Whether traffic can be sent over a switch: it is there, and holds its tables, or those of the program that it goes on with, or what
/// another controller gave it. `None` while that is not known.
fn well(task: &SwitchTask, is_anothers: bool) -> Option<bool> {
    if task.is_up() {
        let has_routes = task.runs() == Runs::Another && task.failure().is_none();
        let forwards = task.in_place() == Some(true) || has_routes;
        (!task.is_primary() || forwards).then_some(true)
    } else {
        (task.failures() > 0).then_some(is_anothers)
    }
}

/// What a switch tells next of its ports. An error is the connection's end.
async fn port_states(ports: Option<(&Arc<Client>, &mut PortStream)>) -> Result<PortStates, String> {
    let Some((client, ports)) = ports else { return std::future::pending().await };
    if let PortStream::Unasked = ports {
        *ports = match client.watch_ports().await {
            Ok(Some(states)) => PortStream::Open { states: Box::new(states), heard: Instant::now() },
            // Whoever does not tell is believed to have all its links.
            Ok(None) | Err(_) => PortStream::Silent,
        };
    }
    let PortStream::Open { states, heard } = ports else { return std::future::pending().await };
    match tokio::time::timeout_at(*heard + SILENCE, states.message()).await {
        Ok(Ok(Some(told))) => {
            *heard = Instant::now();
            Ok(told)
        }
        Ok(Ok(None)) => Err("it ended telling of its ports".to_owned()),
        Ok(Err(status)) => Err(format!("it ended telling of its ports: {}", status.message())),
        Err(_) => Err(format!("it has said nothing for {SILENCE:?}")),
    }
}

/// Whether a port leads to another switch: such links have a way round; hosts' have none.
pub(super) fn is_trunk(wanted: &Wanted, port: u16) -> bool {
    let neighbours = wanted.shared.compiler.topology().neighbours(&wanted.name);
    let neighbour = neighbours.and_then(|neighbours| neighbours.get(&port));
    matches!(neighbour.map(|neighbour| &neighbour.end), Some(End::Port(..)))
}

/// What a switch says of its ports, each with whether it can be used.
pub(super) fn tell_ports(
    detector: &Detector,
    wanted: &Wanted,
    ports: impl IntoIterator<Item = (u16, bool)>,
    reason: &str,
) {
    detector.change(|faults, now| {
        for (port, is_usable) in ports {
            let element = Element::Port(wanted.name.clone(), port);
            if !is_trunk(wanted, port) {
                continue;
            }
            if is_usable {
                faults.well(now, &element);
            } else {
                faults.failed(now, element, reason.to_owned());
            }
        }
    });
}

async fn finished(work: &mut Option<Work>) -> Done {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

async fn concluded(check: &mut Option<Check>) -> Result<(), String> {
    match check {
        Some(check) => check.await,
        None => std::future::pending().await,
    }
}

async fn standing(session: Option<(&Arc<Client>, &Arbitration)>) -> Result<Arbitration, ClientError> {
    match session {
        Some((client, seen)) => client.arbitration_change(seen).await,
        None => std::future::pending().await,
    }
}

async fn next(digests: Option<&mut mpsc::Receiver<DigestList>>) -> DigestList {
    if let Some(digests) = digests
        && let Some(list) = digests.recv().await
    {
        return list;
    }
    // The stream's end is told by arbitration.
    std::future::pending().await
}

async fn sleep_until(started: Instant, at_ns: Option<u64>) {
    match at_ns {
        Some(at_ns) => tokio::time::sleep_until(started + Duration::from_nanos(at_ns)).await,
        None => std::future::pending().await,
    }
}

fn standing_of(arbitration: &Arbitration) -> Standing {
    match arbitration {
        Arbitration::Primary { .. } => Standing::Primary,
        Arbitration::Backup { highest_election_id, primary_exists } => {
            Standing::Backup { highest: *highest_election_id, primary_exists: *primary_exists }
        }
    }
}

/// Connecting is cheap for this machine however long it takes, and needs no place.
async fn connect(reach: Reach, bid: u128) -> Done {
    Done::Connected(Box::new(reach.bid(bid).await.map(|(client, _)| client)))
}

fn begin(client: Client) -> Result<Session, DeviceError> {
    let seen = client.arbitration()?;
    let digests = client.take_streams().map(|streams| streams.digests);
    Ok(Session { client: Arc::new(client), seen, digests, ports: PortStream::Unasked })
}

async fn reconcile_switch(
    client: Arc<Client>,
    wanted: Arc<Wanted>,
    detector: Detector,
    mut avoid: watch::Receiver<Arc<Avoid>>,
    orders: watch::Receiver<BTreeMap<String, Order>>,
) -> Done {
    if detector.asks(&wanted.name) {
        let detours = wanted.shared.around(&avoid.borrow());
        let comparing = filled::lacks(&client, &wanted, detours.as_deref());
        let lacks = wanted.places.work(comparing).await.unwrap_or_else(|error| Some(error.to_string()));
        detector.change(|faults, _| faults.looked(&wanted.name, lacks));
    }
    detector.settle().await;
    let may_replace = orders.borrow().get(&wanted.name) == Some(&Order::Replace);
    // Hosts that have no other way go on sending over it.
    let is_left_out = avoid.borrow().drained.contains(&wanted.name);
    if may_replace
        && is_left_out
        && let Some(note) = bypass::quiet(&client).await
    {
        tracing::warn!(switch = %wanted.name, "given its new program all the same: {note}");
    }
    let work = async {
        let (shared, name) = (&wanted.shared, &wanted.name);
        let avoided = Arc::clone(&avoid.borrow_and_update());
        let detours = shared.around(&avoided);
        let mut report = SwitchReport::new(name, client.address());
        let outcome = async {
            let desired = shared.compiler.compile_around(name, detours.as_deref())?;
            converge(&client, shared, &desired, may_replace, &mut report).await
        };
        let outcome: Result<(), DeviceError> = outcome.await;
        if outcome.is_ok() && report.not_begun {
            return wait(&client, &wanted, detours.as_deref(), avoided).await;
        }
        let loss = loss(outcome.as_ref().err());
        report.error = outcome.err().map(|error| error.to_string());
        let (mut findings, mut counters, mut routes, mut avoid) = (None, None, None, None);
        if loss == Loss::None && report.in_place.is_some() {
            let digests = trim_events::subscribe(&client, wanted.index()).await;
            findings =
                Some(Findings { digests, warnings: report.warnings.clone(), begins: report.pipeline_pushed });
            counters = read_or_none(&client, &wanted).await;
        }
        if report.is_ok() {
            routes = Some(routes_of(shared, name, detours.as_deref()));
            avoid = Some(avoided);
        }
        Done::Worked(Worked {
            event: Event::Reconciled(Box::new(report), loss),
            counters,
            findings,
            routes,
            avoid,
        })
    };
    wanted.places.work(work).await
}

/// A switch keeps its other program for a while. Routes, by then in the terms of that program, lead around others all the same.
async fn wait(client: &Client, wanted: &Wanted, detours: Option<&Detours>, avoided: Arc<Avoid>) -> Done {
    let (shared, name) = (&wanted.shared, &wanted.name);
    let written = bypass::write_to(client, name, &routes_of(shared, name, detours), None, shared).await;
    let loss = loss(written.as_ref().err());
    let written = written.unwrap_or_else(|error| Err(error.to_string()));
    if let Ok(Some(note)) = &written {
        tracing::warn!(switch = %name, "{note}");
    }
    let avoid = written.is_ok().then_some(avoided);
    let event = Event::Waits(written.map(drop), loss);
    Done::Worked(Worked { event, counters: None, findings: None, routes: None, avoid })
}

/// As after a roll-out. A switch whose counters cannot be read is believed to be well.
async fn checked(client: Arc<Client>, wanted: Arc<Wanted>) -> Result<(), String> {
    let settle = Duration::from_nanos(wanted.shared.compiler.fabric().controller.settle_ns);
    if settle.is_zero() || read_or_none(&client, &wanted).await.is_none() {
        return Ok(());
    }
    health::check(&client, wanted.index(), &wanted.ports, settle).await
}

/// What routes have changed, without reading. One that fails leaves the switch in between: then all of it is read.
async fn reroute(
    client: Arc<Client>,
    wanted: Arc<Wanted>,
    held: Option<SwitchRoutes>,
    avoid: Arc<Avoid>,
) -> Done {
    let (shared, name) = (&wanted.shared, &wanted.name);
    let work = async {
        let Some(held) = held else { return Ok(Err("what it holds is not known".to_owned())) };
        let routes = routes_of(shared, name, shared.around(&avoid).as_deref());
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
    let written = written.unwrap_or_else(|error| Err(error.to_string()));
    let (outcome, routes) = match written {
        Ok((count, routes)) => (Ok(count), Some(routes)),
        Err(reason) => (Err(reason), None),
    };
    let avoid = outcome.is_ok().then_some(avoid);
    Done::Worked(Worked {
        event: Event::Rerouted(outcome, loss),
        counters: None,
        findings: None,
        routes,
        avoid,
    })
}

async fn compare(client: Arc<Client>, wanted: Arc<Wanted>, avoid: Arc<Avoid>) -> Done {
    let shared = &wanted.shared;
    let comparing = async {
        let desired = shared.compiler.compile_around(&wanted.name, shared.around(&avoid).as_deref())?;
        if pipeline_state(&client, shared.artifacts(&wanted.name)).await? != PipelineState::Same {
            return Ok(Comparison { differing: desired.len(), program: false });
        }
        let actual = device::actual(&client, wanted.index()).await?;
        let changes = reconcile::difference(&desired, &actual, wanted.index());
        Ok(Comparison { differing: changes.len(), program: true })
    };
    let work = async {
        let compared: Result<Comparison, DeviceError> = comparing.await;
        let loss = loss(compared.as_ref().err());
        let counters = match &compared {
            Ok(Comparison { program: true, .. }) => read_or_none(&client, &wanted).await,
            _ => None,
        };
        Worked::done(Event::Compared(compared.map_err(|error| error.to_string()), loss), counters)
    };
    wanted.places.work(work).await
}

/// Between two audits: whether the switch still runs the program, and its counters.
async fn read_counters(client: Arc<Client>, wanted: Arc<Wanted>) -> Done {
    let work = async {
        let state = pipeline_state(&client, wanted.shared.artifacts(&wanted.name)).await;
        let loss = loss(state.as_ref().err());
        let same = state.map(|state| state == PipelineState::Same);
        let counters = match same {
            Ok(true) => read_or_none(&client, &wanted).await,
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
async fn read_or_none(client: &Client, wanted: &Wanted) -> Option<Counters> {
    let taken = counters::read(client, wanted.index(), &wanted.ports).await;
    taken.inspect_err(|error| tracing::warn!(switch = %wanted.name, "no counters: {error}")).ok()
}
