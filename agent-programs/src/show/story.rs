// SPDX-License-Identifier: Apache-2.0
//! One operation, message by message.

use super::{Counts, micros};
use crate::report::table;
use serde::Serialize;
use std::collections::BTreeMap;
use trimwire_agent::collective::MessageId;
use trimwire_agent::transcript::{Held, MessageRecord};
use trimwire_encoder::{Decoding, PLANES, Reach};

/// Parts of a message that are told apart.
const PARTS: usize = 24;
/// Rungs that are named; the rest is counted together.
const RUNGS: usize = 3;

/// Packets that were trimmed to the same whole planes.
#[derive(Debug, Serialize)]
struct Rung {
    /// `None`: the message's layout cannot be made from what is recorded.
    planes: Option<u8>,
    packets: u64,
    /// Bytes of planes that they hold at least, and at most.
    bytes: [u16; 2],
}

/// A message of the operation, at its receiver.
#[derive(Debug, Serialize)]
pub(super) struct Link {
    from: u16,
    to: u16,
    phase: String,
    shard: u16,
    delivered: bool,
    /// From the start of the operation at the receiver, s.
    first_seconds: Option<f64>,
    last_seconds: Option<f64>,
    over_seconds: f64,
    #[serde(flatten)]
    counts: Counts,
    duplicates: u32,
    probes: u32,
    /// The commonest first.
    trimmed_to: Vec<Rung>,
    /// The error, by the closed form (docs/reference/wire-format.md §9) row by row, of a message
    /// whose rows have equal energies, as those of `perf` have. `None` as above.
    nmse_expected: Option<f64>,
    /// Of each of equal parts of the message, the share of packets that were trimmed or missing.
    where_trimmed: Vec<f64>,
}

impl Link {
    pub(super) fn new(to: u16, message: &MessageRecord, counts: Counts) -> Self {
        let id = MessageId::from_u32(message.message);
        let seconds = |ns: u64| ns as f64 / 1e9;
        Self {
            from: message.from,
            to,
            phase: id.phase.to_string(),
            shard: id.shard,
            delivered: message.delivered,
            first_seconds: message.first_ns.map(seconds),
            last_seconds: message.last_ns.map(seconds),
            over_seconds: seconds(message.duration_ns),
            counts,
            duplicates: message.duplicates,
            probes: message.probes,
            trimmed_to: rungs(message),
            nmse_expected: nmse_expected(message),
            where_trimmed: places(&message.held),
        }
    }
}

fn rungs(message: &MessageRecord) -> Vec<Rung> {
    let reaches = message.planes().ok().filter(|reaches| reaches.len() == message.held.len());
    let mut counts = BTreeMap::<Option<u8>, Rung>::new();
    for (index, held) in message.held.iter().enumerate() {
        let Held::Part(bytes) = *held else { continue };
        let reach = reaches.as_ref().and_then(|reaches| reaches.get(index).copied().flatten());
        let planes = reach.map(|Reach { planes, .. }| planes);
        let rung = counts.entry(planes).or_insert(Rung { planes, packets: 0, bytes: [bytes; 2] });
        rung.packets += 1;
        let [least, most] = rung.bytes;
        rung.bytes = [least.min(bytes), most.max(bytes)];
    }
    let mut rungs: Vec<Rung> = counts.into_values().collect();
    rungs.sort_by_key(|rung| (std::cmp::Reverse(rung.packets), rung.bytes));
    rungs
}

fn nmse_expected(message: &MessageRecord) -> Option<f64> {
    let (layout, reaches) = (message.shape.layout().ok()?, message.planes().ok()?);
    let mut error = 0.0;
    for row in 0..layout.rows() {
        let row_len = layout.row_range(row).len() as f64;
        let mut shares = BTreeMap::<u8, f64>::new();
        for index in layout.row_packets(row) {
            let planes = reaches.get(index)?.map_or(0, |Reach { planes, .. }| planes);
            if planes < PLANES {
                *shares.entry(planes).or_default() += layout.packet_range(index).len() as f64 / row_len;
            }
        }
        let shares: Vec<(u8, f64)> = shares.into_iter().collect();
        let expected = trimwire_encoder::expected_nmse(message.shape.codec, Decoding::Unbiased, &shares);
        // A row of which nothing arrived is decoded as zeros.
        let expected = if expected.is_finite() { expected } else { 1.0 };
        error += expected * layout.row_coordinates(row).len() as f64;
    }
    Some(error / (layout.coordinates().max(1) as f64))
}

