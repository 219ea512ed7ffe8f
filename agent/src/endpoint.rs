//! One rank's transport: all of its outgoing and incoming transfers, paced onto one network card.
//!
//! # How to drive it
//!
//! 1. After every `send`, `expect`, [`Endpoint::handle_datagram`] and [`Endpoint::handle_timeout`]: take all of
//!    [`Endpoint::poll_event`], then call [`Endpoint::poll_transmit`] until it gives `None`.
//! 2. Then ask [`Endpoint::poll_timeout`] and wait until that time or the next datagram, whichever is first. The time
//!    covers pacing as well as retransmission timers.
//! 3. At that time call [`Endpoint::handle_timeout`], and continue with 1.
//!
//! Times are nanoseconds of any monotonic clock; they must not go backwards.
//!
//! # What goes first
//!
//! Control packets, in the order in which they became due; then data, peer by peer: the peer whose last packet's
//! time is up earliest. Each peer is paced at its rate law's rate and all together at the card's, so that peers at line rate
//! take turns. Messages to one peer go in the order of `send`, repairs of a message before the rest of it.
#![forbid(unsafe_code)]

pub mod config;
mod interface;
mod peer;
mod receive;
mod transmit;

pub use config::{DscpPlan, EndpointConfig, Reliability, TimeoutConfig, Traffic};
pub use interface::{EndpointStats, Event, ExpectError, Expectation, SendError, Transmit};

use crate::pacing::Pacer;
use crate::transfer::agreement::Agreement;
use crate::transfer::incoming::Incoming;
use crate::transfer::outgoing::{self, Outgoing};
use crate::transfer::{TransferError, TransferStats};
use crate::wire::Writer;
use crate::wire::cut_map::CutMap;
use peer::Peer;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use trimwire_encoder::wire::{PLANES, StreamId};
use trimwire_encoder::{Decoder, Message};

/// Which transfer a timer or a control packet belongs to. The order is that of expiry at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Outgoing,
    Incoming,
    Agreement,
}

/// A control packet that is due; its content is written when it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Ack,
    Status,
    Stop,
    NotExpected,
    Probe,
    Final,
}

type Key = (u16, u32);

#[derive(Debug)]
struct Timed<T> {
    transfer: T,
    /// Time of its entry in the timer queue.
    armed_ns: Option<u64>,
}

/// One rank's transport; see the module for how to drive it.
#[derive(Debug)]
pub struct Endpoint {
    config: EndpointConfig,
    writer: Writer,
    peers: Vec<Peer>,
    outgoing: BTreeMap<Key, Timed<Outgoing>>,
    incoming: BTreeMap<Key, Timed<Incoming>>,
    agreements: BTreeMap<Key, Timed<Agreement>>,
    timers: BTreeSet<(u64, Side, u16, u32)>,
    control: VecDeque<(Due, u16, u32)>,
    /// Peers with data to send: (when the next packet may leave, turn, rank).
    ready: BTreeSet<(u64, u64, u16)>,
    turn: u64,
    order: u64,
    nic: Pacer,
    sprayed: u64,
    events: VecDeque<Event>,
    stats: EndpointStats,
}

impl Endpoint {
    /// An endpoint with nothing to do. Numbers that do not fit the wire are clamped: `job` to 63, `world` to 1 to 1,024,
    /// `rank` below `world`.
    pub fn new(mut config: EndpointConfig) -> Self {
        config.world = config.world.clamp(1, StreamId::MAX_RANK + 1);
        config.rank = config.rank.min(config.world - 1);
        config.job = config.job.min(StreamId::MAX_JOB);
        config.line_rate_bps = config.line_rate_bps.max(1);
        let early = config.early_bytes_per_peer;
        let peers =
            (0..config.world).map(|_| Peer::new(config.rate.build(config.line_rate_bps), early)).collect();
        let zero = StreamId::new(0, 0).unwrap_or_else(|| unreachable!("rank 0 of job 0 fits"));
        let stream = StreamId::new(config.job, config.rank).unwrap_or(zero);
        Self {
            writer: Writer { stream },
            config,
            peers,
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            agreements: BTreeMap::new(),
            timers: BTreeSet::new(),
            control: VecDeque::new(),
            ready: BTreeSet::new(),
            turn: 0,
            order: 0,
            nic: Pacer::default(),
            sprayed: 0,
            events: VecDeque::new(),
            stats: EndpointStats::default(),
        }
    }

