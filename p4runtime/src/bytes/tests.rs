// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;

/// The specification's table of valid encodings, "Bytestrings": (bitwidth, received, canonical).
#[test]
fn the_specifications_valid_examples_are_accepted_and_shortened() {
    let unsigned: [(u32, &[u8], &[u8]); 7] = [
        (8, b"\x63", b"\x63"),
        (16, b"\x00\x63", b"\x63"),
        (16, b"\x63", b"\x63"),
        (16, b"\x30\x64", b"\x30\x64"),
        (16, b"\x00\x30\x64", b"\x30\x64"),
        (12, b"\x00\x63", b"\x63"),
        (12, b"\x00\x00\x63", b"\x63"),
    ];
    for (bitwidth, received, canonical) in unsigned {
        assert_eq!(check(received, bitwidth), Ok(canonical), "bit<{bitwidth}> {received:?}");
    }
    let signed: [(u32, &[u8], &[u8]); 6] = [
        (8, b"\x63", b"\x63"),
        (8, b"\x9d", b"\x9d"),
        (8, b"\xff\x9d", b"\x9d"),
        (12, b"\xfd\x1d", b"\xfd\x1d"),
        (16, b"\x00\x00", b"\x00"),
        (16, b"\x00", b"\x00"),
    ];
    for (bitwidth, received, canonical) in signed {
        assert_eq!(check_signed(received, bitwidth), Ok(canonical), "int<{bitwidth}> {received:?}");
    }
}

#[test]
fn the_specifications_invalid_examples_are_refused() {
    let unsigned: [(u32, &[u8]); 6] = [
        (8, b"\x01\x63"),
        (8, b""),
        (16, b"\x01\x00\x63"),
        (12, b"\x10\x63"),
        (12, b"\x01\x00\x63"),
        (12, b"\x00\x40\x63"),
    ];
    for (bitwidth, received) in unsigned {
        assert!(check(received, bitwidth).is_err(), "bit<{bitwidth}> {received:?}");
    }
    let signed: [(u32, &[u8]); 3] = [(8, b"\x00\x9d"), (12, b"\x8d\x1d"), (16, b"")];
    for (bitwidth, received) in signed {
        assert!(check_signed(received, bitwidth).is_err(), "int<{bitwidth}> {received:?}");
    }
}

#[test]
fn errors_name_value_and_width() {
    assert_eq!(check(&[0, 2, 0], 9).unwrap_err().to_string(), "value 0x0200 does not fit bit<9>");
    assert_eq!(
        check(&[], 9).unwrap_err().to_string(),
        "empty byte string for bit<9>; zero is one byte, 0x00"
    );
    assert_eq!(encode_width(64, 6).unwrap_err().to_string(), "value 0x40 does not fit bit<6>");
    assert_eq!(encode_signed(-9, 4).unwrap_err().to_string(), "value 0xf7 does not fit int<4>");
    let long = vec![0xab; 100];
    assert!(check(&long, 32).unwrap_err().to_string().len() < 120);
}

#[test]
fn zero_is_one_byte() {
    assert_eq!(encode(0), [0]);
    assert_eq!(encode_width(0, 1), Ok(vec![0]));
    assert_eq!(encode_signed(0, 1), Ok(vec![0]));
    assert_eq!(bits(&[0, 0]), 0);
}

#[test]
fn prefix_masks_start_at_the_values_first_bit() {
    assert_eq!(prefix_mask(24, 32), [0xff, 0xff, 0xff, 0]);
    assert_eq!(prefix_mask(1, 9), [0x01, 0x00]);
    assert_eq!(prefix_mask(3, 9), [0x01, 0xc0]);
    assert_eq!(prefix_mask(9, 9), [0x01, 0xff]);
    assert_eq!(prefix_mask(0, 9), [0, 0]);
}

proptest! {
    #[test]
    fn numbers_survive_any_padding(number: u128, padding in 0_usize..40) {
        let mut received = vec![0; padding];
        received.extend(encode(number));
        prop_assert_eq!(decode(&received, 128), Ok(number));
        prop_assert_eq!(check(&received, 128).unwrap(), encode(number));
    }

    #[test]
    fn the_encoding_is_the_shortest(number: u128) {
        let expected = (128 - number.leading_zeros() as usize).div_ceil(8).max(1);
        prop_assert_eq!(encode(number).len(), expected);
    }

    #[test]
    fn a_number_fits_exactly_the_widths_that_hold_it(number: u128, bitwidth in 1_u32..=128) {
        let fits = bitwidth == 128 || number < 1 << bitwidth;
        prop_assert_eq!(encode_width(number, bitwidth).is_ok(), fits);
    }

    #[test]
    fn a_signed_number_fits_exactly_the_widths_that_hold_it(number: i128, shift in 0_u32..127, bitwidth in 1_u32..=127) {
        let number = number >> shift;
        let fits = (-(1_i128 << (bitwidth - 1))..=(1_i128 << (bitwidth - 1)) - 1).contains(&number);
        let encoded = encode_signed(number, bitwidth);
        prop_assert_eq!(encoded.is_ok(), fits);
        if let Ok(bytes) = encoded {
            let sign = if bytes[0] >> 7 == 1 { -1 } else { 0 };
            let decoded = bytes.iter().fold(sign, |n, byte| (n << 8) | i128::from(*byte));
            prop_assert_eq!(decoded, number);
        }
    }

    #[test]
    fn any_length_is_checked_by_its_bits(value in proptest::collection::vec(any::<u8>(), 1..60), bitwidth in 1_u32..500) {
        let text = value.iter().map(|byte| format!("{byte:08b}")).collect::<Vec<_>>().concat();
        let significant = text.trim_start_matches('0').len();
        prop_assert_eq!(check(&value, bitwidth).is_ok(), significant <= bitwidth as usize);
        prop_assert_eq!(bits(&value), significant as u64);
    }

    #[test]
    fn masks_compare_like_numbers(value: u64, mask: u64, pad in 0_usize..4) {
        let mut padded_mask = vec![0; pad];
        padded_mask.extend(encode(mask.into()));
        prop_assert_eq!(within_mask(&encode(value.into()), &padded_mask), value & !mask == 0);
    }

    #[test]
    fn prefix_masks_are_those_of_arithmetic(bitwidth in 1_u32..=127, prefix in 0_u32..=127) {
        let prefix = prefix.min(bitwidth);
        let expected = ((1_u128 << prefix) - 1) << (bitwidth - prefix);
        prop_assert_eq!(decode(&prefix_mask(prefix, bitwidth), 128), Ok(expected));
    }
}
