// SPDX-License-Identifier: Apache-2.0
//! BMv2's named hash and checksum algorithms, all from bytes to an unsigned 64-bit number.

mod xxh64;

/// An algorithm that v1model or BMv2 names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Crc8,
    Crc16,
    Crc16Ccitt,
    Crc32,
    Crc64,
    Checksum16,
    Xor16,
    Xor32,
    Identity,
    Xxh64,
    /// BMv2's default key is 0, and only Thrift can set another: so is every hash.
    Toeplitz,
    /// Counts how often it was asked, which is not a matter of the bytes.
    RoundRobin,
}

impl Algorithm {
    /// The algorithm of that BMv2 name. The `_custom` CRCs have their default parameters:
    /// reconfiguring them is a Thrift-only feature of BMv2.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "crc8_custom" => Self::Crc8,
            "crc16" | "crc16_custom" => Self::Crc16,
            "crcCCITT" => Self::Crc16Ccitt,
            "crc32" | "crc32_custom" => Self::Crc32,
            "crc64_custom" => Self::Crc64,
            "csum16" | "cksum16" => Self::Checksum16,
            "xor16" => Self::Xor16,
            "xor32" => Self::Xor32,
            "identity" => Self::Identity,
            "xxh64" => Self::Xxh64,
            "toeplitz" => Self::Toeplitz,
            "round_robin" => Self::RoundRobin,
            _ => return None,
        })
    }

    pub(super) fn compute(self, data: &[u8]) -> u64 {
        match self {
            Self::Crc8 => u64::from(crc8(data)),
            Self::Crc16 => u64::from(crc16(data)),
            Self::Crc16Ccitt => u64::from(crc16_ccitt(data)),
            Self::Crc32 => u64::from(crc32(data)),
            Self::Crc64 => crc64(data),
            Self::Checksum16 => u64::from(internet_checksum(data)),
            Self::Xor16 => data.chunks(2).fold(0, |sum, chunk| sum ^ big_endian(chunk, 2)),
            Self::Xor32 => data.chunks(4).fold(0, |sum, chunk| sum ^ big_endian(chunk, 4)),
            Self::Identity => data.iter().take(8).fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
            Self::Xxh64 => xxh64::hash(data),
            Self::Toeplitz | Self::RoundRobin => 0,
        }
    }
}

/// The chunk as a big-endian number of `width` bytes, padded with zeros at its end.
fn big_endian(chunk: &[u8], width: usize) -> u64 {
    (0..width).fold(0, |sum, index| sum << 8 | u64::from(chunk.get(index).copied().unwrap_or(0)))
}

/// RFC 1071.
fn internet_checksum(data: &[u8]) -> u16 {
    fold(sum_of_words(data))
}

/// The sum of a message's 16-bit words, two at a time, without the carries.
pub(super) fn sum_of_words(data: &[u8]) -> u64 {
    let (words, rest) = data.as_chunks::<4>();
    let sum: u64 = words.iter().map(|&word| u64::from(u32::from_be_bytes(word))).sum();
    sum + big_endian(rest, 4)
}

/// A sum of 16-bit words as the Internet checksum.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The remainders of a byte that is followed by none to seven others, for a reflected CRC.
type Remainders = [[u64; 256]; 8];

const fn reflected_tables(polynomial: u64) -> Remainders {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 != 0 { remainder >> 1 ^ polynomial } else { remainder >> 1 };
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut followed = 1;
    while followed < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[followed - 1][byte];
            tables[followed][byte] = before >> 8 ^ tables[0][before as u8 as usize];
            byte += 1;
        }
        followed += 1;
    }
    tables
}

static CRC16: Remainders = reflected_tables(0xa001);
static CRC32: Remainders = reflected_tables(0xedb8_8320);
/// BMv2's default for `crc64_custom`: x^64 + x^4 + x^3 + x + 1, reflected.
static CRC64: Remainders = reflected_tables(0xd800_0000_0000_0000);

