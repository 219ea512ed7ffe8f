// SPDX-License-Identifier: Apache-2.0
//! The cases: for every program, what is written to it and what it is sent.

use std::path::PathBuf;

use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_switch::engine::entity::{
    ActionCall, ActionSpec, Group, GroupMember, MeterConfig, Replica, value,
};

use super::entries::some_entries;
use crate::bmv2_support::random::{Bits, Random};
use crate::bmv2_support::{Case, PacketOut, Write, taken};

/// Frames of a case.
const FRAMES: u64 = 300;

fn files(name: &str) -> (PathBuf, PathBuf) {
    let folder = PathBuf::from(format!("{}/tests/programs/build/{name}", env!("CARGO_MANIFEST_DIR")));
    (folder.join(format!("{name}.json")), folder.join(format!("{name}.p4info.txtpb")))
}

fn index(name: &str) -> Index {
    let text = std::fs::read_to_string(files(name).1).unwrap();
    Index::new(&P4Info::from_text(&text).unwrap()).unwrap()
}

fn case(name: &'static str, writes: Vec<Write>, frames: Vec<(u16, Vec<u8>)>) -> Case {
    let (json, p4info) = files(name);
    let writes = taken(&json, writes);
    Case { name, json, p4info, writes, frames, packet_outs: Vec::new() }
}

/// Frames into port 0: each a header of numbered widths and a short payload.
fn frames(random: &mut Random, mut header: impl FnMut(&mut Random, u64) -> Bits) -> Vec<(u16, Vec<u8>)> {
    let frame = |number| {
        let mut frame = header(random, number).bytes();
        let payload = random.below(40) as usize;
        frame.extend(random.bytes(payload));
        frame.extend((number as u16).to_be_bytes());
        (0, frame)
    };
    (0..FRAMES).map(frame).collect()
}

fn call(action: &str, params: &[u64]) -> ActionCall {
    ActionCall { action: action.into(), params: params.iter().map(|&param| value(param.into())).collect() }
}

pub(crate) fn parsers() -> Case {
    let random = &mut Random(11);
    let members = [0x1234, 0x0005, 0xffff];
    let keys = [0x01_0002, 0x00_0000, 0xff_0102];
    let mut writes: Vec<Write> =
        members.iter().map(|&member| Write::ValueSet("P.tags", value(member))).collect();
    writes.extend(keys.iter().map(|&member| Write::ValueSet("P.keys", value(member))));
    let frame = |random: &mut Random, _| {
        let kind = *random.pick(&[0, 0, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7]);
        let tag = match random.below(4) {
            0 => members[random.below(3) as usize] as u64,
            1 => random.below(16),
            2 => 0x0100 | random.below(256),
            _ => random.below(0x1_0000),
        };
        let length = *random.pick(&[0, 1, 2, 3, 8, 16, 24, 32, 40, 64, 72, 72, 80, 200]);
        let mut bits = Bits::default().push(8, kind).push(8, length).push(16, tag);
        if random.below(3) == 0 {
            bits = bits.push(24, keys[random.below(3) as usize] as u64);
        }
        // Labels with few ends, lengths of varbits, lookaheads of small numbers.
        for _ in 0..random.below(30) {
            bits = match random.below(4) {
                0 => bits.push(8, random.below(5)),
                1 => bits.push(8, 0x80 | random.below(128)),
                2 => bits.push(8, 0),
                _ => bits.push(8, random.below(256)),
            };
        }
        bits
    };
    let mut frames = frames(random, frame);
    // Frames that end in the middle of a header.
    for (_, frame) in frames.iter_mut().step_by(5) {
        let length = random.below(frame.len() as u64) as usize;
        frame.truncate(length.max(1));
    }
    case("parsers", writes, frames)
}

pub(crate) fn unions() -> Case {
    let random = &mut Random(12);
    let item = |random: &mut Random, bits: Bits| match 1 + random.below(3) {
        1 => bits.push(8, 1).push(8, random.below(3)),
        2 => bits.push(8, 2).push(40, random.below(1 << 40)),
        _ => bits.push(8, 3).push(8, random.below(256)),
    };
    let frames = frames(random, |random, _| {
        let count = random.below(5);
        let mut bits = Bits::default().push(8, random.below(10)).push(8, count);
        match random.below(4) {
            0 => bits = bits.push(8, 1).push(8, random.below(256)),
            1 => bits = bits.push(8, 2).push(40, random.below(1 << 40)),
            2 => bits = bits.push(8, 3).push(16, random.below(1 << 16)),
            _ => bits = bits.push(8, 4),
        }
        (0..count).fold(bits, |bits, _| item(random, bits))
    });
    case("unions", Vec::new(), frames)
}

