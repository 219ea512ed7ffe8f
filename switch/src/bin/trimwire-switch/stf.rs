// SPDX-License-Identifier: Apache-2.0
//! `trimwire-switch stf`: runs STF files on the switch, in virtual time.

use anyhow::Context as _;
use clap::Args;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
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
    /// STF files to run.
    #[arg(value_name = "FILE.stf", required = true)]
    files: Vec<PathBuf>,
    /// Trace every packet to stderr, as text or as JSON lines.
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    trace: Option<TraceFormat>,
}

/// Whether everything is as the files say.
pub(crate) fn run(arguments: &StfArguments) -> anyhow::Result<bool> {
    let program = std::fs::read(&arguments.json);
    let program = program.with_context(|| format!("cannot read '{}'", arguments.json.display()))?;
    let switch = || -> anyhow::Result<Switch> {
        let mut switch = Switch::new(SwitchConfig::default());
        let loaded = switch.load_pipeline(&program);
        loaded.with_context(|| format!("cannot load '{}'", arguments.json.display()))?;
        switch.set_tracing(arguments.trace.is_some());
        Ok(switch)
    };
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
    let mut all_passed = true;
    for (path, script) in &scripts {
        let outcome = stf::run(script, &mut switch()?);
        let outcome = outcome.map_err(|error| anyhow::anyhow!("{}:{error}", path.display()))?;
        all_passed &= outcome.passed();
        let format = arguments.trace.unwrap_or_default();
        trace::write(&mut io::stderr(), format, &outcome.trace, 0).context("cannot write the trace")?;
        print(path, &outcome).context("cannot write to stdout")?;
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
