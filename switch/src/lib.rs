// SPDX-License-Identifier: Apache-2.0
//! Embedded software switch: executes p4c's BMv2 JSON with v1model semantics, queues by bytes,
//! serves real line rates.
//!
//! ```text
//!  frames ─► device::Switch ─ engine: ingress ─► traffic: 8 queues a port ─► engine: egress ─► frames
//!                 ▲                ▲ tables, counters, registers
//!     driver (AF_PACKET)           └── server: P4Runtime v1 over gRPC
//!     or a simulation (virtual time)
//! ```
//!
//! [`Switch`] is sans-IO: it owns no socket, clock or thread. What the crate deliberately does not
//! do: it compiles no P4 (that is p4c's work) and knows nothing of gradients.

pub mod admin;
pub mod config;
pub mod driver;
pub mod engine;
pub mod server;
pub mod stf;
pub mod trace;
pub mod traffic;

mod device;
mod pcap;
mod wake;

use std::sync::{Arc, Mutex};

pub use device::{Switch, SwitchConfig, SwitchEvent, SwitchStats, Transmit};
pub use traffic::{PortConfig, QueueConfig, QueueStats, TrafficConfig};

/// A switch that a driver or simulation and the P4Runtime server work on together.
pub type SharedSwitch = Arc<Mutex<Switch>>;
