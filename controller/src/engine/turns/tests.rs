// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeSet;

use super::*;
use crate::fleet::Options;
use crate::model::Fabric;
use crate::program::Artifacts;

/// 2 × 2, with one host a leaf, and drivers that do at once what they are told.
struct Bench {
    replacer: Replacer,
    /// What routes leave out beside us.
    others: Avoid,
    number: u64,
    /// Programs that are replaced at a time.
    most: usize,
}

const LEAF_SPINE: &str = "version: 1
switches:
  leaf1: { address: \"127.0.0.1:1\", device_id: 1 }
  leaf2: { address: \"127.0.0.1:2\", device_id: 2 }
  spine1: { address: \"127.0.0.1:3\", device_id: 3 }
  spine2: { address: \"127.0.0.1:4\", device_id: 4 }
hosts:
  h1: { ip: 10.0.1.1, mac: \"02:00:00:00:01:01\" }
  h2: { ip: 10.0.2.1, mac: \"02:00:00:00:02:01\" }
links:
  - { a: h1, b: \"leaf1:3\", speed: 10Gbps }
  - { a: h2, b: \"leaf2:3\", speed: 10Gbps }
  - { a: \"leaf1:1\", b: \"spine1:1\", speed: 10Gbps }
  - { a: \"leaf1:2\", b: \"spine2:1\", speed: 10Gbps }
  - { a: \"leaf2:1\", b: \"spine1:2\", speed: 10Gbps }
  - { a: \"leaf2:2\", b: \"spine2:2\", speed: 10Gbps }
";
const ALL: [&str; 4] = ["leaf1", "leaf2", "spine1", "spine2"];

fn unknown() -> Seen {
    Seen::Unknown("its tables are being read".to_owned())
}

impl Bench {
    fn new() -> Self {
        Self::of(1)
    }

    fn of(most: usize) -> Self {
        let mut bench = Self { replacer: Replacer::default(), others: Avoid::default(), number: 0, most };
        bench.take_file();
        bench.change(|replacer| replacer.leads(true));
        bench
    }

    fn take_file(&mut self) {
        let text = format!("{LEAF_SPINE}controller: {{ max_unavailable: {} }}\n", self.most);
        let fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap();
        let shared = Shared::new(&fabric, &Artifacts::embedded().unwrap(), &Options::default());
        self.number += 1;
        let number = self.number;
        self.change(|replacer| replacer.of(number, shared));
    }

    fn change(&mut self, change: impl FnOnce(&mut Replacer)) {
        change(&mut self.replacer);
        let others = self.others.clone();
        self.replacer.settle(|out| {
            let mut avoid = others.clone();
            avoid.drained.extend(out.into_keys());
            Arc::new(avoid)
        });
    }

    fn see(&mut self, switch: &str, seen: Seen) {
        let number = self.number;
        self.change(|replacer| replacer.see(number, switch, seen));
    }

    /// Routes that leave out what they are to leave out by now.
    fn routes(&self) -> Arc<Avoid> {
        Arc::clone(&self.replacer.avoid)
    }

    fn another(&mut self, switch: &str) {
        let routes = self.routes();
        self.see(switch, Seen::Another(Ok(routes)));
    }

    fn in_place(&mut self, switch: &str) {
        let routes = self.routes();
        self.see(switch, Seen::InPlace(routes));
    }

    /// Every switch that is reached and is well has its routes.
    fn reroute(&mut self) {
        for name in self.replacer.seen.keys().cloned().collect::<Vec<_>>() {
            match self.replacer.seen[&name] {
                Seen::Another(Ok(_)) => self.another(&name),
                Seen::InPlace(_) => self.in_place(&name),
                _ => {}
            }
        }
    }

    /// All run another program.
    fn all_differ() -> Self {
        Self::all_differ_of(1)
    }

    fn all_differ_of(most: usize) -> Self {
        let mut bench = Self::of(most);
        ALL.iter().for_each(|name| bench.another(name));
        bench
    }

    /// Whose turn it is, and for what.
    fn order(&self) -> String {
        let orders = self.replacer.orders().into_iter().map(|(switch, order)| format!("{order:?} {switch}"));
        orders.collect::<Vec<_>>().join(", ")
    }

    fn out(&self) -> Option<String> {
        let out: Vec<String> = self.replacer.out().into_keys().collect();
        (!out.is_empty()).then(|| out.join(", "))
    }

    fn replaced(&mut self, switch: &str) {
        self.reroute();
        assert_eq!(self.order(), format!("Replace {switch}"));
        self.in_place(switch);
        self.reroute();
        assert_eq!(self.order(), format!("Check {switch}"));
        self.change(|replacer| replacer.checked(switch, Ok(())));
    }

    fn stopped(&self) -> String {
        self.replacer.told().stopped.unwrap_or_default()
    }
}

#[test]
fn programs_are_replaced_one_by_one_spines_first_and_leaves_without_a_way_round_last() {
    let mut bench = Bench::all_differ();
    let told = bench.replacer.told();
    let words = told.to_string();
    let expected = "new programs: it is spine1's turn, 3 more wait (leaf1, leaf2, spine2); waiting for ";
    assert!(words.starts_with(expected), "{words}");
    for switch in ["spine1", "spine2"] {
        assert_eq!((bench.out().as_deref(), bench.order()), (Some(switch), String::new()));
        bench.replaced(switch);
    }
    for switch in ["leaf1", "leaf2"] {
        assert_eq!((bench.out(), bench.order()), (None, format!("Replace {switch}")));
        bench.replaced(switch);
    }
    assert_eq!((bench.replacer.told(), bench.order()), (Replacing::default(), String::new()));
}

#[test]
fn nothing_is_replaced_before_all_others_lead_around_it_and_none_is_looked_at_before_they_lead_back() {
    let mut bench = Bench::all_differ();
    for name in ["leaf1", "spine2"] {
        bench.another(name);
        assert_eq!(
            (bench.out().as_deref(), bench.order()),
            (Some("spine1"), String::new()),
            "leaf2 does not yet"
        );
    }
    bench.another("leaf2");
    assert_eq!(bench.order(), "Replace spine1");
    bench.in_place("spine1");
    assert_eq!((bench.out(), bench.order()), (None, String::new()));
    bench.reroute();
    assert_eq!(bench.order(), "Check spine1");
}

#[test]
fn nobody_s_turn_comes_before_all_switches_that_are_reached_are_known_and_we_lead() {
    let mut bench = Bench::new();
    bench.another("leaf1");
    bench.another("spine2");
    bench.in_place("leaf2");
    assert_eq!((bench.out(), bench.order()), (None, String::new()), "nothing is known of spine1");
    bench.others.switches = BTreeSet::from(["spine1".to_owned()]);
    bench.see("spine1", Seen::Unreached("refused".to_owned()));
    assert_eq!(
        (bench.out(), bench.order()),
        (None, String::new()),
        "the dead spine was the way round the other"
    );
    assert!(bench.stopped().contains("spine2 waits: what has failed elsewhere"), "{}", bench.stopped());
    bench.others = Avoid::default();
    bench.in_place("spine1");
    assert_eq!(bench.out().as_deref(), Some("spine2"));
    bench.change(|replacer| replacer.leads(false));
    assert_eq!((bench.out(), bench.order()), (None, String::new()));
}

#[test]
fn what_a_person_has_drained_is_no_way_round_and_the_last_spine_is_replaced_in_its_place() {
    let mut bench = Bench::new();
    bench.others.drained = BTreeSet::from(["spine1".to_owned()]);
    ALL.iter().for_each(|name| bench.another(name));
    assert_eq!(bench.replacer.turns.keys().collect::<Vec<_>>(), ["spine1"]);
    bench.replaced("spine1");
    assert_eq!((bench.out(), bench.order()), (None, "Replace spine2".to_owned()));
}

#[test]
fn a_switch_that_refuses_its_new_program_stays_out_and_nobody_else_s_turn_comes_until_it_takes_it() {
    let mut bench = Bench::all_differ();
    bench.reroute();
    bench.see("spine1", Seen::Failed("no room".to_owned()));
    assert_eq!(bench.stopped(), "spine1 is not in place: no room");
    // It is tried again, and on another connection.
    for seen in [unknown(), Seen::Unreached("reset".to_owned()), unknown()] {
        bench.see("spine1", seen);
        assert_eq!((bench.out().as_deref(), bench.order()), (Some("spine1"), "Replace spine1".to_owned()));
        assert!(!bench.stopped().is_empty(), "it is told all the while");
    }
    bench.replaced("spine1");
    assert_eq!((bench.out().as_deref(), bench.stopped().as_str()), (Some("spine2"), ""));
}

#[test]
fn a_switch_that_is_not_healthy_stays_out_and_stops_all_until_a_person_says_so() {
    let mut bench = Bench::all_differ();
    bench.reroute();
    bench.in_place("spine1");
    bench.reroute();
    bench.change(|replacer| replacer.checked("spine1", Err("none leaves".to_owned())));
    for _ in 0..3 {
        bench.reroute();
        assert_eq!((bench.out().as_deref(), bench.order()), (Some("spine1"), String::new()));
    }
    assert_eq!(bench.stopped(), "spine1 is in place, but not healthy: none leaves");
    // Renewed certificates say nothing of it.
    bench.take_file();
    ["leaf1", "leaf2", "spine2"].iter().for_each(|name| bench.another(name));
    bench.in_place("spine1");
    assert_eq!((bench.out().as_deref(), bench.order()), (Some("spine1"), String::new()));
    bench.change(Replacer::insist);
    bench.reroute();
    assert_eq!((bench.out(), bench.order()), (None, "Check spine1".to_owned()));
}

#[test]
fn a_leaf_that_does_not_take_the_routes_around_keeps_the_program_from_being_replaced() {
    let mut bench = Bench::all_differ();
    bench.see("leaf1", Seen::Another(Err("no room".to_owned())));
    assert_eq!((bench.out(), bench.order()), (None, String::new()));
    assert_eq!(bench.stopped(), "no routes around spine1: leaf1: no room");
    bench.reroute();
    bench.another("leaf1");
    assert_eq!((bench.out(), bench.order()), (None, String::new()), "not again and again");
    bench.change(Replacer::insist);
    assert_eq!(bench.out().as_deref(), Some("spine1"));
}

#[test]
fn a_switch_that_dies_is_waited_for_only_once_it_was_given_something() {
    let mut bench = Bench::all_differ();
    bench.see("spine1", Seen::Unreached("refused".to_owned()));
    assert_eq!(bench.out().as_deref(), Some("spine2"), "the others lead around the dead one, too");
    // As drivers and the detector see it a moment later.
    bench.see("spine1", Seen::InPlace(Arc::default()));
    bench.replaced("spine2");

    bench.replaced("leaf1");
    assert_eq!(bench.order(), "Replace leaf2");
    bench.see("leaf2", Seen::Unreached("refused".to_owned()));
    bench.another("leaf1");
    assert_eq!(bench.order(), "Replace leaf2", "its new program may be why");
    bench.change(Replacer::insist);
    assert_eq!(bench.order(), "Replace leaf1");
}

#[test]
fn another_file_in_the_middle_begins_with_who_has_the_turn() {
    let mut bench = Bench::all_differ();
    bench.reroute();
    bench.in_place("spine1");
    assert_eq!(bench.out(), None);
    bench.take_file();
    // Of the file before.
    bench.change(|replacer| replacer.see(1, "spine1", Seen::InPlace(Arc::default())));
    assert!(matches!(bench.replacer.seen["spine1"], Seen::Unknown(_)));
    ALL.iter().for_each(|name| bench.another(name));
    assert_eq!(bench.out().as_deref(), Some("spine1"));
    bench.replaced("spine1");
    assert_eq!(bench.out().as_deref(), Some("spine2"));
}

#[test]
fn who_waits_says_for_whom_by_name_and_reason() {
    let mut bench = Bench::new();
    bench.another("spine1");
    bench.in_place("leaf2");
    bench.see("leaf1", Seen::Unknown("another controller is its primary".to_owned()));
    let told = bench.replacer.told();
    let unread = "it was not looked at since the file is read";
    let expected = "new programs: it is nobody's turn, 1 more wait (spine1); waiting for leaf1 (another controller is its primary), ";
    assert_eq!(told.to_string(), format!("{expected}spine2 ({unread})"));
    assert_eq!((told.stopped, bench.order()), (None, String::new()), "nothing is wrong");
    bench.in_place("spine2");
    bench.in_place("leaf1");
    // While routes are led around it, too.
    bench.in_place("leaf2");
    let told = bench.replacer.told();
    assert_eq!(told.switches, BTreeSet::from(["spine1".to_owned()]));
    assert_eq!(told.waits_for.keys().collect::<Vec<_>>(), ["leaf1", "spine2"], "{told}");
    bench.reroute();
    assert_eq!(bench.order(), "Replace spine1");
    assert_eq!(bench.replacer.told().waits_for["spine1"], WRITTEN);
}

#[test]
fn of_two_at_a_time_spines_that_are_each_other_s_way_round_go_one_by_one_and_leaves_together() {
    let mut bench = Bench::all_differ_of(2);
    for switch in ["spine1", "spine2"] {
        assert_eq!(bench.out().as_deref(), Some(switch));
        bench.replaced(switch);
    }
    assert_eq!((bench.out(), bench.order()), (None, "Replace leaf1, Replace leaf2".to_owned()));
    bench.in_place("leaf1");
    assert_eq!(bench.order(), "Replace leaf1, Replace leaf2", "led over again together");
    bench.in_place("leaf2");
    assert_eq!(bench.order(), "Check leaf1, Check leaf2");
    bench.change(|replacer| replacer.checked("leaf1", Ok(())));
    bench.change(|replacer| replacer.checked("leaf2", Ok(())));
    assert_eq!(bench.replacer.told(), Replacing::default());
}

/// 2 leaves and 4 spines.
fn four_spines(most: usize) -> Bench {
    let text = format!(
        "version: 1
controller: {{ max_unavailable: {most}, insecure: true }}
topology: {{ leaf_spine: {{ leaves: 2, spines: 4, hosts_per_leaf: 1, host_speed: 10Gbps, addresses: {{ grpc: \"127.0.0.1:20000\" }} }} }}
"
    );
    let fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"));
    let shared = Shared::new(&fabric, &Artifacts::embedded().unwrap(), &Options::default());
    let mut bench = Bench { replacer: Replacer::default(), others: Avoid::default(), number: 1, most };
    bench.change(|replacer| replacer.of(1, shared));
    bench.change(|replacer| replacer.leads(true));
    for name in bench.replacer.seen.keys().cloned().collect::<Vec<_>>() {
        bench.another(&name);
    }
    bench
}

#[test]
fn so_many_spines_at_a_time_as_are_allowed_and_leave_a_way_and_one_that_fails_keeps_only_itself_out() {
    let mut bench = four_spines(3);
    assert_eq!(bench.out().as_deref(), Some("spine1, spine2, spine3"));
    assert_eq!(four_spines(9).out().as_deref(), Some("spine1, spine2, spine3"), "the last is the way round");
    bench.reroute();
    assert_eq!(bench.order(), "Replace spine1, Replace spine2, Replace spine3");
    bench.in_place("spine1");
    bench.in_place("spine3");
    assert_eq!(bench.out().as_deref(), Some("spine1, spine2, spine3"), "led over again together");
    bench.see("spine2", Seen::Failed("no room".to_owned()));
    assert_eq!(bench.out().as_deref(), Some("spine2"));
    assert_eq!(bench.stopped(), "spine2 is not in place: no room");
    bench.see("spine2", unknown());
    assert_eq!(bench.out().as_deref(), Some("spine2"));
    bench.see("spine2", Seen::Failed("no room".to_owned()));
    bench.reroute();
    assert_eq!(bench.order(), "Check spine1, Replace spine2, Check spine3");
    bench.change(|replacer| replacer.checked("spine1", Ok(())));
    bench.change(|replacer| replacer.checked("spine3", Err("none leaves".to_owned())));
    bench.reroute();
    assert_eq!(bench.out().as_deref(), Some("spine2, spine3"), "spine4 has no turn");
    assert_eq!(bench.stopped(), "spine3 is in place, but not healthy: none leaves");
    bench.in_place("spine2");
    bench.reroute();
    bench.change(|replacer| replacer.checked("spine2", Ok(())));
    assert_eq!((bench.out().as_deref(), bench.order()), (Some("spine3"), String::new()));
    bench.change(Replacer::insist);
    bench.reroute();
    bench.change(|replacer| replacer.checked("spine3", Ok(())));
    assert_eq!(bench.out().as_deref(), Some("spine4"));
}

#[test]
fn what_has_failed_counts_among_those_that_are_unavailable() {
    let mut bench = four_spines(2);
    bench.change(|replacer| replacer.leads(false));
    bench.others.switches = ["spine3".to_owned(), "spine4".to_owned()].into();
    bench.see("spine3", Seen::Unreached("refused".to_owned()));
    bench.see("spine4", Seen::Unreached("refused".to_owned()));
    bench.change(|replacer| replacer.leads(true));
    assert_eq!(bench.out().as_deref(), Some("spine1"), "spine2 is its way round");
}
