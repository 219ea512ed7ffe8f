// SPDX-License-Identifier: Apache-2.0
//! DCQCN and PFC in whole networks: what is lost, who is held, who gets how much.

use crate::scenario::prepare;

use trimwire_lab::sim::discipline::{Marks, Rule};
use trimwire_lab::sim::packet::HEAD;
use trimwire_lab::sim::pfc::Pfc;
use trimwire_lab::sim::run::{Outcome, run};
use trimwire_lab::sim::setup::{LinkChange, Setup};
use trimwire_lab::sim::topology::{Node, Shape, Topology};
use trimwire_lab::sim::transport::{DcqcnConfig, Transport};
use trimwire_lab::sim::workload::{Begin, Demand, all_to_all, incast};

const GBPS: u64 = 1_000_000_000;
const PAYLOAD: u32 = 4_032;
const FRAME: u64 = PAYLOAD as u64 + HEAD as u64;
/// The paper's.
const MARKS: Marks = Marks { k_min: 5_000, k_max: 200_000, p_max: 0.01 };
const DELAY_NS: u64 = 1_000;

fn pfc() -> Pfc {
    Pfc::new(FRAME)
}

fn rule(pfc: Option<Pfc>) -> Rule {
    Rule::Red { limit: 512 << 10, marks: MARKS, pfc }
}

fn setup(topology: Topology, demands: Vec<Demand>, rule: Rule) -> Setup {
    let config = DcqcnConfig { rto_ns: 1_000_000, ..DcqcnConfig::default() };
    Setup::new(topology, demands, PAYLOAD, Transport::Dcqcn(config), rule)
}

fn star(hosts: u32) -> Topology {
    Shape::Star { hosts, rate_bps: 100 * GBPS, delay_ns: DELAY_NS }.topology()
}

fn flow(source: u32, destination: u32, bytes: u64) -> Demand {
    Demand { source, destination, ..incast(1, bytes, 0, 0).remove(0) }
}

fn incast_of_127(pfc: Option<Pfc>) -> Outcome {
    run(&setup(star(128), incast(127, 500_000, 0, 1), rule(pfc)), 1, |_| {})
}

#[test]
fn nothing_is_lost_in_an_incast_of_127_with_the_headroom_of_its_links() {
    let outcome = incast_of_127(Some(pfc()));
    assert_eq!(outcome.unfinished, 0);
    assert_eq!((outcome.switches.dropped, outcome.repairs, outcome.lost), (0, 0, 0));
    assert!(outcome.switches.pauses > 0 && outcome.switches.paused_ns > 0);
    // All senders are held to what the receiver's link takes: its bits, and little more.
    let ideal_ns = 127.0 * 500_000.0 * 8.0 / 100.0;
    let slowest_ns = outcome.flows.iter().map(|flow| flow.duration_ns).max().unwrap_or(0) as f64;
    assert!((1.015..1.10).contains(&(slowest_ns / ideal_ns)), "{slowest_ns} of {ideal_ns} ns");
}

#[test]
fn with_two_frames_less_headroom_than_a_link_may_hold_packets_are_lost() {
    let enough = pfc().headroom_of(100 * GBPS, DELAY_NS);
    // Senders reach this threshold at line rate, before the first notification. Nothing waits on
    // the way back, so that the frame which a pause may wait for is not used.
    let lost = |headroom| {
        let small = Pfc { xoff: Some(50_000), headroom: Some(headroom), ..pfc() };
        let outcome = incast_of_127(Some(small));
        assert_eq!(outcome.unfinished, 0);
        outcome.switches.dropped
    };
    assert_eq!(lost(enough), 0);
    assert!(lost(enough - 2 * FRAME) > 0);
    assert!(lost(0) > 0);
    let without = incast_of_127(None);
    assert!(without.switches.dropped > 1_000 && without.switches.pauses == 0);
    assert!(without.repairs > without.switches.dropped, "go-back-N sends again what had arrived");
}

