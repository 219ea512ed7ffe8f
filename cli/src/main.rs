//! The `trimwire` command.

mod codec;
mod demo;
mod failure;
mod output;
mod page;
mod plan;
mod progress;
mod sim;
mod training;

use clap::{CommandFactory as _, Parser, Subcommand};
use failure::{EXIT_CODES, Failure, Outcome};
use std::process::ExitCode;

/// Gradients that a congested switch cuts instead of dropping.
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
    Plan(plan::Options),
    Sim(sim::Options),
    /// Write a shell's completions to stdout.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
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
        Command::Plan(options) => plan::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "trimwire", &mut std::io::stdout());
            Ok(())
        }
    }
}
