// SPDX-License-Identifier: Apache-2.0
//! v1model around a program: parser, ingress, clones, resubmission, multicast, egress, deparser,
//! recirculation, in `simple_switch`'s order.

use super::code::{Code, DROP_PORT};
use super::intrinsic::set;
use super::machine::Machine;
use super::native::call::Native;
use super::packet::{Packet, Requests};
use super::program::Program;
use super::run;
use super::slot::{load, store, store64};
use super::trace::{DropReason, Event, Gress, Origin};
use super::{Digest, EgressOutcome, Enqueue, PacketState, Pipeline, QueueMetadata, State, bits, entity};

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

/// Digests kept until someone takes them; later ones are lost.
const MOST_DIGESTS: usize = 4096;

impl Pipeline {
    /// Parser and ingress of one frame: zero, one or many (multicast, clones) packets are appended
    /// to `out`.
    pub fn ingress(&mut self, now_ns: u64, port: u16, frame: &[u8], out: &mut Vec<Enqueue>) {
        self.ingress_head(now_ns, port, frame, frame.len(), out);
    }

    /// [`ingress`](Self::ingress) of a frame of `length` bytes of which only the first are there:
    /// what is behind `head` is counted wherever lengths are, and nowhere kept. For simulations,
    /// whose packets have no bodies. `head` has to hold all that the program extracts, or the
    /// packet is too short for its parser; checksums over payloads see what is there.
    pub fn ingress_head(
        &mut self,
        now_ns: u64,
        port: u16,
        head: &[u8],
        length: usize,
        out: &mut Vec<Enqueue>,
    ) {
        let mut packet = self.spares.packets.pop().unwrap_or_default();
        packet.frame.clear();
        packet.frame.extend_from_slice(head);
        packet.beyond = length.saturating_sub(head.len());
        let length = head.len() + packet.beyond;
        packet.reset(self.program.code(false), length);
        packet.ingress_port = port;
        let intrinsics = &self.program.intrinsics;
        store64(&mut packet.phv, intrinsics.ingress_port, u64::from(port));
        store64(&mut packet.phv, intrinsics.packet_length, length as u64);
        set(&mut packet.phv, intrinsics.ingress_timestamp, now_ns / 1000);
        if let Some(trace) = &mut self.work.trace {
            trace.set_time(now_ns);
            packet.trace = trace.number();
            trace.note(packet.trace, Event::Received { port, length });
        }
        self.run_ingress(now_ns, packet, true, out);
    }

    /// Egress and deparser of one packet. Egress clones and recirculated packets are appended to
    /// `out`.
    pub fn egress(
        &mut self,
        now_ns: u64,
        packet: Enqueue,
        meta: QueueMetadata,
        out: &mut Vec<Enqueue>,
    ) -> EgressOutcome {
        let Enqueue { port, queue, packet, .. } = packet;
        let mut packet = self.unpacked(packet);
        let intrinsics = &self.program.intrinsics;
        let phv = &mut packet.phv[..];
        set(phv, intrinsics.egress_timestamp, now_ns / 1000);
        set(phv, intrinsics.enq_timestamp, meta.enq_timestamp_ns / 1000);
        set(phv, intrinsics.enq_qdepth, u64::from(meta.enq_qdepth));
        set(phv, intrinsics.deq_timedelta, meta.deq_timedelta_ns / 1000);
        set(phv, intrinsics.deq_qdepth, u64::from(meta.deq_qdepth));
        set(phv, intrinsics.qid, u64::from(queue));
        store64(phv, intrinsics.egress_port, u64::from(port));
        // BMv2 sets a value that is not the drop port; in nine bits it reads as 0.
        store64(phv, intrinsics.egress_spec, u64::from(DROP_PORT) + 1);
        store64(phv, intrinsics.packet_length, packet.length);
        packet.exit = false;
        self.note(packet.trace, || Event::Pipeline(Gress::Egress));
        let start = self.entry().egress;
        self.run(now_ns, start, &mut packet);
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
        let (frame, length) = self.deparse(now_ns, &mut packet);
        if packet.requests.recirculate != 0 {
            self.note(packet.trace, || Event::Recirculated);
            self.recirculate(now_ns, packet, frame, out);
            return EgressOutcome::Recirculate;
        }
        self.note(packet.trace, || Event::Transmitted { port, length });
        self.retire(packet);
        EgressOutcome::Transmit { port, frame, length }
    }

    /// Runs the code that begins at `start`.
    fn run(&mut self, now_ns: u64, start: u32, packet: &mut Packet) {
        if let Some(trace) = &mut self.work.trace {
            trace.set_time(now_ns);
        }
        let (mut machine, native) = self.machine(now_ns);
        run::run(&mut machine, native, start, packet);
    }

    fn machine(&mut self, now_ns: u64) -> (Machine<'_>, Option<&Native>) {
        let Self { program, native, control, work, .. } = self;
        let code = program.code(work.trace.is_some());
        let native = (**native).as_ref().ok().filter(|_| work.trace.is_none() && !work.interpreted);
        (Machine { program, code, control, work, now_ns }, native)
    }

