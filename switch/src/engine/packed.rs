// SPDX-License-Identifier: Apache-2.0
//! A packet that waits, in a fraction of its memory.
//!
//! Between ingress and egress a packet is its payload and those of its limbs that are not 0 and that something behind the
//! queues may read ([`live`]): numbers of seven bits a byte, each with the distance from the one before. Headers are in the limbs, so
//! that their bytes are not kept.

use super::bits::limbs_for;
use super::code::Code;
use super::json::{self, Result};
use super::layout::Layout;
use super::packet::{Packet, Requests};
use serde_json::Value;
use std::collections::BTreeSet;

/// The bytes of a packet that waits.
#[derive(Debug)]
pub(super) struct Packed(Box<[u8]>);

impl Packed {
    /// `live` says which limbs to keep.
    pub(super) fn new(packet: &Packet, live: &[bool], room: &mut Vec<u8>) -> Self {
        room.clear();
        let Packet { truncate, ingress_port, ingress_length, length, requests, trace, beyond, .. } = packet;
        let payload_at = packet.payload_at.min(packet.frame.len());
        let payload = packet.payload();
        let Requests { clone, resubmit, recirculate, digest } = *requests;
        let (session, list) = clone.unwrap_or_default();
        for number in [
            truncate.wrapping_add(1) as u64,
            u64::from(*ingress_port),
            u64::from(*ingress_length),
            *length,
            *trace,
            *beyond as u64,
            u64::from(clone.is_some()),
            session.into(),
            list.into(),
            resubmit.into(),
            recirculate.into(),
            digest.into(),
            payload_at as u64,
            payload.len() as u64,
        ] {
            put(room, number);
        }
        room.extend_from_slice(payload);
        let mut next = 0;
        for (at, (&limb, _)) in
            packet.phv.iter().zip(live).enumerate().filter(|(_, (limb, live))| **live && **limb != 0)
        {
            put(room, (at - next) as u64);
            put(room, limb);
            next = at + 1;
        }
        Self(room.as_slice().into())
    }

    /// Makes `packet`, whatever it was, the packet again.
    pub(super) fn unpack(&self, packet: &mut Packet, code: &Code) {
        let mut left = &self.0[..];
        let mut number = || take(&mut left);
        let truncate = (number() as usize).wrapping_sub(1);
        let ingress_port = number() as u16;
        let ingress_length = number() as u32;
        let length = number();
        let (trace, beyond) = (number(), number() as usize);
        let cloned = number() != 0;
        let (session, list) = (number() as u16, number() as u16);
        let (resubmit, recirculate, digest) = (number() as u16, number() as u16, number() as u16);
        let (payload_at, payload) = (number() as usize, number() as usize);
        packet.reset(code, ingress_length as usize);
        (packet.truncate, packet.ingress_port, packet.length) = (truncate, ingress_port, length);
        (packet.trace, packet.beyond, packet.payload_at) = (trace, beyond, payload_at);
        packet.requests =
            Requests { clone: cloned.then_some((session, list)), resubmit, recirculate, digest };
        packet.frame.clear();
        packet.frame.resize(payload_at, 0);
        let (payload, limbs) = left.split_at(payload.min(left.len()));
        packet.frame.extend_from_slice(payload);
        left = limbs;
        let mut next = 0;
        while !left.is_empty() {
            let at = next + take(&mut left) as usize;
            let limb = take(&mut left);
            if let Some(place) = packet.phv.get_mut(at) {
                *place = limb;
            }
            next = at + 1;
        }
    }

    pub(super) fn ingress_port(&self) -> u16 {
        let mut left = &self.0[..];
        take(&mut left);
        take(&mut left) as u16
    }

    pub(super) fn trace(&self) -> u64 {
        let mut left = &self.0[..];
        (0..4).for_each(|_| _ = take(&mut left));
        take(&mut left)
    }
}

/// Seven bits a byte, the least significant first.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    let mut shift = 0;
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 || shift > 63 {
            break;
        }
    }
    number
}

/// Which limbs something behind ingress may read: all of headers, and of metadata standard fields and those that egress, its actions,
/// checksums, deparsers, lists of fields or digests name. p4c's results of expressions are mostly not among them.
pub(super) fn live(root: &Value, layout: &Layout) -> Result<Vec<bool>> {
    let mut named = Named::default();
    let mut actions: BTreeSet<u64> = BTreeSet::new();
    for pipeline in json::list(root, "pipelines")? {
        if pipeline.get("name").and_then(Value::as_str) == Some("ingress") {
            continue;
        }
        named.read(pipeline);
        for table in json::list(pipeline, "tables")? {
            actions.extend(json::list(table, "action_ids")?.iter().filter_map(Value::as_u64));
            let default = table.get("default_entry").and_then(|entry| entry.get("action_id"));
            actions.extend(default.and_then(Value::as_u64));
        }
        for call in json::list(pipeline, "action_calls")? {
            actions.extend(call.get("action_id").and_then(Value::as_u64));
        }
    }
    for action in json::list(root, "actions")? {
        if action.get("id").and_then(Value::as_u64).is_none_or(|id| actions.contains(&id)) {
            named.read(action);
        }
    }
    for key in
        ["checksums", "calculations", "deparsers", "field_lists", "learn_lists", "parsers", "meter_arrays"]
    {
        root.get(key).into_iter().for_each(|node| named.read(node));
    }
    let mut live = vec![true; layout.size];
    for header in layout.headers.iter().filter(|header| header.metadata && header.name != "standard_metadata")
    {
        if named.alone.contains(header.name.as_str()) {
            continue;
        }
        for field in &header.fields {
            if !named.fields.contains(&(header.name.as_str(), field.name.as_str())) {
                let limbs = field.slot.at as usize..field.slot.at as usize + limbs_for(field.slot.width);
                live[limbs].fill(false);
            }
        }
    }
    Ok(live)
}

/// What part of a program names: fields, and whatever else might be a header.
#[derive(Default)]
struct Named<'a> {
    fields: BTreeSet<(&'a str, &'a str)>,
    alone: BTreeSet<&'a str>,
}

impl<'a> Named<'a> {
    fn read(&mut self, node: &'a Value) {
        match node {
            Value::Array(items) => match &items[..] {
                [Value::String(header), Value::String(field)] => {
                    self.fields.insert((header, field));
                }
                items => items.iter().for_each(|item| self.read(item)),
            },
            Value::Object(members) => {
                for (key, member) in members.iter().filter(|(key, _)| *key != "source_info" && *key != "name")
                {
                    // A header's name is the value of something that is no field.
                    if let (true, Value::String(name)) = (key == "value" || key == "header", member) {
                        self.alone.insert(name);
                    }
                    self.read(member);
                }
            }
            Value::String(name) => {
                self.alone.insert(name);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
