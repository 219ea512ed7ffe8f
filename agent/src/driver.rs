//! Puts an [`Endpoint`] on a [`Link`] and the real clock, on the caller's thread.
//!
//! ```text
//!  caller's thread:  receive a batch ─► handle_datagram ─► events ─► poll_transmit ─► send a batch ─► wait
//!                        ▲  UdpLink: recvmmsg, TOS            sendmmsg, one socket per source port │  ppoll
//!                        └─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Backends of [`Link`]: [`udp::UdpLink`] on sockets, [`memory::MemoryLink`] between threads, and [`misbehaving::Misbehaving`]
//! around either, which drops, cuts, duplicates and reorders on purpose. No thread is started here and no lock is
//! held: an endpoint belongs to the thread that runs it.

pub mod interfaces;
pub mod link;
pub mod memory;
pub mod misbehaving;
mod mmsg;
pub mod packet;
pub mod udp;

pub use link::{Link, LinkError, LinkStats};
pub use udp::{Receive, UdpConfig, UdpLink};

use crate::endpoint::{Endpoint, EndpointConfig, Event, Transmit};
use std::ops::ControlFlow;
use std::time::Instant;

/// Datagrams taken from the endpoint before they are handed to the link.
const BATCH: usize = 128;
/// Batches received before the endpoint may send: bounds how long an ACK waits behind arrivals.
const RECEIVE_ROUNDS: usize = 4;
/// Time for which a late sender may catch up. Timers of an unprivileged Linux thread are late by the 50 µs of its timer
/// slack and by the scheduler; at 10 Gbit/s this is 125 KB.
const BURST_NS: u64 = 100_000;

/// Nanoseconds of CLOCK_MONOTONIC since it was made.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// Begins at 0.
    #[expect(clippy::disallowed_methods, reason = "the driver is where the real clock comes in")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Now.
    pub fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// What a real host's scheduler and timers make of a configuration meant for virtual time: bursts that make up for late
/// timers, and time-outs that a descheduled peer does not trip.
pub fn on_sockets(mut config: EndpointConfig) -> EndpointConfig {
    config.burst_ns = config.burst_ns.max(BURST_NS);
    let timeouts = &mut config.timeouts;
    timeouts.initial_ns = timeouts.initial_ns.max(20_000_000);
    timeouts.min_ns = timeouts.min_ns.max(4_000_000);
    timeouts.min_loss_delay_ns = timeouts.min_loss_delay_ns.max(1_000_000);
    config
}

/// One endpoint on one link.
#[derive(Debug)]
pub struct Driver<L> {
    endpoint: Endpoint,
    link: L,
    clock: Clock,
    /// Taken from the endpoint, not yet by the link.
    outgoing: Vec<Transmit>,
    first_received_ns: Option<u64>,
}

impl<L: Link> Driver<L> {
    /// A driver whose clock begins now.
    pub fn new(endpoint: Endpoint, link: L) -> Self {
        let outgoing = Vec::with_capacity(BATCH);
        Self { endpoint, link, clock: Clock::start(), outgoing, first_received_ns: None }
    }

    /// The time that the endpoint is told.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// The endpoint, to send and to expect; `run` does the rest.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Totals of the link.
    pub fn link_stats(&self) -> LinkStats {
        self.link.stats()
    }

    /// When the first datagram since the last call arrived.
    pub fn take_first_received_ns(&mut self) -> Option<u64> {
        self.first_received_ns.take()
    }

    /// Moves datagrams, and hands events to `on_event`, until it breaks (`Some`) or `until_ns` has come (`None`).
    /// What is in flight then stays in flight: call again to go on.
    ///
    /// # Errors
    /// When the link cannot be used any more; a datagram that cannot be sent is counted and ignored.
    pub fn run<T>(
        &mut self,
        until_ns: u64,
        mut on_event: impl FnMut(u64, Event, &mut Endpoint) -> ControlFlow<T>,
    ) -> Result<Option<T>, LinkError> {
        loop {
            let more = self.receive()?;
            let now_ns = self.clock.now_ns();
            if self.endpoint.poll_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
                self.endpoint.handle_timeout(now_ns);
            }
            while let Some(event) = self.endpoint.poll_event() {
                if let ControlFlow::Break(value) = on_event(now_ns, event, &mut self.endpoint) {
                    self.transmit(now_ns)?;
                    return Ok(Some(value));
                }
            }
            let more = self.transmit(now_ns)? || more;
            if now_ns >= until_ns {
                return Ok(None);
            }
            if more {
                continue;
            }
            let now_ns = self.clock.now_ns();
            let at_ns = self.endpoint.poll_timeout().map_or(until_ns, |at_ns| at_ns.min(until_ns));
            let congested = !self.outgoing.is_empty();
            // What a full socket holds back is not due again before there is room.
            let at_ns = if congested { until_ns } else { at_ns };
            if at_ns > now_ns {
                self.link.wait(at_ns - now_ns, congested)?;
            }
        }
    }

    /// Goes on answering peers until nothing has arrived for `quiet_ns`: a STOP may have been lost, and its sender asks
    /// again.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn linger(&mut self, quiet_ns: u64, at_most_ns: u64) -> Result<(), LinkError> {
        let end_ns = self.now_ns().saturating_add(at_most_ns);
        loop {
            let before = self.link.stats().received;
            let until_ns = self.now_ns().saturating_add(quiet_ns).min(end_ns);
            self.run(until_ns, |_, _, _| ControlFlow::<()>::Continue(()))?;
            if self.link.stats().received == before || self.now_ns() >= end_ns {
                return Ok(());
            }
        }
    }

    /// Whether more may wait.
    fn receive(&mut self) -> Result<bool, LinkError> {
        for _ in 0..RECEIVE_ROUNDS {
            let now_ns = self.clock.now_ns();
            let endpoint = &mut self.endpoint;
            let count =
                self.link.receive(&mut |tos, payload| endpoint.handle_datagram(now_ns, tos, payload))?;
            if count > 0 {
                self.first_received_ns.get_or_insert(now_ns);
            }
            if count < self.link.batch() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether more may be due.
    fn transmit(&mut self, now_ns: u64) -> Result<bool, LinkError> {
        while self.outgoing.len() < BATCH
            && let Some(datagram) = self.endpoint.poll_transmit(now_ns)
        {
            self.outgoing.push(datagram);
        }
        let taken = self.outgoing.len();
        if taken > 0 {
            self.link.send(&mut self.outgoing)?;
        }
        Ok(taken == BATCH && self.outgoing.is_empty())
    }
}

#[cfg(test)]
mod tests;
