//! Executes p4c's BMv2 JSON with v1model semantics.
//!
//! ```text
//!                JSON ── load ──► Program (never changes)      Control (tables, counters, registers, …)
//!                                      │                            ▲ control plane
//!  frame ─► parser ─► checksums ─► ingress ─► clone · resubmit · multicast ─► Enqueue ─► traffic manager
//!                                                                                              │
//!  frame ◄─ truncate ◄─ deparser ◄─ checksums ◄─ egress ◄───────────── Enqueue + QueueMetadata ┘
//!                          └─► recirculate: back to the parser
//! ```
//!
//! At load time names become slots in a flat packet header vector, and parsers, expressions, actions and tables
//! become trees and lists over those slots; a packet touches no string and allocates nothing once buffers have
//! been recycled. [`Pipeline`] owns no clock and no queue: callers pass `now_ns`, queue packets themselves and
//! tell egress what happened to them in the queue. BMv2's `simple_switch` is the reference, down to the order of
//! clone, resubmission, multicast and drop; where it would crash or read stale memory, the result here is 0, a
//! drop, or a parser error.
//!
//! Not here: queues, ports, P4Runtime. Refused at load, by name: arithmetic on more than 4224 bits, externs of other
//! architectures, and what p4c writes but BMv2 cannot read (a stack's `isValid` at an index known at run time).

#![forbid(unsafe_code)]

mod action;
mod bits;
mod calculation;
pub mod control;
mod control_flow;
pub mod entity;
pub mod error;
mod expression;
mod hash;
mod hasher;
mod intrinsic;
mod json;
mod layout;
mod packet;
mod parser;
mod profile;
mod program;
mod random;
mod replication;
mod stateful;
mod table;
pub mod trace;

pub use action::DROP_PORT;
pub use control::Control;
pub use error::{Code, ControlError, LoadError};

use action::Machine;
use control_flow::{Start, Tables};
use expression::{load, store};
use intrinsic::set;
use packet::{Packet, Requests};
use program::Program;
use random::Random;
use trace::{DropReason, Event, Gress, Origin, Recorder};

/// v1model's values of `standard_metadata.instance_type`.
mod instance_type {
    pub(super) const NORMAL: u64 = 0;
    pub(super) const INGRESS_CLONE: u64 = 1;
    pub(super) const EGRESS_CLONE: u64 = 2;
    pub(super) const RECIRCULATED: u64 = 4;
    pub(super) const REPLICATION: u64 = 5;
    pub(super) const RESUBMITTED: u64 = 6;
}

/// Times that one packet may be resubmitted before it is dropped: BMv2 would go on for ever.
const MOST_RESUBMISSIONS: u32 = 256;

/// Buffers kept for reuse.
const MOST_RECYCLED: usize = 4096;

/// Digests kept until someone takes them; later ones are lost.
const MOST_DIGESTS: usize = 4096;

/// A packet that ingress hands to the traffic manager.
#[derive(Debug)]
pub struct Enqueue {
    /// Egress port.
    pub port: u16,
    /// `standard_metadata.priority`; 7 is served first.
    pub queue: u8,
    /// Bytes the packet will occupy on the wire: headers as they stand, payload, after `truncate`.
    pub length: u32,
    /// Headers, metadata and payload, for [`Pipeline::egress`].
    pub packet: PacketState,
}

/// A packet between ingress and egress: opaque.
#[derive(Debug)]
pub struct PacketState(Box<Packet>);

impl PacketState {
    /// The port on which the packet entered the switch.
    pub fn ingress_port(&self) -> u16 {
        self.0.ingress_port
    }

    /// The packet's number in the trace; 0 while tracing is off.
    pub fn trace_number(&self) -> u64 {
        self.0.trace
    }
}

