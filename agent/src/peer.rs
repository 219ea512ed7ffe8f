// SPDX-License-Identifier: Apache-2.0
//! A peer: the connection to one other rank, with its transfers, timers, pacing and paths.
//!
//! [`Peer`] is driven by its endpoint alone, which hands it the datagrams of its rank, tells it
//! when time is up, and asks it what to send.
#![forbid(unsafe_code)]

mod early;
mod endings;
mod expiry;
mod greeting;
mod mtu;
mod over;
mod pieces;
mod receive;
mod session;
mod stats;
mod timers;
mod transmit;
mod way;

pub(crate) use transmit::Data;

use crate::config::EndpointConfig;
use crate::epoch::Vote;
use crate::interface::{EndpointStats, Event, ExpectError, Expectation, Outbound, SendError, SupplyError};
use crate::pacing::Pacer;
use crate::paths::{Paths, Question};
use crate::rate::{PathModel, RateAlgorithm, Slowdown};
use crate::row::Row;
use crate::snapshot::PeerStats;
use crate::transfer::finals::{self, Finals};
use crate::transfer::incoming::{Arrival, Incoming, Senders};
use crate::transfer::outgoing::{Next, Outgoing, When};
use crate::transfer::path::PathEstimate;
use crate::wire::Abort;
use crate::wire::trim_map::TrimMap;
use early::Early;
use greeting::Greeted;
use mtu::PathMtu;
use over::{Ending, Over};
use pieces::Pieces;
use session::Session;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use timers::{Timer, Timers};
use trimwire_encoder::wire::{PLANES, StreamId};
use trimwire_encoder::{Envelope, HeaderMask, PacketView, RowReceiver, SealKey, Sealer};

/// A control packet that is due; its content is written when it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Hello {
        answer: bool,
        to: Option<(SocketAddr, u32)>,
    },
    Ack(u32),
    Status(u32),
    Stop {
        message: u32,
        sequence: u32,
    },
    EarlyAck {
        message: u32,
    },
    EarlyStatus {
        message: u32,
        sequence: u32,
    },
    Probe(u32),
    Forward(u32),
    Final(u32),
    Abort(u32),
    /// Whether a path works.
    Ask(Question),
    PathQuestion {
        size: u16,
    },
    PathAnswer {
        sequence: u32,
        length: u16,
    },
    Vote,
}

/// What a peer works with at each call.
pub(crate) struct Context<'a> {
    pub(crate) now_ns: u64,
    /// How long the datagram that it is about has waited in this host, ns.
    pub(crate) age_ns: u64,
    pub(crate) config: &'a EndpointConfig,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) stats: &'a mut EndpointStats,
    /// Votes that came: from whom, and its incarnation.
    pub(crate) votes: &'a mut VecDeque<(u16, u32, Vote)>,
    /// Peers from which messages are arriving.
    pub(crate) senders: Senders,
    /// Rows whose memory may be used.
    pub(crate) spent: &'a mut Vec<RowReceiver>,
}

impl Context<'_> {
    fn when(&self, slowed_ns: u64) -> When {
        When { now_ns: self.now_ns, arrived_ns: self.now_ns.saturating_sub(self.age_ns), slowed_ns }
    }
}

