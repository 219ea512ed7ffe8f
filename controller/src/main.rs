//! The command `trimwire-controller`.
//!
//! Tables and JSON go to stdout, logs to stderr. Exit codes: 0 ok, 1 a switch is not what it should be, 2 usage, 3 bad input.
#![forbid(unsafe_code)]

mod command;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use crate::command::{Command, Failure, in_words, say};

#[derive(Parser)]
#[command(
    name = "trimwire-controller",
    version,
    about = "Bring a fabric of P4 switches to what one YAML file says"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    // clap exits with 2 by itself on wrong usage.
    let command = Cli::parse().command;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("TRIMWIRE_DEBUG")
                .unwrap_or_else(|_| command.log_level().into()),
        )
        .init();
    match command.run() {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, error }) => {
            say(in_words(&error));
            ExitCode::from(code)
        }
    }
}
