// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

/// Writes the whole map in parts of `budget` bytes, delivers them in the order given by `shuffle`,
/// and reads back.
fn transport(states: &[u8], detail: Detail, budget: usize, shuffle: u64) -> TrimMap {
    let packets = states.len() as u32;
    let mut parts = Vec::new();
    let mut offset = 0;
    while offset < packets {
        let mut bytes = Vec::new();
        offset = write_part(|p| states[p as usize], packets, offset, detail, budget, &mut bytes);
        assert!(bytes.len() <= budget.max(13), "{} > {budget}", bytes.len());
        parts.push(bytes);
    }
    if parts.len() > 1 {
        let turn = shuffle as usize % parts.len();
        parts.rotate_left(turn);
    }
    let mut map = TrimMap::unknown(packets);
    for (index, bytes) in parts.iter().enumerate() {
        assert!(index == 0 || !map.is_complete());
        map.take(&MapPart::parse(bytes).expect("own output is valid"));
    }
    assert!(map.is_complete());
    map
}

fn states() -> impl Strategy<Value = Vec<u8>> {
    let runs = prop::collection::vec((0_u8..=FULL, 1_usize..200), 1..20)
        .prop_map(|runs| runs.into_iter().flat_map(|(planes, n)| std::iter::repeat_n(planes, n)).collect());
    prop_oneof![prop::collection::vec(0_u8..=FULL, 1..700), runs]
}

proptest! {
    #[test]
    fn plane_maps_arrive_exactly_whatever_the_part_size_and_order(states in states(), budget in 13_usize..200, turn: u64) {
        prop_assert_eq!(transport(&states, Detail::Planes, budget, turn), TrimMap::from_planes(states));
    }

    #[test]
    fn coarse_maps_keep_missing_trimmed_and_full_apart(states in states(), budget in 13_usize..200, turn: u64) {
        let coarse = states.iter().map(|&s| if (1..FULL).contains(&s) { 1 } else { s }).collect();
        prop_assert_eq!(transport(&states, Detail::Coarse, budget, turn), TrimMap::from_planes(coarse));
    }

    #[test]
    fn hostile_bytes_are_an_error_or_a_valid_map(bytes in prop::collection::vec(any::<u8>(), 0..64), encoding in 0_u8..4, count in 0_u32..80) {
        let mut bytes = bytes;
        if bytes.len() > 9 {
            bytes[0..4].copy_from_slice(&[0; 4]);
            bytes[4..8].copy_from_slice(&count.to_be_bytes());
            bytes[8] = encoding;
        }
        if let Ok(part) = MapPart::parse(&bytes) {
            let mut next = part.offset();
            for run in part.runs() {
                prop_assert!(run.start == next && run.count > 0 && run.planes <= FULL);
                next += run.count;
            }
            prop_assert_eq!(next, part.end());
            let mut map = TrimMap::unknown(30);
            map.take(&part);
        }
    }
}

#[test]
fn a_full_message_of_any_size_takes_one_small_part() {
    let mut bytes = Vec::new();
    assert_eq!(write_part(|_| FULL, MAX_PACKETS, 0, Detail::Planes, 1_400, &mut bytes), MAX_PACKETS);
    assert_eq!(bytes.len(), 9 + 4);
    assert_eq!(MapPart::parse(&bytes).expect("valid").runs().count(), 1);
}

#[test]
fn an_incompressible_message_of_2_to_the_20_packets_travels_in_mtu_sized_parts() {
    let states: Vec<u8> =
        (0..MAX_PACKETS).map(|p| (p.wrapping_mul(2_654_435_761) >> 28) as u8 % (FULL + 1)).collect();
    assert_eq!(transport(&states, Detail::Planes, 1_400, 17).as_slice(), states);
}

#[test]
fn golden_bytes_of_each_encoding() {
    let write = |states: &[u8], detail| {
        let mut bytes = Vec::new();
        write_part(|p| states[p as usize], states.len() as u32, 0, detail, 100, &mut bytes);
        bytes
    };
    assert_eq!(write(&[FULL; 300], Detail::Coarse), [0, 0, 0, 0, 0, 0, 1, 44, 0, 0xba, 0x25]);
    assert_eq!(
        write(&[0, 3, FULL, 0, FULL], Detail::Coarse),
        [0, 0, 0, 0, 0, 0, 0, 5, 1, 0b0001_1000, 0b1000_0000]
    );
    assert_eq!(write(&[0, 3, FULL], Detail::Planes), [0, 0, 0, 0, 0, 0, 0, 3, 2, 0x03, 0xa0]);
}

#[test]
fn merged_minimum_is_the_lowest_of_all_receivers() {
    let mut map = TrimMap::from_planes(vec![FULL; 4]);
    map.merge_minimum(&TrimMap::from_planes(vec![FULL, 4, 0, FULL]));
    map.merge_minimum(&TrimMap::from_planes(vec![FULL, 8, FULL, 1]));
    assert_eq!(map.as_slice(), [FULL, 4, 0, 1]);
}

#[test]
fn errors_name_what_is_wrong() {
    let text = |bytes: &[u8]| MapPart::parse(bytes).expect_err("invalid").to_string();
    assert_eq!(text(&[0; 9]), "trim map covers 0 packets from 0; valid are 1 to 16777216 in all");
    assert_eq!(
        text(&[0, 0, 0, 0, 0, 0, 0, 1, 7]),
        "unknown trim map encoding 7; valid are 0 (runs), 1 (two bits), 2 (four bits)"
    );
    assert_eq!(
        text(&[0, 0, 0, 9, 0, 0, 0, 1, 2, 0xb0]),
        "trim map gives packet 9 the state 11, which encoding 2 does not have"
    );
}
