// SPDX-License-Identifier: Apache-2.0
//! A switch as a sans-IO machine: engine and traffic manager under one clock that the caller owns.

use crate::engine::entity::IdleEntry;
use crate::engine::trace::{DropReason, Event, Record};
use crate::engine::{EgressOutcome, Enqueue, LoadError, Pipeline, QueueMetadata};
use crate::traffic::{Dequeued, PortConfig, QUEUES, QueueConfig, QueueStats, TrafficConfig, TrafficManager};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a switch is made of.
#[derive(Debug, Clone, Default)]
pub struct SwitchConfig {
    /// P4Runtime's device id.
    pub device_id: u64,
    /// Ports with a line or limit of their own.
    pub ports: BTreeMap<u16, PortConfig>,
    /// All other ports.
    pub default_port: PortConfig,
    /// Queues, buffer, unit of depths.
    pub traffic: TrafficConfig,
    /// The port whose packets go to the controller.
    pub cpu_port: Option<u16>,
    /// Seed of the program's `random`.
    pub seed: u64,
}

/// A frame on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Egress port.
    pub port: u16,
    /// The whole frame, without FCS. [`Switch::recycle`] takes the buffer back.
    pub frame: Vec<u8>,
    /// When its first bit leaves.
    pub start_ns: u64,
    /// When its last bit has left.
    pub end_ns: u64,
}

/// Something for the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwitchEvent {
    /// A frame that left through the CPU port, `packet_in` header first.
    PacketIn(Vec<u8>),
    /// Entries that no packet has hit for as long as their idle time-outs; they stay in their
    /// tables.
    Idle(Vec<IdleEntry>),
}

/// Counters of the whole switch, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchStats {
    /// Frames received while no pipeline was loaded.
    pub without_pipeline: u64,
    /// Frames received.
    pub received: u64,
    /// Frames transmitted.
    pub transmitted: u64,
    /// Frames received on a port that is down.
    pub port_down: u64,
    /// Packets that a full or missing queue refused.
    pub queue_dropped: u64,
    /// Packets that the egress program dropped.
    pub egress_dropped: u64,
    /// Packet-ins lost because nobody took them.
    pub packet_in_lost: u64,
    /// Packet-outs lost because there is no CPU port, or too many waited.
    pub packet_out_lost: u64,
}

/// Packet-ins kept until somebody takes them, and packet-outs until the clock moves.
const MOST_EVENTS: usize = 1024;
/// Packets in queues that take all the memory that code runs on, so that short queues cost no time;
/// longer ones are packed.
const MOST_WHOLE: usize = 256;
/// Packets that one timeout may serve: recirculation in a program must not hang the caller.
const MOST_SERVED: usize = 65_536;

/// A switch.
///
/// Call [`handle_frame`](Self::handle_frame) for every frame received and
/// [`handle_timeout`](Self::handle_timeout) at the time that [`poll_timeout`](Self::poll_timeout)
/// names; after either, drain [`poll_transmit`](Self::poll_transmit) and
/// [`poll_event`](Self::poll_event). `now_ns` never runs backwards.
#[derive(Debug)]
pub struct Switch {
    config: SwitchConfig,
    pipeline: Option<Pipeline>,
    traffic: TrafficManager<Enqueue>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<SwitchEvent>,
    /// There is one of idle entries among them.
    idle_told: bool,
    packet_outs: VecDeque<Vec<u8>>,
    /// Ports that are down.
    down: BTreeSet<u16>,
    scratch: Vec<Enqueue>,
    stats: SwitchStats,
    now_ns: u64,
    tracing: bool,
    /// Packets in queues that are not packed.
    whole: usize,
}

impl Switch {
    /// A switch without a program: it drops everything, as `--no-p4` asks for.
    pub fn new(config: SwitchConfig) -> Self {
        let mut traffic = TrafficManager::with_config(config.default_port, config.traffic.clone());
        for (&port, &line) in &config.ports {
            traffic.configure(port, line);
        }
        Self {
            config,
            pipeline: None,
            traffic,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            idle_told: false,
            packet_outs: VecDeque::new(),
            down: BTreeSet::new(),
            scratch: Vec::new(),
            stats: SwitchStats::default(),
            now_ns: 0,
            tracing: false,
            whole: 0,
        }
    }

