// SPDX-License-Identifier: Apache-2.0
//! The greatest or least of the last measurements.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The greatest of the last `window` values; of their negatives, the least.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Greatest {
    window: u32,
    /// How many have been seen.
    seen: u64,
    /// Values of which none later is as great, and when each was seen: falling, the greatest in
    /// front.
    values: VecDeque<(u64, f64)>,
}

impl Greatest {
    pub(super) fn of_last(window: u32) -> Self {
        Self { window: window.max(1), seen: 0, values: VecDeque::new() }
    }

    pub(super) fn push(&mut self, value: f64) -> f64 {
        while self.values.back().is_some_and(|(_, last)| *last <= value) {
            self.values.pop_back();
        }
        self.values.push_back((self.seen, value));
        self.seen += 1;
        let oldest = self.seen.saturating_sub(u64::from(self.window));
        while self.values.front().is_some_and(|(seen, _)| *seen < oldest) {
            self.values.pop_front();
        }
        self.values.front().map_or(value, |(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_greatest_of_the_window(values in prop::collection::vec(-1e3..1e3_f64, 1..60), window in 1_usize..12) {
            let mut greatest = Greatest::of_last(window as u32);
            for (i, value) in values.iter().enumerate() {
                let all = &values[(i + 1).saturating_sub(window)..=i];
                prop_assert_eq!(greatest.push(*value), all.iter().copied().fold(f64::MIN, f64::max));
            }
        }
    }
}
