// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn ids_and_names_lead_back_to_their_codec() {
    for codec in Codec::ALL {
        assert_eq!(Codec::from_id(codec.id()), Some(codec));
        assert_eq!(codec.name().parse(), Ok(codec));
    }
    assert_eq!([1, 2, 3, 4, 6, 7].map(Codec::from_id), [None; 6]);
    let error = "rth".parse::<Codec>().unwrap_err().to_string();
    assert_eq!(error, "unknown codec \"rth\" (valid: rht, raw)");
}

#[test]
fn planes_lie_one_behind_the_other() {
    for codec in Codec::ALL {
        let mut offset = 0;
        for (plane, bits) in codec.plane_bits().iter().enumerate() {
            assert_eq!(codec.plane_offset(plane as u8, 352), offset, "{codec}, plane {plane}");
            offset += 44 * usize::from(*bits);
        }
        for beyond in codec.planes()..=MAX_PLANES {
            assert_eq!(codec.plane_offset(beyond, 352), offset, "{codec}");
        }
    }
}

#[test]
fn the_fullest_packets_fit_an_mtu_of_1500_bytes() {
    for codec in Codec::ALL {
        for (planes, sealed) in (1..=codec.planes()).flat_map(|planes| [(planes, false), (planes, true)]) {
            let n = codec.coordinates_per_packet(1500, planes, sealed);
            // Trims of a fabric hold a sign plane of eight planes' packets: fewer hold no more.
            let filled = planes.max(8);
            let tags = if sealed { TAG_LEN * codec.tags(0, filled) } else { 0 };
            let datagram = |n| 40 + 8 + HEADER_LEN + codec.plane_offset(filled, n) + tags;
            let fullest = datagram(n) <= 1500 && (datagram(n + BLOCK) > 1500 || n == MAX_COORDINATES);
            assert!(fullest, "{codec}, {planes} planes: {n}");
        }
    }
    let whole = |codec: Codec| codec.coordinates_per_packet(1500, codec.planes(), false);
    assert_eq!(Codec::ALL.map(whole), [448, 352]);
    assert_eq!(
        [1, 7, 8, 9].map(|planes| Codec::Rht.coordinates_per_packet(1500, planes, false)),
        [1_408, 1_408, 1_408, 704]
    );
    assert_eq!(Codec::Rht.coordinates_per_packet(60, 10, false), 0);
}

#[test]
fn a_body_reaches_as_far_as_its_planes_and_no_further() {
    for codec in Codec::ALL {
        for bytes in 0..=codec.body_len(96) + 5 {
            let Reach { planes, more } = codec.reach(bytes, 96);
            assert!(codec.plane_offset(planes, 96) <= bytes && more < 96, "{codec}, {bytes} bytes");
            let next =
                codec.plane_bits().get(usize::from(planes)).map_or(0, |bits| more * usize::from(*bits) / 8);
            assert!(codec.plane_offset(planes, 96) + next <= bytes);
            assert_eq!(planes == codec.planes(), bytes >= codec.body_len(96), "{codec}, {bytes} bytes");
        }
    }
}

#[test]
fn tags_lie_behind_the_sign_the_bit_planes_and_the_end() {
    let tags = |first, end| Codec::Rht.tags(first, end);
    assert_eq!(
        [tags(0, 1), tags(0, 2), tags(0, 8), tags(0, 9), tags(0, 10), tags(0, 99)],
        [1, 2, 2, 3, 3, 3]
    );
    assert_eq!([tags(1, 8), tags(7, 9), tags(8, 10), tags(3, 3), tags(9, 8)], [1, 2, 1, 0, 0]);
    assert_eq!(Codec::Raw.tags(0, 1), 1);
}

#[test]
fn a_whole_body_holds_every_bit_of_its_coordinates() {
    for (codec, bits) in Codec::ALL.into_iter().zip([24, 32]) {
        assert_eq!(codec.body_len(352), 44 * bits, "{codec}");
        assert!(codec.planes() <= MAX_PLANES);
    }
}