/// What the traffic manager tells egress about a packet's time in the queue (v1model's `enq_*`, `deq_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueMetadata {
    /// When the packet was enqueued.
    pub enq_timestamp_ns: u64,
    /// Depth of the queue when the packet was enqueued, in the unit the traffic manager uses.
    pub enq_qdepth: u32,
    /// Time the packet spent in the queue.
    pub deq_timedelta_ns: u64,
    /// Depth of the queue when the packet was dequeued.
    pub deq_qdepth: u32,
}

/// What became of a packet in egress.
#[derive(Debug, PartialEq, Eq)]
pub enum EgressOutcome {
    /// Send this frame. Hand the buffer back with [`Pipeline::recycle`] when done.
    Transmit {
        /// Egress port.
        port: u16,
        /// The whole frame, truncated if the program said so.
        frame: Vec<u8>,
    },
    /// The program dropped it.
    Drop,
    /// The program sent it back to ingress; the results are in the caller's `Enqueue` list.
    Recirculate,
}

/// A message of the program to its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The JSON's id of the field list.
    pub id: u16,
    /// Name of the field list, which is the digest's name in P4Info.
    pub name: String,
    /// One value per field.
    pub fields: Vec<entity::Value>,
}

/// A loaded program and its state.
///
/// For every received frame call [`ingress`](Self::ingress); queue what it appends to `out`; for every packet that
/// leaves a queue call [`egress`](Self::egress), which may append more to queue. Packets that the queues drop go to
/// [`recycle_packet`](Self::recycle_packet). `now_ns` never runs backwards.
#[derive(Debug)]
pub struct Pipeline {
    program: Program,
    control: Control,
    work: Work,
    /// Dead packets and frames, for reuse.
    #[expect(clippy::vec_box, reason = "they move to and from queues that hold boxes")]
    packets: Vec<Box<Packet>>,
    frames: Vec<Vec<u8>>,
    digests: Vec<Digest>,
}

/// The random stream, and scratch space that keeps its allocation from packet to packet.
#[derive(Debug)]
struct Work {
    random: Random,
    bytes: Vec<u8>,
    key: Vec<u64>,
    masked: Vec<u64>,
    /// Present while tracing is on.
    trace: Option<Box<Recorder>>,
}

/// Splits a pipeline into what actions may touch, what tables look up in, and the parser's value sets.
fn parts<'a>(
    program: &'a Program,
    control: &'a mut Control,
    work: &'a mut Work,
    now_ns: u64,
) -> (Machine<'a>, Tables<'a>, &'a [parser::ValueSet]) {
    if let Some(trace) = &mut work.trace {
        trace.set_time(now_ns);
    }
    let machine = Machine {
        layout: &program.layout,
        calculations: &program.calculations,
        counters: &mut control.counters,
        registers: &mut control.registers,
        meters: &mut control.meters,
        random: &mut work.random,
        scratch: &mut work.bytes,
        now_ns,
        trace: work.trace.as_deref_mut(),
    };
    let tables = Tables {
        nodes: &program.nodes,
        actions: &control.actions,
        tables: &mut control.tables,
        profiles: &control.profiles,
        key: &mut work.key,
        masked: &mut work.masked,
    };
    (machine, tables, &control.value_sets)
}

impl Pipeline {
    /// Compiles p4c's BMv2 JSON.
    ///
    /// # Errors
    /// What is not JSON, contradicts itself, or is not supported, by name and with its place in the P4 source.
    pub fn load(json: &[u8]) -> Result<Self, LoadError> {
        let (program, state) = program::load(json)?;
        let control = Control::new(state, program.digest_infos());
        Ok(Self {
            program,
            control,
            work: Work {
                random: Random::new(0),
                bytes: Vec::new(),
                key: Vec::new(),
                masked: Vec::new(),
                trace: None,
            },
            packets: Vec::new(),
            frames: Vec::new(),
            digests: Vec::new(),
        })
    }

    /// Seeds the program's `random`.
    pub fn seed(&mut self, seed: u64) {
        self.work.random = Random::new(seed);
    }

