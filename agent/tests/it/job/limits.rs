// SPDX-License-Identifier: Apache-2.0
//! How long a job may take, how much it may say beside its data, and what may be kept: computed
//! from what is done and what the network does.

use super::case::{Case, Kind, Plan, Promise, SECOND, Trouble};
use crate::network::{Faults, LINE_BPS};
use trimwire_agent::collective::{Algorithm, direct_shards};
use trimwire_agent::endpoint::{EndpointConfig, EndpointStats};
use trimwire_agent::rate::Limits as RateLimits;
use trimwire_agent::transfer::TransferStats;

/// How sure bounds that depend on chance are: one case in so many may break one by itself.
const ODDS: f64 = 1e6;
/// What data leaves at at least under an algorithm (rate.rs, `Limits::min_rate_bps`), as a share of
/// the line.
const LEAST_RATE: f64 = 1e-3;

#[derive(Debug)]
pub(crate) struct Limits<'a> {
    case: &'a Case,
    config: &'a EndpointConfig,
}

impl<'a> Limits<'a> {
    pub(crate) fn new(case: &'a Case, config: &'a EndpointConfig) -> Self {
        assert!(RateLimits::default().min_rate_bps.is_none(), "the default is a thousandth of the line");
        Self { case, config }
    }

    /// The shortest round trip of data and its report, ns, and the longest.
    fn round_trips_ns(&self) -> (f64, f64) {
        let Faults { data_delay_ns, control_delay_ns, jitter_ns, .. } = self.case.faults;
        let both = (data_delay_ns + control_delay_ns) as f64;
        // Questions and answers are control packets both ways.
        (
            both.min(2.0 * control_delay_ns as f64),
            both.max(2.0 * control_delay_ns as f64) + 2.0 * jitter_ns as f64,
        )
    }

    /// Time after which what was lost last is asked for: two round trips or RFC 6298's time-out, a
    /// report's delay, four trim delays (docs/explanation/transport.md).
    fn silence_ns(&self) -> f64 {
        let (_, longest_ns) = self.round_trips_ns();
        let timeouts = &self.config.timeouts;
        let least_ns = timeouts.min_ns.max(timeouts.initial_ns) as f64;
        (3.0 * longest_ns).max(least_ns) + (timeouts.ack_delay_ns + 4 * self.config.trim_delay_ns) as f64
    }

    /// So often does something of a chance of `failure` fail one after the other at most, of so
    /// many things that are tried.
    fn run(failure: f64, tried: f64) -> f64 {
        if failure > 0.0 { (tried.max(1.0).ln() / (1.0 / failure.min(0.999)).ln()).ceil() } else { 0.0 }
    }

    /// Time of so many attempts at one packet: while nothing else arrives, waits double from the
    /// third on (docs/explanation/transport.md, "Losses"); from the first on, and up to the second
    /// that TCP begins with (RFC 6298, 2.1), where no round trip of data is known, because nothing
    /// has come through at once yet.
    fn attempts_ns(&self, attempts: f64) -> f64 {
        let round_ns = self.silence_ns() + self.round_trips_ns().1;
        let (doubling, longest_ns) =
            if self.case.warm { (2, self.config.timeouts.max_ns) } else { (0, SECOND) };
        let most_ns = longest_ns as f64 + round_ns;
        (0..attempts as i32)
            .map(|times| (round_ns * 2.0_f64.powi((times - doubling).max(0))).min(most_ns))
            .sum()
    }

    /// Time of so many questions that are lost, or their answers: each waits twice as long as the
    /// one before, up to a limit.
    fn unanswered_ns(&self, questions: f64) -> f64 {
        let most_ns = self.config.timeouts.max_ns as f64 + self.round_trips_ns().1;
        (0..questions as i32).map(|times| (self.silence_ns() * 2.0_f64.powi(times)).min(most_ns)).sum()
    }

