// SPDX-License-Identifier: Apache-2.0
//! Packets with known answers, `p4/tests/ladder.json`, and what is written for them: over P4Runtime
//! here, and straight into the engine by the switch's own tests.
#![forbid(unsafe_code)]

use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;
use trimwire_p4runtime::entity::{ActionBuilder, TableEntryBuilder, insert, member, member_group, modify};
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::{Entity as P4Entity, Update};

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
    own_mac: Vec<Uplink>,
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
struct Uplink {
    ingress_port: u16,
    mac: String,
}

#[derive(Debug, Deserialize)]
struct Group {
    id: u32,
    members: Vec<u32>,
}

#[derive(Debug, Deserialize)]
struct Route {
    prefix: String,
    length: u16,
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

/// The action profile of routes.
pub const PROFILE: &str = "Ingress.ecmp";
/// The table of thresholds.
pub const POLICY: &str = "Ingress.queue_policy.policy";

/// One write, in terms of neither P4Runtime nor the engine.
#[derive(Debug)]
pub enum Write {
    /// A member of [`PROFILE`].
    Member(u32, Call),
    /// A group of [`PROFILE`], each member once.
    Group(u32, Vec<u32>),
    /// A table's entry.
    Entry(Entry),
    /// A table's default action.
    Default(&'static str, Call),
}

/// A table's entry.
#[derive(Debug)]
pub struct Entry {
    /// The table.
    pub table: String,
    /// All of its keys, in its order.
    pub keys: Vec<(&'static str, Key)>,
    /// 0 where keys tell entries apart.
    pub priority: i32,
    /// What a hit does.
    pub action: EntryAction,
}

/// What one key matches.
#[derive(Clone, Debug)]
pub enum Key {
    /// This value.
    Exact(Vec<u8>),
    /// So many leading bits.
    Lpm(Vec<u8>, u16),
    /// The bits of a mask; `None`: anything.
    Ternary(Option<(Vec<u8>, Vec<u8>)>),
}

/// What a hit does.
#[derive(Debug)]
pub enum EntryAction {
    /// An action of the table.
    Call(Call),
    /// A member of [`PROFILE`].
    Member(u32),
    /// A group of [`PROFILE`].
    Group(u32),
}

/// An action and its parameters, in its order.
#[derive(Debug)]
pub struct Call {
    /// The action.
    pub action: String,
    /// Names and values.
    pub params: Vec<(&'static str, Vec<u8>)>,
}

fn bytes(hexadecimal: &str) -> anyhow::Result<Vec<u8>> {
    let digits = hexadecimal.as_bytes().chunks(2);
    digits.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

/// As P4Runtime writes numbers: without leading zeros.
fn number(value: impl Into<u32>) -> Vec<u8> {
    let value: u32 = value.into();
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(3);
    bytes[zeros..].to_vec()
}

fn exact(value: impl Into<u32>) -> Key {
    Key::Exact(number(value))
}

fn ternary(value: impl Into<u32>, mask: impl Into<u32>) -> Key {
    Key::Ternary(Some((number(value), number(mask))))
}

fn call(action: &str, params: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Call {
    Call { action: action.to_owned(), params: params.into_iter().collect() }
}

fn entry(table: &str, keys: Vec<(&'static str, Key)>, priority: i32, action: Call) -> Write {
    Write::Entry(Entry { table: table.to_owned(), keys, priority, action: EntryAction::Call(action) })
}

impl Case {
    /// The packet.
    pub fn frame(&self) -> anyhow::Result<Vec<u8>> {
        bytes(&self.frame)
    }

    /// What leaves, and where.
    pub fn expected(&self) -> anyhow::Result<Option<(u16, Vec<u8>)>> {
        self.expect.as_ref().map(|expect| Ok((expect.port, bytes(&expect.frame)?))).transpose()
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
    pub fn writes(&self) -> anyhow::Result<Vec<Write>> {
        let mut writes = Vec::new();
        for Member { id, port, dst_mac } in &self.members {
            let params = [("port", number(*port)), ("dst_mac", bytes(dst_mac)?)];
            writes.push(Write::Member(*id, call("Ingress.forward", params)));
        }
        for Group { id, members } in &self.groups {
            writes.push(Write::Group(*id, members.clone()));
        }
        let v4 = self.ipv4_route.iter().map(|route| ("Ingress.ipv4_route", route));
        let v6 = self.ipv6_route.iter().map(|route| ("Ingress.ipv6_route", route));
        for (table, Route { prefix, length, member, group }) in v4.chain(v6) {
            let keys = vec![("dst_addr", Key::Lpm(bytes(prefix)?, *length))];
            let action = match (member, group) {
                (Some(member), _) => EntryAction::Member(*member),
                (None, Some(group)) => EntryAction::Group(*group),
                (None, None) => anyhow::bail!("a route of {table} leads nowhere"),
            };
            writes.push(Write::Entry(Entry { table: table.to_owned(), keys, priority: 0, action }));
        }
        for Class { dscp, action, queue } in &self.classify {
            let action = call(action, [("queue", number(*queue))]);
            writes.push(entry("Ingress.classify", vec![("dscp", exact(*dscp))], 0, action));
        }
        for Path { dscp, action, half } in &self.load_balance {
            let action = call(action, [("half", number(*half))]);
            writes.push(entry("Ingress.load_balance", vec![("dscp", exact(*dscp))], 0, action));
        }
        for Claim { ingress_port, dscp, priority, remark } in &self.trust {
            let dscp = dscp.map_or(Key::Ternary(None), |dscp| ternary(dscp, 0x3f_u8));
            let action = match remark {
                Some(dscp) => call("Ingress.remark_dscp", [("dscp", number(*dscp))]),
                None => call("Ingress.trust_dscp", []),
            };
            let keys = vec![("ingress_port", exact(*ingress_port)), ("dscp", dscp)];
            writes.push(entry("Ingress.trust", keys, *priority, action));
        }
        for dscp in &self.mark_trimmable {
            let keys = vec![("dscp", exact(*dscp))];
            writes.push(entry("Ingress.mark_trimmable", keys, 0, call("Ingress.mark_ce", [])));
        }
        for Uplink { ingress_port, mac } in &self.own_mac {
            let keys = vec![("ingress_port", exact(*ingress_port))];
            let action = call("Ingress.expect_mac", [("mac", bytes(mac)?)]);
            writes.push(entry("Ingress.own_mac", keys, 0, action));
        }
        for Exempt { table, priority, protocol, dst_port } in &self.trim_acl {
            let keys = vec![
                ("src_addr", Key::Ternary(None)),
                ("dst_addr", Key::Ternary(None)),
                ("protocol", ternary(*protocol, u8::MAX)),
                ("src_port", Key::Ternary(None)),
                ("dst_port", ternary(*dst_port, u16::MAX)),
            ];
            writes.push(entry(table, keys, *priority, call("Ingress.disable_trim", [])));
        }
        for Cap { egress_port, rate, burst } in &self.trim_cap {
            let keys = vec![("egress_port", exact(*egress_port))];
            let params = [("rate", number(*rate)), ("burst", number(*burst))];
            writes.push(entry("Ingress.trim_cap.cap", keys, 0, call("Ingress.trim_cap.set_cap", params)));
        }
        let seed = call("Ingress.set_hash_seed", [("seed", number(self.hash_seed))]);
        writes.push(Write::Default("Ingress.hash_seed", seed));
        Ok(writes)
    }

    /// The same over P4Runtime.
    pub fn updates(&self, index: &Index) -> anyhow::Result<Vec<Update>> {
        self.writes()?.iter().map(|write| update(index, write)).collect()
    }
}

fn action<'i>(index: &'i Index, call: &Call) -> ActionBuilder<'i> {
    let builder = ActionBuilder::new(index, call.action.as_str());
    call.params.iter().fold(builder, |builder, (name, value)| builder.param(*name, value.as_slice()))
}

fn with_call<'i>(builder: TableEntryBuilder<'i>, call: &Call) -> TableEntryBuilder<'i> {
    let builder = builder.action(call.action.as_str());
    call.params.iter().fold(builder, |builder, (name, value)| builder.param(*name, value.as_slice()))
}

fn update(index: &Index, write: &Write) -> anyhow::Result<Update> {
    let entity: P4Entity = match write {
        Write::Member(id, call) => member(index, PROFILE, *id, action(index, call))?.into(),
        Write::Group(id, members) => {
            let weights = members.iter().map(|&member| (member, 1));
            member_group(index, PROFILE, *id, weights, members.len() as i32)?.into()
        }
        Write::Entry(entry) => entity(index, entry)?,
        Write::Default(table, call) => {
            let builder = TableEntryBuilder::default_entry(index, *table);
            return Ok(modify(with_call(builder, call).build()?));
        }
    };
    Ok(insert(entity))
}

fn entity(index: &Index, entry: &Entry) -> anyhow::Result<P4Entity> {
    let mut builder = TableEntryBuilder::new(index, entry.table.as_str());
    for (name, key) in &entry.keys {
        builder = match key {
            Key::Exact(value) => builder.exact(*name, value.as_slice()),
            Key::Lpm(value, length) => builder.lpm(*name, value.as_slice(), u32::from(*length)),
            Key::Ternary(Some((value, mask))) => builder.ternary(*name, value.as_slice(), mask.as_slice()),
            Key::Ternary(None) => builder,
        };
    }
    if entry.priority > 0 {
        builder = builder.priority(entry.priority);
    }
    let builder = match &entry.action {
        EntryAction::Call(call) => with_call(builder, call),
        EntryAction::Member(id) => builder.member(*id),
        EntryAction::Group(id) => builder.group(*id),
    };
    Ok(builder.build()?.into())
}

/// A policy's entry.
pub fn policy_entry(values: &Policy) -> anyhow::Result<Entry> {
    const KEYS: [&str; 3] = ["egress_port", "queue", "importance"];
    const THRESHOLDS: [&str; 9] = [
        "mark_at",
        "shallow_at",
        "deep_at",
        "drop_at",
        "shallow_size",
        "deep_size",
        "trimmed_dscp",
        "trim_queue",
        "trim_drop_at",
    ];
    let value = |name| anyhow::Ok(*values.get(name).with_context(|| format!("a policy without {name}"))?);
    let keys = KEYS.into_iter().map(|name| Ok((name, exact(value(name)?))));
    let params = THRESHOLDS.into_iter().map(|name| Ok((name, number(value(name)?))));
    let params = params.collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Entry {
        table: POLICY.to_owned(),
        keys: keys.collect::<anyhow::Result<_>>()?,
        priority: 0,
        action: EntryAction::Call(call("Ingress.queue_policy.set_thresholds", params)),
    })
}

/// The same over P4Runtime.
pub fn policy(index: &Index, values: &Policy) -> anyhow::Result<P4Entity> {
    entity(index, &policy_entry(values)?)
}
