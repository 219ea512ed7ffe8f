// SPDX-License-Identifier: Apache-2.0
//! The `trimwire-lab` command.

mod plan;
mod sim;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use trimwire::failure::{EXIT_CODES, Outcome};
use trimwire::{failure, output, page, training};

/// Simulate networks, plan compression, and make the figures of the documentation.
#[derive(Debug, Parser)]
#[command(name = "trimwire-lab", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Plan(plan::Options),
    Sim(sim::Options),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("trimwire-lab: {failure}");
            failure.code()
        }
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Plan(options) => plan::run(&options),
        Command::Sim(options) => sim::run(&options),
    }
}
