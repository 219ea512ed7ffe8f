// SPDX-License-Identifier: Apache-2.0
//! Keys: a hash of everything that a run's results follow from.

use super::super::Scenario;
use super::super::read;
use crate::failure::Failure;
use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use trimwire_agent::transcript::hex;
use trimwire_fabric::sim::scenario::{Parts, Prepared};
use trimwire_fabric::sim::setup::Setup;
use trimwire_fabric::sim::workload::{Begin, Demand};

/// Hashes of sources, made by `build.rs`.
const SIMULATOR: &str = env!("TRIMWIRE_SOURCES_SIMULATOR");
const AGENT: &str = env!("TRIMWIRE_SOURCES_AGENT");
const PROGRAM: &str = env!("TRIMWIRE_SOURCES_PROGRAM");
const TRAINING: &str = env!("TRIMWIRE_SOURCES_TRAINING");
const DCQCN: &str = env!("TRIMWIRE_SOURCES_DCQCN");
const SWIFT: &str = env!("TRIMWIRE_SOURCES_SWIFT");
const TABLES: &str = env!("TRIMWIRE_SOURCES_TABLES");

/// Digits of a key: enough to tell a project's figures apart.
const DIGITS: usize = 16;

/// Of one run with one seed: sources, and what is simulated.
pub(super) fn of_run(scenario: &Scenario, number: usize, seed: u64) -> anyhow::Result<String> {
    let prepared = scenario.prepare(number, seed).map_err(Failure::into_error)?;
    let Parts { agent, dcqcn, swift, program, training } = scenario.file.parts(number);
    let transports = [(agent, AGENT), (dcqcn, DCQCN), (swift, SWIFT)];
    let parts = [(true, SIMULATOR)].into_iter().chain(transports);
    let parts = parts.chain([(program, PROGRAM), (training, TRAINING)]);
    let mut hash = Sha256::new();
    for (_, sources) in parts.filter(|(used, _)| *used) {
        hash.update(sources);
    }
    take(&prepared, &mut hash);
    if program {
        // Tables are written of these.
        let (words, files) = scenario.file.input(number).context("there is no such run")?;
        hash.update(words);
        for file in files {
            hash.update(read(&scenario.beside(file))?);
        }
    }
    Ok(digits(hash))
}

/// What is simulated, whatever words said it: a new word of scenario files makes no figure old.
fn take(prepared: &Prepared, hash: &mut Sha256) {
    let Prepared { name: _, setup, ideal_s, training } = prepared;
    // All of it by name, so that nothing new is forgotten. Programs are hashed by their sources and words.
    let Setup {
        topology,
        demands,
        payload,
        transport,
        rule,
        programs: _,
        changes,
        reroute_ns,
        seed,
        limit_ns,
        keep_planes,
    } = setup;
    hash.update(format!("{ideal_s:?} {training:?} {topology:?} {payload} {transport:?} {rule:?}"));
    hash.update(format!("{changes:?} {reroute_ns:?} {seed} {limit_ns} {keep_planes}"));
    // Some have millions.
    for Demand { source, destination, bytes, begin, after, foreground, priority } in demands {
        let (later, ns) = match begin {
            Begin::At(ns) => (false, ns),
            Begin::Later(ns) => (true, ns),
        };
        let words = [source, destination].map(|host| host.to_le_bytes());
        hash.update(words.as_flattened());
        hash.update([bytes, ns].map(|number| number.to_le_bytes()).as_flattened());
        hash.update([u8::from(later), u8::from(*foreground), *priority]);
        hash.update((after.len() as u64).to_le_bytes());
        after.iter().for_each(|before| hash.update(before.to_le_bytes()));
    }
}

/// Of a whole figure: its runs with all seeds, and how its table looks.
pub(super) fn of_figure(scenario: &Scenario) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    for number in 0..scenario.file.run_names().count() {
        for seed in scenario.seeds() {
            hash.update(of_run(scenario, number, seed)?);
        }
    }
    hash.update(TABLES);
    hash.update(format!("{:?} {:?}", scenario.file.columns, scenario.file.claims));
    Ok(digits(hash))
}

fn digits(hash: Sha256) -> String {
    let mut text = hex(&hash.finalize().into());
    text.truncate(DIGITS);
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Items of the agent that the simulator imports, by module, and the files in `build.rs` that have them.
    const KNOWN: [&str; 7] = [
        "config::{TimeoutConfig, Traffic}",
        "pacing::Pacer",
        "rate::",
        "rtt::",
        "spray::Spray",
        "transfer::{Overtaken, PathEstimate, Silence, Slowdown, Late}",
        "wire::SENDERS_MAX",
    ];

    #[test]
    fn what_the_simulator_takes_from_the_agent_is_among_the_hashed_sources() {
        fn imports(folder: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    imports(&path, found);
                } else {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                    found.extend(lines.filter_map(|line| {
                        Some(line.split_once("trimwire_agent::")?.1.trim_end_matches(';').to_owned())
                    }));
                }
            }
        }
        let mut found = Vec::new();
        imports(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fabric/src/sim"), &mut found);
        assert!(found.len() > 5);
        for import in found {
            let (module, items) = import.split_once("::").unwrap();
            let known = KNOWN.iter().find_map(|known| known.strip_prefix(module)?.strip_prefix("::"));
            let known = known.unwrap_or_else(|| panic!("{module} is not in build.rs"));
            let names = items.split([',', '{', '}', ' ']).filter(|name| !name.is_empty());
            for name in names {
                assert!(known.is_empty() || known.contains(name), "{import}: is {name} in build.rs?");
            }
        }
    }
}
