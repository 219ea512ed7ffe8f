//! Fuzz target of sparse messages: packets that were tampered with behind a right check. `cargo test` runs it for a bounded number of inputs.

use bolero::{TypeGenerator, check};
use trimwire_encoder::sparse::{
    Entry, SPARSE_HEAD_LEN, SparseEncoder, SparseHeader, SparseLayout, SparseMessage, SparseReceiver,
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

#[test]
fn tampered_packets_are_refused_whole_or_decode_within_the_message() {
    let messages = [message(60, 4), message(N, 0), message(200, 23)];
    check!().with_iterations(20_000).with_type::<(u8, Vec<Mishap>)>().for_each(|(which, mishaps)| {
        let message = &messages[usize::from(*which) % messages.len()];
        let mut receiver = SparseReceiver::new(layout(), envelope());
        for mishap in mishaps {
            let mut packet = message.packet(usize::from(mishap.packet) % message.packets()).to_vec();
            for (at, byte) in mishap.damage.iter().take(3) {
                let at = usize::from(*at) % if at % 2 == 0 { packet.len() } else { SPARSE_HEAD_LEN + 2 };
                packet[at] = *byte;
            }
            packet.truncate(packet.len().saturating_sub(usize::from(mishap.cut) / 3));
            packet.extend(&mishap.more);
            checked(&mut packet);
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

#[test]
fn any_bytes_are_heads_or_an_error() {
    check!().with_iterations(20_000).with_type::<Vec<u8>>().for_each(|bytes| {
        let mut bytes = bytes.clone();
        if bytes.len() > 1 {
            (bytes[0], bytes[1]) = (0x31, bytes[1] & 0x1f | 0xc0);
        }
        checked(&mut bytes);
        if let Ok(header) = SparseHeader::parse(&bytes) {
            assert_eq!(header.to_bytes()[..], bytes[..SPARSE_HEAD_LEN]);
        }
    });
}