    /// Chance that a question has no answer.
    fn no_answer(&self) -> f64 {
        1.0 - (1.0 - self.case.faults.drop_control).powi(2)
    }

    /// The worst luck with questions in a case.
    fn unlucky_ns(&self) -> f64 {
        self.unanswered_ns(Self::run(self.no_answer(), ODDS * 1e3))
    }

    /// Hops of an operation, one after the other.
    fn hops(&self, plan: &Plan) -> f64 {
        let world = f64::from(self.case.world);
        match plan.algorithm {
            Algorithm::Ring => 2.0 * world,
            Algorithm::Automatic if plan.promise == Promise::Exact => 2.0 * world,
            _ => 4.0,
        }
    }

    /// Bytes on the wire that one rank sends of an operation at most, each once.
    fn bytes(&self, plan: &Plan) -> f64 {
        let world = f64::from(self.case.world);
        let per_packet = self.case.coordinates_per_packet(plan);
        let packet = self.case.packet_len(plan, plan.sent_planes()) + usize::from(self.config.overhead_bytes);
        let encoded = (plan.length.div_ceil(per_packet) as f64 + world) * packet as f64;
        let times = match plan.kind {
            Kind::AllReduce => {
                let owners = direct_shards(plan.length, self.case.world).len() as f64;
                1.0 + (world - 1.0) / owners.max(1.0)
            }
            Kind::PushPull { servers } => 1.0 + (world - 1.0) / f64::from(servers),
            Kind::Broadcast { .. } => world - 1.0,
            _ => 1.0,
        };
        // On two levels who leads sends to all ranks of its host, and to those of its place.
        if plan.algorithm == Algorithm::Direct || plan.algorithm == Algorithm::Ring {
            times * encoded
        } else {
            2.0 * (times + 1.0) * encoded
        }
    }

    /// When the last rank has the result of its last operation at the latest, ns after the first
    /// began.
    ///
    /// Each hop takes the rounds in which the last of its packets gets through, as chance has it;
    /// once in a case it takes as long as the worst luck would have it.
    pub(crate) fn time_ns(&self) -> u64 {
        let case = self.case;
        let (drop_data, trim) = (case.faults.lost(), case.faults.trim);
        let (_, round_trip_ns) = self.round_trips_ns();
        let round_ns = self.silence_ns() + round_trip_ns;
        // Without trims and losses no algorithm has a reason to be slower than the line.
        let slowed = case.adapts && drop_data + trim > 0.0;
        let rate = LINE_BPS as f64 * if slowed { LEAST_RATE } else { 1.0 };
        // Messages that a hop waits for.
        let messages = f64::from(case.world) * (case.operations.len() + 1) as f64;
        let answers_ns = self.unanswered_ns(Self::run(self.no_answer(), messages));
        let (mut hops_ns, mut unlucky_ns, mut serial_ns, mut deadline_ns) = (0.0_f64, 0.0_f64, 0.0, 0);
        for plan in case.plans() {
            let failure = case.failure(plan);
            let packets =
                plan.length.div_ceil(case.coordinates_per_packet(plan)) as f64 * f64::from(case.world) * 2.0;
            // Agreeing replicas ask for tails three times, and are told of the precision.
            let agreeing = if plan.consistent { 8.0 } else { 0.0 };
            let rounds = Self::run(failure, packets) + agreeing + 3.0;
            let tail_ns = self.attempts_ns(Self::run(failure, messages));
            hops_ns = hops_ns.max(self.hops(plan) * (rounds * round_ns + tail_ns + answers_ns));
            unlucky_ns = unlucky_ns.max(self.attempts_ns(Self::run(failure, ODDS * packets)));
            // What is trimmed is sent again under consistent replicas and best effort, too.
            let again =
                if plan.consistent || matches!(plan.promise, Promise::BestEffort { .. }) { 4.0 } else { 1.0 };
            serial_ns += again * self.bytes(plan) / (1.0 - failure) * 8e9 / rate;
            if let Promise::BestEffort { deadline_ns: until_ns } = plan.promise {
                deadline_ns = deadline_ns.max(until_ns);
            }
        }
        // In silence data leaves at less than an algorithm's least rate now and then.
        // Three packets of a greeting go before the first data.
        let greeting_ns = 2.0 * (round_ns + answers_ns);
        let lucky_ns = greeting_ns
            + 2.0 * hops_ns
            + unlucky_ns
            + self.unlucky_ns()
            + if slowed { 3.0 } else { 1.5 } * serial_ns;
        // Who waited for an answer asks again within the longest wait, and has to be lucky to get
        // it.
        let timeouts = &self.config.timeouts;
        let asked_ns = timeouts.max_ns as f64 + self.unlucky_ns();
        let trouble_ns = match case.trouble {
            Trouble::None => 0.0,
            Trouble::Late { by_ns, .. } | Trouble::Absent { by_ns, .. } => by_ns as f64 + asked_ns,
            Trouble::Stopped { at_ns, for_ns, .. } => (at_ns + for_ns) as f64 + asked_ns,
            // Whoever waits for it asks for a sign of life, if the new process says nothing by
            // itself.
            Trouble::Restarted { at_ns, .. } => (at_ns + 2 * timeouts.keep_alive_ns) as f64 + asked_ns,
            // A receiver asks for a sign of life, and then everybody is told
            // (docs/results/faults.md).
            Trouble::Killed { at_ns, .. } => {
                (at_ns + timeouts.give_up_ns + 2 * timeouts.keep_alive_ns) as f64 + 2.0 * asked_ns
            }
        };
        (lucky_ns + trouble_ns) as u64 + deadline_ns
    }

