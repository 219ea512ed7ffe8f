// SPDX-License-Identifier: Apache-2.0
//! Puts an [`Endpoint`] on a [`Link`] and the real clock, on the caller's thread.
//!
//! ```text
//!  caller's thread:  receive a batch ─► handle_datagram ─► events ─► poll_transmit ─► send a batch ─► wait
//!                        ▲  UdpLink: recvmmsg, GRO, TOS         sendmmsg, GSO, a socket per path │  ppoll
//!                        └─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Backends of [`Link`]: [`udp::UdpLink`] on sockets, [`memory::MemoryLink`] between threads, and
//! [`misbehaving::Misbehaving`] around either, which drops, trims, duplicates and reorders on
//! purpose. An endpoint belongs to the thread that runs it, which codes as well, between two looks at
//! the sockets, and no lock is held on its way. More threads are more endpoints ([`channels`]).

pub mod channels;
pub mod delegate;
pub mod interfaces;
pub mod link;
mod listener;
pub mod memory;
pub mod misbehaving;
mod mmsg;
pub mod offloads;
mod options;
pub mod packet;
mod refusal;
mod shared;
mod sockets;
pub mod udp;
mod udp_config;
mod waiting;
mod wake;

pub use channels::{Channels, UntilEpoch};
pub use link::{Link, LinkError, LinkStats};
pub use shared::Shared;
pub use udp::UdpLink;
pub use udp_config::{Checksums, DEFAULT_PORT, Receive, UdpConfig};
pub use wake::Wake;

use crate::burst::Burst;
use crate::collective::{Communicator, Done, Outcome, Task};
use crate::endpoint::{Endpoint, EndpointConfig, Event};
use nix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use trimwire_encoder::wire::VERSION;

/// Bursts taken from the endpoint before they are handed to the link.
const BATCH: usize = 64;
/// Batches received before the endpoint may send: bounds how long an ACK waits behind arrivals.
const RECEIVE_ROUNDS: usize = 4;
/// Time for which a late sender may catch up. Timers of an unprivileged Linux thread are late by
/// the 50 µs of its timer slack and by the scheduler; at 10 Gbit/s this is 125 KB.
const BURST_NS: u64 = 100_000;
/// Two packets' time where that is longer, but no more than this.
const LATE_MOST_NS: u64 = 1_000_000;
/// Time that a burst takes on the wire: half of the queue at which switches begin to trim. At 10
/// Gbit/s eight packets.
const BURST_WIRE_NS: u64 = 10_000;
/// Least packets of a burst: at 1 Gbit/s a system call for each would cost more than the wire does.
/// Slow links have fewer: there processors have time, and bursts of several ranks that meet make a
/// queue that is trimmed.
const BURST_PACKETS: u64 = 4;
const BURST_PACKETS_NS: u64 = 50_000;
/// Packets that go one way: what the kernel takes in one call.
const PACKETS_PER_PATH: u32 = 16;
/// What scheduler and timers of a host add to a round trip.
const HOST_JITTER_NS: u64 = 100_000;

/// Nanoseconds of CLOCK_MONOTONIC since it was made.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start_ns: u64,
}

impl Clock {
    /// Begins at 0.
    pub fn start() -> Self {
        Self { start_ns: monotonic_ns() }
    }

    /// Now.
    pub fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.start_ns)
    }
}

fn monotonic_ns() -> u64 {
    // Refused only where there is no such clock.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    now.as_nanos() as u64
}

/// A random number that no endpoint had before, except by one chance in four thousand million.
pub fn incarnation() -> u32 {
    (RandomState::new().build_hasher().finish() as u32).max(1)
}

/// Adapts a configuration meant for virtual time to a real host: bursts that make up for late
/// timers, and time-outs that a descheduled peer does not trip.
pub fn on_sockets(mut config: EndpointConfig) -> EndpointConfig {
    config.incarnation = incarnation();
    let packet_ns = 12_000 * 1_000_000_000 / config.line_rate_bps.max(1);
    // Who sends packets one by one and is late for one has missed all of its time, on a slow link
    // more than a scheduler's.
    config.burst_ns = config.burst_ns.max(BURST_NS).max((2 * packet_ns).min(LATE_MOST_NS));
    let packets_ns = BURST_PACKETS * packet_ns;
    let least_ns = BURST_WIRE_NS.max(packets_ns.min(BURST_PACKETS_NS));
    config.burst_wire_ns = config.burst_wire_ns.max(least_ns);
    config.host_jitter_ns = config.host_jitter_ns.max(HOST_JITTER_NS);
    config.pace_at_line = false;
    config.packets_per_path = config.packets_per_path.max(PACKETS_PER_PATH);
    config.ack_every = config.ack_every.max(32);
    let timeouts = &mut config.timeouts;
    timeouts.initial_ns = timeouts.initial_ns.max(20_000_000);
    timeouts.ack_delay_ns = timeouts.ack_delay_ns.max(200_000);
    timeouts.min_ns = timeouts.min_ns.max(4_000_000);
    timeouts.min_loss_delay_ns = timeouts.min_loss_delay_ns.max(1_000_000);
    config
}

