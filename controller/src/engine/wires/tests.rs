// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::model::Fabric;

const FABRIC: &str = "version: 1
switches:
  leaf1: { address: \"127.0.0.1:9559\", device_id: 1 }
  leaf2: { address: \"127.0.0.2:9559\", device_id: 2 }
  spine1: { address: \"127.0.0.3:9559\", device_id: 3 }
hosts:
  h1: { ip: 10.0.1.1, mac: \"02:00:00:00:01:01\" }
  h2: { ip: 10.0.2.1, mac: \"02:00:00:00:02:01\" }
links:
  - { a: h1, b: \"leaf1:3\", speed: 10Gbps }
  - { a: h2, b: \"leaf2:3\", speed: 10Gbps }
  - { a: \"leaf1:1\", b: \"spine1:1\", speed: 10Gbps }
  - { a: \"leaf2:1\", b: \"spine1:2\", speed: 10Gbps }
";

fn place(text: &str) -> Place {
    let (switch, port) = text.split_once(':').unwrap();
    (switch.to_owned(), port.parse().unwrap())
}

/// Three switches, their links, and frames counted at both ends.
struct Net {
    wires: Wires,
    counts: BTreeMap<Place, [u32; 2]>,
}

impl Net {
    fn new() -> Self {
        let mut net = Self { wires: Wires::default(), counts: BTreeMap::new() };
        net.take(FABRIC);
        for switch in ["leaf1", "leaf2", "spine1"] {
            net.wires.ready(switch, true);
        }
        net
    }

    fn take(&mut self, text: &str) {
        let fabric = Fabric::from_yaml(text, "fabric.yaml").unwrap();
        self.wires.of(&Topology::of(&fabric), fabric.switches.keys());
    }

    /// All probes once; `cable` says where each comes out, and how many of 100 frames with it.
    fn probe(&mut self, cable: impl Fn(&str) -> Option<(&'static str, u32)>) {
        for switch in ["leaf1", "leaf2", "spine1"] {
            for (port, mut frame) in self.wires.probes(switch, 1).0 {
                let from = (switch.to_owned(), port);
                let Some((to, came)) = cable(&words(&from)) else { continue };
                let [departed, arrived] = self.counts.entry(from).or_default();
                (*departed, *arrived) = (departed.wrapping_add(100), arrived.wrapping_add(came));
                frame[14..18].copy_from_slice(&departed.to_be_bytes());
                frame[18..22].copy_from_slice(&arrived.to_be_bytes());
                self.wires.arrived(&place(to), &frame);
            }
        }
    }

    /// As the file says.
    fn straight(from: &str) -> Option<(&'static str, u32)> {
        let to = match from {
            "leaf1:1" => "spine1:1",
            "leaf2:1" => "spine1:2",
            "spine1:1" => "leaf1:1",
            "spine1:2" => "leaf2:1",
            _ => return None,
        };
        Some((to, 100))
    }

    /// What is said, of which port.
    fn told(&mut self) -> Vec<String> {
        let verdicts = self.wires.take_verdicts().into_iter();
        let line = |(from, verdict): (Place, Verdict)| match verdict {
            Some((cause, why)) => format!("{} {}: {why}", words(&from), cause.name()),
            None => format!("{} well", words(&from)),
        };
        verdicts.map(line).collect()
    }
}

#[test]
fn a_switch_that_takes_no_probes_is_not_taken_for_a_dead_cable() {
    let mut net = Net::new();
    net.probe(Net::straight);
    for _ in 0..3 * LONG_PATIENCE {
        net.probe(|from| Net::straight(from).filter(|_| from != "leaf1:1"));
        net.wires.unsent(&place("leaf1:1"));
    }
    assert!(net.told().is_empty(), "nothing was sent, and nothing is said");
}

#[test]
fn exchanged_cables_are_told_with_the_port_that_each_leads_to_and_are_well_once_mended() {
    let mut net = Net::new();
    net.probe(Net::straight);
    assert_eq!((net.told(), net.wires.are_tried()), (Vec::new(), true));
    let exchanged = |from: &str| {
        let to = match from {
            "leaf1:1" => "spine1:2",
            "leaf2:1" => "spine1:1",
            "spine1:1" => "leaf2:1",
            _ => "leaf1:1",
        };
        Some((to, 100))
    };
    net.probe(exchanged);
    let expected = [
        "leaf1:1 miscabled: leaf1:1 should lead to spine1:1, and leads to spine1:2",
        "leaf2:1 miscabled: leaf2:1 should lead to spine1:2, and leads to spine1:1",
        "spine1:1 miscabled: spine1:1 should lead to leaf1:1, and leads to leaf2:1",
        "spine1:2 miscabled: spine1:2 should lead to leaf2:1, and leads to leaf1:1",
    ];
    assert_eq!(net.told(), expected);
    net.probe(exchanged);
    assert!(net.told().is_empty(), "said once");
    net.probe(Net::straight);
    assert_eq!(net.told(), ["leaf1:1 well", "leaf2:1 well", "spine1:1 well", "spine1:2 well"]);
}

#[test]
fn a_direction_in_which_nothing_arrives_is_told_sooner_while_frames_come_back() {
    let rounds = |is_dead: fn(&str) -> bool, is_known: bool| {
        let mut net = Net::new();
        if is_known {
            net.probe(Net::straight);
        }
        (0..2 * LONG_PATIENCE).find_map(|round| {
            net.probe(|from| (!is_dead(from)).then(|| Net::straight(from)).flatten());
            let told = net.told();
            (!told.is_empty()).then_some((round, told))
        })
    };
    let back =
        "leaf1:1 one_way: no frame from leaf1:1 arrives at spine1:1, while frames come back".to_owned();
    for is_known in [true, false] {
        let found = rounds(|from| from == "leaf1:1", is_known);
        assert_eq!(found, Some((PATIENCE + 1, vec![back.clone()])), "{is_known}");
    }
    let both: fn(&str) -> bool = |from| from == "leaf1:1" || from == "spine1:1";
    let (round, told) = rounds(both, true).unwrap();
    assert_eq!(round, LONG_PATIENCE + 1);
    assert!(told[0].ends_with("arrives at spine1:1, and none comes back"), "{told:?}");
    assert_eq!(rounds(both, false), None, "there may be no interface");
}

#[test]
fn losses_are_told_with_their_share_and_a_burst_is_none() {
    let mut net = Net::new();
    let loses = |from: &str, came| {
        Net::straight(from).map(|(to, all)| (to, if from == "leaf1:1" { came } else { all }))
    };
    net.probe(Net::straight);
    for _ in 0..3 {
        net.probe(|from| loses(from, 10));
    }
    assert!(net.told().is_empty(), "90 % three times");
    for _ in 0..WINDOW {
        net.probe(Net::straight);
    }
    for _ in 0..WINDOW {
        net.probe(|from| loses(from, 99));
    }
    let expected = "leaf1:1 lossy: 20 of 4000 frames from leaf1:1 to spine1:1 were lost (0.5 %)";
    assert_eq!(net.told(), [expected]);
    for _ in 0..WINDOW {
        net.probe(Net::straight);
    }
    assert_eq!(net.told(), ["leaf1:1 well"]);
}

#[test]
fn a_switch_that_counts_anew_loses_nothing_and_one_that_is_not_ready_is_not_judged() {
    let mut net = Net::new();
    net.counts =
        ["leaf1:1", "leaf2:1", "spine1:1", "spine1:2"].map(|at| (place(at), [u32::MAX - 250; 2])).into();
    for _ in 0..WINDOW {
        net.probe(Net::straight);
    }
    assert!(net.told().is_empty(), "counters that wrap round");
    for _ in 0..2 * LEAST_TIMES {
        // Nobody was told of the restart.
        net.counts.insert(place("leaf1:1"), [0, 5_000]);
        net.probe(Net::straight);
        net.counts.insert(place("leaf1:1"), [5_000, 0]);
        net.probe(Net::straight);
    }
    assert!(net.told().is_empty(), "counts that go backwards at either end");
    net.wires.ready("spine1", false);
    for _ in 0..2 * LONG_PATIENCE {
        assert!(net.wires.probes("leaf1", 1).0.is_empty());
    }
    net.wires.ready("spine1", true);
    net.wires.link("leaf2", 1, false);
    for _ in 0..2 * LONG_PATIENCE {
        net.probe(
            |from| if from.ends_with("2:1") || from == "spine1:2" { None } else { Net::straight(from) },
        );
    }
    assert!(net.told().is_empty(), "a link that is down is not one-way");
    net.wires.link("leaf2", 1, true);
    net.probe(Net::straight);
    assert!(net.told().is_empty());
}

#[test]
fn frames_that_a_stranger_sends_change_nothing() {
    let mut net = Net::new();
    net.probe(Net::straight);
    let (port, probe) = net.wires.probes("leaf1", 1).0.remove(0);
    assert_eq!((port, probe.len()), (1, FRAME_BYTES));
    // From a host's port, cut short, of another type, from an address that is no port's.
    for length in 0..22 {
        net.wires.arrived(&place("leaf2:1"), &probe[..length]);
    }
    net.wires.arrived(&place("leaf2:3"), &probe);
    net.wires.arrived(&place("nowhere:1"), &probe);
    let mut other = probe.clone();
    other[12] = 0x08;
    net.wires.arrived(&place("leaf2:1"), &other);
    let mut other = probe.clone();
    other[6..12].copy_from_slice(&[2, 0, 0, 0, 1, 1]);
    net.wires.arrived(&place("leaf2:1"), &other);
    assert!(net.told().is_empty());
    // It hides no silence either.
    for _ in 0..=PATIENCE + 1 {
        net.probe(|from| if from == "leaf1:1" { Some(("leaf2:3", 100)) } else { Net::straight(from) });
    }
    assert_eq!(net.told().len(), 1);
}

#[test]
fn another_file_forgets_links_that_are_gone_or_lead_elsewhere() {
    let mut net = Net::new();
    let dead = |from: &str| if from == "leaf1:1" { None } else { Net::straight(from) };
    for _ in 0..=PATIENCE + 1 {
        net.probe(dead);
    }
    assert_eq!(net.told().len(), 1);
    net.take(
        &FABRIC.replace("speed: 10Gbps }\n  - { a: \"leaf2:1\"", "speed: 20Gbps }\n  - { a: \"leaf2:1\""),
    );
    net.probe(dead);
    assert!(net.told().is_empty(), "the same link, as dead as before");
    let gone = FABRIC.replace("leaf1:1", "leaf1:2");
    net.take(&gone);
    assert_eq!(net.told(), ["leaf1:1 well"]);
}

/// A round of probes over all links of a fat tree, answered where `is_alive`; how many were sent.
fn round(wires: &mut Wires, switches: &[String], is_alive: impl Fn(&Place) -> bool) -> usize {
    let mut sent = 0;
    for switch in switches {
        for (port, frame) in wires.probes(switch, 1).0 {
            let from = (switch.clone(), port);
            sent += 1;
            if is_alive(&from) {
                let to = wires.ways[&from].to.clone();
                wires.arrived(&to, &frame);
            }
        }
    }
    sent
}

#[test]
fn large_fabrics_have_no_more_probes_a_second_than_middling_ones_and_ask_at_once_where_none_comes() {
    let text = "version: 1
topology:
  fat_tree: { k: 16, hosts_per_edge: 2, host_speed: 25Gbps, addresses: { grpc: \"127.0.0.1:20000\" } }
";
    let fabric = Fabric::from_yaml(text, "fabric.yaml").unwrap();
    let switches: Vec<String> = fabric.switches.keys().cloned().collect();
    let mut wires = Wires::default();
    wires.of(&Topology::of(&fabric), switches.iter());
    switches.iter().for_each(|name| wires.ready(name, true));
    let (ways, rest) = (wires.ways.len(), rest(wires.ways.len()) as usize);
    assert_eq!((ways, rest), (4_096, 33), "125 a round, four rounds a second");
    let sent: Vec<usize> = (0..2 * rest).map(|_| round(&mut wires, &switches, |_| true)).collect();
    assert_eq!(sent.iter().sum::<usize>(), 2 * ways);
    assert!(sent.iter().all(|sent| (100..150).contains(sent)), "evenly: {sent:?}");
    assert_eq!(wires.links(|_| true), Links { tried: ways / 2, ..Links::default() });

    let dead = wires.ways.keys().nth(1_234).unwrap().clone();
    let is_alive = |from: &Place| *from != dead;
    let told = (0..2 * rest).position(|_| {
        round(&mut wires, &switches, is_alive);
        !wires.take_verdicts().is_empty()
    });
    assert!(told.is_some_and(|rounds| rounds <= rest + PATIENCE as usize + 1), "{told:?}");
}

#[test]
fn a_trial_asks_each_link_until_it_answers_and_tells_which_it_knows_nothing_of() {
    let mut net = Net::new();
    net.wires.begin_trial();
    // No frame crosses leaf2:1, and nothing is known of why.
    let half = |from: &str| Net::straight(from).filter(|_| from != "leaf2:1" && from != "spine1:2");
    net.probe(half);
    assert!(!net.wires.are_tried());
    assert!(net.wires.probes("leaf1", 1).0.is_empty(), "it has answered");
    for _ in 0..=PATIENCE {
        net.probe(half);
    }
    assert!(net.wires.are_tried() && net.told().is_empty());
    let links = net.wires.links(|_| true);
    assert_eq!(links.to_string(), "1 of 2 links tried\n  not tried, no probe came back: leaf2:1 to spine1:2");
    assert_eq!(net.wires.links(|name| name != "leaf2").untried(), 0, "of these switches alone");

    let mut net = Net::new();
    net.wires.begin_trial();
    for _ in 0..2 * PATIENCE {
        net.probe(half);
        net.wires.unsent(&place("leaf2:1"));
    }
    assert!(!net.wires.are_tried(), "nothing was sent");
    let why = |net: &Net| net.wires.links(|_| true).untried.into_keys().collect::<Vec<_>>();
    assert_eq!(why(&net), ["leaf2 has taken no probe yet"]);
    net.wires.link("spine1", 2, false);
    assert_eq!(why(&net), ["spine1:2 is down"]);
    net.wires.ready("spine1", false);
    assert_eq!(why(&net), ["spine1 takes no probes"], "the other link has answered");
}
