// SPDX-License-Identifier: Apache-2.0
//! What a receiver keeps as bytes is what another one makes code words of.

use proptest::prelude::*;
use trimwire_encoder::wire::{HeaderMask, repair};
use trimwire_encoder::{
    Codec, Decoding, Encoder, Envelope, HEADER_LEN, Job, Layout, Message, RowChoice, RowReceiver, SealKey,
    Sealer, StreamId,
};

const JOB: Job = Job::new(5);
const ENVELOPE: Envelope = Envelope { stream: StreamId::new(1, 2).unwrap(), message: 12 };

fn bits(row: &RowReceiver, coordinates: usize) -> Vec<u32> {
    let mut out = vec![f32::NAN; coordinates];
    row.decode_into(&mut out).expect("an output of the row's length");
    out.into_iter().map(f32::to_bits).collect()
}

/// What arrives: of which packet, from which plane on, how much of its body by tenths of a percent.
type Arrival = (prop::sample::Index, u8, u16);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let share = prop_oneof![3 => Just(1_000_u16), 1 => 0_u16..1_000];
    let first = prop_oneof![2 => Just(0_u8), 1 => 0_u8..10];
    prop::collection::vec((any::<prop::sample::Index>(), first, share), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn packets_kept_as_bytes_decode_to_the_bits_of_those_that_were_joined_as_they_came(
        gradient in prop::collection::vec(-2.0_f32..2.0, 1..900), blocks in 1_usize..9, planes in 1_u8..=10, arrivals in arrivals(),
        limit in 0_u8..12, room in 0_u8..3, sealed: bool, marked: bool,
    ) {
        let mut gradient = gradient;
        if marked {
            gradient[0] = f32::NAN;
        }
        let layout = Layout::new(gradient.len(), 32 * blocks).and_then(|l| l.with_row_log2(7)).expect("a layout");
        let key = SealKey::from_bytes(&[3; 32]).expect("32 bytes");
        let sealer = sealed.then(|| Sealer::new(&key, 0));
        let mut encoder = Encoder::new(layout.clone(), JOB);
        if let Some(sealer) = &sealer {
            encoder = encoder.sealed(sealer.clone());
        }
        let mut message = Message::default();
        encoder.encode(&gradient, ENVELOPE, planes, &mut message).expect("a message");
        for row in 0..layout.rows() {
            let mut joining = RowReceiver::new(&layout, row, JOB, ENVELOPE, Decoding::Unbiased).with_planes(planes);
            if let Some(sealer) = &sealer {
                joining = joining.sealed(sealer.clone());
            }
            let room = planes + room;
            let memory = vec![0xA5; layout.row_len(Codec::Rht, row, room.min(10), false)];
            let mut keeping = joining.clone().keeping(Box::new(memory), room);
            let packets: Vec<usize> = layout.row_packets(row).collect();
            for (which, first, share) in &arrivals {
                let packet = message.packet(*which.get(&packets));
                let again = if sealed { None } else { repair(packet, first % planes..planes, HeaderMask::NONE) };
                let packet = again.as_deref().unwrap_or(packet);
                let part = &packet[..HEADER_LEN + (packet.len() - HEADER_LEN) * usize::from(*share) / 1_000];
                prop_assert_eq!(joining.receive(part), keeping.receive(part));
            }
            prop_assert_eq!(joining.is_complete(), keeping.is_complete());
            for &index in &packets {
                prop_assert_eq!(joining.held(index), keeping.held(index));
                joining.limit(index, limit);
                keeping.limit(index, limit);
            }
            let coordinates = layout.row_coordinates(row).len();
            let expected = bits(&joining, coordinates);
            prop_assert_eq!(&bits(&keeping, coordinates), &expected);

            // And who knows nothing but the bytes and how many of them count.
            let (bytes, lengths) = keeping.kept().expect("it keeps them");
            let mut other = RowReceiver::new(&layout, row, JOB, ENVELOPE, Decoding::Unbiased);
            let mut at = 0;
            for ((_, place), length) in layout.row_places(row).zip(lengths) {
                if length > 0 {
                    prop_assert!(other.receive(&bytes[at..at + length]).is_ok());
                }
                at += Codec::Rht.packet_len(room.min(10), place.len(), false);
            }
            prop_assert_eq!(at, bytes.len());
            prop_assert_eq!(&bits(&other, coordinates), &expected);
        }
    }
}

#[test]
fn memory_that_is_too_short_receives_less_and_nothing_outside_of_it_is_touched() {
    let layout = Layout::new(256, 64).expect("a layout");
    let mut message = Message::default();
    Encoder::new(layout.clone(), JOB).encode(&[1.0; 256], ENVELOPE, 8, &mut message).expect("a message");
    let receiver = RowReceiver::new(&layout, 0, JOB, ENVELOPE, Decoding::Unbiased).with_planes(8);
    assert!(receiver.kept().is_none(), "it makes code words of them");
    let mut receiver = receiver.keeping(Box::new(vec![0; 100]), 8);
    assert_eq!(receiver.receive(message.packet(0)).expect("it fits").planes_now, 8);
    assert_eq!(receiver.receive(message.packet(3)).expect("ours").planes_now, 0);
    let (bytes, lengths) = receiver.kept().expect("it keeps them");
    assert_eq!((bytes.len(), lengths), (100, vec![84, 0, 0, 0]));
    assert_eq!(&bytes[..84], message.packet(0));
}

#[test]
fn a_row_that_was_encoded_elsewhere_is_sealed_as_its_own_encoder_seals_it() {
    let layout = Layout::new(700, 96).and_then(|layout| layout.with_row_log2(9)).expect("a layout");
    let sealer = Sealer::new(&SealKey::from_bytes(&[3; 32]).expect("32 bytes"), 9);
    let bare = Encoder::new(layout.clone(), JOB);
    let sealing = bare.clone().sealed(sealer);
    let values: Vec<f32> = (0..700).map(|i| (i as f32).sin()).collect();
    for (row, planes) in [(0, 9), (1, 3), (0, 10)] {
        let choice = RowChoice { planes, ..RowChoice::whole(Codec::Rht) };
        let values = &values[layout.row_coordinates(row)];
        let encode = |encoder: &Encoder| {
            let mut packets = vec![0; encoder.row_len(row, planes)];
            encoder.encode_row(row, values, ENVELOPE, choice, &mut packets).expect("a row");
            packets
        };
        let mut sealed = vec![0; sealing.row_len(row, planes)];
        sealing.seal_row(row, planes, &encode(&bare), &mut sealed).expect("of these lengths");
        assert_eq!(sealed, encode(&sealing));
        assert!(sealing.seal_row(row, planes, &[0; 7], &mut sealed).is_err());
        assert!(sealing.seal_row(99, planes, &[], &mut sealed).is_err());
    }
}
