// SPDX-License-Identifier: Apache-2.0
//! `trimwire-agent doctor`: what would keep this host, and the way to another, from their best.

mod judge;
mod local;
mod peer;
mod probe;

use crate::args::LinkArgs;
use crate::report::table;
use crate::{Failure, failed, print};
use clap::{Arg, Args};
use serde::Serialize;

/// Of the link's options, those that a look needs.
const OWN: [&str; 7] = ["peer", "listen", "bind", "socket_ifname", "port", "timeout", "json"];

fn own_options(arg: Arg) -> Arg {
    if OWN.contains(&arg.get_id().as_str()) { arg } else { arg.hide(true) }
}

#[derive(Args)]
#[command(mut_args = own_options)]
pub(crate) struct DoctorArgs {
    /// Probe the path to this host as well, where `doctor --listen` runs.
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "listen")]
    peer: Option<String>,
    /// Answer the probes of one `doctor --peer`.
    #[arg(long)]
    listen: bool,
    #[command(flatten)]
    link: LinkArgs,
}

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Fine,
    /// Worth knowing.
    Note,
    Bad,
}

/// What was looked at, and what it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: String,
    state: State,
    /// What was found.
    found: String,
    /// What to do, where something can be done.
    #[serde(rename = "do", skip_serializing_if = "String::is_empty")]
    advice: String,
}

impl Finding {
    fn new(check: impl Into<String>, state: State, found: impl Into<String>, advice: &str) -> Self {
        // What is fine needs nothing done.
        let advice = if state == State::Fine { String::new() } else { advice.to_owned() };
        Self { check: check.into(), state, found: found.into(), advice }
    }

    fn fine_if(fine: bool, check: impl Into<String>, found: impl Into<String>, advice: &str) -> Self {
        Self::new(check, if fine { State::Fine } else { State::Bad }, found, advice)
    }
}

#[derive(Debug, Serialize)]
struct Report {
    fine: bool,
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<bool, Failure> {
    if args.listen {
        return peer::listen(&args.link).map(|()| true);
    }
    let mut findings = Vec::new();
    let own = match &args.peer {
        Some(host) => {
            let (own, found) = peer::visit(&args.link, host)?;
            findings = found;
            Some(own)
        }
        None => args.link.own_address()?,
    };
    let mut all = local::findings(own).map_err(failed)?;
    all.append(&mut findings);
    let report = Report { fine: all.iter().all(|finding| finding.state != State::Bad), findings: all };
    if args.link.json {
        print(&serde_json::to_string_pretty(&report).map_err(failed)?)?;
    } else {
        print(&text(&report.findings))?;
    }
    Ok(report.fine)
}

fn text(findings: &[Finding]) -> String {
    let state = |state| match state {
        State::Fine => "ok",
        State::Note => "note",
        State::Bad => "BAD",
    };
    let rows: Vec<Vec<String>> =
        findings.iter().map(|finding| vec![state(finding.state).to_owned(), finding.check.clone()]).collect();
    let lines = table(&["", "check"], &rows);
    let lines = lines.lines().skip(1).zip(findings).map(|(line, finding)| {
        let advice = if finding.advice.is_empty() {
            String::new()
        } else {
            format!("\n{:>9} {}", "->", finding.advice)
        };
        format!("{line}: {}{advice}", finding.found)
    });
    lines.collect::<Vec<_>>().join("\n")
}
