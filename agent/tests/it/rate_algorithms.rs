// SPDX-License-Identifier: Apache-2.0
//! The rate algorithms on one congested port, in virtual time. The table in
//! docs/results/rate-algorithms.md is a snapshot of what they come to: `TRIMWIRE_UPDATE_GOLDENS=1
//! cargo test -p trimwire-agent --test it rate_algorithms::` writes it anew; the difference is for
//! review.

use crate::bottleneck;
use crate::bottleneck::{Bottleneck, Figures, Flow, Port, Sample, Told, jain};
use std::fmt::Write as _;
use std::path::Path;
use trimwire_agent::rate::{Between, DctcpConfig, Limits, RateConfig, TimelyConfig};

const MS: u64 = 1_000_000;
const G: u64 = 1_000_000_000;

fn timely() -> RateConfig {
    RateConfig::Timely(TimelyConfig::default())
}

fn timely_by_gradient() -> RateConfig {
    RateConfig::Timely(TimelyConfig { between: Between::Gradient, ..TimelyConfig::default() })
}

fn dctcp() -> RateConfig {
    RateConfig::Dctcp(DctcpConfig::default())
}

/// Flows that all start within microseconds, at line rate, and stay.
fn together(algorithm: RateConfig, flows: usize) -> Vec<Flow> {
    (0..flows).map(|index| Flow { algorithm, start_ns: index as u64 * 1_500, stop_ns: u64::MAX }).collect()
}

/// Samples of a millisecond.
fn run(port: Port, flows: &[Flow], milliseconds: u64, seed: u64) -> Vec<Sample> {
    Bottleneck::new(port, flows, MS, seed).run(milliseconds * MS)
}

fn steady(port: Port, algorithm: RateConfig, flows: usize, seed: u64) -> Figures {
    // At 100 Gbit/s ten times as much happens in a millisecond.
    let (begin, end) = if port.rate_bps > 10 * G { (10, 30) } else { (20, 60) };
    let samples = run(port, &together(algorithm, flows), end, seed);
    Figures::of(&samples[begin..], 0..flows, &port, MS)
}

/// Share of the line that a flow's whole and trimmed packets took, by millisecond.
fn share(samples: &[Sample], flow: usize, port: &Port) -> Vec<f64> {
    let line = MS as f64 * port.rate_bps as f64 / 8e9;
    let packets = |sample: &Sample| f64::from(sample.flows[flow].whole + sample.flows[flow].trimmed);
    samples.iter().map(|sample| packets(sample) * bottleneck::WHOLE as f64 / line).collect()
}

#[test]
fn flows_that_share_a_port_get_equal_parts_of_it() {
    for (name, algorithm, port) in [
        ("timely", timely(), Port::trimming(10 * G)),
        ("dctcp", dctcp(), Port::dropping(10 * G)),
        ("timely", timely(), Port::trimming(100 * G)),
    ] {
        for flows in [2, 8, 32] {
            for seed in [1, 2, 3] {
                let figures = steady(port, algorithm, flows, seed);
                assert!(
                    figures.jain >= 0.9,
                    "{name}, {flows} flows, {} bit/s, seed {seed}: {figures:?}",
                    port.rate_bps
                );
            }
        }
    }
}

#[test]
fn a_trimming_port_stays_full_with_a_short_queue() {
    for flows in [2, 8, 32] {
        let timely = steady(Port::trimming(10 * G), timely(), flows, 1);
        assert!(timely.whole_share > 0.9, "{timely:?}");
        assert!(timely.queue_p99_ns < 25_000 && timely.trimmed_share < 0.05, "{timely:?}");
        assert!(timely.loss < 1e-4);
    }
}

#[test]
fn without_an_algorithm_the_same_ports_lose_most_of_what_is_sent() {
    let fixed = RateConfig::Fixed(None);
    for port in [Port::trimming(10 * G), Port::dropping(10 * G)] {
        let figures = steady(port, fixed, 8, 1);
        assert!(figures.loss > 0.6, "{figures:?}");
    }
}

