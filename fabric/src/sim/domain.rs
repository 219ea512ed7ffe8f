//! A switch with its hosts, and the events that happen there: what one thread runs without asking others.

use super::calendar::Calendar;
use super::discipline::{Counts, Discipline};
use super::host::{Around, Finish, Host};
use super::line::Line;
use super::network::{Network, Totals};
use super::packet::{Kind, Packet};
use super::random::{Random, mix};
use super::topology::Node;
use super::workload::Begin;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Sender,
    Receiver,
}

/// What happens, at a node of the domain.
#[derive(Debug)]
pub(crate) enum Event {
    Arrival { node: Node, packet: Packet },
    PortFree { switch: u32, port: u32 },
    CardFree { host: u32 },
    Timer { host: u32, side: Side, slot: u32 },
    Pull { host: u32 },
    Begin { flow: u32 },
    Change { change: u32 },
}

#[derive(Debug)]
struct Port {
    line: Line,
    peer: Node,
    queues: Box<dyn Discipline>,
    counts: Counts,
    armed: bool,
    coin: Random,
}

#[derive(Debug)]
struct Switch {
    number: u32,
    ports: Vec<Port>,
    /// What tells its choice of paths from others'.
    salt: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Domain {
    number: u32,
    network: Arc<Network>,
    calendar: Calendar<Event>,
    hosts: Vec<Host>,
    coins: Vec<Random>,
    switches: Vec<Switch>,
    waiting: BTreeMap<u32, u32>,
    totals: Totals,
    pub(crate) finished: Vec<Finish>,
    pub(crate) began: Vec<(u32, u64)>,
    /// By domain: frames that arrive there, and when.
    pub(crate) leaving: Vec<Vec<(u64, Event)>>,
    now_ns: u64,
    /// Of those finished, how many were looked at, and how many are of the foreground.
    counted: (usize, u64),
}

impl Domain {
    /// All domains of a network, with what begins by itself in their calendars.
    pub(crate) fn all(network: &Arc<Network>) -> Vec<Self> {
        let domains = network.domains as usize;
        let mut made: Vec<Self> = (0..domains)
            .map(|number| Self {
                number: number as u32,
                network: Arc::clone(network),
                calendar: Calendar::default(),
                hosts: Vec::new(),
                coins: Vec::new(),
                switches: Vec::new(),
                waiting: BTreeMap::new(),
                totals: Totals::default(),
                finished: Vec::new(),
                began: Vec::new(),
                leaving: (0..domains).map(|_| Vec::new()).collect(),
                now_ns: 0,
                counted: (0, 0),
            })
            .collect();
        let mut ends = vec![(0_u32, 0_u32); network.hosts.len()];
        for planned in &network.flows {
            ends[planned.flow.source as usize].0 += 1;
            ends[planned.flow.destination as usize].1 += 1;
        }
        let cards = network.topology.cards();
        for (number, place) in (0_u32..).zip(&network.hosts) {
            let (link, (senders, receivers)) = (cards[number as usize].0, ends[number as usize]);
            let domain = &mut made[place.domain as usize];
            domain.hosts.push(Host::new(number, Line::new(link.rate_bps, link.delay_ns), senders, receivers));
            domain.coins.push(Random::new(network.seed, u64::from(number)));
        }
        for ((number, place), ports) in (0_u32..).zip(&network.switches).zip(network.topology.ports()) {
            let port = |(port, (link, peer)): (u64, &(_, Node))| {
                let link: &super::topology::Link = link;
                let place = (u64::from(number) + 1) << 32 | port;
                Port {
                    line: Line::new(link.rate_bps, link.delay_ns),
                    peer: *peer,
                    queues: network.rule.build(network.seed, place),
                    counts: Counts::default(),
                    armed: false,
                    coin: Random::new(network.seed, place),
                }
            };
            let ports = (0..).zip(&ports).map(port).collect();
            let salt = mix(network.seed ^ mix(u64::from(number)));
            made[place.domain as usize].switches.push(Switch { number, ports, salt });
        }
        for (number, planned) in (0_u32..).zip(&network.flows) {
            let domain = &mut made[network.hosts[planned.flow.source as usize].domain as usize];
            match planned.begin {
                Begin::At(at_ns) => domain.calendar.push(at_ns, Event::Begin { flow: number }),
                Begin::Later(pause_ns) if planned.waits_for == 0 => {
                    domain.calendar.push(pause_ns, Event::Begin { flow: number });
                }
                Begin::Later(_) => {
                    domain.waiting.insert(number, planned.waits_for);
                }
            }
        }
        // Both ends' domains hear of a change.
        for (number, change) in (0_u32..).zip(&network.changes) {
            let mut told: Vec<u32> = Vec::new();
            for end in network.topology.links[change.link].ends {
                let domain = place(network, end).0;
                if !told.contains(&domain) {
                    told.push(domain);
                    made[domain as usize].calendar.push(change.at_ns, Event::Change { change: number });
                }
            }
        }
        made
    }

