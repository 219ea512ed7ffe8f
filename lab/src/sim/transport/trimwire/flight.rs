// SPDX-License-Identifier: Apache-2.0
//! What a sender knows of its packets: which are on their way, which are there, and which are lost
//! (`agent/src/transfer/flight.rs`). A report names the copy that arrived, so that nothing has to
//! be guessed of packets that were sent twice.

use crate::sim::packet::Report;
use std::collections::VecDeque;
use trimwire_agent::transfer::{Overtaken, PathEstimate};

/// One packet of the message.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// When its newest copy left, plus one; 0 when its fate is known.
    left_ns: u64,
    /// Bytes of that on the wire.
    length: u32,
    /// Planes that the receiver has reported.
    planes: u8,
    /// How often it left (saturating).
    attempts: u8,
}

/// Packets that left on one path, in order.
#[derive(Debug, Clone, Default)]
struct Lane {
    sent: VecDeque<(u64, u32)>,
    /// Newest departure of which a whole packet has arrived; before the report of this number, too.
    newest_ns: u64,
    told: (u64, u32),
}

/// When packets count as lost for their age.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "all are times")]
pub(super) struct Late {
    pub(super) now_ns: u64,
    /// When the receiver was asked what it has.
    pub(super) asked_ns: u64,
    pub(super) delay_ns: u64,
}

/// A packet that is lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lost {
    pub(super) number: u32,
    pub(super) sent_ns: u64,
    pub(super) path: u16,
}

/// What one packet's report says that is news.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    /// It was waited for.
    pub(super) awaited: bool,
    /// Planes that were known to be there before, and are now.
    pub(super) before: u8,
    pub(super) planes: u8,
    /// It left once: the time that it took is known.
    pub(super) once: bool,
    pub(super) overtaken: Overtaken,
}

/// All packets of a message.
#[derive(Debug)]
pub(super) struct Flight {
    states: Vec<State>,
    lanes: Vec<Lane>,
    /// The newest over all lanes; before the report that is taken.
    newest_ns: u64,
    told_ns: u64,
    reports: u32,
    flying: u64,
    last_sent_ns: u64,
}

impl Flight {
    pub(super) fn new(packets: u32, paths: u16) -> Self {
        Self {
            states: vec![State::default(); packets as usize],
            lanes: vec![Lane::default(); usize::from(paths.max(1))],
            newest_ns: 0,
            told_ns: 0,
            reports: 0,
            flying: 0,
            last_sent_ns: 0,
        }
    }

    pub(super) fn packets(&self) -> u32 {
        self.states.len() as u32
    }

    /// Bytes on their way.
    pub(super) fn in_flight(&self) -> u64 {
        self.flying
    }

    /// When the newest packet left, if anything is on its way.
    pub(super) fn newest_in_flight_ns(&self) -> Option<u64> {
        (self.flying > 0).then_some(self.last_sent_ns)
    }

    /// Planes that the receiver is known to have of a packet.
    pub(super) fn planes(&self, number: u32) -> u8 {
        self.states[number as usize].planes
    }

    /// A packet leaves.
    pub(super) fn sent(&mut self, now_ns: u64, number: u32, path: u16, length: u32) {
        let state = &mut self.states[number as usize];
        if state.left_ns != 0 {
            self.flying -= u64::from(state.length);
        }
        (state.left_ns, state.length) = (now_ns + 1, length);
        state.attempts = state.attempts.saturating_add(1);
        self.flying += u64::from(length);
        self.last_sent_ns = now_ns;
        let lanes = self.lanes.len();
        self.lanes[usize::from(path) % lanes].sent.push_back((now_ns, number));
    }

    /// Reports of several packets follow, which arrived in no order.
    pub(super) fn begin_reports(&mut self) {
        self.reports = self.reports.wrapping_add(1);
        self.told_ns = self.newest_ns;
    }

    /// Takes what became of one packet that left on `path`.
    pub(super) fn take(&mut self, report: &Report, path: u16) -> Option<Taken> {
        let state = self.states.get_mut(report.number as usize)?;
        let before = state.planes;
        state.planes = before.max(report.planes);
        let awaited = std::mem::take(&mut state.left_ns) != 0;
        if awaited {
            self.flying -= u64::from(state.length);
        }
        let (once, planes) = (state.attempts == 1, state.planes);
        let mut overtaken = Overtaken::default();
        // As in the agent, what comes after it was counted as lost tells by how much it was late.
        if !report.trimmed && state.planes > before {
            let lanes = self.lanes.len();
            let lane = &mut self.lanes[usize::from(path) % lanes];
            if lane.told.1 != self.reports {
                lane.told = (lane.newest_ns, self.reports);
            }
            if once {
                overtaken.within_ns = lane.told.0.saturating_sub(report.sent_ns);
                overtaken.across_ns = self.told_ns.saturating_sub(report.sent_ns);
            }
            lane.newest_ns = lane.newest_ns.max(report.sent_ns);
            self.newest_ns = self.newest_ns.max(report.sent_ns);
        }
        Some(Taken { awaited, before, planes, once, overtaken })
    }

