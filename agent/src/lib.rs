//! The host side of Trimwire: moves encoded gradients between ranks over a network that may cut, drop,
//! reorder and duplicate packets.
//!
//! ```text
//!  collective::AllReduce ── send/expect ──► endpoint::Endpoint ── poll_transmit ──► datagrams
//!        ▲                                   │ transfers (one per peer and message)
//!        └────────── events ─────────────────┤ rate law and pacer per peer, one pacer for the card
//!                                            ◄── handle_datagram, handle_timeout(now_ns)
//! ```
//!
//! Everything but [`driver`] is sans-IO: no socket, clock, thread or global random number generator. A driver passes the time
//! and datagrams in and takes datagrams, timers and events out; the same code runs on sockets ([`driver`]) and in virtual
//! time. What the crate deliberately does not do: it knows nothing of switches and P4, and the codec is
//! `trimwire-encoder`'s.

pub mod collective;
pub mod driver;
pub mod endpoint;
pub mod pacing;
pub mod rate;
pub mod rtt;
pub mod transfer;
pub mod wire;
