//! Eight lanes with AVX2 and FMA.

use super::{Kernel, Lanes, Split};
use crate::packet::BLOCK;
use std::arch::asm;
use std::arch::x86_64::{
    __m256, __m256i, _mm_loadu_ps, _mm256_add_epi8, _mm256_add_epi32, _mm256_add_ps, _mm256_and_si256,
    _mm256_blend_epi32, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmpgt_epi32, _mm256_cvtepi32_ps,
    _mm256_cvttps_epi32, _mm256_fmadd_ps, _mm256_fmsub_ps, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_max_epu32, _mm256_min_epu32, _mm256_movemask_epi8, _mm256_mul_epu32, _mm256_mul_ps,
    _mm256_or_si256, _mm256_packs_epi16, _mm256_packs_epi32, _mm256_permute_ps, _mm256_permute2f128_ps,
    _mm256_permute2x128_si256, _mm256_permutevar8x32_epi32, _mm256_permutevar8x32_ps, _mm256_set_m128,
    _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_set1_ps, _mm256_setr_epi8,
    _mm256_setr_epi32, _mm256_setr_ps, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi16,
    _mm256_slli_epi64, _mm256_sllv_epi32, _mm256_srli_epi16, _mm256_srli_epi32, _mm256_srli_epi64,
    _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_epi32, _mm256_sub_ps, _mm256_unpackhi_epi8,
    _mm256_unpackhi_epi16, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi8,
    _mm256_unpacklo_epi16, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_ps, _mm256_xor_si256,
};

/// The proof that the machine has AVX2 and FMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }

    /// Runs a kernel in a function that has the features, so that everything inlines into it.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        let Self(()) = self;
        // SAFETY: `self` exists only where the features were detected.
        unsafe { run(kernel) }
    }
}

#[target_feature(enable = "avx2,fma")]
fn run<K: Kernel>(kernel: K) -> K::Output {
    let mut one = _mm256_set1_ps(1.0);
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {} */", inout(ymm_reg) one, options(pure, nomem, nostack, preserves_flags)) };
    kernel.run(Vectors { one })
}

/// Vectors on a machine that has the features: only [`Avx2::run`] makes one.
#[derive(Clone, Copy)]
pub(crate) struct Vectors {
    /// 1 in all lanes, which the compiler does not know: it would turn products by it back into plain sums.
    one: __m256,
}

/// Operations that are one intrinsic.
macro_rules! intrinsics {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty = $term:expr;)+) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $type),*) -> $out {
            // SAFETY: `self` exists only where AVX2 and FMA were detected; arrays have the size of the vectors that are
            // loaded from or stored to them.
            unsafe { $term }
        }
    )+};
}

impl Lanes for Vectors {
    const N: usize = 8;
    type Line = [f32; 8];
    type F = __m256;
    type U = __m256i;

