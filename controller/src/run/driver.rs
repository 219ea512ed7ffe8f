//! Runs a [`SwitchTask`] on a real connection and the real clock.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use trimwire_p4runtime::client::{Arbitration, Client, ClientError};
use trimwire_p4runtime::v1::DigestList;

use super::board::Board;
use super::cuts::Cuts;
use super::cutting;
use super::election::{Elections, View};
use super::reporter::{Reporter, Told};
use super::task::{Action, Event, Looked, Loss, Standing, SwitchTask};
use super::wanted::Wanted;
use crate::converge::{converge, pipeline_state};
use crate::device::{self, DeviceError, Reach};
use crate::reconcile;
use crate::report::{PipelineState, SwitchReport};
use crate::sample::{Sample, sample};

/// What stays the same for as long as a driver runs.
#[derive(Clone, PartialEq)]
pub(super) struct Terms {
    pub name: String,
    pub reach: Reach,
    pub election_id: u128,
    pub interval_ns: u64,
    pub audit_ns: u64,
}

struct Session {
    client: Arc<Client>,
    /// What was last told of it.
    seen: Arbitration,
    digests: Option<mpsc::Receiver<DigestList>>,
}

/// How work ended.
enum Done {
    Connected(Box<Result<Client, DeviceError>>),
    Worked { event: Event, sample: Option<Sample>, told: Option<Told> },
}

type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