/// The connection to another rank.
#[derive(Debug)]
pub(crate) struct Peer {
    rank: u16,
    stream: StreamId,
    session: Session,
    /// HELLOs that nobody has answered, and since when.
    hellos: Option<(u64, u32)>,
    greeted: Greeted,
    /// Since when its process is known to run, from elsewhere.
    runs_since_ns: Option<u64>,
    /// Since when the peer has been asked for a sign of life, and given none.
    asked_since_ns: Option<u64>,
    rate: Box<dyn RateAlgorithm>,
    pacer: Pacer,
    paths: Paths,
    estimate: PathEstimate,
    mtu: PathMtu,
    pieces: Pieces,
    /// The peer has not answered a question, and nothing else but about the path since.
    unheard: bool,
    /// When something was heard last of data on its way, or the first of it left.
    silent_since_ns: u64,
    slowdown: Slowdown,
    sends: BTreeMap<u32, Outgoing>,
    receives: BTreeMap<u32, Incoming>,
    /// Those of which something has arrived, and not yet what is wanted.
    arriving: BTreeSet<u32>,
    finals: BTreeMap<u32, Finals>,
    /// Messages of which the peer has all that it is to get, and does not know how precisely to
    /// decode them.
    undecided: BTreeSet<u32>,
    /// Messages with data to send: (class, order of `send`, id).
    sending: BTreeSet<(u8, u64, u32)>,
    /// Their order.
    orders: BTreeMap<u32, u64>,
    next_order: u64,
    early: Early,
    sent: Over,
    received: Over,
    timers: Timers,
    control: VecDeque<Due>,
    /// As many are among `control`.
    votes: VecDeque<Vote>,
    /// DATA seen of messages that are over.
    late: u32,
    stats: PeerStats,
    /// What is over the headers of the peer's DATA.
    mask: HeaderMask,
    /// Of an incarnation of the peer, in a sealed job.
    sealer: Option<(u32, Sealer)>,
}

impl Peer {
    pub(crate) fn new(rank: u16, stream: StreamId, config: &EndpointConfig) -> Self {
        let address = config.peers.get(&rank).copied();
        let path = PathModel {
            line_rate_bps: config.line_rate_bps,
            trim_delay_ns: config.trim_delay_ns,
            host_jitter_ns: config.host_jitter_ns,
            planned_bps: Some(config.line_rate_bps / u64::from(config.world.saturating_sub(1).max(1))),
        };
        let paths = config.source_ports.len().clamp(1, usize::from(u16::MAX)) as u16;
        let seed = config.seed ^ u64::from(stream.rank()) << 48 ^ u64::from(rank) << 32;
        Self {
            rank,
            stream,
            session: Session::new(
                config.incarnation,
                config.addresses.len() as u16,
                address,
                config.incarnations.get(&rank).copied(),
            ),
            hellos: None,
            greeted: Greeted::Never,
            runs_since_ns: None,
            asked_since_ns: None,
            rate: config.rate.build(&path),
            pacer: Pacer::with_burst_time(config.burst_wire_ns),
            paths: Paths::new(paths, config.packets_per_path, seed),
            estimate: PathEstimate::new(config.host_jitter_ns, config.trim_delay_ns, config.traffic),
            mtu: PathMtu::new(config.mtu),
            pieces: Pieces::new(config.world),
            unheard: false,
            silent_since_ns: 0,
            slowdown: Slowdown::default(),
            sends: BTreeMap::new(),
            receives: BTreeMap::new(),
            arriving: BTreeSet::new(),
            finals: BTreeMap::new(),
            undecided: BTreeSet::new(),
            sending: BTreeSet::new(),
            orders: BTreeMap::new(),
            next_order: 0,
            early: Early::new(config.window_bytes() as usize * 2),
            sent: Over::default(),
            received: Over::default(),
            timers: Timers::default(),
            control: VecDeque::new(),
            votes: VecDeque::new(),
            late: 0,
            stats: PeerStats::default(),
            mask: HeaderMask::NONE,
            sealer: None,
        }
    }

