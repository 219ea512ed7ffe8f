// SPDX-License-Identifier: Apache-2.0
//! `trimwire codec`: the codec on its own, without a network: how accurate, how fast, what is in a
//! packet.
//!
//! ```text
//! source ─► Encoder ─► trim ─► Decoder ─► error against the closed form    nmse
//! noise  ─► Encoder ─►         Decoder ─► time against memcpy              bench
//! hex, pcap ─────────────────► PacketView ─► header, planes, codes         inspect
//! ```

mod bench;
pub(crate) mod clock;
mod gradient;
mod inspect;
mod measure;
mod nmse;
mod source;
mod stdin;
mod trim;

use crate::failure::Outcome;
use clap::{Args, Subcommand};

/// Measure the codec on this machine, or inspect its packets.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Nmse(nmse::Options),
    Bench(bench::Options),
    Inspect(inspect::Options),
}

/// Runs a subcommand.
pub(crate) fn run(options: &Options) -> Outcome {
    match &options.command {
        Command::Nmse(options) => nmse::run(options),
        Command::Bench(options) => bench::run(options),
        Command::Inspect(options) => inspect::run(options),
    }
}
