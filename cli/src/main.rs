//! The `trimwire` command.

mod demo;
mod progress;
mod training;

use clap::{CommandFactory as _, Parser, Subcommand};
use std::process::ExitCode;

/// Gradients that a congested switch cuts instead of dropping.
#[derive(Debug, Parser)]
#[command(name = "trimwire", version, after_help = "Exit codes: 0 ok, 1 failed, 2 usage.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Options),
    /// Write a shell's completions to stdout.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Exit code of wrong usage, clap's too.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(options) => {
            if let Err(error) = options.check() {
                eprintln!("trimwire: {error:#}");
                return ExitCode::from(USAGE);
            }
            demo::demo(&options)
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "trimwire", &mut std::io::stdout());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trimwire: {error:#}");
            ExitCode::FAILURE
        }
    }
}
