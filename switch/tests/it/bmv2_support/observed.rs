// SPDX-License-Identifier: Apache-2.0
//! What can be seen after a case, as sorted lines of text: frames, counters, digests, packet-ins.
//! Their order is lost on BMv2, whose egress threads race.

use std::fmt::Write as _;

use trimwire_p4runtime::config::counter_spec::Unit;
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_switch::engine::entity::{CounterValue, Owner};
use trimwire_switch::engine::{EgressOutcome, Pipeline, QueueMetadata};

use super::{CPU_PORT, Case, Write, apply, random::Bits, recording_asked_for, switch};

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn index(case: &Case) -> Index {
    let text = std::fs::read_to_string(&case.p4info).unwrap();
    Index::new(&P4Info::from_text(&text).unwrap()).unwrap()
}

pub(crate) fn frame_line(port: u16, frame: &[u8]) -> String {
    format!("out {port} {}", hex(frame))
}

pub(crate) fn digest_line(name: &str, fields: &[Vec<u8>]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|field| {
            let zeros =
                field.iter().take_while(|&&byte| byte == 0).count().min(field.len().saturating_sub(1));
            hex(&field[zeros..])
        })
        .collect();
    format!("digest {name} {}", fields.join(" "))
}

/// A counter in the units that it was declared with; `None` where nothing was counted.
pub(crate) fn counter_line(what: &str, unit: Unit, value: CounterValue) -> Option<String> {
    let CounterValue { packets, bytes } = value;
    let counted = match unit {
        Unit::Packets => format!("{packets} packets"),
        Unit::Bytes => format!("{bytes} bytes"),
        _ => format!("{packets} packets {bytes} bytes"),
    };
    (packets != 0 || bytes != 0).then(|| format!("{what} {counted}"))
}

/// The unit of a table's direct counter.
pub(crate) fn direct_unit(index: &Index, table: u32) -> Option<Unit> {
    let counters = &index.p4info().direct_counters;
    let counter = counters.iter().find(|counter| counter.direct_table_id == table)?;
    Some(counter.spec.as_ref().map_or(Unit::Unspecified, trimwire_p4runtime::config::CounterSpec::unit))
}

/// The case on our engine.
pub(crate) fn ours(case: &Case) -> Vec<String> {
    let mut pipeline = Pipeline::load(&std::fs::read(&case.json).unwrap()).unwrap();
    for write in &case.writes {
        apply(&mut pipeline, write).unwrap_or_else(|error| panic!("{write:?}: {error}"));
    }
    let mut lines = Vec::new();
    let outs = case.packet_outs.iter().map(|out| {
        let header =
            out.metadata.iter().fold(Bits::default(), |bits, &(width, value)| bits.push(width, value));
        let mut frame = header.bytes();
        frame.extend_from_slice(&out.payload);
        (CPU_PORT, frame)
    });
    let frames: Vec<(u16, Vec<u8>)> = case.frames.iter().cloned().chain(outs).collect();
    for (number, (port, frame)) in (0..).zip(&frames) {
        let now_ns = number * 1_000_000;
        let mut queue = Vec::new();
        pipeline.ingress(now_ns, *port, frame, &mut queue);
        while !queue.is_empty() {
            let mut packet = queue.remove(0);
            if number % 2 == 0 {
                pipeline.pack(&mut packet);
            }
            let outcome = pipeline.egress(now_ns, packet, QueueMetadata::default(), &mut queue);
            match outcome {
                EgressOutcome::Transmit { port: CPU_PORT, frame, .. } => {
                    lines.push(format!("packet-in {}", hex(&frame)));
                }
                EgressOutcome::Transmit { port, frame, .. } => lines.push(frame_line(port, &frame)),
                _ => {}
            }
        }
        for digest in pipeline.take_digests() {
            if case.writes.iter().any(|write| matches!(write, Write::Digest(name) if *name == digest.name)) {
                lines.push(digest_line(&digest.name, &digest.fields));
            }
        }
    }
    let index = index(case);
    let control = pipeline.control();
    for counter in &index.p4info().counters {
        let name = &counter.preamble.as_ref().unwrap().name;
        let unit =
            counter.spec.as_ref().map_or(Unit::Unspecified, trimwire_p4runtime::config::CounterSpec::unit);
        for cell in 0..counter.size as u64 {
            let value = control.counter(name, cell).unwrap();
            lines.extend(counter_line(&format!("counter {name} {cell}"), unit, value));
        }
    }
    for (number, write) in case.writes.iter().enumerate() {
        if let Write::Entry(table, entry) = write
            && let Some(unit) = direct_unit(&index, index.table(table.as_str()).unwrap().id())
        {
            let owner = Owner::Entry { matches: &entry.matches, priority: entry.priority };
            let value = control.direct(table, owner).unwrap().counter.unwrap();
            lines.extend(counter_line(&format!("hits {table} {number}"), unit, value));
        }
    }
    lines.sort();
    lines
}

/// What BMv2 did on a case, recorded in `folder`; recorded now where that is asked for.
pub(crate) fn recorded(folder: &str, case: &Case) -> Vec<String> {
    let path = format!("{}/{folder}/{}.bmv2.txt", env!("CARGO_MANIFEST_DIR"), case.name);
    let fingerprint = format!("case {}", fingerprint(case));
    if recording_asked_for() {
        let lines = switch::bmv2(case).join("\n");
        let text = format!(
            "# What BMv2's simple_switch_grpc did; the tests say how to record it.\n{fingerprint}\n{lines}\n"
        );
        std::fs::write(&path, text).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut lines = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned);
    let recorded_from = lines.next();
    assert!(
        recorded_from == Some(fingerprint),
        "{path} was recorded from other entries or frames than the generator makes: record anew"
    );
    lines.collect()
}

/// Tells a case from every other: FNV-1a of all that both switches are given.
fn fingerprint(case: &Case) -> String {
    let text = format!("{:?} {:?} {:?}", case.writes, case.frames, case.packet_outs);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Fails with the first lines that only one of the two has.
pub(crate) fn assert_same(name: &str, ours: &[String], bmv2: &[String]) {
    let only = |left: &[String], right: &[String]| {
        let mut rest: Vec<&String> = right.iter().collect();
        let mut missing = Vec::new();
        for line in left {
            match rest.binary_search(&line) {
                Ok(at) => drop(rest.remove(at)),
                Err(_) => missing.push(line.clone()),
            }
        }
        missing
    };
    let (ours_only, bmv2_only) = (only(ours, bmv2), only(bmv2, ours));
    let show = |lines: &[String]| lines.iter().take(4).cloned().collect::<Vec<_>>().join("\n  ");
    assert!(
        ours_only.is_empty() && bmv2_only.is_empty(),
        "{name}: of {} lines {} are ours alone:\n  {}\nand {} BMv2's alone:\n  {}",
        bmv2.len(),
        ours_only.len(),
        show(&ours_only),
        bmv2_only.len(),
        show(&bmv2_only),
    );
}
