// SPDX-License-Identifier: Apache-2.0
//! Links that lose packets at random, and queues that drop them: our rate algorithms have to slow
//! down for the second only.

use crate::scenario::prepare;
use trimwire_lab::sim::run::{Outcome, run};

const SEEDS: u32 = 3;

/// Runs of `SEEDS` seeds.
fn runs(text: &str) -> Vec<Outcome> {
    let outcomes = (1..=SEEDS).map(|seed| {
        let setup = prepare(&format!("{text}seed: {seed}\n")).expect("a scenario");
        run(&setup, 1, |_| {})
    });
    let outcomes: Vec<Outcome> = outcomes.collect();
    assert!(outcomes.iter().all(|outcome| outcome.unfinished == 0), "{text}");
    outcomes
}

/// Mean duration of a flow, ns.
fn mean_ns(outcomes: &[Outcome]) -> f64 {
    let all = || outcomes.iter().flat_map(|outcome| &outcome.flows);
    all().map(|flow| flow.duration_ns as f64).sum::<f64>() / all().count() as f64
}

/// Of the slowest flow of each run, ns.
fn slowest_ns(outcomes: &[Outcome]) -> f64 {
    let slowest = |outcome: &Outcome| outcome.flows.iter().map(|flow| flow.duration_ns).max().unwrap_or(0);
    outcomes.iter().map(|outcome| slowest(outcome) as f64).sum::<f64>() / outcomes.len() as f64
}

/// Packets that went again, of those that went.
fn again(outcomes: &[Outcome]) -> f64 {
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>() as f64;
    sum(|outcome| outcome.repairs) / sum(|outcome| outcome.sent)
}

/// Four hosts, all to all, each of whose links loses such a share both ways: packets cross two.
fn gray(loss: f64, trimwire: &str) -> String {
    let links: Vec<String> =
        (0..4).map(|link| format!("{{ at: 0ns, link: {link}, loss: {loss} }}")).collect();
    format!(
        "scenario: gray\ntopology: {{ star: {{ hosts: 4, rate: 10Gbps, delay: 1us }} }}\nworkload: {{ all_to_all: {{ bytes: 1.1MB }} }}\nlinks: [{}]\nruns: [{{ name: a, transport: {{ trimwire: {{ {trimwire} }} }} }}]\n",
        links.join(", "),
    )
}

/// A constant rate, a little below each sender's part, is what losses take of time by themselves.
/// (Where every loss counted, the median flow took 1.6 and 42 times as long by `dctcp`, 1.0 and 122
/// times by `timely`.)
#[test]
fn random_losses_cost_rate_algorithms_hardly_more_time_than_a_constant_rate() {
    for (loss, most) in [(0.01, 1.2), (0.05, 1.3)] {
        let fixed_ns =
            mean_ns(&runs(&gray(loss, "delivery: repair-trimmed, algorithm: fixed, start: 3Gbps")));
        for delivery in ["repair-trimmed", "repair-dropped", "trim"] {
            for algorithm in ["dctcp", "timely"] {
                let ns =
                    mean_ns(&runs(&gray(loss, &format!("delivery: {delivery}, algorithm: {algorithm}"))));
                let times = ns / fixed_ns;
                println!("{delivery}, {algorithm}, {loss} a link: {times:.2}");
                assert!(
                    times <= most,
                    "{delivery}, {algorithm}, {loss} a link: {times} of a constant rate's"
                );
            }
        }
    }
}

/// Hosts of an incast, bytes of each, and its switch; what the algorithm that counted every loss
/// took, of the ideal, and the share that it sent again.
const DROPPING: [(u32, &str, &str, f64, f64); 4] = [
    (15, "500KB", "", 1.70, 0.518),
    (15, "2MB", "", 1.13, 0.483),
    (15, "2MB", "buffer: 60KB, shallow_at: 4us", 1.28, 0.249),
    (127, "200KB", "", 1.37, 0.555),
];

#[test]
fn queues_that_drop_lose_no_more_than_if_every_loss_counted_and_their_slowest_flow_takes_no_longer() {
    for (senders, bytes, queue, slowest, repairs) in DROPPING {
        let hosts = senders + 1;
        let outcomes = runs(&format!(
            "scenario: incast\ntopology: {{ star: {{ hosts: {hosts}, rate: 100Gbps, delay: 1us }} }}\nworkload: {{ incast: {{ senders: {senders}, bytes: {bytes} }} }}\nruns: [{{ name: a, transport: {{ trimwire: {{ delivery: repair-dropped }} }}, switch: {{ {queue} }} }}]\n",
        ));
        let bits = 8.0
            * f64::from(senders)
            * bytes.replace("KB", "000").replace("MB", "000000").parse::<f64>().expect("bytes");
        let (times, share) = (slowest_ns(&outcomes) / (bits / 100.0), again(&outcomes));
        println!("{senders} of {bytes}, {queue}: {times:.3} of the ideal, {share:.3} again");
        assert!(times <= 1.05 * slowest, "{senders} of {bytes}, {queue}: {times} of the ideal");
        assert!(share <= repairs + 0.01, "{senders} of {bytes}, {queue}: {share} sent again");
    }
}
