// SPDX-License-Identifier: Apache-2.0
//! How a header's fields lie in packets: split into words of whole bytes, each of which is read and
//! written at once.

use super::layout::Field;

/// Bits that a word has at most.
const WORD: u32 = 64;

/// Some of a field's bits, in one limb: where they lie in a window of 64 bits that begins with the
/// word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) limb: u32,
    pub(super) shift: u8,
    /// How many of 64 bits the part leaves out.
    pub(super) drop: u8,
}

/// Whole bytes of a header, at most eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    byte: u32,
    /// The first part, and one behind the last.
    first: u32,
    end: u32,
    /// The bits of a window that lie behind it.
    behind: u64,
}

/// The words of a header without a variable length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    list: Box<[Word]>,
    parts: Box<[Part]>,
    bytes: usize,
}

impl Words {
    /// `None` where the length varies, or no word of 64 bits ends with both a byte and a part.
    pub(super) fn plan<'a>(fields: impl IntoIterator<Item = &'a Field>) -> Option<Self> {
        // Limbs and their widths, in the order of the packet.
        let mut limbs: Vec<(u32, u32)> = Vec::new();
        for field in fields {
            if field.varbit {
                return None;
            }
            let mut left = field.slot.width;
            for limb in field.slot.limbs().rev() {
                let width = if left % 64 == 0 { left.min(64) } else { left % 64 };
                limbs.push((limb as u32, width));
                left -= width;
            }
        }
        let (mut words, mut parts) = (Vec::new(), Vec::new());
        let (mut rest, mut bits) = (&limbs[..], 0);
        while !rest.is_empty() {
            // As many parts as end with a byte within a word.
            let ends = rest.iter().scan(0, |end, (_, width)| {
                *end += width;
                Some(*end)
            });
            let count = (1..).zip(ends.take_while(|end| *end <= WORD)).filter(|(_, end)| end % 8 == 0).last();
            let (count, width) = count?;
            let (here, behind) = rest.split_at(count);
            let first = parts.len() as u32;
            let mut end = 0;
            for &(limb, width) in here {
                end += width;
                parts.push(Part { limb, shift: (WORD - end) as u8, drop: (WORD - width) as u8 });
            }
            let left = u64::MAX.checked_shr(width).unwrap_or(0);
            words.push(Word { byte: bits / 8, first, end: parts.len() as u32, behind: left });
            bits += width;
            rest = behind;
        }
        Some(Self { list: words.into(), parts: parts.into(), bytes: bits as usize / 8 })
    }

    /// Where each word begins, its bytes, and what is in the eight bytes from its beginning on.
    #[cfg(feature = "native")]
    pub(super) fn windows(&self) -> impl Iterator<Item = (u32, u32, &[Part])> {
        self.list.iter().map(|word| {
            let parts = &self.parts[word.first as usize..word.end as usize];
            (word.byte, 8 - word.behind.count_ones() / 8, parts)
        })
    }

    /// The fields of a header at the beginning of `data`.
    #[inline]
    pub(super) fn read(&self, phv: &mut [u64], data: &[u8]) {
        for word in &self.list {
            let window = window(data, word.byte as usize);
            for part in &self.parts[word.first as usize..word.end as usize] {
                phv[part.limb as usize] = window >> (part.shift & 63) & u64::MAX >> (part.drop & 63);
            }
        }
    }

    /// A word's fields, with zeros behind them.
    #[inline]
    fn window(&self, phv: &[u64], word: &Word) -> u64 {
        let mut window = 0;
        for part in &self.parts[word.first as usize..word.end as usize] {
            window |= (phv[part.limb as usize] & u64::MAX >> (part.drop & 63)) << (part.shift & 63);
        }
        window
    }

    /// Appends the header.
    #[inline]
    pub(super) fn write(&self, phv: &[u64], out: &mut Vec<u8>) {
        let start = out.len();
        // Room for the last word's window, of which more than the header is left out.
        out.resize(start + self.bytes + 8, 0);
        let header = &mut out[start..];
        for word in &self.list {
            if let Some(bytes) = header.get_mut(word.byte as usize..).and_then(<[u8]>::first_chunk_mut) {
                *bytes = self.window(phv, word).to_be_bytes();
            }
        }
        out.truncate(start + self.bytes);
    }

    /// Writes the header over the beginning of `data` and leaves what is behind it; `false` where
    /// it is longer.
    #[inline]
    pub(super) fn overwrite(&self, phv: &[u64], data: &mut [u8]) -> bool {
        if data.len() < self.bytes {
            return false;
        }
        for word in &self.list {
            let window = self.window(phv, word);
            let Some(rest) = data.get_mut(word.byte as usize..) else { return false };
            if let Some(bytes) = rest.first_chunk_mut() {
                let behind = u64::from_be_bytes(*bytes) & word.behind;
                *bytes = (window | behind).to_be_bytes();
            } else {
                let length = 8 - word.behind.count_ones() as usize / 8;
                rest.iter_mut().zip(&window.to_be_bytes()[..length]).for_each(|(byte, own)| *byte = *own);
            }
        }
        true
    }

    /// Bytes of the header.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The eight bytes from `at` on; those beyond the data are 0.
