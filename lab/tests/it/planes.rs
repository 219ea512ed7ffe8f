// SPDX-License-Identifier: Apache-2.0
//! Planes algorithms on one link.

use trimwire_agent::planes::parse;
use trimwire_lab::scenarios::{Job, Link, Profile, Sample, Transfer, run};

/// The paper's word for DA1 is "extremely oscillatory". On a link whose share varies by a few
/// percent it jumps through its range; DA2 does not.
#[test]
fn da1_jumps_between_its_limits_where_da2_stays() {
    let pieces = (0..600).map(|i| (i * 100_000_000, if i % 3 == 0 { 0.9e9 } else { 1e9 })).collect();
    let profile = Profile { name: "few percent", pieces, end_ns: 60_000_000_000 };
    let job = Job { gradient: 46.2e6, compute_ns: 50_000_000, transfer: Transfer::Once };
    let link = Link { line_bps: 1e9, propagation_ns: 1e6, buffer: 5e5, trims: false };
    let jumps = |law: &str| {
        let mut controller = parse(law).unwrap();
        let samples = run(job, link, &profile, &mut controller, 1).samples;
        let settled = &samples[samples.len() / 2..];
        let large = |pair: &[Sample]| (pair[1].ratio - pair[0].ratio).abs() > 0.1;
        settled.windows(2).filter(|pair| large(pair)).count() as f64 / settled.len() as f64
    };
    let (da1, da2) = (jumps("da1"), jumps("da2"));
    assert!(da1 > 0.1 && da2 == 0.0, "{da1} {da2}");
}

/// The promise: a few percent trimmed, whatever the bandwidth, within a dozen steps of its change.
#[test]
fn trim_feedback_sends_what_arrives_with_a_few_percent_trimmed() {
    let job = Job { gradient: 46.2e6, compute_ns: 50_000_000, transfer: Transfer::Once };
    let link = Link { line_bps: 10e9, propagation_ns: 1e5, buffer: 1e5, trims: true };
    let mut controller = parse("trim-feedback").unwrap();
    let mut now = 0;
    for available in [9e9, 3e9, 2e9, 6e9, 9e9] {
        let mut trims = Vec::new();
        for _ in 0..60 {
            let ratio = controller.ratio();
            let step = link.carry(now, (job.gradient * ratio) as u64, ratio, controller.pace(), available);
            now = step.at_ns + job.compute_ns;
            trims.push(step.trimmed);
            controller.step(&step).unwrap();
        }
        let settled = &trims[16..];
        let mean = settled.iter().sum::<f64>() / settled.len() as f64;
        assert!((0.005..0.07).contains(&mean), "{available}: {trims:?}");
        // Packets leave as fast as the port takes them.
        let of_port = controller.pace() / (available / 10e9);
        assert!((0.95..1.1).contains(&of_port), "{available}: a pace of {}", controller.pace());
    }
}

#[test]
fn a_budget_holds_where_nothing_is_trimmed() {
    let mut controller = parse("trim-feedback:budget_ms=100").unwrap();
    let link = Link { line_bps: 1e9, propagation_ns: 1e6, buffer: 1e5, trims: false };
    let (mut now, mut delays) = (0, Vec::new());
    for _ in 0..60 {
        let ratio = controller.ratio();
        let step = link.carry(now, (100e6 * ratio) as u64, ratio, 1.0, 1e9);
        now = step.at_ns;
        delays.push(step.delay_ns as f64 / 1e6);
        controller.step(&step).unwrap();
    }
    assert!(delays[20..].iter().all(|delay| (80.0..101.0).contains(delay)), "{delays:?}");
}
