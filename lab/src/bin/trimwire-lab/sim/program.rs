// SPDX-License-Identifier: Apache-2.0
//! The P4 program for simulated switches: the tables that the controller compiles for each, put
//! into the engine as P4Runtime would.
//!
//! ```text
//!  topology, thresholds ─► a fabric file ─┐
//!                fabric file of a scenario ┴─► controller: compile ─► updates ─► engine, loaded once and copied for each switch
//! ```

#[cfg(test)]
mod tests;

use super::topology;
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use trimwire_controller::model::{Mac, Target};
use trimwire_controller::{Artifacts, Compiler, Fabric, writes};
use trimwire_fabric::frame::Address;
use trimwire_lab::sim::discipline::Rungs;
use trimwire_lab::sim::packet::HEAD;
use trimwire_lab::sim::program::{CodePoints, Programs, SwitchProgram};
use trimwire_lab::sim::topology::{Node, Topology};
use trimwire_p4runtime::v1::{Entity, entity::Entity as Kind};
use trimwire_switch::engine::{Pipeline, TablePool};
use trimwire_switch::server::install;

/// What a frame has in front of its IP packet.
const ETHERNET: u32 = 14;
/// The private network that generated hosts are numbered in.
const NETWORK: u32 = 10 << 24;
/// Nobody connects there: tables are written without a connection.
const NOWHERE: u32 = 1_024;

/// The program in some switches of a generated network, with the thresholds of its plain ones.
pub(super) fn generated(
    topology: &Topology,
    rungs: &Rungs,
    payload: u32,
    switches: &[u32],
) -> Result<Programs> {
    let yaml = yaml(topology, rungs, payload, |switch| format!("127.0.0.1:{}", NOWHERE + switch))?;
    let fabric = Fabric::from_yaml(&yaml, "generated.yaml")?;
    let names = switches.iter().map(|&number| (number, format!("s{number}"))).collect();
    let ports = switches.iter().map(|&number| {
        let links = topology.links_of(number).len() as u16;
        (number, (1..=links).collect())
    });
    let addresses =
        (0..topology.hosts).map(|host| address(&fabric, &format!("h{host}"))).collect::<Result<_>>()?;
    programs(fabric, &Artifacts::embedded()?, topology, &names, ports.collect(), addresses, &yaml)
}

/// The program in all switches of a fabric file's network, with the file's policy. Programs that it
/// names are found from `folder`.
pub(super) fn of_fabric(text: &str, name: &str, folder: &Path) -> Result<Programs> {
    let fabric = Fabric::from_yaml(text, name)?;
    let artifacts = Artifacts::embedded()?.for_fabric(&fabric, folder)?;
    let network = topology::of(&fabric).map_err(anyhow::Error::msg)?;
    let names: BTreeMap<u32, String> = topology::switch_names(&fabric);
    let ports = topology::ports(&fabric);
    let addresses =
        topology::host_names(&fabric).iter().map(|host| address(&fabric, host)).collect::<Result<_>>()?;
    programs(fabric, &artifacts, &network, &names, ports, addresses, text)
}

fn programs(
    fabric: Fabric,
    artifacts: &Artifacts,
    topology: &Topology,
    names: &BTreeMap<u32, String>,
    mut ports: BTreeMap<u32, Vec<u16>>,
    addresses: Vec<Address>,
    source: &str,
) -> Result<Programs> {
    let plan = &fabric.dscp;
    let first = |points: &[u8]| points.first().copied().unwrap_or(0);
    let others = fabric.trimmed_code_points().into_iter().filter(|&point| point != plan.trimmed);
    let code_points = CodePoints {
        trimmable: first(&plan.trimmable),
        droppable: first(&plan.droppable),
        trimmed: std::iter::once(plan.trimmed).chain(others).collect(),
        control: plan.control,
    };
    let compiler = Compiler::new(Arc::new(fabric), artifacts);
    let (mut loaded, mut switches) = (BTreeMap::new(), BTreeMap::new());
    for (&number, name) in names {
        let pipeline = Arc::new(pipeline(&compiler, name, &mut loaded)?);
        let ports = ports.remove(&number).unwrap_or_default();
        switches.insert(number, SwitchProgram { ports, pipeline });
    }
    let cookies: Vec<String> = loaded.keys().map(|cookie: &u64| format!("{cookie:#x}")).collect();
    let source = format!("{} {source}", cookies.join(" "));
    Ok(Programs::new(topology, addresses, code_points, switches, &source)?)
}

/// A program without entries, and the tables of the switches that run it.
type Loaded = (Pipeline, TablePool);

