// SPDX-License-Identifier: Apache-2.0
//! The receiving end.

use crate::sim::packet::{CONTROL, Ecn, Kind, Packet, Report};
use crate::sim::transport::{Delivery, Flow, Receiver, TrimwireConfig, planes};
use std::collections::VecDeque;
use trimwire_agent::config::TimeoutConfig;

/// One report of so many packets, as the agent has it in virtual time (`EndpointConfig::new`).
const ACK_EVERY: u32 = 10;

/// The receiving end.
#[derive(Debug)]
pub(in crate::sim::transport) struct TrimwireReceiver {
    flow: Flow,
    delivery: Delivery,
    /// Planes that a packet is sent with.
    sent: u8,
    planes: Vec<u8>,
    /// Packets of which something has come, and of which everything has.
    some: u32,
    whole: u32,
    reports: Vec<Report>,
    /// Packets until a report is due: after the first, and after so many more.
    due_in: u32,
    oldest: Option<Packet>,
    report_ns: u64,
    ack_delay_ns: u64,
    complete: bool,
}

impl TrimwireReceiver {
    pub(in crate::sim::transport) fn new(flow: Flow, config: &TrimwireConfig) -> Self {
        let planes = vec![0; flow.packets() as usize];
        Self {
            flow,
            delivery: config.delivery,
            sent: config.planes,
            planes,
            some: 0,
            whole: 0,
            reports: Vec::new(),
            due_in: 1,
            ack_delay_ns: TimeoutConfig::default().ack_delay_ns,
            oldest: None,
            report_ns: 0,
            complete: false,
        }
    }

    fn missing(&self) -> u32 {
        self.planes.len() as u32 - self.some
    }

    fn allowed(&self, loss: f64) -> u32 {
        (loss * self.planes.len() as f64) as u32
    }

    fn on_data(&mut self, now_ns: u64, packet: &Packet) {
        let whole = self.flow.payload_of(packet.number);
        let Some(held) = self.planes.get_mut(packet.number as usize) else { return };
        // What begins behind planes that are not there is of no use.
        if packet.rank <= planes::bytes_of(*held, whole, self.sent) {
            let now_held = planes::held(packet.length, packet.rank, whole, self.sent).max(*held);
            self.some += u32::from(*held == 0 && now_held > 0);
            self.whole += u32::from(*held < self.sent && now_held == self.sent);
            *held = now_held;
        }
        if self.reports.is_empty() {
            self.report_ns = now_ns + self.ack_delay_ns;
            self.oldest = Some(packet.answer(Kind::Ack, 0));
        }
        self.reports.push(Report {
            number: packet.number,
            planes: *held,
            trimmed: packet.is_trimmed(),
            marked: packet.ecn == Ecn::Ce,
            entropy: packet.entropy,
            // Until it is told: when it came.
            held_ns: now_ns as u32,
            sent_ns: packet.sent_ns,
        });
    }

    fn report(&mut self, now_ns: u64, out: &mut VecDeque<Packet>) {
        if let Some(answer) = self.oldest.take() {
            let mut reports = std::mem::take(&mut self.reports);
            reports
                .iter_mut()
                .for_each(|report| report.held_ns = (now_ns as u32).wrapping_sub(report.held_ns));
            // Two bytes a packet, more than a map of them takes (docs/explanation/transport.md).
            let length = CONTROL + 2 * reports.len() as u32;
            out.push_back(Packet { length, reports: Some(Box::new(reports)), ..answer });
        }
    }
}

impl Receiver for TrimwireReceiver {
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet, out: &mut VecDeque<Packet>) {
        match packet.kind {
            Kind::Data => {
                self.on_data(now_ns, packet);
                self.due_in -= 1;
            }
            Kind::Probe => {
                self.report(now_ns, out);
                if let Delivery::Trim { loss } = self.delivery {
                    self.complete = self.complete || self.missing() <= self.allowed(loss);
                }
                out.push_back(packet.answer(Kind::Status, 0));
            }
            _ => return,
        }
        let all = self.planes.len() as u32;
        self.complete = self.complete
            || match self.delivery {
                Delivery::Trim { .. } => self.some == all,
                Delivery::RepairTrimmed | Delivery::RepairDropped => self.whole == all,
            };
        if self.complete {
            out.push_back(packet.answer(Kind::Final, 0));
        } else if self.due_in == 0 {
            self.due_in = ACK_EVERY;
            self.report(now_ns, out);
        }
    }

    fn handle_timeout(&mut self, now_ns: u64, out: &mut VecDeque<Packet>) {
        if self.report_ns <= now_ns {
            self.report(now_ns, out);
        }
    }

    fn poll_timeout(&self) -> Option<u64> {
        (!self.reports.is_empty()).then_some(self.report_ns)
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn share_kept(&self) -> f64 {
        let kept: f64 = self.planes.iter().map(|&planes| planes::share_kept(planes)).sum();
        kept / self.planes.len() as f64
    }

    fn planes(&self) -> &[u8] {
        &self.planes
    }
}
