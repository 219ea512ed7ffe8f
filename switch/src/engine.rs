// SPDX-License-Identifier: Apache-2.0
//! Executes p4c's BMv2 JSON with v1model semantics.
//!
//! ```text
//!                JSON ── load ──► Program (never changes)      Control (tables, counters, …)
//!                                      │                            ▲ control plane
//!  frame ─► parser ─► checksums ─► ingress ─► clone · resubmit · multicast ─► Enqueue
//!                                                                                │ traffic manager
//!  frame ◄─ truncate ◄─ deparser ◄─ checksums ◄─ egress ◄── Enqueue + QueueMetadata ┘
//!                          └─► recirculate: back to the parser
//! ```
//!
//! At load time names become slots in a flat packet header vector, and parsers, expressions,
//! actions and controls one list of small instructions over those slots (`code`), which one loop
//! carries out (`machine`); a packet touches no string and allocates nothing once buffers have been
//! recycled. `v1model` puts the architecture around the program. [`Pipeline`] owns no clock and no
//! queue: callers pass `now_ns`, queue packets themselves and tell egress what happened to them in
//! the queue. BMv2's `simple_switch` is the reference, down to the order of clone, resubmission,
//! multicast and drop; where it would crash or read stale memory, the result here is 0, a drop, or
//! a parser error.
//!
//! Not here: queues, ports, P4Runtime. Refused at load, by name: arithmetic on more than 4224 bits,
//! externs of other architectures, and what p4c writes but BMv2 cannot read (a stack's `isValid` at
//! an index known at run time).

#![deny(unsafe_code)]

mod action;
mod arrays;
mod bits;
mod calculation;
mod code;
pub mod control;
mod control_flow;
pub mod entity;
pub mod error;
mod expression;
mod flow_cache;
mod hash;
mod hasher;
mod intrinsic;
mod json;
mod layout;
mod limits;
mod machine;
mod meter;
#[cfg(feature = "native")]
mod native;
#[cfg(not(feature = "native"))]
#[path = "engine/no_native.rs"]
mod native;
mod packed;
mod packet;
mod parser;
mod pool;
mod profile;
mod program;
mod random;
mod replication;
mod run;
mod shared;
mod slot;
mod stack;
mod state;
mod table;
pub mod trace;
mod v1model;
mod wide;
mod wire;
mod work;

pub use code::DROP_PORT;
pub use control::Control;
pub use error::{Code, ControlError, LoadError};
pub use limits::ProgramLimits;
pub use packet::Spares;
pub use pool::TablePool;

use flow_cache::{FlowCache, MOST_FLOWS};
use native::call::Native;
use packed::Packed;
use packet::Packet;
use program::Program;
use random::Random;
use std::sync::Arc;
use trace::{Event, Origin, Recorder};
use work::Work;

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
pub struct PacketState(State);

#[derive(Debug)]
enum State {
    /// As code runs on it.
    Whole(Box<Packet>),
    /// In as little memory as it takes: [`Pipeline::pack`].
    Packed(Packed),
}

impl PacketState {
    /// The port on which the packet entered the switch.
    pub fn ingress_port(&self) -> u16 {
        match &self.0 {
            State::Whole(packet) => packet.ingress_port,
            State::Packed(packed) => packed.ingress_port(),
        }
    }

    /// The packet's number in the trace; 0 while tracing is off.
    pub fn trace_number(&self) -> u64 {
        match &self.0 {
            State::Whole(packet) => packet.trace,
            State::Packed(packed) => packed.trace(),
        }
    }

    /// Whether it is packed.
    pub fn is_packed(&self) -> bool {
        matches!(self.0, State::Packed(_))
    }
}

/// What the traffic manager tells egress about a packet's time in the queue (v1model's `enq_*`,
/// `deq_*`).
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
        /// The whole frame, truncated if the program said so; of one that came without its body,
        /// the head.
        frame: Vec<u8>,
        /// Bytes of the whole frame, those that are not there included.
        length: usize,
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
/// For every received frame call [`ingress`](Self::ingress); queue what it appends to `out`; for
/// every packet that leaves a queue call [`egress`](Self::egress), which may append more to queue.
/// Packets that the queues drop go to [`recycle_packet`](Self::recycle_packet). `now_ns` never runs
/// backwards.
#[derive(Debug)]
pub struct Pipeline {
    program: Arc<Program>,
    /// The program's code as machine code, or why there is none.
    native: Arc<Result<Native, String>>,
    control: Control,
    work: Work,
    spares: Spares,
    digests: Vec<Digest>,
}

/// Another switch with the same program, and state of its own that begins as this one's is. Traces
/// and digests do not follow.
impl Clone for Pipeline {
    fn clone(&self) -> Self {
        Self {
            program: Arc::clone(&self.program),
            native: Arc::clone(&self.native),
            control: self.control.clone(),
            work: Work {
                interpreted: self.work.interpreted,
                ..Work::new(self.work.random.clone(), self.work.flows.most())
            },
            spares: Spares::default(),
            digests: Vec::new(),
        }
    }
}

impl Pipeline {
    /// Compiles p4c's BMv2 JSON, of the operator's own: [`ProgramLimits::TRUSTED`] hold.
    ///
    /// # Errors
    /// What is not JSON, contradicts itself, or is not supported, by name and with its place in the
    /// P4 source.
    pub fn load(json: &[u8]) -> Result<Self, LoadError> {
        Self::load_within(json, &ProgramLimits::TRUSTED)
    }