    fn parse(&mut self, now_ns: u64, packet: &mut Packet) {
        let no_error = self.program.parser.errors.no_error;
        (packet.parser_error, packet.payload_at, packet.checksum_error) = (no_error, 0, false);
        let start = self.entry().parse;
        self.run(now_ns, start, packet);
        if let Some(trace) = &mut self.work.trace {
            let code = packet.parser_error;
            let error = (code != no_error).then(|| trace.error_name(code));
            let (header_bytes, checksum_error) = (packet.payload_at, packet.checksum_error);
            trace.note(packet.trace, Event::Parsed { header_bytes, error, checksum_error });
        }
    }

    fn entry(&self) -> &Code {
        self.program.code(self.work.trace.is_some())
    }

    /// Puts the headers, as they stand, before the payload, and gives the frame, and its length
    /// with what is beyond it.
    fn deparse(&mut self, now_ns: u64, packet: &mut Packet) -> (Vec<u8>, usize) {
        let start = self.entry().deparse;
        self.run(now_ns, start, packet);
        let spare = self.spares.frames.pop().unwrap_or_default();
        let mut frame = std::mem::replace(&mut packet.frame, spare);
        let payload_at = packet.payload_at.min(frame.len());
        let Program { deparser, layout, .. } = &*self.program;
        // Mostly the headers are as long as they were.
        let written = match self.native() {
            Some(native) => native.write_headers(&packet.phv, &mut frame[..payload_at]),
            None => deparser.overwrite(layout, &packet.phv, &mut frame, payload_at),
        };
        if !written {
            let headers = &mut self.work.scratch.bytes;
            headers.clear();
            deparser.write(layout, &packet.phv, headers);
            frame.splice(..payload_at, headers.iter().copied());
        }
        let (from, to) = (frame.len() + packet.beyond, packet.truncate);
        // Truncation does not follow a recirculation.
        if from > to && packet.requests.recirculate == 0 {
            frame.truncate(to);
            self.note(packet.trace, || Event::Truncated { from, to });
            return (frame, to);
        }
        (frame, from)
    }

    /// From the parser to the traffic manager, in `simple_switch`'s order. `fresh`: its metadata
    /// are as they are of a packet from outside.
    fn run_ingress(&mut self, now_ns: u64, mut packet: Box<Packet>, mut fresh: bool, out: &mut Vec<Enqueue>) {
        for _ in 0..MOST_RESUBMISSIONS {
            let length = packet.length;
            self.parse(now_ns, &mut packet);
            let intrinsics = &self.program.intrinsics;
            set(&mut packet.phv, intrinsics.parser_error, packet.parser_error);
            set(&mut packet.phv, intrinsics.checksum_error, u64::from(packet.checksum_error));
            if packet.failed.is_none() {
                self.note(packet.trace, || Event::Pipeline(Gress::Ingress));
                if fresh && self.work.trace.is_none() {
                    let (mut machine, native) = self.machine(now_ns);
                    run::run_ingress(&mut machine, native, &mut packet);
                } else {
                    let start = self.entry().ingress;
                    self.run(now_ns, start, &mut packet);
                }
            }
            fresh = false;
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
        store64(&mut packet.phv, intrinsics.instance_type, instance_type::NORMAL);
        out.push(self.enqueue(port, packet));
    }

    fn enqueue(&self, port: u16, packet: Box<Packet>) -> Enqueue {
        let queue = self.program.intrinsics.priority.map_or(0, |slot| load(&packet.phv, slot)) as u8;
        let headers = self.program.deparser.header_bytes(&self.program.layout, &packet.phv);
        let payload = packet.payload().len() + packet.beyond;
        let length = (headers + payload).min(packet.truncate) as u32;
        Enqueue { port, queue, length, packet: PacketState(State::Whole(packet)) }
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
        copy.reset(self.program.code(false), length);
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
        let kept = self.program.field_lists.get(&list).map_or(&[][..], Vec::as_slice);
        let room = &mut self.work.key;
        room.clear();
        kept.iter().for_each(|slot| room.extend_from_slice(&packet.phv[slot.all_limbs()]));
        packet.reset(self.program.code(false), length as usize);
        let mut from = &room[..];
        for slot in kept {
            let (limbs, rest) = from.split_at(slot.all_limbs().len());
            packet.phv[slot.all_limbs()].copy_from_slice(limbs);
            from = rest;
        }
        store(&mut packet.phv, self.program.intrinsics.instance_type, u128::from(instance));
        store(&mut packet.phv, self.program.intrinsics.packet_length, u128::from(length));
    }

    fn recirculate(&mut self, now_ns: u64, mut packet: Box<Packet>, frame: Vec<u8>, out: &mut Vec<Enqueue>) {
        let list = packet.requests.recirculate;
        let length = (frame.len() + packet.beyond) as u64;
        let spare = std::mem::replace(&mut packet.frame, frame);
        self.recycle(spare);
        self.restart(&mut packet, list, instance_type::RECIRCULATED, length);
        self.run_ingress(now_ns, packet, false, out);
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
