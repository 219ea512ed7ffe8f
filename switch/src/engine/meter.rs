// SPDX-License-Identifier: Apache-2.0
//! Meters.

use super::entity::{ColorCounters, MeterConfig};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MeterUnit {
    Packets,
    Bytes,
}

#[derive(Clone, Debug)]
pub(super) struct MeterArray {
    pub(super) name: String,
    pub(super) unit: MeterUnit,
    pub(super) cells: Vec<Meter>,
}

/// BMv2's variant of RFC 2698's two-rate three-colour marker: peak bucket first, and a packet that
/// is red takes tokens from neither, one that is yellow only from the peak bucket. Tokens are kept
/// in billionths, so that virtual nanoseconds lose nothing to rounding.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    config: Option<MeterConfig>,
    committed: Bucket,
    peak: Bucket,
    colors: ColorCounters,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    tokens: u128,
    updated_ns: u64,
}

const BILLION: u128 = 1_000_000_000;

impl Bucket {
    fn take(&mut self, now_ns: u64, rate: u64, burst: u64, cost: u64) -> bool {
        let elapsed = u128::from(now_ns.saturating_sub(self.updated_ns));
        self.updated_ns = self.updated_ns.max(now_ns);
        let grown = self.tokens.saturating_add(elapsed.saturating_mul(u128::from(rate)));
        self.tokens = grown.min(u128::from(burst) * BILLION);
        match self.tokens.checked_sub(u128::from(cost) * BILLION) {
            Some(rest) => {
                self.tokens = rest;
                true
            }
            None => false,
        }
    }
}

impl Meter {
    pub(super) fn config(&self) -> Option<MeterConfig> {
        self.config
    }

    /// Both buckets start full.
    pub(super) fn configure(&mut self, config: Option<MeterConfig>) {
        self.config = config;
        if let Some(config) = config {
            let full = |burst| Bucket { tokens: u128::from(burst) * BILLION, updated_ns: 0 };
            (self.committed, self.peak) = (full(config.cburst), full(config.pburst));
        }
    }

    pub(super) fn colors(&self) -> ColorCounters {
        self.colors
    }

    pub(super) fn clear_colors(&mut self) {
        self.colors = ColorCounters::default();
    }

    /// 0 green, 1 yellow, 2 red. An unconfigured meter is green.
    pub(super) fn color(&mut self, now_ns: u64, unit: MeterUnit, length: u32) -> u8 {
        let color = match self.config {
            Some(config) => self.mark(config, now_ns, unit, length),
            None => 0,
        };
        let ColorCounters { green, yellow, red } = &mut self.colors;
        [green, yellow, red][usize::from(color)].count(length);
        color
    }

    fn mark(&mut self, config: MeterConfig, now_ns: u64, unit: MeterUnit, length: u32) -> u8 {
        let cost = match unit {
            MeterUnit::Packets => 1,
            MeterUnit::Bytes => u64::from(length),
        };
        let below_peak = self.peak.take(now_ns, config.pir, config.pburst, cost);
        match below_peak && self.committed.take(now_ns, config.cir, config.cburst, cost) {
            true => 0,
            false if below_peak => 1,
            false => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_colors_by_peak_then_committed_rate() {
        let mut meter = Meter::default();
        assert_eq!(meter.color(0, MeterUnit::Packets, 100), 0);
        // One packet a second committed, ten a second peak.
        meter.configure(Some(MeterConfig { cir: 1, cburst: 1, pir: 10, pburst: 2 }));
        let second = 1_000_000_000;
        let colors: Vec<u8> = (0..4).map(|_| meter.color(second, MeterUnit::Packets, 100)).collect();
        assert_eq!(colors, [0, 1, 2, 2]);
        assert_eq!(meter.color(second + second / 10, MeterUnit::Packets, 100), 1);
        assert_eq!(meter.color(2 * second, MeterUnit::Packets, 100), 0);
    }
}
