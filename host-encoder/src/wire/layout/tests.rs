// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

fn lengths(layout: &Layout) -> Vec<usize> {
    (0..layout.rows()).map(|row| layout.row_range(row).len()).collect()
}

proptest! {
    #[test]
    fn packets_tile_the_padded_message_and_stay_in_their_row(
        sizes in prop::collection::vec(1usize..100_000, 1..5), blocks in 1usize..60, row_log2 in 5u8..17,
    ) {
        let tensors: Vec<Tensor> = sizes
            .iter()
            .enumerate()
            .map(|(i, n)| Tensor { coordinates: *n, layer_class: i as u8 })
            .collect();
        let layout =
            Layout::of_tensors(&tensors, blocks * 32).and_then(|l| l.with_row_log2(row_log2)).unwrap();
        let (mut next, mut coordinate) = (0, 0);
        for row in 0..layout.rows() {
            let start = layout.row_range(row).start;
            for (index, place) in layout.row_places(row) {
                prop_assert_eq!(start + place.start..start + place.end, layout.packet_range(index));
            }
            let coordinates = layout.row_coordinates(row);
            prop_assert_eq!(coordinates.start, coordinate);
            coordinate = coordinates.end;
            let length = layout.row_range(row).len();
            prop_assert!(length.is_power_of_two() && (32..=1 << row_log2).contains(&length));
            prop_assert!(!coordinates.is_empty() && coordinates.len() <= length);
            let lengths: Vec<usize> = layout.row_places(row).map(|(_, place)| place.len()).collect();
            prop_assert!(lengths.is_sorted_by(|a, b| a >= b), "the longer ones first: {lengths:?}");
            prop_assert!(lengths.first().zip(lengths.last()).is_some_and(|(a, b)| a - b <= 32));
        }
        prop_assert_eq!(coordinate, layout.coordinates());
        for index in 0..layout.packets() {
            let range = layout.packet_range(index);
            prop_assert_eq!(range.start, next);
            prop_assert!(!range.is_empty() && range.len() <= blocks * 32 && range.len().is_multiple_of(32));
            let row = layout.packet_row(index);
            prop_assert!(layout.row_packets(row).contains(&index));
            let row = layout.row_range(row);
            prop_assert!(row.start <= range.start && range.end <= row.end);
            next = range.end;
        }
        prop_assert_eq!(next, layout.padded_coordinates());
        for (codec, planes) in [(Codec::Rht, 1), (Codec::Rht, 9), (Codec::Rht, 10), (Codec::Raw, 1)] {
            let mut at = 0;
            for row in 0..layout.rows() {
                let (start, places) = (layout.row_start(codec, row, planes, true), layout.row_places(row));
                for (nth, (_, place)) in places.enumerate() {
                    prop_assert_eq!(at, start + layout.bytes_before(codec, row, nth, planes, true));
                    at += codec.packet_len(planes, place.len(), true);
                }
                prop_assert_eq!(at, start + layout.row_len(codec, row, planes, true));
            }
            prop_assert_eq!(at, layout.message_len(codec, planes, true));
        }
    }

    #[test]
    fn no_row_straddles_two_tensors_and_each_is_of_its_tensor_s_class(
        sizes in prop::collection::vec(1usize..3_000, 1..8), row_log2 in 5u8..12,
    ) {
        let tensors: Vec<Tensor> = sizes
            .iter()
            .enumerate()
            .map(|(i, n)| Tensor { coordinates: *n, layer_class: 7 - i as u8 })
            .collect();
        let layout = Layout::of_tensors(&tensors, 448).and_then(|l| l.with_row_log2(row_log2)).unwrap();
        let mut end = 0;
        let mut row = 0;
        for tensor in &tensors {
            let alone = Layout::new(tensor.coordinates, 448).and_then(|l| l.with_row_log2(row_log2)).unwrap();
            end += tensor.coordinates;
            for length in lengths(&alone) {
                prop_assert_eq!(layout.row_range(row).len(), length);
                prop_assert_eq!(layout.layer_class(row), tensor.layer_class);
                prop_assert!(layout.row_coordinates(row).end <= end);
                row += 1;
            }
            prop_assert_eq!(layout.row_coordinates(row - 1).end, end);
        }
        prop_assert_eq!(row, layout.rows());
    }
}

