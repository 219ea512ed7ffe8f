// SPDX-License-Identifier: Apache-2.0
//! One source of every kernel, several instruction sets.
//!
//! A kernel is written once over [`Lanes`] and [`Planes`] and instantiated for each instruction set
//! inside a function that has its target features. Every operation of the trait is exact or rounded
//! once, in an order that does not depend on the number of lanes, so all paths give the same bits;
//! tests hold each backend against the portable one.
//!
//! This module and its backends are the only ones of the crate with `unsafe` code.

mod format;
mod lanes;
mod portable;
mod prefetch;

#[cfg(target_arch = "x86_64")]
pub(crate) mod aegis;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
// On a machine with the other byte order lanes of bytes are not where this backend looks for them.
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(test)]
mod tests;

pub(crate) use format::Format;
pub(crate) use lanes::{Lanes, Planes, each_vector};
pub(crate) use portable::Portable;
pub(crate) use prefetch::Ahead;

use std::fmt;
use std::str::FromStr;

/// An instruction set that the kernels run on and this machine has.
///
/// Values of it can only be had for sets that were detected, so running a kernel is always sound.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Isa(Backend);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Backend {
    Portable(Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon(neon::Neon),
}

/// A computation over lanes. `run` has to be `#[inline(always)]`: it takes on the target features
/// of its caller. So must everything that it calls with vectors. A closure that goes through the
/// standard library (an array's `map`) may not be inlined, and then costs a call for each
/// operation: loops, instead.
pub(crate) trait Kernel {
    type Output;

    fn run<L: Planes>(self, lanes: L) -> Self::Output;
}

impl Isa {
    /// Plain Rust, which compilers turn into whatever vectors the target guarantees.
    pub const PORTABLE: Self = Self(Backend::Portable(Portable));

    /// The sets that this machine has, the one to choose last. The portable one is always there.
    ///
    /// AVX-512 comes last: with 32 registers of sixteen lanes a row goes by in one pass less than
    /// with AVX2.
    pub fn available() -> impl Iterator<Item = Self> {
        let portable = std::iter::once(Self::PORTABLE);
        #[cfg(target_arch = "x86_64")]
        let all = portable
            .chain(avx2::Avx2::detect().map(|set| Self(Backend::Avx2(set))))
            .chain(avx512::Avx512::detect().map(|set| Self(Backend::Avx512(set))));
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        let all = portable.chain(neon::Neon::detect().map(|set| Self(Backend::Neon(set))));
        #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))))]
        let all = portable;
        all
    }

    /// The set to choose on this machine: the last one of [`Self::available`].
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self::PORTABLE)
    }

    /// Its name on command lines.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Backend::Portable(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(_) => "avx512",
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Backend::Neon(_) => "neon",
        }
    }

    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Backend::Portable(lanes) => kernel.run(lanes),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(lanes) => lanes.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(lanes) => lanes.run(kernel),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Backend::Neon(lanes) => kernel.run(lanes),
        }
    }
}

impl Default for Isa {
    fn default() -> Self {
        Self::best()
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no instruction set, or none that this machine has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("instruction set {name:?} is not available here (available: {available})")]
pub struct UnavailableIsa {
    name: String,
    available: String,
}

impl FromStr for Isa {
    type Err = UnavailableIsa;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::available().find(|isa| isa.name() == name).ok_or_else(|| UnavailableIsa {
            name: name.to_owned(),
            available: Self::available().map(Self::name).collect::<Vec<_>>().join(", "),
        })
    }
}
