// SPDX-License-Identifier: Apache-2.0
//! The simulator against closed forms, against its papers' small examples, and against itself with
//! more threads.

use trimwire_agent::rate::{DctcpConfig as LawConfig, RateConfig};

use trimwire_lab::sim::discipline::{Marks, Rule, Rungs};
use trimwire_lab::sim::packet::HEAD;
use trimwire_lab::sim::pfc::Pfc;
use trimwire_lab::sim::run::{Outcome, run};
use trimwire_lab::sim::setup::{LinkChange, Setup};
use trimwire_lab::sim::topology::{Node, Shape, Topology};
use trimwire_lab::sim::transport::{
    DcqcnConfig, DctcpConfig, Delivery, MltConfig, NdpConfig, PFabricConfig, Transport, TrimwireConfig,
};
use trimwire_lab::sim::workload::{
    Background, Begin, Demand, Format, Sizes, all_to_all, incast, permutation, trace,
};

const GBPS: u64 = 1_000_000_000;
const PAYLOAD: u32 = 4_032;
const DCQCN_MARKS: Marks = Marks { k_min: 5_000, k_max: 200_000, p_max: 0.01 };

fn ours(delivery: Delivery, law: RateConfig) -> Transport {
    Transport::Trimwire(TrimwireConfig::new(delivery, law))
}

fn default_law() -> RateConfig {
    RateConfig::Dctcp(LawConfig::default())
}

fn ladder(rate_bps: u64, payload: u32) -> Rule {
    Rule::Ladder(Rungs::defaults(rate_bps, payload))
}

fn drop_tail(limit: u64) -> Rule {
    Rule::DropTail { limit, mark_at: Some(65 * u64::from(PAYLOAD + HEAD)) }
}

/// All transports, with the switches that they were made for.
fn all() -> Vec<(&'static str, Transport, Rule)> {
    let trimming = ladder(100 * GBPS, PAYLOAD);
    let frame = u64::from(PAYLOAD + HEAD);
    vec![
        ("dctcp", Transport::Dctcp(DctcpConfig::default()), drop_tail(512 << 10)),
        (
            "pias",
            Transport::Dctcp(DctcpConfig { demote_after: vec![50_000, 500_000], ..DctcpConfig::default() }),
            Rule::Priority { limit: 512 << 10, mark_at: Some(65 * frame) },
        ),
        ("pfabric", Transport::PFabric(PFabricConfig::default()), Rule::PFabric { limit: 100_000 }),
        ("ndp", Transport::Ndp(NdpConfig::default()), Rule::Ndp { packets: 8, heads: 8 * frame }),
        ("trimmed", ours(Delivery::Trim { loss: 0.01 }, default_law()), trimming),
        (
            "mlt",
            Transport::Mlt(MltConfig::default()),
            Rule::Selective { limit: 512 << 10, drop_at: Some(65 * frame) },
        ),
        (
            "mlt, all",
            Transport::Mlt(MltConfig { loss: 0.0, gradient: true, ..MltConfig::default() }),
            Rule::Selective { limit: 512 << 10, drop_at: None },
        ),
        (
            "dcqcn",
            Transport::Dcqcn(DcqcnConfig::default()),
            Rule::Red { limit: 512 << 10, marks: DCQCN_MARKS, pfc: Some(Pfc::new(frame)) },
        ),
        (
            "dcqcn without pfc",
            Transport::Dcqcn(DcqcnConfig { rto_ns: 500_000, ..DcqcnConfig::default() }),
            Rule::Red { limit: 512 << 10, marks: DCQCN_MARKS, pfc: None },
        ),
        ("repair trimmed", ours(Delivery::RepairTrimmed, default_law()), trimming),
        ("repair dropped", ours(Delivery::RepairDropped, default_law()), trimming),
    ]
}

fn setup(topology: Topology, demands: Vec<Demand>, transport: Transport, rule: Rule) -> Setup {
    Setup::new(topology, demands, PAYLOAD, transport, rule)
}

fn star(hosts: u32) -> Topology {
    Shape::Star { hosts, rate_bps: 100 * GBPS, delay_ns: 1_000 }.topology()
}

fn leaf_spine() -> Topology {
    Shape::LeafSpine {
        leaves: 4,
        spines: 2,
        hosts_per_leaf: 4,
        rate_bps: 100 * GBPS,
        uplink_bps: 200 * GBPS,
        delay_ns: 1_000,
    }
    .topology()
}

fn slowest_ns(outcome: &Outcome) -> u64 {
    outcome.flows.iter().map(|flow| flow.duration_ns).max().unwrap_or(0)
}