/// Of an interface that does not say its speed, bit/s.
pub const DEFAULT_LINE_RATE_BPS: u64 = 10_000_000_000;

/// Who uses an endpoint. `T` is what it runs for.
pub trait Application<T> {
    /// Takes an event.
    fn on_event(&mut self, now_ns: u64, event: Event, endpoint: &mut Endpoint) -> ControlFlow<T>;

    /// A row's worth of work, if there is any.
    fn poll_task(&mut self, endpoint: &Endpoint) -> Option<Task> {
        let _ = endpoint;
        None
    }

    /// Takes a task back that is done.
    fn complete(&mut self, now_ns: u64, done: Done, endpoint: &mut Endpoint) {
        let _ = (now_ns, done, endpoint);
    }

    /// Breaks when what it runs for has come.
    fn poll(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> ControlFlow<T> {
        let _ = (now_ns, endpoint);
        ControlFlow::Continue(())
    }
}

impl<T, F: FnMut(u64, Event, &mut Endpoint) -> ControlFlow<T>> Application<T> for F {
    fn on_event(&mut self, now_ns: u64, event: Event, endpoint: &mut Endpoint) -> ControlFlow<T> {
        self(now_ns, event, endpoint)
    }
}

impl Application<Outcome> for Communicator {
    fn on_event(&mut self, now_ns: u64, event: Event, endpoint: &mut Endpoint) -> ControlFlow<Outcome> {
        self.handle_event(now_ns, event, endpoint);
        ControlFlow::Continue(())
    }

    fn poll_task(&mut self, endpoint: &Endpoint) -> Option<Task> {
        Communicator::poll_task(self, endpoint)
    }

    fn complete(&mut self, now_ns: u64, done: Done, endpoint: &mut Endpoint) {
        Communicator::complete(self, now_ns, done, endpoint);
    }

    fn poll(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> ControlFlow<Outcome> {
        self.poll_outcome(now_ns, endpoint).map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}

/// One endpoint on one link.
#[derive(Debug)]
pub struct Driver<L> {
    endpoint: Endpoint,
    link: L,
    clock: Clock,
    /// Taken from the endpoint, not yet by the link.
    outgoing: VecDeque<Burst>,
    wake: Option<Arc<Wake>>,
    /// Datagrams that were too long for an interface.
    too_long: u64,
    /// Whether it was said that data goes in pieces.
    divided: bool,
    /// It has been said that packets of another version come.
    other_version: bool,
}

impl<L: Link> Driver<L> {
    /// An endpoint that sprays over the link's source ports; its clock begins now.
    pub fn new(config: EndpointConfig, link: L) -> Self {
        Self::with_clock(config, link, Clock::start())
    }

    /// The same by a clock that others go by, too.
    pub fn with_clock(mut config: EndpointConfig, link: L, clock: Clock) -> Self {
        config.source_ports = link.data_ports();
        config.addresses = link.addresses();
        config.own = Some(link.local_address().ip()).filter(|own| !own.is_unspecified());
        config.mtu = config.mtu.into_iter().chain(link.mtu()).min();
        config.sockets_hold = config.sockets_hold.min(link.holds());
        let outgoing = VecDeque::with_capacity(BATCH);
        Self {
            endpoint: Endpoint::new(config),
            link,
            clock,
            outgoing,
            wake: None,
            too_long: 0,
            divided: false,
            other_version: false,
        }
    }

    /// What ends a wait in [`Self::run`] from another thread.
    ///
    /// # Errors
    /// When the system refuses a descriptor.
    pub fn wake(&mut self) -> Result<Arc<Wake>, LinkError> {
        if let Some(wake) = &self.wake {
            return Ok(Arc::clone(wake));
        }
        let wake = Wake::new().map_err(|source| LinkError::Io { what: "open an eventfd", source })?;
        let wake = Arc::new(wake);
        if self.link.wake_by(Arc::clone(&wake)) {
            self.wake = Some(Arc::clone(&wake));
        }
        Ok(wake)
    }

    /// What tells the time.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The time that the endpoint is told.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// The endpoint, to send and to expect; `run` does the rest.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// The link.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// Totals of the link.
    pub fn link_stats(&self) -> LinkStats {
        self.link.stats()
    }

    /// Moves datagrams, and lets the application take events and work, until it breaks (`Some`) or
    /// `until_ns` has come (`None`). What is in flight then stays in flight: call again to go on.
    ///
    /// # Errors
    /// When the link cannot be used any more; a datagram that cannot be sent is counted and
    /// ignored.
    pub fn run<T>(
        &mut self,
        until_ns: u64,
        application: &mut impl Application<T>,
    ) -> Result<Option<T>, LinkError> {
        loop {
            let mut more = self.receive()?;
            let now_ns = self.clock.now_ns();
            if self.endpoint.poll_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
                self.endpoint.handle_timeout(now_ns);
            }
            while let Some(event) = self.endpoint.poll_event() {
                if let ControlFlow::Break(value) = application.on_event(now_ns, event, &mut self.endpoint) {
                    self.transmit(now_ns)?;
                    return Ok(Some(value));
                }
            }
            // Before the network and the codecs are served: what it begins has something for both.
            if let ControlFlow::Break(value) = application.poll(now_ns, &mut self.endpoint) {
                self.transmit(now_ns)?;
                return Ok(Some(value));
            }
            more |= self.transmit(now_ns)?;
            more |= self.work(now_ns, application);
            if now_ns >= until_ns {
                return Ok(None);
            }
            // What the application began may have found everything there already; nobody would say
            // so again.
            if more || self.endpoint.has_events() {
                continue;
            }
            let now_ns = self.clock.now_ns();
            let at_ns = self.endpoint.poll_timeout().map_or(until_ns, |at_ns| at_ns.min(until_ns));
            let congested = !self.outgoing.is_empty();
            // What a full socket holds back is not due again before there is room.
            let at_ns = if congested { until_ns } else { at_ns };
            if at_ns > now_ns {
                self.wait(at_ns - now_ns, congested)?;
            }
        }
    }

    fn wait(&mut self, timeout_ns: u64, congested: bool) -> Result<(), LinkError> {
        let Some(wake) = &self.wake else { return self.link.wait(timeout_ns, congested) };
        if !wake.prepare() {
            return Ok(());
        }
        let waited = self.link.wait(timeout_ns, congested);
        wake.clear();
        waited
    }

    /// Does a task. Whether there was one.
    fn work<T>(&mut self, now_ns: u64, application: &mut impl Application<T>) -> bool {
        let Some(task) = application.poll_task(&self.endpoint) else { return false };
        application.complete(now_ns, task.run(), &mut self.endpoint);
        true
    }

    /// Answers peers until nothing has arrived for `quiet_ns` and everything sent is acknowledged:
    /// a STOP may have been lost and asked for again, and a peer that stalled for longer may still
    /// lack a packet.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn linger(&mut self, quiet_ns: u64, at_most_ns: u64) -> Result<(), LinkError> {
        let end_ns = self.now_ns().saturating_add(at_most_ns);
        loop {
            let before = self.link.stats().received;
            let until_ns = self.now_ns().saturating_add(quiet_ns).min(end_ns);
            self.run(until_ns, &mut |_, _, _: &mut Endpoint| ControlFlow::<()>::Continue(()))?;
            let is_quiet = self.link.stats().received == before && !self.endpoint.is_sending();
            if is_quiet || self.now_ns() >= end_ns {
                return Ok(());
            }
        }
    }

