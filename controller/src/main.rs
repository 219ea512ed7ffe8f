//! The command `trimwire-controller`.
//!
//! Tables and JSON go to stdout, logs to stderr. Exit codes: 0 ok, 1 a switch is not what it should be, 2 usage, 3 bad input.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use serde::Serialize;
use trimwire_controller::show::{self, What};
use trimwire_controller::{
    Artifacts, Fabric, Options, SCHEMA, apply_blocking, desired, plan_blocking, show::show_blocking, topology,
};

/// Something on a switch is not as it should be.
const FAILED: u8 = 1;
/// A file that was given is wrong.
const BAD_INPUT: u8 = 3;

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

#[derive(Subcommand)]
enum Command {
    /// Check a fabric file without talking to any switch.
    Check(FileArgs),
    /// Show what apply would change. Touches nothing and needs no mastership.
    Plan {
        #[command(flatten)]
        file: FileArgs,
        /// Exit with 1 when apply would change something.
        #[arg(long)]
        detailed_exitcode: bool,
    },
    /// Bring every switch to what the file says, writing differences only.
    Apply {
        #[command(flatten)]
        file: FileArgs,
        /// Bid with this election id; the highest of a switch's controllers is primary [default: the file's, else 1].
        #[arg(long, value_name = "ID", env = "TRIMWIRE_ELECTION_ID")]
        election_id: Option<u128>,
    },
    /// Show what switches hold and count.
    Show {
        /// What to look at.
        #[arg(value_enum)]
        what: Shown,
        #[command(flatten)]
        file: FileArgs,
    },
    /// Print the JSON Schema of the fabric file.
    Schema,
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Args)]
struct FileArgs {
    /// The fabric file.
    #[arg(value_name = "FABRIC.yaml")]
    file: PathBuf,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// P4Info of another build of the program, as text or binary.
    #[arg(long, value_name = "FILE", env = "TRIMWIRE_P4INFO", requires = "pipeline_json")]
    p4info: Option<PathBuf>,
    /// BMv2 JSON of another build of the program.
    #[arg(long, value_name = "FILE", env = "TRIMWIRE_PIPELINE_JSON", requires = "p4info")]
    pipeline_json: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shown {
    /// Routes and their next hops.
    Routes,
    /// Thresholds in bytes.
    Policy,
    /// Packets cut, dropped, marked and sent, by port and queue.
    Counters,
    /// Bytes queued, by port and queue.
    Queues,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("TRIMWIRE_DEBUG").unwrap_or_else(|_| "warn".into()),
        )
        .init();
    // clap exits with 2 by itself on wrong usage.
    let outcome = match Cli::parse().command {
        Command::Check(file) => check(&file),
        Command::Plan { file, detailed_exitcode } => plan(&file, detailed_exitcode),
        Command::Apply { file, election_id } => apply(&file, election_id),
        Command::Show { what, file } => show(&file, what),
        Command::Schema => print(SCHEMA.trim_end()),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "trimwire-controller", &mut text);
            print(String::from_utf8_lossy(&text).trim_end())
        }
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, error }) => {
            eprintln!("{error:#}");
            ExitCode::from(code)
        }
    }
}

struct Failure {
    code: u8,
    error: anyhow::Error,
}

type Outcome = Result<u8, Failure>;

fn bad_input(error: impl Into<anyhow::Error>) -> Failure {
    Failure { code: BAD_INPUT, error: error.into() }
}

/// Nothing was done, and not because of a file.
fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure { code: FAILED, error: error.into() }
}

impl FileArgs {
    fn read(&self) -> Result<(Fabric, Artifacts), Failure> {
        let name = self.file.display().to_string();
        let text = std::fs::read_to_string(&self.file)
            .with_context(|| format!("cannot read {name}"))
            .map_err(bad_input)?;
        // The message names the file on every line already.
        let fabric = Fabric::from_yaml(&text, &name).map_err(bad_input)?;
        for warning in &fabric.warnings {
            eprintln!("warning: {warning}");
        }
        let artifacts = match (&self.p4info, &self.pipeline_json) {
            (Some(p4info), Some(json)) => {
                let read = |path: &PathBuf| {
                    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
                };
                let place = format!("{}, {}", p4info.display(), json.display());
                let p4info = read(p4info).map_err(bad_input)?;
                let json = read(json).map_err(bad_input)?;
                Artifacts::new(&p4info, json).context(place).map_err(bad_input)?
            }
            _ => Artifacts::embedded().map_err(failed)?,
        };
        Ok((fabric, artifacts))
    }

    fn print(&self, value: &(impl Serialize + Display)) -> Outcome {
        if self.json {
            print(&serde_json::to_string_pretty(value).map_err(failed)?)
        } else {
            print(&value.to_string())
        }
    }
}

/// Prints to stdout. A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> Outcome {
    use std::io::Write;
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(failed(error)),
        _ => Ok(0),
    }
}

/// What `check` says.
#[derive(Serialize)]
struct Checked {
    switches: usize,
    hosts: usize,
    links: usize,
    /// Entities of all switches together.
    entities: usize,
    thresholds: Vec<show::PolicyRow>,
    warnings: Vec<String>,
}

impl Display for Checked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { switches, hosts, links, entities, thresholds, warnings } = self;
        writeln!(f, "{}", show::policy_table(thresholds))?;
        write!(
            f,
            "ok: {switches} switches, {hosts} hosts, {links} links, {entities} entities; {} warnings",
            warnings.len()
        )
    }
}

fn check(file: &FileArgs) -> Outcome {
    let (fabric, artifacts) = file.read()?;
    let routes = topology::Routes::of(&fabric);
    let entities = desired(&fabric, &routes, artifacts.index()).map_err(bad_input)?;
    file.print(&Checked {
        switches: fabric.switches.len(),
        hosts: fabric.hosts.len(),
        links: fabric.links.len(),
        entities: entities.values().map(std::collections::BTreeMap::len).sum(),
        thresholds: show::planned(&fabric),
        warnings: fabric.warnings,
    })
}

fn plan(file: &FileArgs, detailed_exitcode: bool) -> Outcome {
    let (fabric, artifacts) = file.read()?;
    let plan = plan_blocking(&fabric, &artifacts, &Options::default()).map_err(failed)?;
    file.print(&plan)?;
    Ok(if !plan.is_ok() || (detailed_exitcode && !plan.is_empty()) { FAILED } else { 0 })
}

fn apply(file: &FileArgs, election_id: Option<u128>) -> Outcome {
    let (fabric, artifacts) = file.read()?;
    let report = apply_blocking(&fabric, &artifacts, &Options { election_id }).map_err(failed)?;
    file.print(&report)?;
    Ok(if report.is_ok() { 0 } else { FAILED })
}

fn show(file: &FileArgs, what: Shown) -> Outcome {
    let (fabric, artifacts) = file.read()?;
    let what = match what {
        Shown::Routes => What::Routes,
        Shown::Policy => What::Policy,
        Shown::Counters => What::Counters,
        Shown::Queues => What::Queues,
    };
    let shown = show_blocking(&fabric, &artifacts, &Options::default(), what).map_err(failed)?;
    file.print(&shown)?;
    Ok(if shown.errors.is_empty() { 0 } else { FAILED })
}
