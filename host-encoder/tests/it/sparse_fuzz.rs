// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets of sparse messages: packets that were tampered with behind a right check. `cargo test` runs them for a bounded number of inputs, after those in
//! `tests/it/__fuzz__`.

use crate::corpus;
use crate::corpus::{Reached, Target, generated, name, variant};
use bolero::{TypeGenerator, check};
use std::sync::LazyLock;
use trimwire_encoder::sparse::{
    Entry, SPARSE_HEAD_LEN, SparseEncoder, SparseHeader, SparseLayout, SparseMessage, SparsePacketError,
    SparseReceiver,
};
use trimwire_encoder::{Envelope, StreamId, Tensor};

const N: usize = 400;

fn envelope() -> Envelope {
    Envelope { stream: StreamId::new(1, 5).unwrap(), message: 4 }
}

fn layout() -> SparseLayout {
    SparseLayout::of_tensors(
        &[(250, 2), (N - 250, 5)].map(|(coordinates, layer_class)| Tensor { coordinates, layer_class }),
    )
    .unwrap()
}

fn message(k: usize, fraction_bits: u8) -> SparseMessage {
    let gradient: Vec<f32> =
        (0..N as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 8) as f32 / 1e7 - 0.8).collect();
    let encoder = SparseEncoder::new(layout()).with_packet_bytes(90).unwrap();
    let mut message = SparseMessage::default();
    encoder
        .with_fraction_bits(fraction_bits)
        .unwrap()
        .encode_top(&gradient, k, envelope(), &mut message)
        .unwrap();
    message
}

/// The check that the wire format's page describes, bit by bit.
fn checked(packet: &mut [u8]) {
    if packet.len() < 20 {
        return;
    }
    let mut register = 0xffffu16;
    for byte in &packet[..18] {
        register ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            register = register << 1 ^ if register & 0x8000 == 0 { 0 } else { 0x5935 };
        }
    }
    packet[18..20].copy_from_slice(&register.to_be_bytes());
}

#[derive(Debug, TypeGenerator)]
struct Mishap {
    packet: u8,
    cut: u8,
    /// Bytes that become others; places are taken modulo the packet's length, the first ones more often.
    damage: Vec<(u8, u8)>,
    /// Bytes behind its end.
    more: Vec<u8>,
}

static MESSAGES: LazyLock<[SparseMessage; 3]> =
    LazyLock::new(|| [message(60, 4), message(N, 0), message(200, 23)]);

impl Mishap {
    /// What arrives of a message.
    fn packet(&self, message: &SparseMessage) -> Vec<u8> {
        let mut packet = message.packet(usize::from(self.packet) % message.packets()).to_vec();
        for (at, byte) in self.damage.iter().take(3) {
            let at = usize::from(*at) % if at % 2 == 0 { packet.len() } else { SPARSE_HEAD_LEN + 2 };
            packet[at] = *byte;
        }
        packet.truncate(packet.len().saturating_sub(usize::from(self.cut) / 3));
        packet.extend(&self.more);
        checked(&mut packet);
        packet
    }
}

#[test]
fn tampered_packets_are_refused_whole_or_decode_within_the_message() {
    check!().with_iterations(20_000).with_type::<(u8, Vec<Mishap>)>().for_each(|(which, mishaps)| {
        let message = &MESSAGES[usize::from(*which) % MESSAGES.len()];
        let mut receiver = SparseReceiver::new(layout(), envelope());
        for mishap in mishaps {
            let packet = mishap.packet(message);
            let before: Vec<Entry> = receiver.entries().collect();
            match receiver.receive(&packet) {
                Ok(receipt) => {
                    let header = SparseHeader::parse(&packet).expect("what was received parses");
                    let bits = 8 * (packet.len() - SPARSE_HEAD_LEN);
                    assert!(receipt.entries_now <= header.entries);
                    assert!(
                        receipt.duplicate || receipt.entries_now * (usize::from(header.order) + 2) <= bits
                    );
                }
                Err(_) => assert!(receiver.entries().eq(before)),
            }
        }
        let mut seen = [false; N];
        for entry in receiver.entries() {
            assert!(entry.value.is_finite() && entry.value != 0.0);
            assert!(!std::mem::replace(&mut seen[entry.index as usize], true), "{} came twice", entry.index);
        }
        let mut out = [0.0f32; N];
        receiver.decode_into(&mut out).unwrap();
        let nan = out.iter().filter(|x| x.is_nan()).count();
        assert!(nan == 0 || nan == N && receiver.is_complete());
        let stats = receiver.stats();
        assert!(
            stats.missing.is_none_or(|missing| Some(missing + stats.full + stats.cut) == receiver.packets())
        );
    });
}

