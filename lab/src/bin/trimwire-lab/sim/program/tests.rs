// SPDX-License-Identifier: Apache-2.0
//! Tables against those that arrive over P4Runtime, and the program against the plain switch that
//! stands for it.

use super::*;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use trimwire_agent::rate::{DctcpConfig, RateConfig};
use trimwire_controller::apply_blocking;
use trimwire_lab::sim::discipline::Rule;
use trimwire_lab::sim::run::{Outcome, run};
use trimwire_lab::sim::setup::Setup;
use trimwire_lab::sim::topology::Shape;
use trimwire_lab::sim::transport::{Delivery, Transport, TrimwireConfig};
use trimwire_lab::sim::workload::{Demand, all_to_all, incast};
use trimwire_switch::server::serve;
use trimwire_switch::{SharedSwitch, Switch, SwitchConfig};

const RATE: u64 = 100_000_000_000;
const PAYLOAD: u32 = 1_344;

fn leaf_spine(spines: u32) -> Topology {
    let (leaves, hosts_per_leaf) = (3, 4);
    let (uplink_bps, delay_ns) = (2 * RATE, 1_000);
    Shape::LeafSpine { leaves, spines, hosts_per_leaf, rate_bps: RATE, uplink_bps, delay_ns }.topology()
}

/// Everything that a controller can have written, but for the addresses that frames from switches
/// have to have, which plain switches of the simulator do not write.
fn written(pipeline: &mut Pipeline) -> String {
    let control = pipeline.control();
    let mut text = String::new();
    let mut tables: Vec<String> = control.tables().map(|table| table.name.clone()).collect();
    tables.retain(|table| table != "Ingress.own_mac");
    for table in &tables {
        let rows = control.table_entries(table).unwrap();
        let entries: Vec<_> = rows.into_iter().map(|row| row.entry).collect();
        let _ = writeln!(text, "{table}: {entries:#?}, else {:?}", control.default_action(table).unwrap());
    }
    let profiles: Vec<String> = control.profiles().map(|(name, ..)| name.to_owned()).collect();
    for profile in &profiles {
        let (members, groups) = (control.members(profile).unwrap(), control.groups(profile).unwrap());
        let watches: Vec<_> = groups.iter().map(|group| control.group_watches(profile, group.id)).collect();
        let _ = writeln!(text, "{profile}: {members:#?} {groups:#?} {watches:?}");
    }
    text
}

#[test]
fn a_simulated_switch_holds_what_the_controller_pushes_over_p4runtime() {
    let topology = leaf_spine(2);
    let rungs = Rungs::defaults(RATE, PAYLOAD);
    let all: Vec<u32> = (0..topology.switches).collect();
    let switches: Vec<SharedSwitch> = all
        .iter()
        .map(|&number| {
            let device_id = u64::from(number) + 1;
            Arc::new(Mutex::new(Switch::new(SwitchConfig { device_id, ..SwitchConfig::default() })))
        })
        .collect();
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let servers: Vec<_> =
        switches.iter().map(|switch| serve(Arc::clone(switch), anywhere).unwrap()).collect();
    let text = yaml(&topology, &rungs, PAYLOAD, |switch| servers[switch as usize].local_addr().to_string());
    let fabric = Fabric::from_yaml(&text.unwrap(), "pushed.yaml").unwrap();
    let artifacts = Artifacts::embedded().unwrap();
    let report = apply_blocking(&fabric, &artifacts, &trimwire_controller::Options::default()).unwrap();
    assert!(report.is_ok(), "{report}");

    let compiler = Compiler::new(Arc::new(fabric), &artifacts);
    let mut loaded = BTreeMap::new();
    for (number, switch) in switches.iter().enumerate() {
        let mut put = pipeline(&compiler, &format!("s{number}"), &mut loaded).unwrap();
        let mut switch = switch.lock().unwrap_or_else(PoisonError::into_inner);
        let own_macs =
            |switch: &mut Pipeline| switch.control().table_entries("Ingress.own_mac").unwrap().len();
        assert_eq!(own_macs(&mut put), 0, "switch {number}");
        assert!(own_macs(switch.pipeline().unwrap()) > 0, "switch {number} knows its cables");
        let (put, pushed) = (written(&mut put), written(switch.pipeline().unwrap()));
        assert!(pushed.matches("Ingress.forward").count() > 2, "switch {number} has routes: {pushed}");
        assert_eq!(put, pushed, "switch {number}");
    }
}

