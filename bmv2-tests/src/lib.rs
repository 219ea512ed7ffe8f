// SPDX-License-Identifier: Apache-2.0
//! What the tests over real interfaces stand on.
//!
//! ```text
//!   namespace h1          namespace s1                                   namespace h2
//!   trimwire-agent ─veth─ port 1  trimwire-switch or        port 2 ─veth─ trimwire-agent
//!   or raw frames                 simple_switch_grpc                      or raw frames
//!                                 trimwire-controller (gRPC on loopback)
//! ```
//!
//! Everything that is made here ends with the value that made it, whether a test passes or not; what a killed test run has left
//! behind, the next one removes. All waits have deadlines. Where something is missing (root, namespaces, a program), tests say
//! on stderr what is skipped and why ([`skip`]), and pass.

pub mod frames;
pub mod namespace;
pub mod network;
pub mod process;
pub mod programs;
pub mod registers;
pub mod switch;
pub mod vectors;

pub use namespace::Namespace;
pub use network::Network;
pub use programs::Programs;
pub use switch::{Kind, RunningSwitch};

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Says that a test is not run; on stderr itself, because the test harness keeps what passing tests print.
pub fn skip(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}");
}

/// One test at a time has the machine: they measure rates.
pub fn exclusive() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
