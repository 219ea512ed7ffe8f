// SPDX-License-Identifier: Apache-2.0
//! When a sender asks, and what it does while nobody answers.

use super::{Next, Outgoing, Pass};
use crate::config::TimeoutConfig;
use crate::transfer::path::PathEstimate;
use crate::transfer::{TransferError, Way, backoff};
use crate::wire::trim_map::TrimMap;
use crate::wire::{Probe, Progress};

impl Outgoing {
    /// Data has left: when to ask, if nobody says anything. `true`: at once, because it was the
    /// last of it.
    pub(crate) fn after_data(
        &mut self,
        now_ns: u64,
        estimate: &PathEstimate,
        timeouts: &TimeoutConfig,
    ) -> bool {
        if self.wait_for_trial(now_ns, estimate, timeouts) {
            return false;
        }
        if self.all_sent() {
            let earliest_ns = self.inquiry.earliest_ns(estimate, timeouts);
            if now_ns < earliest_ns {
                self.timer_ns = Some(self.timer_ns.map_or(earliest_ns, |at_ns| at_ns.min(earliest_ns)));
            }
            return now_ns >= earliest_ns;
        }
        if self.timer_ns.is_none() {
            self.timer_ns = Some(now_ns.saturating_add(self.silence.ask_after_ns(estimate, timeouts)));
        }
        false
    }

    /// Since when nothing has been heard of what is on its way.
    pub(crate) fn silent_since_ns(&self) -> u64 {
        self.silence.since_ns()
    }

    /// The PROBE that leaves at `now_ns`.
    pub(crate) fn probe(&mut self, now_ns: u64, estimate: &PathEstimate, timeouts: &TimeoutConfig) -> Probe {
        let patience = self.not_expected.map_or(0, |(_, times)| times);
        let (sequence, again_ns) = self.inquiry.ask(now_ns, patience, estimate, timeouts);
        self.timer_ns = Some(again_ns);
        if self.all_sent() {
            self.inquiry.about_everything(now_ns);
        }
        self.stats.probes += 1;
        let grace_ns = if self.all_sent() && self.pass == Pass::Settled {
            estimate.loss_delay_ns(timeouts).max(1)
        } else {
            0
        };
        Probe {
            sequence,
            packets: self.packets,
            shape: self.shape,
            planes: self.planes,
            want_map: self.map.is_some(),
            finish: self.finish && self.all_sent(),
            grace_ns: grace_ns.min(u64::from(u32::MAX)) as u32,
            map_offset: self.map.as_ref().map_or(0, TrimMap::known_until),
        }
    }

    /// The answer to the newest question, when everything was sent before it.
    pub(super) fn on_last_answer(
        &mut self,
        now_ns: u64,
        progress: &Progress<'_>,
        estimate: &PathEstimate,
        timeouts: &TimeoutConfig,
    ) -> Next {
        let waited_ns = now_ns.saturating_sub(self.progress_ns);
        if waited_ns >= timeouts.patience_ns {
            return Next::Failed(self.stalled(progress.missing, waited_ns));
        }
        // Another part of the answer is to come, or was lost.
        if !self.flight.knows_all(progress) {
            return Next::Wait;
        }
        if let Some(sent_ns) = self.flight.newest_in_flight_ns() {
            let again_ns = estimate.ask_again_ns(now_ns, sent_ns, timeouts);
            self.timer_ns = Some(again_ns.max(self.inquiry.earliest_ns(estimate, timeouts)));
            return Next::Wait;
        }
        if progress.bound_holds {
            match self.pass {
                Pass::Sending => {
                    self.pass = Pass::Over;
                    return Next::Passed;
                }
                Pass::Over => {
                    self.timer_ns = Some(now_ns.saturating_add(timeouts.keep_alive_ns));
                    return Next::Wait;
                }
                Pass::Settled => {}
            }
            if std::mem::replace(&mut self.finish, true) {
                return Next::Wait;
            }
            return Next::Probe;
        }
        self.forward.clear();
        for repair in self.flight.take_left_out() {
            self.queue(repair);
        }
        self.ready()
    }

