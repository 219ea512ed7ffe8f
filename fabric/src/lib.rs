// SPDX-License-Identifier: Apache-2.0
//! Virtual time: hosts running the agent's cores, switches running the P4 engine, links and
//! cross-traffic.
//!
//! ```text
//!  cluster::Cluster ── all_reduce(gradients) ──► sums, completion times
//!        │
//!  network::Network ── calendar::Calendar ──► nodes: RankHost (agent + codec) │ CrossSender │ Switch (engine + queues)
//!                                              frames travel over links with a propagation delay
//! ```
//!
//! Nothing is re-implemented for simulation: the nodes are the agent's and the switch's own sans-IO
//! cores, and a switch may be served over P4Runtime while it is simulated. The same seed gives the
//! same run, byte for byte. What the crate deliberately does not do: it reads no clock and opens no
//! socket.
#![forbid(unsafe_code)]

pub mod calendar;
pub mod cluster;
pub mod cross_traffic;
pub mod frame;
pub mod network;
pub mod nodes;
