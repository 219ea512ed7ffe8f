// SPDX-License-Identifier: Apache-2.0
//! Sealed packets: what is believed of them whole, trimmed and tampered with, and
//! `seal_vectors.json`, which an independent implementation in Python made (`reference/seal.py`).

use proptest::prelude::*;
use serde::Deserialize;
use trimwire_encoder::wire::TAG_LEN;
use trimwire_encoder::wire::seal::{NONCE_LEN, SealKey, SealKeyError, Sealer};

const HEADER: usize = 20;

/// Where the tags of a packet of n coordinates and planes [first, end) begin.
fn boundaries(n: usize, first: u8, end: u8) -> Vec<usize> {
    // In front of plane 0 of more than fourteen blocks is a bit for each.
    let mut at = if first == 0 && n > 448 { HEADER + n.div_ceil(256) } else { HEADER };
    let mut out = Vec::new();
    for plane in first..end {
        at += if plane < 8 { n / 8 } else { n };
        if plane == 0 || plane == 7 || plane + 1 == end {
            out.push(at);
            at += TAG_LEN;
        }
    }
    out
}

fn sealer() -> Sealer {
    Sealer::new(&SealKey::from_bytes(&[7; 16]).expect("16 bytes"), 3)
}

/// A packet with content from a seed, unsealed.
fn unsealed(seed: u32, n: usize, first: u8, end: u8) -> (Vec<u8>, Vec<usize>) {
    let places = boundaries(n, first, end);
    let len = places.last().expect("a plane") + TAG_LEN;
    let mut packet: Vec<u8> = (0..len as u32)
        .map(|i| ((i ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b) >> 13) as u8)
        .collect();
    packet[11] = first << 4 | packet[11] & 15;
    (packet, places)
}

fn sealed(seed: u32, n: usize, first: u8, end: u8) -> (Vec<u8>, Vec<usize>) {
    let (mut packet, places) = unsealed(seed, n, first, end);
    sealer().seal(&mut packet, &places);
    (packet, places)
}

/// What may be believed of an honest packet of which so many bytes arrived.
fn worth(len: usize, places: &[usize]) -> usize {
    places.iter().copied().filter(|place| place + TAG_LEN <= len).max().unwrap_or(0)
}

/// Ranges of planes with one, two and three tags; those of repairs, too.
const RANGES: [(u8, u8); 9] = [(0, 1), (0, 2), (0, 8), (0, 9), (0, 10), (1, 10), (3, 8), (4, 7), (9, 10)];

