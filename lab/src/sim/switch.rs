// SPDX-License-Identifier: Apache-2.0
//! A switch: to which port a packet goes, what becomes of it there, and when it leaves.
//!
//! ```text
//!  plain    packet ─► shortest ways, hash ─► discipline ─────────────────► line
//!  program  packet, head ─► P4 ingress ────► traffic manager ─► P4 egress ─► line
//! ```

use super::discipline::{Counts, Discipline};
use super::line::Line;
use super::network::Network;
use super::packet::{Ecn, Kind, PRIORITIES, Packet, Trimming};
use super::pfc::{Admitted, Hold, Ingress, is_lossless};
use super::random::{Random, mix};
use super::topology::{Link, Node, Routes};
use std::collections::VecDeque;
use trimwire_switch::PortConfig;
use trimwire_switch::engine::{EgressOutcome, Enqueue, Pipeline, QueueMetadata, Spares};
use trimwire_switch::traffic::TrafficManager;

/// What a queue holds at most where the program decides: as much as it lets in.
const QUEUE_LIMIT: u64 = 1 << 40;
/// Of a port's traffic manager, which has one.
const ONLY: u16 = 0;

/// A packet that waits in a switch with a program.
#[derive(Debug)]
struct Waiting {
    state: Enqueue,
    packet: Packet,
}

#[derive(Debug)]
enum Queues {
    Plain(Box<dyn Discipline>),
    Program(Box<TrafficManager<Waiting>>),
}

#[derive(Debug)]
struct Port {
    link: usize,
    line: Line,
    peer: Node,
    /// What the switch at the other end calls its port, where it runs the program.
    ingress: u16,
    /// Its place among the ports of the switch at the other end, where PFC counts by ports.
    place_there: u16,
    /// Pause frames, which go before all others.
    pauses: VecDeque<Packet>,
    hold: Hold,
    queues: Queues,
    counts: Counts,
    armed: bool,
    coin: Random,
}

/// The P4 engine, and what it calls the ports.
#[derive(Debug)]
struct Engine {
    pipeline: Pipeline,
    numbers: Vec<u16>,
    /// By its number, a port's place.
    places: Vec<Option<u32>>,
    out: Vec<Enqueue>,
}

#[derive(Debug)]
enum Way {
    /// What tells its choice of paths from others'.
    Plain {
        salt: u64,
    },
    Program(Box<Engine>),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Switch {
    number: u32,
    ports: Vec<Port>,
    /// Ports whose links do not work.
    down: u32,
    way: Way,
    /// Of packets that came to no port, with a program: all that came, and those that it dropped.
    counts: Counts,
    /// With PFC: what ports have taken in, and how long a pause takes to be obeyed.
    ingress: Option<Ingress>,
    response_ns: u64,
    /// A port that has a pause frame to send.
    asked: Option<u32>,
}

/// What a port does when it is asked.
#[derive(Debug)]
pub(crate) enum Served {
    /// A frame that arrives at this time at this node, at this port of its program.
    Away(u64, Node, u16, Packet),
    /// A frame that nobody gets.
    Lost(Packet),
    /// Nothing.
    Nothing,
}

impl Switch {
    /// With empty queues; links are in the order of its ports.
    pub(crate) fn new(network: &Network, number: u32, links: &[(usize, Link, Node)]) -> Self {
        let program = network.programs.as_ref().and_then(|programs| programs.of(number));
        let port = |(port, &(link, ends, peer)): (u64, &(usize, Link, Node))| {
            let place = (u64::from(number) + 1) << 32 | port;
            let line = PortConfig { rate_bps: ends.rate_bps.max(1), queue_limit_bytes: QUEUE_LIMIT };
            Port {
                link,
                line: Line::new(ends.rate_bps, ends.delay_ns),
                peer,
                ingress: network.ingress(link, peer),
                place_there: network.place_of_port(link, peer),
                pauses: VecDeque::new(),
                hold: Hold::default(),
                queues: match program {
                    None => Queues::Plain(network.rule.build(network.seed, place)),
                    Some(_) => Queues::Program(Box::new(TrafficManager::new(line))),
                },
                counts: Counts::default(),
                armed: false,
                coin: Random::new(network.seed, place),
            }
        };
        let salt = mix(network.seed ^ mix(u64::from(number)));
        let way = program.map_or(Way::Plain { salt }, |program| {
            let mut pipeline = Pipeline::clone(&program.pipeline);
            pipeline.seed(salt);
            let most = program.ports.iter().max().map_or(0, |&most| usize::from(most) + 1);
            let mut places = vec![None; most];
            for (place, &number) in (0..).zip(&program.ports) {
                places[usize::from(number)] = Some(place);
            }
            Way::Program(Box::new(Engine {
                pipeline,
                numbers: program.ports.clone(),
                places,
                out: Vec::new(),
            }))
        });
        let pfc = network.rule.pfc().filter(|_| program.is_none());
        let ends = links.iter().map(|(_, ends, _)| (ends.rate_bps, ends.delay_ns));
        Self {
            number,
            ports: (0..).zip(links).map(port).collect(),
            down: 0,
            way,
            counts: Counts::default(),
            ingress: pfc.map(|pfc| Ingress::new(pfc, ends)),
            response_ns: pfc.map_or(0, |pfc| pfc.response_ns),
            asked: None,
        }
    }

