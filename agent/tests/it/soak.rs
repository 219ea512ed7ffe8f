// SPDX-License-Identifier: Apache-2.0
//! Jobs drawn from seeds, in virtual time; `cargo run --release -p trimwire-agent --example soak --
//! --cases 10000` runs many.

use crate::job::{Case, Size, run};

#[test]
fn every_job_ends_with_the_right_sums_or_the_right_error_in_time() {
    for seed in 0..40 {
        let case = Case::draw(seed, Size::SHORT);
        let verdict = run(&case, 1.0, false);
        assert!(verdict.wrong.is_empty(), "seed {seed}:\n{case}{:#?}", verdict.wrong);
    }
}
