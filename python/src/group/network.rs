// SPDX-License-Identifier: Apache-2.0
//! The thread that moves datagrams.

use super::device::take_cause;
use super::epochs::{Place, Request, Waiting};
use super::locks::lock;
use super::notifiers::Leftover;
use super::totals::Totals;
use super::work::{Ending, Failure, State};
use crate::transcript::operation;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use trimwire_agent::collective::{Collective, Done, OperationError, Options, Outcome, OutcomeStats, Task};
use trimwire_agent::driver::delegate::Delegate;
use trimwire_agent::driver::{Application, Channels, Driver, UdpLink};
use trimwire_agent::endpoint::{Endpoint, Event};
use trimwire_agent::outcome::TransferError;
use trimwire_agent::transcript::{Filter, OperationRecord, Written};
use trimwire_agent::wire::Reason;

/// Without news from anybody for so long, and nothing under way, a group that is closed is gone:
/// whoever's STOP was lost has asked again by then.
const QUIET_NS: u64 = 250_000_000;
const LINGER_NS: u64 = 2_000_000_000;

/// Operations begin while their number is less than this above the oldest one under way. The others
/// wait here, in order: each one that has begun holds its transfers at every rank, and a rank
/// remembers the ends of some hundred messages behind the oldest open one.
const AT_ONCE: u32 = 64;

/// What the network's thread is asked for.
pub(super) enum Command {
    Start {
        collective: Box<Collective>,
        options: Options,
        state: Arc<State>,
    },
    Epoch(Request),
    /// Who does not take part is waited for so long, ns.
    Patience(u64),
    /// Gives up what this is the state of.
    Cancel(Arc<State>),
    Stop,
    /// For tests: what a defect of this program does.
    Panic,
}

/// An operation that has not begun.
pub(super) struct Queued {
    collective: Box<Collective>,
    options: Options,
    state: Arc<State>,
}

/// An operation under way.
pub(super) struct Pending {
    state: Arc<State>,
    /// What a transcript says of it, where one is written, and when it began.
    record: Option<(OperationRecord, u64)>,
}

/// The application of the network's thread.
pub(super) struct App {
    pub(super) communicator: Channels,
    pub(super) commands: Receiver<Command>,
    pub(super) next: u32,
    pub(super) pending: BTreeMap<u32, Pending>,
    /// Operations that wait for the oldest one under way to end.
    pub(super) queued: VecDeque<Queued>,
    pub(super) filter: Filter,
    pub(super) leftovers: Sender<Leftover>,
    pub(super) totals: Arc<Totals>,
    pub(super) stopping: bool,
    /// Where rows are coded elsewhere.
    pub(super) delegate: Delegate,
    pub(super) place: Arc<Place>,
    pub(super) waiting: Waiting,
    /// So long after the beginning all ranks are sure to run, ns; taken once they are told to the
    /// endpoint.
    pub(super) rendezvous_timeout_ns: Option<u64>,
}

impl App {
    fn finish(&self, now_ns: u64, state: Arc<State>, outcome: Outcome) {
        let Outcome { result, input, output, stats, duration_ns, .. } = outcome;
        let totals = &self.totals;
        let add = |total: &AtomicU64, value: u64| total.fetch_add(value, Ordering::Relaxed);
        add(&totals.operations, 1);
        add(&totals.failed, u64::from(result.is_err()));
        add(&totals.packets, stats.packets);
        add(&totals.trimmed, stats.trimmed);
        add(&totals.missing, stats.missing);
        add(&totals.sent, stats.sent);
        add(&totals.repaired, stats.repaired);
        add(&totals.bytes_sent, stats.bytes_sent);
        add(&totals.busy_ns, duration_ns);
        if state.lossy && result.is_ok() {
            totals.took(duration_ns);
        }
        state.end(Ending {
            error: result.err().map(|error| Failure {
                text: match output.as_ref().and_then(take_cause) {
                    Some(cause) => format!("{error}: {cause}"),
                    None => format!("{error}{}", hint(&error)),
                },
                rank: error.culprit(),
            }),
            stats,
            ended_ns: now_ns,
            duration_ns,
        });
        // Freeing a tensor may have to wait for the interpreter, which this thread never does.
        let _ = self.leftovers.send(Leftover { state, _memory: (input, output) });
    }

