//! BMv2's named hash and checksum algorithms, all from bytes to an unsigned 64-bit number.

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
}

impl Algorithm {
    /// The algorithm of that BMv2 name. The `_custom` CRCs have their default parameters: reconfiguring them is a
    /// Thrift-only feature of BMv2.
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
        }
    }
}

/// The chunk as a big-endian number of `width` bytes, padded with zeros at its end.
fn big_endian(chunk: &[u8], width: usize) -> u64 {
    (0..width).fold(0, |sum, index| sum << 8 | u64::from(chunk.get(index).copied().unwrap_or(0)))
}

/// RFC 1071.
fn internet_checksum(data: &[u8]) -> u16 {
    let (words, rest) = data.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|&word| u64::from(u32::from_be_bytes(word))).sum();
    sum += big_endian(rest, 4);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The remainders of all bytes for a reflected CRC.
const fn reflected_table(polynomial: u64) -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 != 0 { remainder >> 1 ^ polynomial } else { remainder >> 1 };
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
}

const CRC16: [u64; 256] = reflected_table(0xa001);
const CRC32: [u64; 256] = reflected_table(0xedb8_8320);
/// BMv2's default for `crc64_custom`: x^64 + x^4 + x^3 + x + 1, reflected.
const CRC64: [u64; 256] = reflected_table(0xd800_0000_0000_0000);

fn reflected_crc(table: &[u64; 256], initial: u64, data: &[u8]) -> u64 {
    data.iter().fold(initial, |crc, &byte| table[(crc as u8 ^ byte) as usize] ^ crc >> 8)
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

fn crc8(data: &[u8]) -> u8 {
    let step = |crc: u8| if crc & 0x80 != 0 { crc << 1 ^ 0x07 } else { crc << 1 };
    data.iter().fold(0, |crc, &byte| (0..8).fold(crc ^ byte, |crc, _| step(crc)))
}

fn crc16_ccitt(data: &[u8]) -> u16 {
    let step = |crc: u16| if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 };
    data.iter().fold(0xffff, |crc, &byte| (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| step(crc)))
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