#[test]
fn two_flows_share_a_link_that_stays_busy() {
    // 40 Gbit/s as in the paper; the second flow begins 20 ms after the first, which has the line
    // until then.
    let topology = Shape::Star { hosts: 3, rate_bps: 40 * GBPS, delay_ns: DELAY_NS }.topology();
    let (head_start_ns, bytes) = (20_000_000_u64, 500_000_000_u64);
    let first = flow(1, 0, bytes + head_start_ns * 40 / 8 * u64::from(PAYLOAD) / FRAME);
    let second = Demand { begin: Begin::At(head_start_ns), ..flow(2, 0, bytes) };
    let setup = setup(topology, vec![first, second], rule(Some(pfc())));
    let outcome = run(&setup, 1, |_| {});
    assert_eq!((outcome.unfinished, outcome.switches.dropped), (0, 0));
    let ends: Vec<u64> = outcome.flows.iter().map(|flow| flow.began_ns + flow.duration_ns).collect();
    // With equal shares from its begin on, the second ends when the first does: each has so many
    // bytes left.
    let ideal_ns = (2 * bytes * 8 / 40) as f64 * FRAME as f64 / f64::from(PAYLOAD);
    let [second, last] = [ends[1], ends[0].max(ends[1])].map(|end| (end - head_start_ns) as f64);
    let (share, busy) = (ideal_ns / second, ideal_ns / last);
    assert!((share - 1.0).abs() < 0.1, "the second's mean rate is {share} of the fair share");
    assert!(busy > 0.9, "the link was busy for {busy} of the time");
}

/// Two switches, six hosts each, and a link between them that they cannot fill. Hosts 0 to 3 send
/// to host 6; host 4 sends to host 7, whose link is idle.
fn with_victim(pfc: Option<Pfc>) -> (u64, Outcome) {
    let topology =
        Shape::Dumbbell { hosts: 12, rate_bps: 100 * GBPS, bottleneck_bps: 600 * GBPS, delay_ns: DELAY_NS }
            .topology();
    let mut demands: Vec<Demand> = (0..4).map(|source| flow(source, 6, 4_000_000)).collect();
    demands.push(flow(4, 7, 1_000_000));
    let outcome = run(&setup(topology, demands, rule(pfc)), 1, |_| {});
    (outcome.flows.iter().find(|flow| flow.demand == 4).map_or(u64::MAX, |flow| flow.duration_ns), outcome)
}

#[test]
fn a_flow_that_shares_no_bottleneck_suffers_from_pauses_and_not_from_drops() {
    let alone_ns = 1_000_000 * 8 / 100 * FRAME / u64::from(PAYLOAD) + 3 * 330 + 3 * DELAY_NS;
    // Small thresholds, so that the switches behind one another pause.
    let small = Pfc { xoff: Some(50_000), ..pfc() };
    let (held_ns, held) = with_victim(Some(small));
    let (free_ns, free) = with_victim(None);
    assert_eq!(held.switches.dropped, 0);
    assert!(free.switches.dropped > 0 && free.switches.pauses == 0);
    assert!(free_ns < alone_ns * 11 / 10, "{free_ns} of {alone_ns} ns without pauses");
    // The link between the switches is held although it and the victim's receiver have room.
    assert!(held_ns > 2 * alone_ns, "{held_ns} of {alone_ns} ns with pauses");
}

#[test]
fn a_pause_of_one_layer_does_not_hold_another_ones_flow() {
    let victim = |by_layer: bool| {
        let topology = Shape::Dumbbell {
            hosts: 12,
            rate_bps: 100 * GBPS,
            bottleneck_bps: 600 * GBPS,
            delay_ns: DELAY_NS,
        };
        let mut demands: Vec<Demand> = (0..4).map(|source| flow(source, 6, 4_000_000)).collect();
        demands.push(Demand { priority: 3, ..flow(4, 7, 1_000_000) });
        let small = Pfc { xoff: Some(50_000), lossless: 7, ..pfc() };
        let setup = setup(topology.topology(), demands, rule(Some(small)));
        let Transport::Dcqcn(config) = setup.transport else { unreachable!("DCQCN") };
        let transport = Transport::Dcqcn(DcqcnConfig { by_layer, ..config });
        let outcome = run(&Setup { transport, ..setup }, 1, |_| {});
        assert_eq!((outcome.unfinished, outcome.switches.dropped), (0, 0));
        assert!(outcome.switches.pauses > 0);
        outcome.flows[4].duration_ns
    };
    let (together, apart) = (victim(false), victim(true));
    assert!(apart < 90_000 && together > 2 * apart, "{apart} ns apart, {together} ns together");
}

