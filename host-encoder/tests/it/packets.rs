// SPDX-License-Identifier: Apache-2.0
//! The packet format: golden bytes, and arbitrary ones.

use proptest::prelude::*;
use trimwire_encoder::{
    Codec, DEFAULT_COORDINATES_PER_PACKET, Decoder, Decoding, Encoder, Envelope, HEADER_LEN, Header, Job,
    Kind, Layout, Message, PLANES, PacketError, PacketView, Prefix, StreamId,
};

fn header() -> Header {
    Header {
        prefix: Prefix {
            kind: Kind::Data,
            codec: 0,
            important: true,
            layer_class: 5,
            last: true,
            stream: StreamId::new(0x2a, 0x155).unwrap(),
            message: 0x0102_0304,
        },
        first_plane: 9,
        index: 0x00ab_cdef,
        coordinates: 448,
        twice: true,
        sigma: 1.5,
        kappa: 203,
        peak: 66,
        zeros: 5,
    }
}

#[test]
fn the_header_is_these_twenty_bytes() {
    // By hand from docs/reference/wire-format.md: 1.5 is 0x3fc00000, and the row is rotated twice;
    // job 42 << 2 | rank 0x155 >> 8 = 0xa9; 448 / 32 = 14, blocks 0 and 2 are zero.
    let golden = [
        0x51, 0x1b, 0xa9, 0x55, 0x01, 0x02, 0x03, 0x04, 0xab, 0xcd, 0xef, 0x9b, 0xfc, 0x00, 0x40, 0x05, 203,
        66,
    ];
    let bytes = header().to_bytes();
    assert_eq!(bytes[..18], golden);
    assert_eq!(bytes[18..], crc_16_m17(&golden).to_be_bytes());
    assert_eq!(Header::parse(&bytes), Ok(header()));
}

/// Bit by bit, from its definition.
fn crc_16_m17(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0xffff, |register, byte| {
        (0..8).fold(register ^ u16::from(*byte) << 8, |register, _| {
            register << 1 ^ if register & 0x8000 == 0 { 0 } else { 0x5935 }
        })
    })
}

#[test]
fn what_is_not_a_packet_is_named() {
    let good = header().to_bytes();
    let checked = |mut bytes: [u8; HEADER_LEN]| {
        let check = crc_16_m17(&bytes[..18]);
        bytes[18..].copy_from_slice(&check.to_be_bytes());
        PacketView::parse(&bytes).map(|view| *view.header())
    };
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        checked(bytes).unwrap_err()
    };
    let blocks = |blocks: u16| {
        let mut bytes = good;
        bytes[14..16].copy_from_slice(&blocks.to_be_bytes());
        checked(bytes).map(|header| (header.coordinates, header.zeros))
    };
    assert_eq!(PacketView::parse(&good[..19]), Err(PacketError::Short { got: 19, need: 20 }));
    assert_eq!(PacketView::parse(&[]), Err(PacketError::Short { got: 0, need: 8 }));
    assert_eq!(with(0, 0x41), PacketError::Version(4));
    assert_eq!(with(0, 0x41).to_string(), "unknown version 4 of the wire format (this side speaks 5)");
    assert_eq!(with(0, 0x5d), PacketError::Kind(13));
    assert_eq!(with(0, 0x52), PacketError::NotData(Kind::Ack));
    assert_eq!(with(1, 0xfb), PacketError::Codec(7));
    assert_eq!(with(11, 0xab), PacketError::FirstPlane { plane: 10, codec: Codec::Rht });
    assert_eq!(with(11, 0xab).to_string(), "first plane 10 of codec rht, which has 10");
    for (field, expected) in
        [(2, (32, 0)), (7, (64, 3)), (0x7fff, (448, 0x3fff)), (0x800f, (480, 0)), (0x80ff, (8_160, 0))]
    {
        assert_eq!(blocks(field), Ok(expected), "{field:#x}");
    }
    for none in [0, 1, 0x8000, 0x8001, 0x800e, 0x8100, 0xc00f, 0xffff] {
        assert_eq!(blocks(none), Err(PacketError::Blocks(none)));
    }
    assert_eq!(PacketError::Blocks(1).to_string(), "blocks 0x0001 name no number of coordinates");
    let mut raw = good;
    (raw[1], raw[11]) = (0xbb, 0x0b);
    assert_eq!(checked(raw), Err(PacketError::Twice(Codec::Raw)));
    raw[11] = 0x03;
    assert_eq!(checked(raw), Err(PacketError::Zeros(Codec::Raw)));
    let mut damaged = good;
    damaged[12] ^= 0x04;
    let error = PacketView::parse(&damaged).unwrap_err();
    assert!(matches!(error, PacketError::Check { .. }), "a σ of 1 instead of 1.5 would spoil a row");
    assert!(error.to_string().contains("it was damaged"), "{error}");
    // Of all NaNs only the one that marks rows which are not finite is understood.
    let mut marked = good;
    (marked[11], marked[15]) = (0x97, 0);
    assert!(checked(marked).unwrap().is_not_finite());
    for (at, byte) in [(13, 1), (11, 0x9f), (12, 0xf8)] {
        let mut other = marked;
        other[at] = byte;
        assert!(matches!(checked(other), Err(PacketError::Sigma(_))), "byte {at}");
    }
    marked[15] = 1;
    assert_eq!(checked(marked), Err(PacketError::Zeros(Codec::Rht)));
}