    /// P4Runtime's device id.
    pub fn device_id(&self) -> u64 {
        self.config.device_id
    }

    /// The port whose packets go to the controller.
    pub fn cpu_port(&self) -> Option<u16> {
        self.config.cpu_port
    }

    /// Loads p4c's BMv2 JSON. Tables start empty, queues are emptied; on an error the former
    /// program goes on.
    pub fn load_pipeline(&mut self, json: &[u8]) -> Result<(), LoadError> {
        drop(self.install_pipeline(Pipeline::load(json)?));
        Ok(())
    }

    /// Puts a program in place that was loaded before (VERIFY_AND_SAVE and COMMIT), and gives the
    /// one that ran: to drop a large one takes a while.
    pub fn install_pipeline(&mut self, mut pipeline: Pipeline) -> Option<Pipeline> {
        pipeline.seed(self.config.seed);
        let stopped: Vec<u16> = self.traffic.ports().filter(|port| !self.traffic.is_up(*port)).collect();
        self.down.iter().chain(&stopped).for_each(|port| pipeline.control().set_port_up(*port, false));
        pipeline.set_tracing(self.tracing);
        self.traffic.flush(drop);
        self.whole = 0;
        self.pipeline.replace(pipeline)
    }

    /// The loaded program, for the control plane.
    pub fn pipeline(&mut self) -> Option<&mut Pipeline> {
        self.pipeline.as_mut()
    }

