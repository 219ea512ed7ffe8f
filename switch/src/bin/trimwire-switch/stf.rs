// SPDX-License-Identifier: Apache-2.0
//! `trimwire-switch stf`: runs STF files on the switch, in virtual time.

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use trimwire_p4runtime::p4info::P4Info;
use trimwire_switch::stf::{self, Outcome, Script};
use trimwire_switch::trace::{self, TraceFormat};
use trimwire_switch::{Switch, SwitchConfig};

/// Run STF files, p4c's packet tests, on a program; each file gets its own switch.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 everything is as the files say, 1 something is not, 2 usage, 3 a file cannot be used."
)]
pub(crate) struct StfArguments {
    /// Program, p4c's BMv2 JSON.
    #[arg(long, value_name = "FILE")]
    json: PathBuf,
    /// P4Info, text or binary, to check against the program.
    #[arg(long, value_name = "FILE")]
    p4info: Option<PathBuf>,
    /// STF files to run.
    #[arg(value_name = "FILE.stf", required = true)]
    files: Vec<PathBuf>,
    /// Trace every packet, as text or as JSON lines.
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "text",
        value_parser = ["text", "json"])]
    trace: Option<String>,
    /// Write the trace to this file instead of stderr; it is emptied first.
    #[arg(long, value_name = "FILE")]
    trace_file: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json_output: bool,
    /// Seed of the program's random numbers.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// Whether everything is as the files say.
pub(crate) fn run(arguments: &StfArguments) -> anyhow::Result<bool> {
    let program = std::fs::read(&arguments.json);
    let program = program.with_context(|| format!("cannot read '{}'", arguments.json.display()))?;
    let switch = || -> anyhow::Result<Switch> {
        let mut switch = Switch::new(SwitchConfig { seed: arguments.seed, ..SwitchConfig::default() });
        let loaded = switch.load_pipeline(&program);
        loaded.with_context(|| format!("cannot load '{}'", arguments.json.display()))?;
        switch.set_tracing(arguments.trace.is_some());
        Ok(switch)
    };
    if let Some(path) = &arguments.p4info {
        check_p4info(path, &mut switch()?)?;
    }
    // Every file is read before any is run: a typing error in the last one shows at once.
    let mut scripts = Vec::new();
    for path in &arguments.files {
        let text = std::fs::read(path).with_context(|| format!("cannot read '{}'", path.display()))?;
        let text = String::from_utf8_lossy(&text);
        scripts.push((
            path,
            Script::parse(&text).map_err(|error| anyhow::anyhow!("{}:{error}", path.display()))?,
        ));
    }
    let mut trace_to: Box<dyn io::Write> = match &arguments.trace_file {
        None => Box::new(io::stderr()),
        Some(path) => {
            let file = std::fs::File::create(path);
            Box::new(io::BufWriter::new(file.with_context(|| format!("cannot write '{}'", path.display()))?))
        }
    };
    let format = match arguments.trace.as_deref() {
        Some("json") => TraceFormat::Json,
        _ => TraceFormat::Text,
    };
    let (mut all_passed, mut reports) = (true, Vec::new());
    for (path, script) in &scripts {
        let outcome = stf::run(script, &mut switch()?);
        let outcome = outcome.map_err(|error| anyhow::anyhow!("{}:{error}", path.display()))?;
        all_passed &= outcome.passed();
        trace::write(&mut trace_to, format, &outcome.trace, 0).context("cannot write the trace")?;
        if arguments.json_output {
            reports.push(report(path, &outcome));
        } else {
            print(path, &outcome).context("cannot write to stdout")?;
        }
    }
    trace_to.flush().context("cannot write the trace")?;
    if arguments.json_output {
        let report = json!({ "passed": all_passed, "files": reports });
        writeln!(io::stdout(), "{report:#}").context("cannot write to stdout")?;
    }
    Ok(all_passed)
}

fn print(path: &Path, outcome: &Outcome) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let path = path.display();
    for reading in &outcome.readings {
        writeln!(out, "{path}:{}: {}", reading.line, reading.text)?;
    }
    for mismatch in &outcome.mismatches {
        writeln!(out, "{path}:{}: {mismatch}", mismatch.line())?;
    }
    let Outcome { packets, frames, elsewhere, mismatches, .. } = outcome;
    let result = match mismatches.len() {
        0 => "pass".to_owned(),
        1 => "FAIL, 1 difference".to_owned(),
        n => format!("FAIL, {n} differences"),
    };
    let elsewhere = match elsewhere {
        0 => String::new(),
        n => format!(", {n} out of ports that the file does not name"),
    };
    writeln!(out, "{path}: {result} ({packets} packets in, {frames} out{elsewhere})")
}

fn report(path: &Path, outcome: &Outcome) -> Value {
    let mismatches: Vec<Value> = outcome
        .mismatches
        .iter()
        .map(|mismatch| json!({ "line": mismatch.line(), "message": mismatch.to_string() }))
        .collect();
    let readings: Vec<Value> = outcome
        .readings
        .iter()
        .map(|reading| json!({ "line": reading.line, "text": reading.text }))
        .collect();
    json!({
        "file": path.display().to_string(),
        "passed": outcome.passed(),
        "packets": outcome.packets,
        "frames": outcome.frames,
        "frames_elsewhere": outcome.elsewhere,
        "mismatches": mismatches,
        "readings": readings,
    })
}

/// The P4Info must be the program's. p4c leaves tables out of the JSON that can never do anything and adds some of its
/// own, so that only what both name can be compared: keys, and that there is such a table at all.
fn check_p4info(path: &Path, switch: &mut Switch) -> anyhow::Result<()> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read '{}'", path.display()))?;
    let p4info = P4Info::from_bytes(&bytes).with_context(|| format!("cannot use '{}'", path.display()))?;
    let control = switch.pipeline().context("the switch has no program")?.control();
    let keys: Vec<(&str, usize)> = control
        .tables()
        .filter(|table| !table.keys.is_empty())
        .map(|table| (table.name.as_str(), table.keys.len()))
        .collect();
    let (mut shared, mut named) = (0, false);
    for table in &p4info.tables {
        let Some(name) = table.preamble.as_ref().map(|preamble| preamble.name.as_str()) else { continue };
        named |= !table.match_fields.is_empty();
        let Some((_, count)) = keys.iter().find(|(of, _)| *of == name) else { continue };
        shared += 1;
        anyhow::ensure!(
            *count == table.match_fields.len(),
            "'{}' is not the P4Info of this program: table {name} has {} keys there and {count} in the program",
            path.display(),
            table.match_fields.len()
        );
    }
    let known: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
    anyhow::ensure!(
        shared > 0 || !named || known.is_empty(),
        "'{}' is not the P4Info of this program: it names none of its tables {}",
        path.display(),
        known.join(", ")
    );
    Ok(())
}
