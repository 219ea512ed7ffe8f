// SPDX-License-Identifier: Apache-2.0
//! A switch with its hosts, and the events that happen there: what one thread runs without asking
//! others.

use super::event::{Event, Handed};
use super::host::{Around, Finish, Host};
use super::line::Line;
use super::network::{Network, Totals};
use super::packet::{Kind, Packet};
use super::random::Random;
use super::switch::{Served, Switch};
use super::topology::Node;
use super::workload::Begin;
use std::collections::BTreeMap;
use std::sync::Arc;
use trimwire_fabric::calendar::Calendar;
use trimwire_switch::engine::Spares;

/// See the module.
#[derive(Debug)]
pub(crate) struct Domain {
    number: u32,
    network: Arc<Network>,
    calendar: Calendar<Event>,
    hosts: Vec<Host>,
    coins: Vec<Random>,
    /// By host, what its switch calls the port.
    ingress: Vec<u16>,
    /// By host, the place of the port there, where PFC counts by ports.
    places: Vec<u16>,
    switches: Vec<Switch>,
    /// Ports that have something to send.
    asked: Vec<u32>,
    waiting: BTreeMap<u32, u32>,
    totals: Totals,
    pub(crate) finished: Vec<Finish>,
    pub(crate) began: Vec<(u32, u64)>,
    /// Frames for other domains.
    leaving: Vec<Handed>,
    /// Lent while events are handled.
    spares: Spares,
    now_ns: u64,
    /// Which of the network's ways its switches go by.
    era: usize,
    /// Of those finished, how many were counted.
    counted: usize,
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
                ingress: Vec::new(),
                places: Vec::new(),
                asked: Vec::new(),
                switches: Vec::new(),
                waiting: BTreeMap::new(),
                totals: Totals::default(),
                finished: Vec::new(),
                began: Vec::new(),
                leaving: Vec::new(),
                spares: Spares::default(),
                now_ns: 0,
                era: 0,
                counted: 0,
            })
            .collect();
        let mut ends = vec![(0_u32, 0_u32); network.hosts.len()];
        for planned in network.flows.iter().filter(|planned| !planned.computes()) {
            ends[planned.flow.source as usize].0 += 1;
            ends[planned.flow.destination as usize].1 += 1;
        }
        let cards = network.topology.cards();
        for (number, place) in (0_u32..).zip(&network.hosts) {
            let ((at, link, switch), (senders, receivers)) = (cards[number as usize], ends[number as usize]);
            let domain = &mut made[place.domain as usize];
            domain.hosts.push(Host::new(number, Line::new(link.rate_bps, link.delay_ns), senders, receivers));
            domain.coins.push(Random::new(network.seed, u64::from(number)));
            domain.ingress.push(network.ingress(at, switch));
            domain.places.push(network.place_of_port(at, switch));
        }
        for ((number, place), ports) in (0_u32..).zip(&network.switches).zip(network.topology.ports()) {
            made[place.domain as usize].switches.push(Switch::new(network, number, &ports));
        }
        for (number, planned) in (0_u32..).zip(&network.flows) {
            let place = network.hosts[planned.flow.source as usize];
            let domain = &mut made[place.domain as usize];
            if planned.waits_for == 0 || matches!(planned.begin, Begin::At(_)) {
                let at_ns = domain.hosts[place.index as usize].due_ns(0, planned);
                domain.calendar.push(at_ns, Event::Begin { flow: number });
            } else {
                domain.waiting.insert(number, planned.waits_for);
            }
        }
        for (era, (at_ns, _)) in (1..).zip(&network.later) {
            made.iter_mut().for_each(|domain| domain.calendar.push(*at_ns, Event::Reroute { era }));
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

    /// Flows of the foreground that have ended here since it was asked last.
    pub(crate) fn count_finished(&mut self) -> u64 {
        let recent = self.finished[self.counted..].iter();
        self.counted = self.finished.len();
        recent.filter(|finish| self.network.flows[finish.flow as usize].foreground).count() as u64
    }

    /// Takes a frame of another domain in.
    pub(crate) fn take(&mut self, at_ns: u64, event: Event) {
        self.calendar.push(at_ns, event);
    }

    /// Virtual time of the last event.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Handles all events before `end_ns`, and returns how many frames arrived. Frames for other
    /// domains are added to `leaving`. Programs use the buffers in `spares`.
    pub(crate) fn run(&mut self, end_ns: u64, leaving: &mut Vec<Handed>, spares: &mut Spares) -> u64 {
        let before = self.totals.hops;
        std::mem::swap(&mut self.leaving, leaving);
        std::mem::swap(&mut self.spares, spares);
        while let Some((at_ns, event)) = self.calendar.pop_before(end_ns) {
            debug_assert!(at_ns >= self.now_ns, "time runs forward");
            self.now_ns = at_ns;
            self.handle(event);
        }
        std::mem::swap(&mut self.leaving, leaving);
        std::mem::swap(&mut self.spares, spares);
        self.totals.hops - before
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival { node, packet } if packet.kind == Kind::Pause => self.hold(node, &packet),
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
                self.switches[index].woken(port);
                self.serve(switch, index, port);
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
            Event::Reroute { era } => self.era = era as usize,
        }
    }

    /// Calls a host and sends what it has to send.
    fn at_host(&mut self, number: u32, act: impl FnOnce(&mut Host, &mut Around<'_>)) {
        let index = self.network.hosts[number as usize].index as usize;
        let mut left = self.with_host(index, |host, around| {
            act(host, around);
            host.poll_transmit(around)
        });
        while let Some((at_ns, packet)) = left.take() {
            let line = &self.hosts[index].line;
            let (up, loss, peer) = (line.up, line.loss, self.network.routes.attached(number));
            if up && !(loss > 0.0 && self.coins[index].unit() < loss) {
                let packet = Packet { ingress: self.places[index], ..packet };
                self.leave(at_ns, Node::Switch(peer), self.ingress[index], packet);
            } else {
                self.totals.lost += u64::from(packet.kind == Kind::Data);
            }
            left = self.with_host(index, Host::poll_transmit);
        }
    }

    fn with_host<R>(&mut self, index: usize, act: impl FnOnce(&mut Host, &mut Around<'_>) -> R) -> R {
        let Self { network, hosts, calendar, totals, finished, waiting, began, now_ns, .. } = self;
        act(
            &mut hosts[index],
            &mut Around { now_ns: *now_ns, network, calendar, totals, finished, waiting, began },
        )
    }

    /// Puts a packet on its way; `ingress` is what the switch that gets it calls the port.
    fn leave(&mut self, at_ns: u64, node: Node, ingress: u16, mut packet: Packet) {
        if let Some(programs) = self.network.reads_heads(node) {
            let head = packet.head.take().unwrap_or_else(|| Box::new(programs.head(&packet)));
            packet.head.insert(head).ingress = ingress;
        }
        let (domain, event) = (place(&self.network, node).0, Event::Arrival { node, packet });
        if domain == self.number {
            self.calendar.push(at_ns, event);
        } else {
            self.leaving.push(Handed { at_ns, from: self.number, to: domain, event });
        }
    }

    /// A switch takes a packet.
    fn forward(&mut self, number: u32, packet: Packet) {
        let index = self.network.switches[number as usize].index as usize;
        let data = packet.kind == Kind::Data;
        let mut asked = std::mem::take(&mut self.asked);
        let routes = self.network.ways(self.era);
        if !self.switches[index].take(self.now_ns, routes, packet, &mut asked, &mut self.spares) {
            self.totals.lost += u64::from(data);
        }
        asked.drain(..).for_each(|port| self.serve(number, index, port));
        self.asked = asked;
    }

    /// The other end of a link wants a priority held, or lets it go on.
    fn hold(&mut self, node: Node, frame: &Packet) {
        match node {
            Node::Host(host) => self.at_host(host, |host, around| host.hold(around.now_ns, frame)),
            Node::Switch(switch) => {
                let index = self.network.switches[switch as usize].index as usize;
                self.switches[index].hold(self.now_ns, frame);
                self.serve(switch, index, frame.ingress.into());
            }
        }
    }

    /// Puts a port's next frame on its line, if that is free.
    fn serve(&mut self, number: u32, index: usize, port: u32) {
        match self.switches[index].send(self.now_ns, &self.network, port, &mut self.spares) {
            Served::Away(at_ns, node, ingress, packet) => self.leave(at_ns, node, ingress, packet),
            Served::Lost(packet) => self.totals.lost += u64::from(packet.kind == Kind::Data),
            Served::Nothing => {}
        }
        if let Some(at_ns) = self.switches[index].wake(self.now_ns, port) {
            self.calendar.push(at_ns, Event::PortFree { switch: number, port });
        }
        // What left may have made room elsewhere.
        if let Some(port) = self.switches[index].asked() {
            self.serve(number, index, port);
        }
    }

    fn change(&mut self, number: u32) {
        let change = self.network.changes[number as usize];
        let link = self.network.topology.links[change.link];
        for end in link.ends {
            let (domain, index) = place(&self.network, end);
            if domain != self.number {
                continue;
            }
            match end {
                Node::Host(host) => {
                    let line = &mut self.hosts[index].line;
                    (line.up, line.loss) = (change.up, change.loss);
                    if self.network.rule.pfc().is_some() {
                        self.at_host(host, |host, around| host.forget_holds(around.now_ns));
                    }
                }
                Node::Switch(switch) => {
                    let changed =
                        self.switches[index].change(self.now_ns, change.link, change.up, change.loss);
                    if let Some(port) = changed {
                        self.serve(switch, index, port);
                    }
                }
            }
        }
    }

    /// What happened here.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = self.totals.clone();
        self.switches.iter().for_each(|switch| totals.switches.add(&switch.counts()));
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
