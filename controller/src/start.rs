// SPDX-License-Identifier: Apache-2.0
//! How the switches of a fabric that are programs are started, so that they are what its file says: ports, line rates, addresses.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::model::{End, Fabric, Switch, Target};
use crate::units;

/// A command a switch, by the switches' names. Interfaces are named as Mininet's are, SWITCH-ethPORT; switches that are none of
/// the programs known here get a line that says so.
pub fn commands(fabric: &Fabric) -> Vec<String> {
    let mut ports: BTreeMap<&str, BTreeMap<u16, u64>> = BTreeMap::new();
    for link in &fabric.links {
        for end in [&link.a, &link.b] {
            if let End::Port(switch, port) = end {
                ports.entry(switch).or_default().insert(*port, link.rate_bps);
            }
        }
    }
    let none = BTreeMap::new();
    let command = |(name, switch): (&String, &Switch)| {
        command(name, switch, ports.get(name.as_str()).unwrap_or(&none), fabric.tls.contains_key(name))
    };
    fabric.switches.iter().map(command).collect()
}

fn command(name: &str, switch: &Switch, ports: &BTreeMap<u16, u64>, tls: bool) -> String {
    let Switch { address, device_id, target, .. } = switch;
    let mut text = match target {
        Target::Trimwire => format!("trimwire-switch --no-p4 --device-id {device_id}"),
        Target::Bmv2 => format!("simple_switch_grpc --no-p4 --device-id {device_id}"),
        Target::StratumTofino | Target::StratumTofino2 => {
            return format!(
                "# {name}: {}, started with its own chassis configuration (docs/how-to/tofino.md)",
                target.word()
            );
        }
    };
    // Writing into a string does not fail.
    for port in ports.keys() {
        let _ = write!(text, " -i {port}@{name}-eth{port}");
    }
    if *target == Target::Trimwire {
        // BMv2's lines are the interfaces' (docs/how-to/mininet.md).
        for rate in rates(ports) {
            let _ = write!(text, " {rate}");
        }
    }
    let _ = write!(text, " -- --grpc-server-addr {address} --cpu-port 510");
    if *target == Target::Bmv2 {
        text.push_str(" --priority-queues 8");
    }
    if tls {
        text.push_str(" # and its certificates: docs/reference/p4runtime.md");
    }
    text
}

/// The rate that most ports have, and those that have another.
fn rates(ports: &BTreeMap<u16, u64>) -> Vec<String> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    ports.values().for_each(|rate| *counts.entry(*rate).or_default() += 1);
    let Some((usual, _)) = counts.into_iter().max_by_key(|(_, count)| *count) else { return Vec::new() };
    let others = ports.iter().filter(|(_, rate)| **rate != usual);
    let others = others.map(|(port, rate)| format!("--port-rate {port}={}", units::exact_rate(*rate)));
    std::iter::once(format!("--rate {}", units::exact_rate(usual))).chain(others).collect()
}
