// SPDX-License-Identifier: Apache-2.0
//! The harness of tests over real interfaces: those of this crate, of the switch and of the agent.
//!
//! ```text
//!   namespace h1          namespace s1                                   namespace h2
//!   trimwire-agent ─veth─ port 1  trimwire-switch or        port 2 ─veth─ trimwire-agent
//!   or raw frames                 simple_switch_grpc                      or raw frames
//!                                 trimwire-controller (gRPC on loopback)
//! ```
//!
//! Everything that is made here ends with the value that made it, whether a test passes or not.
//! A test run removes what a killed one left behind. All waits have deadlines. Where something is
//! missing (root, namespaces, a program), tests say on stderr what is skipped and why ([`skip`]),
//! and pass. `TRIMWIRE_REQUIRE_NETNS` makes missing namespaces a failure.

pub mod frames;
pub mod namespace;
pub mod network;
pub mod packets;
pub mod ports;
pub mod process;
pub mod programs;
pub mod switch;
pub mod thrift;
pub mod vectors;
pub mod wired;

pub use frames::{BurstSocket, FrameSocket};
pub use namespace::Namespace;
pub use network::Network;
pub use programs::Programs;
pub use switch::{Kind, RunningSwitch};
pub use wired::Wired;

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Says that a test is not run. It writes to stderr itself, because the test runner keeps what
/// passing tests print.
pub fn skip(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}");
}

/// One test at a time has the machine: they measure rates.
pub fn exclusive() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// SplitMix64: the same numbers from the same seed on every machine.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `limit - 1`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit.max(1)
    }
}
