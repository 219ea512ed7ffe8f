// SPDX-License-Identifier: Apache-2.0
//! Every backend against the portable one, operation by operation.

use super::{Isa, Kernel, Planes};
use crate::wire::BLOCK;
use half::{bf16, f16};
use proptest::prelude::*;

/// All operations on a vector of sixteen inputs, as bits.
struct Operations {
    a: [f32; 16],
    b: [f32; 16],
    words: [u32; BLOCK],
}

impl Kernel for Operations {
    type Output = Vec<Vec<u32>>;

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) -> Vec<Vec<u32>> {
        let mut results: Vec<Vec<u32>> = Vec::new();
        let mut columns: [Vec<u32>; 32] = Default::default();
        let table = [1.5, -2.0, 3.25, 0.0, 7.0, -0.0, 9.5, 11.0];
        for at in 0..16 / L::N {
            let (a, b) = (lanes.load(&L::lines(&self.a)[at]), lanes.load(&L::lines(&self.b)[at]));
            let (x, y) = (lanes.load_words(&self.words, at), lanes.load_words(&self.words, at + 16 / L::N));
            let (sum, difference) = lanes.butterfly(a, b);
            let (high, low_product) = lanes.mul_wide(x, y);
            let all = [
                lanes.bits(lanes.add(a, b)),
                lanes.bits(lanes.sub(a, b)),
                lanes.bits(lanes.mul(a, b)),
                lanes.bits(sum),
                lanes.bits(difference),
                lanes.bits(lanes.butterfly_lanes::<1>(a)),
                lanes.bits(lanes.butterfly_lanes::<2>(a)),
                lanes.bits(lanes.butterfly_lanes::<4>(a)),
                lanes.bits(lanes.flip(a, self.words[0], at)),
                lanes.bits(lanes.floats(x)),
                lanes.truncate(lanes.floats(lanes.and(lanes.bits(a), lanes.splat_u(0x7fff_ffff)))),
                lanes.bits(lanes.convert(x)),
                lanes.and(x, y),
                lanes.or(x, y),
                lanes.xor(x, y),
                lanes.add_u(x, y),
                lanes.min_u(x, y),
                lanes.max_u(x, y),
                lanes.shift_right_22(x),
                lanes.shift_right_28(x),
                lanes.shift_left_8(x),
                lanes.less_where_greater(x, x, y),
                high,
                low_product,
                lanes.bits(lanes.lookup(lanes.table(&table), x)),
                lanes.lookup_u(lanes.table_u(&[7, 6, 5, 4, 3, 2, 1, u32::MAX]), y),
                lanes.bits(lanes.splat(1.25)),
            ];
            for (column, v) in columns.iter_mut().zip(all) {
                let mut out = [0; 16];
                lanes.to_array(v, &mut out);
                column.extend_from_slice(&out[..L::N]);
            }
        }
        results.extend(columns);
        // Butterflies between sixteen lanes are those between eight and one more between the
        // halves.
        let mut within = self.a;
        for line in L::lines_mut(&mut within) {
            let v = lanes.later_butterflies(lanes.load_butterfly_4(line));
            lanes.store(line, v);
        }
        if L::N == 8 {
            for i in 0..8 {
                (within[i], within[i + 8]) = (within[i] + within[i + 8], within[i] - within[i + 8]);
            }
        }
        results.push(within.map(f32::to_bits).to_vec());
        // Sums of sixteen lanes lie in one vector or two.
        let last = 16 / L::N - 1;
        let halves = [0, last].map(|at| &L::lines(&self.a)[at]);
        let (low, high) = (lanes.load(halves[0]), lanes.load(halves[1]));
        results
            .push(vec![lanes.sum([low, high]).to_bits(), lanes.largest([lanes.bits(low), lanes.bits(high)])]);
        // Of both vectors of sixteen words where one has eight.
        let nothing = |v: [L::U; 2]| lanes.is_zero(v[0]) && (L::N == 16 || lanes.is_zero(v[1]));
        for bit in 0..16 {
            let mut one = [0.0; 16];
            one[bit] = f32::from_bits(self.words[bit] & 1);
            let of = [0, last].map(|at| lanes.bits(lanes.load(&L::lines(&one)[at])));
            results.push(vec![u32::from(nothing(of)), u32::from(lanes.is_zero(lanes.splat_u(0)))]);
        }
        let mut stored = [0; BLOCK];
        for at in 0..BLOCK / L::N {
            lanes.store_words(&mut stored, at, lanes.load_words(&self.words, at));
        }
        results.push(stored.to_vec());
        results
    }
}

