// SPDX-License-Identifier: Apache-2.0
//! The simulator's model of our transfers against the agent itself: the same networks, payloads,
//! thresholds and rate laws, once with the real agent on the P4 engine (`Cluster`), once with
//! `sim`'s. Both in virtual time.

use crate::fabric_program::{RATE, programmed};
use trimwire_agent::collective::{CommunicatorConfig, Options};
use trimwire_agent::endpoint::{EndpointConfig, Reliability, Traffic};
use trimwire_agent::rate::{DctcpConfig, RateConfig};
use trimwire_fabric::cluster::{Cluster, ClusterConfig};
use trimwire_lab::sim::discipline::{Rule, Rungs};
use trimwire_lab::sim::run::run;
use trimwire_lab::sim::setup::Setup;
use trimwire_lab::sim::topology::Shape;
use trimwire_lab::sim::transport::{Delivery, Transport, TrimwireConfig};
use trimwire_lab::sim::workload::{Begin, Demand};

/// Of links. Where rates and losses answer to each other, results are a matter of who meets whom:
/// what is compared is the mean over several.
const DELAYS_NS: [u64; 8] = [1_000, 1_100, 1_200, 1_300, 1_400, 1_500, 1_600, 1_700];
/// What a HELLO takes on the line.
const GREETING_NS: u64 = 152;
/// Coordinates of a packet at an MTU of 1,500 bytes, and its bytes of payload.
const COORDINATES: usize = 448;
const PAYLOAD: u32 = 1_344;
const ROW: usize = 1 << 15;

/// What an operation sends.
#[derive(Debug, Clone, Copy)]
enum Operation {
    /// All but one to that one, so many rows each.
    Reduce(usize),
    /// Rows of a shard; one, because the agent passes rows on and the model flows.
    AllReduce,
}

/// From the begin to the last rank's result, and what became of the packets.
#[derive(Debug, Clone, Copy)]
struct Figures {
    took_us: f64,
    sent: u64,
    trimmed: u64,
    repairs: u64,
}

fn agent(hosts: u16, operation: Operation, delivery: Delivery, rate: RateConfig, delay_ns: u64) -> Figures {
    let config = ClusterConfig {
        workers: hosts,
        link_bps: RATE,
        delay_ns,
        cross_groups: 0,
        cross_per_group: 0,
        cross: None,
        seed: 0,
        sample_ns: 1_000_000,
    };
    let switch = programmed(&config, true);
    let mut cluster = Cluster::new(&config, switch, 9217, |rank| {
        let (reliability, traffic) = match delivery {
            Delivery::Trim { loss } => (Reliability::Bounded { loss: loss as f32 }, Traffic::Trimmable),
            Delivery::RepairTrimmed => (Reliability::Full, Traffic::Trimmable),
            Delivery::RepairDropped => (Reliability::Full, Traffic::Droppable),
        };
        let endpoint =
            EndpointConfig { reliability, traffic, rate, ..EndpointConfig::new(rank, hosts, RATE) };
        // A row is as long as the model has it.
        let communicator = CommunicatorConfig { row_log2: 15, ..CommunicatorConfig::new(rank, hosts) };
        (endpoint, communicator, Options::default())
    })
    .unwrap();
    let value = |rank: usize, at: usize| ((at * 7919 + rank * 104_729) % 2_001) as f32 / 1e3 - 1.0;
    let gradients = |length: usize| -> Vec<Vec<f32>> {
        (0..usize::from(hosts)).map(|rank| (0..length).map(|at| value(rank, at)).collect()).collect()
    };
    // Ranks greet each other first, which takes some 10 us that the model leaves out. Had they met
    // before, laws would know the way's least round trip, which a flow of the model does not.
    let start_ns = cluster.now_ns();
    let done = match operation {
        Operation::Reduce(rows) => cluster.reduce(0, 0, gradients(rows * ROW)).unwrap(),
        Operation::AllReduce => cluster.all_reduce(0, gradients(usize::from(hosts) * ROW)).unwrap(),
    };
    let end_ns = match operation {
        Operation::Reduce(_) => done[0].at_ns,
        Operation::AllReduce => done.iter().map(|done| done.at_ns).max().unwrap_or(0),
    };
    // What is still on its way belongs to it.
    cluster.run_until(cluster.now_ns() + 10_000_000);
    let after = cluster.endpoint_totals();
    Figures {
        took_us: (end_ns - start_ns) as f64 / 1e3,
        sent: after.data_sent,
        trimmed: after.trimmed_received,
        repairs: after.repairs_sent,
    }
}