    /// Takes a packet in; adds the ports that have something to send to `ports`. Gives whether
    /// there was a way.
    pub(crate) fn take(
        &mut self,
        now_ns: u64,
        routes: &Routes,
        mut packet: Packet,
        ports: &mut Vec<u32>,
        spares: &mut Spares,
    ) -> bool {
        let Way::Plain { salt } = self.way else {
            self.run(now_ns, packet, ports, spares);
            return true;
        };
        let ways = routes.ports(self.number, packet.destination);
        // Whoever keeps the flow and the entropy keeps the path.
        let draw = || mix(salt ^ (u64::from(packet.flow) << 16 | u64::from(packet.entropy)));
        let chosen = match ways {
            [] => None,
            [only] => Some(only).filter(|&&port| self.ports[port as usize].line.up),
            _ if self.down == 0 => ways.get((draw() % ways.len() as u64) as usize),
            _ => {
                let mut up = ways.iter().filter(|&&port| self.ports[port as usize].line.up);
                let count = up.clone().count().max(1);
                up.nth((draw() % count as u64) as usize)
            }
        };
        let Some(&port) = chosen else { return false };
        // What happens here no head tells of: the next program gets another one.
        packet.head = None;
        self.ports[port as usize].counts.offered += u64::from(packet.kind == Kind::Data);
        if !self.admit(port, &packet, ports) {
            return true;
        }
        let at = &mut self.ports[port as usize];
        if let Queues::Plain(queues) = &mut at.queues {
            let before = queues.bytes();
            queues.enqueue(now_ns, packet, &mut at.counts);
            at.counts.most_bytes = at.counts.most_bytes.max(queues.bytes());
            // A port that took nothing has no reason to send before the others' turns of this
            // instant.
            if queues.bytes() > before {
                ports.push(port);
            }
            if let Some(returned) = queues.returned() {
                return self.take(now_ns, routes, returned, ports, spares);
            }
        }
        true
    }

    /// Counts a packet where it came in, if there is PFC; whether there was room for it.
    fn admit(&mut self, port: u32, packet: &Packet, ports: &mut Vec<u32>) -> bool {
        let Some(ingress) = self.ingress.as_mut().filter(|_| is_lossless(packet.class)) else { return true };
        match ingress.admit(packet.ingress, packet.class, packet.length) {
            Admitted::Taken => {}
            Admitted::Pause => {
                let from = &mut self.ports[usize::from(packet.ingress)];
                from.counts.pauses += 1;
                from.pauses.push_back(Packet::pause(packet.class, true));
                ports.push(packet.ingress.into());
            }
            Admitted::Dropped => {
                self.ports[port as usize].counts.drop(packet);
                return false;
            }
        }
        true
    }