pub(crate) fn stacks() -> Case {
    let random = &mut Random(13);
    let frames = frames(random, |random, _| {
        let op = *random.pick(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16, 0xff]);
        let bits = Bits::default().push(8, op).push(8, random.below(4)).push(8, random.below(256));
        let count = 1 + random.below(5);
        (1..=count)
            .fold(bits, |bits, item| bits.push(1, u64::from(item == count)).numbers(random, &[7, 8, 200]))
    });
    case("stacks", Vec::new(), frames)
}

pub(crate) fn arithmetic() -> Case {
    let random = &mut Random(14);
    let frames = frames(random, |random, number| {
        let widths = [8, 24, 64, 72, 128, 136, 256, 520];
        let which = number % 8;
        let by = *random.pick(&[0, 1, 3, 7, 8, 31, 63, 64, 65, 127, 128, 129, 200, 255]);
        let width = widths[which as usize];
        let bits = Bits::default().push(8, which).push(8, by).numbers(random, &[width, width]);
        // Room for 26 numbers and two bytes of flags.
        (0..26 * width / 8 + 2).fold(bits, |bits, _| bits.push(8, 0))
    });
    case("arithmetic", Vec::new(), frames)
}

pub(crate) fn tables() -> Case {
    let random = &mut Random(15);
    let mut writes = some_entries(random, &index("tables"), 16, |_, _| panic!("no profiles"));
    let ranged: Vec<Write> = writes
        .iter()
        .filter_map(|write| match write {
            Write::Entry(table, entry) if table == "I.ranged_table" => {
                let burst = entry.priority.cast_unsigned().into();
                // Nothing is added to what the bursts hold, however long the frames take.
                let config = MeterConfig { cir: 0, cburst: burst, pir: 0, pburst: 2 * burst };
                Some(Write::DirectMeter(table.clone(), entry.matches.clone(), entry.priority, config))
            }
            _ => None,
        })
        .collect();
    writes.extend(ranged);
    writes.push(Write::Default("I.path_table".into(), ActionSpec::Direct(call("I.right", &[0x44]))));
    writes.push(Write::Default("I.lpm_table".into(), ActionSpec::Direct(call("I.lpm_action", &[0x66]))));
    let frames = frames(random, |random, _| Bits::default().numbers(random, &[8, 16, 32, 128, 200, 8, 1, 7]));
    case("tables", writes, frames)
}

pub(crate) fn selectors() -> Case {
    let random = &mut Random(16);
    let mut writes = Vec::new();
    for profile in ["I.by_crc16", "I.by_crc32", "I.by_identity"] {
        // Out of order: BMv2's choice depends on its handles, not on ids.
        for id in [5, 2, 9, 1, 7, 3] {
            let action = match id % 2 {
                0 => call("I.mark", &[u64::from(id), 0x30]),
                _ => call("I.pick", &[u64::from(id)]),
            };
            writes.push(Write::Member(profile, id, action));
        }
        for (id, members) in
            [(1, vec![(5, 1), (2, 2), (9, 3)]), (2, vec![(1, 1)]), (3, vec![(7, 4), (3, 4), (1, 4)])]
        {
            let members = members.into_iter().map(|(id, weight)| GroupMember { id, weight }).collect();
            writes.push(Write::Group(profile, Group { id, max_size: 0, members }));
        }
    }
    for id in 1..=4 {
        writes.push(Write::Member("I.plain", id, call("I.set_profile", &[u64::from(id) + 0x20])));
    }
    writes.extend(some_entries(random, &index("selectors"), 12, |random, table| {
        if table == "I.plain_table" {
            ActionSpec::Member(1 + random.below(4) as u32)
        } else if random.below(3) == 0 {
            ActionSpec::Member(*random.pick(&[5, 2, 9]))
        } else {
            ActionSpec::Group(1 + random.below(3) as u32)
        }
    }));
    let frames =
        frames(random, |random, _| Bits::default().push(8, random.below(3)).numbers(random, &[8, 16, 32]));
    case("selectors", writes, frames)
}

