// SPDX-License-Identifier: Apache-2.0
//! Records as JSON objects, one a line.

use super::text::{hex, reason};
use crate::engine::trace::{Event, Field, Gress, HitEntry, Origin, Record};
use serde_json::{Map, Value, json};

fn fields(fields: &[Field]) -> Value {
    fields.iter().map(|field| (field.name.clone(), Value::from(hex(field)))).collect::<Map<_, _>>().into()
}

fn gress(gress: Gress) -> &'static str {
    match gress {
        Gress::Ingress => "ingress",
        Gress::Egress => "egress",
    }
}

fn hit(entry: &HitEntry) -> Value {
    let HitEntry { handle, priority, member, group } = entry;
    json!({ "handle": handle, "priority": priority, "member": member, "group": group })
}

/// One object: `packet`, `at_ns`, `event` and what the event has. Numbers of the program's fields
/// are hexadecimal strings, as wide as the field.
pub fn to_json(record: &Record) -> Value {
    let (name, mut object) = match &record.event {
        Event::Received { port, length } => ("received", json!({ "port": port, "bytes": length })),
        Event::Copied { of, origin } => {
            let (kind, session, instance) = match origin {
                Origin::IngressClone { session } => ("ingress_clone", Some(session), None),
                Origin::EgressClone { session } => ("egress_clone", Some(session), None),
                Origin::Replica { instance } => ("replica", None, Some(instance)),
            };
            ("copied", json!({ "of": of, "kind": kind, "session": session, "instance": instance }))
        }
        Event::Resubmitted => ("resubmitted", json!({})),
        Event::Recirculated => ("recirculated", json!({})),
        Event::ParserState(state) => ("parser_state", json!({ "state": state })),
        Event::Parsed { header_bytes, error, checksum_error } => (
            "parsed",
            json!({ "header_bytes": header_bytes, "error": error, "checksum_error": checksum_error }),
        ),
        Event::Pipeline(at) => ("pipeline", json!({ "pipeline": gress(*at) })),
        Event::Table { table, key, hit: found, action } => {
            let (action, arguments) = match action {
                Some((action, arguments)) => (Some(action), fields(arguments)),
                None => (None, Value::Null),
            };
            let found = found.as_ref().map(hit);
            (
                "table",
                json!({ "table": table, "key": fields(key), "hit": found, "action": action, "arguments": arguments }),
            )
        }
        Event::Condition { name, source, result } => {
            ("condition", json!({ "name": name, "source": source, "result": result }))
        }
        Event::Action { action } => ("action", json!({ "action": action })),
        Event::Multicast { group, copies } => ("multicast", json!({ "group": group, "copies": copies })),
        Event::Enqueued { port, queue, length } => {
            ("enqueued", json!({ "port": port, "queue": queue, "bytes": length }))
        }
        Event::Dequeued { port, queue, waited_ns, enq_qdepth, deq_qdepth } => (
            "dequeued",
            json!({
                "port": port, "queue": queue, "waited_ns": waited_ns,
                "enq_qdepth": enq_qdepth, "deq_qdepth": deq_qdepth,
            }),
        ),
        Event::Truncated { from, to } => ("truncated", json!({ "from_bytes": from, "to_bytes": to })),
        Event::Transmitted { port, length } => ("transmitted", json!({ "port": port, "bytes": length })),
        Event::Dropped(why) => ("dropped", json!({ "reason": reason(*why) })),
    };
    if let Value::Object(object) = &mut object {
        object.insert("packet".to_owned(), record.packet.into());
        object.insert("at_ns".to_owned(), record.at_ns.into());
        object.insert("event".to_owned(), name.into());
    }
    object
}
