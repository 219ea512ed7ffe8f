// SPDX-License-Identifier: Apache-2.0
//! One rank's transport: sorts what arrives by peer, and schedules what leaves onto one network
//! card.
//!
//! # How to drive it
//!
//! 1. After every call that takes `now_ns`: take all of
//!    [`Endpoint::poll_event`], then call [`Endpoint::poll_transmit`] until it gives `None`.
//! 2. Then ask [`Endpoint::poll_timeout`] and wait until that time or the next datagram, whichever
//!    is first. The time covers pacing as well as retransmission timers.
//! 3. At that time call [`Endpoint::handle_timeout`], and continue with 1.
//!
//! Times are nanoseconds of any monotonic clock; they must not go backwards.
//!
//! # What goes first
//!
//! Control packets, peer by peer in the order in which they became due; then data: the peer whose
//! last packet's time is up earliest. Each peer is paced at its rate algorithm's rate and all
//! together at the card's, so that peers at line rate take turns. Messages to one peer go by layer
//! class, those of one class in the order of `open`; repairs of a message before the rest of it.
#![forbid(unsafe_code)]

mod arrivals;
mod departures;
mod epochs;
mod schedule;

pub use crate::config::{DscpPlan, EndpointConfig, MTU_LEAST, MTU_MOST, Reliability, TimeoutConfig, Traffic};
pub use crate::interface::{
    EndpointStats, Event, ExpectError, Expectation, Outbound, SendError, SupplyError,
};

use crate::epoch::{Membership, Vote};
use crate::pacing::{Pace, Pacer};
use crate::peer::{Context, Peer};
use crate::row::Row;
use crate::snapshot::{PeerSnapshot, PeerStats, Snapshot};
use crate::transfer::TransferStats;
use crate::wire::trim_map::TrimMap;
use crate::wire::{Abort, Reason};
use schedule::Schedule;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use trimwire_encoder::wire::StreamId;
use trimwire_encoder::{HeaderMask, Message, RowReceiver, Sealer};

/// ECN codepoints (RFC 3168 §5). MLT §5.2: not-ECT marks what switches may drop first.
const ECT_0: u8 = 0b10;
const NOT_ECT: u8 = 0b00;
const CE: u8 = 0b11;

/// Source ports of which a HELLO tells in a packet of [`MTU_LEAST`] bytes, sealed, over IPv6 and
/// with addresses of eight interfaces; and the MTU from which on any HELLO fits.
const PORTS_WITHIN_LEAST: usize = 180;
const MTU_OF_ANY_HELLO: u16 = 1_280;

/// Rows that are kept for their memory, 128 KiB each: as many as an all-reduce of 64 MiB may have
/// on their way. What is freed and asked for anew costs page faults: with 64 rows they were 7 % of
/// that operation's processor time.
const SPENT: usize = 256;

/// One rank's transport; see the module for how to drive it.
#[derive(Debug)]
pub struct Endpoint {
    config: EndpointConfig,
    stream: StreamId,
    peers: Vec<Peer>,
    schedule: Schedule,
    nic: Pacer,
    /// Of data that leaves at less than the line's rate on purpose: control packets do not wait for
    /// it.
    spacing: Pacer,
    events: VecDeque<Event>,
    stats: EndpointStats,
    spent: Vec<RowReceiver>,
    /// Peers from which messages are arriving.
    senders: u16,
    membership: Membership,
    votes: VecDeque<(u16, u32, Vote)>,
    /// Of this incarnation, in a sealed job.
    sealer: Option<Sealer>,
    /// The first packet of another version of the wire format that came from a peer.
    other_version: Option<(u8, SocketAddr)>,
}

impl Endpoint {
    /// An endpoint with nothing to do. Numbers that do not fit the wire are clamped: `job` to 63,
    /// `world` to 1 to 1,024, `rank` below `world`, `incarnation` from 1.
    pub fn new(mut config: EndpointConfig) -> Self {
        config.world = config.world.clamp(1, StreamId::MAX_RANK + 1);
        config.rank = config.rank.min(config.world - 1);
        config.job = config.job.min(StreamId::MAX_JOB);
        config.incarnation = config.incarnation.max(1);
        config.line_rate_bps = config.line_rate_bps.max(1);
        config.source_ports.truncate(crate::wire::PORTS_MAX);
        config.addresses.truncate(crate::wire::ADDRESSES_MAX);
        config.mtu = config.mtu.map(|mtu| mtu.clamp(MTU_LEAST, MTU_MOST));
        if config.mtu.is_some_and(|mtu| mtu < MTU_OF_ANY_HELLO) {
            // A HELLO has to fit, too.
            config.source_ports.truncate(PORTS_WITHIN_LEAST);
        }
        let zero = StreamId::new(0, 0).unwrap_or_else(|| unreachable!("rank 0 of job 0 fits"));
        let stream = StreamId::new(config.job, config.rank).unwrap_or(zero);
        let membership = epochs::membership(&config);
        Self {
            peers: (0..config.world).map(|rank| Peer::new(rank, stream, &config)).collect(),
            schedule: Schedule::new(usize::from(config.world)),
            sealer: config.seal.as_ref().map(|key| Sealer::new(key, config.incarnation)),
            config,
            stream,
            nic: Pacer::default(),
            spacing: Pacer::default(),
            events: VecDeque::new(),
            stats: EndpointStats::default(),
            spent: Vec::new(),
            senders: 0,
            other_version: None,
            membership,
            votes: VecDeque::new(),
        }
    }

