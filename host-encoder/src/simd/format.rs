// SPDX-License-Identifier: Apache-2.0
//! Blocks of a number format to vectors of f32, and back.

use super::Lanes;
use crate::wire::BLOCK;
use half::{bf16, f16};

/// A format that kernels read and write.
pub(crate) trait Format: Copy {
    const ZERO: Self;

    /// Vector `at` of a block; `at < BLOCK / N`.
    fn load<L: Lanes>(lanes: L, block: &[Self; BLOCK], at: usize) -> L::F;
    /// The same, to be written: rounded to nearest, ties to even; beyond the range to infinity.
    fn store<L: Lanes>(lanes: L, v: L::F, block: &mut [Self; BLOCK], at: usize);
    /// The same past the caches, if that pays ([`Lanes::stream`]).
    #[inline(always)]
    fn stream<L: Lanes>(lanes: L, v: L::F, block: &mut [Self; BLOCK], at: usize) {
        Self::store(lanes, v, block, at);
    }
    /// One value.
    fn wide(self) -> f32;
    /// The nearest one.
    fn narrow(value: f32) -> Self;
}

impl Format for f32 {
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn load<L: Lanes>(lanes: L, block: &[Self; BLOCK], at: usize) -> L::F {
        lanes.load(&L::lines(block)[at])
    }

    #[inline(always)]
    fn store<L: Lanes>(lanes: L, v: L::F, block: &mut [Self; BLOCK], at: usize) {
        lanes.store(&mut L::lines_mut(block)[at], v);
    }

    #[inline(always)]
    fn stream<L: Lanes>(lanes: L, v: L::F, block: &mut [Self; BLOCK], at: usize) {
        lanes.stream(&mut L::lines_mut(block)[at], v);
    }

    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        value
    }
}

/// A format of 16 bits: the lanes have a load and a store of its own.
macro_rules! half {
    ($half:ty, $load:ident, $store:ident) => {
        impl Format for $half {
            const ZERO: Self = Self::ZERO;

            #[inline(always)]
            fn load<L: Lanes>(lanes: L, block: &[Self; BLOCK], at: usize) -> L::F {
                lanes.$load(block, at)
            }

            #[inline(always)]
            fn store<L: Lanes>(lanes: L, v: L::F, block: &mut [Self; BLOCK], at: usize) {
                lanes.$store(v, block, at);
            }

            #[inline(always)]
            fn wide(self) -> f32 {
                self.to_f32()
            }

            #[inline(always)]
            fn narrow(value: f32) -> Self {
                Self::from_f32(value)
            }
        }
    };
}

half!(f16, load_f16, store_f16);
half!(bf16, load_bf16, store_bf16);
