// SPDX-License-Identifier: Apache-2.0
//! Blocks of zeros stay zero, whatever arrives: against a model that looks at bytes.

use proptest::prelude::*;
use trimwire_encoder::wire::seal::{SealKey, Sealer};
use trimwire_encoder::{
    Codec, Decoder, Decoding, Element, Encoder, Envelope, HEADER_LEN, Header, Isa, Job, Layout, Message,
    PLANES, RowChoice, RowJob, RowReceiver, StreamId, bf16,
};

const JOB: Job = Job::new(17);
const ENVELOPE: Envelope = Envelope { stream: StreamId::new(1, 2).unwrap(), message: 12 };
const BLOCK: usize = 32;

/// Values of which some blocks of 32 are ±0, some but for one value, and the others dense.
fn gradient(length: usize, seed: u64, scale: f32) -> Vec<f32> {
    let random = |i: usize| {
        let mut z = seed.wrapping_add((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ z >> 29
    };
    (0..length)
        .map(|i| {
            let (of_block, of_value) = (random(i / BLOCK), random(length + i));
            let value = ((of_value % 2_001) as f32 / 1_000.0 - 1.0) * scale;
            match of_block % 4 {
                0 => 0.0,
                1 if of_value % 32 != 0 => -0.0,
                _ => value,
            }
        })
        .collect()
}

/// Layouts of one tensor: rows of 32 to 4096, or of 2^15, in packets of any size.
fn layouts() -> impl Strategy<Value = Layout> {
    let short = (1_usize..5_000, 1_usize..60, 5_u8..=12);
    let long = (32_000_usize..34_000, prop::sample::select(vec![14, 15, 22, 255]), Just(15));
    prop_oneof![9 => short, 1 => long].prop_map(|(length, blocks, row_log2)| {
        Layout::new(length, BLOCK * blocks).and_then(|layout| layout.with_row_log2(row_log2)).unwrap()
    })
}

/// What happens to a packet: a repair of some planes, trimmed to a share of it; and how many planes
/// of it may be used.
type Arrival = (prop::sample::Index, Option<(u8, u8)>, prop::sample::Index, bool);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let repair = prop::option::weighted(0.3, (0..PLANES, 1..=PLANES));
    let arrival = (any::<prop::sample::Index>(), repair, any::<prop::sample::Index>(), any::<bool>());
    prop::collection::vec(arrival, 0..40)
}

/// The coordinates whose blocks are zero, padding included, by packet.
fn zero_blocks(layout: &Layout, gradient: &[f32]) -> Vec<Vec<bool>> {
    let mut blocks = Vec::new();
    for row in 0..layout.rows() {
        let mut values = gradient[layout.row_coordinates(row)].to_vec();
        values.resize(layout.row_range(row).len(), 0.0);
        for (_, place) in layout.row_places(row) {
            let zero = |block: &[f32]| block.iter().all(|x| *x == 0.0);
            blocks.push(values[place].chunks(BLOCK).map(zero).collect());
        }
    }
    blocks
}

/// The same packet without a mask of zeros.
fn without_mask(packet: &[u8]) -> Vec<u8> {
    let header = Header::parse(packet).unwrap();
    let mut other = packet.to_vec();
    other[..HEADER_LEN].copy_from_slice(&Header { zeros: 0, ..header }.to_bytes());
    if header.first_plane == 0 {
        let mask = Codec::Rht.mask_len(header.coordinates).min(packet.len() - HEADER_LEN);
        other[HEADER_LEN..HEADER_LEN + mask].fill(0);
    }
    other
}

fn bits<E: Element>(values: &[E]) -> Vec<u32> {
    let mut wide = Vec::new();
    E::widen(values, &mut wide).iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn coordinates_of_zero_blocks_whose_mask_arrived_are_exactly_0_and_the_others_are_not_touched(
        layout in layouts(), seed: u64, planes in 1..=PLANES, arrivals in arrivals(), limits in any::<u64>(),
        decoding in prop::sample::select(vec![Decoding::Unbiased, Decoding::Mmse, Decoding::Paper]),
        scale in prop::sample::select(vec![1.0_f32, 1e-38, 1e30]), sealed: bool,
    ) {
        let gradient = gradient(layout.coordinates(), seed, scale);
        let zeros = zero_blocks(&layout, &gradient);
        let sealer = sealed.then(|| Sealer::new(&SealKey::from_bytes(&[3; 16]).unwrap(), 9));
        let encoder = match &sealer {
            Some(sealer) => Encoder::new(layout.clone(), JOB).sealed(sealer.clone()),
            None => Encoder::new(layout.clone(), JOB),
        };
        for isa in Isa::available() {
            let mut message = Message::default();
            encoder.clone().with_isa(isa).encode(&gradient, ENVELOPE, planes, &mut message).unwrap();
            let decoder = || {
                let decoder = Decoder::new(layout.clone(), JOB, ENVELOPE, decoding).with_isa(isa).with_planes(planes);
                match &sealer {
                    Some(sealer) => decoder.sealed(sealer),
                    None => decoder,
                }
            };
            let (mut masked, mut bare) = (decoder(), decoder());
            // Bytes of plane 0, from its front, that arrived of each packet that did.
            let mut held: Vec<Option<usize>> = vec![None; message.packets()];
            for (which, repair, length, whole) in &arrivals {
                let index = which.index(message.packets());
                let repair = repair.and_then(|(from, to)| message.repair(index, from..to));
                let packet = repair.unwrap_or_else(|| message.packet(index).to_vec());
                let kept = if *whole { packet.len() } else { HEADER_LEN + length.index(packet.len() - HEADER_LEN + 1) };
                let packet = &packet[..kept];
                if masked.receive(packet).is_err() {
                    prop_assert!(sealed, "a packet of the message");
                    continue;
                }
                let header = Header::parse(packet).unwrap();
                let front = if header.first_plane == 0 { packet.len() - HEADER_LEN } else { 0 };
                held[index] = held[index].max(Some(front));
                if !sealed {
                    bare.receive(&without_mask(packet)).unwrap();
                }
            }
            for (index, held) in held.iter_mut().enumerate() {
                let limit = (limits >> (index % 60) & 15) as u8;
                masked.limit(index, limit);
                bare.limit(index, limit);
                let mask = Codec::Rht.mask_len(layout.packet_range(index).len());
                // Of a sealed packet that was taken at least the first tag arrived.
                *held = held.filter(|front| (mask == 0 || *front >= mask) && limit > 0);
            }
            let base: Vec<f32> = (0..gradient.len()).map(|i| if i % 3 == 0 { -0.0 } else { i as f32 }).collect();
            let (mut out, mut other) = (vec![f32::NAN; gradient.len()], vec![f32::NAN; gradient.len()]);
            let (mut sum, mut halves) = (base.clone(), vec![bf16::NAN; gradient.len()]);
            masked.decode_into(&mut out).unwrap();
            masked.add_into(&mut sum).unwrap();
            masked.decode_into(&mut halves).unwrap();
            bare.decode_into(&mut other).unwrap();
            for row in 0..layout.rows() {
                let coordinates = layout.row_coordinates(row);
                for (index, place) in layout.row_places(row) {
                    for at in place.clone().take_while(|at| *at < coordinates.len()) {
                        let (block, i) = ((at - place.start) / BLOCK, coordinates.start + at);
                        if held[index].is_some() && zeros[index][block] {
                            prop_assert!(out[i].to_bits() == 0 && halves[i].to_bits() == 0, "{isa}, coordinate {i}");
                            prop_assert_eq!(sum[i].to_bits(), base[i].to_bits(), "{}, coordinate {}", isa, i);
                        } else {
                            prop_assert!(sealed || out[i].to_bits() == other[i].to_bits(), "{isa}, coordinate {i}");
                            prop_assert_eq!(halves[i].to_bits(), bf16::from_f32(out[i]).to_bits());
                            let added = base[i] + out[i];
                            // Rows of which nothing is left add nothing, not even a sign.
                            prop_assert!(sum[i] == added, "{isa}, coordinate {i}: {} and {added}", sum[i]);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_the_sender_keeps_and_what_is_passed_on_have_the_same_zeros(
        layout in layouts(), seed: u64, planes in 1..=PLANES, sealed: bool,
    ) {
        let gradient = gradient(layout.coordinates(), seed, 1.0);
        let sealer = sealed.then(|| Sealer::new(&SealKey::from_bytes(&[3; 16]).unwrap(), 9));
        let to = Envelope { stream: StreamId::new(1, 7).unwrap(), message: 99 };
        for isa in Isa::available() {
            let encoder = Encoder::new(layout.clone(), JOB).with_isa(isa);
            for row in 0..layout.rows() {
                let values = &gradient[layout.row_coordinates(row)];
                let (mut packets, mut own) = (vec![0; encoder.row_len(row, planes)], vec![f32::NAN; values.len()]);
                let choice = RowChoice { planes, ..RowChoice::whole(Codec::Rht) };
                let job = RowJob::of(values).keeping(&mut own);
                encoder.encode_row(row, job, ENVELOPE, choice, &mut packets).unwrap();
                let receive = |envelope, sealer: Option<&Sealer>, packets: &[u8]| {
                    let mut receiver = RowReceiver::new(&layout, row, JOB, envelope, Decoding::Unbiased)
                        .with_isa(isa).with_planes(planes).with_origin(ENVELOPE);
                    if let Some(sealer) = sealer {
                        receiver = receiver.sealed(sealer.clone());
                    }
                    let mut rest = packets;
                    for (_, place) in layout.row_places(row) {
                        let (packet, tail) = rest.split_at(Codec::Rht.packet_len(planes, place.len(), sealer.is_some()));
                        receiver.receive(packet).unwrap();
                        rest = tail;
                    }
                    receiver
                };
                let first = receive(ENVELOPE, None, &packets);
                let mut passed = vec![0; layout.row_len(Codec::Rht, row, planes, sealed)];
                prop_assert!(first.repack(to, sealer.as_ref(), &mut passed).is_some());
                let second = receive(to, sealer.as_ref(), &passed);
                let (mut once, mut again) = (own.clone(), own.clone());
                first.decode_into(&mut once).unwrap();
                second.decode_into(&mut again).unwrap();
                prop_assert_eq!(bits(&own), bits(&once));
                prop_assert_eq!(bits(&own), bits(&again));
                for (got, sent) in own.chunks(BLOCK).zip(values.chunks(BLOCK)) {
                    let zero = sent.iter().all(|x| *x == 0.0);
                    prop_assert!(!zero || bits(got).iter().all(|bits| *bits == 0));
                }
            }
        }
    }
}