    /// Time of the next event.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.calendar.next_at()
    }

    /// Flows of the foreground that have ended here.
    pub(crate) fn count_finished(&mut self) -> u64 {
        let recent = self.finished[self.counted.0..].iter();
        let foreground = |finish: &&Finish| self.network.flows[finish.flow as usize].foreground;
        self.counted = (self.finished.len(), self.counted.1 + recent.filter(foreground).count() as u64);
        self.counted.1
    }

    /// Takes frames of another domain in.
    pub(crate) fn take(&mut self, frames: impl Iterator<Item = (u64, Event)>) {
        frames.for_each(|(at_ns, event)| self.calendar.push(at_ns, event));
    }

    /// Virtual time of the last event.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Handles all events before `end_ns`.
    pub(crate) fn run(&mut self, end_ns: u64) {
        while let Some((at_ns, event)) = self.calendar.pop_before(end_ns) {
            debug_assert!(at_ns >= self.now_ns, "time runs forward");
            self.now_ns = at_ns;
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival { node: Node::Host(host), packet } => {
                self.totals.hops += 1;
                self.at_host(host, |host, around| host.handle_packet(around, &packet));
            }
            Event::Arrival { node: Node::Switch(switch), packet } => {
                self.totals.hops += 1;
                self.forward(switch, packet);
            }
            Event::PortFree { switch, port } => {
                let index = self.network.switches[switch as usize].index as usize;
                self.switches[index].ports[port as usize].armed = false;
                self.serve(index, port);
            }
            Event::CardFree { host } => self.at_host(host, |host, _| host.handle_free()),
            Event::Timer { host, side, slot } => {
                self.at_host(host, |host, around| host.handle_timer(around, side, slot));
            }
            Event::Pull { host } => self.at_host(host, Host::handle_pull),
            Event::Begin { flow } => {
                let host = self.network.flows[flow as usize].flow.source;
                self.at_host(host, |host, around| host.begin(around, flow));
            }
            Event::Change { change } => self.change(change),
        }
    }

