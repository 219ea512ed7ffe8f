// SPDX-License-Identifier: Apache-2.0
//! The command `trimwire-agent`: collectives over a real network, in the manner of nccl-tests.
//!
//! Tables and JSON go to stdout, logs to stderr. Exit codes: 0 ok, 1 an operation failed, 2 usage,
//! 3 bad input.
#![forbid(unsafe_code)]

mod adaptive;
mod agreement;
mod args;
mod cli;
mod doctor;
mod gradient;
mod meet;
mod metrics;
mod operation;
mod perf;
mod publish;
mod report;
mod serve;
mod settings;
mod show;
mod talk;
mod top;
mod transcript;
mod units;
mod way;

use clap::{CommandFactory, Parser};
use cli::{Cli, Command, Perf};
use operation::Operation;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// An operation failed, or a network cannot be used.
const FAILED: u8 = 1;
/// A file or an address that was given is wrong.
const BAD_INPUT: u8 = 3;

/// Why a command ends early, and the exit code for it.
struct Failure {
    code: u8,
    error: anyhow::Error,
}

fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure { code: FAILED, error: error.into() }
}

fn bad_input(error: impl Into<anyhow::Error>) -> Failure {
    Failure { code: BAD_INPUT, error: error.into() }
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("TRIMWIRE_DEBUG");
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter.unwrap_or_else(|_| "warn".into()))
        .init();
    // clap exits with 2 by itself on wrong usage.
    let outcome = match Cli::parse().command {
        Command::Perf(Perf::AllReduce(args)) => perf::run(Operation::AllReduce, *args),
        Command::Perf(Perf::ReduceScatter(args)) => perf::run(Operation::ReduceScatter, *args),
        Command::Perf(Perf::AllGather(args)) => perf::run(Operation::AllGather, *args),
        Command::Perf(Perf::Broadcast(args)) => perf::run(Operation::Broadcast, *args),
        Command::Perf(Perf::Reduce(args)) => perf::run(Operation::Reduce, *args),
        Command::Perf(Perf::PushPull(args)) => perf::push_pull(*args),
        Command::Serve(args) => serve::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Transcript(args) => show::run(&args),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "trimwire-agent", &mut text);
            print(String::from_utf8_lossy(&text).trim_end()).map(|()| true)
        }
        Command::Man { folder } => {
            let what = || format!("cannot write manual pages into '{}'", folder.display());
            let written = clap_mangen::generate_to(Cli::command(), &folder);
            written.map(|()| true).map_err(|error| failed(anyhow::Error::new(error).context(what())))
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(Failure { code, error }) => {
            eprintln!("error: {error:#}");
            ExitCode::from(code)
        }
    }
}

/// Prints a line to stdout. A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(failed(error)),
        _ => Ok(()),
    }
}
