// SPDX-License-Identifier: Apache-2.0
//! What the engine and the switch note about each packet while tracing is on.
//!
//! Nothing is noted, copied or allocated while it is off: every hook is one test of an `Option`.

use serde_json::Value as Json;
use std::collections::BTreeMap;

use super::action::Action;
use super::bits::bytes_from_limbs;
use super::entity::{ActionSpec, KeyInfo, Value};
use super::layout::Slot;
use super::table::call::Call;
use super::table::{Key, Table};

/// Records kept until someone takes them; later ones are lost, and counted.
const MOST_RECORDS: usize = 1 << 16;

/// A named number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the key or parameter.
    pub name: String,
    /// Width in bits.
    pub width: u32,
    /// Its value, canonical.
    pub value: Value,
}

/// The entry that a look-up found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HitEntry {
    /// BMv2's handle: the number of the entry in its table.
    pub handle: u32,
    /// 0 where the table has no priorities.
    pub priority: i32,
    /// The member of the table's action profile that it names.
    pub member: Option<u32>,
    /// The group of the table's action profile that it names.
    pub group: Option<u32>,
}

/// Which half of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gress {
    /// Before the queue.
    Ingress,
    /// After the queue.
    Egress,
}

/// Why a packet ended without leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// `mark_to_drop`, or no egress port was ever chosen.
    Program(Gress),
    /// An `assert` or `assume` did not hold.
    Assertion(Gress),
    /// An action that finds no end.
    EndlessLoop(Gress),
    /// The multicast group has no members, or does not exist.
    EmptyGroup,
    /// It was resubmitted again and again.
    Resubmissions,
    /// The queue was full, or does not exist.
    Queue,
}

/// Where a packet came from that was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A copy as the ingress clone of a session.
    IngressClone {
        /// The clone session.
        session: u16,
    },
    /// A copy as the egress clone of a session.
    EgressClone {
        /// The clone session.
        session: u16,
    },
    /// A replica of a multicast group or clone session.
    Replica {
        /// `egress_rid`.
        instance: u16,
    },
}

/// One thing that happened to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It was received.
    Received {
        /// Ingress port.
        port: u16,
        /// Bytes.
        length: usize,
    },
    /// It was made from another packet.
    Copied {
        /// The other packet.
        of: u64,
        /// How.
        origin: Origin,
    },
    /// It goes back to the parser before the queue.
    Resubmitted,
    /// It goes back to the parser after egress.
    Recirculated,
    /// The parser entered a state.
    ParserState(String),
    /// The parser ended.
    Parsed {
        /// Bytes that headers took.
        header_bytes: usize,
        /// The program's name of the error, such as `PacketTooShort`, or its number where it has
        /// none.
        error: Option<String>,
        /// A checksum did not hold.
        checksum_error: bool,
    },
    /// Ingress or egress begins.
    Pipeline(Gress),
    /// A table was applied.
    Table {
        /// Full name.
        table: String,
        /// Keys as looked up.
        key: Vec<Field>,
        /// `None` for a miss.
        hit: Option<HitEntry>,
        /// What runs: full name and arguments; `None` where a miss does nothing.
        action: Option<(String, Vec<Field>)>,
    },
    /// An `if` was decided.
    Condition {
        /// p4c's name for it.
        name: String,
        /// The P4 text and its place, where the JSON tells.
        source: String,
        /// Which way.
        result: bool,
    },
    /// An action outside any table.
    Action {
        /// Full name.
        action: String,
    },
    /// It is replicated and ends itself.
    Multicast {
        /// The group.
        group: u16,
        /// Copies.
        copies: usize,
    },
    /// It entered a queue.
    Enqueued {
        /// Egress port.
        port: u16,
        /// Queue of the port.
        queue: u8,
        /// Bytes.
        length: u32,
    },
    /// It left its queue.
    Dequeued {
        /// Egress port.
        port: u16,
        /// Queue of the port.
        queue: u8,
        /// Time in the queue, ns.
        waited_ns: u64,
        /// Depth that it found, in the unit of the traffic manager.
        enq_qdepth: u32,
        /// Depth that it left.
        deq_qdepth: u32,
    },
    /// `truncate` shortened it.
    Truncated {
        /// Bytes before.
        from: usize,
        /// Bytes after.
        to: usize,
    },
    /// It leaves.
    Transmitted {
        /// Egress port.
        port: u16,
        /// Bytes.
        length: usize,
    },
    /// It ends here.
    Dropped(DropReason),
}

/// What happened to which packet, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Packets are numbered from 1 since tracing began; every copy has a number of its own.
    pub packet: u64,
    /// The caller's clock.
    pub at_ns: u64,
    /// What happened.
    pub event: Event,
}

/// Collects records until they are taken.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    records: Vec<Record>,
    lost: u64,
    packets: u64,
    at_ns: u64,
    names: Names,
}

impl Recorder {
    pub(super) fn new(names: Names) -> Self {
        Self { names, ..Self::default() }
    }