fn one(bytes: u64) -> Vec<Demand> {
    incast(1, bytes, 0, 0)
}

#[test]
fn a_flow_alone_takes_its_bits_and_the_paths_delay() {
    // 400 packets of 4,094 bytes at 100 Gbit/s, one more hop of a frame, two links of a
    // microsecond.
    let frame = u64::from(PAYLOAD + HEAD) * 8 / 100;
    let expected = 400 * frame + frame + 2_000;
    for (name, transport, rule) in all() {
        // DCTCP's window of ten packets has to grow first; bounded losses and marks have nothing to
        // do.
        let transport = match transport {
            Transport::Dctcp(config) => Transport::Dctcp(DctcpConfig { initial_window: 1_000, ..config }),
            // Who stops early has less to send.
            Transport::Mlt(config) if config.loss > 0.0 => continue,
            other => other,
        };
        let outcome = run(&setup(star(2), one(400 * u64::from(PAYLOAD)), transport, rule), 1, |_| {});
        let took = slowest_ns(&outcome);
        assert_eq!(outcome.unfinished, 0, "{name}");
        assert!(took.abs_diff(expected) < expected / 100, "{name}: {took} of {expected} ns");
        assert_eq!(
            (outcome.repairs, outcome.switches.dropped, outcome.switches.trimmed),
            (0, 0, 0),
            "{name}"
        );
    }
}

#[test]
fn slow_start_doubles_its_window_every_round_trip() {
    // RFC 5681 §3.1 with a window of 10: 10 + 20 + 40 + 80 packets take four windows; the last
    // packet leaves 70 packets into none of them.
    let rtt_ns = 2 * 50_000 * 2;
    let topology = Shape::Star { hosts: 2, rate_bps: 100 * GBPS, delay_ns: 50_000 }.topology();
    let transport = Transport::Dctcp(DctcpConfig::default());
    let outcome =
        run(&setup(topology, one(150 * u64::from(PAYLOAD)), transport, drop_tail(16 << 20)), 1, |_| {});
    let took = slowest_ns(&outcome) as f64;
    let round_trips = 3.0 + 0.5;
    assert!((took / (round_trips * f64::from(rtt_ns)) - 1.0).abs() < 0.1, "{took} ns");
}

#[test]
fn a_queue_of_poisson_arrivals_waits_as_m_d_1_says() {
    // Pollaczek–Khinchine: with load ρ and service D the mean wait is ρ D / (2 (1 − ρ)). Flows of
    // one packet from many hosts are nearly Poisson.
    let (rate, load, hosts) = (10 * GBPS, 0.7, 65);
    let topology = Shape::Star { hosts, rate_bps: rate, delay_ns: 0 }.topology();
    let service_ns = f64::from(PAYLOAD + HEAD) * 8.0 / 10.0;
    let mut random = 0x1234_5678_u64;
    let mut unit = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    let (mut at_ns, mut demands) = (0.0, Vec::new());
    for number in 0..60_000 {
        at_ns += -(1.0 - unit()).ln() * service_ns / load;
        let demand = one(u64::from(PAYLOAD)).remove(0);
        demands.push(Demand { source: 1 + number % (hosts - 1), begin: Begin::At(at_ns as u64), ..demand });
    }
    let transport = Transport::Dctcp(DctcpConfig::default());
    let rule = Rule::DropTail { limit: 1 << 30, mark_at: None };
    let outcome = run(&setup(topology, demands, transport, rule), 1, |_| {});
    let mean = outcome.flows.iter().map(|flow| flow.duration_ns as f64).sum::<f64>() / 60_000.0;
    // The sender's own line is another service; waiting there is rare with 64 of them, and a 64th
    // as long.
    let (wait, expected) = (mean - 2.0 * service_ns, load * service_ns / (2.0 * (1.0 - load)));
    assert!((wait / expected - 1.0).abs() < 0.08, "{wait} of {expected} ns");
}

