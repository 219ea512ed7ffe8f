// SPDX-License-Identifier: Apache-2.0
//! The `trimwire` command.

mod codec;
mod demo;
mod progress;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};
use std::process::ExitCode;
use trimwire::failure::{EXIT_CODES, Failure, Outcome};
use trimwire::{failure, output, page, training};

/// Send gradients that a congested switch trims instead of dropping.
#[derive(Debug, Parser)]
#[command(name = "trimwire", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Options),
    Codec(codec::Options),
    /// Print completions for a shell.
    Completions {
        /// Shell to print completions for.
        shell: clap_complete::Shell,
    },
    /// Write manual pages into a folder.
    Man {
        /// Existing folder to write into.
        folder: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("trimwire: {failure}");
            failure.code()
        }
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Demo(options) => {
            options.check().map_err(Failure::usage)?;
            Ok(demo::demo(&options)?)
        }
        Command::Codec(options) => codec::run(&options),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "trimwire", &mut std::io::stdout());
            Ok(())
        }
        Command::Man { folder } => clap_mangen::generate_to(Cli::command(), &folder)
            .with_context(|| format!("cannot write manual pages into {}", folder.display()))
            .map_err(Failure::failed),
    }
}