fn model(hosts: u32, operation: Operation, delivery: Delivery, rate: RateConfig, delay_ns: u64) -> Figures {
    // A row's packets, the last of which is shorter, are as many bytes as its coordinates take.
    let bytes = |rows: usize| rows as u64 * (3 * ROW) as u64;
    let demand = |source, destination, bytes, after| Demand {
        source,
        destination,
        bytes,
        begin: Begin::Later(0),
        after,
        foreground: true,
        priority: 0,
    };
    let mut demands: Vec<Demand> = Vec::new();
    match operation {
        Operation::Reduce(rows) => {
            // As ranks begin that greet one in one instant, and are answered one after the other.
            // In one instant packets would meet in one order for ever.
            demands.extend((1..hosts).map(|source| Demand {
                begin: Begin::Later(u64::from(source) * GREETING_NS),
                ..demand(source, 0, bytes(rows), Vec::new())
            }));
        }
        Operation::AllReduce => {
            // Beginning behind itself, as the agent does.
            let others = |rank| (1..hosts).map(move |k| (rank + k) % hosts);
            for rank in 0..hosts {
                demands.extend(others(rank).map(|owner| demand(rank, owner, bytes(1), Vec::new())));
            }
            for owner in 0..hosts {
                let parts = (0..).zip(&demands).filter(|(_, part)| part.destination == owner);
                let parts: Vec<u32> =
                    parts.map(|(number, _)| number).filter(|&n| n < hosts * (hosts - 1)).collect();
                demands.extend(others(owner).map(|rank| demand(owner, rank, bytes(1), parts.clone())));
            }
        }
    }
    let us = |time: u64| time * RATE / 8_000_000;
    let rungs = Rungs {
        mark_at: [us(120); 2],
        shallow_at: [us(20); 2],
        deep_at: [us(60); 2],
        drop_at: [us(120); 2],
        shallow_size: 510,
        deep_size: 118,
        trim_queue: 6,
        trim_drop_at: us(60),
        cap: None,
    };
    // Before the first step all rows are important.
    let config = TrimwireConfig { important: 1.0, ..TrimwireConfig::new(delivery, rate) };
    let topology = Shape::Star { hosts, rate_bps: RATE, delay_ns }.topology();
    let (transport, rule) = (Transport::Trimwire(config), Rule::Ladder(rungs));
    let setup = Setup::new(topology, demands, PAYLOAD, transport, rule);
    let outcome = run(&setup, 1, |_| {});
    assert_eq!(outcome.unfinished, 0);
    let end_ns = outcome.flows.iter().map(|flow| flow.began_ns + flow.duration_ns).max().unwrap_or(0);
    Figures {
        took_us: end_ns as f64 / 1e3,
        sent: outcome.sent,
        trimmed: outcome.switches.trimmed,
        repairs: outcome.repairs,
    }
}

/// Relative distance of the model's figure from the agent's.
fn off(model: f64, agent: f64) -> f64 {
    (model / agent - 1.0).abs()
}

/// Both, with times within a share of each other, and packets: those sent, and those trimmed.
fn hold(
    hosts: u16,
    operation: Operation,
    delivery: Delivery,
    rate: RateConfig,
    time: f64,
    trims: f64,
) -> Figures {
    let theirs = agent(hosts, operation, delivery, rate, DELAYS_NS[0]);
    let ours = model(hosts.into(), operation, delivery, rate, DELAYS_NS[0]);
    let what =
        format!("{hosts} hosts, {operation:?}, {delivery:?}, {rate:?}: agent {theirs:?}, model {ours:?}");
    assert!(off(ours.took_us, theirs.took_us) < time, "time: {what}");
    // Rows end in a short packet, messages of the model do not: 74 for 73.14. At the end of a
    // swamped incast the agent sends a few again that stand in the trim queue.
    assert!(off(ours.sent as f64, theirs.sent as f64) < 0.05, "sent: {what}");
    if theirs.trimmed == 0 {
        assert_eq!((ours.trimmed, ours.repairs, theirs.repairs), (0, 0, 0), "{what}");
    } else {
        assert!(off(ours.trimmed as f64, theirs.trimmed as f64) < trims, "trimmed: {what}");
    }
    if delivery == Delivery::RepairTrimmed {
        assert_eq!(
            (ours.repairs, theirs.repairs),
            (ours.trimmed, theirs.trimmed),
            "what is trimmed is sent again: {what}"
        );
    }
    theirs
}

const TRIM: Delivery = Delivery::Trim { loss: 0.0 };

fn default_law() -> RateConfig {
    RateConfig::Dctcp(DctcpConfig::default())
}

#[test]
fn without_congestion_the_model_takes_the_agents_time() {
    assert_eq!(ROW.div_ceil(COORDINATES), 74);
    for delivery in [TRIM, Delivery::RepairTrimmed, Delivery::RepairDropped] {
        for rate in [RateConfig::Fixed(None), default_law()] {
            hold(2, Operation::Reduce(16), delivery, rate, 0.01, 0.0);
            // Each packet of a shard of one row meets those of another way in the owner: 503 and
            // 516 us.
            hold(4, Operation::AllReduce, delivery, rate, 0.03, 0.0);
        }
    }
}