    pub(super) fn on_not_expected(&mut self, now_ns: u64, timeouts: &TimeoutConfig) -> Next {
        let (since_ns, _) = *self.not_expected.get_or_insert((now_ns, 0));
        let waited_ns = now_ns.saturating_sub(since_ns);
        if waited_ns >= timeouts.patience_ns {
            let (peer, message, packets) = (self.to, self.id, self.packets);
            return Next::Failed(TransferError::NotExpected { peer, message, packets, waited_ns });
        }
        // The timer of the probe stays: the receiver answers by itself as soon as it is asked.
        self.ready()
    }

    pub(super) fn ready(&self) -> Next {
        if self.has_data() { Next::Data } else { Next::Wait }
    }

    /// Nothing gets through: the next packet is tried when the timer expires. `false`: something
    /// does.
    pub(super) fn wait_for_trial(
        &mut self,
        now_ns: u64,
        estimate: &PathEstimate,
        timeouts: &TimeoutConfig,
    ) -> bool {
        let Some(times) = self.trial.waits() else { return false };
        let wait_ns = backoff(estimate.answer_timeout_ns(0, timeouts), times, timeouts.max_ns);
        let at_ns = now_ns.saturating_add(wait_ns);
        self.timer_ns = Some(self.timer_ns.map_or(at_ns, |timer_ns| timer_ns.min(at_ns)));
        true
    }

    /// Something was heard: asks again later.
    pub(super) fn rest(&mut self, now_ns: u64, estimate: &PathEstimate, timeouts: &TimeoutConfig) {
        if self.wait_for_trial(now_ns, estimate, timeouts) {
            return;
        }
        let later_ns = now_ns.saturating_add(estimate.answer_timeout_ns(0, timeouts));
        let silence_ns = now_ns.saturating_add(self.silence.ask_after_ns(estimate, timeouts));
        let earliest_ns = self.inquiry.earliest_ns(estimate, timeouts);
        self.timer_ns = match (self.all_sent(), self.inquiry.is_open()) {
            (false, false) if self.flight.in_flight().bytes == 0 => None,
            (false, _) => {
                let wait_ns = self.silence.ask_after_ns(estimate, timeouts);
                let unclear_ns = self.unclear_since_ns.map(|since_ns| since_ns.saturating_add(wait_ns));
                Some(unclear_ns.map_or(silence_ns, |at_ns| at_ns.min(silence_ns)))
            }
            // What is on its way says when to ask again, and not what comes meanwhile.
            (true, false) => match self.flight.newest_in_flight_ns() {
                Some(sent_ns) => {
                    let again_ns = estimate.ask_again_ns(now_ns, sent_ns, timeouts);
                    Some(later_ns.min(again_ns.max(earliest_ns)))
                }
                None if self.pass == Pass::Sending => Some(earliest_ns.max(now_ns)),
                None => Some(later_ns),
            },
            _ => Some(later_ns),
        };
    }

    /// Questions for which time was up, and nothing has come since.
    pub(crate) fn unanswered(&self) -> u32 {
        self.inquiry.unanswered()
    }

    /// The timer has expired.
    pub(crate) fn on_timeout(&mut self, now_ns: u64, timeouts: &TimeoutConfig) -> Next {
        self.timer_ns = None;
        self.trial.on_timeout();
        self.silence.asked();
        let (silent_ns, probes) = self.inquiry.on_timeout(now_ns);
        if silent_ns >= timeouts.give_up_ns {
            return Next::Failed(TransferError::Unanswered {
                peer: self.to,
                message: self.id,
                packets: self.packets,
                missing: self.stats.missing,
                probes,
                silent_ns,
                way: Way::default(),
            });
        }
        if let Some((_, times)) = &mut self.not_expected {
            *times = times.saturating_add(1);
        }
        Next::Probe
    }
}
