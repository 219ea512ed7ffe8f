// SPDX-License-Identifier: Apache-2.0
//! Several endpoints under one communicator: each has a thread, sockets and a port of its own, and
//! does its [`Part`] of every operation from encoding to decoding.
//!
//! ```text
//!  caller's thread:  Channels ── first channel's communicator ─ endpoint ─ sockets (port p)
//!        commands │ ▲ outcomes, by a queue and the first driver's wake
//!                 ▼ │
//!  a thread each:    Member ──── communicator ─ endpoint ─ sockets (port p + c)
//! ```
//!
//! The first channel agrees on epochs, and the others follow it. An operation is over when all its
//! parts are, and fails as a whole: the first failure is the operation's, and the other parts are
//! given up for the same reason, so that other ranks hear of the same culprit by whichever channel.

mod member;
mod parts;

use super::delegate::{Delegate, Return};
use super::{Application, Clock, Driver, Link, LinkError, LinkStats};
use crate::collective::{
    ChannelEnd, Collective, Communicator, CommunicatorConfig, Done, Offloaded, OperationError, Options,
    Outcome, Part, StartError, Task,
};
use crate::config::{EndpointConfig, channel_address, channel_incarnation};
use crate::endpoint::{Endpoint, Event};
use crate::epoch::{Change, Epoch, EpochError};
use crate::snapshot::Snapshot;
use crate::transcript::Filter;
use member::{Command, Member, News};
use parts::Parts;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Channels that a rank has at most.
pub const CHANNELS_MOST: u16 = 16;

/// Why channels cannot be begun.
#[expect(missing_docs, reason = "messages say what the fields are")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelsError {
    /// Message ids do not tell them apart.
    #[error(transparent)]
    Parts(#[from] StartError),
    /// A rank listens on a port that leaves none for its other channels.
    #[error("rank {rank}: of {channels} channels the last would be at port {port} and more, above 65535")]
    Port { rank: u16, port: u16, channels: u16 },
    /// Two ranks of one host listen on ports that are nearer than there are channels.
    #[error(
        "ranks {first} and {second} listen on {address} and port {port}: {channels} channels take as many ports, from the first on"
    )]
    Overlap { first: u16, second: u16, address: SocketAddr, port: u16, channels: u16 },
    /// The system refuses a thread, or a descriptor.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// What the other channels have told of themselves, a part of a second ago.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<Mutex<BTreeMap<u16, (Snapshot, LinkStats)>>>);

impl Counts {
    fn tell(&self, channel: u16, told: (Snapshot, LinkStats)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(channel, told);
    }

    /// Adds them to those of the first.
    pub fn add(&self, snapshot: &mut Snapshot, link: &mut LinkStats) {
        for (told, stats) in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            snapshot.add(told.clone());
            *link += *stats;
        }
    }
}

/// Another channel than the first.
#[derive(Debug)]
struct Other {
    commands: Sender<Command>,
    wake: Arc<super::Wake>,
    ended: Option<ChannelEnd>,
    thread: Option<JoinHandle<()>>,
}

impl Other {
    fn tell(&self, command: Command) {
        // One that has ended has said so.
        let _ = self.commands.send(command);
        self.wake.wake();
    }
}

/// A communicator of one channel or several; of one it is that one, and nothing besides.
#[derive(Debug)]
pub struct Channels {
    first: Communicator,
    others: Vec<Other>,
    news: Option<Receiver<(u16, News)>>,
    /// Operations under way, by number, where there are several channels.
    parts: BTreeMap<u32, Parts>,
    /// Ranks that have answered the first channel, of which the others know.
    met: BTreeSet<u16>,
    ready: VecDeque<Outcome>,
    counts: Counts,
}

/// What each channel's endpoint is configured with.
///
/// # Errors
/// [`ChannelsError`] where ids or ports do not suffice.
pub fn split(config: &EndpointConfig, channels: u16) -> Result<Vec<EndpointConfig>, ChannelsError> {
    Part::new(0, channels, config.world)?;
    if channels == 1 {
        return Ok(vec![config.clone()]);
    }
    let at = |rank: u16| config.peers.get(&rank).map_or(0, SocketAddr::port);
    let peers: Vec<(u16, SocketAddr)> =
        config.peers.iter().map(|(&rank, &address)| (rank, address)).collect();
    for (nth, &(first, address)) in peers.iter().enumerate() {
        let near = peers[nth + 1..].iter().find(|(_, other)| {
            other.ip() == address.ip() && other.port().abs_diff(address.port()) < channels
        });
        if let Some(&(second, other)) = near {
            return Err(ChannelsError::Overlap { first, second, address, port: other.port(), channels });
        }
    }
    let each = (0..channels).map(|channel| {
        let config = config.clone().channel(channel, channels);
        config.map_err(|rank| ChannelsError::Port { rank, port: at(rank), channels })
    });
    each.collect()
}

