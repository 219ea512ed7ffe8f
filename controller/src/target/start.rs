// SPDX-License-Identifier: Apache-2.0
//! How the switches of a fabric that are programs are started, so that they are what its file says:
//! ports, line rates, addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::model::{End, Fabric, Switch, Target};
use crate::units;

/// BMv2's own port for Thrift. Several of them on one host need one each.
const FIRST_THRIFT_PORT: u16 = 9090;

/// A command a switch, by the switches' names. Interfaces are named as Mininet's are,
/// SWITCH-ethPORT; switches that are none of the programs known here get a line that says so.
pub fn start_commands(fabric: &Fabric) -> Vec<String> {
    let mut ports: BTreeMap<&str, BTreeMap<u16, u64>> = BTreeMap::new();
    for link in &fabric.links {
        for end in [&link.a, &link.b] {
            if let End::Port(switch, port) = end {
                ports.entry(switch).or_default().insert(*port, link.rate_bps);
            }
        }
    }
    let grpc = |switch: &Switch| switch.address.rsplit_once(':')?.1.parse::<u16>().ok();
    let grpc: BTreeSet<u16> = fabric.switches.values().filter_map(grpc).collect();
    let mut thrift_ports = (FIRST_THRIFT_PORT..=u16::MAX).filter(|port| !grpc.contains(port));
    let none = BTreeMap::new();
    let command = |(name, switch): (&String, &Switch)| {
        let thrift_port = if switch.target == Target::Bmv2 { thrift_ports.next() } else { None };
        let ports = ports.get(name.as_str()).unwrap_or(&none);
        command(name, switch, ports, thrift_port, fabric.tls.contains_key(name))
    };
    fabric.switches.iter().map(command).collect()
}

fn command(
    name: &str,
    switch: &Switch,
    ports: &BTreeMap<u16, u64>,
    thrift_port: Option<u16>,
    tls: bool,
) -> String {
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
    if let Some(port) = thrift_port {
        let _ = write!(text, " --thrift-port {port}");
    }
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
        text.push_str(" # and its certificates: docs/how-to/secure.md");
    }
    text
}

/// The rate that most ports have, and those that have another.
fn rates(ports: &BTreeMap<u16, u64>) -> Vec<String> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    ports.values().for_each(|rate| *counts.entry(*rate).or_default() += 1);
    let Some((usual, _)) = counts.into_iter().max_by_key(|(_, count)| *count) else { return Vec::new() };
    let others = ports.iter().filter(|(_, rate)| **rate != usual);
    let others = others.map(|(port, rate)| format!("--rate {port}={}", units::exact_rate(*rate)));
    std::iter::once(format!("--rate {}", units::exact_rate(usual))).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_with_tls_has_the_page_beside_its_command_that_says_how() {
        let switch = Switch {
            address: "192.0.2.1:9559".to_owned(),
            device_id: 1,
            target: Target::Bmv2,
            pipeline: None,
            gnmi: crate::model::GnmiAt::Default,
        };
        let line = command("s1", &switch, &BTreeMap::from([(1, 10)]), Some(9091), true);
        assert_eq!(
            line,
            "simple_switch_grpc --no-p4 --device-id 1 --thrift-port 9091 -i 1@s1-eth1 -- --grpc-server-addr 192.0.2.1:9559 \
             --cpu-port 510 --priority-queues 8 # and its certificates: docs/how-to/secure.md"
        );
        let page = include_str!("../../../docs/how-to/secure.md");
        assert!(page.contains("--grpc-server-ssl"), "the page has the options");
    }
}
