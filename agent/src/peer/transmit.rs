// SPDX-License-Identifier: Apache-2.0
//! What is to be sent to a peer.

use super::early::early_bytes;
use super::timers::Timer;
use super::{Context, Due, Peer};
use crate::burst::Origin;
use crate::config::EndpointConfig;
use crate::pacing::Pace;
use crate::paths::Question;
use crate::transfer::loss::Load;
use crate::transfer::outgoing::{Chunk, Outgoing};
use crate::wire::{Identity, Progress, Report, Wanted, Writer};
use std::net::SocketAddr;

/// Layer class, order of `open`, and number of a message.
type Sending = (u8, u64, u32);

/// Bytes of a frame, by which bursts are measured; those of longer packets count as what they are.
const FRAME: u64 = 1_500;

/// Data that leaves.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) chunk: Chunk,
    pub(crate) class: u8,
    pub(crate) path: u16,
    pub(crate) pace: Pace,
}

impl Peer {
    fn writer(&self, sealed: bool) -> Writer {
        Writer { stream: self.stream, identity: self.session.identity(), room: self.control_room(sealed) }
    }

    /// Whether control packets are due.
    pub(crate) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// The next control packet that is still called for: where to, from where, and its payload.
    pub(crate) fn next_control(&mut self, cx: &mut Context<'_>) -> Option<(SocketAddr, Origin, Vec<u8>)> {
        while let Some(due) = self.control.pop_front() {
            let to = match due {
                Due::Ask(question) => self.session.address_of(question.path),
                Due::Hello { to: Some((to, _)), .. } => Some(to),
                _ => self.session.address_of(self.session.way()),
            };
            if let (Some(to), Some(payload)) = (to, self.write(cx, due)) {
                self.stats.control_sent += 1;
                let way = self.session.way();
                let origin = match due {
                    Due::Ask(question) => Origin::Path(question.path),
                    _ if self.session.address_of(way) == Some(to) => Origin::Listening(way),
                    _ => Origin::Listening(0),
                };
                return Some((to, origin, payload));
            }
        }
        None
    }

    fn write(&mut self, cx: &mut Context<'_>, due: Due) -> Option<Vec<u8>> {
        let (now_ns, timeouts, writer) =
            (cx.now_ns, &cx.config.timeouts, self.writer(cx.config.seal.is_some()));
        match due {
            Due::Hello { answer, to } => {
                let incarnation = to.map_or(writer.identity.to, |(_, incarnation)| incarnation);
                let identity = Identity { to: incarnation, ..writer.identity };
                Some(Writer { identity, ..writer }.hello(
                    answer,
                    &cx.config.source_ports,
                    &cx.config.addresses,
                ))
            }
            Due::Ack(message) => {
                let transfer = self.receives.get_mut(&message)?;
                transfer.ack_queued = false;
                let (payload, more) = transfer.ack(now_ns, cx.senders, writer)?;
                if more {
                    transfer.ack_queued = true;
                    self.control.push_back(due);
                }
                Some(payload)
            }
            Due::Status(message) => {
                let transfer = self.receives.get_mut(&message)?;
                transfer.status_queued = false;
                let (payload, more) = transfer.status(now_ns, cx.senders, writer)?;
                if more {
                    transfer.status_queued = true;
                    self.control.push_back(due);
                }
                Some(payload)
            }
            Due::Stop { message, sequence } => {
                let Some(transfer) = self.receives.get_mut(&message) else {
                    return Some(self.epitaph(message)?.stop(now_ns, message, sequence, writer));
                };
                transfer.stop_queued = false;
                let (payload, more) = transfer.stop(now_ns, writer)?;
                if more {
                    transfer.stop_queued = true;
                    self.control.push_back(due);
                }
                Some(payload)
            }
            Due::EarlyAck { message } => {
                let early = self.early.get_mut(message)?;
                early.ack_queued = false;
                let report = early.tally.report(now_ns);
                Some(not_expected(writer, message, false, 0, report))
            }
            Due::EarlyStatus { message, sequence } => {
                if self.receives.contains_key(&message) {
                    return None;
                }
                let report = self.early.get_mut(message).map(|early| early.tally.report(now_ns));
                Some(not_expected(writer, message, true, sequence, report.unwrap_or_default()))
            }
            Due::Probe(message) => {
                let transfer = self.sends.get_mut(&message)?;
                transfer.probe_queued = false;
                let probe = transfer.probe(now_ns, &self.estimate, timeouts);
                let timer_ns = transfer.timer_ns();
                self.timers.set(Timer::Outgoing(message), timer_ns);
                Some(writer.probe(message, &probe))
            }
            Due::Forward(message) => {
                let transfer = self.sends.get_mut(&message)?;
                let payload = transfer.forward(writer);
                transfer.forward_queued = transfer.has_forward();
                if transfer.forward_queued {
                    self.control.push_back(due);
                }
                payload
            }
            Due::Final(message) => {
                let agreement = self.finals.get_mut(&message)?;
                agreement.queued = false;
                let (payload, more) = agreement.next_packet(now_ns, writer, &self.estimate, timeouts)?;
                if more {
                    agreement.queued = true;
                    self.control.push_back(due);
                }
                let timer_ns = agreement.timer_ns;
                self.timers.set(Timer::Finals(message), timer_ns);
                Some(payload)
            }
            Due::Ask(Question { sequence, long, .. }) => {
                let size = if long { self.mtu.size().unwrap_or(0) } else { 0 };
                Some(self.path_question(sequence, size, cx.config.seal.is_some(), writer))
            }
            Due::PathQuestion { size } => {
                Some(self.path_question(self.mtu.sequence(), size, cx.config.seal.is_some(), writer))
            }
            Due::PathAnswer { sequence, length } => Some(self.path_answer(sequence, length, writer)),
            Due::Abort(message) => Some(writer.abort(message, self.abortion(message)?)),
            Due::Vote => Some(writer.vote(&self.votes.pop_front()?)),
        }
    }