#[test]
fn a_reno_flow_keeps_three_quarters_of_a_link_whose_buffer_is_tiny() {
    // Without marks the window is a sawtooth between W/2 and W (Appenzeller et al., SIGCOMM 2004,
    // §2: a buffer of one bandwidth-delay product keeps the link busy, and without one three
    // quarters of it are used).
    let topology =
        Shape::Dumbbell { hosts: 2, rate_bps: 10 * GBPS, bottleneck_bps: GBPS, delay_ns: 200_000 }.topology();
    let bytes = 150_000_000;
    let send = |limit| {
        let demands = vec![Demand { source: 0, destination: 1, ..one(bytes).remove(0) }];
        let transport = Transport::Dctcp(DctcpConfig::default());
        let rule = Rule::DropTail { limit, mark_at: None };
        let outcome = run(&setup(topology.clone(), demands, transport, rule), 1, |_| {});
        assert_eq!(outcome.unfinished, 0);
        bytes as f64 * 8.0 / slowest_ns(&outcome) as f64 * f64::from(PAYLOAD + HEAD) / f64::from(PAYLOAD)
    };
    // 1.2 ms at 1 Gbit/s are 150 kB.
    let (tiny, full) = (send(8_200), send(150_000));
    assert!((0.68..0.84).contains(&tiny), "{tiny} Gbit/s with two packets of buffer");
    assert!(full > 0.96, "{full} Gbit/s with a bandwidth-delay product of buffer");
}

#[test]
fn dctcp_keeps_a_link_busy_with_a_short_queue() {
    // DCTCP §3.3: with K above a seventh of the bandwidth-delay product, two long flows keep the
    // link busy, and the queue stays about K.
    let topology = Shape::Star { hosts: 3, rate_bps: 10 * GBPS, delay_ns: 10_000 }.topology();
    let frame = u64::from(PAYLOAD + HEAD);
    let rule = Rule::DropTail { limit: 4 << 20, mark_at: Some(30 * frame) };
    let demands = incast(2, 50_000_000, 0, 1);
    let outcome = run(&setup(topology, demands, Transport::Dctcp(DctcpConfig::default()), rule), 1, |_| {});
    let ideal_ns = 100e6 * 8.0 / 10.0 * frame as f64 / f64::from(PAYLOAD);
    assert!((slowest_ns(&outcome) as f64) < 1.02 * ideal_ns, "{} of {ideal_ns} ns", slowest_ns(&outcome));
    assert_eq!(outcome.switches.dropped, 0);
    // Slow start's overshoot is its most: twice the window that first met a mark.
    assert!(outcome.switches.most_bytes < 120 * frame, "{} bytes", outcome.switches.most_bytes);
}

#[test]
fn incasts_at_full_precision_are_as_fast_as_the_line_where_the_number_of_senders_is_known() {
    for senders in [15, 127] {
        let ideal_ns = f64::from(senders) * 2e6 * 8.0 / 100.0;
        let fair = RateConfig::Fixed(Some(100 * GBPS / u64::from(senders)));
        for (name, transport, rule) in [
            ("ndp", Transport::Ndp(NdpConfig::default()), Rule::Ndp { packets: 8, heads: 8 * 4_094 }),
            ("fair rate", ours(Delivery::RepairTrimmed, fair), ladder(100 * GBPS, PAYLOAD)),
            // Before receivers told it, 1.23 and 1.09.
            ("default law", ours(Delivery::RepairTrimmed, default_law()), ladder(100 * GBPS, PAYLOAD)),
        ] {
            let outcome =
                run(&setup(star(senders + 1), incast(senders, 2_000_000, 0, 1), transport, rule), 1, |_| {});
            let share = slowest_ns(&outcome) as f64 / ideal_ns;
            assert_eq!(outcome.unfinished, 0);
            // Heads of frames alone are 1.015.
            assert!((1.015..1.03).contains(&share), "{name}, {senders} senders: {share} of the ideal");
        }
    }
}

#[test]
fn a_permutation_of_128_hosts_ends_about_when_ndps_does() {
    // Queues of single paths make packets late by more than the idle round trip. Taken for losses,
    // they had the slowest flow at 6.6.
    let demands = permutation(128, 2_000_000, 0, 1);
    let fat_tree = Shape::FatTree { k: 8, rate_bps: 100 * GBPS, delay_ns: 1_000 }.topology();
    for delivery in [Delivery::Trim { loss: 0.01 }, Delivery::RepairTrimmed] {
        let (transport, rule) = (ours(delivery, default_law()), ladder(100 * GBPS, PAYLOAD));
        let outcome = run(&setup(fat_tree.clone(), demands.clone(), transport, rule), 2, |_| {});
        let share = slowest_ns(&outcome) as f64 / 160_000.0;
        assert_eq!(outcome.unfinished, 0);
        assert!((1.015..1.41).contains(&share), "{delivery:?}: {share} of the ideal");
    }
}

