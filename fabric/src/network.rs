// SPDX-License-Identifier: Apache-2.0
//! Nodes joined by links, driven by the event queue.

use crate::calendar::Calendar;

/// A frame that leaves a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// The node's port.
    pub port: u16,
    /// The whole Ethernet frame, without FCS.
    pub frame: Vec<u8>,
    /// When its last bit leaves the port; it arrives one propagation delay later.
    pub end_ns: u64,
}

/// A sans-IO machine with ports.
///
/// After every `handle_*` call the network drains `poll_transmit` until it gives `None` and then
/// asks `poll_timeout` once; a node that answers `Some(t)` gets `handle_timeout` at `t`, or an
/// earlier call.
pub trait Node {
    /// The last bit of a frame has arrived.
    fn handle_frame(&mut self, now_ns: u64, port: u16, frame: Vec<u8>);
    /// The time that `poll_timeout` named has come.
    fn handle_timeout(&mut self, now_ns: u64);
    /// The next frame that starts on its way now.
    fn poll_transmit(&mut self, now_ns: u64) -> Option<Departure>;
    /// When the node wants to be called next.
    fn poll_timeout(&self) -> Option<u64>;
}

/// Index of a node in its [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(usize);

/// Why a link cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// The port already has a link.
    #[error("port {port} of node {node} already has a link")]
    PortTaken {
        /// The node's index.
        node: usize,
        /// The port.
        port: u16,
    },
}

#[derive(Debug)]
enum Event {
    Arrival { node: NodeId, port: u16, frame: Vec<u8> },
    Wake { node: NodeId },
}

#[derive(Debug, Clone, Copy)]
struct Link {
    peer: NodeId,
    peer_port: u16,
    delay_ns: u64,
    up: bool,
}

#[derive(Debug)]
struct Slot<N> {
    node: N,
    /// By port number.
    links: Vec<Option<Link>>,
    /// The earliest wake-up that stands in the queue; later ones are stale and ignored.
    wake_at: Option<u64>,
}

/// A network in virtual time.
#[derive(Debug)]
pub struct Network<N> {
    slots: Vec<Slot<N>>,
    events: Calendar<Event>,
    now_ns: u64,
    delivered: u64,
    lost: u64,
}

impl<N> Default for Network<N> {
    fn default() -> Self {
        Self { slots: Vec::new(), events: Calendar::default(), now_ns: 0, delivered: 0, lost: 0 }
    }
}

impl<N: Node> Network<N> {
    /// Adds a node.
    pub fn add(&mut self, node: N) -> NodeId {
        self.slots.push(Slot { node, links: Vec::new(), wake_at: None });
        NodeId(self.slots.len() - 1)
    }

    /// Joins two ports by a full-duplex link. Serialisation is the sending port's business: the
    /// link only adds its propagation delay.
    pub fn link(&mut self, a: (NodeId, u16), b: (NodeId, u16), delay_ns: u64) -> Result<(), LinkError> {
        for (node, port) in [a, b] {
            if self.link_of(node, port).is_some() {
                return Err(LinkError::PortTaken { node: node.0, port });
            }
        }
        for ((node, port), (peer, peer_port)) in [(a, b), (b, a)] {
            let links = &mut self.slots[node.0].links;
            if links.len() <= port as usize {
                links.resize(port as usize + 1, None);
            }
            links[port as usize] = Some(Link { peer, peer_port, delay_ns, up: true });
        }
        Ok(())
    }

    /// Takes the link at a port down or up, in both directions; frames that meet a link that is
    /// down are lost.
    pub fn set_link(&mut self, (node, port): (NodeId, u16), up: bool) {
        let Some(link) = self.link_of(node, port) else { return };
        for (node, port) in [(node, port), (link.peer, link.peer_port)] {
            if let Some(Some(link)) = self.slots[node.0].links.get_mut(port as usize) {
                link.up = up;
            }
        }
    }

    /// Virtual time, ns.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Frames handed to a node so far: the packet-hops of the simulation.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Frames lost because their port has no link, or one that is down.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &N {
        &self.slots[id.0].node
    }

    /// Changes a node from outside (an application acts) and puts what follows into motion.
    pub fn with_node<R>(&mut self, id: NodeId, act: impl FnOnce(u64, &mut N) -> R) -> R {
        let now_ns = self.now_ns;
        let result = act(now_ns, &mut self.slots[id.0].node);
        self.settle(id);
        result
    }

    /// Moves the clock to `now_ns` when nothing happens before; true if it got there.
    pub fn advance_to(&mut self, now_ns: u64) -> bool {
        self.forget_replaced_wakes();
        match self.events.next_at() {
            Some(next) if next < now_ns => false,
            _ => {
                self.now_ns = self.now_ns.max(now_ns);
                true
            }
        }
    }

    /// Time of the next event.
    pub fn next_at(&self) -> Option<u64> {
        self.events.next_at()
    }

    /// Handles the next event; gives the node it happened to, or `None` when nothing is left to
    /// happen.
    pub fn step(&mut self) -> Option<NodeId> {
        loop {
            let (at_ns, event) = self.events.pop()?;
            debug_assert!(at_ns >= self.now_ns, "time runs forward");
            self.now_ns = at_ns;
            match event {
                Event::Arrival { node, port, frame } => {
                    self.delivered += 1;
                    self.slots[node.0].node.handle_frame(at_ns, port, frame);
                    self.settle(node);
                    return Some(node);
                }
                Event::Wake { node } => {
                    let slot = &mut self.slots[node.0];
                    if slot.wake_at != Some(at_ns) {
                        continue; // an earlier wake-up has replaced this one
                    }
                    slot.wake_at = None;
                    slot.node.handle_timeout(at_ns);
                    self.settle(node);
                    return Some(node);
                }
            }
        }
    }

    /// Takes replaced wake-ups off the head of the queue: nothing happens at their time, and what
    /// comes behind them may be far in the future.
    fn forget_replaced_wakes(&mut self) {
        while let Some((at_ns, &Event::Wake { node })) = self.events.peek() {
            if self.slots[node.0].wake_at == Some(at_ns) {
                break;
            }
            self.events.pop();
        }
    }

    fn link_of(&self, node: NodeId, port: u16) -> Option<Link> {
        self.slots[node.0].links.get(port as usize).copied().flatten()
    }

    /// Drains what a node has to send and re-arms its timer.
    fn settle(&mut self, id: NodeId) {
        while let Some(departure) = self.slots[id.0].node.poll_transmit(self.now_ns) {
            match self.link_of(id, departure.port) {
                Some(link) if link.up => self.events.push(
                    departure.end_ns.max(self.now_ns) + link.delay_ns,
                    Event::Arrival { node: link.peer, port: link.peer_port, frame: departure.frame },
                ),
                _ => self.lost += 1,
            }
        }
        let slot = &mut self.slots[id.0];
        if let Some(at_ns) = slot.node.poll_timeout() {
            // A timer in the past means "at once"; it must not turn the clock back.
            let at_ns = at_ns.max(self.now_ns);
            if slot.wake_at.is_none_or(|armed| at_ns < armed) {
                slot.wake_at = Some(at_ns);
                self.events.push(at_ns, Event::Wake { node: id });
            }
        }
    }
}

#[cfg(test)]
mod tests;
