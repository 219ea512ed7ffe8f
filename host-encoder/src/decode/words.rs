// SPDX-License-Identifier: Apache-2.0
//! The code words of a row, joined from planes as its packets arrive.
//!
//! Joining is a receiver's share of the work that needs the packet: it is done while the packet is
//! in the cache, and whoever waits for the last packet finds only the words to be decoded.

use crate::aligned::AlignedRow;
use crate::scratch::with_scratch;
use crate::simd::{Isa, Kernel, Planes};
use crate::wire::zeros::{read_bits, read_mask};
use crate::wire::{BLOCK, Codec};
use std::ops::Range;

/// The code words of a row (docs/reference/wire-format.md §4). Bits that are not held are zero, in
/// packets of which anything is held.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowWords {
    words: AlignedRow<u32>,
    /// Which blocks of the row are zero, where a packet's [`super::precision::Precision`] says that
    /// this is known.
    zeros: Vec<bool>,
}

impl RowWords {
    /// Makes room for a row of `length` coordinates. What is there means nothing.
    pub(crate) fn prepare(&mut self, length: usize) {
        self.words.of(length);
        self.zeros.resize(length / BLOCK, false);
    }

    /// A packet's words.
    pub(crate) fn of(&self, place: Range<usize>) -> &[u32] {
        self.words.get().get(place).unwrap_or_default()
    }

    /// A packet's words, for the planes that arrive.
    #[inline]
    pub(crate) fn packet(&mut self, place: Range<usize>) -> WordsMut<'_> {
        let zeros = self.zeros.get_mut(place.start / BLOCK..place.end / BLOCK).unwrap_or_default();
        WordsMut { words: self.words.get_mut().get_mut(place).unwrap_or_default(), zeros }
    }

    /// Which blocks of a packet are zero.
    pub(crate) fn zeros(&self, place: Range<usize>) -> &[bool] {
        self.zeros.get(place.start / BLOCK..place.end / BLOCK).unwrap_or_default()
    }
}

/// A packet's code words, to be written.
#[derive(Debug)]
pub(crate) struct WordsMut<'a> {
    words: &'a mut [u32],
    zeros: &'a mut [bool],
}

impl WordsMut<'_> {
    /// Nothing is held.
    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Takes the header's bits of zero blocks.
    #[inline]
    pub(crate) fn zeros_of(&mut self, bits: u16) {
        read_bits(bits, self.zeros);
    }

    /// Replaces the words by those of a body of rht that begins with plane 0, with zeros for what
    /// it lacks.
    #[inline]
    pub(crate) fn join(&mut self, isa: Isa, body: &[u8]) {
        let n = self.words.len();
        let (mask, body) = body.split_at(Codec::Rht.mask_len(n).min(body.len()));
        read_mask(mask, 0, self.zeros);
        // Eight bit-planes are as many bytes as coordinates, and so is each byte-plane.
        if n >= 8 * BLOCK && [n, 2 * n, 3 * n].contains(&body.len()) {
            isa.run(Join { body, words: self.words });
        } else {
            self.join_part(isa, body);
        }
    }

    /// Fills a body up to whole planes and eight blocks.
    #[inline(never)]
    fn join_part(&mut self, isa: Isa, body: &[u8]) {
        let n = self.words.len();
        let (blocks, whole) = (n.max(8 * BLOCK), if body.len() > n { 3 } else { 1 });
        with_scratch(|scratch| {
            let padded = &mut scratch.body;
            padded.clear();
            padded.resize(whole * blocks, 0);
            let mut rest = body;
            for (plane, bits) in (0..).zip(Codec::Rht.plane_bits()) {
                let (bytes, tail) = rest.split_at(rest.len().min(usize::from(*bits) * n / 8));
                let at = Codec::Rht.bits(plane) * (blocks / 8);
                if let Some(to) = padded.get_mut(at..at + bytes.len()) {
                    to.copy_from_slice(bytes);
                }
                rest = tail;
            }
            if n >= 8 * BLOCK {
                isa.run(Join { body: padded, words: self.words });
            } else {
                let mut words = [0; 8 * BLOCK];
                isa.run(Join { body: padded, words: &mut words });
                self.words.copy_from_slice(&words[..n]);
            }
        });
    }

    /// Adds bytes `range` of a plane whose beginning is `bytes`. Words have zeros for them so far.
    pub(crate) fn add(&mut self, isa: Isa, codec: Codec, plane: u8, range: Range<usize>, bytes: &[u8]) {
        if codec == Codec::Raw {
            return self.add_raw(isa, range, bytes);
        }
        let mask = if plane == 0 { codec.mask_len(self.words.len()) } else { 0 };
        for at in range {
            let byte = bytes.get(at).copied().unwrap_or_default();
            let Some(at) = at.checked_sub(mask) else {
                read_mask(&[byte], at, self.zeros);
                continue;
            };
            let byte = u32::from(byte);
            match plane {
                0..8 => {
                    let words = self.words.get_mut(8 * at..8 * at + 8).unwrap_or_default();
                    for (bit, word) in words.iter_mut().enumerate() {
                        *word |= (byte >> bit & 1) << (31 - plane);
                    }
                }
                _ => {
                    if let Some(word) = self.words.get_mut(at) {
                        *word |= byte << (8 * (10 - plane));
                    }
                }
            }
        }
    }

    /// Likewise of raw, whose only plane are the words.
    #[inline]
    pub(crate) fn add_raw(&mut self, isa: Isa, range: Range<usize>, bytes: &[u8]) {
        let (whole, _) = bytes.as_chunks();
        let mut start = range.start;
        if start == 0 {
            isa.run(Swap { bytes: whole, words: self.words });
            start = 4 * whole.len();
        }
        for at in start..range.end {
            let byte = bytes.get(at).copied().unwrap_or_default();
            if let Some(word) = self.words.get_mut(at / 4) {
                *word |= u32::from(byte) << (24 - 8 * (at % 4));
            }
        }
    }
}

/// Big-endian words to this machine's.
struct Swap<'a> {
    bytes: &'a [[u8; 4]],
    words: &'a mut [u32],
}

impl Kernel for Swap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, _: L) {
        self.words.iter_mut().zip(self.bytes).for_each(|(word, bytes)| *word = u32::from_be_bytes(*bytes));
    }
}

/// What is not held of a block's byte-plane.
const NONE: [u8; BLOCK] = [0; BLOCK];

/// Joins a body of eight blocks or more that ends with the bit-planes, or with a byte-plane.
struct Join<'a> {
    body: &'a [u8],
    words: &'a mut [u32],
}

impl Kernel for Join<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
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
            let (mut b, mut c) =
                (b.get(block..).unwrap_or_default().iter(), c.get(block..).unwrap_or_default().iter());
            for (upper, words) in pieces {
                lanes.words(upper, [b.next().unwrap_or(&NONE), c.next().unwrap_or(&NONE)], words);
            }
            block = first + 8;
        }
    }
}