proptest! {
    #[test]
    fn every_backend_does_what_the_portable_one_does(
        a in prop::array::uniform16(-1e9f32..1e9), b in prop::array::uniform16(-1e9f32..1e9),
        words in prop::array::uniform32(any::<u32>()),
    ) {
        let expected = Isa::PORTABLE.run(Operations { a, b, words });
        for isa in Isa::available() {
            let got = isa.run(Operations { a, b, words });
            for (operation, (got, expected)) in got.iter().zip(&expected).enumerate() {
                prop_assert_eq!(got, expected, "{}, operation {}", isa, operation);
            }
        }
    }
}

/// Blocks of both formats of 16 bits, widened and narrowed; and the signs of a block.
struct Halves {
    bits: [u16; BLOCK],
    values: [f32; BLOCK],
}

impl Kernel for Halves {
    type Output = ([[u32; BLOCK]; 2], [[u16; BLOCK]; 2], u32);

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) -> Self::Output {
        let (mut wide, mut narrow) = ([[0; BLOCK]; 2], [[0; BLOCK]; 2]);
        let (mut brain, mut half) = ([bf16::ZERO; BLOCK], [f16::ZERO; BLOCK]);
        for i in 0..BLOCK {
            (brain[i], half[i]) = (bf16::from_bits(self.bits[i]), f16::from_bits(self.bits[i]));
        }
        for at in 0..BLOCK / L::N {
            lanes.store_words(&mut wide[0], at, lanes.bits(lanes.load_bf16(&brain, at)));
            lanes.store_words(&mut wide[1], at, lanes.bits(lanes.load_f16(&half, at)));
        }
        for (at, line) in L::lines(&self.values).iter().enumerate() {
            lanes.store_bf16(lanes.load(line), &mut brain, at);
            lanes.store_f16(lanes.load(line), &mut half, at);
        }
        for i in 0..BLOCK {
            (narrow[0][i], narrow[1][i]) = (brain[i].to_bits(), half[i].to_bits());
        }
        (wide, narrow, lanes.signs(&self.values))
    }
}

proptest! {
    #[test]
    fn halves_are_those_of_the_half_crate_on_every_set(
        bits in prop::array::uniform32(any::<u16>()), values in prop::array::uniform32(prop_oneof![any::<u32>(), 0x3000_0000..0x4800_0000_u32]),
    ) {
        let values = values.map(f32::from_bits);
        for isa in Isa::available() {
            let (wide, narrow, signs) = isa.run(Halves { bits, values });
            for i in 0..BLOCK {
                // A NaN becomes a NaN; which one does not matter.
                let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                prop_assert!(same(f32::from_bits(wide[0][i]), bf16::from_bits(bits[i]).to_f32()), "{}", isa);
                prop_assert!(same(f32::from_bits(wide[1][i]), f16::from_bits(bits[i]).to_f32()), "{}", isa);
                let narrowed = [bf16::from_bits(narrow[0][i]).to_f32(), f16::from_bits(narrow[1][i]).to_f32()];
                prop_assert!(same(narrowed[0], bf16::from_f32(values[i]).to_f32()), "{}, {:e}", isa, values[i]);
                prop_assert!(same(narrowed[1], f16::from_f32(values[i]).to_f32()), "{}, {:e}", isa, values[i]);
                prop_assert_eq!(signs >> i & 1 == 1, values[i].is_sign_negative(), "{}", isa);
            }
        }
    }
}

