// SPDX-License-Identifier: Apache-2.0
//! The papers' networks on one link: bytes, and what a step takes besides communication.

use super::run::Job;
use super::transfer::Transfer;

/// A network, on eight workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// Name, as papers write it.
    pub name: &'static str,
    /// Bytes of the gradient.
    pub gradient: f64,
    /// Computation of a step, ns.
    pub compute_ns: u64,
    /// What compressing and decompressing a gradient takes, ns.
    pub compress_ns: u64,
}

/// NetSenseML's workers (§5.1), and DC2's (§V).
pub const RANKS: u32 = 8;
/// NetSenseML's images of a step: 32 a worker.
pub const IMAGES: f64 = 256.0;

/// NetSenseML's table 1. Two numbers of it are fitted: all-reduce at 800 Mbit/s, 256 / 283.60 s, of
/// which the link takes 0.809; and NetSenseML there, 256 / 824.56 s, of which the link takes 0.049.
pub const RESNET18: Network =
    Network { name: "ResNet18", gradient: 46.2e6, compute_ns: 94_000_000, compress_ns: 168_000_000 };
/// NetSenseML's table 2; bytes: Espresso's table 4. The all-reduce of the fastest link leaves 1.20
/// s for computation, more than NetSenseML's whole step of 0.752 s; what is taken is that one less
/// the link's 0.046 s.
pub const VGG16: Network =
    Network { name: "VGG16", gradient: 553e6, compute_ns: 706_000_000, compress_ns: 0 };
/// DC2's, whose paper says of no step how long it takes: assumed.
pub const RESNET50: Network =
    Network { name: "ResNet50", gradient: 102e6, compute_ns: 150_000_000, compress_ns: 0 };

impl Network {
    /// A job whose gradients are summed so, compressed or not: whoever compresses takes as long for
    /// it.
    pub fn job(&self, transfer: Transfer, compresses: bool) -> Job {
        let compute_ns = self.compute_ns + if compresses { self.compress_ns } else { 0 };
        Job { gradient: self.gradient, compute_ns, transfer }
    }
}