#[inline]
fn window(data: &[u8], at: usize) -> u64 {
    let rest = data.get(at..).unwrap_or(&[]);
    if let Some(window) = rest.first_chunk() {
        return u64::from_be_bytes(*window);
    }
    let mut window = [0; 8];
    window[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(window)
}

#[cfg(test)]
mod tests {
    use super::super::bits::{BitWriter, limbs_for, read_limbs, read_u64};
    use super::super::layout::Slot;
    use super::*;

    fn fields(widths: &[u32]) -> Vec<Field> {
        let mut at = 0;
        let field = |&width: &u32| {
            let slot = Slot { at, width, signed: false };
            at += limbs_for(width) as u32;
            Field { name: String::new(), slot, varbit: false }
        };
        widths.iter().map(field).collect()
    }

    proptest::proptest! {
        /// Field by field at bit offsets is the definition.
        #[test]
        fn words_read_and_write_what_field_by_field_gives(
            widths in proptest::collection::vec(1u32..=150, 1..12), data in proptest::collection::vec(0u8.., 0..200),
        ) {
            let total: u32 = widths.iter().sum();
            let widths: Vec<u32> = widths.into_iter().chain([8 - total % 8]).collect();
            let bytes = widths.iter().sum::<u32>() as usize / 8;
            let fields = fields(&widths);
            let Some(words) = Words::plan(&fields) else { return Ok(()) };
            proptest::prop_assume!(data.len() >= bytes);
            let limbs = fields.iter().map(|field| limbs_for(field.slot.width)).sum();
            let (mut phv, mut expected) = (vec![u64::MAX; limbs], vec![0; limbs]);
            words.read(&mut phv, &data);
            let mut offset = 0;
            for Field { slot, .. } in &fields {
                match slot.width {
                    0..=64 => expected[slot.at as usize] = read_u64(&data, offset, slot.width),
                    width => read_limbs(&data, offset, width, &mut expected[slot.limbs()]),
                }
                offset += slot.width as usize;
            }
            proptest::prop_assert_eq!(&phv, &expected);
            let (mut written, mut by_bits) = (vec![7], vec![7]);
            words.write(&phv, &mut written);
            let mut writer = BitWriter::new(&mut by_bits);
            fields.iter().for_each(|Field { slot, .. }| writer.push_limbs(&phv[slot.limbs()], slot.width));
            writer.finish();
            proptest::prop_assert_eq!(&written, &by_bits);
            proptest::prop_assert_eq!(&written[1..], &data[..bytes]);
            let mut over: Vec<u8> = data.iter().map(|byte| !byte).collect();
            proptest::prop_assert!(words.overwrite(&phv, &mut over));
            proptest::prop_assert_eq!(&over[..bytes], &data[..bytes]);
            proptest::prop_assert!(over[bytes..].iter().zip(&data[bytes..]).all(|(over, byte)| *over == !byte));
            proptest::prop_assert!(!words.overwrite(&phv, &mut over[..bytes - 1]));
        }
    }

    #[test]
    fn an_ipv4_header_is_three_words_and_an_ipv6_address_two() {
        let ipv4 = Words::plan(&fields(&[4, 4, 6, 2, 16, 16, 1, 1, 1, 13, 8, 8, 16, 32, 32])).unwrap();
        assert_eq!(ipv4.list.iter().map(|word| word.byte).collect::<Vec<_>>(), [0, 8, 16]);
        let address = Words::plan(&fields(&[128])).unwrap();
        assert_eq!(address.list.iter().map(|word| word.byte).collect::<Vec<_>>(), [0, 8]);
        assert_eq!(Words::plan(&fields(&[3, 64, 5])), None);
    }
}
