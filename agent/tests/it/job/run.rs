// SPDX-License-Identifier: Apache-2.0
//! A job from its beginning to its end, and everything that is to be said against it.

use super::case::{Case, Kind, MEETING, NEXT, Plan, Promise, Trouble};
use super::limits::{Limits, Said};
use super::oracle::{Arrivals, Oracle, memory, values};
use crate::group::Group;
use crate::network::{Datagram, Faults, Network, config};
use std::collections::BTreeMap;
use trimwire_agent::collective::{
    Collective, Communicator, CommunicatorConfig, MessageId, OperationError, Options, Outcome, Replicas,
    shard_range,
};
use trimwire_agent::endpoint::{Endpoint, EndpointConfig, EndpointStats, Event, Reliability};
use trimwire_agent::rate::{DctcpConfig, RateConfig};
use trimwire_agent::transfer::TransferError;
use trimwire_encoder::{Decoding, Prefix, SealKey};

/// Number of the first operation; the one before it makes the ranks meet.
const FIRST: u32 = 1;
/// DATA names no incarnation; ports do.
const PORTS: u16 = 16;
/// What became of a case.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// What was promised and not kept.
    pub(crate) wrong: Vec<String>,
    /// Of the operations: virtual time, and the most that it may be.
    pub(crate) took_ns: u64,
    pub(crate) bound_ns: u64,
    pub(crate) control: (u64, u64),
    pub(crate) control_most: (f64, f64),
    pub(crate) data_packets: u64,
    pub(crate) repaired: u64,
    pub(crate) results: usize,
    pub(crate) errors: usize,
    /// What left, where it was asked for.
    pub(crate) log: Vec<String>,
}

/// A datagram that left.
fn line((at_ns, from, datagram): &(u64, usize, Datagram)) -> String {
    let header = datagram.header().ok();
    let prefix = header.map(|header| header.prefix).or_else(|| Prefix::parse(&datagram.payload).ok());
    let Some(prefix) = prefix else { return format!("{at_ns} {from} > ? {} bytes", datagram.payload.len()) };
    let MessageId { number, phase, shard } = MessageId::from_u32(prefix.message);
    let (to, kind, bytes) = (datagram.to, prefix.kind, datagram.payload.len());
    let packet = header.map(|header| {
        format!(" packet {} from plane {}, peak {}", header.index, header.first_plane, header.peak)
    });
    format!(
        "{at_ns} {from} > {to} {kind:?} {number} {phase} {shard}, {bytes} bytes{}",
        packet.unwrap_or_default()
    )
}

/// Operations of all ranks that have not ended are this.
type Open = Vec<BTreeMap<u32, u64>>;

struct Run<'a> {
    case: &'a Case,
    group: Group,
    open: Open,
    arrivals: BTreeMap<u32, Arrivals>,
    said: Said,
    outcomes: Vec<(usize, Outcome)>,
    /// Of endpoints that are gone.
    gone: Vec<EndpointStats>,
    verdict: Verdict,
    patience: f64,
    /// Whether everybody has begun what comes after the case's operations.
    afterwards: bool,
}

/// Runs a case. `patience` is 1, or more to see whether what is late is only that; with `trace` all
/// that leaves is told.
pub(crate) fn run(case: &Case, patience: f64, trace: bool) -> Verdict {
    let mut run = Run::new(case);
    run.patience = patience;
    run.group.network.keep_log = trace;
    run.everything();
    run.verdict.log = run.group.network.log.iter().map(line).collect();
    run.verdict
}

fn endpoint_config(case: &Case, mut config: EndpointConfig, incarnation: u32) -> EndpointConfig {
    config.timeouts = EndpointConfig::new(0, 1, 1).timeouts;
    config.incarnation = incarnation;
    config.seed = case.seed;
    config.seal = case.sealed.then(|| SealKey::from_bytes(&[7; 32]).expect("32 bytes"));
    let base = 50_000 + incarnation as u16 % 500 * PORTS;
    config.source_ports = (base..base + PORTS).collect();
    if case.adapts {
        config.rate = RateConfig::Dctcp(DctcpConfig::default());
    }
    config
}

impl<'a> Run<'a> {
    fn new(case: &'a Case) -> Self {
        let mut network = Network::with(case.world, case.faults, case.seed, |config| {
            let incarnation = 100 * u32::from(config.rank) + 1;
            *config = endpoint_config(case, config.clone(), incarnation);
        });
        network.stretched = Some(BTreeMap::new());
        let communicators = (0..case.world).map(|rank| communicator(case, rank)).collect();
        let world = usize::from(case.world);
        Self {
            case,
            group: Group { network, communicators },
            open: vec![BTreeMap::new(); world],
            arrivals: BTreeMap::new(),
            said: Said::default(),
            outcomes: Vec::new(),
            gone: Vec::new(),
            verdict: Verdict::default(),
            patience: 1.0,
            afterwards: false,
        }
    }