    /// Whether more may wait.
    fn receive(&mut self) -> Result<bool, LinkError> {
        for _ in 0..RECEIVE_ROUNDS {
            let now_ns = self.clock.now_ns();
            let endpoint = &mut self.endpoint;
            let count = self
                .link
                .receive(&mut |arrived, payload| endpoint.handle_datagram(now_ns, arrived, payload))?;
            if count == 0 {
                return Ok(false);
            }
            if !self.other_version
                && let Some((version, address)) = self.endpoint.other_version()
            {
                self.other_version = true;
                tracing::warn!(
                    "the rank at {address} speaks version {version} of the wire format, this one version {VERSION}: install the same Trimwire on both"
                );
            }
            if self.link.is_drained() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Says, once, that a path carries less than the job's packets take.
    fn warn_of_pieces(&self) {
        let paths = (0..self.endpoint.config().world)
            .filter_map(|rank| Some((self.endpoint.path_mtu(rank)?, rank, self.endpoint.peer(rank)?)));
        if let Some((mtu, rank, to)) = paths.min() {
            tracing::warn!(
                "the path to {to} (rank {rank}) carries IP packets of {mtu} bytes, and the job has longer ones: they go in pieces, which switches do not trim. TRIMWIRE_MTU={mtu} (--mtu) at the job's next \
                 start keeps packets whole"
            );
        }
    }

    /// Whether more may be due.
    fn transmit(&mut self, now_ns: u64) -> Result<bool, LinkError> {
        while self.outgoing.len() < BATCH
            && let Some(burst) = self.endpoint.poll_transmit(now_ns)
        {
            self.outgoing.push_back(burst);
        }
        let taken = self.outgoing.len();
        if taken > 0 {
            self.link.send(&mut self.outgoing)?;
            let too_long = self.link.stats().too_long;
            if std::mem::replace(&mut self.too_long, too_long) < too_long
                && let Some(mtu) = self.link.mtu()
            {
                self.endpoint.set_mtu(now_ns, mtu);
            }
        }
        if self.endpoint.stats().pieces_sent > 0 && !self.divided {
            self.divided = true;
            self.warn_of_pieces();
        }
        Ok(taken == BATCH && self.outgoing.is_empty())
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod udp_tests;