    /// Calls a host and sends what it has to send.
    fn at_host(&mut self, number: u32, act: impl FnOnce(&mut Host, &mut Around<'_>)) {
        let network = Arc::clone(&self.network);
        let index = network.hosts[number as usize].index as usize;
        let Self { hosts, calendar, totals, finished, waiting, began, now_ns, .. } = self;
        let mut around =
            Around { now_ns: *now_ns, network: &network, calendar, totals, finished, waiting, began };
        let host = &mut hosts[index];
        act(host, &mut around);
        let mut left = host.poll_transmit(&mut around);
        while let Some((at_ns, packet)) = left.take() {
            let line = &self.hosts[index].line;
            let (up, loss, peer) = (line.up, line.loss, self.network.routes.attached(number));
            if up && !(loss > 0.0 && self.coins[index].unit() < loss) {
                self.leave(at_ns, Node::Switch(peer), packet);
            } else {
                self.totals.lost += u64::from(packet.kind == Kind::Data);
            }
            let Self { hosts, calendar, totals, finished, waiting, began, now_ns, .. } = self;
            let mut around =
                Around { now_ns: *now_ns, network: &network, calendar, totals, finished, waiting, began };
            left = hosts[index].poll_transmit(&mut around);
        }
    }

    fn leave(&mut self, at_ns: u64, node: Node, packet: Packet) {
        let (domain, event) = (place(&self.network, node).0, Event::Arrival { node, packet });
        if domain == self.number {
            self.calendar.push(at_ns, event);
        } else {
            self.leaving[domain as usize].push((at_ns, event));
        }
    }

    /// A switch takes a packet: the route, the choice among equal ports, the queue.
    fn forward(&mut self, number: u32, packet: Packet) {
        let index = self.network.switches[number as usize].index as usize;
        let switch = &mut self.switches[index];
        let ports = self.network.routes.ports(number, packet.destination);
        let up = ports.iter().filter(|&&port| switch.ports[port as usize].line.up).count();
        if up == 0 {
            self.totals.lost += u64::from(packet.kind == Kind::Data);
            return;
        }
        // Whoever keeps the flow and the entropy keeps the path.
        let draw = mix(switch.salt ^ (u64::from(packet.flow) << 16 | u64::from(packet.entropy)));
        let nth = if up == 1 { 0 } else { (draw % up as u64) as usize };
        let Some(&port) = ports.iter().filter(|&&port| switch.ports[port as usize].line.up).nth(nth) else {
            return;
        };
        let at = &mut switch.ports[port as usize];
        at.counts.offered += u64::from(packet.kind == Kind::Data);
        at.queues.enqueue(self.now_ns, packet, &mut at.counts);
        at.counts.most_bytes = at.counts.most_bytes.max(at.queues.bytes());
        self.serve(index, port);
    }

    /// Puts a port's next frame on its line, if that is free.
    fn serve(&mut self, index: usize, port: u32) {
        let switch = &mut self.switches[index];
        let at = &mut switch.ports[port as usize];
        if at.line.free_at_ns <= self.now_ns
            && let Some(packet) = at.queues.dequeue()
        {
            let at_ns = at.line.transmit(self.now_ns, packet.length);
            let gone = !at.line.up || (at.line.loss > 0.0 && at.coin.unit() < at.line.loss);
            let peer = at.peer;
            if gone {
                self.totals.lost += u64::from(packet.kind == Kind::Data);
            } else {
                self.leave(at_ns, peer, packet);
            }
        }
        let switch = &mut self.switches[index];
        let at = &mut switch.ports[port as usize];
        if at.queues.bytes() > 0 && !std::mem::replace(&mut at.armed, true) {
            let event = Event::PortFree { switch: switch.number, port };
            self.calendar.push(at.line.free_at_ns.max(self.now_ns), event);
        }
    }

    fn change(&mut self, number: u32) {
        let change = self.network.changes[number as usize];
        let link = self.network.topology.links[change.link];
        for (end, other) in [(link.ends[0], link.ends[1]), (link.ends[1], link.ends[0])] {
            let (domain, index) = place(&self.network, end);
            if domain != self.number {
                continue;
            }
            let line = match end {
                Node::Host(_) => Some(&mut self.hosts[index].line),
                Node::Switch(_) => {
                    let ports = &mut self.switches[index].ports;
                    ports.iter_mut().find(|port| port.peer == other).map(|port| &mut port.line)
                }
            };
            if let Some(line) = line {
                (line.up, line.loss) = (change.up, change.loss);
            }
        }
    }

    /// What happened here.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = self.totals.clone();
        for port in self.switches.iter().flat_map(|switch| &switch.ports) {
            totals.switches.add(&port.counts);
        }
        self.hosts.iter().for_each(|host| host.count_open(&mut totals));
        totals.memory = self.calendar.memory();
        totals
    }
}

/// Domain and place of a node.
fn place(network: &Network, node: Node) -> (u32, usize) {
    let place = match node {
        Node::Host(host) => network.hosts[host as usize],
        Node::Switch(switch) => network.switches[switch as usize],
    };
    (place.domain, place.index as usize)
}
