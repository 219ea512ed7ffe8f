// SPDX-License-Identifier: Apache-2.0
//! The check over a header: CRC-16/M17, of Hamming distance 5 over so few bytes, so up to four
//! wrong bits are always seen.

use super::sizes::HEADER_LEN;

/// Bytes that are checked.
const CHECKED: usize = HEADER_LEN - 2;
const POLYNOMIAL: u16 = 0x5935;
const INITIAL: u16 = 0xffff;

/// A register after eight more bits of zeros.
const fn shifted(mut register: u16) -> u16 {
    let mut bit = 0;
    while bit < 8 {
        register = register << 1 ^ if register >> 15 == 1 { POLYNOMIAL } else { 0 };
        bit += 1;
    }
    register
}

/// What each half of each byte adds. The check is linear, so halves of bytes add up in any order,
/// and a table of halves is an eighth of one of bytes: it stays in the first-level cache beside the
/// packets.
static HALVES: [[u16; 16]; 2 * CHECKED] = {
    let mut halves = [[0; 16]; 2 * CHECKED];
    let mut byte = CHECKED;
    while byte > 0 {
        byte -= 1;
        let mut value = 0;
        while value < 16 {
            let (mut low, mut high) = (shifted((value as u16) << 8), shifted((value as u16) << 12));
            let mut behind = byte + 1;
            while behind < CHECKED {
                (low, high) = (shifted(low), shifted(high));
                behind += 1;
            }
            (halves[2 * byte][value], halves[2 * byte + 1][value]) = (high, low);
            value += 1;
        }
    }
    halves
};

/// What the register begins with comes to behind all bytes.
const BEGINNING: u16 = {
    let (mut register, mut byte) = (INITIAL, 0);
    while byte < CHECKED {
        register = shifted(register);
        byte += 1;
    }
    register
};

/// The check that the bytes in front of it call for.
#[inline]
pub(super) fn check_of(head: &[u8; HEADER_LEN]) -> u16 {
    let mut sums = [BEGINNING, 0];
    for byte in 0..CHECKED {
        sums[0] ^= HALVES[2 * byte][usize::from(head[byte] >> 4)];
        sums[1] ^= HALVES[2 * byte + 1][usize::from(head[byte] & 15)];
    }
    sums[0] ^ sums[1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bit by bit.
    fn textbook(bytes: &[u8]) -> u16 {
        bytes.iter().fold(INITIAL, |register, byte| shifted(register ^ u16::from(*byte) << 8))
    }

    #[test]
    fn the_check_is_crc_16_m17() {
        assert_eq!(textbook(b"123456789"), 0x772b);
    }

    proptest! {
        #[test]
        fn halves_of_bytes_add_up_to_the_register_of_the_textbook(head in prop::array::uniform20(any::<u8>())) {
            prop_assert_eq!(check_of(&head), textbook(&head[..CHECKED]));
        }
    }
}
