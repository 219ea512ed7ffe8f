//! The code words of a row, joined from planes as its packets arrive.
//!
//! Joining is a receiver's share of the work that needs the packet: it is done while the packet is in the cache, and
//! whoever waits for the last packet finds only the words to be decoded.

use crate::codec::Codec;
use crate::packet::BLOCK;
use crate::scratch::{AlignedRow, with_scratch};
use crate::simd::{Isa, Kernel, Lanes, Split};
use std::ops::Range;

/// The code words of a row (docs/wire-format.md §4). Bits that are not held are zero, in packets of which anything is held.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowWords {
    words: AlignedRow<u32>,
    /// The thirty-third bits of codecs that have them, 32 coordinates in each.
    last: Vec<u32>,
}

impl RowWords {
    /// Makes room for a row of `length` coordinates of a message whose longest has `longest`. What is there means nothing.
    pub(crate) fn prepare(&mut self, codec: Codec, length: usize, longest: usize) {
        // As much for every row, so that any row's room does for any other's.
        for length in [longest, length] {
            self.words.of(length);
            self.last.resize(if codec.planes() > 11 { length / BLOCK } else { 0 }, 0);
        }
    }

    /// A packet's words.
    pub(crate) fn of(&self, place: Range<usize>) -> Words<'_> {
        Words {
            last: self.last.get(place.start / BLOCK..place.end / BLOCK).unwrap_or_default(),
            words: self.words.get().get(place).unwrap_or_default(),
        }
    }

    /// The same, to be written.
    #[inline]
    pub(crate) fn of_mut(&mut self, place: Range<usize>) -> WordsMut<'_> {
        WordsMut {
            last: self.last.get_mut(place.start / BLOCK..place.end / BLOCK).unwrap_or_default(),
            words: self.words.get_mut().get_mut(place).unwrap_or_default(),
        }
    }
}

/// A packet's code words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) words: &'a [u32],
    /// Empty where the codec has no thirty-third bits.
    pub(crate) last: &'a [u32],
}

impl Words<'_> {
    /// The words behind the first `blocks` blocks.
    #[inline(always)]
    pub(crate) fn skip_blocks(self, blocks: usize) -> Self {
        Self { words: &self.words[BLOCK * blocks..], last: self.last.get(blocks..).unwrap_or_default() }
    }
}

/// A packet's code words, to be written.
#[derive(Debug)]
pub(crate) struct WordsMut<'a> {
    words: &'a mut [u32],
    last: &'a mut [u32],
}

impl WordsMut<'_> {
    /// Replaces the words by those of a body that begins with plane 0, with zeros for what it lacks.
    #[inline]
    pub(crate) fn join(&mut self, isa: Isa, codec: Codec, body: &[u8]) {
        let n = self.words.len();
        if codec == Codec::Rht && n >= 8 * BLOCK && body.len() == codec.body_len(n) {
            isa.run(JoinEights { body, words: self.words });
        } else {
            self.join_part(isa, codec, body);
        }
    }

    #[inline(never)]
    fn join_part(&mut self, isa: Isa, codec: Codec, body: &[u8]) {
        let Self { words, last } = self;
        if codec == Codec::Raw {
            let (whole, rest) = body.as_chunks::<4>();
            let rest =
                rest.iter().zip([24, 16, 8]).fold(0, |word, (byte, shift)| word | u32::from(*byte) << shift);
            let there = whole.iter().map(|bytes| u32::from_be_bytes(*bytes)).chain([rest]);
            let all = there.chain(std::iter::repeat(0));
            words.iter_mut().zip(all).for_each(|(word, value)| *word = value);
            return;
        }
        let n = words.len();
        if codec == Codec::Rht && n >= 8 * BLOCK {
            if body.len() == n {
                isa.run(JoinEights { body, words });
            } else {
                let whole = if body.len() > n { codec.body_len(n) } else { n };
                with_scratch(|scratch| {
                    let padded = &mut scratch.body;
                    padded.clear();
                    padded.extend_from_slice(body);
                    padded.resize(whole, 0);
                    isa.run(JoinEights { body: padded, words });
                });
            }
        } else {
            isa.run(JoinBlocks { body, planes: codec.planes().min(11), words });
        }
        let start = codec.plane_offset(11, n);
        for (block, bits) in last.iter_mut().enumerate() {
            *bits = bits_at(body, start + 4 * block);
        }
    }

    /// Adds bytes `range` of a plane whose beginning is `bytes`. Words have zeros for them so far.
    pub(crate) fn add(&mut self, codec: Codec, plane: u8, range: Range<usize>, bytes: &[u8]) {
        for at in range {
            let byte = bytes.get(at).copied().unwrap_or_default();
            match plane {
                _ if codec == Codec::Raw => {
                    if let Some(word) = self.words.get_mut(at / 4) {
                        *word |= u32::from(byte) << (24 - 8 * (at % 4));
                    }
                }
                0..8 => {
                    let words = self.words.get_mut(8 * at..8 * at + 8).unwrap_or_default();
                    for (bit, word) in words.iter_mut().enumerate() {
                        *word |= u32::from(byte >> bit & 1) << (31 - plane);
                    }
                }
                8..11 => {
                    if let Some(word) = self.words.get_mut(at) {
                        *word |= u32::from(byte) << (8 * (10 - plane));
                    }
                }
                _ => {
                    if let Some(bits) = self.last.get_mut(at / 4) {
                        *bits |= u32::from(byte) << (8 * (at % 4));
                    }
                }
            }
        }
    }
}

