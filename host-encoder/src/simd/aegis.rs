// SPDX-License-Identifier: Apache-2.0
//! AEGISMAC-128L (RFC 10032, sections 3.3 to 3.5 and 8.1) of two packets at once, with VAES.
//!
//! Each update of a state has to wait for the one before. In the lower and the upper halves of
//! vectors two states take as long as one.

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_aesenc_epi128, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_permute2x128_si256, _mm256_set_epi64x, _mm256_set_m128i, _mm256_storeu_si256, _mm256_xor_si256,
};

/// Bytes that an update takes in.
const RATE: usize = 32;
/// Bits of the whole tag, of which packets carry the first half.
const TAG_BITS: i64 = 128;
/// The RFC's C0 and C1: the Fibonacci sequence modulo 256.
const CONSTANTS: [[u8; 16]; 2] = {
    let (mut constants, mut at, mut pair) = ([[0; 16]; 2], 0, (0u8, 1u8));
    while at < 32 {
        constants[at / 16][at % 16] = pair.0;
        pair = (pair.1, pair.0.wrapping_add(pair.1));
        at += 1;
    }
    constants
};

/// The proof that the machine has AVX2 and VAES.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vaes(());

impl Vaes {
    #[inline]
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vaes")).then_some(Self(()))
    }

    /// Begins with two packets; `nonces` are their first bytes.
    #[inline]
    pub(crate) fn start(self, key: &[u8; 16], nonces: [&[u8; 16]; 2]) -> Macs {
        let Self(()) = self;
        // SAFETY: `self` exists only where the features were detected.
        unsafe { start(key, nonces) }
    }
}

/// The states of two packets' MACs: only [`Vaes::start`] makes them.
#[derive(Clone, Copy)]
pub(crate) struct Macs {
    state: [__m256i; 8],
    /// Bytes taken in, in whole updates.
    taken: usize,
}

impl Macs {
    /// The first halves of the tags of both packets' first `length` bytes. Calls come in ascending
    /// order of lengths.
    #[inline]
    pub(crate) fn tags(&mut self, packets: [&[u8]; 2], length: usize) -> [[u8; 8]; 2] {
        // SAFETY: `self` exists only where the features were detected.
        unsafe { tags(self, packets.map(|packet| &packet[..length])) }
    }
}

#[target_feature(enable = "avx2,vaes")]
fn start(key: &[u8; 16], nonces: [&[u8; 16]; 2]) -> Macs {
    // SAFETY: all are sixteen bytes.
    let load = |bytes: &[u8; 16]| unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    let both = |bytes| _mm256_broadcastsi128_si256(load(bytes));
    let (key, nonce) = (both(key), _mm256_set_m128i(load(nonces[1]), load(nonces[0])));
    let [c0, c1] = [both(&CONSTANTS[0]), both(&CONSTANTS[1])];
    let first = _mm256_xor_si256(key, nonce);
    let with = |c| _mm256_xor_si256(key, c);
    let mut state = [first, c1, c0, c1, first, with(c0), with(c1), with(c0)];
    for _ in 0..10 {
        state = updated(state, nonce, key);
    }
    Macs { state, taken: 0 }
}

#[target_feature(enable = "avx2,vaes")]
#[inline]
fn updated(s: [__m256i; 8], a: __m256i, b: __m256i) -> [__m256i; 8] {
    [
        _mm256_aesenc_epi128(s[7], _mm256_xor_si256(s[0], a)),
        _mm256_aesenc_epi128(s[0], s[1]),
        _mm256_aesenc_epi128(s[1], s[2]),
        _mm256_aesenc_epi128(s[2], s[3]),
        _mm256_aesenc_epi128(s[3], _mm256_xor_si256(s[4], b)),
        _mm256_aesenc_epi128(s[4], s[5]),
        _mm256_aesenc_epi128(s[5], s[6]),
        _mm256_aesenc_epi128(s[6], s[7]),
    ]
}

#[target_feature(enable = "avx2,vaes")]
#[inline]
fn absorbed(state: [__m256i; 8], first: &[u8; RATE], second: &[u8; RATE]) -> [__m256i; 8] {
    // SAFETY: both are as long as a vector.
    let load = |bytes: &[u8; RATE]| unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
    let (first, second) = (load(first), load(second));
    let (a, b) =
        (_mm256_permute2x128_si256::<0x20>(first, second), _mm256_permute2x128_si256::<0x31>(first, second));
    updated(state, a, b)
}

/// Of all of both packets, which are as long as each other.
#[target_feature(enable = "avx2,vaes")]
fn tags(macs: &mut Macs, packets: [&[u8]; 2]) -> [[u8; 8]; 2] {
    let bits = 8 * packets[0].len() as i64;
    let [(first, rest), (second, second_rest)] =
        packets.map(|packet| packet[macs.taken..].as_chunks::<RATE>());
    let mut state = macs.state;
    for (first, second) in first.iter().zip(second) {
        state = absorbed(state, first, second);
    }
    (macs.state, macs.taken) = (state, packets[0].len() - rest.len());
    if !rest.is_empty() {
        let mut padded = [[0; RATE]; 2];
        padded[0][..rest.len()].copy_from_slice(rest);
        padded[1][..rest.len()].copy_from_slice(second_rest);
        state = absorbed(state, &padded[0], &padded[1]);
    }
    let lengths = _mm256_xor_si256(state[2], _mm256_set_epi64x(TAG_BITS, bits, TAG_BITS, bits));
    for _ in 0..7 {
        state = updated(state, lengths, lengths);
    }
    let mut tag = state[0];
    for part in &state[1..7] {
        tag = _mm256_xor_si256(tag, *part);
    }
    let mut bytes = [[0; 8]; 4];
    // SAFETY: these are 32 bytes.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), tag) };
    [bytes[0], bytes[2]]
}