    pub(super) fn set_time(&mut self, at_ns: u64) {
        self.at_ns = at_ns;
    }

    /// The next packet's number.
    pub(super) fn number(&mut self) -> u64 {
        self.packets += 1;
        self.packets
    }

    pub(super) fn note(&mut self, packet: u64, event: Event) {
        if self.records.len() < MOST_RECORDS {
            self.records.push(Record { packet, at_ns: self.at_ns, event });
        } else {
            self.lost += 1;
        }
    }

    /// What was noted since the last call, and how many records were lost.
    pub(super) fn take(&mut self) -> (Vec<Record>, u64) {
        (std::mem::take(&mut self.records), std::mem::take(&mut self.lost))
    }

    pub(super) fn note_state(&mut self, packet: u64, state: u32) {
        let name = self.names.states.get(state as usize).cloned();
        self.note(packet, Event::ParserState(name.unwrap_or_else(|| state.to_string())));
    }

    /// The program's name of a parser error.
    pub(super) fn error_name(&self, code: u64) -> String {
        self.names.errors.get(&code).cloned().unwrap_or_else(|| code.to_string())
    }

    pub(super) fn note_call(&mut self, packet: u64, action: &Action) {
        self.note(packet, Event::Action { action: action.name.clone() });
    }

    pub(super) fn note_condition(&mut self, packet: u64, node: u32, result: bool) {
        let NodeName { name, source } = self.names.nodes.get(node as usize).cloned().unwrap_or_default();
        self.note(packet, Event::Condition { name, source, result });
    }

    /// A look-up: `key` as the packet has it, and the call that it led to.
    pub(super) fn note_table(
        &mut self,
        packet: u64,
        phv: &[u64],
        table: &Table,
        hit: Option<u32>,
        call: Option<&Call>,
        actions: &[Action],
    ) {
        let field = |(key, info): (&Key, &KeyInfo)| {
            let mut limbs = Vec::new();
            key.extend(phv, &mut limbs);
            Field { name: info.name.clone(), width: key.slot.width, value: bytes_from_limbs(&limbs) }
        };
        let entry = |handle: u32| {
            let entry = table.entries.get(handle as usize)?.as_ref()?;
            let (member, group) = match entry.entry.action {
                ActionSpec::Direct(_) => (None, None),
                ActionSpec::Member(id) => (Some(id), None),
                ActionSpec::Group(id) => (None, Some(id)),
            };
            Some(HitEntry { handle, priority: entry.entry.priority, member, group })
        };
        let call = call.and_then(|call| Some((actions.get(call.action as usize)?, call)));
        self.note(
            packet,
            Event::Table {
                table: table.info.name.clone(),
                key: table.keys.iter().zip(&table.info.keys).map(field).collect(),
                hit: hit.and_then(entry),
                action: call.map(|(action, call)| (action.name.clone(), arguments(action, call))),
            },
        );
    }
}

fn arguments(action: &Action, call: &Call) -> Vec<Field> {
    let field = |(name, slot): &(String, Slot)| Field {
        name: name.clone(),
        width: slot.width,
        value: call.params.get(slot.limbs()).map_or_else(Vec::new, bytes_from_limbs),
    };
    action.params.iter().map(field).collect()
}

/// How the JSON names a node of the control flow.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeName {
    name: String,
    source: String,
}

/// The names that only a trace needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// By the number of the node.
    nodes: Vec<NodeName>,
    states: Vec<String>,
    errors: BTreeMap<u64, String>,
}

impl Names {
    /// From JSON that has been found well-formed.
    pub(super) fn load(root: &Json) -> Self {
        let list =
            |node: &Json, key: &str| node.get(key).and_then(Json::as_array).cloned().unwrap_or_default();
        let name = |node: &Json| node.get("name").and_then(Json::as_str).unwrap_or_default().to_owned();
        let node_name = |node: Json| NodeName { name: name(&node), source: source(&node) };
        let mut nodes = Vec::new();
        for pipeline in list(root, "pipelines") {
            for kind in ["tables", "conditionals", "action_calls"] {
                nodes.extend(list(&pipeline, kind).into_iter().map(node_name));
            }
        }
        let parser = root.get("parsers").and_then(|parsers| parsers.get(0));
        let states = parser.map_or_else(Vec::new, |parser| list(parser, "parse_states"));
        let error = |node: Json| Some((node.get(1)?.as_u64()?, node.get(0)?.as_str()?.to_owned()));
        Self {
            nodes,
            states: states.iter().map(name).collect(),
            errors: list(root, "errors").into_iter().filter_map(error).collect(),
        }
    }
}

fn source(node: &Json) -> String {
    let Some(info) = node.get("source_info") else { return String::new() };
    let text = |key: &str| info.get(key).and_then(Json::as_str).unwrap_or_default();
    let line = info.get("line").and_then(Json::as_u64).unwrap_or(0);
    let file = text("filename").rsplit('/').next().unwrap_or_default();
    format!("{} ({file}:{line})", text("source_fragment"))
}
