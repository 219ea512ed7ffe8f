//! Executes p4c's BMv2 JSON with v1model semantics.
pub mod control;
pub mod entity;
pub mod error;

pub use control::Control;
pub use error::{Code, ControlError, LoadError};

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
pub struct PacketState {}

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
    /// Name of the digest's field list.
    pub name: String,
    /// One value per field.
    pub fields: Vec<entity::Value>,
}

/// A loaded program and its state.
#[derive(Debug)]
pub struct Pipeline {
    control: Control,
}

impl Pipeline {
    /// Compiles p4c's BMv2 JSON.
    pub fn load(json: &[u8]) -> Result<Self, LoadError> {
        let _ = json;
        Err(LoadError::Syntax("not implemented".into()))
    }

    /// Parser and ingress of one frame: zero, one or many (multicast, clones) packets are appended to `out`.
    pub fn ingress(&mut self, now_ns: u64, port: u16, frame: &[u8], out: &mut Vec<Enqueue>) {
        let _ = (now_ns, port, frame, out);
    }

    /// Egress and deparser of one packet. Egress clones and recirculated packets are appended to `out`.
    pub fn egress(
        &mut self,
        now_ns: u64,
        packet: Enqueue,
        meta: QueueMetadata,
        out: &mut Vec<Enqueue>,
    ) -> EgressOutcome {
        let _ = (now_ns, packet, meta, out);
        EgressOutcome::Drop
    }

    /// Tables, action profiles, counters, registers, meters, replication.
    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// Takes a frame's buffer back for reuse.
    pub fn recycle(&mut self, frame: Vec<u8>) {
        let _ = frame;
    }

    /// A packet the traffic manager dropped: takes its buffers back for reuse.
    pub fn recycle_packet(&mut self, packet: Enqueue) {
        let _ = packet;
    }

    /// Removes and returns the digests generated so far, oldest first.
    pub fn take_digests(&mut self) -> Vec<Digest> {
        Vec::new()
    }
}