/// Bytes that begin like a sparse packet's, with a right check.
fn head(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() > 1 {
        (bytes[0], bytes[1]) = (0x41, bytes[1] & 0x1f | 0xc0);
    }
    checked(&mut bytes);
    bytes
}

#[test]
fn any_bytes_are_heads_or_an_error() {
    check!().with_iterations(20_000).with_type::<Vec<u8>>().for_each(|bytes| {
        let bytes = head(bytes);
        if let Ok(header) = SparseHeader::parse(&bytes) {
            assert_eq!(header.to_bytes()[..], bytes[..SPARSE_HEAD_LEN]);
        }
    });
}

/// The kind of an error, and of that which it wraps.
fn kind(error: &SparsePacketError) -> String {
    match error {
        SparsePacketError::Packet(error) => variant(error),
        error => variant(error),
    }
}

fn targets() -> [Target; 2] {
    [
        Target {
            name: name(tampered_packets_are_refused_whole_or_decode_within_the_message),
            reach: what_mishaps_bring,
            first: Vec::new(),
            tries: 200_000,
            outcomes: &[
                "Short",
                "Version",
                "Kind",
                "NotData",
                "OtherMessage",
                "LayerClass",
                "Index",
                "Empty",
                "Contradiction",
                "Dense",
                "FirstPlane",
                "Field",
                "Sigma",
                "Entries",
                "Range",
                "Code",
                "Twice",
                "Packets",
                "Overlap",
                "entries",
                "duplicate",
                "complete",
                "no entry",
            ],
        },
        Target {
            name: name(any_bytes_are_heads_or_an_error),
            reach: |bytes| {
                let bytes: Vec<u8> = generated(bytes);
                let outcome = SparseHeader::parse(&head(&bytes));
                [outcome.map_or_else(|error| kind(&error), |_| "head".to_owned())].into()
            },
            first: Vec::new(),
            tries: 50_000,
            outcomes: &["Short", "FirstPlane", "Index", "Empty", "Field", "Sigma", "head"],
        },
    ]
}

/// What becomes of each packet of an input, by message and by what happened to the packet.
fn what_mishaps_bring(bytes: &[u8]) -> Reached {
    let (which, mishaps): (u8, Vec<Mishap>) = generated(bytes);
    let which = usize::from(which) % MESSAGES.len();
    let mut receiver = SparseReceiver::new(layout(), envelope());
    let mut reached = Reached::new();
    for mishap in &mishaps {
        let held = receiver.entries().count();
        let outcome = match receiver.receive(&mishap.packet(&MESSAGES[which])) {
            Err(error) => kind(&error),
            Ok(receipt) if receipt.duplicate => "duplicate".to_owned(),
            Ok(_) if receiver.is_complete() => "complete".to_owned(),
            Ok(_) if receiver.entries().count() > held => "entries".to_owned(),
            Ok(_) => "no entry".to_owned(),
        };
        let damage = format!("{} bytes wrong", mishap.damage.len().min(3));
        let cut = if mishap.cut < 3 { "whole" } else { "cut" };
        let more = if mishap.more.is_empty() { "nothing behind" } else { "more behind" };
        for circumstance in [&format!("message {which}"), &damage, cut, more] {
            reached.insert(format!("{outcome} ({circumstance})"));
        }
    }
    reached
}

#[test]
fn the_corpora_reach_what_they_are_there_for() {
    corpus::check(&targets());
}

#[test]
#[ignore = "writes the corpora anew"]
fn the_corpora_are_made_anew() {
    corpus::make(&targets());
    corpus::check(&targets());
}