    /// Time in which nothing can get on, ns: questions are far apart then.
    fn idle_ns(&self) -> u64 {
        match self.case.trouble {
            Trouble::None | Trouble::Restarted { .. } => 0,
            Trouble::Late { by_ns, .. } | Trouble::Absent { by_ns, .. } => by_ns,
            Trouble::Stopped { for_ns, .. } => for_ns,
            Trouble::Killed { .. } => {
                self.config.timeouts.give_up_ns + 2 * self.config.timeouts.keep_alive_ns
            }
        }
    }

    /// Questions about something that is under way for so long: none within a round trip of the one
    /// before, and while nobody can answer, after waits that double.
    fn questions(&self, duration_ns: u64) -> f64 {
        let idle_ns = self.idle_ns().min(duration_ns);
        let timeouts = &self.config.timeouts;
        let doublings = (timeouts.max_ns as f64 / timeouts.min_ns as f64).log2().ceil();
        4.0 + doublings
            + (duration_ns - idle_ns) as f64 / self.round_trips_ns().0.max(1.0)
            + 2.0 * idle_ns as f64 / timeouts.max_ns as f64
    }

    /// Packets of a trim map's part, at least.
    const PART: f64 = 2_600.0;

    /// Most control packets, and their bytes.
    pub(crate) fn control(&self, said: &Said, stats: &EndpointStats) -> (f64, f64) {
        let every = f64::from(self.config.ack_every);
        // What came in another order takes more than one ACK to tell: four on one occasion at most
        // (docs/reference/agent.md, Limits).
        let Faults { jitter_ns, trim, duplicate, broken, .. } = self.case.faults;
        let drop_data = self.case.faults.lost();
        let in_order = jitter_ns == 0 && drop_data + trim + duplicate <= 0.0 && self.idle_ns() == 0;
        let each = if in_order { 1.0 } else { 4.0 };
        let mut acks = said.rows as f64 + (stats.data_received + stats.stray) as f64 / every;
        // An ACK tells of what has come since the one before, of 128 packets more, and of what is
        // under way.
        let (_, round_trip_ns) = self.round_trips_ns();
        let least = self.case.plans().map(|plan| self.case.packet_len(plan, 1) + 42).min().unwrap_or(64);
        let flight = (round_trip_ns + 1e5) * LINE_BPS as f64 / 8e9 / least as f64;
        let (mut answers, mut answer_bytes, mut questions, mut said_ns) = (0.0, 0.0, 0.0, 0);
        for &stats in &said.received {
            let active_ns = stats.last_ns.unwrap_or(0) - stats.first_ns.unwrap_or(0);
            acks += 3.0 + active_ns as f64 / self.config.timeouts.ack_delay_ns as f64;
        }
        for &stats in &said.sent {
            said_ns = said_ns.max(stats.duration_ns);
            let asked = self.questions(stats.duration_ns);
            let parts = 1.0 + f64::from(stats.packets) / Self::PART;
            questions += asked;
            answers += asked * parts;
            answer_bytes += asked * (100.0 * parts + f64::from(stats.packets) / 2.0);
        }
        acks *= each;
        let world = f64::from(self.case.world);
        let pairs = world * (world - 1.0);
        // Greetings, and their answers; signs of life.
        let greetings = pairs * (6.0 + self.questions(self.idle_ns()));
        let failed = stats.failed as f64 * (4.0 + self.questions(self.idle_ns()));
        let doubled = (1.0 + self.case.faults.duplicate).powi(2);
        let tag = if self.case.sealed { 16.0 } else { 0.0 };
        let ack_bytes = 100.0 + tag + (flight + 128.0 + every).min(2.0 * 1_400.0) / 2.0;
        // A path is asked when a packet was lost there, and while it is out every second at last:
        // three times, with a short question each but the first (src/paths.rs).
        let lost = stats.data_sent.saturating_sub(stats.data_received) + stats.repairs_sent;
        let active_ns = said_ns + self.idle_ns();
        let asleep = pairs * 16.0 * (8.0 + active_ns as f64 / SECOND as f64);
        let paths = if broken.is_some() { 10.0 * (lost as f64 + asleep) } else { 0.0 };
        let others = questions + answers + greetings + 2.0 * failed + paths;
        let packets = (acks + others) * doubled;
        let bytes = (acks * ack_bytes + others * (100.0 + tag) + answer_bytes) * doubled;
        (packets, bytes)
    }