    /// Parser and ingress of one frame: zero, one or many (multicast, clones) packets are appended to `out`.
    pub fn ingress(&mut self, now_ns: u64, port: u16, frame: &[u8], out: &mut Vec<Enqueue>) {
        let mut packet = self.packets.pop().unwrap_or_default();
        packet.frame.clear();
        packet.frame.extend_from_slice(frame);
        packet.reset(&self.program.layout, frame.len());
        packet.ingress_port = port;
        let intrinsics = &self.program.intrinsics;
        store(&mut packet.phv, intrinsics.ingress_port, u128::from(port));
        store(&mut packet.phv, intrinsics.packet_length, frame.len() as u128);
        set(&mut packet.phv, intrinsics.ingress_timestamp, now_ns / 1000);
        if let Some(trace) = &mut self.work.trace {
            trace.set_time(now_ns);
            packet.trace = trace.number();
            trace.note(packet.trace, Event::Received { port, length: frame.len() });
        }
        self.run_ingress(now_ns, packet, out);
    }

    /// Egress and deparser of one packet. Egress clones and recirculated packets are appended to `out`.
    pub fn egress(
        &mut self,
        now_ns: u64,
        packet: Enqueue,
        meta: QueueMetadata,
        out: &mut Vec<Enqueue>,
    ) -> EgressOutcome {
        let Enqueue { port, queue, packet: PacketState(mut packet), .. } = packet;
        let intrinsics = &self.program.intrinsics;
        let phv = &mut packet.phv;
        set(phv, intrinsics.egress_timestamp, now_ns / 1000);
        set(phv, intrinsics.enq_timestamp, meta.enq_timestamp_ns / 1000);
        set(phv, intrinsics.enq_qdepth, u64::from(meta.enq_qdepth));
        set(phv, intrinsics.deq_timedelta, meta.deq_timedelta_ns / 1000);
        set(phv, intrinsics.deq_qdepth, u64::from(meta.deq_qdepth));
        set(phv, intrinsics.qid, u64::from(queue));
        store(phv, intrinsics.egress_port, u128::from(port));
        // BMv2 sets a value that is not the drop port; in nine bits it reads as 0.
        store(phv, intrinsics.egress_spec, u128::from(DROP_PORT) + 1);
        store(phv, intrinsics.packet_length, u128::from(packet.length));
        packet.exit = false;
        self.note(packet.trace, || Event::Pipeline(Gress::Egress));
        self.run_pipeline(now_ns, self.program.egress, &mut packet);
        if let Some(reason) = packet.failed {
            self.note(packet.trace, || Event::Dropped(reason(Gress::Egress)));
            self.retire(packet);
            return EgressOutcome::Drop;
        }
        if let Some((session, list)) = packet.requests.clone.take() {
            self.clone_egress(&packet, session, list, out);
        }
        if load(&packet.phv, self.program.intrinsics.egress_spec) == u128::from(DROP_PORT) {
            self.note(packet.trace, || Event::Dropped(DropReason::Program(Gress::Egress)));
            self.retire(packet);
            return EgressOutcome::Drop;
        }
        let mut frame = self.frames.pop().unwrap_or_default();
        frame.clear();
        self.deparse(now_ns, &mut packet, &mut frame);
        if packet.requests.recirculate != 0 {
            self.note(packet.trace, || Event::Recirculated);
            self.recirculate(now_ns, packet, &frame, out);
            self.recycle(frame);
            return EgressOutcome::Recirculate;
        }
        frame.truncate(packet.truncate);
        self.note(packet.trace, || Event::Transmitted { port, length: frame.len() });
        self.retire(packet);
        EgressOutcome::Transmit { port, frame }
    }

    /// Tables, action profiles, counters, registers, meters, replication.
    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// No entry becomes idle before this time, in ns. See [`Control::take_idle_entries`].
    pub fn idle_at(&self) -> Option<u64> {
        self.control.poll_idle_timeout()
    }