pub(crate) fn stateful() -> Case {
    let random = &mut Random(17);
    let mut writes = Vec::new();
    for index in 0..4 {
        let packets = MeterConfig { cir: 0, cburst: 2 + index, pir: 0, pburst: 4 + index };
        writes.push(Write::Meter("I.packet_meter", index, packets));
        let bytes = MeterConfig { cir: 0, cburst: 300 * index, pir: 0, pburst: 500 + 300 * index };
        writes.push(Write::Meter("I.byte_meter", index, bytes));
    }
    // The last of each is out of service.
    writes.truncate(6);
    let frames = frames(random, |random, _| {
        let bits = Bits::default().push(8, random.below(10)).push(8, random.below(5));
        bits.push(32, random.below(9)).numbers(random, &[16, 200])
    });
    case("stateful", writes, frames)
}

pub(crate) fn hashes() -> Case {
    let random = &mut Random(18);
    let frames = frames(random, |random, _| {
        let bits = Bits::default().push(8, random.below(2)).numbers(random, &[4, 12, 32, 200, 16]);
        bits.push(32, *random.pick(&[0, 1, 2, 10, 255, 65_536, 0x7fff_ffff])).push(8, random.below(8))
    });
    case("hashes", Vec::new(), frames)
}

pub(crate) fn checksums() -> Case {
    let random = &mut Random(19);
    let frames = frames(random, |random, _| {
        let (op, a, b, c) = (random.below(10), random.below(3), random.below(1 << 16), random.below(1 << 32));
        let words = [a << 8 | b >> 8, (b & 0xff) << 8 | c >> 24, c >> 8 & 0xffff, (c & 0xff) << 8 | op];
        let sum: u64 = words.iter().sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let right = !((sum & 0xffff) + (sum >> 16)) & 0xffff;
        let checksum = if random.below(2) == 0 { right } else { random.below(1 << 16) };
        let bits = Bits::default().push(8, op).push(8, a).push(16, b).push(32, c).push(16, checksum);
        bits.numbers(random, &[16]).push(8, random.below(4))
    });
    case("checksums", Vec::new(), frames)
}

pub(crate) fn replication() -> Case {
    let random = &mut Random(20);
    let replicas = |copies: &[(u16, u16)]| -> Vec<Replica> {
        copies.iter().map(|&(instance, port)| Replica { instance, port }).collect()
    };
    let writes = vec![
        Write::Clone(5, replicas(&[(0, 2)])),
        Write::Clone(6, replicas(&[(1, 3), (2, 1), (7, 3)])),
        Write::Multicast(1, replicas(&[(1, 1), (2, 2), (3, 3)])),
        Write::Multicast(2, replicas(&[(5, 2), (4, 2), (2, 3)])),
        Write::Multicast(3, Vec::new()),
    ];
    let frames = frames(random, |random, _| {
        let op = *random.pick(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 25, 26]);
        let again = if op == 26 { random.below(16) } else { random.below(64) };
        Bits::default().push(8, op).push(8, again).push(16, random.below(5)).numbers(random, &[32])
    });
    case("replication", writes, frames)
}

pub(crate) fn controller() -> Case {
    let random = &mut Random(21);
    let writes = vec![Write::Digest("learned_t"), Write::Digest("odd_t")];
    let frames = frames(random, |random, number| {
        // Every digest differs from the others: BMv2 drops those it has sent and nobody has
        // acknowledged.
        let bits = Bits::default().push(8, random.below(5)).push(8, random.below(256));
        bits.push(48, number << 20 | random.below(256)).push(16, number)
    });
    let mut case = case("controller", writes, frames);
    case.packet_outs = (0..20)
        .map(|number| PacketOut {
            metadata: vec![(9, 1 + number % 3), (7, 0)],
            payload: random.bytes(14 + number as usize),
        })
        .collect();
    case
}

pub(crate) fn flow() -> Case {
    let random = &mut Random(22);
    let writes = some_entries(random, &index("flow"), 12, |_, _| panic!("no profiles"));
    let frames = frames(random, |random, _| {
        let bits = Bits::default().push(8, random.below(19)).numbers(random, &[8]);
        let value = *random.pick(&[0, 1, 3, 9, 500, 990, 1000, 0xffff_fffe]);
        bits.push(32, value).numbers(random, &[8, 8])
    });
    case("flow", writes, frames)
}