#[test]
fn an_incast_that_accepts_trims_is_faster_than_all_of_its_bytes_could_be() {
    for (senders, least) in [(15, 0.85), (127, 0.70)] {
        let ideal_ns = f64::from(senders) * 2e6 * 8.0 / 100.0;
        let transport = ours(Delivery::Trim { loss: 0.01 }, default_law());
        let rule = ladder(100 * GBPS, PAYLOAD);
        let outcome =
            run(&setup(star(senders + 1), incast(senders, 2_000_000, 0, 1), transport, rule), 1, |_| {});
        assert_eq!(outcome.unfinished, 0);
        assert!((slowest_ns(&outcome) as f64) < ideal_ns, "{} of {ideal_ns} ns", slowest_ns(&outcome));
        assert!(outcome.switches.trimmed > 0);
        // Signs alone keep 2/π, 0.637. A rate algorithm that trims all packets to their signs fails
        // here.
        let kept = outcome.flows.iter().map(|flow| flow.share_kept).sum::<f64>() / f64::from(senders);
        assert!((least..1.0).contains(&kept), "{senders} senders: {kept} of the energy");
        assert!(outcome.flows.iter().all(|flow| flow.share_kept > std::f64::consts::FRAC_2_PI));
    }
}

#[test]
fn the_shortest_of_several_flows_is_served_first_by_pfabric() {
    // Its paper's example (§3): with priorities by what is left, flows end one after the other, the
    // shortest as if it were alone.
    let mut demands = incast(3, 4_000_000, 0, 1);
    demands[1].bytes = 1_000_000;
    let transport = Transport::PFabric(PFabricConfig::default());
    let outcome = run(&setup(star(4), demands, transport, Rule::PFabric { limit: 100_000 }), 1, |_| {});
    let alone_ns = 1e6 * 8.0 / 100.0 * 1.015 + 2_700.0;
    let took = outcome.flows[1].duration_ns as f64;
    assert!(took < 1.3 * alone_ns, "{took} of {alone_ns} ns");
    assert!(
        outcome
            .flows
            .iter()
            .all(|flow| flow.demand == 1 || flow.duration_ns > 3 * outcome.flows[1].duration_ns)
    );
}

#[test]
fn pias_serves_short_flows_before_what_has_sent_much() {
    let topology = star(4);
    let mut demands = incast(3, 20_000_000, 0, 1);
    demands[2] = Demand { bytes: 40_000, begin: Begin::At(800_000), ..demands[2].clone() };
    let frame = u64::from(PAYLOAD + HEAD);
    let took = |demote_after: Vec<u64>| {
        let transport = Transport::Dctcp(DctcpConfig { demote_after, ..DctcpConfig::default() });
        let rule = Rule::Priority { limit: 2 << 20, mark_at: Some(65 * frame) };
        run(&setup(topology.clone(), demands.clone(), transport, rule), 1, |_| {}).flows[2].duration_ns
    };
    let (with, without) = (took(vec![100_000, 1_000_000]), took(Vec::new()));
    // Alone it takes its ten packets' bits and the delay; without tags it waits behind the long
    // flows' queue of about K.
    assert!(with < 8_000 && without > 2 * with, "{with} ns with, {without} ns without");
}

#[test]
fn a_run_ends_at_its_limit_however_short() {
    // One switch has no links to others, so that its windows are the longest: 100 us, of which the
    // flow takes about 33.
    let took = 100 * u64::from(PAYLOAD + HEAD) * 8 / 100 + 330 + 2_000;
    for limit_ns in [0, 1_000, 20_000, took - 500, took + 500, 99_000] {
        let transport = Transport::Dctcp(DctcpConfig { initial_window: 1_000, ..DctcpConfig::default() });
        let setup = setup(star(2), one(100 * u64::from(PAYLOAD)), transport, drop_tail(512 << 10));
        let outcome = run(&Setup { limit_ns, ..setup }, 1, |_| {});
        assert_eq!(outcome.unfinished, u64::from(limit_ns < took), "{limit_ns} of {took} ns");
        assert!(outcome.end_ns <= limit_ns, "{} after {limit_ns} ns", outcome.end_ns);
    }
}

#[test]
fn whatever_is_lost_every_transport_ends() {
    // Two per cent of the frames vanish on every link of one host, and one link between switches is
    // down for a while.
    let gray = |link| LinkChange { at_ns: 0, link, up: true, loss: 0.02 };
    let changes = vec![
        gray(0),
        LinkChange { at_ns: 20_000, link: 17, up: false, loss: 0.0 },
        LinkChange { at_ns: 400_000, link: 17, up: true, loss: 0.0 },
    ];
    for (name, transport, rule) in all() {
        let demands = all_to_all(16, 100_000, 10_000, 3);
        let setup = Setup { changes: changes.clone(), ..setup(leaf_spine(), demands, transport, rule) };
        let outcome = run(&setup, 1, |_| {});
        assert_eq!(outcome.unfinished, 0, "{name}");
        assert!(outcome.lost > 0, "{name}");
    }
}