    /// Packets that later ones have overtaken, or that left before a question and too long ago, and
    /// of which nothing was heard, by number.
    pub(super) fn lost(&mut self, estimate: &PathEstimate, late: Option<Late>) -> Vec<Lost> {
        let (across_ns, within_ns) = (estimate.reorder_ns(), estimate.reorder_within_path_ns());
        let mut lost = Vec::new();
        for (path, lane) in (0_u16..).zip(&mut self.lanes) {
            while let Some(&(sent_ns, number)) = lane.sent.front() {
                let state = &mut self.states[number as usize];
                if state.left_ns == sent_ns + 1 {
                    let behind = |window: Option<u64>, newest_ns: u64| {
                        window.is_some_and(|window_ns| sent_ns.saturating_add(window_ns) < newest_ns)
                    };
                    let overtaken = behind(across_ns, self.newest_ns) || behind(within_ns, lane.newest_ns);
                    let late = late.is_some_and(|late| {
                        sent_ns <= late.asked_ns && late.now_ns.saturating_sub(sent_ns) >= late.delay_ns
                    });
                    if !overtaken && !late {
                        break;
                    }
                    state.left_ns = 0;
                    self.flying -= u64::from(state.length);
                    lost.push(Lost { number, sent_ns, path });
                }
                lane.sent.pop_front();
            }
        }
        lost.sort_unstable_by_key(|lost| lost.number);
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::transport::planes::WHOLE;

    const RTT: u64 = 20_000;

    fn estimate() -> PathEstimate {
        let mut estimate = PathEstimate::default();
        estimate.data.sample(RTT);
        estimate
    }

    fn arrives(flight: &mut Flight, number: u32, path: u16, sent_ns: u64) {
        flight.begin_reports();
        let report =
            Report { number, planes: WHOLE, trimmed: false, marked: false, entropy: 0, held_ns: 0, sent_ns };
        assert!(flight.take(&report, path).is_some_and(|taken| taken.awaited));
    }

    fn lost(flight: &mut Flight, late: Option<Late>) -> Vec<u32> {
        flight.lost(&estimate(), late).iter().map(|lost| lost.number).collect()
    }

    #[test]
    fn a_later_packet_of_the_same_path_shows_a_loss_at_once_and_one_of_another_path_after_a_window() {
        // The agent's own example (`agent/src/transfer/flight.rs`).
        let mut flight = Flight::new(4, 2);
        for (number, path) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
            flight.sent(u64::from(number) * 3_000, number, path, 100);
        }
        arrives(&mut flight, 2, 0, 6_000);
        assert_eq!(lost(&mut flight, None), [0], "packet 1 may be late, on its own path");
        arrives(&mut flight, 3, 1, 9_000);
        assert_eq!(lost(&mut flight, None), [1]);
        assert_eq!(flight.in_flight(), 0);
    }

    #[test]
    fn a_packet_that_was_counted_as_lost_tells_how_late_it_was() {
        let mut flight = Flight::new(2, 2);
        flight.sent(0, 0, 0, 100);
        flight.sent(9_000, 1, 1, 100);
        arrives(&mut flight, 1, 1, 9_000);
        assert_eq!(lost(&mut flight, None), [0]);
        flight.begin_reports();
        let (planes, trimmed) = (WHOLE, false);
        let report = Report { number: 0, planes, trimmed, marked: false, entropy: 0, held_ns: 0, sent_ns: 0 };
        assert_eq!(flight.take(&report, 0).map(|taken| taken.overtaken.across_ns), Some(9_000));
    }

    #[test]
    fn what_left_after_the_question_is_not_late() {
        let mut flight = Flight::new(2, 2);
        flight.sent(0, 0, 0, 100);
        flight.sent(60_001, 1, 1, 100);
        let late = Late { now_ns: 1_000_000, asked_ns: 60_000, delay_ns: 100_000 };
        assert_eq!(lost(&mut flight, Some(late)), [0]);
        assert_eq!(flight.newest_in_flight_ns(), Some(60_001));
    }
}