proptest! {
    #[test]
    fn any_header_survives_the_wire(
        important: bool, layer_class in 0u8..8, last: bool, job in 0u8..64, rank in 0u16..1024, message: u32,
        first_plane in 0..PLANES, index in 0u32..1 << 24, blocks in 1usize..256, twice: bool, sigma in 0u32..0x7f800, kappa: u8, peak: u8,
        zeros: u16,
    ) {
        let prefix = Prefix {
            kind: Kind::Data, codec: 0, important, layer_class, last, stream: StreamId::new(job, rank).unwrap(), message,
        };
        let sigma = f32::from_bits(sigma << 12);
        let zeros = if blocks <= 14 { zeros & ((1 << blocks) - 1) } else { 0 };
        let header = Header { prefix, first_plane, index, coordinates: blocks * 32, twice, sigma, kappa, peak, zeros };
        prop_assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
    }

    #[test]
    fn hostile_bytes_are_refused_or_decoded_but_never_panic(
        mut packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20), shape: bool,
    ) {
        let layout = Layout::new(2_000, 352).unwrap();
        let envelope = Envelope { stream: StreamId::new(0, 0).unwrap(), message: 0 };
        let mut decoder = Decoder::new(layout.clone(), Job::new(0), envelope, Decoding::Unbiased);
        for packet in &mut packets {
            // Half of the runs get past the first checks.
            if shape && packet.len() >= HEADER_LEN {
                packet[..8].copy_from_slice(&[0x51, 0, 0, 0, 0, 0, 0, 0]);
                packet[8] = 0;
                packet[9] = 0;
                packet[10] %= 7;
                let blocks = 1 << (layout.packet_range(packet[10].into()).len() / 32);
                let zeros = u16::from_be_bytes([packet[14], packet[15]]) & (blocks - 1);
                packet[14..16].copy_from_slice(&(blocks | zeros).to_be_bytes());
                let check = crc_16_m17(&packet[..18]);
                packet[18..20].copy_from_slice(&check.to_be_bytes());
            }
            let _ = decoder.receive(packet);
        }
        let mut out = vec![0.0; 2_000];
        decoder.decode_into(&mut out).unwrap();
        prop_assert!(decoder.stats().full + decoder.stats().trimmed + decoder.stats().missing == layout.packets());
    }

    #[test]
    fn any_trim_of_any_packet_decodes(
        length in 1usize..3_000, seed: u32, lengths in prop::collection::vec(HEADER_LEN..1_500, 1..10),
    ) {
        let gradient: Vec<f32> = (0..length as u32).map(|i| (i.wrapping_mul(seed | 1) >> 8) as f32 / 1e6 - 8.0).collect();
        let layout = Layout::new(length, DEFAULT_COORDINATES_PER_PACKET).unwrap();
        let envelope = Envelope { stream: StreamId::new(0, 1).unwrap(), message: seed };
        let mut message = Message::default();
        Encoder::new(layout.clone(), Job::new(5)).encode(&gradient, envelope, PLANES, &mut message).unwrap();
        let mut decoder = Decoder::new(layout, Job::new(5), envelope, Decoding::Unbiased);
        for index in 0..message.packets() {
            let packet = message.packet(index);
            let held = &packet[..lengths[index % lengths.len()].min(packet.len())];
            let receipt = decoder.receive(held).unwrap();
            prop_assert_eq!(receipt.planes_now, decoder.coverage(index));
            prop_assert_eq!(receipt.planes_now == PLANES, held.len() == packet.len());
        }
        let mut out = vec![f32::NAN; length];
        decoder.decode_into(&mut out).unwrap();
        prop_assert!(out.iter().all(|v| v.is_finite()));
    }
}