    /// A packet that was counted leaves.
    fn release(&mut self, packet: &Packet) {
        let Some(ingress) = self.ingress.as_mut().filter(|_| is_lossless(packet.class)) else { return };
        if ingress.release(packet.ingress, packet.class, packet.length) {
            self.ports[usize::from(packet.ingress)].pauses.push_back(Packet::pause(packet.class, false));
            self.asked = Some(packet.ingress.into());
        }
    }

    /// A pause frame has come at a port, to hold a priority or to let it go on.
    pub(crate) fn hold(&mut self, now_ns: u64, frame: &Packet) {
        let Some(at) = self.ports.get_mut(usize::from(frame.ingress)) else { return };
        at.hold.set(now_ns, frame.class, frame.echo);
        if let Queues::Plain(queues) = &mut at.queues {
            queues.hold(frame.class, frame.echo);
        }
    }

    /// A port that has a pause frame to send since it was asked last.
    pub(crate) fn asked(&mut self) -> Option<u32> {
        self.asked.take()
    }

    /// Has the program look at a packet.
    fn run(&mut self, now_ns: u64, packet: Packet, ports: &mut Vec<u32>, spares: &mut Spares) {
        let Way::Program(engine) = &mut self.way else { return };
        self.counts.offered += u64::from(packet.kind == Kind::Data);
        let Engine { pipeline, places, out, .. } = &mut **engine;
        pipeline.lend(spares);
        if let Some(head) = &packet.head {
            pipeline.ingress_head(now_ns, head.ingress, head.of(packet.length), packet.length as usize, out);
        }
        if out.is_empty() {
            self.counts.drop(&packet);
        }
        // More than one are copies, for a group.
        let mut packets = std::iter::repeat_n(packet, out.len());
        for state in out.drain(..) {
            let Some(mut packet) = packets.next() else { break };
            let place = places.get(usize::from(state.port)).copied().flatten();
            let Some(at) = place.and_then(|place| self.ports.get_mut(place as usize)) else {
                self.counts.drop(&packet);
                pipeline.recycle_packet(state);
                continue;
            };
            if state.length < packet.length && packet.trimming == Trimming::Trimmable {
                at.counts.trimmed += 1;
            }
            packet.length = state.length;
            let (queue, length) = (state.queue, state.length);
            let Queues::Program(queues) = &mut at.queues else { continue };
            if let Err(refused) = queues.enqueue(now_ns, ONLY, queue, length, Waiting { state, packet }) {
                at.counts.drop(&refused.packet);
                pipeline.recycle_packet(refused.state);
            }
            at.counts.most_bytes = at.counts.most_bytes.max(queues.buffered_bytes());
            ports.extend(place);
        }
        pipeline.lend(spares);
    }

    /// Puts a port's next frame on its line, if that is free.
    pub(crate) fn send(&mut self, now_ns: u64, network: &Network, port: u32, spares: &mut Spares) -> Served {
        let at = &mut self.ports[port as usize];
        let (arrives_ns, packet) = match &mut at.queues {
            Queues::Plain(queues) => {
                if at.line.free_at_ns > now_ns {
                    return Served::Nothing;
                }
                if let Some(frame) = at.pauses.pop_front() {
                    return self.send_pause(now_ns, port, frame);
                }
                let Some(packet) = queues.dequeue() else { return Served::Nothing };
                let arrives_ns = at.line.transmit(now_ns, packet.length);
                self.release(&packet);
                (arrives_ns, packet)
            }
            Queues::Program(_) => match self.leave(now_ns, network, port, spares) {
                Some((end_ns, packet)) => (end_ns + self.ports[port as usize].line.delay_ns, packet),
                None => return Served::Nothing,
            },
        };
        let at = &mut self.ports[port as usize];
        if !at.line.up || (at.line.loss > 0.0 && at.coin.unit() < at.line.loss) {
            return Served::Lost(packet);
        }
        Served::Away(arrives_ns, at.peer, at.ingress, Packet { ingress: at.place_there, ..packet })
    }

    fn send_pause(&mut self, now_ns: u64, port: u32, frame: Packet) -> Served {
        let at = &mut self.ports[port as usize];
        let obeyed_ns = at.line.transmit(now_ns, frame.length) + self.response_ns;
        if !at.line.up {
            return Served::Lost(frame);
        }
        Served::Away(obeyed_ns, at.peer, at.ingress, Packet { ingress: at.place_there, ..frame })
    }