    /// Takes a frame's buffer back for reuse.
    pub fn recycle(&mut self, frame: Vec<u8>) {
        if self.frames.len() < MOST_RECYCLED {
            self.frames.push(frame);
        }
    }

    /// A packet the traffic manager dropped: takes its buffers back for reuse.
    pub fn recycle_packet(&mut self, packet: Enqueue) {
        self.retire(packet.packet.0);
    }

    /// Removes and returns the digests generated so far, oldest first.
    pub fn take_digests(&mut self) -> Vec<Digest> {
        std::mem::take(&mut self.digests)
    }

    /// Notes for every packet what happens to it, or no longer. Packets on their way when tracing begins are numbered 0.
    pub fn set_tracing(&mut self, on: bool) {
        match (on, self.work.trace.is_some()) {
            (true, false) => {
                self.work.trace = Some(Box::new(Recorder::new(self.program.names.clone())));
            }
            (false, true) => self.work.trace = None,
            _ => {}
        }
    }

    /// Removes and returns what was noted since the last call, and the number of records lost because nobody took
    /// them.
    pub fn take_trace(&mut self) -> (Vec<trace::Record>, u64) {
        self.work.trace.as_mut().map_or_else(Default::default, |trace| trace.take())
    }

    /// Notes what happens to a packet outside the program: `event` is only made while tracing is on.
    pub fn note_at(&mut self, now_ns: u64, packet: u64, event: impl FnOnce() -> Event) {
        if let Some(trace) = &mut self.work.trace {
            trace.set_time(now_ns);
            trace.note(packet, event());
        }
    }

    fn note(&mut self, packet: u64, event: impl FnOnce() -> Event) {
        if let Some(trace) = &mut self.work.trace {
            trace.note(packet, event());
        }
    }

    fn note_copy(&mut self, of: u64, copy: &mut Packet, origin: Origin) {
        if let Some(trace) = &mut self.work.trace {
            copy.trace = trace.number();
            trace.note(copy.trace, Event::Copied { of, origin });
        }
    }

    fn retire(&mut self, packet: Box<Packet>) {
        if self.packets.len() < MOST_RECYCLED {
            self.packets.push(packet);
        }
    }

    /// A copy of a packet in a recycled buffer.
    #[expect(clippy::unnecessary_box_returns, reason = "the box is the recycled part")]
    fn copy(&mut self, packet: &Packet) -> Box<Packet> {
        let mut copy = self.packets.pop().unwrap_or_default();
        copy.copy_from(packet);
        copy
    }

    fn run_pipeline(&mut self, now_ns: u64, start: Start, packet: &mut Packet) {
        let (mut machine, mut tables, _) = parts(&self.program, &mut self.control, &mut self.work, now_ns);
        tables.run(start, &mut machine, packet);
    }

    fn parse(&mut self, now_ns: u64, packet: &mut Packet) {
        let Program { parser, checksums, layout, calculations, .. } = &self.program;
        let (mut machine, tables, value_sets) =
            parts(&self.program, &mut self.control, &mut self.work, now_ns);
        parser.parse(&mut machine, packet, value_sets, tables.key);
        packet.checksum_error = !checksums
            .iter()
            .filter(|checksum| checksum.verify)
            .all(|checksum| checksum.holds(packet, layout, machine.registers, calculations, machine.scratch));
        if let Some(trace) = machine.trace {
            trace.note_parsed(packet, parser.no_error());
        }
    }

    fn deparse(&mut self, now_ns: u64, packet: &mut Packet, frame: &mut Vec<u8>) {
        let Program { deparser, checksums, .. } = &self.program;
        let (mut machine, ..) = parts(&self.program, &mut self.control, &mut self.work, now_ns);
        deparser.deparse(&mut machine, packet, checksums, frame);
        // Truncation does not follow a recirculation.
        let keep = match packet.requests.recirculate {
            0 => packet.truncate.saturating_sub(frame.len()),
            _ => usize::MAX,
        };
        let payload = packet.payload();
        let (from, to) = (frame.len() + payload.len(), packet.truncate);
        frame.extend_from_slice(&payload[..payload.len().min(keep)]);
        if from > to && packet.requests.recirculate == 0 {
            self.note(packet.trace, || Event::Truncated { from, to });
        }
    }

