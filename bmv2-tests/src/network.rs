// SPDX-License-Identifier: Apache-2.0
//! Hosts around one switch, set up by the controller.
#![forbid(unsafe_code)]

use crate::namespace::connect;
use crate::process::{Running, poll};
use crate::switch::{ADDRESS, DEVICE_ID};
use crate::{Kind, Namespace, Programs, RunningSwitch};
use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const BEST_EFFORT: u8 = 0;
/// How long counters have to stay as they are, and within what they have to come to that.
const QUIET: Duration = Duration::from_millis(200);
const SETTLES: Duration = Duration::from_secs(10);

/// Hosts h1, h2, …, each in its namespace with interface `eth0` and address 10.0.0.N, on ports 1,
/// 2, … of one switch.
#[derive(Debug)]
pub struct Network {
    // Fields are dropped in order: the programs end before their namespaces go.
    switch: RunningSwitch,
    hosts: Vec<Namespace>,
    space: Namespace,
    programs: Programs,
    target: &'static str,
    rate_bps: u64,
    folder: PathBuf,
}

/// What a counter says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Counters by (port, queue) and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters(pub BTreeMap<(u16, u8), BTreeMap<String, Count>>);

impl Counters {
    /// Packets of a counter of a port and queue.
    pub fn packets(&self, port: u16, queue: u8, name: &str) -> u64 {
        self.0.get(&(port, queue)).and_then(|row| row.get(name)).map_or(0, |count| count.packets)
    }

    /// Packets of some counters, summed over a port's queues but best effort's: agents send nothing
    /// there, the hosts' kernels do (an ICMP error for a STOP whose sender has ended).
    pub fn sum(&self, port: u16, names: &[&str]) -> u64 {
        let rows = self.0.iter().filter(|((row_port, queue), _)| *row_port == port && *queue != BEST_EFFORT);
        rows.flat_map(|(_, row)| names.iter().filter_map(|&name| row.get(name))).map(|c| c.packets).sum()
    }
}

fn mac(host: usize) -> String {
    format!("02:00:00:00:00:{host:02x}")
}

impl Network {
    /// Starts a switch with hosts around it; the ports serve `rate_bps`.
    pub fn start(programs: &Programs, kind: &Kind, hosts: usize, rate_bps: u64) -> anyhow::Result<Self> {
        let space = Namespace::new("s1")?;
        let mut spaces = Vec::new();
        for number in 1..=hosts {
            let host = Namespace::new(&format!("h{number}"))?;
            let (port, port_mac) = (format!("p{number}"), format!("02:aa:00:00:00:{number:02x}"));
            connect((&host, "eth0", &mac(number)), (&space, &port, &port_mac))?;
            host.ip(&format!("addr add 10.0.0.{number}/24 dev eth0"))?;
            spaces.push(host);
        }
        let ports: Vec<u16> = (1..=hosts as u16).collect();
        let switch = RunningSwitch::start(kind, &space, &ports, rate_bps)?;
        let folder = std::env::temp_dir().join(space.name());
        std::fs::create_dir_all(&folder)?;
        let programs = programs.clone();
        Ok(Self { switch, hosts: spaces, space, programs, target: kind.target(), rate_bps, folder })
    }

    /// The namespace of host N, from 1.
    pub fn host(&self, number: usize) -> anyhow::Result<&Namespace> {
        self.hosts.get(number.wrapping_sub(1)).with_context(|| format!("there is no h{number}"))
    }

    /// The switch.
    pub fn switch(&mut self) -> &mut RunningSwitch {
        &mut self.switch
    }

    /// Brings the switch to a policy (the fabric file's section, as YAML in braces) with
    /// `trimwire-controller apply`.
    pub fn apply(&self, policy: &str) -> anyhow::Result<Value> {
        let mut yaml = format!(
            "version: 1\nswitches:\n  s1: {{ address: \"{ADDRESS}\", device_id: {DEVICE_ID}, target: {} }}\nhosts:\n",
            self.target
        );
        for number in 1..=self.hosts.len() {
            writeln!(
                yaml,
                "  h{number}: {{ ip: 10.0.0.{number}, ip6: \"fd00::{number}\", mac: \"{}\" }}",
                mac(number)
            )?;
        }
        yaml.push_str("links:\n");
        for number in 1..=self.hosts.len() {
            writeln!(yaml, "  - {{ a: h{number}, b: \"s1:{number}\", speed: {}bps }}", self.rate_bps)?;
        }
        writeln!(yaml, "policy: {policy}")?;
        std::fs::write(self.fabric_file(), yaml)?;
        self.controller(&["apply"])
    }

    fn fabric_file(&self) -> PathBuf {
        self.folder.join("fabric.yaml")
    }

    /// Runs the controller beside the switch, with the fabric file and `--json`.
    pub fn controller(&self, words: &[&str]) -> anyhow::Result<Value> {
        let mut command = self.space.command(&self.programs.controller);
        command.args(words).arg(self.fabric_file()).arg("--json");
        Running::start(&mut command)?.json(Duration::from_secs(20))
    }

    /// `trimwire-controller show counters`.
    pub fn counters(&self) -> anyhow::Result<Counters> {
        let shown = self.controller(&["show", "counters"])?;
        let Some(rows) = shown.get("counters").and_then(Value::as_array) else {
            bail!("no counters in {shown}");
        };
        let mut counters = Counters::default();
        for row in rows {
            let number = |key: &str| row.get(key).and_then(Value::as_u64);
            // What counts for the whole switch has neither; it is kept under a port that does not
            // exist.
            let place = (number("port").unwrap_or(511) as u16, number("queue").unwrap_or(7) as u8);
            let cells = row.get("counters").and_then(Value::as_object);
            for (name, count) in cells.into_iter().flatten() {
                let number = |key: &str| count.get(key).and_then(Value::as_u64).unwrap_or(0);
                let count = Count { packets: number("packets"), bytes: number("bytes") };
                counters.0.entry(place).or_default().insert(name.clone(), count);
            }
        }
        Ok(counters)
    }

    /// The counters once nothing is on its way any more: those that two looks in a row agree on.
    /// Agents end when they know enough, and a busy machine's switch may still hold the last
    /// packets they sent.
    pub fn settled_counters(&self) -> anyhow::Result<Counters> {
        let mut last = None;
        poll("counters that stay as they are", SETTLES, || {
            std::thread::sleep(QUIET);
            let counters = self.counters()?;
            let settled = last.replace(counters.clone()).is_some_and(|last| last == counters);
            Ok(settled.then_some(counters))
        })
    }

    /// `trimwire-agent` with words, on a host.
    pub fn agent(&self, host: usize, words: &str) -> anyhow::Result<Running> {
        let mut command: Command = self.host(host)?.command(&self.programs.agent);
        command.args(words.split_whitespace()).arg("--json");
        Running::start(&mut command)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
