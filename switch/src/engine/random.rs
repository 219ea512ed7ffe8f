// SPDX-License-Identifier: Apache-2.0
//! The program's `random`: deterministic, so that the same packets give the same run.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Uniform on `low..=high`; `low` must not exceed `high`. Multiply-shift: the bias is below
    /// 2^-64 of the span.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = u128::from(high.wrapping_sub(low)) + 1;
        low.wrapping_add(((u128::from(self.next()) * span) >> 64) as u64)
    }
}