    /// From the parser to the traffic manager, in `simple_switch`'s order.
    fn run_ingress(&mut self, now_ns: u64, mut packet: Box<Packet>, out: &mut Vec<Enqueue>) {
        for _ in 0..MOST_RESUBMISSIONS {
            let length = packet.length;
            self.parse(now_ns, &mut packet);
            let intrinsics = &self.program.intrinsics;
            set(&mut packet.phv, intrinsics.parser_error, packet.parser_error);
            set(&mut packet.phv, intrinsics.checksum_error, u64::from(packet.checksum_error));
            if packet.failed.is_none() {
                self.note(packet.trace, || Event::Pipeline(Gress::Ingress));
                self.run_pipeline(now_ns, self.program.ingress, &mut packet);
            }
            if let Some(reason) = packet.failed {
                self.note(packet.trace, || Event::Dropped(reason(Gress::Ingress)));
                self.retire(packet);
                return;
            }
            packet.exit = false;
            if let Some((session, list)) = packet.requests.clone.take() {
                self.clone_ingress(now_ns, &packet, session, list, out);
            }
            self.generate_digest(&mut packet);
            let resubmit = std::mem::take(&mut packet.requests.resubmit);
            if resubmit == 0 {
                self.dispatch(packet, out);
                return;
            }
            self.note(packet.trace, || Event::Resubmitted);
            self.restart(&mut packet, resubmit, instance_type::RESUBMITTED, length);
        }
        self.note(packet.trace, || Event::Dropped(DropReason::Resubmissions));
        self.retire(packet);
    }

    /// Multicast, drop, or one port.
    fn dispatch(&mut self, mut packet: Box<Packet>, out: &mut Vec<Enqueue>) {
        let intrinsics = &self.program.intrinsics;
        let group = intrinsics.mcast_grp.map_or(0, |slot| load(&packet.phv, slot)) as u16;
        if group != 0 {
            store(&mut packet.phv, intrinsics.instance_type, u128::from(instance_type::REPLICATION));
            let replicas = self.control.multicast.get(group).unwrap_or(&[]).to_vec();
            self.note(packet.trace, || Event::Multicast { group, copies: replicas.len() });
            self.replicate(&packet, &replicas, entity::CloneOptions::default(), out);
            self.retire(packet);
            return;
        }
        let port = load(&packet.phv, intrinsics.egress_spec) as u16;
        if port == DROP_PORT {
            self.note(packet.trace, || Event::Dropped(DropReason::Program(Gress::Ingress)));
            self.retire(packet);
            return;
        }
        store(&mut packet.phv, intrinsics.instance_type, u128::from(instance_type::NORMAL));
        out.push(self.enqueue(port, packet));
    }

    fn enqueue(&self, port: u16, packet: Box<Packet>) -> Enqueue {
        let queue = self.program.intrinsics.priority.map_or(0, |slot| load(&packet.phv, slot)) as u8;
        let headers = self.program.deparser.header_bytes(&self.program.layout, &packet.phv);
        let length = (headers + packet.payload().len()).min(packet.truncate) as u32;
        Enqueue { port, queue, length, packet: PacketState(packet) }
    }

    /// One copy per replica. Truncation and requests do not follow (as in BMv2).
    fn replicate(
        &mut self,
        packet: &Packet,
        replicas: &[entity::Replica],
        options: entity::CloneOptions,
        out: &mut Vec<Enqueue>,
    ) {
        for replica in replicas {
            let mut copy = self.copy(packet);
            copy.truncate = match options.packet_length {
                0 => usize::MAX,
                length => length as usize,
            };
            copy.requests = Requests::default();
            self.note_copy(packet.trace, &mut copy, Origin::Replica { instance: replica.instance });
            set(&mut copy.phv, self.program.intrinsics.egress_rid, u64::from(replica.instance));
            if options.queue != 0 {
                set(&mut copy.phv, self.program.intrinsics.priority, u64::from(options.queue));
            }
            out.push(self.enqueue(replica.port, copy));
        }
    }

