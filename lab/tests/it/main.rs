// SPDX-License-Identifier: Apache-2.0
//! All integration tests of this crate in one program: a crate links once, not once a file.

mod dcqcn;
#[path = "../../../fabric/tests/it/fabric_program/mod.rs"]
mod fabric_program;
mod jobs;
mod ladder;
mod papers;
mod plan_command;
mod planes;
mod random_losses;
mod ranks;
mod scenario;
mod sim;
mod sim_command;
mod traces;
mod transfers;
