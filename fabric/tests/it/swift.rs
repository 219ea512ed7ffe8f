// SPDX-License-Identifier: Apache-2.0
//! Swift in whole networks: its queue is what its target says, flows share, incasts end.

use trimwire_fabric::sim::discipline::Rule;
use trimwire_fabric::sim::packet::HEAD;
use trimwire_fabric::sim::run::{Outcome, run};
use trimwire_fabric::sim::setup::Setup;
use trimwire_fabric::sim::topology::Shape;
use trimwire_fabric::sim::transport::{SwiftConfig, Transport};
use trimwire_fabric::sim::workload::{Begin, Demand, incast};

const GBPS: u64 = 1_000_000_000;
const PAYLOAD: u32 = 4_032;
const FRAME: f64 = PAYLOAD as f64 + HEAD as f64;

fn simulate(hosts: u32, demands: Vec<Demand>, limit: u64) -> Outcome {
    let setup = Setup {
        topology: Shape::Star { hosts, rate_bps: 100 * GBPS, delay_ns: 1_000 }.topology(),
        demands,
        payload: PAYLOAD,
        transport: Transport::Swift(SwiftConfig::default()),
        rule: Rule::DropTail { limit, mark_at: None },
        programs: None,
        changes: Vec::new(),
        reroute_ns: None,
        seed: 1,
        limit_ns: 5_000_000_000,
        keep_planes: false,
    };
    let outcome = run(&setup, 1, |_| {});
    assert_eq!(outcome.unfinished, 0);
    outcome
}

fn last_ns(outcome: &Outcome) -> f64 {
    outcome.flows.iter().map(|flow| flow.began_ns + flow.duration_ns).max().unwrap_or(0) as f64
}

#[test]
fn two_flows_keep_a_link_busy_with_the_queue_that_the_target_delay_allows() {
    let bytes = 20_000_000_u64;
    let outcome = simulate(3, incast(2, bytes, 0, 1), 16 << 20);
    let ideal_ns = 2.0 * bytes as f64 * 8.0 / 100.0 * FRAME / f64::from(PAYLOAD);
    assert!(last_ns(&outcome) < 1.02 * ideal_ns, "{} of {ideal_ns} ns", last_ns(&outcome));
    // §3.5 with one hop: windows of w packets, and 2 w fill the path for as long as the target is: w is found by bisection.
    let alpha = 100_000.0 / (0.1_f64.powf(-0.5) - 0.1);
    let target_ns = |w: f64| 23_000.0 + (alpha / w.sqrt() - alpha / 10.0).clamp(0.0, 100_000.0);
    let (mut low, mut high) = (0.01_f64, 1_000.0_f64);
    for _ in 0..60 {
        let w = f64::midpoint(low, high);
        let fits = 2.0 * w * FRAME * 8.0 / 100.0 < target_ns(w);
        (low, high) = if fits { (w, high) } else { (low, w) };
    }
    // What does not travel waits: the target without the idle path. Each window is one packet above at most.
    let idle_ns = 4_000.0 + 2.0 * FRAME * 8.0 / 100.0 + 2.0 * 5.0;
    let expected = (target_ns(low) - idle_ns) * 100.0 / 8.0;
    let most = outcome.switches.most_bytes as f64;
    assert!((expected..expected + 6.0 * FRAME).contains(&most), "{most} bytes waited, {expected} expected");
    assert_eq!(outcome.switches.dropped, 0);
}

#[test]
fn a_flow_that_comes_later_gets_its_share() {
    let bytes = 40_000_000_u64;
    // The first has the line for 2 ms, and as much more to send.
    let head_start_ns = 2_000_000_u64;
    let mut demands = incast(2, bytes, 0, 1);
    demands[0].bytes += head_start_ns * 100 / 8;
    demands[1].begin = Begin::At(head_start_ns);
    let outcome = simulate(3, demands, 16 << 20);
    let ideal_ns = 2.0 * bytes as f64 * 8.0 / 100.0 * FRAME / f64::from(PAYLOAD);
    let second = outcome.flows[1].duration_ns as f64;
    assert!((ideal_ns / second - 1.0).abs() < 0.2, "{second} of {ideal_ns} ns");
}

#[test]
fn an_incast_of_127_ends_soon_after_the_line_could() {
    let bytes = 2_000_000_u64;
    let outcome = simulate(128, incast(127, bytes, 0, 1), 1 << 20);
    let ideal_ns = 127.0 * bytes as f64 * 8.0 / 100.0;
    let share = last_ns(&outcome) / ideal_ns;
    assert!((1.015..1.25).contains(&share), "{share} of the ideal");
    // The first windows are ten packets each, and most of those are lost.
    assert!(outcome.switches.dropped > 0);
}
