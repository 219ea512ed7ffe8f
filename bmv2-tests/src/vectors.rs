// SPDX-License-Identifier: Apache-2.0
//! Packets with known answers, `p4/tests/ladder.json`.
#![forbid(unsafe_code)]

use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;
use trimwire_p4runtime::entity::{ActionBuilder, TableEntryBuilder, insert, member, member_group};
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::{Entity, Update};

/// The file; `p4/tests/README.md` says what its fields mean.
#[derive(Debug, Deserialize)]
pub struct Vectors {
    members: Vec<Member>,
    groups: Vec<Group>,
    ipv4_route: Vec<Route>,
    ipv6_route: Vec<Route>,
    classify: Vec<Class>,
    load_balance: Vec<Path>,
    hash_seed: u32,
    trust: Vec<Claim>,
    mark_trimmable: Vec<u8>,
    trim_acl: Vec<Exempt>,
    trim_cap: Vec<Cap>,
    /// The packets.
    pub cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
struct Member {
    id: u32,
    port: u16,
    dst_mac: String,
}

#[derive(Debug, Deserialize)]
struct Group {
    id: u32,
    members: Vec<u32>,
}

#[derive(Debug, Deserialize)]
struct Route {
    prefix: String,
    length: u32,
    member: Option<u32>,
    group: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Class {
    dscp: u8,
    action: String,
    queue: u8,
}

#[derive(Debug, Deserialize)]
struct Path {
    dscp: u8,
    action: String,
    half: u8,
}

#[derive(Debug, Deserialize)]
struct Claim {
    ingress_port: u16,
    dscp: Option<u8>,
    priority: i32,
    remark: Option<u8>,
}

#[derive(Debug, Deserialize)]
struct Exempt {
    table: String,
    priority: i32,
    protocol: u8,
    dst_port: u16,
}

#[derive(Debug, Deserialize)]
struct Cap {
    egress_port: u16,
    rate: u32,
    burst: u32,
}

/// An entry of the queue policy: keys and action data by name.
pub type Policy = BTreeMap<String, u32>;

/// One packet.
#[derive(Debug, Deserialize)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// The queue policy's entries.
    pub policies: Vec<Policy>,
    /// Where it comes in.
    pub ingress_port: u16,
    frame: String,
    expect: Option<Expect>,
    /// By how much counters rise: `array[index]` to packets and bytes.
    pub counters: BTreeMap<String, (i64, i64)>,
}

#[derive(Debug, Deserialize)]
struct Expect {
    port: u16,
    frame: String,
}

fn bytes(hexadecimal: &str) -> anyhow::Result<Vec<u8>> {
    let digits = hexadecimal.as_bytes().chunks(2);
    digits.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

impl Case {
    /// The packet.
    pub fn frame(&self) -> anyhow::Result<Vec<u8>> {
        bytes(&self.frame)
    }

    /// What leaves, and where.
    pub fn expected(&self) -> anyhow::Result<Vec<(u16, Vec<u8>)>> {
        self.expect.iter().map(|expect| Ok((expect.port, bytes(&expect.frame)?))).collect()
    }
}

impl Vectors {
    /// Reads the committed file.
    pub fn load() -> anyhow::Result<Self> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/tests/ladder.json");
        let text = std::fs::read_to_string(path).context(path)?;
        serde_json::from_str(&text).context(path)
    }

    /// What is written once, in an order that works.
    pub fn updates(&self, index: &Index) -> anyhow::Result<Vec<Update>> {
        let seed = TableEntryBuilder::default_entry(index, "Ingress.hash_seed");
        let seed = seed.action("Ingress.set_hash_seed").param("seed", self.hash_seed).modify()?;
        Ok(self.entities(index)?.into_iter().map(insert).chain([seed]).collect())
    }

    fn entities(&self, index: &Index) -> anyhow::Result<Vec<Entity>> {
        let mut entities = Vec::new();
        for Member { id, port, dst_mac } in &self.members {
            let action = ActionBuilder::new(index, "Ingress.forward")
                .param("port", *port)
                .param("dst_mac", bytes(dst_mac)?.as_slice());
            entities.push(member(index, "Ingress.ecmp", *id, action)?.into());
        }
        for Group { id, members } in &self.groups {
            let weights = members.iter().map(|&member| (member, 1));
            entities.push(member_group(index, "Ingress.ecmp", *id, weights, members.len() as i32)?.into());
        }
        let v4 = self.ipv4_route.iter().map(|route| ("Ingress.ipv4_route", route));
        let v6 = self.ipv6_route.iter().map(|route| ("Ingress.ipv6_route", route));
        for (table, Route { prefix, length, member, group }) in v4.chain(v6) {
            let prefix = bytes(prefix)?;
            let entry = TableEntryBuilder::new(index, table).lpm("dst_addr", prefix.as_slice(), *length);
            let entry = match (member, group) {
                (Some(member), _) => entry.member(*member),
                (None, Some(group)) => entry.group(*group),
                (None, None) => anyhow::bail!("a route of {table} leads nowhere"),
            };
            entities.push(entry.build()?.into());
        }
        for Class { dscp, action, queue } in &self.classify {
            let entry = TableEntryBuilder::new(index, "Ingress.classify").exact("dscp", *dscp);
            entities.push(entry.action(action.as_str()).param("queue", *queue).build()?.into());
        }
        for Path { dscp, action, half } in &self.load_balance {
            let entry = TableEntryBuilder::new(index, "Ingress.load_balance").exact("dscp", *dscp);
            entities.push(entry.action(action.as_str()).param("half", *half).build()?.into());
        }
        for Claim { ingress_port, dscp, priority, remark } in &self.trust {
            let mut entry = TableEntryBuilder::new(index, "Ingress.trust")
                .exact("ingress_port", *ingress_port)
                .priority(*priority);
            if let Some(dscp) = dscp {
                entry = entry.ternary("dscp", *dscp, 0x3f_u8);
            }
            let entry = match remark {
                Some(dscp) => entry.action("Ingress.remark_dscp").param("dscp", *dscp),
                None => entry.action("Ingress.trust_dscp"),
            };
            entities.push(entry.build()?.into());
        }
        for dscp in &self.mark_trimmable {
            let entry = TableEntryBuilder::new(index, "Ingress.mark_trimmable").exact("dscp", *dscp);
            entities.push(entry.action("Ingress.mark_ce").build()?.into());
        }
        for Exempt { table, priority, protocol, dst_port } in &self.trim_acl {
            let entry = TableEntryBuilder::new(index, table.as_str())
                .ternary("protocol", *protocol, u8::MAX)
                .ternary("dst_port", *dst_port, u16::MAX)
                .priority(*priority);
            entities.push(entry.action("Ingress.disable_trim").build()?.into());
        }
        for Cap { egress_port, rate, burst } in &self.trim_cap {
            let entry =
                TableEntryBuilder::new(index, "Ingress.trim_cap.cap").exact("egress_port", *egress_port);
            let entry = entry.action("Ingress.trim_cap.set_cap").param("rate", *rate).param("burst", *burst);
            entities.push(entry.build()?.into());
        }
        Ok(entities)
    }
}

/// A policy's entry.
pub fn policy(index: &Index, values: &Policy) -> anyhow::Result<Entity> {
    const KEYS: [&str; 3] = ["egress_port", "queue", "importance"];
    let mut entry = TableEntryBuilder::new(index, "Ingress.queue_policy.policy");
    for key in KEYS {
        entry = entry.exact(key, *values.get(key).with_context(|| format!("a policy without {key}"))?);
    }
    entry = entry.action("Ingress.queue_policy.set_thresholds");
    for (name, value) in values.iter().filter(|(name, _)| !KEYS.contains(&name.as_str())) {
        entry = entry.param(name.as_str(), *value);
    }
    Ok(entry.build()?.into())
}