/// What the kernel says of the machine, apart from what the crate detects.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn every_instruction_set_that_the_machine_has_is_tested() {
    use std::io::Write as _;
    let ran: Vec<&str> = Isa::available().map(Isa::name).collect();
    // Past the test harness, which keeps what passing tests print.
    let _ = writeln!(std::io::stderr(), "instruction sets that the codec's tests run on: {}", ran.join(", "));
    let Ok(about) = std::fs::read_to_string("/proc/cpuinfo") else { return };
    let flags: Vec<&str> =
        about.lines().find(|line| line.starts_with("flags")).unwrap_or_default().split_whitespace().collect();
    let sets = [
        ("avx2", &["avx2", "fma", "f16c"][..]),
        ("avx512", &["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi", "gfni"]),
    ];
    for (name, needs) in sets {
        let has = needs.iter().all(|flag| flags.contains(flag));
        assert_eq!(ran.contains(&name), has, "{name}");
    }
}

proptest! {
    #[test]
    fn a_cell_gives_its_magnitude_with_the_word_s_sign(
        magnitudes in prop::collection::vec(0.0f32..5.0, 128), words in prop::array::uniform32(any::<u32>()),
    ) {
        struct OfCells<'a>(&'a [f32; 128], [u32; BLOCK]);
        impl Kernel for OfCells<'_> {
            type Output = [f32; BLOCK];

            #[inline(always)]
            fn run<L: Planes>(self, lanes: L) -> Self::Output {
                let mut out = [f32::NAN; BLOCK];
                lanes.of_cells(self.0, &self.1, &mut out);
                out
            }
        }
        let magnitudes: &[f32; 128] = magnitudes.as_slice().try_into().unwrap();
        for isa in Isa::available() {
            for (value, word) in isa.run(OfCells(magnitudes, words)).iter().zip(words) {
                let bits = magnitudes[(word >> 24 & 127) as usize].to_bits() | word & 1 << 31;
                prop_assert_eq!(value.to_bits(), bits, "{}, {:#x}", isa, word);
            }
        }
    }
}

proptest! {
    #[test]
    fn words_hold_a_bit_of_each_turned_plane_and_the_bytes_of_the_others(
        length in BLOCK..3 * BLOCK, at in 0..2 * BLOCK, bits in prop::collection::vec(any::<u8>(), 8 * 3 * BLOCK), bytes in prop::array::uniform2(prop::array::uniform32(any::<u8>())),
    ) {
        struct Words<'a>(&'a [u8], usize, [&'a [u8; BLOCK]; 2]);
        impl Kernel for Words<'_> {
            type Output = [[u32; BLOCK]; 8];

            #[inline(always)]
            fn run<L: Planes>(self, lanes: L) -> Self::Output {
                let (mut upper, mut words) = ([[0; BLOCK]; 8], [[0; BLOCK]; 8]);
                lanes.turn(self.0, self.1, &mut upper);
                for (upper, words) in upper.iter().zip(&mut words) {
                    lanes.words(upper, self.2, words);
                }
                words
            }
        }
        let (bits, at) = (&bits[..8 * length], at.min(length - BLOCK));
        for isa in Isa::available() {
            let words = isa.run(Words(bits, at, bytes.each_ref()));
            for (i, word) in words.as_flattened().iter().enumerate() {
                for (p, plane) in bits.chunks(length).enumerate() {
                    prop_assert_eq!(word >> (31 - p) & 1, u32::from(plane[at + i / 8] >> (i % 8) & 1), "{}, word {}, plane {}", isa, i, p);
                }
                let rest = [0, bytes[0][i % BLOCK], bytes[1][i % BLOCK], 0];
                prop_assert_eq!(word & 0x00ff_ffff, u32::from_be_bytes(rest), "{}, word {}", isa, i);
            }
        }
    }
}