fn places(held: &[Held]) -> Vec<f64> {
    let parts = PARTS.min(held.len());
    let share = |part: usize| {
        let packets = &held[held.len() * part / parts..held.len() * (part + 1) / parts];
        let hit = packets.iter().filter(|held| **held != Held::Whole).count();
        hit as f64 / packets.len().max(1) as f64
    };
    (0..parts).map(share).collect()
}

/// Shares as characters, from nothing to everything.
fn histogram(shares: &[f64]) -> String {
    const LEVELS: &[u8] = b" .:-=+*#%@";
    let level = |&share: &f64| {
        let at = (share * (LEVELS.len() - 1) as f64).ceil() as usize;
        char::from(LEVELS[at.min(LEVELS.len() - 1)])
    };
    format!("[{}]", shares.iter().map(level).collect::<String>())
}

fn rung_text(rungs: &[Rung]) -> String {
    let one = |rung: &Rung| match rung {
        Rung { planes: Some(1), packets, .. } => format!("{packets} to 1 plane"),
        Rung { planes: Some(planes), packets, .. } => format!("{packets} to {planes} planes"),
        Rung { planes: None, packets, bytes: [least, most] } => format!("{packets} to {least} to {most} B"),
    };
    let mut named: Vec<String> = rungs.iter().take(RUNGS).map(one).collect();
    let rest: u64 = rungs.iter().skip(RUNGS).map(|rung| rung.packets).sum();
    if rest > 0 {
        named.push(format!("{rest} to other rungs"));
    }
    if named.is_empty() { "-".to_owned() } else { named.join(", ") }
}

/// Messages of an operation, the slowest first.
#[derive(Debug, Serialize)]
pub(super) struct Story {
    messages: Vec<Link>,
}

impl Story {
    pub(super) fn new(mut messages: Vec<Link>) -> Self {
        messages.sort_by(|a, b| b.over_seconds.total_cmp(&a.over_seconds));
        Self { messages }
    }

    pub(super) fn text(&self) -> String {
        let headings = [
            "link",
            "phase",
            "shard",
            "first (us)",
            "last (us)",
            "over (us)",
            "packets",
            "trimmed %",
            "missing %",
            "asked",
            "where trimmed or missing",
            "trimmed to",
        ];
        let row = |link: &Link| {
            let counts = link.counts;
            let over = micros(Some(link.over_seconds));
            vec![
                format!("{} > {}", link.from, link.to),
                link.phase.clone(),
                link.shard.to_string(),
                micros(link.first_seconds),
                micros(link.last_seconds),
                if link.delivered { over } else { "given up".to_owned() },
                counts.packets.to_string(),
                counts.percent(counts.trimmed),
                counts.percent(counts.missing),
                counts.asked.to_string(),
                histogram(&link.where_trimmed),
                rung_text(&link.trimmed_to),
            ]
        };
        let rows: Vec<Vec<String>> = self.messages.iter().map(row).collect();
        let mut lines = vec![table(&headings, &rows)];
        if let Some(slowest) = self.messages.iter().find(|link| link.delivered) {
            let Link { from, to, phase, shard, counts, probes, .. } = slowest;
            lines.push(format!(
                "slowest link: rank {from} to rank {to}, shard {shard} in the {phase}: first packet after {} us, last after {} us, over after {} us; {} trimmed, {} missing of {}; {probes} probes asked for {}",
                micros(slowest.first_seconds),
                micros(slowest.last_seconds),
                micros(Some(slowest.over_seconds)),
                counts.trimmed,
                counts.missing,
                counts.packets,
                counts.asked,
            ));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_shows_where_packets_were_hit_however_few() {
        let mut held = vec![Held::Whole; 2_400];
        held[0] = Held::Missing;
        held[2_300..].fill(Held::Part(56));
        let text = histogram(&places(&held));
        assert_eq!(text.len(), PARTS + 2);
        assert!(text.starts_with("[. ") && text.ends_with(" @]"), "{text}");
        assert_eq!(histogram(&places(&[])), "[]");
        assert_eq!(histogram(&places(&[Held::Missing])), "[@]");
    }
}
