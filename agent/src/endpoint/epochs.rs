// SPDX-License-Identifier: Apache-2.0
//! This rank's part in agreements on epochs, by way of its peers.

use super::Endpoint;
use crate::config::EndpointConfig;
use crate::epoch::{Change, Epoch, EpochError, Membership, RankSet, Timing};
use crate::interface::Event;
use std::net::SocketAddr;

/// What is not answered is said again so often before its receiver is given up.
const TIMES: u64 = 100;

/// No more often than this, ns.
const REPEAT_NS: u64 = 1_000_000;

pub(super) fn membership(config: &EndpointConfig) -> Membership {
    let timeouts = &config.timeouts;
    let timing = Timing {
        repeat_ns: (timeouts.give_up_ns / TIMES).max(REPEAT_NS),
        give_up_ns: timeouts.give_up_ns,
        patience_ns: timeouts.patience_ns,
    };
    Membership::new(config.rank, config.world, config.incarnation, timing)
}

impl Endpoint {
    /// The epoch that this rank is in.
    pub fn epoch(&self) -> Epoch {
        self.membership.epoch()
    }

    /// Whether an operation may begin: see [`Membership::may_begin`].
    pub fn may_begin(&self, number: u32) -> bool {
        self.membership.may_begin(number)
    }

    /// Asks for the next epoch: see [`Membership::begin`]. Ends in [`Event::Epoch`].
    ///
    /// # Errors
    /// As there.
    pub fn begin_epoch(
        &mut self,
        now_ns: u64,
        exclude: &RankSet,
        admit: bool,
        last: u32,
    ) -> Result<(), EpochError> {
        let begun = self.membership.begin(now_ns, exclude, admit, last);
        self.settle_epochs(now_ns);
        begun
    }

    /// Goes on in an epoch that was agreed on elsewhere, in which these ranks have these
    /// incarnations: at once, and without an event.
    pub fn adopt_epoch(&mut self, now_ns: u64, epoch: &Epoch, arrivals: &[(u16, u32)]) {
        self.membership.follow(epoch, arrivals.iter().copied().collect());
        // Whoever asked for it knows.
        while self.membership.poll_change().is_some() {}
        for &(rank, incarnation) in arrivals {
            self.with_peer(now_ns, rank, |peer, cx| peer.renew(cx, incarnation));
        }
    }

    /// Incarnations of the other ranks that this epoch has let in.
    pub fn arrivals(&self) -> Vec<(u16, u32)> {
        self.membership.arrivals()
    }

    /// Asks to be let into a job that goes on: of an endpoint that has just been made, with another
    /// incarnation than the rank had before. Ends in [`Event::Epoch`].
    pub fn join(&mut self, now_ns: u64) {
        self.membership.join(now_ns);
        self.settle_epochs(now_ns);
    }

    /// Ranks that have started anew and ask to be let in.
    pub fn knocking(&self, now_ns: u64) -> RankSet {
        self.membership.knocking(now_ns)
    }

    /// A rank starts anew, and listens there: somebody has said so who knows, a launcher or its
    /// store. With an incarnation, no other one is believed; without, whichever the rank says.
    /// Where incarnations were agreed on before ([`EndpointConfig::incarnations`]) a rank that
    /// starts anew is not heard without this.
    pub fn admit(&mut self, now_ns: u64, rank: u16, address: SocketAddr, incarnation: Option<u32>) {
        self.with_peer(now_ns, rank, |peer, _| peer.admit(address, incarnation));
    }

    /// Takes what a peer's packet brought.
    pub(super) fn take_votes(&mut self, now_ns: u64, rank: u16) {
        let incarnation = self.peers.get(usize::from(rank)).and_then(crate::peer::Peer::incarnation);
        if let Some(incarnation) = incarnation {
            self.membership.met(now_ns, rank, incarnation);
        }
        while let Some((from, incarnation, vote)) = self.votes.pop_front() {
            self.membership.handle(now_ns, from, incarnation, vote);
        }
        self.settle_epochs(now_ns);
    }

    /// Sends votes, and tells what has come of them.
    pub(super) fn settle_epochs(&mut self, now_ns: u64) {
        while let Some((to, vote)) = self.membership.poll_transmit() {
            self.with_peer(now_ns, to, |peer, cx| peer.vote(cx, vote));
        }
        while let Some(change) = self.membership.poll_change() {
            if matches!(change, Change::Begun(_)) {
                for (rank, incarnation) in self.membership.arrivals() {
                    self.with_peer(now_ns, rank, |peer, cx| peer.renew(cx, incarnation));
                }
            }
            self.events.push_back(Event::Epoch(change));
        }
    }
}