impl Channels {
    /// Of one channel.
    pub fn alone(communicator: Communicator) -> Self {
        Self {
            first: communicator,
            others: Vec::new(),
            news: None,
            parts: BTreeMap::new(),
            met: BTreeSet::new(),
            ready: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Of the one that `driver` runs, and one more for each of `others`: their endpoints'
    /// configurations, from [`split`], and links. Each runs on a thread of its own. What the filter
    /// sees are all channels' events. Rows of the others that are coded elsewhere go into `rows`.
    ///
    /// # Errors
    /// [`ChannelsError`] where ids do not suffice or the system refuses.
    pub fn begin<L: Link, O: Link + Send + 'static>(
        config: &CommunicatorConfig,
        driver: &mut Driver<L>,
        others: Vec<(EndpointConfig, O)>,
        filter: &Filter,
        rows: Option<&Sender<(Offloaded, Return)>>,
    ) -> Result<Self, ChannelsError> {
        let channels = others.len() as u16 + 1;
        let of = |channel| -> Result<Communicator, ChannelsError> {
            let part = Part::new(channel, channels, config.world)?;
            Ok(Communicator::new(CommunicatorConfig { part, ..config.clone() }))
        };
        let mut this = Self::alone(of(0)?);
        if others.is_empty() {
            return Ok(this);
        }
        let (wake, clock): (_, Clock) = (driver.wake()?, driver.clock());
        let (sender, news) = channel();
        this.news = Some(news);
        for (channel, (config, link)) in (1..).zip(others) {
            let mut driver = Driver::with_clock(config, link, clock);
            let (commands, queue) = std::sync::mpsc::channel();
            let own = driver.wake()?;
            let member = Member {
                delegate: rows.map(|rows| Delegate::new(rows, Arc::clone(&own))),
                channel,
                communicator: of(channel)?,
                commands: queue,
                news: sender.clone(),
                first: Arc::clone(&wake),
                filter: filter.clone(),
                stopping: false,
            };
            let (wake, counts) = (own, this.counts.clone());
            let thread = std::thread::Builder::new().name(format!("trimwire-channel-{channel}"));
            let thread = thread
                .spawn(move || member::run(driver, member, &counts))
                .map_err(|source| LinkError::Io { what: "start a channel's thread", source })?;
            this.others.push(Other { commands, wake, ended: None, thread: Some(thread) });
        }
        Ok(this)
    }

    /// How many there are.
    pub fn channels(&self) -> usize {
        self.others.len() + 1
    }

    /// The first one's.
    pub fn communicator(&mut self) -> &mut Communicator {
        &mut self.first
    }

    /// What the other ones count.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The first one's configuration; rank and world are those of this epoch.
    pub fn config(&self) -> &CommunicatorConfig {
        self.first.config()
    }

    /// The epoch whose operations are run.
    pub fn epoch(&self) -> &Epoch {
        self.first.epoch()
    }

    /// Begins an operation: see [`Communicator::start`].
    ///
    /// # Errors
    /// As there.
    pub fn start(
        &mut self,
        now_ns: u64,
        number: u32,
        collective: Collective,
        options: Options,
        endpoint: &mut Endpoint,
    ) -> Result<(), StartError> {
        if self.others.is_empty() {
            return self.first.start(now_ns, number, collective, options, endpoint);
        }
        let shared: Vec<Collective> = self.others.iter().map(|_| collective.share()).collect();
        let used = self.first.start_part(now_ns, number, collective, options.clone(), endpoint)?;
        let mut parts = Parts::new(now_ns);
        let mut dead = None;
        for ((channel, other), collective) in (1..).zip(&self.others).zip(shared) {
            if !used.get(usize::from(channel)).is_some_and(|&used| used) {
                continue;
            }
            if let Some(why) = other.ended {
                let channels = self.others.len() as u16 + 1;
                dead.get_or_insert(OperationError::Channel { number, channel, channels, why });
                continue;
            }
            let collective = Box::new(collective);
            other.tell(Command::Start { number, collective, options: options.clone() });
            parts.waits_for(channel);
        }
        self.parts.insert(number, parts);
        if let Some(error) = dead {
            self.fail(now_ns, number, error, endpoint);
        }
        Ok(())
    }

    /// Gives an operation up: see [`Communicator::cancel`].
    pub fn cancel(&mut self, now_ns: u64, number: u32, endpoint: &mut Endpoint) -> bool {
        if self.others.is_empty() {
            return self.first.cancel(now_ns, number, endpoint);
        }
        if !self.parts.contains_key(&number) {
            return false;
        }
        self.fail(now_ns, number, OperationError::Cancelled { number }, endpoint);
        true
    }

    /// Takes an event of the first channel's endpoint.
    pub fn handle_event(&mut self, now_ns: u64, event: Event, endpoint: &mut Endpoint) {
        let change = match &event {
            Event::Epoch(change) if !self.others.is_empty() => Some(change.clone()),
            _ => None,
        };
        self.first.handle_event(now_ns, event, endpoint);
        match change {
            None => {}
            Some(Change::Wanted { last, .. }) => self.void(now_ns, Some(last), endpoint),
            Some(Change::Failed(_)) => self.void(now_ns, None, endpoint),
            Some(Change::Begun(epoch)) => {
                self.void(now_ns, None, endpoint);
                self.met.clear();
                for (channel, other) in (1..).zip(&self.others) {
                    let incarnations = endpoint.arrivals().into_iter();
                    let arrivals = incarnations
                        .map(|(rank, incarnation)| (rank, channel_incarnation(incarnation, channel)));
                    other.tell(Command::Adopt { epoch: epoch.clone(), arrivals: arrivals.collect() });
                }
            }
        }
    }

    /// A piece of the first channel's work: see [`Communicator::poll_task`].
    pub fn poll_task(&mut self, endpoint: &Endpoint) -> Option<Task> {
        self.first.poll_task(endpoint)
    }

    /// Takes it back: see [`Communicator::complete`].
    pub fn complete(&mut self, now_ns: u64, done: Done, endpoint: &mut Endpoint) {
        self.first.complete(now_ns, done, endpoint);
    }

    /// An operation that is over.
    pub fn poll_outcome(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> Option<Outcome> {
        if self.others.is_empty() {
            return self.first.poll_outcome(now_ns, endpoint);
        }
        while let Some((channel, news)) = self.news.as_ref().and_then(|news| news.try_recv().ok()) {
            match news {
                News::Ended(outcome) => self.absorb(now_ns, channel, *outcome, endpoint),
                News::Refused { number, reason } => {
                    let error = OperationError::Part { channel, reason };
                    self.part_over(number, channel);
                    self.fail(now_ns, number, error, endpoint);
                }
                News::Died { why } => self.died(now_ns, channel, why, endpoint),
            }
        }
        while let Some(outcome) = self.first.poll_outcome(now_ns, endpoint) {
            self.absorb(now_ns, 0, outcome, endpoint);
        }
        if self.ready.is_empty()
            && let Some((&number, _)) = self.parts.iter().find(|(_, parts)| parts.is_over())
            && let Some(parts) = self.parts.remove(&number)
        {
            self.ready.push_back(parts.outcome(now_ns, number));
        }
        self.ready.pop_front()
    }

    /// Operations that have begun and not ended.
    pub fn active(&self) -> impl Iterator<Item = u32> + '_ {
        let alone = self.others.is_empty().then(|| self.first.active());
        alone.into_iter().flatten().chain(self.parts.keys().copied())
    }

    /// See [`Communicator::shrink`].
    ///
    /// # Errors
    /// As there.
    pub fn shrink(
        &mut self,
        now_ns: u64,
        exclude: &[u16],
        endpoint: &mut Endpoint,
    ) -> Result<(), EpochError> {
        self.first.shrink(now_ns, exclude, endpoint)?;
        self.void(now_ns, None, endpoint);
        Ok(())
    }

    /// See [`Communicator::grow`].
    ///
    /// # Errors
    /// As there.
    pub fn grow(&mut self, now_ns: u64, exclude: &[u16], endpoint: &mut Endpoint) -> Result<(), EpochError> {
        self.first.grow(now_ns, exclude, endpoint)?;
        self.void(now_ns, None, endpoint);
        Ok(())
    }

    /// See [`Communicator::join`].
    pub fn join(&mut self, now_ns: u64, endpoint: &mut Endpoint) {
        self.first.join(now_ns, endpoint);
    }

    /// See [`Communicator::poll_epoch`].
    pub fn poll_epoch(&mut self) -> Option<Result<Epoch, EpochError>> {
        self.first.poll_epoch()
    }

    /// A rank that starts anew listens there: see [`Endpoint::admit`].
    pub fn admit(&mut self, now_ns: u64, rank: u16, address: SocketAddr, endpoint: &mut Endpoint) {
        endpoint.admit(now_ns, rank, address, None);
        for (channel, other) in (1..).zip(&self.others) {
            if let Some(address) = channel_address(address, channel) {
                other.tell(Command::Admit { rank, address });
            }
        }
    }

    /// Who does not take part is waited for so long, ns.
    pub fn set_patience(&mut self, patience_ns: u64, endpoint: &mut Endpoint) {
        endpoint.set_patience(patience_ns);
        self.others.iter().for_each(|other| other.tell(Command::Patience(patience_ns)));
    }

    /// Ends the other channels, once they have answered whoever has not heard that they are done.
    /// [`Self::wait`] waits for that.
    pub fn stop(&mut self) {
        self.others.iter().for_each(|other| other.tell(Command::Stop));
    }

    /// Waits for the other channels' threads, which have been stopped.
    pub fn wait(&mut self) {
        for other in &mut self.others {
            // It says itself how it has ended.
            other.thread.take().map(JoinHandle::join);
        }
    }

    /// For tests: another channel's thread panics.
    #[doc(hidden)]
    pub fn panic(&self, channel: u16) {
        if let Some(other) = self.others.get(usize::from(channel).wrapping_sub(1)) {
            other.tell(Command::Panic);
        }
    }

    /// Ends what is under way, or of that what comes behind an operation.
    fn void(&mut self, now_ns: u64, last: Option<u32>, endpoint: &mut Endpoint) {
        let epoch = self.first.epoch().number.wrapping_add(1);
        for number in self.active_parts() {
            if last.is_none_or(|last| crate::collective::MessageId::follows(number, last)) {
                self.fail(now_ns, number, OperationError::Void { number, epoch }, endpoint);
            }
        }
    }

    fn active_parts(&self) -> Vec<u32> {
        self.parts.keys().copied().collect()
    }

    /// A part has failed: so have all.
    fn fail(&mut self, now_ns: u64, number: u32, error: OperationError, endpoint: &mut Endpoint) {
        let Some(parts) = self.parts.get_mut(&number) else { return };
        if !parts.fail(error) {
            return;
        }
        self.first.fail(now_ns, number, error, endpoint);
        for (channel, other) in (1..).zip(&self.others) {
            if parts.is_waiting_for(channel) {
                other.tell(Command::Fail { number, error });
            }
        }
    }

    fn part_over(&mut self, number: u32, channel: u16) {
        if let Some(parts) = self.parts.get_mut(&number) {
            parts.over(channel);
        }
    }

    fn absorb(&mut self, now_ns: u64, channel: u16, outcome: Outcome, endpoint: &mut Endpoint) {
        let Outcome { number, result, .. } = outcome;
        self.tell_who_is_met(endpoint);
        if let Some(parts) = self.parts.get_mut(&number) {
            parts.absorb(channel, outcome);
        }
        if let Err(error) = result {
            self.fail(now_ns, number, error, endpoint);
        }
    }

    /// A channel that died before its first greeting would be waited for as a rank is that has not
    /// started.
    fn tell_who_is_met(&mut self, endpoint: &Endpoint) {
        for rank in 0..endpoint.config().world {
            if endpoint.is_met(rank) && self.met.insert(rank) {
                self.others.iter().for_each(|other| other.tell(Command::Met { rank }));
            }
        }
    }

    fn died(&mut self, now_ns: u64, channel: u16, why: ChannelEnd, endpoint: &mut Endpoint) {
        let channels = self.others.len() as u16 + 1;
        if let Some(other) = self.others.get_mut(usize::from(channel).wrapping_sub(1)) {
            other.ended = Some(why);
        }
        for number in self.active_parts() {
            let waits = self.parts.get(&number).is_some_and(|parts| parts.is_waiting_for(channel));
            if waits {
                self.part_over(number, channel);
                let error = OperationError::Channel { number, channel, channels, why };
                self.fail(now_ns, number, error, endpoint);
            }
        }
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Application<Outcome> for Channels {
    fn on_event(&mut self, now_ns: u64, event: Event, endpoint: &mut Endpoint) -> ControlFlow<Outcome> {
        self.handle_event(now_ns, event, endpoint);
        ControlFlow::Continue(())
    }

    fn poll_task(&mut self, endpoint: &Endpoint) -> Option<Task> {
        Self::poll_task(self, endpoint)
    }

    fn complete(&mut self, now_ns: u64, done: Done, endpoint: &mut Endpoint) {
        Self::complete(self, now_ns, done, endpoint);
    }

    fn poll(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> ControlFlow<Outcome> {
        self.poll_outcome(now_ns, endpoint).map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}

/// Breaks when an epoch has begun, or will not begin ([`Channels::poll_epoch`]). Outcomes of what
/// was under way wait in the channels.
#[derive(Debug)]
pub struct UntilEpoch<'a>(pub &'a mut Channels);

impl Application<Result<Epoch, EpochError>> for UntilEpoch<'_> {
    fn on_event(
        &mut self,
        now_ns: u64,
        event: Event,
        endpoint: &mut Endpoint,
    ) -> ControlFlow<Result<Epoch, EpochError>> {
        self.0.handle_event(now_ns, event, endpoint);
        ControlFlow::Continue(())
    }

    fn complete(&mut self, now_ns: u64, done: Done, endpoint: &mut Endpoint) {
        self.0.complete(now_ns, done, endpoint);
    }

    fn poll(&mut self, _: u64, _: &mut Endpoint) -> ControlFlow<Result<Epoch, EpochError>> {
        self.0.poll_epoch().map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}