#[test]
fn a_trimmed_packet_is_believed_up_to_its_last_whole_tag() {
    for (first, end) in RANGES {
        let (packet, places) = sealed(1, 64, first, end);
        for len in 0..=packet.len() {
            assert_eq!(
                sealer().believed(&packet[..len], &places),
                worth(len, &places),
                "[{first}, {end}) trimmed to {len}"
            );
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for (first, end) in RANGES {
        let (packet, places) = sealed(2, 32, first, end);
        for keep in places.iter().map(|place| place + TAG_LEN) {
            let mut arrived = packet[..keep].to_vec();
            for bit in 0..8 * keep {
                arrived[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(
                    sealer().believed(&arrived, &places),
                    0,
                    "[{first}, {end}), {keep} bytes, bit {bit}"
                );
                arrived[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

#[test]
fn a_flipped_bit_behind_the_last_whole_tag_does_no_harm() {
    let (packet, places) = sealed(2, 64, 0, 10);
    for len in places[0] + TAG_LEN + 1..places[1] + TAG_LEN {
        let mut arrived = packet[..len].to_vec();
        arrived[len - 1] ^= 1;
        assert_eq!(sealer().believed(&arrived, &places), places[0]);
    }
}

#[test]
fn a_wrong_last_tag_refuses_the_packet_although_earlier_ones_are_right() {
    let (mut packet, places) = sealed(3, 64, 0, 10);
    packet[places[2]] ^= 1;
    assert_eq!(sealer().believed(&packet, &places), 0);
    // The same packet, trimmed in front of the wrong tag, is honest.
    assert_eq!(sealer().believed(&packet[..places[2] + 7], &places), places[1]);
}

#[test]
fn a_packet_is_not_believed_under_another_key_or_incarnation() {
    let (packet, places) = sealed(4, 64, 0, 10);
    let key = SealKey::from_bytes(&[7; 16]).expect("16 bytes");
    let mut long = [0; 32];
    long[..16].copy_from_slice(&[7; 16]);
    for other in [
        Sealer::new(&key, 2),
        Sealer::new(&key, 3 << 24),
        Sealer::new(&SealKey::from_bytes(&[8; 16]).expect("16 bytes"), 3),
        Sealer::new(&SealKey::from_bytes(&[7; 32]).expect("32 bytes"), 3),
        Sealer::new(&SealKey::from_bytes(&long).expect("32 bytes"), 3),
    ] {
        for len in 0..=packet.len() {
            assert_eq!(other.believed(&packet[..len], &places), 0);
        }
    }
}

#[test]
fn a_packet_made_of_two_is_not_believed() {
    let (n, end) = (64, 10);
    for (first, other_first) in [(0, 0), (0, 1), (1, 0)] {
        let (one, places) = sealed(5, n, first, end);
        let (other, other_places) = sealed(6, n, other_first, end);
        for splice in [8, 12, HEADER].into_iter().chain(places.iter().flat_map(|&at| [at, at + TAG_LEN])) {
            if splice == one.len() {
                continue;
            }
            let mixed = [&one[..splice], &other[splice.min(other.len())..]].concat();
            for believed in [&places, &other_places].map(|places| sealer().believed(&mixed, places)) {
                // Where lengths differ, the splice may look like one packet's honest trim, followed
                // by bytes that are ignored.
                let part = &mixed[..believed + TAG_LEN];
                let honest = first != other_first && (one.starts_with(part) || other.starts_with(part));
                assert!(believed == 0 || honest, "spliced at {splice}, {believed} bytes believed");
            }
        }
    }
}

#[test]
fn a_tag_from_elsewhere_in_the_packet_does_not_fit() {
    let (packet, places) = sealed(7, 64, 0, 10);
    for from in &places {
        for to in &places {
            let mut mixed = packet.clone();
            mixed.copy_within(*from..from + TAG_LEN, *to);
            let believed = sealer().believed(&mixed[..to + TAG_LEN], &places);
            assert_eq!(believed, if from == to { *to } else { 0 });
        }
    }
}

#[test]
fn content_shortened_and_closed_up_does_not_fit() {
    // The padding of the MAC's last block is told apart from zeros by the length.
    let places = [HEADER + 32];
    let mut packet = vec![0; places[0] + TAG_LEN];
    sealer().seal(&mut packet, &places);
    for shorter in NONCE_LEN..places[0] {
        let closed = [&packet[..shorter], &packet[places[0]..]].concat();
        assert_eq!(sealer().believed(&closed, &[shorter]), 0);
    }
}

#[test]
fn a_repair_of_equal_content_has_equal_tags() {
    let (first, places) = sealed(8, 448, 0, 10);
    let (again, _) = sealed(8, 448, 0, 10);
    assert_eq!(first, again);
    // A packet with fewer planes is the longer one's beginning up to plane 7's tag.
    let (mut fewer, fewer_places) = unsealed(8, 448, 0, 9);
    fewer[..places[1]].copy_from_slice(&first[..places[1]]);
    sealer().seal(&mut fewer, &fewer_places);
    assert_eq!(fewer[..places[1] + TAG_LEN], first[..places[1] + TAG_LEN]);
}

#[test]
fn what_stood_at_the_tags_places_does_not_matter() {
    let (mut packet, places) = unsealed(9, 64, 0, 10);
    let mut other = packet.clone();
    for place in &places {
        other[*place..place + TAG_LEN].fill(0xff);
    }
    sealer().seal(&mut packet, &places);
    sealer().seal(&mut other, &places);
    assert_eq!(packet, other);
}

#[test]
fn bytes_behind_the_last_tag_are_not_looked_at() {
    let (mut packet, places) = sealed(10, 64, 0, 10);
    packet.extend([1, 2, 3]);
    assert_eq!(sealer().believed(&packet, &places), places[2]);
}

#[test]
fn a_packet_without_tags_is_not_believed() {
    let (mut packet, _) = unsealed(11, 64, 0, 10);
    let before = packet.clone();
    sealer().seal(&mut packet, &[]);
    assert_eq!(packet, before);
    assert_eq!(sealer().believed(&packet, &[]), 0);
}

#[test]
fn keys_have_16_or_32_bytes_and_are_never_shown() {
    for len in [0, 1, 15, 17, 24, 31, 33, 64] {
        assert_eq!(SealKey::from_bytes(&vec![0; len]).err(), Some(SealKeyError(len)));
    }
    assert_eq!(SealKeyError(17).to_string(), "a job key of 17 bytes (valid: 16, 32)");
    let key = SealKey::from_bytes(&[0xab; 32]).expect("32 bytes");
    assert_eq!(format!("{key:?} {:?}", Sealer::new(&key, 0)), "SealKey { .. } Sealer { .. }");
}

#[test]
#[should_panic(expected = "a tag at byte 80")]
fn tags_that_overlap_are_a_bug_of_the_caller() {
    sealer().seal(&mut [0; 200], &[76, 80, 150]);
}

proptest! {
    #[test]
    fn believing_never_panics(packet in prop::collection::vec(any::<u8>(), 0..200), places in prop::collection::vec(
        prop_oneof![0..220_usize, (usize::MAX - 20)..=usize::MAX], 0..5))
    {
        prop_assert_eq!(sealer().believed(&packet, &places), 0);
    }

    #[test]
    fn any_damage_to_a_packet_is_noticed(
        seed: u32, blocks in 1..15_usize, range in 0..RANGES.len(), share in 0.0..=1.0_f64,
        damage in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..5),
    ) {
        let (first, end) = RANGES[range];
        let (packet, places) = sealed(seed, 32 * blocks, first, end);
        let len = (share * packet.len() as f64).round() as usize;
        let mut arrived = packet[..len].to_vec();
        prop_assert_eq!(sealer().believed(&arrived, &places), worth(len, &places));
        prop_assume!(len > 0);
        for (index, mask) in damage {
            arrived[index.index(len)] ^= mask;
        }
        let last = worth(len, &places);
        let touched = last > 0 && arrived[..last + TAG_LEN] != packet[..last + TAG_LEN];
        prop_assert_eq!(sealer().believed(&arrived, &places), if touched { 0 } else { last });
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vectors {
    #[serde(rename = "format")]
    _format: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    key: String,
    incarnation: u32,
    #[serde(rename = "mac_key")]
    _mac_key: String,
    coordinates: usize,
    planes: (u8, u8),
    boundaries: Vec<usize>,
    sealed: String,
    trims: Vec<(usize, usize)>,
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

#[test]
fn an_independent_implementation_makes_the_same_tags() {
    let vectors: Vectors =
        serde_json::from_str(include_str!("../seal_vectors.json")).expect("seal_vectors.json");
    assert!(vectors.cases.len() >= 10);
    for case in vectors.cases {
        let sealer = Sealer::new(&SealKey::from_bytes(&bytes(&case.key)).expect("a key"), case.incarnation);
        assert_eq!(case.boundaries, boundaries(case.coordinates, case.planes.0, case.planes.1));
        let expected = bytes(&case.sealed);
        let mut packet = expected.clone();
        for place in &case.boundaries {
            packet[*place..place + TAG_LEN].fill(0);
        }
        sealer.seal(&mut packet, &case.boundaries);
        assert_eq!(packet, expected, "{} coordinates, planes {:?}", case.coordinates, case.planes);
        for (len, believed) in case.trims {
            assert_eq!(sealer.believed(&packet[..len], &case.boundaries), believed, "trimmed to {len}");
        }
    }
}
