//! What arrives at an endpoint. Nothing here panics, whatever the bytes: what does not fit is counted and ignored.

use super::{Due, Endpoint, Event, Key, Side};
use crate::rate::Feedback;
use crate::transfer::agreement;
use crate::wire::{Control, Probe, Report, Stop};
use trimwire_encoder::wire::{HEADER_LEN, Kind, PLANES, PacketView, Prefix, plane_offset};

impl Endpoint {
    /// Takes a datagram: the IP header's TOS or traffic class, and the UDP payload.
    pub fn handle_datagram(&mut self, now_ns: u64, tos: u8, payload: &[u8]) {
        let Ok(prefix) = Prefix::parse(payload) else {
            self.stats.malformed += 1;
            return;
        };
        let (rank, own) = (prefix.stream.rank(), &self.config);
        if prefix.stream.job() != own.job || rank == own.rank || rank >= own.world {
            self.stats.foreign += 1;
            return;
        }
        let key = (rank, prefix.message);
        if prefix.kind == Kind::Data {
            let plan = self.config.dscp;
            let last_hop = tos >> 2 == plan.trimmed_last_hop;
            self.stats.cut_last_hop_received += u64::from(last_hop);
            let marked_cut = last_hop || tos >> 2 == plan.trimmed;
            return self.on_data(now_ns, key, marked_cut, payload);
        }
        let body = payload.get(trimwire_encoder::wire::PREFIX_LEN..).unwrap_or_default();
        let Ok(control) = Control::parse(prefix.kind, body) else {
            self.stats.malformed += 1;
            return;
        };
        self.stats.control_received += 1;
        match control {
            Control::Ack(report) => self.on_ack(now_ns, key, &report),
            Control::Probe(probe) => self.on_probe(now_ns, key, &probe),
            Control::Stop(stop) => self.on_stop(now_ns, key, &stop),
            Control::Status(status) => {
                let timeouts = self.config.timeouts;
                let (Some(entry), Some(peer)) =
                    (self.outgoing.get_mut(&key), self.peers.get_mut(usize::from(rank)))
                else {
                    self.stats.stray += 1;
                    return;
                };
                entry.transfer.on_report(now_ns, &status.report, &mut peer.path);
                let next = entry.transfer.on_status(now_ns, &status, &mut peer.path, &timeouts);
                self.apply(key, next);
            }
            Control::Final(agreed) => {
                let Some(entry) = self.incoming.get_mut(&key) else {
                    return self.answer_finished(key, Some(agreed.sequence));
                };
                let (map, confirm) = entry.transfer.on_final(now_ns, &agreed);
                if let Some(map) = map {
                    let (from, message) = key;
                    self.events.push_back(Event::Agreed { from, message, map });
                    self.bury(key);
                    self.answer_finished(key, None);
                } else if confirm {
                    entry.transfer.confirm_only();
                    self.queue_stop(key);
                } else {
                    self.stats.stray += 1;
                }
            }
        }
    }

    fn on_data(&mut self, now_ns: u64, key: Key, marked_cut: bool, payload: &[u8]) {
        let ack_every = self.config.ack_every;
        let Some(entry) = self.incoming.get_mut(&key) else {
            return self.on_other_data(now_ns, key, marked_cut, payload);
        };
        if !entry.transfer.is_receiving() {
            self.stats.stray += 1;
            return;
        }
        let Ok(taken) = entry.transfer.on_data(now_ns, payload, marked_cut, ack_every, true) else {
            self.stats.malformed += 1;
            return;
        };
        self.stats.data_received += 1;
        self.stats.cut_received += u64::from(marked_cut || taken.cut);
        if taken.finished {
            self.deliver(now_ns, key);
        } else if taken.ack && !std::mem::replace(&mut entry.transfer.ack_queued, true) {
            self.control.push_back((Due::Ack, key.0, key.1));
        }
    }

    /// DATA of a message that is over, or not expected yet.
    fn on_other_data(&mut self, now_ns: u64, key: Key, marked_cut: bool, payload: &[u8]) {
        let ack_every = self.config.ack_every.max(1);
        let Some(peer) = self.peers.get_mut(usize::from(key.0)) else { return };
        let Ok(view) = PacketView::parse(payload) else {
            self.stats.malformed += 1;
            return;
        };
        if let Some(finished) = peer.finished_mut(key.1) {
            self.stats.stray += 1;
            // The sender goes on: it has not heard the STOP. Repeated now and then, not for every packet.
            finished.late = finished.late.wrapping_add(1);
            if finished.late % ack_every == 0 {
                self.answer_finished(key, None);
            }
            return;
        }
        let Some(early) = peer.early.keep(key.1, marked_cut, payload) else {
            self.stats.early_dropped += 1;
            return;
        };
        self.stats.data_received += 1;
        let header = view.header();
        let whole = HEADER_LEN + plane_offset(PLANES, header.coordinates);
        // How many planes the sender sends is not known before the application says so; its PROBE or the DSCP tells
        // most cuts.
        let cut =
            marked_cut || (early.probe.is_none_or(|probe| probe.planes == PLANES) && payload.len() < whole);
        self.stats.cut_received += u64::from(cut);
        let ack = early.progress.count(now_ns, header.index, cut, ack_every);
        if ack && !std::mem::replace(&mut early.ack_queued, true) {
            self.control.push_back((Due::Ack, key.0, key.1));
        }
    }

