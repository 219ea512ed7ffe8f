// SPDX-License-Identifier: Apache-2.0
//! Bit strings: reading fields out of packets, writing them back, and converting between
//! hexadecimal strings, big-endian bytes and the little-endian 64-bit limbs that field values are
//! kept in.

/// Limbs that a value of `width` bits takes.
#[inline]
pub(super) fn limbs_for(width: u32) -> usize {
    (width.max(1)).div_ceil(64) as usize
}

/// All ones in the low `width` bits, saturating at 64.
#[inline]
pub(super) fn mask64(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// All ones in the low `width` bits, saturating at 128.
#[inline]
pub(super) fn mask128(width: u32) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

/// Clears the bits above `width` in the value's top limb.
pub(super) fn trim(limbs: &mut [u64], width: u32) {
    if let Some(top) = limbs.last_mut() {
        let rest = width % 64;
        if rest != 0 {
            *top &= mask64(rest);
        }
    }
}

/// Reads up to 64 bits, most significant first, at a bit offset. Bits beyond the data read as 0.
#[inline]
pub(super) fn read_u64(data: &[u8], bit_offset: usize, width: u32) -> u64 {
    if width == 0 {
        return 0;
    }
    let byte = bit_offset / 8;
    let shift = (bit_offset % 8) as u32;
    if shift + width <= 64
        && let Some(&window) = data.get(byte..).and_then(|rest| rest.first_chunk::<8>())
    {
        return (u64::from_be_bytes(window) << shift) >> (64 - width);
    }
    let bytes = (shift + width).div_ceil(8) as usize;
    let mut window = 0u128;
    for index in byte..byte + bytes {
        window = window << 8 | u128::from(data.get(index).copied().unwrap_or(0));
    }
    (window >> (bytes as u32 * 8 - shift - width)) as u64 & mask64(width)
}

/// Reads `width` bits at a bit offset into limbs.
pub(super) fn read_limbs(data: &[u8], bit_offset: usize, width: u32, limbs: &mut [u64]) {
    let mut end = bit_offset + width as usize;
    let mut left = width;
    for limb in limbs {
        let take = left.min(64);
        end -= take as usize;
        *limb = read_u64(data, end, take);
        left -= take;
    }
}

/// Appends bit fields to a byte buffer, most significant bit first. [`finish`](Self::finish) pads
/// the last byte with zeros; without it the last bits are lost.
pub(super) struct BitWriter<'a> {
    buffer: &'a mut Vec<u8>,
    /// Bits not yet in the buffer, in the low end.
    pending: u64,
    /// How many: always below 64.
    bits: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(buffer: &'a mut Vec<u8>) -> Self {
        Self { buffer, pending: 0, bits: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, value: u64, width: u32) {
        let value = value & mask64(width);
        let bits = self.bits + width;
        if bits < 64 {
            self.pending = self.pending << width | value;
            self.bits = bits;
            return;
        }
        let rest = bits - 64;
        let window = (u128::from(self.pending) << width | u128::from(value)) >> rest;
        self.buffer.extend_from_slice(&(window as u64).to_be_bytes());
        self.pending = value & mask64(rest);
        self.bits = rest;
    }

    /// Writes what is left of the last bytes.
    pub(super) fn finish(self) {
        if self.bits > 0 {
            let bytes = (self.pending << (64 - self.bits)).to_be_bytes();
            self.buffer.extend_from_slice(&bytes[..self.bits.div_ceil(8) as usize]);
        }
    }

    pub(super) fn push_limbs(&mut self, limbs: &[u64], width: u32) {
        let mut left = width;
        for &limb in limbs[..limbs_for(width).min(limbs.len())].iter().rev() {
            let take = match left % 64 {
                0 => left.min(64),
                rest => rest,
            };
            self.push(limb, take);
            left -= take;
        }
    }
}

/// Big-endian bytes as limbs; fails where the value needs more than `width` bits.
pub(super) fn limbs_from_bytes(bytes: &[u8], width: u32) -> Option<Vec<u64>> {
    let mut limbs = vec![0; limbs_for(width)];
    for (index, &byte) in bytes.iter().rev().enumerate() {
        if byte == 0 {
            continue;
        }
        *limbs.get_mut(index / 8)? |= u64::from(byte) << (index % 8 * 8);
    }
    let mut trimmed = limbs.clone();
    trim(&mut trimmed, width);
    (width > 0 && trimmed == limbs).then_some(limbs)
}

/// Limbs as canonical big-endian bytes: no leading zeros, at least one byte.
pub(super) fn bytes_from_limbs(limbs: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = limbs.iter().rev().flat_map(|limb| limb.to_be_bytes()).collect();
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count().min(bytes.len().saturating_sub(1));
    bytes.drain(..zeros);
    bytes
}

/// A hexadecimal string of the JSON, such as `0x0800` or `-0x1`: its sign and big-endian bytes.
pub(super) fn parse_hex(text: &str) -> Option<(bool, Vec<u8>)> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    };
    let digits = digits.as_bytes();
    let (odd, even) = digits.split_at(digits.len() % 2);
    let mut bytes: Vec<u8> = odd.iter().map(|&digit| nibble(digit)).collect();
    bytes.extend(even.chunks_exact(2).map(|two| nibble(two[0]) << 4 | nibble(two[1])));
    Some((negative, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One bit at a time, the way the definition reads.
    fn naive_read(data: &[u8], bit_offset: usize, width: u32) -> u64 {
        (bit_offset..bit_offset + width as usize).fold(0, |value, bit| {
            let byte = data.get(bit / 8).copied().unwrap_or(0);
            value << 1 | u64::from(byte >> (7 - bit % 8) & 1)
        })
    }

    proptest::proptest! {
        #[test]
        fn a_field_reads_the_same_as_bit_by_bit(
            data in proptest::collection::vec(0u8.., 0..24), offset in 0usize..100, width in 1u32..=64,
        ) {
            proptest::prop_assert_eq!(read_u64(&data, offset, width), naive_read(&data, offset, width));
        }

        #[test]
        fn what_is_written_reads_back(fields in proptest::collection::vec((0u64.., 1u32..=64), 1..12)) {
            let mut buffer = Vec::new();
            let mut writer = BitWriter::new(&mut buffer);
            for &(value, width) in &fields {
                writer.push(value, width);
            }
            writer.finish();
            let mut offset = 0;
            for &(value, width) in &fields {
                proptest::prop_assert_eq!(read_u64(&buffer, offset, width), value & mask64(width));
                offset += width as usize;
            }
            proptest::prop_assert_eq!(buffer.len(), offset.div_ceil(8));
        }

        #[test]
        fn wide_fields_keep_their_bits(data in proptest::collection::vec(0u8.., 48), lead in 0u32..8, width in 65u32..=320) {
            let mut limbs = vec![0; limbs_for(width)];
            read_limbs(&data, lead as usize, width, &mut limbs);
            let mut buffer = Vec::new();
            let mut writer = BitWriter::new(&mut buffer);
            writer.push(read_u64(&data, 0, lead), lead);
            writer.push_limbs(&limbs, width);
            writer.finish();
            let bits = (lead + width) as usize;
            for bit in (0..bits).step_by(7) {
                let take = (bits - bit).min(7) as u32;
                proptest::prop_assert_eq!(read_u64(&buffer, bit, take), read_u64(&data, bit, take));
            }
        }
    }

    #[test]
    fn hexadecimal_strings_have_signs_and_odd_lengths() {
        assert_eq!(parse_hex("0xabc"), Some((false, vec![0x0a, 0xbc])));
        assert_eq!(parse_hex("-0x01"), Some((true, vec![1])));
        assert_eq!(parse_hex("0x"), None);
        assert_eq!(parse_hex("12g4"), None);
    }

    #[test]
    fn bytes_that_need_more_bits_than_the_field_are_refused() {
        assert_eq!(limbs_from_bytes(&[0, 0, 1, 0xff], 9), Some(vec![0x1ff]));
        assert_eq!(limbs_from_bytes(&[2, 0xff], 9), None);
        assert_eq!(limbs_from_bytes(&[1; 9], 64), None);
        assert_eq!(limbs_from_bytes(&[], 8), Some(vec![0]));
        assert_eq!(bytes_from_limbs(&[0, 1]), vec![1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes_from_limbs(&[0]), vec![0]);
    }
}