    /// Notes for every packet what happens to it, or no longer; [`take_trace`](Self::take_trace)
    /// gives the notes.
    pub fn set_tracing(&mut self, on: bool) {
        self.tracing = on;
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.set_tracing(on);
        }
    }

    /// Whether what happens to packets is noted.
    pub fn tracing(&self) -> bool {
        self.tracing
    }

    /// Removes and returns what was noted since the last call, and the number of records lost
    /// because nobody took them.
    pub fn take_trace(&mut self) -> (Vec<Record>, u64) {
        self.pipeline.as_mut().map_or_else(Default::default, Pipeline::take_trace)
    }

    /// Sets a port's line and limits.
    pub fn configure_port(&mut self, port: u16, line: PortConfig) {
        self.traffic.configure(port, line);
    }

    /// Lets a port send at most so many frames from `now_ns` on, whatever its rate (`None`: any
    /// number); others wait in its queues, where the program sees them. For an interface that is
    /// slower than its port.
    pub fn grant(&mut self, now_ns: u64, port: u16, frames: Option<usize>) {
        self.traffic.grant(now_ns, port, frames);
    }

    /// A port's link went down, or came up again: groups leave out members that watch it. All links
    /// are up at first.
    pub fn set_link_up(&mut self, port: u16, up: bool) {
        let changed = if up { self.down.remove(&port) } else { self.down.insert(port) };
        if changed {
            self.tell_groups(port);
        }
    }

    /// The latest time that a caller has named, in ns.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// A port's line and limits.
    pub fn port_config(&self, port: u16) -> PortConfig {
        self.traffic.port_config(port)
    }

    /// The ports that were configured or used, by number.
    pub fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.traffic.ports()
    }

    /// Queues, buffer and unit of depths as they are set up.
    pub fn traffic_config(&self) -> &TrafficConfig {
        self.traffic.config()
    }

    /// Sets a queue of one port, or of all ports; false when ports have no such queue.
    pub fn configure_queue(&mut self, port: Option<u16>, queue: u8, config: QueueConfig) -> bool {
        self.traffic.configure_queue(port, queue, config)
    }

    /// A queue's settings; none when ports have no such queue.
    pub fn queue_config(&self, port: u16, queue: u8) -> Option<QueueConfig> {
        self.traffic.queue_config(port, queue)
    }

    /// Sets the shared buffer's size; `None` is without bound.
    pub fn configure_buffer(&mut self, bytes: Option<u64>) {
        self.traffic.configure_buffer(bytes);
    }

    /// Bytes that wait in all queues.
    pub fn buffered_bytes(&self) -> u64 {
        self.traffic.buffered_bytes()
    }

    /// Takes a port up or down. One that is down receives nothing, and drops what its queues hold
    /// and get; groups leave out members that watch it.
    pub fn set_port_up(&mut self, port: u16, up: bool) {
        let Self { traffic, pipeline, whole, .. } = self;
        traffic.set_up(port, up, |packet: Enqueue| {
            *whole -= usize::from(!packet.packet.is_packed());
            if let Some(pipeline) = pipeline {
                pipeline.recycle_packet(packet);
            }
        });
        self.tell_groups(port);
    }

    /// Lets action profile groups know whether a port can be used: its link is up, and so is the
    /// port itself.
    fn tell_groups(&mut self, port: u16) {
        let up = self.is_port_usable(port);
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.control().set_port_up(port, up);
        }
    }

    /// Whether a port can be used: it is up, and so is its link.
    pub fn is_port_usable(&self, port: u16) -> bool {
        !self.down.contains(&port) && self.traffic.is_up(port)
    }

    /// Whether a port is up.
    pub fn is_port_up(&self, port: u16) -> bool {
        self.traffic.is_up(port)
    }

    /// The last bit of a frame has arrived on `port`.
    pub fn handle_frame(&mut self, now_ns: u64, port: u16, frame: &[u8]) {
        self.now_ns = self.now_ns.max(now_ns);
        // A caller that is late: what was due earlier left before this frame, which must neither
        // overtake it nor see it in a queue.
        if self.traffic.next_service().is_some_and(|at_ns| at_ns < self.now_ns) {
            self.serve(self.now_ns - 1);
        }
        if !self.traffic.is_up(port) {
            self.stats.port_down += 1;
            return;
        }
        self.stats.received += 1;
        let Some(pipeline) = &mut self.pipeline else {
            self.stats.without_pipeline += 1;
            return;
        };
        let mut out = std::mem::take(&mut self.scratch);
        pipeline.ingress(self.now_ns, port, frame, &mut out);
        self.enqueue(&mut out);
        self.scratch = out;
        self.serve(self.now_ns);
    }

    /// A frame from the controller, `packet_out` header first; it enters through the CPU port at
    /// the next `handle_*`.
    pub fn packet_out(&mut self, frame: Vec<u8>) {
        if self.config.cpu_port.is_none() || self.packet_outs.len() >= MOST_EVENTS {
            self.stats.packet_out_lost += 1;
        } else {
            self.packet_outs.push_back(frame);
        }
    }

    /// The time that `poll_timeout` named has come.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        while let Some(frame) = self.packet_outs.pop_front() {
            if let Some(port) = self.config.cpu_port {
                self.handle_frame(self.now_ns, port, &frame);
            }
        }
        self.serve(self.now_ns);
        if self.idle_at().is_some_and(|at_ns| at_ns <= self.now_ns)
            && let Some(pipeline) = &mut self.pipeline
        {
            let idle = pipeline.control().take_idle_entries(self.now_ns);
            if !idle.is_empty() {
                self.events.push_back(SwitchEvent::Idle(idle));
                self.idle_told = true;
            }
        }
    }

    /// When the switch wants to be called next.
    pub fn poll_timeout(&self) -> Option<u64> {
        if !self.packet_outs.is_empty() {
            return Some(self.now_ns);
        }
        [self.traffic.next_service(), self.idle_at()].into_iter().flatten().min()
    }

    /// When entries become idle that there is room to tell of: what is taken from the program is
    /// told once, and the next when somebody has taken those before.
    fn idle_at(&self) -> Option<u64> {
        self.pipeline.as_ref().filter(|_| !self.idle_told).and_then(Pipeline::idle_at)
    }

    /// Whether no packet waits in a queue.
    pub fn is_empty(&self) -> bool {
        self.traffic.next_service().is_none()
    }

    /// The next frame that leaves.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next thing for the control plane.
    pub fn poll_event(&mut self) -> Option<SwitchEvent> {
        let event = self.events.pop_front();
        self.idle_told &= !matches!(event, Some(SwitchEvent::Idle(_)));
        event
    }

    /// Takes a transmitted frame's buffer back for reuse.
    pub fn recycle(&mut self, frame: Vec<u8>) {
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.recycle(frame);
        }
    }

    /// Bytes waiting in a queue.
    pub fn queue_depth_bytes(&self, port: u16, queue: u8) -> u64 {
        self.traffic.stats(port, queue).depth_bytes()
    }

    /// Counters of a queue.
    pub fn queue_stats(&self, port: u16, queue: u8) -> QueueStats {
        self.traffic.stats(port, queue)
    }

    /// Counters of every queue that has seen a packet, by port and queue.
    pub fn all_queue_stats(&self) -> BTreeMap<(u16, u8), QueueStats> {
        self.traffic
            .ports()
            .flat_map(|port| (0..QUEUES as u8).map(move |queue| (port, queue)))
            .map(|(port, queue)| ((port, queue), self.traffic.stats(port, queue)))
            .filter(|(_, stats)| *stats != QueueStats::default())
            .collect()
    }

    /// Counters of the whole switch.
    pub fn stats(&self) -> SwitchStats {
        self.stats
    }

    fn enqueue(&mut self, packets: &mut Vec<Enqueue>) {
        for mut packet in packets.drain(..) {
            let (port, queue, length) = (packet.port, packet.queue, packet.length);
            let number = packet.packet.trace_number();
            if let (true, Some(pipeline)) = (self.tracing, &mut self.pipeline) {
                pipeline.note_at(self.now_ns, number, || Event::Enqueued { port, queue, length });
            }
            let waits = self.whole >= MOST_WHOLE && self.traffic.admits(port, queue, length);
            if let (true, Some(pipeline)) = (waits, &mut self.pipeline) {
                pipeline.pack(&mut packet);
            }
            let whole = usize::from(!packet.packet.is_packed());
            self.whole += whole;
            if let Err(refused) = self.traffic.enqueue(self.now_ns, port, queue, length, packet) {
                self.stats.queue_dropped += 1;
                self.whole -= whole;
                if let Some(pipeline) = &mut self.pipeline {
                    pipeline.note_at(self.now_ns, number, || Event::Dropped(DropReason::Queue));
                    pipeline.recycle_packet(refused);
                }
            }
        }
    }

    /// Serves every port whose line is free at or before `until_ns`.
    fn serve(&mut self, until_ns: u64) {
        let mut out = std::mem::take(&mut self.scratch);
        for _ in 0..MOST_SERVED {
            let (Some(dequeued), Some(pipeline)) = (self.traffic.dequeue(until_ns), &mut self.pipeline)
            else {
                break;
            };
            let Dequeued { port, item, enqueued_ns, enqueue_depth, dequeue_depth, start_ns, .. } = dequeued;
            self.whole -= usize::from(!item.packet.is_packed());
            let meta = QueueMetadata {
                enq_timestamp_ns: enqueued_ns,
                enq_qdepth: enqueue_depth,
                // BMv2 takes the difference of two clocks in µs, so that the program's sums come
                // out: the later timestamp is the earlier one and the difference.
                deq_timedelta_ns: (start_ns / 1_000).saturating_sub(enqueued_ns / 1_000) * 1_000,
                deq_qdepth: dequeue_depth,
            };
            pipeline.note_at(start_ns, item.packet.trace_number(), || Event::Dequeued {
                port,
                queue: item.queue,
                waited_ns: meta.deq_timedelta_ns,
                enq_qdepth: meta.enq_qdepth,
                deq_qdepth: meta.deq_qdepth,
            });
            match pipeline.egress(start_ns, item, meta, &mut out) {
                EgressOutcome::Transmit { frame, .. } => {
                    let end_ns = self.traffic.transmitted(port, start_ns, frame.len());
                    self.stats.transmitted += 1;
                    if Some(port) != self.config.cpu_port {
                        self.transmits.push_back(Transmit { port, frame, start_ns, end_ns });
                    } else if self.events.len() < MOST_EVENTS {
                        self.events.push_back(SwitchEvent::PacketIn(frame));
                    } else {
                        self.stats.packet_in_lost += 1;
                    }
                }
                EgressOutcome::Drop => {
                    self.traffic.transmitted(port, start_ns, 0);
                    self.stats.egress_dropped += 1;
                }
                EgressOutcome::Recirculate => {
                    self.traffic.transmitted(port, start_ns, 0);
                }
            }
            self.enqueue(&mut out);
        }
        self.scratch = out;
    }
}
