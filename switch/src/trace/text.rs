// SPDX-License-Identifier: Apache-2.0
//! Records as lines for people.

use crate::engine::trace::{DropReason, Event, Field, Gress, HitEntry, Origin, Record};
use std::fmt::Write as _;

fn gress(gress: Gress) -> &'static str {
    match gress {
        Gress::Ingress => "ingress",
        Gress::Egress => "egress",
    }
}

/// A number in as many hexadecimal digits as its width asks for.
pub(super) fn hex(field: &Field) -> String {
    let digits = field.width.div_ceil(4).max(1) as usize;
    let mut text = String::new();
    for byte in &field.value {
        let _ = write!(text, "{byte:02x}");
    }
    let text = text.trim_start_matches('0');
    format!("0x{text:0>digits$}")
}

fn fields(fields: &[Field]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| format!("{}={}", field.name, hex(field))).collect();
    fields.join(" ")
}

fn hit(hit: Option<&HitEntry>) -> String {
    let Some(HitEntry { handle, priority, member, group }) = hit else { return "miss".to_owned() };
    let mut text = format!("hit entry {handle}");
    if *priority != 0 {
        let _ = write!(text, " priority {priority}");
    }
    if let Some(member) = member {
        let _ = write!(text, " member {member}");
    }
    if let Some(group) = group {
        let _ = write!(text, " group {group}");
    }
    text
}

/// Why a packet ended, in a word or two.
pub(super) fn reason(reason: DropReason) -> String {
    match reason {
        DropReason::Program(at) => format!("by the program in {}", gress(at)),
        DropReason::Assertion(at) => format!("assertion failed in {}", gress(at)),
        DropReason::EndlessLoop(at) => format!("endless loop in {}", gress(at)),
        DropReason::EmptyGroup => "multicast group without members".to_owned(),
        DropReason::Resubmissions => "resubmitted too often".to_owned(),
        DropReason::Queue => "queue full".to_owned(),
    }
}

/// One line, without its end.
pub fn to_text(record: &Record) -> String {
    let Record { packet, at_ns, event } = record;
    let what = match event {
        Event::Received { port, length } => format!("received on port {port}, {length} bytes"),
        Event::Copied { of, origin } => match origin {
            Origin::IngressClone { session } => format!("ingress clone of #{of}, session {session}"),
            Origin::EgressClone { session } => format!("egress clone of #{of}, session {session}"),
            Origin::Replica { instance } => format!("replica of #{of}, instance {instance}"),
        },
        Event::Resubmitted => "resubmitted".to_owned(),
        Event::Recirculated => "recirculated".to_owned(),
        Event::ParserState(state) => format!("parser state {state}"),
        Event::Parsed { header_bytes, error, checksum_error } => {
            let error = error.as_ref().map_or_else(String::new, |error| format!(", error {error}"));
            let checksum = if *checksum_error { ", checksum wrong" } else { "" };
            format!("parsed {header_bytes} bytes of headers{error}{checksum}")
        }
        Event::Pipeline(at) => gress(*at).to_owned(),
        Event::Table { table, key, hit: found, action } => {
            let action = match action {
                None => "no action".to_owned(),
                Some((name, arguments)) => format!("{name}({})", fields(arguments)),
            };
            format!("table {table} [{}] {} -> {action}", fields(key), hit(found.as_ref()))
        }
        Event::Condition { name, source, result } => {
            let what = if source.is_empty() { name } else { source };
            format!("if {what}: {result}")
        }
        Event::Action { action } => format!("action {action}"),
        Event::Multicast { group, copies } => format!("multicast group {group}, {copies} copies"),
        Event::Enqueued { port, queue, length } => {
            format!("enqueued port {port} queue {queue}, {length} bytes")
        }
        Event::Dequeued { port, queue, waited_ns, enq_qdepth, deq_qdepth } => {
            format!(
                "dequeued port {port} queue {queue} after {waited_ns} ns, depth {enq_qdepth} -> {deq_qdepth}"
            )
        }
        Event::Truncated { from, to } => format!("truncated from {from} to {to} bytes"),
        Event::Transmitted { port, length } => format!("transmitted on port {port}, {length} bytes"),
        Event::Dropped(why) => format!("dropped: {}", reason(*why)),
    };
    let (seconds, nanoseconds) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
    format!("{seconds}.{nanoseconds:09} #{packet} {what}")
}
