// SPDX-License-Identifier: Apache-2.0
//! All integration tests of this crate in one program: a crate links once, not once a file.

mod classes;
mod cli;
mod command;
mod counters;
mod failure;
mod golden;
mod implementations;
mod interfaces;
mod large_switch;
mod model;
mod modules;
mod monitoring;
mod primary;
mod programs;
mod reconcile;
mod replace;
mod rollout;
mod run;
mod run_support;
mod shares;
mod thousand;
mod tls;
#[path = "../../../switch/tests/it/tls_support/mod.rs"]
mod tls_support;
mod trust;
mod wires;
