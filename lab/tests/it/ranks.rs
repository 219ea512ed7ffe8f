// SPDX-License-Identifier: Apache-2.0
//! Ranks of a job in the simulator: what they have learned of each other in one run they know in
//! the next.

use trimwire_agent::rate::{DctcpConfig, RateConfig, TimelyConfig};
use trimwire_lab::sim::discipline::{Rule, Rungs};
use trimwire_lab::sim::run::{Outcome, run};
use trimwire_lab::sim::setup::Setup;
use trimwire_lab::sim::topology::{Shape, Topology};
use trimwire_lab::sim::transport::{Delivery, Transport, TrimwireConfig};
use trimwire_lab::sim::workload::{Begin, Demand, all_to_all, incast};

const RATE: u64 = 100_000_000_000;
const PAYLOAD: u32 = 4_032;
const MS: u64 = 1_000_000;

fn strangers() -> Transport {
    strangers_by(RateConfig::Dctcp(DctcpConfig::default()))
}

fn strangers_by(law: RateConfig) -> Transport {
    Transport::Trimwire(TrimwireConfig::new(Delivery::RepairTrimmed, law))
}

/// What is demanded begins so much later.
fn step(topology: &Topology, demands: Vec<Demand>, transport: &Transport, begin_ns: u64) -> Setup {
    let later = |demand: Demand| match demand.begin {
        Begin::At(at_ns) => Demand { begin: Begin::At(begin_ns + at_ns), ..demand },
        Begin::Later(_) => demand,
    };
    let demands = demands.into_iter().map(later).collect();
    let rule = Rule::Ladder(Rungs::defaults(RATE, PAYLOAD));
    let setup = Setup::new(topology.clone(), demands, PAYLOAD, transport.clone(), rule);
    Setup { limit_ns: begin_ns + 1_000 * MS, ..setup }
}

fn star() -> Topology {
    Shape::Star { hosts: 16, rate_bps: RATE, delay_ns: 1_000 }.topology()
}

fn trimmed_share(outcome: &Outcome) -> f64 {
    outcome.switches.trimmed as f64 / outcome.sent as f64
}

#[test]
fn ranks_begin_a_run_at_the_rates_that_the_one_before_ended_with() {
    let (topology, incast) = (star(), || incast(15, 2_000_000, 2_000, 1));
    // By a law that is not told how many send: by the default one who is last has the line to
    // itself in the end, and begins with it.
    let strangers = || strangers_by(RateConfig::Timely(TimelyConfig::default()));
    let job = strangers().of_a_job(16);
    let runs = |transport: &Transport| {
        [0, 100 * MS].map(|begin_ns| run(&step(&topology, incast(), transport, begin_ns), 1, |_| {}))
    };
    let [first, second] = runs(&strangers());
    assert!(
        trimmed_share(&first) > 0.1 && (trimmed_share(&second) / trimmed_share(&first) - 1.0).abs() < 0.1
    );
    let [began, again] = runs(&job);
    assert_eq!(began.flows, first.flows, "nothing is known yet");
    // Who begins at line rate fifteenfold has most of its first packets trimmed.
    assert!(
        trimmed_share(&again) < 0.5 * trimmed_share(&began),
        "{}, {}",
        trimmed_share(&began),
        trimmed_share(&again)
    );
    assert_eq!((began.unfinished, again.unfinished), (0, 0));
}

#[test]
fn what_others_send_in_the_background_knows_nothing_of_the_job() {
    let topology = star();
    let job = strangers().of_a_job(16);
    run(&step(&topology, incast(15, 2_000_000, 2_000, 1), &job, 0), 1, |_| {});
    let mut others: Vec<Demand> = incast(15, 2_000_000, 2_000, 1);
    others.iter_mut().for_each(|demand| demand.foreground = false);
    // One flow of the job's, of two hosts that the incast does not send between.
    others.push(Demand {
        source: 3,
        destination: 2,
        bytes: 20_000_000,
        begin: Begin::At(0),
        after: Vec::new(),
        foreground: true,
        priority: 0,
    });
    let of_the_job = run(&step(&topology, others.clone(), &job, 100 * MS), 1, |_| {});
    let alone = run(&step(&topology, others, &strangers(), 100 * MS), 1, |_| {});
    assert_eq!(of_the_job.flows, alone.flows);
}

#[test]
fn what_ranks_remember_does_not_depend_on_threads() {
    let topology = Shape::LeafSpine {
        leaves: 4,
        spines: 2,
        hosts_per_leaf: 4,
        rate_bps: RATE,
        uplink_bps: 2 * RATE,
        delay_ns: 1_000,
    }
    .topology();
    let runs = |threads: usize| {
        let job = strangers().of_a_job(16);
        [0, 100 * MS].map(|begin_ns| {
            run(&step(&topology, all_to_all(16, 300_000, 5_000, 1), &job, begin_ns), threads, |_| {}).flows
        })
    };
    assert_eq!(runs(1), runs(4));
}