/// Four bytes of a bit-plane, as far as they are there.
#[inline(always)]
fn bits_at(body: &[u8], at: usize) -> u32 {
    let rest = body.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u32::from_le_bytes(*bytes),
        None => rest.iter().rev().fold(0, |bits, byte| bits << 8 | u32::from(*byte)),
    }
}

/// 32 bytes of a body from `at` on, with zeros for those that it lacks.
#[inline(always)]
fn bytes_at(body: &[u8], at: usize) -> [u8; BLOCK] {
    let rest = body.get(at..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk() {
        return *bytes;
    }
    let mut bytes = [0; BLOCK];
    // All or nothing is the rule; a copy of nothing would still be a call.
    if !rest.is_empty() {
        bytes[..rest.len()].copy_from_slice(rest);
    }
    bytes
}

/// Joins a body of rht, of eight blocks or more, that is whole or ends with the bit-planes.
struct JoinEights<'a> {
    body: &'a [u8],
    words: &'a mut [u32],
}

impl Kernel for JoinEights<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Self { body, words } = self;
        let n = words.len();
        let (bits, bytes) = body.split_at(n);
        let (b, c) = bytes.split_at(n.min(bytes.len()));
        let (b, c) = (b.as_chunks::<BLOCK>().0, c.as_chunks::<BLOCK>().0);
        let words = words.as_chunks_mut::<BLOCK>().0;
        let (mut upper, mut block) = ([[0; BLOCK]; 8], 0);
        while block < words.len() {
            // Eight blocks at a time, the last ones together with some that are done already.
            let first = block.min(words.len() - 8);
            lanes.turn(bits, 4 * first, &mut upper);
            let pieces = upper[block - first..].iter().zip(&mut words[block..]);
            if bytes.is_empty() {
                for (upper, words) in pieces {
                    lanes.words(upper, [&[0; BLOCK]; 2], words);
                }
            } else {
                for ((upper, words), (b, c)) in pieces.zip(b[block..].iter().zip(&c[block..])) {
                    lanes.words(upper, [b, c], words);
                }
            }
            block = first + 8;
        }
    }
}

/// Joins as much of a body as there is.
struct JoinBlocks<'a> {
    body: &'a [u8],
    planes: u8,
    words: &'a mut [u32],
}

impl Kernel for JoinBlocks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Self { body, planes, words } = self;
        let n = words.len();
        let mut split = Split::ZERO;
        for (block, words) in words.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            for (plane, bits) in split.bits.iter_mut().enumerate() {
                *bits = bits_at(body, plane * (n / 8) + 4 * block);
            }
            for (plane, bytes) in split.bytes.iter_mut().enumerate().take(usize::from(planes) - 8) {
                *bytes = bytes_at(body, (plane + 1) * n + BLOCK * block);
            }
            lanes.join(&split, words);
        }
    }
}
