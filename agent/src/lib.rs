// SPDX-License-Identifier: Apache-2.0
//! The host side of Trimwire: moves encoded gradients between ranks over a network that may trim,
//! drop, reorder and duplicate packets.
//!
//! ```text
//!  collective::Communicator ── open, supply, expect ─► endpoint::Endpoint ── poll_transmit ──► bursts of datagrams
//!        ▲                                             │ sorts and schedules
//!        │                                           peer: session, transfers, pacing, paths (one per rank)
//!        └──────────── rows and other events ──────────┤ rate algorithm, spraying
//!                                                      ◄── handle_datagram, handle_timeout(now_ns)
//!
//! transcript   what arrived of each packet, written down and repeated
//! serve        what parameter servers are told
//! collective   operations of all ranks, by rows     driver     sockets, clocks, threads
//! endpoint     all peers on one card                peer       the connection to one rank
//! epoch        ranks agree on who is left
//! transfer     one message: send queue, loss detection, received, questions
//! interface, outcome, config   what callers say and hear
//! rendezvous   how ranks find each other
//! rate, pacing, rtt, paths     when and which way   wire, row, burst   what travels
//! snapshot     what is told of peers and paths
//! planes       how many planes the next step sends, by what the last ones met
//! ```
//!
//! Each line uses those below it.
//!
//! Everything but [`driver`], the files of [`transcript`] and the connections of [`rendezvous`] is
//! sans-IO: no socket, clock, thread or global random number generator. A driver passes the time
//! and datagrams in and takes datagrams, timers and events out; the same code runs on sockets
//! ([`driver`]) and in virtual time. What the crate deliberately does not do: it knows nothing of
//! switches and P4, and the codec is `trimwire-encoder`'s.

pub mod burst;
pub mod collective;
pub mod config;
pub mod cores;
pub mod driver;
pub mod endpoint;
pub mod epoch;
pub mod interface;
pub mod outcome;
pub mod pacing;
pub mod paths;
mod peer;
pub mod planes;
pub mod rate;
pub mod rendezvous;
pub mod row;
pub mod rtt;
pub mod serve;
pub mod snapshot;
pub mod spray;
pub mod transcript;
pub mod transfer;
pub mod wire;