/// A switch's program with its tables. Programs are loaded once, by cookie; what several switches'
/// tables hold alike is there once.
fn pipeline(compiler: &Compiler, name: &str, loaded: &mut BTreeMap<u64, Loaded>) -> Result<Pipeline> {
    if let Some(switch) = compiler.fabric().switches.get(name)
        && switch.target.is_stratum()
    {
        let valid = format!("{} and {}", Target::Trimwire.word(), Target::Bmv2.word());
        bail!("switch {name}: target {} is not simulated; valid are {valid}", switch.target.word());
    }
    let program = compiler.artifacts().of(name);
    let (blank, pool) = match loaded.entry(program.cookie()) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => {
            let blank = Pipeline::load(program.device_config());
            place
                .insert((blank.with_context(|| format!("switch {name}: its program"))?, TablePool::default()))
        }
    };
    let mut pipeline = blank.clone();
    let mut updates = writes(compiler.compile(name)?, program.index());
    // Plain switches here do not address frames to a port, and no cable is wrong.
    let own_mac = program.index().table("Ingress.own_mac").map_or(0, |table| table.id());
    updates.retain(|update| !matches!(&update.entity, Some(Entity { entity: Some(Kind::TableEntry(entry)) }) if entry.table_id == own_mac));
    install(&mut pipeline, program.index(), &updates).with_context(|| format!("switch {name}"))?;
    pipeline.share_tables(pool);
    // Hosts spray over source ports, so flows rarely come again: remembering them made runs slower.
    pipeline.limit_flows(0);
    Ok(pipeline)
}

fn address(fabric: &Fabric, host: &str) -> Result<Address> {
    let found = fabric.hosts.get(host).with_context(|| format!("the fabric has no host {host}"))?;
    let Mac(mac) = found.mac;
    Ok(Address { mac, ip: found.ip })
}

/// The fabric file of a generated network: hosts `h0`, …, switches `s0`, … at the addresses that
/// are given, whose port n leads over the nth of their links, from 1. Hosts of one switch share a
/// prefix.
fn yaml(topology: &Topology, rungs: &Rungs, payload: u32, grpc: impl Fn(u32) -> String) -> Result<String> {
    ensure!(rungs.cap.is_none(), "a cap of trimmed packets in bytes cannot be written into a fabric file");
    let mut text = format!("version: 1\nmtu: {}\nswitches:\n", HEAD + payload - ETHERNET);
    for switch in 0..topology.switches {
        let _ = writeln!(text, "  s{switch}: {{ address: \"{}\", device_id: {} }}", grpc(switch), switch + 1);
    }
    text.push_str("hosts:\n");
    for (host, ip) in (0..).zip(numbering(topology)) {
        let [_, a, b, c] = ip.octets();
        let _ = writeln!(text, "  h{host}: {{ ip: {ip}, mac: \"02:00:00:{a:02x}:{b:02x}:{c:02x}\" }}");
    }
    text.push_str("links:\n");
    let mut used = vec![0; topology.switches as usize];
    let mut end = |node| match node {
        Node::Host(host) => format!("h{host}"),
        Node::Switch(switch) => {
            let port: &mut u32 = &mut used[switch as usize];
            *port += 1;
            format!("\"s{switch}:{port}\"")
        }
    };
    for link in &topology.links {
        let [a, b] = link.ends.map(&mut end);
        let (rate, delay) = (link.rate_bps, link.delay_ns);
        let _ = writeln!(text, "  - {{ a: {a}, b: {b}, speed: {rate}bps, delay: {delay}ns }}");
    }
    let thresholds = |at: usize| {
        let Rungs { mark_at, shallow_at, deep_at, drop_at, .. } = rungs;
        let (mark, shallow, deep, drop) = (mark_at[at], shallow_at[at], deep_at[at], drop_at[at]);
        format!("{{ mark_at: {mark}B, shallow_at: {shallow}B, deep_at: {deep}B, drop_at: {drop}B }}")
    };
    let (less, more) = (thresholds(0), thresholds(1));
    let _ = write!(
        text,
        "policy:\n  shallow_size: {}B\n  deep_size: {}B\n  trim_limit: {}B\n  trim_cap: never\n  less_important: {less}\n  important: {more}\n  \
         queues:\n    control: {{ less_important: {less}, important: {more} }}\n",
        rungs.shallow_size, rungs.deep_size, rungs.trim_drop_at
    );
    Ok(text)
}

/// Addresses by host: a network for each switch, as large as the largest needs.
fn numbering(topology: &Topology) -> Vec<Ipv4Addr> {
    let mut homes = vec![0; topology.hosts as usize];
    for link in &topology.links {
        if let [Node::Host(host), Node::Switch(switch)] | [Node::Switch(switch), Node::Host(host)] = link.ends
        {
            homes[host as usize] = switch;
        }
    }
    let mut count = vec![0_u32; topology.switches as usize];
    homes.iter().for_each(|&switch: &u32| count[switch as usize] += 1);
    // Neither the network's own address nor the last.
    let size = (count.iter().max().copied().unwrap_or(0) + 2).next_power_of_two();
    let mut next = vec![0; topology.switches as usize];
    let number = |switch: u32| {
        let host: &mut u32 = &mut next[switch as usize];
        *host += 1;
        Ipv4Addr::from(NETWORK + switch * size + *host)
    };
    homes.into_iter().map(number).collect()
}