proptest! {
    #[test]
    fn codes_and_signs_become_the_planes_of_their_words(
        length in BLOCK..3 * BLOCK, at in 0..2 * BLOCK,
        codes in prop::collection::vec(any::<u32>(), 8 * BLOCK), signs in prop::collection::vec(any::<u32>(), 8 * BLOCK),
    ) {
        struct Turned<'a>(&'a [[f32; BLOCK]], &'a [[u32; BLOCK]], usize, usize);
        impl Kernel for Turned<'_> {
            type Output = (Vec<u8>, [[[u8; BLOCK]; 2]; 8]);

            #[inline(always)]
            fn run<L: Planes>(self, lanes: L) -> Self::Output {
                let Self(values, codes, length, at) = self;
                let (mut upper, mut bytes, mut planes) = ([[0; BLOCK]; 8], [[[0; BLOCK]; 2]; 8], vec![0x5a; 8 * length]);
                for (block, (upper, bytes)) in upper.iter_mut().zip(&mut bytes).enumerate() {
                    lanes.split_codes(&values[block], &codes[block], upper, bytes.each_mut());
                }
                lanes.turn_back(&upper, &mut planes, at);
                (planes, bytes)
            }
        }
        // Bit 23 is clear by contract.
        let codes: Vec<u32> = codes.iter().map(|code| code & !(1 << 23)).collect();
        let values: Vec<f32> = signs.iter().map(|bits| f32::from_bits(*bits)).collect();
        let at = at.min(length - BLOCK);
        for isa in Isa::available() {
            let (planes, bytes) = isa.run(Turned(values.as_chunks().0, codes.as_chunks().0, length, at));
            for plane in planes.chunks(length) {
                let others = plane[..at].iter().chain(&plane[at + BLOCK..]);
                prop_assert!(others.copied().all(|byte| byte == 0x5a), "{isa}: more than the piece was written");
            }
            for (i, (code, value)) in codes.iter().zip(&signs).enumerate() {
                let word = value & 1 << 31 | code << 8;
                for (p, plane) in planes.chunks(length).enumerate() {
                    let bit = u32::from(plane[at + i / 8] >> (i % 8) & 1);
                    prop_assert_eq!(word >> (31 - p) & 1, bit, "{}, word {}, plane {}", isa, i, p);
                }
                let [b, c] = bytes[i / BLOCK].map(|bytes| bytes[i % BLOCK]);
                prop_assert_eq!(&[b, c], &word.to_be_bytes()[1..3], "{}, word {}", isa, i);
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
#[test]
fn arm_machines_have_neon_and_choose_it() {
    assert_eq!(Isa::best().name(), "neon");
}

#[test]
fn sums_of_opposites_are_the_same_zero_everywhere() {
    for (a, b) in [(1.0, 1.0), (0.0, -0.0), (-0.0, 0.0), (-0.0, -0.0), (1e-40, 1e-40)] {
        let operations = || Operations { a: [a; 16], b: [b; 16], words: [0; BLOCK] };
        let expected = Isa::PORTABLE.run(operations());
        for isa in Isa::available() {
            assert_eq!(isa.run(operations()), expected, "{isa}, {a} and {b}");
        }
    }
}

/// What detection leaves out would be tested by nobody. Linux has a list of its own.
#[test]
fn every_set_that_the_machine_has_runs_and_says_so() {
    use std::io::Write as _;

    let sets: Vec<&str> = Isa::available().map(Isa::name).collect();
    // Past the capture of tests that pass.
    let _ = writeln!(std::io::stderr(), "kernels run on: {}", sets.join(", "));
    let Ok(machine) = std::fs::read_to_string("/proc/cpuinfo") else { return };
    let line = machine.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
    let flags: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let all = |needed: &[&str]| needed.iter().all(|flag| flags.contains(flag));
    let expected = [
        ("avx2", all(&["avx2", "fma", "f16c"])),
        ("avx512", all(&["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi", "gfni"])),
        ("neon", cfg!(target_endian = "little") && all(&["asimd"])),
    ];
    for (set, has) in expected {
        assert!(!has || sets.contains(&set), "the machine has {set}, and nothing ran on it");
    }
}