#[test]
fn an_incast_of_thirty_two_line_rates_is_under_control_within_five_milliseconds() {
    for algorithm in [timely(), dctcp()] {
        let port = Port::trimming(10 * G);
        let samples = run(port, &together(algorithm, 32), 20, 1);
        let lost =
            |samples: &[Sample]| -> u32 { samples.iter().flat_map(|s| &s.flows).map(|flow| flow.lost).sum() };
        assert!(lost(&samples[..1]) > 0, "nothing to control");
        assert_eq!(lost(&samples[5..]), 0, "{algorithm:?}");
        let after = Figures::of(&samples[10..], 0..32, &port, MS);
        assert!(after.whole_share > 0.8, "{algorithm:?}: {after:?}");
    }
}

#[test]
fn what_departing_flows_leave_is_filled_within_five_milliseconds() {
    for algorithm in [timely(), dctcp()] {
        for flows in [2, 8] {
            let port = Port::trimming(10 * G);
            let mut all = together(algorithm, flows);
            for flow in &mut all[1..] {
                flow.stop_ns = 20 * MS;
            }
            let samples = run(port, &all, 35, 1);
            let shares = share(&samples, 0, &port);
            let before = shares[15..20].iter().sum::<f64>() / 5.0;
            assert!(before < 1.3 / flows as f64, "{algorithm:?}: {before} of the line beside {flows}");
            assert!(
                shares[25..].iter().all(|&share| share > 0.95),
                "{algorithm:?} after {flows}: {shares:?}"
            );
        }
    }
}

#[test]
fn a_flow_that_joins_gets_its_part_within_twenty_milliseconds() {
    for algorithm in [timely(), dctcp()] {
        let port = Port::trimming(10 * G);
        let mut all = together(algorithm, 4);
        all[3].start_ns = 20 * MS;
        let samples = run(port, &all, 60, 1);
        let parts: Vec<f64> = (0..4).map(|flow| share(&samples[40..], flow, &port).iter().sum()).collect();
        assert!(jain(&parts) > 0.9, "{algorithm:?}: {parts:?}");
    }
}