    fn wrong(&mut self, text: impl Into<String>) {
        // The first few say it all.
        if self.verdict.wrong.len() < 8 {
            self.verdict.wrong.push(text.into());
        }
    }

    fn everything(&mut self) {
        let case = self.case;
        let ranks = 0..usize::from(case.world);
        let config = self.group.network.endpoints[0].config().clone();
        let limits = Limits::new(case, &config);
        if case.warm {
            // Over a network that does nothing yet but to take its time: round trips are known
            // then.
            self.group.network.faults = Faults {
                drop_data: 0.0,
                drop_control: 0.0,
                trim: 0.0,
                duplicate: 0.0,
                broken: None,
                ..case.faults
            };
            ranks.clone().for_each(|rank| self.start(rank, 0, &MEETING));
            let until_ns = self.bound_ns(&limits);
            self.run_until(until_ns, &limits);
            self.expect_all_well(&MEETING, "before anything happens");
            self.group.network.faults = case.faults;
        }
        let again = |endpoint: &Endpoint| endpoint.stats().repairs_sent + endpoint.stats().early_dropped;
        let before: u64 = self.group.network.endpoints.iter().map(again).sum();
        let begun_ns = self.group.network.now_ns;
        self.verdict.bound_ns = limits.time_ns();
        let until_ns = begun_ns + self.bound_ns(&limits);
        let mut actions: Vec<(u64, usize, bool)> = ranks.clone().map(|rank| (begun_ns, rank, true)).collect();
        match case.trouble {
            Trouble::None => {}
            Trouble::Late { rank, by_ns } => actions[rank].0 += by_ns,
            Trouble::Absent { rank, by_ns } => {
                actions[rank].0 += by_ns;
                self.group.network.dead[rank] = true;
            }
            Trouble::Stopped { rank, at_ns, .. }
            | Trouble::Restarted { rank, at_ns }
            | Trouble::Killed { rank, at_ns } => actions.push((begun_ns + at_ns, rank, false)),
        }
        actions.sort_unstable_by_key(|&(at_ns, rank, starts)| (at_ns, !starts, rank));
        for (at_ns, rank, starts) in actions {
            self.go_on(at_ns, &limits, false);
            if starts {
                self.group.network.dead[rank] = false;
                for (number, plan) in (FIRST..).zip(&case.operations) {
                    self.start(rank, number, plan);
                }
            } else {
                self.suffer(rank);
            }
        }
        self.run_until(until_ns, &limits);
        self.verdict.took_ns = self.group.network.now_ns - begun_ns;
        if self.verdict.took_ns > self.verdict.bound_ns {
            let Verdict { took_ns, bound_ns, .. } = self.verdict;
            self.wrong(format!("it took {took_ns} ns, {bound_ns} are enough"));
        }
        let culprit = case.trouble.culprit();
        let killed = matches!(case.trouble, Trouble::Killed { .. });
        let next = FIRST + case.operations.len() as u32;
        for rank in ranks.clone() {
            let open: Vec<u32> = self.open[rank].keys().copied().filter(|&number| number != next).collect();
            let gone = killed && culprit == Some(rank);
            if !open.is_empty() && !gone {
                let bound_ns = self.verdict.bound_ns;
                self.wrong(format!("rank {rank}: operations {open:?} have not ended within {bound_ns} ns"));
            }
        }
        self.judge(culprit);
        if self.verdict.wrong.is_empty() && !killed {
            for rank in ranks.clone() {
                if !self.open[rank].contains_key(&next) {
                    self.start(rank, next, &NEXT);
                }
            }
            self.afterwards = true;
            let until_ns = self.group.network.now_ns + self.bound_ns(&limits);
            self.run_until(until_ns, &limits);
            self.expect_all_well(&NEXT, "afterwards");
        }
        if self.verdict.wrong.is_empty() {
            self.look_back(&limits, before);
        }
    }

    fn bound_ns(&self, limits: &Limits<'_>) -> u64 {
        (limits.time_ns() as f64 * self.patience) as u64
    }