#[test]
fn incasts_at_line_rate_are_cut_in_the_model_as_with_the_agent() {
    for (hosts, rows) in [(3, 16), (4, 16), (3, 64), (4, 64)] {
        let figures = hold(hosts, Operation::Reduce(rows), TRIM, RateConfig::Fixed(None), 0.02, 0.06);
        assert!(figures.trimmed > figures.sent / 2, "{figures:?}");
    }
}

/// Means over several delays, as parts of what the payloads take on the line: the last result's
/// time, packets trimmed, and sent again.
#[derive(Debug, Clone, Copy)]
struct Means {
    time: f64,
    trimmed: f64,
    repairs: f64,
}

impl Means {
    fn of(hosts: u16, rows: usize, mut run: impl FnMut(Operation, u64) -> Figures) -> Self {
        let runs = DELAYS_NS.map(|delay_ns| run(Operation::Reduce(rows), delay_ns));
        let packets = f64::from(hosts - 1) * (rows * 74) as f64;
        let mean = |of: fn(&Figures) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let line_us = packets * 1_406.0 * 8e6 / RATE as f64;
        Self {
            time: mean(|figures| figures.took_us) / line_us,
            trimmed: mean(|figures| figures.trimmed as f64) / packets,
            repairs: mean(|figures| figures.repairs as f64) / packets,
        }
    }

    /// The agent's and the model's.
    fn both(hosts: u16, rows: usize, delivery: Delivery) -> (Self, Self) {
        let law = default_law();
        let theirs =
            Self::of(hosts, rows, |operation, delay_ns| agent(hosts, operation, delivery, law, delay_ns));
        let ours = Self::of(hosts, rows, |operation, delay_ns| {
            model(hosts.into(), operation, delivery, law, delay_ns)
        });
        println!("{hosts} {rows} {delivery:?}\n  agent {theirs:?}\n  model {ours:?}");
        (theirs, ours)
    }
}

const INCASTS: [(u16, usize); 6] = [(3, 16), (4, 16), (5, 16), (3, 64), (4, 64), (5, 64)];

#[test]
fn incasts_by_the_default_law_take_the_model_the_agents_time_and_cuts() {
    for (hosts, rows) in INCASTS {
        for delivery in [TRIM, Delivery::RepairTrimmed] {
            let (theirs, ours) = Means::both(hosts, rows, delivery);
            // Few of what is repaired since receivers tell how many send to them.
            assert!(theirs.trimmed > if delivery == TRIM { 0.05 } else { 0.01 }, "{theirs:?}");
            assert!(off(ours.time, theirs.time) < 0.015, "{hosts} {rows} {delivery:?}: {theirs:?}, {ours:?}");
            assert!(
                off(ours.trimmed, theirs.trimmed) < 0.05,
                "{hosts} {rows} {delivery:?}: {theirs:?}, {ours:?}"
            );
        }
    }
}

#[test]
fn an_incast_of_agents_that_repair_ends_when_the_line_could() {
    for (hosts, rows) in [(4, 64), (8, 16), (16, 16)] {
        let figures =
            agent(hosts, Operation::Reduce(rows), Delivery::RepairTrimmed, default_law(), DELAYS_NS[0]);
        // Whole frames alone, with 62 bytes around each payload.
        let line_us = f64::from(hosts - 1) * rows as f64 * (3 * ROW + 74 * 62) as f64 * 8e6 / RATE as f64;
        let share = figures.took_us / line_us;
        // Before receivers told how many send to them: 1.02, 1.05 and 1.05, with 14, 26 and 30 % of
        // the packets trimmed.
        assert!(share < 1.03, "{hosts} hosts: {share} of {line_us} us: {figures:?}");
        assert!(figures.trimmed < figures.sent / 8, "{hosts} hosts: {figures:?}");
    }
}

/// Who loses most is slow for long, and chance says who: six incasts together tell more than each.
#[test]
fn incasts_that_drop_and_repair_take_the_model_the_agents_time_and_repairs() {
    let all = INCASTS.map(|(hosts, rows)| Means::both(hosts, rows, Delivery::RepairDropped));
    for (theirs, ours) in all {
        assert!(off(ours.time, theirs.time) < 0.3, "{theirs:?}, {ours:?}");
        assert!(off(ours.repairs, theirs.repairs) < 0.3, "{theirs:?}, {ours:?}");
    }
    let sum = |of: fn(&Means) -> f64| {
        all.iter()
            .map(|(theirs, ours)| (of(theirs), of(ours)))
            .fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    let (time, repairs) = (sum(|means| means.time), sum(|means| means.repairs));
    println!("together: time {time:?}, repairs {repairs:?}");
    assert!(off(time.1, time.0) < 0.15, "{time:?}");
    assert!(off(repairs.1, repairs.0) < 0.1, "{repairs:?}");
}