    // Here, and not at `run`: of functions with target features the compiler (1.95) forgets that they are never to be inlined.
    #[inline(never)]
    fn apart<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: see `intrinsics`.
        unsafe { run(kernel) }
    }

    #[inline(always)]
    fn lines(values: &[f32]) -> &[[f32; 8]] {
        values.as_chunks().0
    }

    #[inline(always)]
    fn lines_mut(values: &mut [f32]) -> &mut [[f32; 8]] {
        values.as_chunks_mut().0
    }

    intrinsics! {
        load(line: &[f32; 8]) -> __m256 = _mm256_loadu_ps(line.as_ptr());
        store(line: &mut [f32; 8], v: __m256) -> () = _mm256_storeu_ps(line.as_mut_ptr(), v);
        load_words(words: &[u32; BLOCK], at: usize) -> __m256i
            = _mm256_loadu_si256(words.as_chunks::<8>().0[at].as_ptr().cast());
        store_words(words: &mut [u32; BLOCK], at: usize, v: __m256i) -> ()
            = _mm256_storeu_si256(words.as_chunks_mut::<8>().0[at].as_mut_ptr().cast(), v);
        to_array(v: __m256i, out: &mut [u32; 16]) -> () = _mm256_storeu_si256(out.as_mut_ptr().cast(), v);
        table(table: &[f32; 8]) -> __m256 = _mm256_loadu_ps(table.as_ptr());
        table_u(table: &[u32; 8]) -> __m256i = _mm256_loadu_si256(table.as_ptr().cast());

        splat(value: f32) -> __m256 = _mm256_set1_ps(value);
        add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        bits(v: __m256) -> __m256i = _mm256_castps_si256(v);
        floats(v: __m256i) -> __m256 = _mm256_castsi256_ps(v);
        truncate(v: __m256) -> __m256i = _mm256_cvttps_epi32(v);
        convert(v: __m256i) -> __m256 = _mm256_cvtepi32_ps(v);

        splat_u(value: u32) -> __m256i = _mm256_set1_epi32(value.cast_signed());
        and(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
        or(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
        xor(a: __m256i, b: __m256i) -> __m256i = _mm256_xor_si256(a, b);
        add_u(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
        min_u(a: __m256i, b: __m256i) -> __m256i = _mm256_min_epu32(a, b);
        max_u(a: __m256i, b: __m256i) -> __m256i = _mm256_max_epu32(a, b);
        shift_right_22(v: __m256i) -> __m256i = _mm256_srli_epi32::<22>(v);
        less_where_greater(v: __m256i, a: __m256i, b: __m256i) -> __m256i
            = _mm256_add_epi32(v, _mm256_cmpgt_epi32(a, b));
        lookup(table: __m256, index: __m256i) -> __m256 = _mm256_permutevar8x32_ps(table, index);
        lookup_u(table: __m256i, index: __m256i) -> __m256i = _mm256_permutevar8x32_epi32(table, index);
    }

    #[inline(always)]
    fn butterfly(self, a: __m256, b: __m256) -> (__m256, __m256) {
        // A fused 1 · a − b is rounded once, as the plain difference is, and runs on the multipliers, which the sums leave idle.
        // SAFETY: see `intrinsics`.
        (self.add(a, b), unsafe { _mm256_fmsub_ps(a, self.one, b) })
    }

    #[inline(always)]
    fn load_butterfly_4(self, line: &[f32; 8]) -> __m256 {
        // Both halves twice over, straight from memory: no permutation has to cross the halves.
        // SAFETY: see `intrinsics`; a line holds two times four f32.
        unsafe {
            let signs = _mm256_setr_ps(1., 1., 1., 1., -1., -1., -1., -1.);
            let (low, high) = (_mm_loadu_ps(line.as_ptr()), _mm_loadu_ps(line.as_ptr().add(4)));
            let (low, high) = (_mm256_set_m128(low, low), _mm256_set_m128(high, high));
            _mm256_fmadd_ps(high, signs, low)
        }
    }

    #[inline(always)]
    fn butterfly_lanes<const H: usize>(self, v: __m256) -> __m256 {
        // ±v + partner in one fused step: the product by ±1 is exact, so the sum is rounded once, as a plain one is.
        // SAFETY: see `intrinsics`.
        unsafe {
            let (partner, signs) = match H {
                1 => (
                    _mm256_permute_ps::<0b10_11_00_01>(v),
                    _mm256_setr_ps(1., -1., 1., -1., 1., -1., 1., -1.),
                ),
                2 => (
                    _mm256_permute_ps::<0b01_00_11_10>(v),
                    _mm256_setr_ps(1., 1., -1., -1., 1., 1., -1., -1.),
                ),
                _ => (_mm256_permute2f128_ps::<1>(v, v), _mm256_setr_ps(1., 1., 1., 1., -1., -1., -1., -1.)),
            };
            _mm256_fmadd_ps(v, signs, partner)
        }
    }

    #[inline(always)]
    fn flip(self, v: __m256, word: u32, at: usize) -> __m256 {
        // SAFETY: see `intrinsics`.
        unsafe {
            // The lane's bit becomes its sign bit. One word serves four vectors, with other counts.
            let counts = _mm256_sub_epi32(
                _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24),
                _mm256_set1_epi32(8 * at as i32),
            );
            let shifted = _mm256_sllv_epi32(_mm256_set1_epi32(word.cast_signed()), counts);
            let signs = _mm256_and_si256(shifted, _mm256_set1_epi32(i32::MIN));
            _mm256_xor_ps(v, _mm256_castsi256_ps(signs))
        }
    }

    #[inline(always)]
    fn mul_wide(self, a: __m256i, b: __m256i) -> (__m256i, __m256i) {
        // SAFETY: see `intrinsics`.
        unsafe {
            let even = _mm256_mul_epu32(a, b);
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
            let high = _mm256_blend_epi32::<0b1010_1010>(_mm256_srli_epi64::<32>(even), odd);
            let low = _mm256_blend_epi32::<0b1010_1010>(even, _mm256_slli_epi64::<32>(odd));
            (high, low)
        }
    }

    #[inline(always)]
    fn split(self, codes: &[u32; BLOCK], planes: &mut Split) {
        // SAFETY: see `intrinsics`.
        unsafe {
            // Each 128-bit lane: bytes 3 of its four words, then bytes 2 and 1.
            let by_byte = _mm256_setr_epi8(
                3, 7, 11, 15, 2, 6, 10, 14, 1, 5, 9, 13, -1, -1, -1, -1, //
                3, 7, 11, 15, 2, 6, 10, 14, 1, 5, 9, 13, -1, -1, -1, -1,
            );
            let word = |at| self.load_words(codes, at);
            let (upper, bytes) = columns([word(0), word(1), word(2), word(3)], by_byte);
            for (to, from) in planes.bytes.iter_mut().zip(bytes) {
                _mm256_storeu_si256(to.as_mut_ptr().cast(), in_order(from));
            }
            let mut upper = in_order(upper);
            for plane in &mut planes.bits {
                *plane = _mm256_movemask_epi8(upper).cast_unsigned();
                upper = _mm256_add_epi8(upper, upper);
            }
        }
        for (byte, code) in planes.bytes[2].iter_mut().zip(codes) {
            *byte = *code as u8;
        }
    }

    #[inline(always)]
    fn join(self, planes: &Split, codes: &mut [u32; BLOCK]) {
        // SAFETY: see `intrinsics`.
        unsafe {
            let x = upper_bytes(planes);
            let a = _mm256_loadu_si256(planes.bytes[0].as_ptr().cast());
            let b = _mm256_loadu_si256(planes.bytes[1].as_ptr().cast());
            let c = _mm256_loadu_si256(planes.bytes[2].as_ptr().cast());
            let (low, low_2) = (_mm256_unpacklo_epi8(c, b), _mm256_unpackhi_epi8(c, b));
            let (high, high_2) = (_mm256_unpacklo_epi8(a, x), _mm256_unpackhi_epi8(a, x));
            let words = [
                _mm256_unpacklo_epi16(low, high),
                _mm256_unpackhi_epi16(low, high),
                _mm256_unpacklo_epi16(low_2, high_2),
                _mm256_unpackhi_epi16(low_2, high_2),
            ];
            self.store_words(codes, 0, _mm256_permute2x128_si256::<0x20>(words[0], words[1]));
            self.store_words(codes, 1, _mm256_permute2x128_si256::<0x20>(words[2], words[3]));
            self.store_words(codes, 2, _mm256_permute2x128_si256::<0x31>(words[0], words[1]));
            self.store_words(codes, 3, _mm256_permute2x128_si256::<0x31>(words[2], words[3]));
        }
    }

    #[inline(always)]
    fn split_codes(
        self,
        values: &[f32; BLOCK],
        codes: &[u32; BLOCK],
        upper: &mut [u8; BLOCK],
        bytes: [&mut [u8; BLOCK]; 2],
    ) {
        // SAFETY: see `intrinsics`; every place has 32 bytes.
        unsafe {
            // Each 128-bit lane: bytes 2 of its four codes, then bytes 1 and 0.
            let by_byte = _mm256_setr_epi8(
                2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, -1, -1, -1, -1, //
                2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, -1, -1, -1, -1,
            );
            let code = |at| self.load_words(codes, at);
            let (codes, rest) = columns([code(0), code(1), code(2), code(3)], by_byte);
            // Saturation keeps signs, and leaves them where `columns` leaves the codes' bytes.
            let value = |at: usize| self.bits(self.load(&values.as_chunks::<8>().0[at]));
            let signs = _mm256_packs_epi16(
                _mm256_packs_epi32(value(0), value(1)),
                _mm256_packs_epi32(value(2), value(3)),
            );
            let signs = _mm256_and_si256(signs, _mm256_set1_epi8(-128));
            _mm256_storeu_si256(upper.as_mut_ptr().cast(), _mm256_or_si256(codes, signs));
            for (to, from) in bytes.into_iter().zip(rest) {
                _mm256_storeu_si256(to.as_mut_ptr().cast(), in_order(from));
            }
        }
    }

    #[inline(always)]
    fn turn_back(self, upper: &[[u8; BLOCK]; 8], planes: &mut [[u8; BLOCK]; 8]) {
        // SAFETY: see `intrinsics`.
        unsafe { turn_back(upper, planes) }
    }

    #[inline(always)]
    fn turn(self, planes: [&[u8; BLOCK]; 8], upper: &mut [[u8; BLOCK]; 8]) {
        // SAFETY: see `intrinsics`.
        unsafe { turn(planes, upper) }
    }

    #[inline(always)]
    fn words(self, upper: &[u8; BLOCK], [b, c]: [&[u8; BLOCK]; 2], words: &mut [u32; BLOCK]) {
        // SAFETY: see `intrinsics`.
        unsafe {
            // All of them apart, as in `upper`: interleaved they come out in order.
            let order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
            let load = |bytes: &[u8; BLOCK]| _mm256_loadu_si256(bytes.as_ptr().cast());
            let (a, b, c) = (load(upper), permute(load(b), order), permute(load(c), order));
            let zero = _mm256_setzero_si256();
            let (low, low_2) = (_mm256_unpacklo_epi8(zero, c), _mm256_unpackhi_epi8(zero, c));
            let (high, high_2) = (_mm256_unpacklo_epi8(b, a), _mm256_unpackhi_epi8(b, a));
            self.store_words(words, 0, _mm256_unpacklo_epi16(low, high));
            self.store_words(words, 1, _mm256_unpackhi_epi16(low, high));
            self.store_words(words, 2, _mm256_unpacklo_epi16(low_2, high_2));
            self.store_words(words, 3, _mm256_unpackhi_epi16(low_2, high_2));
        }
    }
}

/// The doublewords of `v` in another order: one instruction. The compiler (LLVM 21) takes the intrinsic apart into two others,
/// which take longer.
#[target_feature(enable = "avx2")]
#[inline]
fn permute(v: __m256i, order: __m256i) -> __m256i {
    let permuted;
    // SAFETY: an instruction on registers that AVX2 has.
    unsafe {
        asm!("vpermd {}, {}, {}", lateout(ymm_reg) permuted, in(ymm_reg) order, in(ymm_reg) v,
            options(pure, nomem, nostack, preserves_flags));
    }
    permuted
}

/// The same vector, of which the compiler does not know how it came about: it would merge shuffles into more and dearer ones, and
/// turn sums into shifts.
#[target_feature(enable = "avx2")]
#[inline]
fn opaque(mut v: __m256i) -> __m256i {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {} */", inout(ymm_reg) v, options(pure, nomem, nostack, preserves_flags)) };
    v
}

/// Of a block's words, in vectors, the bytes that `by_byte` puts first in each 128-bit lane; and those that it puts second and third. All
/// are [`apart`].
#[target_feature(enable = "avx2")]
#[inline]
fn columns(words: [__m256i; 4], by_byte: __m256i) -> (__m256i, [__m256i; 2]) {
    let [a, b, c, d] = words;
    let group = |v| opaque(_mm256_shuffle_epi8(v, by_byte));
    let (a, b, c, d) = (group(a), group(b), group(c), group(d));
    let (low_ab, high_ab) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (low_cd, high_cd) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    let bytes = [_mm256_unpackhi_epi64(low_ab, low_cd), _mm256_unpacklo_epi64(high_ab, high_cd)];
    (_mm256_unpacklo_epi64(low_ab, low_cd), bytes)
}

/// Of 32 bytes, 8·j to 8·j + 3 in the lower half, 8·j + 4 to 8·j + 7 in the upper one: so they come where the halves of vectors are
/// worked on apart.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn apart(bytes: &[u8; BLOCK]) -> [u8; BLOCK] {
    let mut apart = [0; BLOCK];
    // SAFETY: both have 32 bytes.
    unsafe {
        let v = _mm256_loadu_si256(bytes.as_ptr().cast());
        _mm256_storeu_si256(apart.as_mut_ptr().cast(), permute(v, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)));
    }
    apart
}

