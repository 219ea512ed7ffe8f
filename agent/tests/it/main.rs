// SPDX-License-Identifier: Apache-2.0
//! All integration tests of this crate in one program: a crate links once, not once a file.

mod all_reduce;
mod bottleneck;
mod channels;
mod collectives;
mod control_page;
mod deadlines;
mod elsewhere;
mod epochs;
mod generations;
mod group;
mod incarnations;
mod interfaces;
mod job;
mod large;
mod life;
mod network;
mod pace;
mod path_mtu;
mod paths;
mod rate_algorithms;
mod rejoin;
mod rendezvous;
mod senders;
mod sequence;
mod serve;
mod shrink;
mod silence;
mod snapshot;
mod soak;
mod transcript;
mod transfer;