    /// The configuration, with its numbers as they are used.
    pub fn config(&self) -> &EndpointConfig {
        &self.config
    }

    /// Job and rank that this endpoint's packets carry.
    pub fn stream(&self) -> StreamId {
        self.writer.stream
    }

    /// Starts to send a message, whose packets name its id, to a rank. Ends in [`Event::Sent`] or [`Event::Failed`].
    pub fn send(&mut self, now_ns: u64, to_rank: u16, message: Arc<Message>) -> Result<(), SendError> {
        self.send_message(now_ns, to_rank, message, false)
    }

    /// Likewise, and asks for the receiver's final cut map, which [`Event::Sent`] brings.
    pub fn send_agreed(&mut self, now_ns: u64, to_rank: u16, message: Arc<Message>) -> Result<(), SendError> {
        self.send_message(now_ns, to_rank, message, true)
    }

    fn send_message(
        &mut self,
        now_ns: u64,
        to: u16,
        message: Arc<Message>,
        want_map: bool,
    ) -> Result<(), SendError> {
        let (rank, world) = (self.config.rank, self.config.world);
        if to >= world || to == rank {
            return Err(SendError::Rank { rank, to, world });
        }
        let Some(header) = message.header(0) else { return Err(SendError::Empty { to }) };
        let (stream, id) = (header.prefix.stream, header.prefix.message);
        if stream != self.writer.stream {
            return Err(SendError::Stream { message: id, stream, own: self.writer.stream });
        }
        if self.outgoing.contains_key(&(to, id)) || self.agreements.contains_key(&(to, id)) {
            return Err(SendError::Busy { message: id, to });
        }
        let full = self.config.reliability == Reliability::Full;
        let transfer = Outgoing::new(now_ns, to, id, message, full, want_map, self.order);
        self.order += 1;
        self.outgoing.insert((to, id), Timed { transfer, armed_ns: None });
        self.make_ready(to, id);
        Ok(())
    }

    /// Tells the receiver of a message that [`Event::Sent`] has reported the precision at which all replicas decode;
    /// repeated until it confirms.
    pub fn agree(&mut self, now_ns: u64, to: u16, message: u32, map: Arc<CutMap>) -> Result<(), SendError> {
        let (rank, world) = (self.config.rank, self.config.world);
        if to >= world || to == rank {
            return Err(SendError::Rank { rank, to, world });
        }
        if map.packets() == 0 {
            return Err(SendError::Empty { to });
        }
        if self.outgoing.contains_key(&(to, message)) || self.agreements.contains_key(&(to, message)) {
            return Err(SendError::Busy { message, to });
        }
        let mut transfer = Agreement::new(now_ns, to, message, map);
        transfer.queued = true;
        self.agreements.insert((to, message), Timed { transfer, armed_ns: None });
        self.control.push_back((Due::Final, to, message));
        Ok(())
    }

    /// Expects a message with the endpoint's reliability; what has arrived of it already is taken in at once. Ends in
    /// [`Event::Received`] or [`Event::Failed`].
    pub fn expect(
        &mut self,
        now_ns: u64,
        from: u16,
        message: u32,
        decoder: Decoder,
    ) -> Result<(), ExpectError> {
        let expectation = Expectation { reliability: self.config.reliability, planes: PLANES, agree: false };
        self.expect_with(now_ns, from, message, decoder, expectation)
    }