/// Undoes [`apart`].
#[target_feature(enable = "avx2")]
#[inline]
fn in_order(v: __m256i) -> __m256i {
    permute(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

/// The same in memory.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn together(bytes: &[u8; BLOCK]) -> [u8; BLOCK] {
    let mut ordered = [0; BLOCK];
    // SAFETY: both have 32 bytes.
    unsafe {
        let v = _mm256_loadu_si256(bytes.as_ptr().cast());
        _mm256_storeu_si256(ordered.as_mut_ptr().cast(), in_order(v));
    }
    ordered
}

/// 8 × 8 matrices of bits, one for each byte of a vector: bit j of vector i changes places with bit i of vector j
/// (Hacker's Delight, §7-3: blocks of four, of two, single bits).
#[target_feature(enable = "avx2")]
#[inline]
fn transpose(mut r: [__m256i; 8]) -> [__m256i; 8] {
    macro_rules! swap {
        ($distance:literal, $mask:literal) => {
            for i in 0..8 {
                if i & $distance == 0 {
                    let (low, high) = (r[i], r[i + $distance]);
                    let moved = _mm256_xor_si256(_mm256_srli_epi16::<$distance>(low), high);
                    let moved = _mm256_and_si256(moved, _mm256_set1_epi8($mask));
                    r[i] = _mm256_xor_si256(low, _mm256_slli_epi16::<$distance>(moved));
                    r[i + $distance] = _mm256_xor_si256(high, moved);
                }
            }
        };
    }
    swap!(4, 0x0f);
    swap!(2, 0x33);
    swap!(1, 0x55);
    r
}

/// The lower halves of both, the upper halves of both.
#[target_feature(enable = "avx2")]
#[inline]
fn halves(a: __m256i, b: __m256i) -> (__m256i, __m256i) {
    // One permutation that crosses the halves instead of two.
    let crossed = opaque(_mm256_permute2x128_si256::<0x21>(a, b));
    (_mm256_blend_epi32::<0xf0>(a, crossed), _mm256_blend_epi32::<0xf0>(crossed, b))
}

/// [`Lanes::turn`], for machines with longer vectors as well. The upper bytes come out [`apart`].
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn turn(planes: [&[u8; BLOCK]; 8], upper: &mut [[u8; BLOCK]; 8]) {
    // SAFETY: a piece of a plane has 32 bytes.
    let load = |p: usize| unsafe { _mm256_loadu_si256(planes[7 - p].as_ptr().cast()) };
    let r = transpose([load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)]);
    // Vector b now holds bytes 8·j + b. Four of them make runs of four bytes: 8·j to 8·j + 3, and the other four what follows.
    let mut fours = r;
    for half in [0, 4] {
        let (a, b) = (_mm256_unpacklo_epi8(r[half], r[half + 1]), _mm256_unpackhi_epi8(r[half], r[half + 1]));
        let (c, d) =
            (_mm256_unpacklo_epi8(r[half + 2], r[half + 3]), _mm256_unpackhi_epi8(r[half + 2], r[half + 3]));
        fours[half] = _mm256_unpacklo_epi16(a, c);
        fours[half + 1] = _mm256_unpackhi_epi16(a, c);
        fours[half + 2] = _mm256_unpacklo_epi16(b, d);
        fours[half + 3] = _mm256_unpackhi_epi16(b, d);
    }
    for i in 0..4 {
        let (low, high) = halves(fours[i], fours[i + 4]);
        // SAFETY: each place has 32 bytes.
        unsafe {
            _mm256_storeu_si256(upper[i].as_mut_ptr().cast(), low);
            _mm256_storeu_si256(upper[i + 4].as_mut_ptr().cast(), high);
        }
    }
}

