// SPDX-License-Identifier: Apache-2.0
//! All integration tests of this crate in one program: a crate links once, not once a file.

mod algorithms;
mod beside_bursts;
mod cluster;
mod dcqcn;
mod fabric_program;
mod jobs;
mod ladder;
mod random_losses;
mod ranks;
mod scenario;
mod sim;
mod transfers;