    fn start(&mut self, rank: usize, number: u32, plan: &Plan) {
        let collective = collective(self.case, number, plan, rank);
        let options = options(self.case, plan);
        self.open[rank].insert(number, self.group.network.now_ns);
        if let Err(error) = self.group.start(rank, number, collective, &options) {
            self.open[rank].remove(&number);
            // A rank that gave up an operation has told the others, some of whom had not begun it;
            // at a deadline the others may have ended it.
            let told =
                self.case.trouble.culprit().is_some() || matches!(plan.promise, Promise::BestEffort { .. });
            if !told {
                self.wrong(format!("rank {rank}: operation {number} does not begin: {error}"));
            }
        }
    }

    /// Something happens to a rank.
    fn suffer(&mut self, rank: usize) {
        let now_ns = self.group.network.now_ns;
        match self.case.trouble {
            Trouble::Stopped { for_ns, .. } => self.group.network.paused_until_ns[rank] = now_ns + for_ns,
            Trouble::Killed { .. } => {
                self.group.network.dead[rank] = true;
                self.group.network.paused_until_ns[rank] = u64::MAX;
            }
            Trouble::Restarted { .. } => {
                self.gone.push(*self.group.network.endpoints[rank].stats());
                let incarnation = 100 * rank as u32 + 2;
                let fresh = endpoint_config(self.case, config(rank as u16, self.case.world), incarnation);
                self.group.network.restart(rank, Endpoint::new(fresh));
                self.group.communicators[rank] = communicator(self.case, rank as u16);
                self.open[rank].clear();
                self.start(rank, FIRST + self.case.operations.len() as u32, &NEXT);
            }
            Trouble::None | Trouble::Late { .. } | Trouble::Absent { .. } => {}
        }
    }

    /// Goes on until everybody's operations are over or that time has come.
    fn run_until(&mut self, until_ns: u64, limits: &Limits<'_>) {
        self.go_on(until_ns, limits, true);
    }

    /// Goes on until that time has come, or everything is over; looks now and then at what is kept.
    fn go_on(&mut self, until_ns: u64, limits: &Limits<'_>, may_end: bool) {
        let most = limits.footprint();
        let step_ns = (until_ns.saturating_sub(self.group.network.now_ns) / 64).max(1);
        while self.group.network.now_ns < until_ns {
            let next_ns = (self.group.network.now_ns + step_ns).min(until_ns);
            let Self { group, arrivals, said, .. } = self;
            let outcomes = group.run_seen(next_ns, |_, rank, event| match event {
                Event::Row { from, message, row } => {
                    let number = MessageId::from_u32(*message).number;
                    said.rows += 1;
                    arrivals.entry(number).or_default().note(rank, *from, *message, row);
                }
                Event::Received { stats, .. } => said.received.push(*stats),
                Event::Sent { stats, .. } => said.sent.push(*stats),
                _ => {}
            });
            let idle = self.group.network.now_ns < next_ns;
            for (rank, outcome) in outcomes {
                self.open[rank].remove(&outcome.number);
                self.outcomes.push((rank, outcome));
            }
            for rank in 0..usize::from(self.case.world) {
                let (bytes, endings) = self.group.network.endpoints[rank].footprint();
                if bytes > most.0 || endings > most.1 {
                    self.wrong(format!(
                        "rank {rank} keeps {bytes} bytes and {endings} endings, at most {most:?}"
                    ));
                }
            }
            let next = FIRST + self.case.operations.len() as u32;
            let over = |(rank, open): (usize, &BTreeMap<u32, u64>)| {
                let gone = self.group.network.paused_until_ns[rank] == u64::MAX;
                gone || open.keys().all(|&number| number == next && self.waits_for_others(rank))
            };
            let all_over = self.open.iter().enumerate().all(over);
            let started = self.outcomes.len() + self.open.iter().map(BTreeMap::len).sum::<usize>() > 0;
            if may_end && all_over && started {
                return;
            }
            if idle {
                self.group.network.now_ns = next_ns;
            }
        }
    }

    /// Whether a rank that has started anew is ahead of the others.
    fn waits_for_others(&self, rank: usize) -> bool {
        let next = FIRST + self.case.operations.len() as u32;
        let others = self.open.iter().enumerate().filter(|(other, _)| *other != rank);
        !self.afterwards
            && self.case.trouble.culprit() == Some(rank)
            && others.into_iter().all(|(_, open)| !open.contains_key(&next))
    }