/// [`Lanes::turn_back`], for machines with longer vectors as well. The upper bytes are [`apart`].
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn turn_back(upper: &[[u8; BLOCK]; 8], planes: &mut [[u8; BLOCK]; 8]) {
    // Each 128-bit lane: bytes 0 of its four words, then bytes 1, 2 and 3.
    let by_byte = _mm256_setr_epi8(
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, //
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
    );
    // SAFETY: a block has 32 bytes.
    let load = |k: usize| unsafe { _mm256_loadu_si256(upper[k].as_ptr().cast()) };
    let group = |k: usize| opaque(_mm256_shuffle_epi8(load(k), by_byte));
    // Bytes 8·j + b of four blocks: b from 0 to 3 in the lower halves, from 4 to 7 in the upper ones.
    let fours = |k: usize| {
        let (a, b, c, d) = (group(k), group(k + 1), group(k + 2), group(k + 3));
        let (low_ab, high_ab) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (low_cd, high_cd) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(low_ab, low_cd),
            _mm256_unpackhi_epi64(low_ab, low_cd),
            _mm256_unpacklo_epi64(high_ab, high_cd),
            _mm256_unpackhi_epi64(high_ab, high_cd),
        ]
    };
    let (first, second) = (fours(0), fours(4));
    let mut r = [first[0]; 8];
    for b in 0..4 {
        (r[b], r[b + 4]) = halves(first[b], second[b]);
    }
    for (plane, bits) in planes.iter_mut().zip(transpose(r).into_iter().rev()) {
        // SAFETY: a piece of a plane has 32 bytes.
        unsafe { _mm256_storeu_si256(plane.as_mut_ptr().cast(), bits) };
    }
}