    /// Begins operations while there is room.
    fn begin(&mut self, now_ns: u64, endpoint: &mut Endpoint) {
        while self.pending.keys().all(|&number| self.next.wrapping_sub(number) < AT_ONCE) {
            let Some(queued) = self.queued.pop_front() else { return };
            self.begin_one(now_ns, queued, endpoint);
        }
    }

    fn begin_one(&mut self, now_ns: u64, queued: Queued, endpoint: &mut Endpoint) {
        let Queued { collective, options, state } = queued;
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let record = self.filter.is_used().then(|| (operation(number, &collective, &options), now_ns));
        // Before anything can go wrong with it: whoever waits is told.
        self.pending.insert(number, Pending { state, record });
        let begun = self.communicator.start(now_ns, number, *collective, options, endpoint);
        if let Err(error) = begun
            && let Some(Pending { state, .. }) = self.pending.remove(&number)
        {
            self.fail(state, error.to_string());
        }
    }

    /// Gives an operation up. Those before it begin at once, so that it has its number at all
    /// ranks.
    fn cancel(&mut self, now_ns: u64, state: &Arc<State>, endpoint: &mut Endpoint) {
        if let Some(at) = self.queued.iter().position(|queued| Arc::ptr_eq(&queued.state, state)) {
            let first: Vec<Queued> = self.queued.drain(..=at).collect();
            first.into_iter().for_each(|queued| self.begin_one(now_ns, queued, endpoint));
        }
        let mut pending = self.pending.iter();
        if let Some((&number, _)) = pending.find(|(_, other)| Arc::ptr_eq(&other.state, state)) {
            self.communicator.cancel(now_ns, number, endpoint);
        }
    }

    /// Tells those that wait for operations that have not begun that these never will.
    fn fail_queued(&mut self, why: &str) {
        while let Some(Queued { state, .. }) = self.queued.pop_front() {
            self.fail(state, why.to_owned());
        }
    }

    fn fail(&self, state: Arc<State>, text: String) {
        self.totals.failed.fetch_add(1, Ordering::Relaxed);
        let error = Some(Failure { text, rank: None });
        state.end(Ending { error, stats: OutcomeStats::default(), ended_ns: 0, duration_ns: 0 });
        let _ = self.leftovers.send(Leftover { state, _memory: (None, None) });
    }
}

impl Application<()> for App {
    fn on_event(&mut self, now_ns: u64, mut event: Event, endpoint: &mut Endpoint) -> ControlFlow<()> {
        // Only replays have errors.
        let _ = self.filter.on_event(now_ns, &mut event);
        self.communicator.handle_event(now_ns, event, endpoint);
        ControlFlow::Continue(())
    }

    fn poll_task(&mut self, endpoint: &Endpoint) -> Option<Task> {
        let communicator = &mut self.communicator;
        self.delegate.poll_task(|| communicator.poll_task(endpoint))
    }

    fn complete(&mut self, now_ns: u64, done: Done, endpoint: &mut Endpoint) {
        self.communicator.complete(now_ns, done, endpoint);
    }

