//! The packet format: golden bytes, and arbitrary ones.

use proptest::prelude::*;
use trimwire_encoder::packet::{Header, Kind, PacketError, PacketView, Prefix, StreamId, f32bits};
use trimwire_encoder::{
    Codec, DEFAULT_COORDINATES_PER_PACKET, Decoder, Decoding, Encoder, Envelope, Layout, Message, PLANES,
    RotationKey,
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
        index: 0xabcde,
        coordinates: 448,
        sigma: 1.5,
        kappa: 203,
        peak: 66,
    }
}

#[test]
fn the_header_is_these_eighteen_bytes() {
    // By hand from docs/wire-format.md: 1.5 is 0x3fc00000; job 42 << 2 | rank 0x155 >> 8 = 0xa9; 448 / 32 = 14.
    let golden = [
        0x21, 0x1b, 0xa9, 0x55, 0x01, 0x02, 0x03, 0x04, 0x9a, 0xbc, 0xde, 0x0e, 0x3f, 0xc0, 0x00, 0x00, 203,
        66,
    ];
    assert_eq!(header().to_bytes(), golden);
    assert_eq!(Header::parse(&golden), Ok(header()));
}

#[test]
fn what_is_not_a_packet_is_named() {
    let good = header().to_bytes();
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        PacketView::parse(&bytes).unwrap_err()
    };
    assert_eq!(PacketView::parse(&good[..17]), Err(PacketError::Short { got: 17, need: 18 }));
    assert_eq!(PacketView::parse(&[]), Err(PacketError::Short { got: 0, need: 8 }));
    assert_eq!(with(0, 0x11), PacketError::Version(1));
    assert_eq!(with(0, 0x27), PacketError::Kind(7));
    assert_eq!(with(0, 0x22), PacketError::NotData(Kind::Ack));
    assert_eq!(with(1, 0xdb), PacketError::Codec(6));
    assert_eq!(with(8, 0xaa), PacketError::FirstPlane { plane: 10, codec: Codec::Rht });
    assert_eq!(with(8, 0xaa).to_string(), "first plane 10 of codec rht, which has 10");
    assert_eq!(with(11, 0), PacketError::Empty);
    assert_eq!(with(12, 0xbf).to_string(), "σ = -1.5 is not a magnitude");
    // Of all NaNs only the one that marks rows which are not finite is understood.
    let mut marked = good;
    marked[12] = 0x7f;
    assert!(PacketView::parse(&marked).unwrap().header().is_not_finite());
    marked[15] = 1;
    assert_eq!(PacketView::parse(&marked), Err(PacketError::Sigma(f32bits(0x7fc0_0001))));
}

proptest! {
    #[test]
    fn any_header_survives_the_wire(
        important: bool, layer_class in 0u8..8, last: bool, job in 0u8..64, rank in 0u16..1024, message: u32,
        first_plane in 0..PLANES, index in 0u32..1 << 20, blocks in 1usize..256, sigma in 0.0f32..1e30, kappa: u8, peak: u8,
    ) {
        let prefix = Prefix {
            kind: Kind::Data, codec: 0, important, layer_class, last, stream: StreamId::new(job, rank).unwrap(), message,
        };
        let header = Header { prefix, first_plane, index, coordinates: blocks * 32, sigma, kappa, peak };
        prop_assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
    }

    #[test]
    fn hostile_bytes_are_refused_or_decoded_but_never_panic(
        mut packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20), shape: bool,
    ) {
        let layout = Layout::new(2_000, 352).unwrap();
        let mut decoder = Decoder::new(layout, RotationKey { job_seed: 0, message: 0, rank: 0 }, Decoding::Unbiased);
        for packet in &mut packets {
            // Half of the runs get past the first checks.
            if shape && packet.len() >= 12 {
                packet[0] = 0x21;
                packet[1] &= 0x1f;
                packet[8] &= 0xf0;
                packet[9] = 0;
                packet[10] %= 7;
                packet[11] = [10, 11][usize::from(packet[11] % 2)];
            }
            let _ = decoder.receive(packet);
        }
        let mut out = vec![0.0; 2_000];
        decoder.finish_into(&mut out);
        prop_assert!(decoder.stats().full + decoder.stats().cut + decoder.stats().missing == layout.packets());
    }

    #[test]
    fn any_cut_of_any_packet_decodes(
        length in 1usize..3_000, seed: u32, cuts in prop::collection::vec(18usize..1_500, 1..10),
    ) {
        let gradient: Vec<f32> = (0..length as u32).map(|i| (i.wrapping_mul(seed | 1) >> 8) as f32 / 1e6 - 8.0).collect();
        let layout = Layout::new(length, DEFAULT_COORDINATES_PER_PACKET).unwrap();
        let key = RotationKey { job_seed: 5, message: seed, rank: 1 };
        let envelope = Envelope { stream: StreamId::new(0, 1).unwrap(), message: seed, layer_class: 0 };
        let mut message = Message::default();
        Encoder::new(layout, key).encode(&gradient, envelope, PLANES, &mut message).unwrap();
        let mut decoder = Decoder::new(layout, key, Decoding::Unbiased);
        for index in 0..message.packets() {
            let packet = message.packet(index);
            let cut = &packet[..cuts[index % cuts.len()].min(packet.len())];
            let receipt = decoder.receive(cut).unwrap();
            prop_assert_eq!(receipt.planes_now, decoder.coverage(index));
            prop_assert_eq!(receipt.planes_now == PLANES, cut.len() == packet.len());
        }
        let mut out = vec![f32::NAN; length];
        decoder.finish_into(&mut out);
        prop_assert!(out.iter().all(|v| v.is_finite()));
    }
}