    /// Where the peer listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.session.address()
    }

    /// Where DATA of a path goes.
    pub(crate) fn address_of(&self, path: u16) -> Option<SocketAddr> {
        self.session.address_of(path)
    }

    pub(crate) fn set_address(&mut self, address: SocketAddr) {
        self.session.set_address(address);
    }

    /// Bit/s of whole frames.
    pub(crate) fn rate_bps(&self) -> u64 {
        self.rate.rate_bps()
    }

    pub(crate) fn rtt_ns(&self) -> Option<u64> {
        self.estimate.data.smoothed_ns()
    }

    /// Packets supplied for a message and not sent yet.
    pub(crate) fn backlog(&self, message: u32) -> u32 {
        self.sends.get(&message).map_or(0, Outgoing::backlog)
    }

    /// What the sender counts of a message that is on its way.
    pub(crate) fn send_stats(&self, message: u32) -> Option<crate::transfer::TransferStats> {
        self.sends.get(&message).map(|transfer| transfer.stats)
    }

    /// Bytes kept of messages that nobody has asked for, and endings remembered.
    pub(crate) fn footprint(&self) -> (usize, usize) {
        (self.early.bytes() + self.pieces.bytes(), self.sent.remembered() + self.received.remembered())
    }

    /// Whether a message is arriving from the peer: one that is expected, of which something is
    /// there, and not all that is wanted. Who has yet to begin takes nothing of the link.
    pub(crate) fn is_arriving(&self) -> bool {
        !self.arriving.is_empty()
    }

    /// Whether anything is between us.
    fn is_idle(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty() && self.finals.is_empty()
    }

    pub(crate) fn open(&mut self, cx: &mut Context<'_>, outbound: &Outbound) -> Result<(), SendError> {
        let (to, message) = (self.rank, outbound.message);
        if self.sends.contains_key(&message) || self.finals.contains_key(&message) {
            return Err(SendError::Busy { message, to });
        }
        match self.sent.ending(message) {
            Some(Ending::Delivered(_) | Ending::Forgotten) => return Err(SendError::Reused { message, to }),
            Some(Ending::Aborted(Abort { reason, culprit })) => {
                return Err(SendError::Aborted { message, to, culprit, reason });
            }
            None => {}
        }
        let transfer = Outgoing::new(cx.now_ns, to, outbound);
        self.sends.insert(message, transfer);
        self.orders.insert(message, self.next_order);
        self.next_order += 1;
        if self.session.is_open() {
            self.explore(cx);
            self.ask_paths(cx);
        }
        if self.session.is_confirmed() {
            self.announce(message, outbound.planes);
        } else {
            self.greet(cx);
        }
        Ok(())
    }

    /// Planes sent on purpose are told in advance; all of them need not be.
    fn announce(&mut self, message: u32, planes: u8) {
        if planes < PLANES {
            self.queue_probe(message);
        }
    }

    pub(crate) fn supply(
        &mut self,
        cx: &mut Context<'_>,
        message: u32,
        number: usize,
        row: Row,
    ) -> Result<(), SupplyError> {
        let to = self.rank;
        let transfer = self.sends.get_mut(&message).ok_or(SupplyError::Unknown { message, to })?;
        transfer.supply(cx.now_ns, number, row)?;
        self.queue_data(message);
        Ok(())
    }

    pub(crate) fn agree(&mut self, now_ns: u64, message: u32, map: Arc<TrimMap>) -> Result<(), SendError> {
        let to = self.rank;
        if self.sends.contains_key(&message) || self.finals.contains_key(&message) {
            return Err(SendError::Busy { message, to });
        }
        self.undecided.remove(&message);
        let mut agreement = Finals::new(now_ns, to, message, map);
        agreement.queued = true;
        self.finals.insert(message, agreement);
        self.control.push_back(Due::Final(message));
        Ok(())
    }

    pub(crate) fn expect(
        &mut self,
        cx: &mut Context<'_>,
        message: u32,
        expectation: Expectation,
    ) -> Result<(), ExpectError> {
        let from = self.rank;
        if self.receives.contains_key(&message) {
            return Err(ExpectError::Busy { message, from });
        }
        match self.received.ending(message) {
            Some(Ending::Delivered(_) | Ending::Forgotten) => {
                return Err(ExpectError::Reused { message, from });
            }
            Some(Ending::Aborted(Abort { reason, culprit })) => {
                return Err(ExpectError::Aborted { message, from, culprit, reason });
            }
            None => {}
        }
        // Every rank of an endpoint's world fits a stream.
        let stream = StreamId::new(self.stream.job(), from).unwrap_or(self.stream);
        let envelope = Envelope { stream, message };
        let sealer = self.sealer(cx.config);
        let transfer = Incoming::new(cx.now_ns, envelope, expectation, sealer, &cx.config.timeouts);
        self.timers.set(Timer::Incoming(message), transfer.timer_ns);
        self.receives.insert(message, transfer);
        self.replay_early(cx, message);
        Ok(())
    }

    /// What the peer seals its packets with, once it is known who it is.
    fn sealer(&mut self, config: &EndpointConfig) -> Option<Sealer> {
        let key = config.seal.as_ref()?;
        Some(self.sealer_of(key, self.session.peer().unwrap_or(0)))
    }

    /// What an incarnation of the peer seals with. Deriving a key takes microseconds, so the
    /// session's is kept; a stranger's costs just that.
    pub(crate) fn sealer_of(&mut self, key: &SealKey, incarnation: u32) -> Sealer {
        if let Some((known, sealer)) = &self.sealer
            && *known == incarnation
        {
            return sealer.clone();
        }
        let sealer = Sealer::new(key, incarnation);
        if self.session.peer() == Some(incarnation) {
            self.sealer = Some((incarnation, sealer.clone()));
        }
        sealer
    }

    /// Consistent replicas: which tails of a message the peer gets before it may be content.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>, message: u32, packets: &[u32]) {
        if let Some(transfer) = self.sends.get_mut(&message) {
            let next = transfer.settle(packets);
            self.apply(cx, message, next);
        }
    }

    /// Whether a message to the peer is not answered yet.
    pub(crate) fn is_sending(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Does what an outgoing transfer wants.
    fn apply(&mut self, cx: &mut Context<'_>, message: u32, next: Next) {
        let Some(transfer) = self.sends.get_mut(&message) else { return };
        match next {
            Next::Wait => self.timers.set(Timer::Outgoing(message), transfer.timer_ns()),
            Next::Data => {
                self.timers.set(Timer::Outgoing(message), transfer.timer_ns());
                self.queue_data(message);
            }
            Next::Probe => self.queue_probe(message),
            Next::Passed => {
                let map = transfer.reported();
                self.timers.set(Timer::Outgoing(message), transfer.timer_ns());
                cx.events.push_back(Event::Passed { to: self.rank, message, map });
            }
            Next::Done => {
                let (map, stats) = (transfer.take_map(), transfer.stats);
                let agreeing = map.is_some();
                if agreeing {
                    // The id goes on to be the agreement's.
                    let order = self.orders.remove(&message).unwrap_or(0);
                    self.sending.remove(&(transfer.class, order, message));
                    self.sends.remove(&message);
                    self.undecided.insert(message);
                    self.timers.set(Timer::Outgoing(message), None);
                } else {
                    self.end_send(message, Ending::Delivered(crate::transfer::incoming::Epitaph::default()));
                }
                self.stats.messages_sent += 1;
                cx.events.push_back(Event::Sent { to: self.rank, message, map, stats });
            }
            Next::Failed(error) => self.fail_send(cx, message, error),
        }
    }

    fn apply_agreement(&mut self, cx: &mut Context<'_>, message: u32, next: finals::Next) {
        let Some(agreement) = self.finals.get_mut(&message) else { return };
        match next {
            finals::Next::Wait => self.timers.set(Timer::Finals(message), agreement.timer_ns),
            finals::Next::Send => {
                if !std::mem::replace(&mut agreement.queued, true) {
                    self.control.push_back(Due::Final(message));
                }
            }
            finals::Next::Done => {
                self.end_send(message, Ending::Delivered(crate::transfer::incoming::Epitaph::default()));
            }
            finals::Next::Failed(error) => self.fail_send(cx, message, error),
        }
    }

    fn queue_probe(&mut self, message: u32) {
        let Some(transfer) = self.sends.get_mut(&message) else { return };
        if !std::mem::replace(&mut transfer.probe_queued, true) {
            self.control.push_back(Due::Probe(message));
        }
    }

    fn queue_ack(&mut self, message: u32) {
        let Some(transfer) = self.receives.get_mut(&message) else { return };
        if !std::mem::replace(&mut transfer.ack_queued, true) {
            self.control.push_back(Due::Ack(message));
        }
    }

    fn queue_data(&mut self, message: u32) {
        let (Some(transfer), Some(&order)) = (self.sends.get(&message), self.orders.get(&message)) else {
            return;
        };
        self.sending.insert((transfer.class, order, message));
    }
}

/// A datagram of the peer's, sorted.
pub(crate) struct DataArrival<'a> {
    pub(crate) arrival: Arrival,
    pub(crate) packet: &'a PacketView<'a>,
    /// As it arrived.
    pub(crate) payload: &'a [u8],
}