/// Keeps one switch at what is wanted, until `wanted` is closed.
pub(super) async fn drive(
    terms: Terms,
    mut wanted: watch::Receiver<Arc<Wanted>>,
    board: Board,
    cuts: Cuts,
    elections: Elections,
) {
    let started = Instant::now();
    let now = || u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let Terms { name, reach, election_id, interval_ns, audit_ns } = terms;
    let mut task = SwitchTask::new(&name, election_id, interval_ns, audit_ns, now());
    let mut session: Option<Session> = None;
    let mut work: Option<Work> = None;
    let mut reporter = Reporter::new(name.clone(), board.clone(), cuts);
    let mut leads = elections.subscribe();
    task.handle_event(now(), Event::Leads(*leads.borrow_and_update()));
    let mut view = View::Unreached;
    elections.change(|election| election.see(&name, view));
    loop {
        while let Some(action) = task.poll_action() {
            let current = || Arc::clone(&wanted.borrow());
            let client = session.as_ref().map(|session| Arc::clone(&session.client));
            match (action, client) {
                (Action::Abandon, _) => work = None,
                (Action::Disconnect, _) => (work, session) = (None, None),
                (Action::Connect(bid), _) => work = Some(Box::pin(connect(reach.clone(), bid))),
                (Action::Reconcile, Some(client)) => {
                    work = Some(Box::pin(reconcile_switch(name.clone(), client, current())));
                }
                (Action::Look, Some(client)) => work = Some(Box::pin(look(client, current()))),
                (Action::Sample, Some(client)) => work = Some(Box::pin(glance(client, current()))),
                // The task asks for work only while it is connected.
                (Action::Reconcile | Action::Look | Action::Sample, None) => {}
            }
        }
        if task.is_stopped() {
            // The board may already be another driver's.
            return;
        }
        reporter.report(&mut task);
        if std::mem::replace(&mut view, task.view(now())) != view {
            elections.change(|election| election.see(&name, view));
        }
        let wake = task.poll_timeout();
        let (told, digests) = match &mut session {
            Some(Session { client, seen, digests }) => (Some((&*client, &*seen)), digests.as_mut()),
            None => (None, None),
        };
        // In this order, so that whoever is demoted hears of it before anything else.
        let event = tokio::select! {
            biased;
            changed = wanted.changed() => if changed.is_ok() { Event::FabricChanged } else { Event::Stop },
            Ok(()) = leads.changed() => Event::Leads(*leads.borrow_and_update()),
            told = standing(told) => match told {
                Ok(arbitration) => {
                    let event = Event::Told(standing_of(&arbitration));
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
                    Done::Connected(connected) => match connected.and_then(begin) {
                        Ok(begun) => {
                            let event = Event::Told(standing_of(&begun.seen));
                            session = Some(begun);
                            event
                        }
                        Err(error) => Event::Lost(error.to_string()),
                    },
                    Done::Worked { event, sample, told } => {
                        reporter.worked(sample, told);
                        event
                    }
                }
            }
            () = sleep_until(started, wake) => {
                task.handle_timeout(now());
                continue;
            }
            list = next(digests) => {
                if let Some(session) = &session {
                    reporter.digest(&session.client, &list, &wanted.borrow());
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
        if !task.is_primary() && matches!(event, Event::Told(Standing::Primary)) {
            reporter.begin();
        }
        task.handle_event(now(), event);
    }
}

async fn finished(work: &mut Option<Work>) -> Done {
    match work {
        Some(work) => work.await,
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
    Ok(Session { client: Arc::new(client), seen, digests })
}

async fn reconcile_switch(name: String, client: Arc<Client>, wanted: Arc<Wanted>) -> Done {
    let shared = &wanted.shared;
    let work = async {
        let mut report = SwitchReport::new(&name, client.address());
        let outcome = converge(&client, shared, &mut report).await;
        let loss = loss(outcome.as_ref().err());
        report.error = outcome.err().map(|error| error.to_string());
        let (mut told, mut sample) = (None, None);
        if loss == Loss::None && report.in_place.is_some() {
            let digests = cutting::subscribe(&client, wanted.index()).await;
            told = Some(Told { digests, warnings: report.warnings.clone(), begins: report.pipeline_pushed });
            sample = sampled(&client, &wanted).await;
        }
        Done::Worked { event: Event::Reconciled(Box::new(report), loss), sample, told }
    };
    wanted.places.work(work).await
}

async fn look(client: Arc<Client>, wanted: Arc<Wanted>) -> Done {
    let shared = &wanted.shared;
    let looking = async {
        let desired = shared.compiler.compile(&wanted.name)?;
        if pipeline_state(device::cookie(&client).await?, shared.artifacts(&wanted.name))
            != PipelineState::Same
        {
            return Ok(Looked { differing: desired.len(), program: false });
        }
        let actual = device::actual(&client, wanted.index()).await?;
        let differing = reconcile::difference(&desired, &actual, wanted.index()).len();
        Ok(Looked { differing, program: true })
    };
    let work = async {
        let looked: Result<Looked, DeviceError> = looking.await;
        let loss = loss(looked.as_ref().err());
        let sample = match &looked {
            Ok(Looked { program: true, .. }) => sampled(&client, &wanted).await,
            _ => None,
        };
        let event = Event::Looked(looked.map_err(|error| error.to_string()), loss);
        Done::Worked { event, sample, told: None }
    };
    wanted.places.work(work).await
}

/// Between two looks at all tables: whether the switch still runs the program, and its counters.
async fn glance(client: Arc<Client>, wanted: Arc<Wanted>) -> Done {
    let work = async {
        let cookie = device::cookie(&client).await;
        let loss = loss(cookie.as_ref().err());
        let same = cookie.map(|cookie| {
            pipeline_state(cookie, wanted.shared.artifacts(&wanted.name)) == PipelineState::Same
        });
        let sample = match same {
            Ok(true) => sampled(&client, &wanted).await,
            _ => None,
        };
        let event = Event::Sampled(same.map_err(|error| error.to_string()), loss);
        Done::Worked { event, sample, told: None }
    };
    wanted.places.work(work).await
}

fn loss(error: Option<&DeviceError>) -> Loss {
    if error.is_some_and(DeviceError::is_connection_loss) { Loss::Connection } else { Loss::None }
}

/// Counters are for watching; a switch that does not give them is in place all the same.
async fn sampled(client: &Client, wanted: &Wanted) -> Option<Sample> {
    let taken = sample(client, wanted.index(), &wanted.ports).await;
    taken.inspect_err(|error| tracing::warn!(switch = %wanted.name, "no counters: {error}")).ok()
}