    /// Takes in what arrived of a message before it was expected.
    pub(super) fn replay_early(&mut self, now_ns: u64, key: Key) {
        let ack_every = self.config.ack_every;
        let Some(peer) = self.peers.get_mut(usize::from(key.0)) else { return };
        peer.forget(key.1);
        let Some(early) = peer.early.take(key.1) else { return };
        let Some(entry) = self.incoming.get_mut(&key) else { return };
        entry.transfer.progress = early.progress;
        let mut finished = false;
        for (marked_cut, payload) in &early.packets {
            match entry.transfer.on_data(now_ns, payload, *marked_cut, ack_every, false) {
                Ok(taken) => finished |= taken.finished,
                Err(_) => self.stats.malformed += 1,
            }
        }
        if finished {
            self.deliver(now_ns, key);
        } else if let Some(probe) = early.probe {
            self.on_probe(now_ns, key, &probe);
        }
    }

    fn on_ack(&mut self, now_ns: u64, key: Key, report: &Report) {
        let timeouts = self.config.timeouts;
        let (Some(entry), Some(peer)) = (self.outgoing.get_mut(&key), self.peers.get_mut(usize::from(key.0)))
        else {
            self.stats.stray += 1;
            return;
        };
        if let Some((rtt_ns, trimmed_share)) = entry.transfer.on_report(now_ns, report, &mut peer.path) {
            peer.rate.on_ack(Feedback { now_ns, rtt_ns, trimmed_share });
        }
        if entry.transfer.hasten(now_ns, &peer.path, &timeouts) {
            self.rearm(Side::Outgoing, key);
        }
    }

    fn on_probe(&mut self, now_ns: u64, key: Key, probe: &Probe) {
        let timeouts = self.config.timeouts;
        let Some(entry) = self.incoming.get_mut(&key) else {
            let Some(peer) = self.peers.get_mut(usize::from(key.0)) else { return };
            if peer.finished_mut(key.1).is_some() {
                return self.answer_finished(key, Some(probe.sequence));
            }
            match peer.early.keep_probe(key.1, *probe) {
                None => self.stats.early_dropped += 1,
                Some(early) => {
                    if !std::mem::replace(&mut early.answer_queued, true) {
                        self.control.push_back((Due::NotExpected, key.0, key.1));
                    }
                }
            }
            return;
        };
        match entry.transfer.on_probe(now_ns, probe, &timeouts) {
            None => self.stats.malformed += 1,
            Some(true) => self.deliver(now_ns, key),
            Some(false) => {
                if !entry.transfer.is_receiving() {
                    return self.queue_stop(key);
                }
                if !std::mem::replace(&mut entry.transfer.status_queued, true) {
                    self.control.push_back((Due::Status, key.0, key.1));
                }
                self.rearm(Side::Incoming, key);
            }
        }
    }

    fn on_stop(&mut self, now_ns: u64, key: Key, stop: &Stop<'_>) {
        let timeouts = self.config.timeouts;
        let Some(peer) = self.peers.get_mut(usize::from(key.0)) else { return };
        if let Some(entry) = self.outgoing.get_mut(&key) {
            entry.transfer.on_report(now_ns, &stop.report, &mut peer.path);
            let next = entry.transfer.on_stop(now_ns, stop, &mut peer.path, &timeouts);
            self.apply(key, next);
        } else if let Some(entry) = self.agreements.get_mut(&key) {
            let next = entry.transfer.on_stop(now_ns, stop);
            self.apply_agreement(key, next);
        } else {
            self.stats.stray += 1;
        }
    }

    /// Does what an agreement wants.
    pub(super) fn apply_agreement(&mut self, key: Key, next: agreement::Next) {
        let Some(entry) = self.agreements.get_mut(&key) else { return };
        match next {
            agreement::Next::Wait => self.rearm(Side::Agreement, key),
            agreement::Next::Send => {
                if !std::mem::replace(&mut entry.transfer.queued, true) {
                    self.control.push_back((Due::Final, key.0, key.1));
                }
            }
            agreement::Next::Done => self.cancel_send(key.0, key.1),
            agreement::Next::Failed(error) => {
                self.cancel_send(key.0, key.1);
                self.fail(key, error);
            }
        }
    }

    /// Hands a message to the application and tells the sender.
    pub(super) fn deliver(&mut self, now_ns: u64, key: Key) {
        let timeouts = self.config.timeouts;
        let Some(entry) = self.incoming.get_mut(&key) else { return };
        let Some((decoder, stats)) = entry.transfer.finish(now_ns, &timeouts) else { return };
        let (from, message) = key;
        let agrees = entry.transfer.agrees();
        self.events.push_back(Event::Received { from, message, decoder, stats });
        if agrees {
            self.queue_stop(key);
        } else {
            self.bury(key);
            self.answer_finished(key, None);
        }
    }

    fn queue_stop(&mut self, key: Key) {
        let Some(entry) = self.incoming.get_mut(&key) else { return };
        if !std::mem::replace(&mut entry.transfer.stop_queued, true) {
            self.control.push_back((Due::Stop, key.0, key.1));
        }
        self.rearm(Side::Incoming, key);
    }

    /// Ends a transfer, remembering enough to answer late questions.
    pub(super) fn bury(&mut self, key: Key) {
        let Some(entry) = self.incoming.remove(&key) else { return };
        self.disarm(Side::Incoming, key, entry.armed_ns);
        if let Some(peer) = self.peers.get_mut(usize::from(key.0)) {
            peer.remember(key.1, entry.transfer.epitaph());
        }
    }

    /// Answers a question about a transfer that is over with STOP.
    fn answer_finished(&mut self, key: Key, sequence: Option<u32>) {
        let Some(peer) = self.peers.get_mut(usize::from(key.0)) else { return };
        let Some(finished) = peer.finished_mut(key.1) else {
            self.stats.stray += 1;
            return;
        };
        finished.sequence = sequence.unwrap_or(finished.sequence);
        if !std::mem::replace(&mut finished.stop_queued, true) {
            self.control.push_back((Due::Stop, key.0, key.1));
        }
    }
}
