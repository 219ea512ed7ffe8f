// SPDX-License-Identifier: Apache-2.0
//! Rows that are sent on as they came.

use proptest::prelude::*;
use trimwire_encoder::{
    Codec, Decoding, Encoder, Envelope, Importance, Isa, Job, Layout, RowChoice, RowReceiver, SealKey,
    Sealer, StreamId,
};

fn envelope(rank: u16, message: u32) -> Envelope {
    Envelope { stream: StreamId::new(1, rank).expect("fits"), message }
}

fn receive(
    receiver: &mut RowReceiver,
    layout: &Layout,
    row: usize,
    planes: u8,
    sealed: bool,
    packets: &[u8],
) {
    let mut rest = packets;
    for (_, place) in layout.row_places(row) {
        let (packet, tail) = rest.split_at(Codec::Rht.packet_len(planes, place.len(), sealed));
        receiver.receive(packet).expect("of this message");
        rest = tail;
    }
}

fn values(length: usize, seed: u32, odd: u8) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state as f32 / u32::MAX as f32 - 0.5) * 3e-3
    };
    (0..length)
        .map(|at| match odd {
            0 if at == 7 => f32::NAN,
            1 if at != 9 => 0.0,
            2 => 0.0,
            _ => next(),
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Its packets are those that the original sender would have written under the new name with
    /// the old keys, and decode to the same bits.
    #[test]
    fn a_row_that_is_sent_on_is_the_row_that_came(
        length in 1_usize..5_000, blocks in 1_usize..40, log2 in 5_u8..13, planes in 1_u8..=10, seed: u32, odd in 0_u8..8, sealed: bool,
        importance in prop::sample::select(vec![Importance::Always, Importance::Never]),
    ) {
        let layout = Layout::new(length, 32 * blocks).and_then(|layout| layout.with_row_log2(log2)).expect("valid");
        let (job, from, to) = (Job::new(5), envelope(3, 77), envelope(9, 78));
        let sealer = |incarnation| sealed.then(|| Sealer::new(&SealKey::from_bytes(&[7; 16]).expect("a key"), incarnation));
        let encoder = |incarnation| {
            let encoder = Encoder::new(layout.clone(), job);
            match sealer(incarnation) { Some(sealer) => encoder.sealed(sealer), None => encoder }
        };
        let receiver = |row, envelope, incarnation| {
            let receiver = RowReceiver::new(&layout, row, job, envelope, Decoding::Unbiased).with_planes(planes);
            match sealer(incarnation) { Some(sealer) => receiver.sealed(sealer), None => receiver }
        };
        let values = values(length, seed, odd);
        let choice = RowChoice { planes, importance };
        for row in 0..layout.rows() {
            let values = &values[layout.row_coordinates(row)];
            let mut packets = vec![0; encoder(1).row_len(row, planes)];
            let encoded = encoder(1).encode_row(row, values, from, choice, &mut packets).expect("fits");
            let mut expected = vec![0; packets.len()];
            encoder(2).with_origin(from).encode_row(row, values, to, choice, &mut expected).expect("fits");
            let mut decoded = vec![0.0_f32; values.len()];
            for isa in Isa::available() {
                let mut first = receiver(row, from, 1).with_isa(isa);
                receive(&mut first, &layout, row, planes, sealed, &packets);
                first.decode_into(&mut decoded).expect("of the row's length");
                let mut passed = vec![0xa5; packets.len()];
                let again = first.repack(to, sealer(2).as_ref(), &mut passed).expect("complete");
                prop_assert_eq!(&passed, &expected);
                prop_assert_eq!((again.planes, again.important, again.twice), (encoded.planes, encoded.important, encoded.twice));
                prop_assert_eq!(again.figure.to_bits() == encoded.figure.to_bits() || again.figure.is_nan() && encoded.figure.is_nan(), true);
                let mut second = receiver(row, to, 2).with_origin(from);
                receive(&mut second, &layout, row, planes, sealed, &passed);
                let mut twice = vec![0.0_f32; values.len()];
                second.decode_into(&mut twice).expect("of the row's length");
                prop_assert!(twice.iter().zip(&decoded).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
        }
    }
}

#[test]
fn what_is_damaged_or_of_another_length_is_not_sent_on_as_it_came() {
    let layout = Layout::new(4_096, 448).expect("valid");
    let (job, from, to) = (Job::new(5), envelope(3, 77), envelope(9, 78));
    let encoder = Encoder::new(layout.clone(), job);
    let values = values(4_096, 1, 9);
    let mut packets = vec![0; encoder.row_len(0, 10)];
    encoder.encode_row(0, &values, from, RowChoice::whole(Codec::Rht), &mut packets).expect("fits");
    let mut out = vec![0; packets.len()];
    let mut partial = RowReceiver::new(&layout, 0, job, from, Decoding::Unbiased);
    assert_eq!(partial.repack(to, None, &mut out), None, "nothing has arrived");
    let first = layout.row_places(0).next().expect("a packet").1.len();
    let whole = Codec::Rht.packet_len(10, first, false);
    partial.receive(&packets[..whole / 2]).expect("the head of a packet");
    let mut rest = &packets[whole..];
    for (_, place) in layout.row_places(0).skip(1) {
        let (packet, tail) = rest.split_at(Codec::Rht.packet_len(10, place.len(), false));
        partial.receive(packet).expect("of this message");
        rest = tail;
    }
    assert_eq!(partial.repack(to, None, &mut out), None, "a packet was trimmed");
    partial.receive(&packets[..whole]).expect("of this message");
    assert_eq!(partial.repack(to, None, &mut out[1..]), None, "too short");
    let mut limited = partial.clone();
    limited.limit(2, 8);
    assert_eq!(limited.repack(to, None, &mut out), None, "not all of it may be used");
    assert!(partial.repack(to, None, &mut out).is_some());
}
