//! Virtual time: hosts, links, switches, cross-traffic.
#![forbid(unsafe_code)]
pub mod event;
pub mod frame;
pub mod network;
pub mod cross_traffic;