    /// When data may leave; `None` while there is none, or no more may be on its way.
    pub(crate) fn data_ns(&self, config: &EndpointConfig) -> Option<u64> {
        self.next_message(config).map(|_| self.pacer.next_ns())
    }

    /// The message that goes first among those that may send, and how many of its packets may.
    ///
    /// Data that the peer asked for goes to rows and is bounded by the path. Other data may wait at
    /// the peer as early data does (`early`). Its room is this peer's to keep count of: a window
    /// for messages that are known to wait, all together, and another for those not heard of yet.
    fn next_message(&self, config: &EndpointConfig) -> Option<(Sending, usize)> {
        // Packets that are too long for the path would be lost, and in pieces they cannot be
        // trimmed: a round trip tells.
        if !self.session.is_confirmed() || !self.mtu.is_settled() {
            return None;
        }
        let (mut in_flight, mut waiting, mut unheard) = (0, 0, 0);
        for transfer in self.sends.values() {
            let load = transfer.in_flight();
            match transfer.asked_for() {
                Some(true) => in_flight += load.bytes,
                Some(false) => waiting += early_bytes(load),
                None => {
                    in_flight += load.bytes;
                    unheard += early_bytes(load);
                }
            }
        }
        let part = config.window_bytes();
        let path = self.path_bytes().clamp(part, config.window_most()).saturating_sub(in_flight);
        let may_send = |&(class, order, message): &Sending| {
            let transfer = self.sends.get(&message).filter(|transfer| transfer.has_data())?;
            let early = match transfer.asked_for() {
                Some(true) if path > 0 => return Some(((class, order, message), usize::MAX)),
                Some(false) => part.saturating_sub(waiting),
                None if path > 0 => part.min((2 * part).saturating_sub(waiting)).saturating_sub(unheard),
                Some(true) | None => return None,
            };
            let packets = early / early_bytes(Load { packets: 1, bytes: transfer.next_len() as u64 });
            (packets > 0).then_some(((class, order, message), packets as usize))
        };
        self.sending.iter().find_map(may_send)
    }

    /// Bytes on their way, but for those that nobody has asked for.
    fn in_flight_bytes(&self) -> u64 {
        let expected = self.sends.values().filter(|transfer| transfer.asked_for() != Some(false));
        expected.map(|transfer| transfer.in_flight().bytes).sum()
    }

    /// Twice what the idle path holds at this rate, for acknowledgements come in batches. With many
    /// ranks a peer's part of the window is less than that, and a ring, whose ranks send to one
    /// other each, would never fill its link.
    fn path_bytes(&self) -> u64 {
        let least_ns = self.estimate.data.minimum_ns().unwrap_or(0);
        (2 * u128::from(self.rate.rate_bps()) * u128::from(least_ns) / 8_000_000_000)
            .min(u128::from(u64::MAX)) as u64
    }

    /// The next data: a burst as long as the peer's rate allows.
    pub(crate) fn next_data(&mut self, cx: &mut Context<'_>) -> Option<Data> {
        let now_ns = cx.now_ns;
        if self.in_flight_bytes() == 0 {
            self.silent_since_ns = now_ns;
        }
        let silent_ns = now_ns.saturating_sub(self.silent_since_ns);
        let rate_bps =
            self.estimate.rate_in_silence_bps(self.rate.rate_bps(), silent_ns, &cx.config.timeouts);
        while let Some((key @ (class, _, message), room)) = self.next_message(cx.config) {
            let transfer = self.sends.get_mut(&message)?;
            let frame = FRAME.max(transfer.next_len() as u64 + u64::from(cx.config.overhead_bytes));
            let most = self.pacer.burst_limit(rate_bps, frame);
            let (chunk, pace) = (transfer.next_data(now_ns, most.min(room), &mut self.paths), transfer.pace);
            if transfer.after_data(now_ns, &self.estimate, &cx.config.timeouts) {
                self.queue_probe(message);
            } else {
                let timer_ns = transfer.timer_ns();
                self.timers.set(Timer::Outgoing(message), timer_ns);
            }
            if chunk.is_none() || !self.sends.get(&message).is_some_and(Outgoing::has_data) {
                self.sending.remove(&key);
            }
            // What was to be repaired has arrived after all: that may have been the last of it.
            let Some((chunk, path)) = chunk else { continue };
            let overhead = u64::from(cx.config.overhead_bytes) * u64::from(chunk.run.packets);
            let payload = chunk.run.payload.len() as u64;
            let bytes = payload + overhead;
            self.stats.data_sent += u64::from(chunk.run.packets);
            self.stats.data_bytes_sent += payload;
            self.stats.repairs_sent += u64::from(chunk.run.packets * u32::from(chunk.repair));
            if cx.config.pace_at_line || rate_bps < cx.config.line_rate_bps {
                self.pacer.sent(now_ns, bytes, rate_bps, cx.config.burst_ns);
            }
            return Some(Data { chunk, class, path, pace });
        }
        None
    }
}

fn not_expected(writer: Writer, message: u32, answer: bool, sequence: u32, report: Report) -> Vec<u8> {
    let progress = Progress {
        sequence,
        report,
        missing: 0,
        wanted: Wanted::AllBut(0),
        expected: false,
        bound_holds: false,
        low: 0,
        map: None,
    };
    writer.progress(message, answer, &progress, None).0
}