    /// Likewise, with a reliability of its own, or with an agreement of replicas.
    pub fn expect_with(
        &mut self,
        now_ns: u64,
        from: u16,
        message: u32,
        decoder: Decoder,
        expectation: Expectation,
    ) -> Result<(), ExpectError> {
        let (rank, world) = (self.config.rank, self.config.world);
        if from >= world || from == rank {
            return Err(ExpectError::Rank { rank, from, world });
        }
        if self.incoming.contains_key(&(from, message)) {
            return Err(ExpectError::Busy { message, from });
        }
        let timeouts = &self.config.timeouts;
        let transfer = Incoming::new(now_ns, from, message, decoder, expectation, timeouts);
        self.incoming.insert((from, message), Timed { transfer, armed_ns: None });
        self.rearm(Side::Incoming, (from, message));
        self.replay_early(now_ns, (from, message));
        Ok(())
    }

    /// Stops sending a message; nothing is reported.
    pub fn cancel_send(&mut self, to: u16, message: u32) {
        self.remove_outgoing((to, message));
        if let Some(entry) = self.agreements.remove(&(to, message)) {
            self.disarm(Side::Agreement, (to, message), entry.armed_ns);
        }
    }

    /// Stops expecting a message; nothing is reported.
    pub fn cancel_expect(&mut self, from: u16, message: u32) {
        if let Some(entry) = self.incoming.remove(&(from, message)) {
            self.disarm(Side::Incoming, (from, message), entry.armed_ns);
        }
    }

    /// What happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Totals since the beginning.
    pub fn stats(&self) -> &EndpointStats {
        &self.stats
    }

    /// The sender's counts of a message that is still on its way.
    pub fn transfer_stats(&self, to: u16, message: u32) -> Option<TransferStats> {
        self.outgoing.get(&(to, message)).map(|entry| entry.transfer.stats)
    }

    /// The rate at which data goes to a peer, bit/s of whole frames; `None` for a rank that does not exist.
    pub fn rate_bps(&self, peer: u16) -> Option<u64> {
        self.peers.get(usize::from(peer)).map(|peer| peer.rate.rate_bps().min(self.config.line_rate_bps))
    }

    /// The smoothed round-trip time of whole data packets to a peer, ns, once measured.
    pub fn rtt_ns(&self, peer: u16) -> Option<u64> {
        self.peers.get(usize::from(peer)).and_then(|peer| peer.path.data.smoothed_ns())
    }

    /// When to call [`Self::handle_timeout`] next, at the latest; `None`: only a datagram or a call can bring work. A time
    /// that has passed means that [`Self::poll_transmit`] or [`Self::handle_timeout`] has work now.
    pub fn poll_timeout(&self) -> Option<u64> {
        let nic_ns = self.nic.next_ns();
        let control_ns = (!self.control.is_empty()).then_some(nic_ns);
        let data_ns = self.ready.first().map(|&(next_ns, ..)| next_ns.max(nic_ns));
        let timer_ns = self.timers.first().map(|&(at_ns, ..)| at_ns);
        [control_ns, data_ns, timer_ns].into_iter().flatten().min()
    }