    /// The frame as received, parsed again, with the listed fields of the packet as it is now.
    fn clone_ingress(
        &mut self,
        now_ns: u64,
        packet: &Packet,
        session: u16,
        list: u16,
        out: &mut Vec<Enqueue>,
    ) {
        let Some(replicas) = self.control.clone_sessions.get(session).map(<[_]>::to_vec) else { return };
        let mut copy = self.copy(packet);
        self.note_copy(packet.trace, &mut copy, Origin::IngressClone { session });
        let length = packet.ingress_length as usize;
        copy.reset(&self.program.layout, length);
        let port = u128::from(packet.ingress_port);
        store(&mut copy.phv, self.program.intrinsics.ingress_port, port);
        self.parse(now_ns, &mut copy);
        self.program.layout.reset_metadata(&mut copy.phv);
        self.preserve(&packet.phv, &mut copy.phv, list, instance_type::INGRESS_CLONE);
        self.replicate(&copy, &replicas, self.control.clone_options(session), out);
        self.retire(copy);
    }

    /// The packet as it leaves egress, its metadata cleared but for the listed fields.
    fn clone_egress(&mut self, packet: &Packet, session: u16, list: u16, out: &mut Vec<Enqueue>) {
        let Some(replicas) = self.control.clone_sessions.get(session).map(<[_]>::to_vec) else { return };
        let mut copy = self.copy(packet);
        self.note_copy(packet.trace, &mut copy, Origin::EgressClone { session });
        self.program.layout.reset_metadata(&mut copy.phv);
        self.preserve(&packet.phv, &mut copy.phv, list, instance_type::EGRESS_CLONE);
        self.replicate(&copy, &replicas, self.control.clone_options(session), out);
        self.retire(copy);
    }

    fn preserve(&self, from: &[u64], to: &mut [u64], list: u16, instance: u64) {
        for slot in self.program.field_lists.get(&list).into_iter().flatten() {
            to[slot.all_limbs()].copy_from_slice(&from[slot.all_limbs()]);
        }
        store(to, self.program.intrinsics.instance_type, u128::from(instance));
    }

    /// Sends the packet back to the parser with its frame as it was.
    fn restart(&mut self, packet: &mut Packet, list: u16, instance: u64, length: u64) {
        let before = std::mem::take(&mut packet.phv);
        packet.reset(&self.program.layout, length as usize);
        let mut phv = std::mem::take(&mut packet.phv);
        self.preserve(&before, &mut phv, list, instance);
        store(&mut phv, self.program.intrinsics.packet_length, u128::from(length));
        packet.phv = phv;
    }

    fn recirculate(&mut self, now_ns: u64, mut packet: Box<Packet>, frame: &[u8], out: &mut Vec<Enqueue>) {
        packet.frame.clear();
        packet.frame.extend_from_slice(frame);
        let list = packet.requests.recirculate;
        self.restart(&mut packet, list, instance_type::RECIRCULATED, frame.len() as u64);
        self.run_ingress(now_ns, packet, out);
    }

    fn generate_digest(&mut self, packet: &mut Packet) {
        let id = std::mem::take(&mut packet.requests.digest);
        let Some(list) = self.program.digests.get(&id).filter(|_| id != 0) else { return };
        if self.digests.len() < MOST_DIGESTS {
            let fields = list.fields.iter().map(|slot| bits::bytes_from_limbs(&packet.phv[slot.limbs()]));
            self.digests.push(Digest { id, name: list.name.clone(), fields: fields.collect() });
        }
    }
}
