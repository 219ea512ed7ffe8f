//! What leaves an endpoint.

use super::{Due, Endpoint, Key, Side, Traffic, Transmit};
use crate::wire::{Report, Status};

/// ECN codepoints (RFC 3168 §5). MLT §5.2: not-ECT marks what switches may drop first.
const ECT_0: u8 = 0b10;
const NOT_ECT: u8 = 0b00;

impl Endpoint {
    /// The next datagram that may leave at `now_ns`, if any.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        if now_ns < self.nic.next_ns() {
            return None;
        }
        while let Some((due, peer, message)) = self.control.pop_front() {
            if let Some(payload) = self.write_control(now_ns, due, (peer, message)) {
                self.stats.control_sent += 1;
                self.stats.control_bytes_sent += payload.len() as u64;
                let tos = self.config.dscp.control << 2 | ECT_0;
                return Some(self.transmit(now_ns, peer, tos, payload));
            }
        }
        while let Some(&(next_ns, _, rank)) = self.ready.first() {
            if next_ns > now_ns {
                return None;
            }
            self.ready.pop_first();
            if let Some(transmit) = self.send_data(now_ns, rank) {
                return Some(transmit);
            }
        }
        None
    }

    fn send_data(&mut self, now_ns: u64, rank: u16) -> Option<Transmit> {
        let peer = self.peers.get_mut(usize::from(rank))?;
        peer.ready = false;
        while let Some(&(order, id)) = peer.sending.first() {
            let entry = self.outgoing.get_mut(&(rank, id));
            let packet = entry.and_then(|entry| {
                let packet = entry.transfer.next_data(now_ns);
                packet.map(|packet| (packet, entry.transfer.layer_class, entry.transfer.has_data()))
            });
            let Some((packet, layer_class, more)) = packet else {
                peer.sending.remove(&(order, id));
                continue;
            };
            if !more {
                peer.sending.remove(&(order, id));
            }
            let bytes = packet.payload.len() as u64 + u64::from(self.config.overhead_bytes);
            peer.pacer.sent(now_ns, bytes, peer.rate.rate_bps(), self.config.burst_ns);
            if !peer.sending.is_empty() {
                peer.ready = true;
                self.ready.insert((peer.pacer.next_ns(), self.turn, rank));
                self.turn += 1;
            }
            if !more {
                self.queue_probe((rank, id));
            }
            self.stats.data_sent += 1;
            self.stats.data_bytes_sent += packet.payload.len() as u64;
            if packet.repair {
                self.stats.repairs_sent += 1;
                self.stats.retransmitted_bytes += packet.payload.len() as u64;
            }
            let classes = match self.config.traffic {
                Traffic::Trimmable => &self.config.dscp.trimmable,
                Traffic::Droppable => &self.config.dscp.droppable,
            };
            let dscp = classes[usize::from(layer_class).min(classes.len() - 1)];
            let tos = dscp << 2 | if packet.important { ECT_0 } else { NOT_ECT };
            return Some(self.transmit(now_ns, rank, tos, packet.payload));
        }
        None
    }

    fn transmit(&mut self, now_ns: u64, to_rank: u16, tos: u8, payload: Vec<u8>) -> Transmit {
        let bytes = payload.len() as u64 + u64::from(self.config.overhead_bytes);
        self.nic.sent(now_ns, bytes, self.config.line_rate_bps, self.config.burst_ns);
        self.sprayed += 1;
        let entropy = mix(self.config.seed ^ u64::from(self.config.rank) << 48 ^ self.sprayed);
        let ports = &self.config.source_ports;
        let width = u64::from(ports.end().saturating_sub(*ports.start())) + 1;
        let source_port = ports.start().saturating_add((entropy % width) as u16);
        Transmit { to_rank, source_port, tos, payload }
    }

    /// Writes a control packet, if it is still called for.
    fn write_control(&mut self, now_ns: u64, due: Due, key: Key) -> Option<Vec<u8>> {
        let (rank, id) = key;
        let (writer, timeouts) = (self.writer, self.config.timeouts);
        let peer = self.peers.get_mut(usize::from(rank))?;
        match due {
            Due::Ack => {
                let progress = if let Some(entry) = self.incoming.get_mut(&key) {
                    entry.transfer.ack_queued = false;
                    entry.transfer.is_receiving().then_some(&mut entry.transfer.progress)
                } else {
                    peer.early.get_mut(id).map(|early| {
                        early.ack_queued = false;
                        &mut early.progress
                    })
                };
                progress.map(|progress| writer.ack(id, &progress.report(now_ns)))
            }
            Due::Status => {
                let transfer = &mut self.incoming.get_mut(&key)?.transfer;
                transfer.status_queued = false;
                let (payload, more) = transfer.status(now_ns, writer)?;
                if more {
                    transfer.status_queued = true;
                    self.control.push_back((due, rank, id));
                }
                Some(payload)
            }
            Due::Stop => {
                let Some(entry) = self.incoming.get_mut(&key) else {
                    let finished = peer.finished_mut(id)?;
                    finished.stop_queued = false;
                    return Some(finished.stop(id, writer));
                };
                entry.transfer.stop_queued = false;
                let (payload, more) = entry.transfer.stop(now_ns, writer)?;
                if more {
                    entry.transfer.stop_queued = true;
                    self.control.push_back((due, rank, id));
                }
                Some(payload)
            }
            Due::NotExpected => {
                let early = peer.early.get_mut(id)?;
                early.answer_queued = false;
                let sequence = early.probe?.sequence;
                let report = early.progress.report(now_ns);
                Some(not_expected(writer, id, sequence, report))
            }
            Due::Probe => {
                let transfer = &mut self.outgoing.get_mut(&key)?.transfer;
                transfer.probe_queued = false;
                if transfer.has_data() {
                    return None;
                }
                let probe = transfer.probe(now_ns, &peer.path, &timeouts);
                self.rearm(Side::Outgoing, key);
                Some(writer.probe(id, &probe))
            }
            Due::Final => {
                let transfer = &mut self.agreements.get_mut(&key)?.transfer;
                transfer.queued = false;
                let (payload, more) = transfer.next_packet(now_ns, writer, &peer.path, &timeouts)?;
                if more {
                    transfer.queued = true;
                    self.control.push_back((due, rank, id));
                }
                self.rearm(Side::Agreement, key);
                Some(payload)
            }
        }
    }
}

fn not_expected(writer: crate::wire::Writer, id: u32, sequence: u32, report: Report) -> Vec<u8> {
    let status = Status { sequence, report, missing: 0, expected: false, bound_holds: false, map: None };
    writer.status(id, &status, None).0
}

/// SplitMix64's output function: neighbouring counters give unrelated ports, the same on every machine.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