/// Two racks send to a host of the third, while everybody sends to everybody.
fn demands() -> Vec<Demand> {
    let mut demands = all_to_all(12, 60_000, 20_000, 5);
    demands.extend(incast(11, 400_000, 3_000, 5));
    demands
}

fn setup(topology: Topology, delivery: Delivery, programs: Option<Programs>) -> Setup {
    let config = TrimwireConfig::new(delivery, RateConfig::Dctcp(DctcpConfig::default()));
    let (transport, rule) = (Transport::Trimwire(config), Rule::Ladder(Rungs::defaults(RATE, PAYLOAD)));
    let setup = Setup::new(topology, demands(), PAYLOAD, transport, rule);
    Setup { programs, seed: 3, limit_ns: 1_000_000_000, ..setup }
}

fn with_program(spines: u32, delivery: Delivery, switches: &[u32]) -> Setup {
    let topology = leaf_spine(spines);
    let made = generated(&topology, &Rungs::defaults(RATE, PAYLOAD), PAYLOAD, switches).unwrap();
    setup(topology, delivery, Some(made))
}

/// All that both kinds of switches have an opinion on: when each flow had what, and what happened
/// to how many packets.
fn story(outcome: &Outcome) -> String {
    let Outcome { flows, unfinished, end_ns, packet_hops, sent, repairs, timeouts, lost, switches, .. } =
        outcome;
    format!("{flows:#?} {unfinished} {end_ns} {packet_hops} {sent} {repairs} {timeouts} {lost} {switches:?}")
}

#[test]
fn the_program_is_the_plain_trimming_switch_packet_for_packet_on_a_leaf_spine() {
    // Where there is a choice of paths the two draw differently: one spine and the program
    // everywhere, then two spines, which have no choice, with it.
    for (spines, switches) in [(1, &[0, 1, 2, 3][..]), (2, &[3, 4][..])] {
        for delivery in [Delivery::Trim { loss: 0.01 }, Delivery::RepairTrimmed, Delivery::RepairDropped] {
            let plain = run(&setup(leaf_spine(spines), delivery, None), 1, |_| {});
            let programmed = run(&with_program(spines, delivery, switches), 1, |_| {});
            assert_eq!(plain.unfinished, 0);
            let happened = if delivery == Delivery::RepairDropped {
                plain.switches.dropped
            } else {
                plain.switches.trimmed
            };
            assert!(happened > 500, "{delivery:?} congests: {:?}", plain.switches);
            assert_eq!(story(&plain), story(&programmed), "{spines} spines, {delivery:?}");
        }
    }
}

#[test]
fn results_with_the_program_are_the_same_with_any_number_of_threads() {
    let setup = with_program(2, Delivery::RepairTrimmed, &[0, 1, 2, 3, 4]);
    let alone = run(&setup, 1, |_| {});
    assert!(alone.unfinished == 0 && alone.switches.trimmed > 500, "{:?}", alone.switches);
    for threads in [2, 3, 5] {
        assert_eq!(story(&alone), story(&run(&setup, threads, |_| {})), "{threads} threads");
    }
}

#[test]
fn the_program_sprays_over_all_spines() {
    // Each of two spines carries about half: with both the incast's racks are faster than what one
    // could carry.
    let slowest = |spines| {
        let setup = with_program(spines, Delivery::RepairDropped, &(0..3 + spines).collect::<Vec<_>>());
        let outcome = run(&Setup { demands: all_to_all(12, 200_000, 0, 1), ..setup }, 1, |_| {});
        assert_eq!(outcome.unfinished, 0);
        outcome.flows.iter().map(|flow| flow.duration_ns).max().unwrap_or(0)
    };
    let (one, two) = (slowest(1), slowest(2));
    assert!(two * 5 < one * 4, "{two} ns with two spines, {one} with one");
}