/// The upper bytes of a block's code words, from its bit-planes; for machines with longer vectors as well.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn upper_bytes(planes: &Split) -> __m256i {
    // Four 8 × 8 matrices of bits, a column of bytes each, last plane first.
    let columns = _mm256_setr_epi8(
        12, 8, 4, 0, 13, 9, 5, 1, 14, 10, 6, 2, 15, 11, 7, 3, //
        12, 8, 4, 0, 13, 9, 5, 1, 14, 10, 6, 2, 15, 11, 7, 3,
    );
    // SAFETY: the bits of eight planes are 32 bytes.
    let bits = unsafe { _mm256_loadu_si256(planes.bits.as_ptr().cast()) };
    let bits = _mm256_shuffle_epi8(bits, columns);
    let mut x = _mm256_permutevar8x32_epi32(bits, _mm256_setr_epi32(4, 0, 5, 1, 6, 2, 7, 3));
    macro_rules! swap {
        ($shift:literal, $mask:literal) => {
            let t = _mm256_and_si256(
                _mm256_xor_si256(x, _mm256_srli_epi64::<$shift>(x)),
                _mm256_set1_epi64x($mask),
            );
            x = _mm256_xor_si256(x, _mm256_xor_si256(t, _mm256_slli_epi64::<$shift>(t)));
        };
    }
    swap!(7, 0x00aa_00aa_00aa_00aa);
    swap!(14, 0x0000_cccc_0000_cccc);
    swap!(28, 0x0000_0000_f0f0_f0f0);
    x
}
