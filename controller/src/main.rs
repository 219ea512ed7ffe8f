// SPDX-License-Identifier: Apache-2.0
//! The command `trimwire-controller`.
//!
//! Tables and JSON go to stdout, logs to stderr. Exit codes: 0 ok, 1 a switch is not what it should
//! be, 2 usage, 3 bad input, 4 `plan --detailed-exitcode` found differences.
#![forbid(unsafe_code)]

mod command;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use crate::command::{Command, Failure, USAGE, in_words, say};

#[derive(Parser)]
#[command(
    name = "trimwire-controller",
    version,
    about = "Bring a fabric of P4 switches to what one YAML file says",
    after_help = "Exit codes: 0 success, 1 a switch is not what it should be, 2 usage, 3 bad input, 4 `plan --detailed-exitcode` found differences."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(told) => {
            // Help and version are errors to clap, too.
            let code = if told.use_stderr() { USAGE } else { 0 };
            let _ = told.print();
            return ExitCode::from(code);
        }
    };
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