    fn poll(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> ControlFlow<()> {
        if let Some(rendezvous_timeout_ns) = self.rendezvous_timeout_ns.take() {
            let own = endpoint.config().rank;
            for rank in (0..endpoint.config().world).filter(|&rank| rank != own) {
                endpoint.expect_answer(now_ns.saturating_add(rendezvous_timeout_ns), rank);
            }
        }
        while let Some(done) = self.delegate.poll_done() {
            self.communicator.complete(now_ns, done, endpoint);
        }
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Start { collective, options, state } => {
                    self.queued.push_back(Queued { collective, options, state });
                    self.begin(now_ns, endpoint);
                }
                Command::Epoch(request) => {
                    self.waiting.take(now_ns, request, &mut self.communicator, endpoint);
                }
                Command::Patience(patience_ns) => self.communicator.set_patience(patience_ns, endpoint),
                Command::Cancel(state) => self.cancel(now_ns, &state, endpoint),
                Command::Stop => {
                    self.stopping = true;
                    self.waiting.fail("the group is closed");
                    self.fail_queued("the group was closed before the operation had begun");
                    let numbers: Vec<u32> = self.pending.keys().copied().collect();
                    for number in numbers {
                        self.communicator.cancel(now_ns, number, endpoint);
                    }
                }
                #[expect(clippy::panic, reason = "tests ask for it")]
                Command::Panic => panic!("a test asked for it"),
            }
        }
        if let Some(first) = self.waiting.settle(&mut self.communicator, &self.place) {
            self.next = first;
            // Other ranks may have begun some of them in the epoch before.
            self.fail_queued("a new epoch has begun before the operation had");
        }
        while let Some(outcome) = self.communicator.poll_outcome(now_ns, endpoint) {
            let record = self.pending.get_mut(&outcome.number).and_then(|pending| pending.record.take());
            if let Some((record, begun)) = record {
                let _ = self.filter.on_operation(now_ns, record.ended(begun, &outcome));
            }
            if let Some(Pending { state, .. }) = self.pending.remove(&outcome.number) {
                self.finish(now_ns, state, outcome);
            }
        }
        self.begin(now_ns, endpoint);
        if self.stopping && self.pending.is_empty() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Who can find out more, where the network may be at fault.
fn hint(error: &OperationError) -> &'static str {
    use TransferError::{Aborted, Mismatch, Silent, Stalled, Unanswered};
    let OperationError::Transfer { reason, .. } = error else { return "" };
    match reason {
        Silent { .. }
        | Stalled { .. }
        | Unanswered { .. }
        | Aborted { reason: Reason::Lost | Reason::Stalled, .. } => {
            " (if that rank runs, and has the same key: `trimwire-agent doctor --peer ITS_HOST` tells what the network lets through)"
        }
        Mismatch { .. } | Aborted { reason: Reason::Mismatch, .. } => {
            " (do all ranks pass tensors of one length, and have the same `channels`?)"
        }
        _ => "",
    }
}

pub(super) fn run(mut driver: Driver<UdpLink>, mut app: App, recorded: &Mutex<Option<Written>>) {
    // Whoever waits is told of a defect of this program, too, rather than left to wait.
    let ended = catch_unwind(AssertUnwindSafe(|| driver.run(u64::MAX, &mut app)));
    let error = match ended {
        Ok(Ok(_)) => {
            // Others may not have heard that they are done.
            app.communicator.stop();
            let _ = driver.linger(QUIET_NS, LINGER_NS);
            app.communicator.wait();
            *lock(recorded) = app.filter.finish();
            return;
        }
        Ok(Err(error)) => error.to_string(),
        Err(panic) => {
            format!("the network's thread panicked, which is a defect of Trimwire: {}", said(&*panic))
        }
    };
    // Its other channels work on tensors that whoever is told takes back.
    drop(driver);
    app.communicator.stop();
    app.communicator.wait();
    for Pending { state, .. } in std::mem::take(&mut app.pending).into_values() {
        app.fail(state, error.clone());
    }
    app.fail_queued(&error);
    app.waiting.fail(&error);
    // Whoever comes later hears the same.
    while let Ok(command) = app.commands.recv() {
        match command {
            Command::Start { state, .. } => app.fail(state, error.clone()),
            Command::Stop => break,
            // Who waits for an answer hears that there is none.
            Command::Epoch(_) | Command::Patience(_) | Command::Cancel(_) | Command::Panic => {}
        }
    }
    *lock(recorded) = app.filter.finish();
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say why")
}
