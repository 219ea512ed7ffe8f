// SPDX-License-Identifier: Apache-2.0
//! A fast hasher with a fixed seed: the same on every machine, and nothing iterates over the maps
//! that use it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from packed keys, for look-ups only.
pub(super) type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<FixedHasher>>;

/// Multiply and rotate, a word at a time.
#[derive(Clone, Default)]
pub(super) struct FixedHasher {
    state: u64,
}

impl Hasher for FixedHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for &word in words {
            self.write_u64(u64::from_le_bytes(word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.state = (self.state.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        // The map uses the low bits for the bucket; the product's best bits are the high ones.
        self.state ^ self.state >> 32
    }
}