    /// Lets every timer up to `now_ns` expire.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        while let Some(&(at_ns, side, peer, message)) = self.timers.first() {
            if at_ns > now_ns {
                break;
            }
            self.timers.pop_first();
            self.expire(now_ns, side, (peer, message));
        }
    }

    fn expire(&mut self, now_ns: u64, side: Side, key: Key) {
        let timeouts = self.config.timeouts;
        match side {
            Side::Outgoing => {
                let Some(entry) = self.outgoing.get_mut(&key) else { return };
                entry.armed_ns = None;
                let next = entry.transfer.on_timeout(now_ns, &timeouts);
                self.apply(key, next);
            }
            Side::Incoming => {
                let Some(entry) = self.incoming.get_mut(&key) else { return };
                entry.armed_ns = None;
                match entry.transfer.on_timeout(now_ns, &timeouts) {
                    Ok(true) => self.deliver(now_ns, key),
                    Ok(false) => self.rearm(Side::Incoming, key),
                    Err(error) => {
                        self.incoming.remove(&key);
                        self.fail(key, error);
                    }
                }
            }
            Side::Agreement => {
                let Some(entry) = self.agreements.get_mut(&key) else { return };
                entry.armed_ns = None;
                let next = entry.transfer.on_timeout(now_ns, &timeouts);
                self.apply_agreement(key, next);
            }
        }
    }

    fn fail(&mut self, (peer, message): Key, error: TransferError) {
        self.stats.failed += 1;
        self.events.push_back(Event::Failed { peer, message, error });
    }

    /// Does what an outgoing transfer wants.
    fn apply(&mut self, key: Key, next: outgoing::Next) {
        let Some(entry) = self.outgoing.get_mut(&key) else { return };
        match next {
            outgoing::Next::Wait => self.rearm(Side::Outgoing, key),
            outgoing::Next::Data => {
                entry.transfer.timer_ns = None;
                self.rearm(Side::Outgoing, key);
                self.make_ready(key.0, key.1);
            }
            outgoing::Next::Probe => {
                self.rearm(Side::Outgoing, key);
                self.queue_probe(key);
            }
            outgoing::Next::Done => {
                let map = entry.transfer.take_map();
                let stats = entry.transfer.stats;
                self.remove_outgoing(key);
                self.events.push_back(Event::Sent { to: key.0, message: key.1, map, stats });
            }
            outgoing::Next::Failed(error) => {
                self.remove_outgoing(key);
                self.fail(key, error);
            }
        }
    }

    fn remove_outgoing(&mut self, key: Key) {
        let Some(entry) = self.outgoing.remove(&key) else { return };
        self.disarm(Side::Outgoing, key, entry.armed_ns);
        if let Some(peer) = self.peers.get_mut(usize::from(key.0)) {
            peer.sending.remove(&(entry.transfer.order, key.1));
        }
    }

    fn queue_probe(&mut self, key: Key) {
        let Some(entry) = self.outgoing.get_mut(&key) else { return };
        if !std::mem::replace(&mut entry.transfer.probe_queued, true) {
            self.control.push_back((Due::Probe, key.0, key.1));
        }
    }

    /// Puts a transfer that has data among those to be sent.
    fn make_ready(&mut self, to: u16, id: u32) {
        let Some(entry) = self.outgoing.get(&(to, id)) else { return };
        let Some(peer) = self.peers.get_mut(usize::from(to)) else { return };
        peer.sending.insert((entry.transfer.order, id));
        if !std::mem::replace(&mut peer.ready, true) {
            self.ready.insert((peer.pacer.next_ns(), self.turn, to));
            self.turn += 1;
        }
    }

    fn disarm(&mut self, side: Side, (peer, message): Key, armed_ns: Option<u64>) {
        if let Some(at_ns) = armed_ns {
            self.timers.remove(&(at_ns, side, peer, message));
        }
    }

    /// Brings the timer queue in line with what a transfer wants.
    fn rearm(&mut self, side: Side, key: Key) {
        let (armed_ns, wanted_ns) = match side {
            Side::Outgoing => match self.outgoing.get_mut(&key) {
                Some(entry) => (&mut entry.armed_ns, entry.transfer.timer_ns),
                None => return,
            },
            Side::Incoming => match self.incoming.get_mut(&key) {
                Some(entry) => (&mut entry.armed_ns, entry.transfer.timer_ns),
                None => return,
            },
            Side::Agreement => match self.agreements.get_mut(&key) {
                Some(entry) => (&mut entry.armed_ns, entry.transfer.timer_ns),
                None => return,
            },
        };
        if *armed_ns == wanted_ns {
            return;
        }
        let old_ns = std::mem::replace(armed_ns, wanted_ns);
        self.disarm(side, key, old_ns);
        if let Some(at_ns) = wanted_ns {
            self.timers.insert((at_ns, side, key.0, key.1));
        }
    }
}
