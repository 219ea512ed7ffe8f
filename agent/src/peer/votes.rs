// SPDX-License-Identifier: Apache-2.0
//! Votes on epochs, and ranks that start anew as others expect them to.

use super::{Context, Due, Peer};
use crate::epoch::Vote;
use std::net::SocketAddr;

/// Votes that wait for one peer: more are said again anyway.
const VOTES: usize = 16;

impl Peer {
    /// Sends a vote, once there is a session. It may get lost, and is said again by who sends it.
    pub(crate) fn vote(&mut self, cx: &mut Context<'_>, vote: Vote) {
        if !self.session.is_open() {
            return self.greet(cx);
        }
        if self.votes.len() < VOTES {
            self.votes.push_back(vote);
            self.control.push_back(Due::Vote);
        }
    }

    /// The peer's incarnation, where it is known.
    pub(crate) fn incarnation(&self) -> Option<u32> {
        self.session.peer()
    }

    /// The peer has started anew as this incarnation, as the ranks have agreed: what is of the one before is void.
    pub(crate) fn renew(&mut self, cx: &mut Context<'_>, incarnation: u32) {
        if self.session.renew(incarnation) {
            self.restarted(cx);
        }
    }

    /// The peer has started anew: it listens there, and whatever incarnation it has is believed, or this one alone.
    pub(crate) fn admit(&mut self, address: SocketAddr, incarnation: Option<u32>) {
        self.session.admit(address, incarnation);
        // What was known of the process that was there before says nothing of this one.
        self.runs_since_ns = None;
    }
}