    /// Likewise, of a program that is somebody else's.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), and what takes more than it may.
    pub fn load_within(json: &[u8], limits: &ProgramLimits) -> Result<Self, LoadError> {
        let (program, state) = program::load(json, limits)?;
        let native = Native::compile(program.code(false), &program, &state);
        let control = Control::new(state, program.digest_infos());
        Ok(Self {
            program: Arc::new(program),
            native: Arc::new(native),
            control,
            work: Work::new(Random::new(0), MOST_FLOWS),
            spares: Spares::default(),
            digests: Vec::new(),
        })
    }

    /// Seeds the program's `random`.
    pub fn seed(&mut self, seed: u64) {
        self.work.random = Random::new(seed);
    }

    /// Has the flow cache remember so many flows at most, rounded up to a power of two; 0 turns it
    /// off. They take memory as they come, 32 MiB at most: 164 bytes each in our program.
    pub fn limit_flows(&mut self, most: usize) {
        self.work.flows = FlowCache::new(most);
    }

    /// Carries instructions out one by one, though there may be machine code: results are the same.
    pub fn interpret(&mut self, on: bool) {
        self.work.interpreted = on;
    }

    /// How the program's code is run, in words.
    pub fn runs_as(&self) -> String {
        match &*self.native {
            Ok(_) if !self.work.interpreted => "it runs as machine code".into(),
            Ok(_) => "it is interpreted, as it was asked for".into(),
            Err(reason) => format!("it is interpreted: {reason}"),
        }
    }

    /// What the flow cache remembers of this program's flows, or why nothing, in words.
    pub fn flow_cache(&self) -> String {
        match &self.program.split {
            Ok(split) => split.to_string(),
            Err(reason) => format!("nothing is remembered for flows: {reason}"),
        }
    }

    /// Tables, action profiles, counters, registers, meters, replication.
    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// No entry becomes idle before this time, in ns. See [`Control::take_idle_entries`].
    pub fn idle_at(&self) -> Option<u64> {
        self.control.poll_idle_timeout()
    }

    /// Exchanges the buffers that it uses for others, before and after its turn among pipelines
    /// that share them. Traces, packets on their way and results are the same with any.
    pub fn lend(&mut self, spares: &mut Spares) {
        spares.fit(&self.program.code);
        std::mem::swap(&mut self.spares, spares);
    }

    /// Takes a frame's buffer back for reuse.
    pub fn recycle(&mut self, frame: Vec<u8>) {
        self.spares.recycle(frame);
    }

    /// A packet the traffic manager dropped: takes its buffers back for reuse.
    pub fn recycle_packet(&mut self, packet: Enqueue) {
        if let State::Whole(packet) = packet.packet.0 {
            self.retire(packet);
        }
    }

    /// Has a packet that will wait take a few hundred bytes beside its payload, instead of all
    /// limbs that code runs on.
    pub fn pack(&mut self, packet: &mut Enqueue) {
        if let State::Whole(whole) = &packet.packet.0 {
            let packed = Packed::new(whole, &self.program.live, &mut self.work.scratch.bytes);
            let before = std::mem::replace(&mut packet.packet.0, State::Packed(packed));
            if let State::Whole(whole) = before {
                self.retire(whole);
            }
        }
    }

    fn unpacked(&mut self, packet: PacketState) -> Box<Packet> {
        match packet.0 {
            State::Whole(packet) => packet,
            State::Packed(packed) => {
                let mut packet = self.spares.packets.pop().unwrap_or_default();
                packed.unpack(&mut packet, self.program.code(false));
                packet
            }
        }
    }

    /// Removes and returns the digests generated so far, oldest first.
    pub fn take_digests(&mut self) -> Vec<Digest> {
        std::mem::take(&mut self.digests)
    }

    /// Notes for every packet what happens to it, or no longer. Packets on their way when tracing
    /// begins are numbered 0.
    pub fn set_tracing(&mut self, on: bool) {
        match (on, self.work.trace.is_some()) {
            (true, false) => {
                self.work.trace = Some(Box::new(Recorder::new(self.program.names.clone())));
            }
            (false, true) => self.work.trace = None,
            _ => {}
        }
    }

    /// Removes and returns what was noted since the last call, and the number of records lost
    /// because nobody took them.
    pub fn take_trace(&mut self) -> (Vec<trace::Record>, u64) {
        self.work.trace.as_mut().map_or_else(Default::default, |trace| trace.take())
    }

    /// Notes what happens to a packet outside the program: `event` is only made while tracing is
    /// on.
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

    /// The machine code, if it is to be run.
    fn native(&self) -> Option<&Native> {
        let Work { trace, interpreted, .. } = &self.work;
        (*self.native).as_ref().ok().filter(|_| trace.is_none() && !interpreted)
    }

    fn retire(&mut self, packet: Box<Packet>) {
        self.spares.retire(packet);
    }

    /// A copy of a packet in a recycled buffer.
    fn copy(&mut self, packet: &Packet) -> Box<Packet> {
        let mut copy = self.spares.packets.pop().unwrap_or_default();
        copy.copy_from(packet, self.program.code(false).arguments);
        copy
    }
}
