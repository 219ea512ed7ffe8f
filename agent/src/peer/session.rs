// SPDX-License-Identifier: Apache-2.0
//! Who is at the other end, and since when: incarnations, address, source ports.
//!
//! ```text
//!  A                                          B
//!  HELLO from a, to 0          ───────────►   (B keeps nothing)
//!                              ◄───────────   HELLO from b, to a
//!  (A knows B: it has seen a)
//!  HELLO from a, to b, answer  ───────────►   (B knows A, and that A knows B)
//!  HELLO from a, to b          ───────────►
//!                              ◄───────────   HELLO from b, to a, answer
//!  (A knows that B knows A)
//! ```
//!
//! DATA waits for the last step: it may take another path than control packets, and overtake the
//! HELLO without which it is not believed.
//!
//! Where a rendezvous has told the incarnations, A's first HELLO echoes b already, and the third
//! line begins it. No other incarnation is believed then.
//!
//! An incarnation is taken over only from a HELLO that echoes ours, so that its sender heard us: a
//! stranger cannot end a session by claiming that a rank has started anew. A superseded incarnation
//! never comes back: an old HELLO, repeated, would end the session after it. From then on every
//! control packet carries both incarnations, and DATA comes from the address and the source ports
//! that the HELLO named.
//!
//! A peer with several interfaces names all its addresses. Control packets keep to one way, the
//! last that something was heard on, and try the next one when nobody answers.

use crate::wire::{Hello, Identity};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Incarnations that are remembered after they were superseded.
const FORMER: usize = 64;
/// This many packets of a former incarnation, with none of the present one between, show that it
/// lives after all: a delayed HELLO may have looked like a restart.
const KNOCKS: u32 = 40;

/// What a control packet's identity means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Of this session.
    Ours,
    /// From a peer that does not know us, or that we do not know: our HELLO would help.
    Strange,
    /// Not from where the peer is, or from before it started anew.
    Foreign,
}

/// What a HELLO did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Greeting {
    /// Nothing: it is not from where the peer is, or from before it started anew.
    Foreign,
    /// The peer does not know us yet.
    Unconfirmed,
    /// The peer is who it was.
    Known,
    /// The session begins.
    Begun,
    /// The peer has started anew: what was between us is void.
    Restarted,
}

/// The session with a peer.
#[derive(Debug)]
pub(super) struct Session {
    own: u32,
    /// Where the peer listens.
    address: Option<SocketAddr>,
    /// The only incarnation of the peer that there is, where that was agreed on.
    agreed: Option<u32>,
    /// Which one the peer is said to have; it has yet to say so itself.
    said: Option<u32>,
    peer: Option<u32>,
    /// Incarnations of the peer from before, the newest last.
    former: VecDeque<u32>,
    /// Packets of former incarnations since the last one of the present one.
    knocks: u32,
    /// All of the peer's, in the order of its paths, where it has several.
    addresses: Vec<IpAddr>,
    /// How many this rank has.
    own_addresses: u16,
    /// The way of control packets: from the address of this index, to the peer's, each counted
    /// round.
    way: u16,
    /// Sorted.
    ports: Vec<u16>,
    /// Whether the peer is known to know us.
    confirmed: bool,
}

impl Session {
    pub(super) fn new(
        own: u32,
        own_addresses: u16,
        address: Option<SocketAddr>,
        agreed: Option<u32>,
    ) -> Self {
        Self {
            own,
            address,
            agreed,
            said: agreed,
            peer: None,
            former: VecDeque::new(),
            knocks: 0,
            addresses: Vec::new(),
            own_addresses: own_addresses.max(1),
            way: 0,
            ports: Vec::new(),
            confirmed: false,
        }
    }

