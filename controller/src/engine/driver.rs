// SPDX-License-Identifier: Apache-2.0
//! Runs a [`SwitchTask`] on a real connection and the real clock, for a `run` and for a roll-out.
//!
//! A roll-out's driver writes nothing but routes before it is the switch's turn, is primary or
//! nothing, and does not care for what fails elsewhere, for ports or for counters.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use trimwire_p4runtime::admin::PortState;
use trimwire_p4runtime::client::{Arbitration, Client, ClientError};
use trimwire_p4runtime::v1::DigestList;

use super::board::Board;
use super::election::Elections;
use super::faults::{Detector, Element};
use super::interfaces::{Listener, PortStream, port_states, tell_ports};
use super::prober::{Prober, unawaited};
use super::reporter::Reporter;
use super::status::{Links, Status, View};
use super::task::{Action, Event, Runs, Standing, SwitchTask};
use super::turns::{Order, Replacements, Seen};
use super::wanted::Wanted;
use super::wires;
use super::work::{self, Pass, Worked};
use crate::device::{DeviceError, Reach};
use crate::topology::{Avoid, SwitchRoutes};

/// What stays the same for as long as a driver runs.
#[derive(Clone, PartialEq)]
pub(crate) struct Terms {
    pub name: String,
    pub reach: Reach,
    pub election_id: u128,
    pub interval_ns: u64,
    pub audit_ns: u64,
    /// What the switch's routes leave out, as far as that is known.
    pub held: Arc<Avoid>,
}

/// What all drivers have in common.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    pub board: Board,
    pub elections: Elections,
    pub detector: Detector,
    pub replacements: Replacements,
}

impl Common {
    /// What is known of the switches.
    pub(crate) fn status(&self) -> Status {
        Status { links: self.links(), ..self.board.status() }
    }

    /// What is known of the links between them.
    pub(crate) fn links(&self) -> Links {
        self.detector.wires(|wires| wires.links(|_| true))
    }
}

struct Session {
    client: Arc<Client>,
    /// What was last told of it.
    seen: Arbitration,
    digests: Option<mpsc::Receiver<DigestList>>,
    ports: PortStream,
    _prober: Option<Prober>,
}

/// How work ended.
enum Done {
    Connected(Box<Result<Client, DeviceError>>),
    Worked(Box<Worked>),
}

