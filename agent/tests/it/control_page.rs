// SPDX-License-Identifier: Apache-2.0
//! The vectors of docs/reference/control-packets.md, which no code of this crate made.

use std::net::IpAddr;
use std::num::NonZeroU16;
use trimwire_agent::wire::trim_map::Detail;
use trimwire_agent::wire::{
    Abort, CONTROL_LEN_MAX, Control, Echo, Identity, MapSource, Path, Probe, Progress, Reason, Report, Stop,
    Wanted, Writer,
};
use trimwire_encoder::wire::{PREFIX_LEN, Prefix, StreamId};

const PAGE: &str = include_str!("../../../docs/reference/control-packets.md");
const MESSAGE: u32 = 0x4c02;
const IDENTITY: Identity = Identity { from: 0x0a0b_0c0d, to: 7 };

fn bytes_of(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

/// Kinds and bytes of the page's last table.
fn vectors() -> Vec<(String, Vec<u8>)> {
    let (_, table) = PAGE.split_once("<!-- vectors -->").unwrap();
    let cells = table.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let hex = cells.get(3)?.strip_prefix('`')?.strip_suffix('`')?;
        Some((cells[1].to_owned(), bytes_of(hex)))
    });
    cells.collect()
}

#[test]
fn control_packets_are_written_as_the_page_has_them() {
    let echo = Some(Echo { packet: 17, trimmed: true, hold_ns: 250_000 });
    let report = Report { echo, received: 90, trimmed: 12, marked: 4, senders: NonZeroU16::new(3) };
    let planes = |packet: u32| match packet {
        0..89 => 10,
        89..97 => 1,
        _ => 0,
    };
    let map = MapSource { planes: &planes, packets: 100, offset: 0, detail: Detail::Planes };
    let writer = Writer { stream: StreamId::new(5, 300).unwrap(), identity: IDENTITY, room: CONTROL_LEN_MAX };
    let progress = Progress {
        sequence: 6,
        report,
        missing: 3,
        wanted: Wanted::AllBut(5),
        expected: true,
        bound_holds: false,
        low: 40,
        map: None,
    };
    let probe = Probe {
        sequence: 6,
        packets: 100,
        shape: 0,
        planes: 9,
        want_map: true,
        finish: false,
        grace_ns: 2_000_000,
        map_offset: 0,
    };
    let stop = Stop { sequence: 6, report, missing: 3, agreed: 0, map: None };
    let path = Path { sequence: 3, length: 1472, mtu: 1500, answer: true, unheard: false };
    let addresses: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 1, 1].into()];
    let vectors = vectors();
    assert_eq!(vectors.len(), 9);
    for (kind, bytes) in &vectors {
        let written = match kind.as_str() {
            "PROBE" => writer.probe(MESSAGE, &probe),
            "ACK" => writer.progress(MESSAGE, false, &progress, None).0,
            "STATUS" => writer.progress(MESSAGE, true, &progress, Some(&map)).0,
            "STOP" => writer.stop(MESSAGE, &stop, None).0,
            "FINAL" => writer.agreed(MESSAGE, 2, &map).0,
            "FORWARD" => writer.forward(MESSAGE, 100, &map).0,
            "ABORT" => writer.abort(MESSAGE, Abort { reason: Reason::Lost, culprit: 12 }),
            "HELLO" => writer.hello(false, &[9217, 40_000], &addresses),
            "PATH" => writer.path(&path),
            other => panic!("{other}"),
        };
        assert_eq!(written, *bytes, "{kind}");
        let prefix = Prefix::parse(bytes).unwrap();
        assert_eq!(format!("{:?}", prefix.kind).to_uppercase(), *kind);
        let (identity, _) = Control::parse(prefix.kind, &bytes[PREFIX_LEN..]).unwrap();
        assert_eq!(identity, IDENTITY, "{kind}");
    }
}