#[test]
fn switches_that_are_told_of_a_link_that_is_down_lose_nothing_more_there() {
    // A spine's link to the third rack is down for good: leaves elsewhere do not see it, and DCTCP
    // keeps its flows on one path each.
    let topology = leaf_spine();
    let (place, _) = topology
        .links
        .iter()
        .enumerate()
        .find(|(_, link)| link.ends == [Node::Switch(2), Node::Switch(4)])
        .unwrap();
    let changes = vec![LinkChange { at_ns: 0, link: place, up: false, loss: 0.0 }];
    let demands: Vec<Demand> = (0..8)
        .flat_map(|source| {
            (8..12).map(move |destination| Demand { source, destination, ..one(100_000).remove(0) })
        })
        .collect();
    let told = |reroute_ns| {
        let transport = Transport::Dctcp(DctcpConfig { rto_min_ns: 1_000_000, ..DctcpConfig::default() });
        let setup = setup(topology.clone(), demands.clone(), transport, drop_tail(16 << 20));
        run(&Setup { changes: changes.clone(), reroute_ns, limit_ns: 100_000_000, ..setup }, 2, |_| {})
    };
    let (never, soon, at_once) = (told(None), told(Some(2_000_000)), told(Some(0)));
    assert!(never.unfinished > 0 && never.lost > 0, "{} of {} flows", never.unfinished, demands.len());
    // Who lost its first packets sends them again, by the other spine.
    assert!(soon.unfinished == 0 && soon.lost > 0 && slowest_ns(&soon) > 2_000_000);
    assert_eq!((at_once.unfinished, at_once.lost, at_once.timeouts), (0, 0, 0));
    assert!(slowest_ns(&at_once) < 1_000_000, "{} ns", slowest_ns(&at_once));
}

#[test]
fn results_are_the_same_with_any_number_of_threads_and_differ_by_seed() {
    for (name, transport, rule) in all() {
        let mut demands = permutation(16, 400_000, 5_000, 7);
        let background = Background { sizes: Sizes::web_search(), load: 0.2, until_ns: 200_000 };
        demands.extend(background.demands(16, 100 * GBPS, false, usize::MAX, 7));
        let setup = setup(leaf_spine(), demands, transport, rule);
        let story = |setup: &Setup, threads| format!("{:?}", run(setup, threads, |_| {}));
        let alone = story(&setup, 1);
        for threads in [1, 2, 3, 6] {
            assert_eq!(alone, story(&setup, threads), "{name}: {threads} threads");
        }
        assert_ne!(alone, story(&Setup { seed: 2, ..setup.clone() }, 1), "{name}");
    }
}

#[test]
fn packets_are_conserved() {
    for (name, transport, rule) in all() {
        let outcome = run(&setup(star(16), incast(15, 500_000, 0, 1), transport, rule), 1, |_| {});
        let Outcome { sent, switches, .. } = &outcome;
        // One switch: everything that was sent came there, but for what was on its way at the end.
        assert!(*sent >= switches.offered && sent - switches.offered <= 15 * 64, "{name}: {outcome:?}");
        assert!(switches.trimmed + switches.dropped <= switches.offered, "{name}");
    }
}

#[test]
fn a_ring_takes_its_steps_one_after_the_other() {
    let hosts = 8;
    let row = format!("id,op,hosts,bytes\nr,ring-all-reduce,0-7,{}B\n", 8 * 400 * PAYLOAD);
    let rate = RateConfig::Fixed(None);
    let outcome = run(
        &setup(
            star(hosts),
            trace(Format::Csv, &row, hosts, 1.0).unwrap(),
            ours(Delivery::RepairTrimmed, rate),
            ladder(100 * GBPS, PAYLOAD),
        ),
        1,
        |_| {},
    );
    let frame = u64::from(PAYLOAD + HEAD) * 8 / 100;
    let expected = 14 * (400 * frame + frame + 2_000);
    let end = outcome.flows.iter().map(|flow| flow.began_ns + flow.duration_ns).max().unwrap_or(0);
    assert_eq!(outcome.unfinished, 0);
    assert!(end.abs_diff(expected) < expected / 50, "{end} of {expected} ns");
}