#[test]
fn tails_are_split_into_descending_powers_of_two() {
    let layout = |n| Layout::new(n, 448).and_then(|layout| layout.with_row_log2(15)).unwrap();
    let of = |n| lengths(&layout(n));
    assert_eq!(of(40_000), [32_768, 4_096, 2_048, 1_024, 64]);
    assert_eq!([of(1), of(33), of(129), of(256)], [[32], [64], [256], [256]]);
    assert_eq!(of(257), [256, 32]);
    // Padding of a thirty-second is cheaper than another row.
    assert_eq!([of(32_767), of(31_744)], [[32_768], [32_768]]);
    assert_eq!(of(31_743), [16_384, 8_192, 4_096, 2_048, 1_024]);
    assert_eq!(layout(40_000).packets(), 93);
    let usual = Layout::new(40_000, 448).unwrap();
    let nine = [4_096; 9].into_iter().chain([2_048, 1_024, 64]);
    assert_eq!((lengths(&usual), usual.packets()), (nine.collect(), 99));
}

#[test]
fn a_message_of_2_to_the_32_coordinates_has_a_layout() {
    for per_packet in [448, 352] {
        let layout = Layout::new(1 << 32, per_packet).unwrap();
        assert_eq!(layout.rows(), 1 << 20);
        assert_eq!(layout.packet_range(layout.packets() - 1).end, 1 << 32);
    }
}

/// Bytes a coordinate of every length, the promise of wire version 3: tails cost next to nothing.
#[test]
fn no_message_beyond_4096_coordinates_costs_a_tenth_more_than_a_long_one() {
    let bytes = |n: usize, planes| {
        let layout = Layout::new(n, Codec::Rht.coordinates_per_packet(1500, planes, false)).unwrap();
        layout.message_len(Codec::Rht, planes, false) as f64 / n as f64
    };
    for planes in [8, 9, 10] {
        let asymptote = bytes(1 << 24, planes);
        let mut worst = (0.0, 0);
        // Every length up to 2^17, where rows of every length are among the tails; beyond, prime
        // steps.
        for n in (4_097..1 << 17).chain((1 << 17..1_000_000).step_by(97)) {
            let ratio = bytes(n, planes) / asymptote;
            if ratio > worst.0 {
                worst = (ratio, n);
            }
        }
        assert!(worst.0 < 1.1, "{planes} planes: {} × at {} coordinates", worst.0, worst.1);
    }
}

/// A row's packets are alike, so none has more than [`Codec::coordinates_per_packet`] and some have
/// fewer; that costs headers, not padding.
#[test]
fn full_rows_cost_less_than_two_percent_more_than_packets_that_fill_the_mtu() {
    const HEADERS: usize = 42;
    const ROW: usize = 1 << 12;
    let kinds = [8, 9, 10].into_iter().flat_map(|planes| [(planes, false), (planes, true)]);
    for (planes, sealed) in kinds {
        for mtu in 576..=9_216 {
            let fits = Codec::Rht.coordinates_per_packet(mtu, planes, sealed);
            let layout = Layout::new(ROW, fits).unwrap();
            let frames = layout.packets() * HEADERS + layout.message_len(Codec::Rht, planes, sealed);
            let full = HEADERS + Codec::Rht.packet_len(planes, fits, sealed);
            let cost = frames as f64 / ROW as f64 / (full as f64 / fits as f64);
            assert!(cost < 1.02, "MTU {mtu}, {planes} planes, sealed {sealed}: {cost}");
            assert_eq!(layout.padded_coordinates(), ROW);
        }
    }
}

#[test]
fn impossible_layouts_are_refused() {
    assert_eq!(Layout::new(0, 352), Err(LayoutError::Empty));
    assert_eq!(Layout::of_tensors(&[], 352), Err(LayoutError::Empty));
    assert_eq!(Layout::new(5, 33), Err(LayoutError::CoordinatesPerPacket(33)));
    assert_eq!(Layout::new(5, 8192), Err(LayoutError::CoordinatesPerPacket(8192)));
    let tensors = [(3, 0), (0, 0)].map(|(coordinates, layer_class)| Tensor { coordinates, layer_class });
    assert_eq!(Layout::of_tensors(&tensors, 352), Err(LayoutError::EmptyTensor(1)));
    let layout = Layout::new(5, 352).unwrap();
    assert_eq!(layout.with_layer_class(8), Err(LayoutError::LayerClass { tensor: 0, layer_class: 8 }));
    assert_eq!(layout.with_row_log2(21), Err(LayoutError::RowLog2(21)));
    for coordinates in [1 << 30, usize::MAX] {
        assert!(matches!(Layout::new(coordinates, 32), Err(LayoutError::TooLong { .. })));
    }
}