    fn expect_all_well(&mut self, plan: &Plan, when: &str) {
        for rank in 0..usize::from(self.case.world) {
            if !self.open[rank].is_empty() {
                let open = self.open[rank].keys().copied().collect::<Vec<_>>();
                self.wrong(format!("rank {rank}: {open:?} has not ended, {when}"));
            }
        }
        for (rank, outcome) in std::mem::take(&mut self.outcomes) {
            let number = outcome.number;
            if let Err(error) = outcome.result {
                self.wrong(format!("rank {rank}: {error}, {when}"));
                continue;
            }
            let mut arrivals = self.arrivals.remove(&number).unwrap_or_default();
            arrivals.stretch(number, self.group.network.stretched.as_ref().expect("kept"));
            let checked = Oracle::new(self.case, number, plan).check(rank, outcome.into_f32(), &arrivals);
            self.arrivals.insert(number, arrivals);
            if let Err(text) = checked {
                self.wrong(format!("rank {rank}: operation {number}, {when}: {text}"));
            }
        }
    }

    /// Every rank has the right sum of every operation, or the right error.
    fn judge(&mut self, culprit: Option<usize>) {
        let case = self.case;
        let next = FIRST + case.operations.len() as u32;
        let mut by_number: BTreeMap<u32, Vec<(usize, Outcome)>> = BTreeMap::new();
        for (rank, outcome) in std::mem::take(&mut self.outcomes) {
            by_number.entry(outcome.number).or_default().push((rank, outcome));
        }
        for (number, outcomes) in by_number {
            let Some(plan) = case.operations.get((number.wrapping_sub(FIRST)) as usize) else {
                if number == next {
                    self.outcomes.extend(outcomes);
                }
                continue;
            };
            let mut arrivals = self.arrivals.remove(&number).unwrap_or_default();
            arrivals.stretch(number, self.group.network.stretched.as_ref().expect("kept"));
            if plan.consistent {
                arrivals.agree();
            }
            let oracle = Oracle::new(case, number, plan);
            let mut bits: Option<(usize, Vec<u32>)> = None;
            for (rank, outcome) in outcomes {
                self.verdict.results += 1;
                if let Err(error) = &outcome.result {
                    self.verdict.errors += 1;
                    let blamed = blamed(error);
                    if culprit.is_none() || blamed != culprit {
                        self.wrong(format!("rank {rank}: {error}"));
                    }
                    continue;
                }
                if let Some(text) = self.broken_promise(plan, rank, &outcome, &arrivals) {
                    self.wrong(format!("rank {rank}: operation {number}: {text}"));
                }
                let got = outcome.output.map(|memory| memory.to_f32());
                if plan.consistent && matches!(plan.kind, Kind::AllReduce | Kind::AllGather) {
                    let own: Vec<u32> = got.iter().flatten().map(|value| value.to_bits()).collect();
                    if let Some((other, bits)) = &bits
                        && *bits != own
                    {
                        self.wrong(format!(
                            "operation {number}: ranks {other} and {rank} have not the same bits"
                        ));
                    }
                    bits.get_or_insert((rank, own));
                }
                if let Err(text) = oracle.check(rank, got, &arrivals) {
                    self.wrong(format!("rank {rank}: operation {number}: {text}"));
                }
            }
        }
    }

    fn broken_promise(
        &self,
        plan: &Plan,
        rank: usize,
        outcome: &Outcome,
        arrivals: &Arrivals,
    ) -> Option<String> {
        match plan.promise {
            Promise::Bounded { loss } => {
                let over =
                    |&(missing, packets): &(usize, usize)| missing as f64 > f64::from(loss) * packets as f64;
                let (missing, packets) = arrivals.missing(rank).find(over)?;
                Some(format!("{missing} of {packets} packets of a message are missing, {loss} may be"))
            }
            Promise::Reliable | Promise::Exact if !plan.consistent => {
                let planes = plan.sent_planes();
                (!arrivals.all_have(rank, planes)).then(|| format!("not everything has {planes} planes"))
            }
            Promise::BestEffort { deadline_ns } => {
                let stopped = matches!(self.case.trouble, Trouble::Stopped { rank: of, .. } if of == rank);
                let late = outcome.duration_ns > deadline_ns && !stopped;
                late.then(|| format!("{} ns, with a deadline of {deadline_ns}", outcome.duration_ns))
            }
            _ => None,
        }
    }