    /// The configuration, with its numbers as they are used.
    pub fn config(&self) -> &EndpointConfig {
        &self.config
    }

    /// Job and rank that this endpoint's packets carry.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// What this endpoint's encoders seal with, in a sealed job.
    pub fn sealer(&self) -> Option<Sealer> {
        self.sealer.clone()
    }

    /// What is over the headers of this endpoint's DATA.
    pub fn mask(&self) -> HeaderMask {
        self.config.mask_of(self.config.incarnation)
    }

    /// Tells where a rank listens.
    pub fn set_peer(&mut self, rank: u16, address: SocketAddr) {
        if let Some(peer) = self.peers.get_mut(usize::from(rank)) {
            peer.set_address(address);
        }
    }

    /// Where a rank listens, as given or learned.
    pub fn peer(&self, rank: u16) -> Option<SocketAddr> {
        self.peers.get(usize::from(rank)).and_then(Peer::address)
    }

    /// Calls a peer, and brings the schedule in line with what it wants then.
    fn with_peer<R>(
        &mut self,
        now_ns: u64,
        rank: u16,
        act: impl FnOnce(&mut Peer, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let result = self.with_receiving(now_ns, rank, act)?;
        let data_ns = self.peers.get(usize::from(rank))?.data_ns(&self.config);
        self.schedule.update_data(rank, data_ns);
        Some(result)
    }

    /// Likewise, if nothing in flight to the peer can have changed: looking would cost time for
    /// every packet that arrives.
    fn with_receiving<R>(
        &mut self,
        now_ns: u64,
        rank: u16,
        act: impl FnOnce(&mut Peer, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let peer = self.peers.get_mut(usize::from(rank))?;
        let Self { config, events, stats, spent, votes, .. } = self;
        let (senders, before) = (NonZeroU16::new(self.senders), peer.is_arriving());
        let mut cx = Context { now_ns, age_ns: 0, config, events, stats, votes, senders, spent };
        let result = act(peer, &mut cx);
        self.senders = self.senders - u16::from(before) + u16::from(peer.is_arriving());
        self.schedule.update(rank, peer.has_control(), peer.timeout_ns());
        Some(result)
    }

    /// Whether a rank is another one of this job.
    fn is_other(&self, rank: u16) -> bool {
        rank < self.config.world && rank != self.config.rank
    }

    /// Begins to send a message to a rank; [`Self::supply`] brings its rows. Ends in
    /// [`Event::Sent`] or [`Event::Failed`].
    pub fn open(&mut self, now_ns: u64, to: u16, outbound: &Outbound) -> Result<(), SendError> {
        let (rank, world) = (self.config.rank, self.config.world);
        let wrong = SendError::Rank { rank, to, world };
        if !self.is_other(to) {
            return Err(wrong);
        }
        if outbound.layout.packets() == 0 {
            return Err(SendError::Empty { to });
        }
        self.with_peer(now_ns, to, |peer, cx| peer.open(cx, outbound)).unwrap_or(Err(wrong))
    }

    /// Gives the next row of a message that was opened: it may leave at once.
    pub fn supply(
        &mut self,
        now_ns: u64,
        to: u16,
        message: u32,
        number: usize,
        row: Row,
    ) -> Result<(), SupplyError> {
        let supplied = self.with_peer(now_ns, to, |peer, cx| peer.supply(cx, message, number, row));
        supplied.unwrap_or(Err(SupplyError::Unknown { message, to }))
    }

    /// Packets of a message that were supplied and have not been sent: who encodes waits while they
    /// are many.
    pub fn backlog(&self, to: u16, message: u32) -> u32 {
        self.peers.get(usize::from(to)).map_or(0, |peer| peer.backlog(message))
    }

    /// Sends a message that is encoded already, whose packets name its id. Ends in [`Event::Sent`]
    /// or [`Event::Failed`].
    pub fn send(&mut self, now_ns: u64, to: u16, message: &Message) -> Result<(), SendError> {
        self.send_message(now_ns, to, message, false)
    }

    /// Likewise, and asks for the receiver's final trim map, which [`Event::Sent`] brings.
    pub fn send_agreed(&mut self, now_ns: u64, to: u16, message: &Message) -> Result<(), SendError> {
        self.send_message(now_ns, to, message, true)
    }

    fn send_message(
        &mut self,
        now_ns: u64,
        to: u16,
        message: &Message,
        want_map: bool,
    ) -> Result<(), SendError> {
        let (rank, world) = (self.config.rank, self.config.world);
        if !self.is_other(to) {
            return Err(SendError::Rank { rank, to, world });
        }
        let (Some(header), Some(layout)) = (message.header(0), message.layout()) else {
            return Err(SendError::Empty { to });
        };
        let (stream, id) = (header.prefix.stream, header.prefix.message);
        if stream != self.stream {
            return Err(SendError::Stream { message: id, stream, own: self.stream });
        }
        let (layout, planes) = (layout.clone(), message.planes());
        let outbound =
            Outbound { message: id, layout, planes, want_map, best_effort: false, pace: Pace::LINE };
        self.open(now_ns, to, &outbound)?;
        for (number, row) in Row::of_message(message, self.mask()).into_iter().enumerate() {
            // Never refused: these are its rows, in order.
            let _ = self.supply(now_ns, to, id, number, row);
        }
        Ok(())
    }

    /// Answers [`Event::Passed`]: sends the tails of these packets, from where the receiver has
    /// them trimmed, once, and reports again; where there are none the receiver may be content,
    /// which [`Event::Sent`] says. Packets that there are not, and messages that do not wait for
    /// this, are ignored.
    pub fn settle(&mut self, now_ns: u64, to: u16, message: u32, packets: &[u32]) {
        self.with_peer(now_ns, to, |peer, cx| peer.settle(cx, message, packets));
    }

    /// Tells the receiver of a message that [`Event::Sent`] has reported the precision at which all
    /// replicas decode; repeated until it confirms.
    pub fn agree(&mut self, now_ns: u64, to: u16, message: u32, map: Arc<TrimMap>) -> Result<(), SendError> {
        let (rank, world) = (self.config.rank, self.config.world);
        let wrong = SendError::Rank { rank, to, world };
        if !self.is_other(to) {
            return Err(wrong);
        }
        if map.packets() == 0 {
            return Err(SendError::Empty { to });
        }
        self.with_peer(now_ns, to, |peer, _| peer.agree(now_ns, message, map)).unwrap_or(Err(wrong))
    }

    /// Expects a message; what has arrived of it already is taken in at once. Ends in
    /// [`Event::Received`] or [`Event::Failed`].
    pub fn expect(
        &mut self,
        now_ns: u64,
        from: u16,
        message: u32,
        expectation: Expectation,
    ) -> Result<(), ExpectError> {
        let (rank, world) = (self.config.rank, self.config.world);
        let wrong = ExpectError::Rank { rank, from, world };
        if !self.is_other(from) {
            return Err(wrong);
        }
        self.with_peer(now_ns, from, |peer, cx| peer.expect(cx, message, expectation)).unwrap_or(Err(wrong))
    }

    /// Stops sending a message, and tells the peer, who fails; nothing is reported here. `culprit`
    /// is the rank to blame.
    pub fn abort_send(&mut self, now_ns: u64, to: u16, message: u32, culprit: u16, reason: Reason) {
        self.with_peer(now_ns, to, |peer, _| peer.abort_send(message, Abort { reason, culprit }));
    }

    /// Stops expecting a message, likewise.
    pub fn abort_expect(&mut self, now_ns: u64, from: u16, message: u32, culprit: u16, reason: Reason) {
        self.with_peer(now_ns, from, |peer, _| peer.abort_expect(message, Abort { reason, culprit }));
    }

    /// Messages with lower numbers are over, with all peers and in both directions, except those
    /// still in flight: nothing need be remembered of them, and their
    /// numbers are not used again.
    pub fn retire(&mut self, below: u32) {
        self.peers.iter_mut().for_each(|peer| peer.retire(below));
    }

    /// From now on, who answers but does not take part is waited for so long.
    pub fn set_patience(&mut self, patience_ns: u64) {
        self.config.timeouts.patience_ns = patience_ns;
    }

    /// Whether a message is under way to somebody who has not said yet that it is there.
    pub fn is_sending(&self) -> bool {
        self.peers.iter().any(Peer::is_sending)
    }

    /// Whether a rank has answered this endpoint.
    pub fn is_met(&self, rank: u16) -> bool {
        self.peers.get(usize::from(rank)).is_some_and(Peer::is_met)
    }

    /// A rank's process is known to run: if nothing answers for `give_up_ns` from `now_ns` on,
    /// nothing will. A time in the future is the time by which it is sure to run.
    pub fn expect_answer(&mut self, now_ns: u64, rank: u16) {
        if let Some(peer) = self.peers.get_mut(usize::from(rank)) {
            peer.runs(now_ns);
        }
    }

    /// Takes back a row that is decoded: its memory serves the next one.
    pub fn recycle(&mut self, row: RowReceiver) {
        if self.spent.len() < SPENT {
            self.spent.push(row);
        }
    }

    /// What happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether [`Self::poll_event`] has something.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Totals since the beginning.
    pub fn stats(&self) -> &EndpointStats {
        &self.stats
    }

    /// The version of the first packet of a peer that speaks another version of the wire format,
    /// and where it came from: that rank's Trimwire is of another release, and never understood.
    pub fn other_version(&self) -> Option<(u8, SocketAddr)> {
        self.other_version
    }

    /// The sender's counts of a message that is still on its way.
    pub fn transfer_stats(&self, to: u16, message: u32) -> Option<TransferStats> {
        self.peers.get(usize::from(to))?.send_stats(message)
    }

    /// The rate at which data goes to a peer, bit/s of whole frames; `None` for a rank that does
    /// not exist.
    pub fn rate_bps(&self, peer: u16) -> Option<u64> {
        self.peers.get(usize::from(peer)).map(|peer| peer.rate_bps().min(self.config.line_rate_bps))
    }

    /// From now on this rank's interfaces carry IP packets of so many bytes at most, because one
    /// has shrunk; more than before is not believed.
    pub fn set_mtu(&mut self, now_ns: u64, mtu: u16) {
        self.config.mtu = self.config.mtu.map(|before| before.min(mtu));
        for rank in 0..self.config.world {
            self.with_peer(now_ns, rank, |peer, cx| peer.set_interface_mtu(cx, mtu));
        }
    }

    /// Bytes of the longest IP packets that the path to a rank carries, once that is known; `None`
    /// where nobody asks ([`EndpointConfig::mtu`]).
    pub fn path_mtu(&self, peer: u16) -> Option<u16> {
        self.peers.get(usize::from(peer)).and_then(Peer::path_mtu)
    }

    /// The smoothed round-trip time of whole data packets to a peer, ns, once measured.
    pub fn rtt_ns(&self, peer: u16) -> Option<u64> {
        self.peers.get(usize::from(peer)).and_then(Peer::rtt_ns)
    }

    /// Totals of what went between this rank and another; `None` for a rank that does not exist.
    pub fn peer_stats(&self, rank: u16) -> Option<&PeerStats> {
        self.peers.get(usize::from(rank)).map(Peer::stats)
    }

    /// Everything that is told of this moment. Copies some hundred bytes a path: for once a second,
    /// not for every packet.
    pub fn snapshot(&self) -> Snapshot {
        let others = (0..).zip(&self.peers).filter(|&(rank, _)| rank != self.config.rank);
        let peers = others.map(|(rank, peer): (u16, &Peer)| PeerSnapshot {
            rank,
            rate_bps: peer.rate_bps().min(self.config.line_rate_bps),
            ..peer.snapshot(&self.config)
        });
        Snapshot {
            rank: self.config.rank,
            world: self.config.world,
            totals: self.stats,
            peers: peers.collect(),
        }
    }

    /// Bytes kept of messages that nobody has asked for, and endings remembered, over all peers.
    pub fn footprint(&self) -> (usize, usize) {
        let each = self.peers.iter().map(Peer::footprint);
        each.fold((0, 0), |sum, peer| (sum.0 + peer.0, sum.1 + peer.1))
    }

    /// When to call [`Self::handle_timeout`] next, at the latest; `None`: only a datagram or a call
    /// can bring work. A time that has passed means that [`Self::poll_transmit`] or
    /// [`Self::handle_timeout`] has work now.
    pub fn poll_timeout(&self) -> Option<u64> {
        let nic_ns = self.nic.next_ns();
        let control_ns = self.schedule.has_control().then_some(nic_ns);
        [control_ns, self.data_departs_ns(), self.schedule.timeout_ns(), self.membership.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Lets every timer up to `now_ns` expire.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        while let Some(rank) = self.schedule.expired(now_ns) {
            self.with_peer(now_ns, rank, Peer::on_timeout);
        }
        if self.membership.poll_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
            self.membership.handle_timeout(now_ns);
            self.settle_epochs(now_ns);
        }
    }
}