#[test]
fn links_that_fail_and_lose_leave_no_pause_behind() {
    let topology = Shape::LeafSpine {
        leaves: 4,
        spines: 2,
        hosts_per_leaf: 4,
        rate_bps: 100 * GBPS,
        uplink_bps: 100 * GBPS,
        delay_ns: DELAY_NS,
    }
    .topology();
    let between = topology.links.iter().position(|link| link.ends == [Node::Switch(0), Node::Switch(4)]);
    let flips = (0..40_u64).map(|at| LinkChange {
        at_ns: 20_000 * at,
        link: between.unwrap(),
        up: at % 2 == 1,
        loss: 0.0,
    });
    let gray = LinkChange { at_ns: 0, link: 0, up: true, loss: 0.01 };
    let small = Pfc { xoff: Some(20_000), ..pfc() };
    let setup = setup(topology, all_to_all(16, 300_000, 0, 3), rule(Some(small)));
    let outcome = run(&Setup { changes: flips.chain([gray]).collect(), ..setup }, 1, |_| {});
    assert_eq!(outcome.unfinished, 0);
    assert!(outcome.lost > 0 && outcome.switches.pauses > 0);
}

const SCENARIO: &str = "\
scenario: small
topology: { star: { hosts: 4, rate: 100Gbps, delay: 1us } }
workload: { incast: { senders: 3, bytes: 100KB } }
runs:
  - name: roce
    transport:
      dcqcn: {}
    switch: {}
";

#[test]
fn a_scenario_has_the_papers_numbers_where_it_names_none() {
    let setup = prepare(SCENARIO).unwrap();
    assert_eq!(setup.transport, Transport::Dcqcn(DcqcnConfig::default()));
    let frame = 1_344 + u64::from(HEAD);
    assert_eq!(setup.rule, Rule::Red { limit: 512 << 10, marks: MARKS, pfc: Some(Pfc::new(frame)) });
    let lossy = prepare(&SCENARIO.replace("switch: {}", "switch: { lossy: true }")).unwrap();
    assert_eq!(lossy.rule, rule(None));
}

#[test]
fn values_that_make_no_sense_are_named_with_their_line() {
    for (from, to, says) in [
        ("dcqcn: {}", "dcqcn: { gain: 0 }", "small.yaml:7: gain: 0; valid are above 0 to 1"),
        ("dcqcn: {}", "dcqcn: { gain: .nan }", "small.yaml:7: gain: NaN; valid are above 0 to 1"),
        ("dcqcn: {}", "dcqcn: { timer: 0us }", "small.yaml:7: timer: 0; valid are times above 0"),
        ("dcqcn: {}", "dcqcn: { byte_counter: 0B }", "small.yaml:7: byte_counter: 0; valid are sizes"),
        ("dcqcn: {}", "dcqcn: { tmer: 1us }", "unknown field `tmer`"),
        ("switch: {}", "switch: { p_max: 1.5 }", "small.yaml:8: p_max: 1.5; valid are 0 to 1"),
        ("switch: {}", "switch: { k_min: 1MB }", "small.yaml:8: k_min: 1000000 bytes; valid are up to k_max"),
        ("switch: {}", "switch: { lossy: true, pfc: {} }", "small.yaml:8: lossy: true; valid without pfc"),
        ("switch: {}", "switch: { pfc: { beta: 0 } }", "small.yaml:8: beta: 0; valid are 1 and more"),
        ("switch: {}", "switch: { pfc: { xoff: 1KB, beta: 8 } }", "small.yaml:8: pfc: give either"),
        (
            "switch: {}",
            "switch: { pfc: { xoff: 1MB } }",
            "small.yaml:8: xoff: 1000000 bytes; valid are up to",
        ),
        (
            "switch: {}",
            "switch: { buffer: 20KB }",
            "small.yaml:8: buffer: 20000 bytes a port; valid are more",
        ),
        ("dcqcn: {}", "ndp: {}\n    payload: 1344", ""),
        (
            "dcqcn: {}\n    switch: {}",
            "ndp: {}\n    switch: { pfc: {} }",
            "small.yaml:8: pfc: switches of ndp do not read it; valid with dcqcn",
        ),
    ] {
        let text = SCENARIO.replace(from, to);
        assert_ne!(text, SCENARIO, "{from}");
        match prepare(&text) {
            Ok(_) => assert_eq!(says, "", "{to}"),
            Err(error) => assert!(!says.is_empty() && error.contains(says), "{to}: {error}"),
        }
    }
}