    /// Where the peer listens, as given or learned.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    pub(super) fn set_address(&mut self, address: SocketAddr) {
        self.address = Some(address);
    }

    /// Where a way leads to: of DATA's path, or of control packets.
    pub(super) fn address_of(&self, way: u16) -> Option<SocketAddr> {
        let at = usize::from(way).checked_rem(self.addresses.len());
        let further = at.and_then(|at| self.addresses.get(at));
        self.address.map(|address| SocketAddr::new(further.map_or(address.ip(), |&ip| ip), address.port()))
    }

    /// The way of control packets.
    pub(super) fn way(&self) -> u16 {
        self.way
    }

    fn ways(&self) -> u16 {
        self.own_addresses.max(self.addresses.len() as u16)
    }

    /// Nobody answers: control packets try the next way.
    pub(super) fn turn(&mut self) {
        // Who does not know us yet believes what comes from our first address.
        if self.confirmed {
            self.way = (self.way + 1) % self.ways();
        }
    }

    /// What was heard came that way.
    fn heard_from(&mut self, source: SocketAddr) {
        let here = self.address_of(self.way) == Some(source);
        if !here && let Some(way) = (0..self.ways()).find(|&way| self.address_of(way) == Some(source)) {
            self.way = way;
        }
    }

    /// Whether the peer listens there.
    fn is_at(&self, source: SocketAddr) -> bool {
        self.address.is_some_and(|address| {
            address == source || (address.port() == source.port() && self.addresses.contains(&source.ip()))
        })
    }

    /// Whether we know the peer.
    pub(super) fn is_open(&self) -> bool {
        self.peer.is_some()
    }

    /// Whether the peer knows us, too: what we send is believed.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// The peer has shown that it knows us. Whether that is news.
    pub(super) fn confirm(&mut self) -> bool {
        !std::mem::replace(&mut self.confirmed, true)
    }

    /// The peer's incarnation.
    pub(super) fn peer(&self) -> Option<u32> {
        self.peer
    }

    /// What our packets say.
    pub(super) fn identity(&self) -> Identity {
        Identity { from: self.own, to: self.peer.or(self.said).unwrap_or(0) }
    }

    /// The peer has this incarnation, as the ranks have agreed on an epoch. Whether that is news.
    pub(super) fn renew(&mut self, incarnation: u32) -> bool {
        if self.peer == Some(incarnation) {
            return false;
        }
        self.agreed = self.agreed.map(|_| incarnation);
        self.said = Some(incarnation);
        (self.knocks, self.confirmed, self.way) = (0, false, 0);
        if let Some(before) = self.peer.take() {
            self.supersede(before, incarnation);
        }
        true
    }

    /// The peer starts anew there, as whatever incarnation, or as this one alone.
    pub(super) fn admit(&mut self, address: SocketAddr, incarnation: Option<u32>) {
        self.address = Some(address);
        self.addresses.clear();
        self.agreed = incarnation;
        self.said = incarnation.or(self.said);
        self.way = 0;
    }

    fn supersede(&mut self, before: u32, incarnation: u32) {
        self.former.retain(|&former| former != incarnation);
        if self.former.len() == FORMER {
            self.former.pop_front();
        }
        self.former.push_back(before);
    }

    /// Whether a packet for this endpoint is from before a restart of its sender.
    fn is_former(&mut self, identity: Identity) -> bool {
        let former = identity.to == self.own && self.former.contains(&identity.from);
        self.knocks += u32::from(former);
        former && self.knocks < KNOCKS
    }

    /// Of a control packet other than HELLO; `asks`: it may come from where DATA does.
    pub(super) fn judge(&mut self, source: SocketAddr, identity: Identity, asks: bool) -> Verdict {
        let there = self.is_at(source) || (asks && self.sends_data_from(source));
        if !there || self.is_former(identity) {
            return Verdict::Foreign;
        }
        if identity.to == self.own && self.peer == Some(identity.from) {
            self.knocks = 0;
            self.heard_from(source);
            Verdict::Ours
        } else {
            Verdict::Strange
        }
    }

    /// Whether DATA from there is the peer's.
    pub(super) fn sends_data_from(&self, source: SocketAddr) -> bool {
        self.address
            .is_some_and(|address| address.ip() == source.ip() || self.addresses.contains(&source.ip()))
            && self.ports.binary_search(&source.port()).is_ok()
    }

    /// Takes a HELLO.
    pub(super) fn on_hello(&mut self, source: SocketAddr, identity: Identity, hello: &Hello<'_>) -> Greeting {
        let elsewhere = self.address.is_some() && !self.is_at(source);
        let other = self.agreed.is_some_and(|agreed| agreed != identity.from);
        if identity.from == 0 || elsewhere || other || self.is_former(identity) {
            return Greeting::Foreign;
        }
        if identity.to != self.own {
            return Greeting::Unconfirmed;
        }
        let address = *self.address.get_or_insert(source);
        self.ports = hello.ports().collect();
        self.ports.sort_unstable();
        self.addresses = hello.addresses().collect();
        // What a peer claims of itself is no reason to send data to anybody else who is not a host.
        let hosts = self.addresses.iter().all(|ip| is_host(*ip) && ip.is_ipv4() == address.is_ipv4());
        if !hosts || !self.addresses.contains(&address.ip()) {
            self.addresses.clear();
        }
        match self.peer.replace(identity.from) {
            None => Greeting::Begun,
            Some(before) if before == identity.from => {
                self.knocks = 0;
                self.heard_from(source);
                Greeting::Known
            }
            Some(before) => {
                (self.knocks, self.confirmed, self.way) = (0, false, 0);
                self.supersede(before, identity.from);
                Greeting::Restarted
            }
        }
    }
}

/// Whether an address can be one host's.
fn is_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || broadcast)
}
