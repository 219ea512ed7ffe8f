// SPDX-License-Identifier: Apache-2.0
//! The program's STF files (`p4/tests/stf.py` writes all but `probes.stf`): truncation, queue
//! policy and priority, with packets whose answers are known.

use crate::ladder_support::{cases, stf_folder};
use proptest::prelude::*;
use std::path::PathBuf;
use trimwire_switch::stf::{self, Command, Outcome, Script, StfError};
use trimwire_switch::{Switch, SwitchConfig};

const PROGRAM: &[u8] = include_bytes!("../../../p4/build/bmv2/trimwire.json");

fn files() -> Vec<(PathBuf, String)> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(stf_folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.push(concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/tests/probes.stf").into());
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

fn run(text: &str) -> Result<Outcome, StfError> {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.load_pipeline(PROGRAM).unwrap();
    stf::run(&Script::parse(text)?, &mut switch)
}

#[test]
fn every_rung_of_the_ladder_holds() {
    let mut packets = 0;
    for (path, text) in files() {
        let outcome = run(&text).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
        let found: Vec<String> = outcome.mismatches.iter().map(ToString::to_string).collect();
        assert!(outcome.passed(), "{}: {}", path.display(), found.join("\n"));
        assert!(outcome.packets > 0 && outcome.elsewhere == 0, "{}", path.display());
        packets += outcome.packets;
    }
    // All of ladder.json but the packets whose route is a group, which STF cannot write.
    assert!((500..cases().len()).contains(&packets), "{packets}");
}

#[test]
fn a_file_that_expects_another_byte_fails() {
    for (path, text) in files() {
        let mut script = Script::parse(&text).unwrap();
        let expected = script.statements.iter_mut().find_map(|statement| match &mut statement.command {
            Command::Expect { pattern: Some(pattern), .. } => Some((statement.line, pattern)),
            _ => None,
        });
        let Some((line, pattern)) = expected else { continue };
        let last = pattern.nibbles.last_mut().unwrap();
        *last = last.map(|nibble| nibble ^ 1);
        let mut switch = Switch::new(SwitchConfig::default());
        switch.load_pipeline(PROGRAM).unwrap();
        let outcome = stf::run(&script, &mut switch).unwrap();
        let lines: Vec<usize> = outcome.mismatches.iter().map(stf::Mismatch::line).collect();
        assert_eq!(lines, [line], "{}", path.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_damaged_file_gets_an_answer(
        file in 0_usize..1000,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0_u8..3, "[ -~\n]{0,6}"), 1..6),
    ) {
        let files = files();
        let mut text: Vec<char> = files[file % files.len()].1.chars().collect();
        for (at, kind, words) in edits {
            let at = at.index(text.len());
            match kind {
                0 => { text.splice(at..at, words.chars()); }
                1 => text.truncate(at.max(1)),
                _ => { text.splice(at..(at + 3).min(text.len()), words.chars()); }
            }
            text.push('\n');
        }
        let _ = run(&text.iter().collect::<String>());
    }

    #[test]
    fn any_text_gets_an_answer(text in "(packet|expect|add|check_counter|meter_set_rates|mc_node_create|\"|\\PC| |\n|[0-9*$:/.()=a-f]){0,40}") {
        let _ = run(&text);
    }
}
