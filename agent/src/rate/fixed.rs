// SPDX-License-Identifier: Apache-2.0
//! No law at all.

use super::{Feedback, PathModel, RateLaw};

/// A constant rate.
#[derive(Debug, Clone)]
pub struct Fixed {
    rate_bps: u64,
}

impl Fixed {
    /// `None` is the path's line rate; 0 counts as 1 bit/s.
    pub fn new(rate_bps: Option<u64>, path: &PathModel) -> Self {
        Self { rate_bps: rate_bps.unwrap_or(path.line_rate_bps).max(1) }
    }
}

impl RateLaw for Fixed {
    fn on_feedback(&mut self, _: &Feedback) {}

    fn rate_bps(&self) -> u64 {
        self.rate_bps
    }
}