#[test]
fn a_link_that_loses_one_percent_at_random_is_not_taken_for_a_full_one() {
    for algorithm in [timely(), dctcp()] {
        let port = Port { random_loss: 0.01, ..Port::trimming(10 * G) };
        let figures = steady(port, algorithm, 2, 1);
        assert!(figures.coordinates_share > 0.88, "{algorithm:?}: {figures:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let text = |seed| format!("{:?}", run(Port::trimming(10 * G), &together(timely(), 8), 3, seed));
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}

struct Row {
    algorithm: &'static str,
    config: RateConfig,
    port: Port,
    kind: &'static str,
    flows: usize,
}

fn rows() -> Vec<Row> {
    let algorithms = [("timely", timely()), ("dctcp", dctcp()), ("none", RateConfig::Fixed(None))];
    let mut rows = Vec::new();
    for rate_bps in [10 * G, 100 * G] {
        for (kind, port) in [("trim", Port::trimming(rate_bps)), ("drop", Port::dropping(rate_bps))] {
            for (algorithm, config) in algorithms {
                for flows in [2, 8, 32] {
                    let shown = algorithm != "none" || (rate_bps == 10 * G && flows == 8);
                    if shown {
                        rows.push(Row { algorithm, config, port, kind, flows });
                    }
                }
            }
        }
    }
    for rate_bps in [10 * G, 100 * G] {
        for (kind, port) in [("trim", Port::trimming(rate_bps)), ("drop", Port::dropping(rate_bps))] {
            for flows in [2, 8, 32] {
                rows.push(Row {
                    algorithm: "timely, gradient",
                    config: timely_by_gradient(),
                    port,
                    kind,
                    flows,
                });
            }
        }
    }
    for (algorithm, config) in &algorithms[..2] {
        let (algorithm, config, flows) = (*algorithm, *config, 8);
        let port = Port::trimming(10 * G);
        rows.push(Row {
            algorithm,
            config,
            port: Port { base_rtt_ns: 50_000, ..port },
            kind: "trim, round trip 50 µs",
            flows,
        });
        rows.push(Row {
            algorithm,
            config,
            port: Port { random_loss: 0.01, ..port },
            kind: "trim, 1 % lost at random",
            flows,
        });
        rows.push(Row {
            algorithm,
            config,
            port: Port { jitter_ns: 0, ..port },
            kind: "trim, no jitter",
            flows: 2,
        });
    }
    for rate_bps in [10 * G, 100 * G] {
        let trimming = Port::trimming(rate_bps);
        for (kinds, port) in [
            (["trim, told the number", "trim, told to be alone"], trimming),
            (
                ["trim and repaired, told the number", "trim and repaired, told to be alone"],
                Port { repaired: true, ..trimming },
            ),
        ] {
            for (kind, told) in kinds.into_iter().zip([Told::Number, Told::Alone]) {
                for flows in [2, 8, 32] {
                    rows.push(Row {
                        algorithm: "dctcp",
                        config: dctcp(),
                        port: Port { told, ..port },
                        kind,
                        flows,
                    });
                }
            }
        }
    }
    let limits = Limits { start_bps: Some(10 * G / 32), ..Limits::default() };
    for (algorithm, config) in &algorithms[..2] {
        for (kind, least_burst) in [("trim, bursts of 4 at least", 4), ("trim, bursts of 8", 8)] {
            let port = Port { least_burst, ..Port::trimming(10 * G) };
            rows.push(Row { algorithm, config: *config, port, kind, flows: 8 });
        }
    }
    let config = RateConfig::Timely(TimelyConfig { limits, ..TimelyConfig::default() });
    let port = Port::trimming(10 * G);
    rows.push(Row { algorithm: "timely", config, port, kind: "trim, start at 1/32", flows: 32 });
    rows
}

fn table() -> String {
    let mut text = String::from(
        "| Gbit/s | port | algorithm | flows | whole | coordinates | Jain | queue p50 µs | p99 µs | trimmed | lost | lost at start |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for Row { algorithm, config, port, kind, flows } in rows() {
        let figures = steady(port, config, flows, 1);
        let start = Figures::of(&run(port, &together(config, flows), 5, 1), 0..flows, &port, MS);
        let _ = writeln!(
            text,
            "| {} | {kind} | {algorithm} | {flows} | {:.3} | {:.3} | {:.3} | {:.1} | {:.1} | {:.2} % | {:.2} % | {:.1} % |",
            port.rate_bps / G,
            figures.whole_share,
            figures.coordinates_share,
            figures.jain,
            f64::from(figures.queue_p50_ns) / 1e3,
            f64::from(figures.queue_p99_ns) / 1e3,
            100.0 * figures.trimmed_share,
            100.0 * figures.loss,
            100.0 * start.loss
        );
    }
    text
}

#[test]
fn the_documented_table_is_what_the_algorithms_do() {
    const BEGIN: &str = "<!-- generated: rate algorithms -->\n";
    const END: &str = "<!-- end -->";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/rate-algorithms.md");
    let page = std::fs::read_to_string(&path).expect("docs/results/rate-algorithms.md");
    let (before, rest) = page.split_once(BEGIN).expect("the table's beginning");
    let (committed, after) = rest.split_once(END).expect("the table's end");
    let found = table();
    if std::env::var_os("TRIMWIRE_UPDATE_GOLDENS").is_some() {
        return std::fs::write(&path, format!("{before}{BEGIN}{found}{END}{after}")).expect("writable");
    }
    for (old, new) in committed.lines().zip(found.lines()) {
        assert_eq!(old, new, "review with TRIMWIRE_UPDATE_GOLDENS=1");
    }
    assert_eq!(committed, found);
}

#[test]
fn when_a_burst_of_neighbours_who_answer_to_nothing_is_over_its_room_is_taken_within_a_millisecond() {
    for flows in [1, 2, 4] {
        let port = Port::trimming(10 * G);
        let mut all = together(dctcp(), flows);
        // Twice the line rate for a millisecond in five.
        for period in 0..20 {
            let begin = (2 + 5 * period) * MS;
            let neighbour = |nth: u64| Flow {
                algorithm: RateConfig::Fixed(None),
                start_ns: begin + nth * 700,
                stop_ns: begin + MS,
            };
            all.extend([neighbour(0), neighbour(1)]);
        }
        let samples = run(port, &all, 100, 1);
        let shares: Vec<Vec<f64>> = (0..flows).map(|flow| share(&samples, flow, &port)).collect();
        let mean = |phase: usize| -> f64 {
            let sum = |period: usize| shares.iter().map(|share| share[5 * period + phase]).sum::<f64>();
            (2..20).map(sum).sum::<f64>() / 18.0
        };
        // By additions alone it was 0.77, 0.70 and 0.67 of the line in the first millisecond, and
        // 0.87 to 0.89 in the second.
        assert!(mean(3) > 0.9 && mean(4) > 0.98, "{flows} flows: {:?}", [3, 4].map(mean));
    }
}

#[test]
fn what_departing_flows_leave_is_taken_within_a_millisecond_by_who_is_told_of_it() {
    for (rate_bps, flows) in [(10 * G, 8), (100 * G, 8), (100 * G, 32)] {
        let port = Port { told: Told::Number, ..Port::trimming(rate_bps) };
        let mut all = together(dctcp(), flows);
        for flow in &mut all[1..] {
            flow.stop_ns = 10 * MS;
        }
        let shares = share(&run(port, &all, 15, 1), 0, &port);
        // By additions alone it is 0.47, 0.96 and 0.28 of the line then.
        assert!(shares[11] > 0.98, "{flows} flows, {rate_bps} bit/s: {shares:?}");
    }
}

#[test]
fn who_is_told_of_a_sender_that_needs_less_than_its_part_takes_the_rest_all_the_same() {
    let port = Port { told: Told::Number, ..Port::trimming(10 * G) };
    // A tenth of the line, whatever it hears.
    let mut all = together(dctcp(), 2);
    all[1].algorithm = RateConfig::Fixed(Some(G));
    let shares = share(&run(port, &all, 60, 1), 0, &port);
    assert!(shares[40..].iter().sum::<f64>() / 20.0 > 0.8, "{shares:?}");
}

#[test]
fn at_a_port_in_the_fabric_what_receivers_tell_of_their_own_links_changes_little() {
    for (rate_bps, flows) in [(10 * G, 2), (10 * G, 8), (100 * G, 2), (100 * G, 8), (100 * G, 32)] {
        let figures = |told| steady(Port { told, ..Port::trimming(rate_bps) }, dctcp(), flows, 1);
        let (nothing, alone) = (figures(Told::Nothing), figures(Told::Alone));
        assert!(
            alone.trimmed_share < nothing.trimmed_share + 0.1 && alone.loss == 0.0,
            "{flows} flows: {nothing:?}, told to be alone {alone:?}"
        );
    }
}

/// Shares of the line, by flow and millisecond.
struct Periods {
    shares: Vec<Vec<f64>>,
}

impl Periods {
    /// Beside `neighbours` who send at line rate in the third millisecond of each five, whatever
    /// they hear.
    fn beside(neighbours: u64, port: &Port, flows: usize) -> Self {
        let mut all = together(dctcp(), flows);
        for period in 0..20 {
            let begin = (2 + 5 * period) * MS;
            all.extend((0..neighbours).map(|nth| Flow {
                algorithm: RateConfig::Fixed(None),
                start_ns: begin + nth * 700,
                stop_ns: begin + MS,
            }));
        }
        let samples = run(*port, &all, 100, 1);
        Self { shares: (0..flows).map(|flow| share(&samples, flow, port)).collect() }
    }

    /// What the flows together have in this millisecond of the five.
    fn mean(&self, phase: usize) -> f64 {
        let sum = |period: usize| self.shares.iter().map(|share| share[5 * period + phase]).sum::<f64>();
        (2..20).map(sum).sum::<f64>() / 18.0
    }

    /// What they would have if each had what the slowest of them has.
    fn least(&self, phase: usize) -> f64 {
        let of = |share: &Vec<f64>| (2..20).map(|period| share[5 * period + phase]).sum::<f64>() / 18.0;
        self.shares.len() as f64 * self.shares.iter().map(of).fold(f64::INFINITY, f64::min)
    }
}

#[test]
fn a_burst_that_fills_the_trim_queue_too_starves_no_rank_once_it_is_over() {
    for flows in [1, 3, 4] {
        let planned_bps = Some(10 * G / flows as u64);
        let port = Port { planned_bps, ..Port::trimming(10 * G) };
        let periods = Periods::beside(7, &port, flows);
        let figures: Vec<_> = (3..5).map(|phase| (periods.mean(phase), periods.least(phase))).collect();
        // Half of the first millisecond is the burst's own queue. Before, additions had led nowhere
        // when the next burst came: all flows together had 0.02 of the line at most, at any time.
        assert!(figures[1].0 > 0.6 && figures[1].1 > 0.4, "{flows} flows: {figures:?}");
    }
}

#[test]
fn a_burst_that_fills_a_queue_that_drops_starves_nobody_once_it_is_over() {
    // Neighbours who answer to nobody, on a port that drops. By additions alone flows had 0.01 to
    // 0.08 of the line at most, at any time.
    for rate_bps in [10 * G, 100 * G] {
        for neighbours in [2, 7] {
            for flows in [1, 2, 4] {
                let port = Port { told: Told::Number, ..Port::dropping(rate_bps) };
                let periods = Periods::beside(neighbours, &port, flows);
                let figures: Vec<_> =
                    (3..6).map(|phase| (periods.mean(phase % 5), periods.least(phase % 5))).collect();
                assert!(
                    figures[1].0 > 0.5 && figures[2].0 > 0.8 && figures[2].1 > 0.1,
                    "{flows} flows beside {neighbours}, {rate_bps} bit/s: {figures:?}"
                );
            }
        }
    }
}

#[test]
fn a_neighbour_that_stays_and_answers_to_nobody_on_a_port_that_drops_leaves_its_rest() {
    for flows in [1, 2, 4] {
        let port = Port::dropping(10 * G);
        let mut all = together(dctcp(), flows);
        all.push(Flow { algorithm: RateConfig::Fixed(Some(5 * G)), start_ns: 0, stop_ns: u64::MAX });
        let samples = run(port, &all, 60, 1);
        let lost: u32 = samples[20..].iter().flat_map(|s| &s.flows).map(|flow| flow.lost).sum();
        let rest: f64 =
            (0..flows).map(|flow| share(&samples[20..], flow, &port).iter().sum::<f64>() / 40.0).sum();
        assert!(lost == 0 && (0.4..0.5).contains(&rest), "{flows} flows have {rest}, {lost} lost");
    }
}

#[test]
fn ranks_that_begin_unequal_soon_have_the_parts_that_were_planned() {
    for flows in [2, 8] {
        let port = Port { planned_bps: Some(10 * G / flows as u64), ..Port::trimming(10 * G) };
        let slow = Limits { start_bps: Some(10 * G / 100), ..Limits::default() };
        let mut all = together(dctcp(), flows);
        for flow in &mut all[1..] {
            flow.algorithm = RateConfig::Dctcp(DctcpConfig { limits: slow, ..DctcpConfig::default() });
            flow.start_ns += 5 * MS;
        }
        let samples = run(port, &all, 40, 1);
        let parts: Vec<f64> =
            (0..flows).map(|flow| share(&samples[20..], flow, &port).iter().sum()).collect();
        // Without a plan 0.71 and 0.24.
        assert!(jain(&parts) > 0.95, "{flows} flows: {parts:?}");
    }
}

#[test]
fn where_queues_drop_nobody_insists_on_a_plan_or_a_told_part() {
    let (none, two_jobs) = (Port::dropping(10 * G), Some(10 * G / 8));
    let figures = |port| steady(port, dctcp(), 16, 1);
    let (without, with) = (figures(none), figures(Port { planned_bps: two_jobs, ..none }));
    assert_eq!(format!("{without:?}"), format!("{with:?}"));
    for told in [Told::Number, Told::Alone] {
        // Insisting, flows that are told to be alone stay as unequal as they begin (Jain's index of
        // eight: 0.2), and fill the queue.
        let told = figures(Port { told, ..none });
        assert!(told.jain > 0.95 && told.loss == 0.0 && told.queue_p99_ns < 100_000, "{told:?}");
    }
}