    /// Bytes kept of what was not asked for yet, and endings remembered, of one rank
    /// (docs/reference/agent.md, Limits).
    pub(crate) fn footprint(&self) -> (usize, usize) {
        let others = usize::from(self.case.world - 1);
        let early = (2 * self.config.window as usize / others).max(48_000);
        (early * others, 2 * 256 * others)
    }

    /// Whether nothing is lost, trimmed, doubled or overtaken: nothing has to be sent twice then,
    /// however late somebody is.
    pub(crate) fn nothing_is_sent_twice(&self) -> bool {
        let Faults { drop_control, trim, duplicate, jitter_ns, .. } = self.case.faults;
        let quiet = self.case.faults.lost() + drop_control + trim + duplicate <= 0.0 && jitter_ns == 0;
        // Before any round trip is known a long way cannot be told from a loss.
        let known = self.case.warm || self.round_trips_ns().1 < self.config.timeouts.initial_ns as f64 / 2.0;
        quiet && known && matches!(self.case.trouble, Trouble::None | Trouble::Late { .. })
    }

    /// After an end: whoever's last word was lost has asked again.
    pub(crate) fn quiet_ns(&self) -> u64 {
        let timeouts = &self.config.timeouts;
        2 * timeouts.give_up_ns + 4 * timeouts.keep_alive_ns + self.unlucky_ns() as u64 + SECOND
    }
}

/// What the transfers of all ranks had to say of themselves.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// Rows that were handed over.
    pub(crate) rows: usize,
    /// Counts of messages that were received, and those that were sent.
    pub(crate) received: Vec<TransferStats>,
    pub(crate) sent: Vec<TransferStats>,
}