type Work = Pin<Box<dyn Future<Output = Done> + Send>>;
/// A check of a switch's counters after it was given another program.
type Check = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Keeps one switch at what is wanted, until `wanted` is closed.
pub(crate) async fn drive(terms: Terms, mut wanted: watch::Receiver<Arc<Wanted>>, common: Common) {
    let Common { board, elections, detector, replacements } = common;
    let started = Instant::now();
    let now = || u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let Terms { name, reach, election_id, interval_ns, audit_ns, mut held } = terms;
    let once = wanted.borrow().once.clone();
    let mut task = SwitchTask::new(&name, election_id, interval_ns, audit_ns, now());
    let mut session: Option<Session> = None;
    let mut work: Option<Work> = None;
    let mut reporter = Reporter::new(name.clone(), board.clone(), once.is_none());
    let _listener = once.is_none().then(|| Listener::start(reach.clone(), wanted.clone(), detector.clone()));
    let mut leads = elections.subscribe();
    task.handle_event(now(), Event::Leads(*leads.borrow_and_update()));
    let mut avoid = detector.subscribe();
    // Of routes, as last written or read.
    let mut routes: Option<SwitchRoutes> = None;
    let mut number = wanted.borrow_and_update().number;
    let mut orders = replacements.subscribe();
    orders.mark_changed();
    let mut check: Option<Check> = None;
    let mut own_order = None;
    let mut seen = (number, Seen::Unknown(String::new()));
    let mut is_well = None;
    let mut probes = false;
    detector.wires(|wires| wires.ready(&name, false));
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
                (Action::Connect(bid), _) => {
                    work = Some(Box::pin(connect(reach.clone(), bid, once.is_some())));
                }
                (Action::Reconcile, Some(client)) => {
                    routes = None;
                    let (detector, avoid, orders) = (detector.clone(), avoid.clone(), orders.clone());
                    let pass = Pass { detector, avoid, orders, held: Arc::clone(&held) };
                    work = Some(worked(work::reconcile_switch(client, current(), pass)));
                }
                (Action::Reroute, Some(client)) => {
                    let avoided = Arc::clone(&avoid.borrow());
                    work = Some(worked(work::reroute(client, current(), routes.take(), avoided)));
                }
                (Action::Compare, Some(client)) => {
                    work = Some(worked(work::compare(client, current(), Arc::clone(&avoid.borrow()))));
                }
                (Action::ReadCounters, Some(client)) => {
                    work = Some(worked(work::read_counters(client, current(), reporter.look())));
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
        let is_in_place = task.is_primary() && task.in_place() == Some(true);
        let probes_now = is_in_place && wires::knows_probes(wanted.borrow().index());
        if std::mem::replace(&mut probes, probes_now) != probes_now {
            detector.wires(|wires| wires.ready(&name, probes));
        }
        let now_well = well(&task, is_anothers);
        if once.is_none() && now_well.is_some() && std::mem::replace(&mut is_well, now_well) != now_well {
            let element = Element::Switch(name.clone());
            detector.change(|faults, now| match now_well {
                Some(true) => faults.well(now, &element),
                _ => faults.failed(now, element, lost.clone()),
            });
        }
        let seen_now = (number, how_it_stands(&task, is_anothers && once.is_none(), &held, &lost));
        if seen_now != seen {
            replacements.change(|replacer| replacer.see(number, &name, seen_now.1.clone()));
            seen = seen_now;
        }
        let wake = task.poll_timeout();
        let (told, digests, ports) = match &mut session {
            Some(Session { client, seen, digests, ports, .. }) => {
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
                        Box::pin(work::checked(Arc::clone(&session.client), Arc::clone(&wanted.borrow())))
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
                Ok(arbitration @ Arbitration::Backup { .. }) if once.is_some() => {
                    Event::Lost(reach.backup(election_id, &arbitration).to_string())
                }
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
                    Done::Connected(connected) => match connected.and_then(|client| begin(client, once.is_some(), &wanted, &detector)).inspect_err(|error| {
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
                        let worked = *worked;
                        routes = worked.routes.or(routes);
                        held = worked.avoid.unwrap_or(held);
                        if Arc::ptr_eq(&held, &avoid.borrow()) {
                            task.handle_event(now(), Event::KnewDetours);
                        }
                        reporter.worked(worked.counters, worked.findings);
                        if let (Some(reports), Event::Reconciled(report, _)) = (&once, &worked.event) {
                            reports.keep(report);
                        }
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
                    unawaited(session.client.acknowledge_digest(list.digest_id, list.list_id)).await;
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

/// Whether traffic can be sent over a switch: it is there, and holds its tables, or those of the
/// program that it goes on with, or what another controller gave it. `None` while that is not
/// known.
fn well(task: &SwitchTask, is_anothers: bool) -> Option<bool> {
    if task.is_up() {
        let has_routes = task.runs() == Runs::Another && task.failure().is_none();
        let forwards = task.in_place() == Some(true) || has_routes;
        (!task.is_primary() || forwards).then_some(true)
    } else {
        (task.failures() > 0).then_some(is_anothers)
    }
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

async fn next<T>(told: Option<&mut mpsc::Receiver<T>>) -> T {
    if let Some(told) = told
        && let Some(message) = told.recv().await
    {
        return message;
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

fn worked(work: impl Future<Output = Worked> + Send + 'static) -> Work {
    Box::pin(async { Done::Worked(Box::new(work.await)) })
}

/// Connecting is cheap for this machine however long it takes, and needs no place. A roll-out
/// becomes primary or fails.
async fn connect(reach: Reach, bid: u128, is_roll_out: bool) -> Done {
    let connected =
        if is_roll_out { reach.primary(bid).await } else { reach.bid(bid).await.map(|(client, _)| client) };
    Done::Connected(Box::new(connected))
}

fn begin(
    client: Client,
    is_roll_out: bool,
    wanted: &watch::Receiver<Arc<Wanted>>,
    detector: &Detector,
) -> Result<Session, DeviceError> {
    let (seen, client) = (client.arbitration()?, Arc::new(client));
    let (digests, packets) = client.take_streams().map(|streams| (streams.digests, streams.packets)).unzip();
    let prober = packets.map(|packets| {
        let (name, wanted) = (wanted.borrow().name.clone(), wanted.clone());
        let shared = move || Arc::clone(&wanted.borrow().shared);
        Prober::start(name, Arc::clone(&client), packets, shared, detector.clone())
    });
    let ports = if is_roll_out { PortStream::Silent } else { PortStream::Unasked };
    Ok(Session { client, seen, digests, ports, _prober: prober })
}