/// Eight bytes at a time (Kounavis and Berry, ISCC 2005).
fn reflected_crc(tables: &Remainders, initial: u64, data: &[u8]) -> u64 {
    let (words, rest) = data.as_chunks::<8>();
    let crc = words.iter().fold(initial, |crc, &word| {
        let bytes = (crc ^ u64::from_le_bytes(word)).to_le_bytes();
        bytes.iter().zip(tables.iter().rev()).fold(0, |crc, (&byte, table)| crc ^ table[byte as usize])
    });
    rest.iter().fold(crc, |crc, &byte| tables[0][(crc as u8 ^ byte) as usize] ^ crc >> 8)
}

fn crc16(data: &[u8]) -> u16 {
    reflected_crc(&CRC16, 0, data) as u16
}

fn crc32(data: &[u8]) -> u32 {
    !(reflected_crc(&CRC32, 0xffff_ffff, data) as u32)
}

fn crc64(data: &[u8]) -> u64 {
    reflected_crc(&CRC64, 0, data)
}

/// The remainders of all bytes for a CRC of at most 16 bits that is not reflected, at the top of 16
/// bits.
const fn table(polynomial: u16) -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 0x8000 != 0 { remainder << 1 ^ polynomial } else { remainder << 1 };
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
}

static CRC8: [u16; 256] = table(0x0700);
static CCITT: [u16; 256] = table(0x1021);

fn crc(table: &[u16; 256], initial: u16, data: &[u8]) -> u16 {
    data.iter().fold(initial, |crc, &byte| table[((crc >> 8) as u8 ^ byte) as usize] ^ crc << 8)
}

fn crc8(data: &[u8]) -> u8 {
    (crc(&CRC8, 0, data) >> 8) as u8
}

fn crc16_ccitt(data: &[u8]) -> u16 {
    crc(&CCITT, 0xffff, data)
}

#[cfg(test)]
mod tests {
    use super::Algorithm;

    /// The catalogue of parametrised CRC algorithms gives each algorithm's result for this input.
    const CHECK: &[u8] = b"123456789";

    #[test]
    fn crcs_give_the_catalogue_check_values() {
        let results = [
            ("crc8_custom", 0xf4),
            ("crc16", 0xbb3d),
            ("crc16_custom", 0xbb3d),
            ("crcCCITT", 0x29b1),
            ("crc32", 0xcbf4_3926),
            ("crc32_custom", 0xcbf4_3926),
        ];
        for (name, expected) in results {
            let algorithm = Algorithm::named(name).unwrap_or_else(|| panic!("{name} is known"));
            assert_eq!(algorithm.compute(CHECK), expected, "{name}");
        }
    }

    /// A bit at a time, as the definition reads.
    fn naive(polynomial: u64, initial: u64, data: &[u8]) -> u64 {
        let step = |crc: u64| if crc & 1 != 0 { crc >> 1 ^ polynomial } else { crc >> 1 };
        data.iter().fold(initial, |crc, &byte| (0..8).fold(crc ^ u64::from(byte), |crc, _| step(crc)))
    }

    proptest::proptest! {
        #[test]
        fn crcs_of_many_bytes_are_those_of_one_bit_after_another(data in proptest::collection::vec(0u8.., 0..80)) {
            proptest::prop_assert_eq!(Algorithm::Crc16.compute(&data), naive(0xa001, 0, &data));
            proptest::prop_assert_eq!(
                Algorithm::Crc32.compute(&data), naive(0xedb8_8320, 0xffff_ffff, &data) ^ 0xffff_ffff
            );
            proptest::prop_assert_eq!(Algorithm::Crc64.compute(&data), naive(0xd800_0000_0000_0000, 0, &data));
        }
    }

    #[test]
    fn the_checksum_is_rfc_1071s_example() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Algorithm::Checksum16.compute(&data), u64::from(!0xddf2_u16));
        assert_eq!(Algorithm::Checksum16.compute(&[0xff]), u64::from(!0xff00_u16));
    }

    #[test]
    fn identity_and_xor_take_bytes_in_network_order() {
        assert_eq!(Algorithm::Identity.compute(&[1, 2, 3]), 0x01_0203);
        assert_eq!(Algorithm::Identity.compute(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), 0x0102_0304_0506_0708);
        assert_eq!(Algorithm::Xor16.compute(&[0xab, 0xcd, 0x12]), 0xabcd ^ 0x1200);
        assert_eq!(Algorithm::Xor32.compute(&[1, 2, 3, 4, 5]), 0x0102_0304 ^ 0x0500_0000);
    }
}