    /// The frame that a port's traffic manager serves, through the program's egress, and when its
    /// last bit leaves.
    fn leave(
        &mut self,
        now_ns: u64,
        network: &Network,
        port: u32,
        spares: &mut Spares,
    ) -> Option<(u64, Packet)> {
        let at = &mut self.ports[port as usize];
        let (Queues::Program(queues), Way::Program(engine)) = (&mut at.queues, &mut self.way) else {
            return None;
        };
        // Who is dropped in egress leaves the line to the next.
        loop {
            let served = queues.dequeue(now_ns)?;
            let Waiting { state, mut packet } = served.item;
            let meta = QueueMetadata {
                enq_timestamp_ns: served.enqueued_ns,
                enq_qdepth: served.enqueue_depth,
                // As the switch's own driver has it: a difference of two clocks in µs.
                deq_timedelta_ns: (served.start_ns / 1_000).saturating_sub(served.enqueued_ns / 1_000)
                    * 1_000,
                deq_qdepth: served.dequeue_depth,
            };
            engine.pipeline.lend(spares);
            let outcome = engine.pipeline.egress(served.start_ns, state, meta, &mut engine.out);
            // Clones and what recirculates have no place in a simulated switch.
            for copy in engine.out.drain(..) {
                engine.pipeline.recycle_packet(copy);
            }
            engine.pipeline.lend(spares);
            if let EgressOutcome::Transmit { frame, length, .. } = outcome {
                let end_ns = queues.transmitted(ONLY, served.start_ns, length);
                let marked = packet.ecn;
                if let Some(programs) = &network.programs {
                    programs.leave(&mut packet, &frame, length);
                }
                at.counts.marked += u64::from(marked == Ecn::Ect && packet.ecn == Ecn::Ce);
                spares.recycle(frame);
                return Some((end_ns, packet));
            }
            queues.transmitted(ONLY, served.start_ns, 0);
            at.counts.drop(&packet);
        }
    }

    /// When a port wants to be asked again, if nobody has promised to.
    pub(crate) fn wake(&mut self, now_ns: u64, port: u32) -> Option<u64> {
        let at = &mut self.ports[port as usize];
        let wake = match &at.queues {
            Queues::Plain(queues) => {
                (queues.is_ready() || !at.pauses.is_empty()).then_some(at.line.free_at_ns)
            }
            Queues::Program(queues) => queues.next_service(),
        };
        let wake = wake.filter(|_| !at.armed)?;
        at.armed = true;
        Some(wake.max(now_ns))
    }

    /// Somebody has asked as promised.
    pub(crate) fn woken(&mut self, port: u32) {
        self.ports[port as usize].armed = false;
    }

    /// A link goes down, comes up, or loses frames. With PFC the port that is to be asked then: its
    /// pauses are forgotten.
    pub(crate) fn change(&mut self, now_ns: u64, link: usize, up: bool, loss: f64) -> Option<u32> {
        let mut asked = None;
        for (place, port) in self.ports.iter_mut().enumerate() {
            if port.link != link {
                continue;
            }
            (port.line.up, port.line.loss) = (up, loss);
            if let Some(ingress) = &mut self.ingress {
                ingress.forget(place);
                port.pauses.clear();
                port.hold.clear(now_ns);
                if let Queues::Plain(queues) = &mut port.queues {
                    (0..u8::MAX).take(PRIORITIES).for_each(|class| queues.hold(class, false));
                }
                asked = Some(place as u32);
            }
            if let Way::Program(engine) = &mut self.way {
                engine.pipeline.control().set_port_up(engine.numbers[place], up);
            }
        }
        self.down = self.ports.iter().filter(|port| !port.line.up).count() as u32;
        asked
    }

    /// What happened at all ports.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.counts;
        for port in &self.ports {
            counts.add(&port.counts);
            counts.paused_ns += port.hold.total_ns;
        }
        counts
    }
}