    /// When everything is over: nothing goes on, nothing is kept, not too much was said.
    fn look_back(&mut self, limits: &Limits<'_>, before: u64) {
        let until_ns = self.group.network.now_ns + limits.quiet_ns();
        let Self { group, said, .. } = self;
        let late = group.run_seen(until_ns, |_, _, event| {
            if let Event::Sent { stats, .. } = event {
                said.sent.push(*stats);
            }
        });
        if !late.is_empty() {
            self.wrong("an operation ended after its end");
        }
        let mut stats = EndpointStats::default();
        let mut all = self.gone.clone();
        for rank in 0..usize::from(self.case.world) {
            if self.group.network.paused_until_ns[rank] == u64::MAX {
                continue;
            }
            let endpoint = &self.group.network.endpoints[rank];
            let timer = endpoint.poll_timeout();
            let bytes = endpoint.footprint().0;
            all.push(*endpoint.stats());
            // What nobody asked for is forgotten with the numbers that follow.
            let disturbed = self.case.trouble.culprit().is_some();
            if timer.is_some() {
                self.wrong(format!(
                    "rank {rank} goes on: something is due at {timer:?} ns, it is {until_ns}"
                ));
            }
            if bytes > 0 && !disturbed {
                self.wrong(format!("rank {rank} still keeps {bytes} bytes"));
            }
        }
        for one in all {
            stats.data_sent += one.data_sent;
            stats.data_received += one.data_received;
            stats.repairs_sent += one.repairs_sent;
            stats.control_sent += one.control_sent;
            stats.control_bytes_sent += one.control_bytes_sent;
            stats.stray += one.stray;
            stats.failed += one.failed;
            stats.early_dropped += one.early_dropped;
        }
        let (packets, bytes) = limits.control(&self.said, &stats);
        self.verdict.control = (stats.control_sent, stats.control_bytes_sent);
        self.verdict.control_most = (packets, bytes);
        (self.verdict.data_packets, self.verdict.repaired) = (stats.data_sent, stats.repairs_sent);
        if stats.control_sent as f64 > packets || stats.control_bytes_sent as f64 > bytes {
            let text = format!(
                "{} control packets of {} bytes beside {} of data; at most {packets:.0} of {bytes:.0}",
                stats.control_sent, stats.control_bytes_sent, stats.data_sent
            );
            self.wrong(text);
        }
        if limits.nothing_is_sent_twice() && stats.repairs_sent + stats.early_dropped > before {
            let text = format!(
                "{} packets sent twice, {} early ones dropped",
                stats.repairs_sent, stats.early_dropped
            );
            self.wrong(text);
        }
    }
}

fn communicator(case: &Case, rank: u16) -> Communicator {
    Communicator::new(CommunicatorConfig {
        job_seed: case.seed,
        mtu: case.mtu,
        row_log2: case.row_log2,
        hosts: case.hosts.clone(),
        ..CommunicatorConfig::new(rank, case.world)
    })
}

fn options(case: &Case, plan: &Plan) -> Options {
    let reliability = match plan.promise {
        Promise::Bounded { loss } => Reliability::Bounded { loss },
        _ => Reliability::Full,
    };
    Options {
        planes: plan.planes,
        exact: plan.promise == Promise::Exact,
        average: plan.average,
        algorithm: plan.algorithm,
        decoding: Decoding::Unbiased,
        replicas: if plan.consistent { Replicas::Consistent } else { Replicas::Free },
        deadline_ns: match plan.promise {
            Promise::BestEffort { deadline_ns } => Some(deadline_ns),
            _ => None,
        },
        reliability: Some(reliability),
        layer_class: plan.layer_class,
        coordinates_per_packet: Some(case.coordinates_per_packet),
        ..Options::default()
    }
}

fn collective(case: &Case, number: u32, plan: &Plan, rank: usize) -> Collective {
    let own = values(case, number, plan, rank);
    let range = shard_range(plan.length, case.world, rank as u16);
    let tensor = || memory(plan.element, &own);
    match plan.kind {
        Kind::AllReduce => Collective::AllReduce { tensor: tensor() },
        Kind::ReduceScatter => Collective::ReduceScatter {
            input: tensor(),
            output: memory(plan.element, &vec![7.0; range.len()]),
        },
        Kind::AllGather => Collective::AllGather {
            input: memory(plan.element, &own[range]),
            output: memory(plan.element, &vec![7.0; plan.length]),
        },
        Kind::Broadcast { root } => Collective::Broadcast { tensor: tensor(), root },
        Kind::Reduce { root } => Collective::Reduce { tensor: tensor(), root },
        Kind::PushPull { servers } => Collective::PushPull {
            tensor: (rank >= usize::from(servers)).then(tensor),
            length: plan.length,
            servers: (0..servers).collect(),
        },
    }
}

/// The rank that an error names.
fn blamed(error: &OperationError) -> Option<usize> {
    let OperationError::Transfer { reason, .. } = error else { return None };
    let rank = match *reason {
        TransferError::Aborted { culprit, .. } => culprit,
        TransferError::Restarted { peer, .. }
        | TransferError::Unanswered { peer, .. }
        | TransferError::Silent { peer, .. }
        | TransferError::Disagreement { peer, .. } => peer,
        _ => return None,
    };
    Some(usize::from(rank))
}
