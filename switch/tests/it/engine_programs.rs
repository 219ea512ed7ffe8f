// SPDX-License-Identifier: Apache-2.0
//! Small programs, one per group of constructs, do on our engine what they do on BMv2: random
//! entries and frames, the same frames, counters, digests and packet-ins.
//!
//! What BMv2 1.15.5 did is recorded in `programs/recorded/`, so that the comparison runs without
//! it. Where `simple_switch_grpc` is installed, BMv2 is asked again, and `TRIMWIRE_RECORD_BMV2=1
//! cargo test -p trimwire-switch --test it engine_programs::` writes the recordings anew. `make p4`
//! compiles the programs.

mod cases;
mod entries;

use crate::bmv2_support::observed::{assert_same, ours, recorded};
use crate::bmv2_support::{Case, bmv2_is_installed, recording_asked_for, switch};

const FOLDER: &str = "tests/programs/recorded";

fn check(case: &Case) {
    let recorded = recorded(FOLDER, case);
    let least = case.frames.len() / 4;
    assert!(recorded.len() > least, "{}: {} lines tell too little", case.name, recorded.len());
    assert_same(case.name, &ours(case), &recorded);
}

macro_rules! programs {
    ($($test:ident: $case:ident,)*) => {
        $(#[test]
        fn $test() {
            check(&cases::$case());
        })*

        /// All of them.
        pub(crate) fn all() -> Vec<Case> {
            vec![$(cases::$case()),*]
        }
    };
}

programs! {
    parsers_take_packets_apart_as_bmv2_does: parsers,
    unions_hold_one_header_as_on_bmv2: unions,
    stacks_and_headers_move_as_on_bmv2: stacks,
    numbers_of_every_width_compute_as_on_bmv2: arithmetic,
    every_kind_of_table_hits_what_it_hits_on_bmv2: tables,
    selectors_choose_the_member_that_bmv2_chooses: selectors,
    registers_counters_and_meters_are_those_of_bmv2: stateful,
    hashes_are_those_of_bmv2: hashes,
    checksums_are_those_of_bmv2: checksums,
    copies_carry_what_they_carry_on_bmv2: replication,
    the_controller_hears_what_it_hears_from_bmv2: controller,
    control_flow_leaves_where_it_leaves_on_bmv2: flow,
}

#[test]
fn bmv2_still_does_what_was_recorded() {
    if !bmv2_is_installed() || recording_asked_for() {
        eprintln!("SKIPPED: asking BMv2 again: simple_switch_grpc is not on PATH, or has just been recorded");
        return;
    }
    let cases = all();
    std::thread::scope(|scope| {
        for case in &cases {
            scope.spawn(|| assert_same(case.name, &switch::bmv2(case), &recorded(FOLDER, case)));
        }
    });
}
