// SPDX-License-Identifier: Apache-2.0
//! What outlives a packet: counters, registers and meters.

use super::bits::{limbs_for, mask64, trim};
use super::entity::{ColorCounters, CounterValue, MeterConfig};

/// Cells of a block.
const BLOCK: usize = 64;
/// Limbs that a cell has at most: registers are of 2,048 bits.
const MOST_LIMBS: usize = 32;

/// An array of cells, each of so many limbs, which begin as zeros. A block takes memory from the first time on that somebody writes to it: programs have arrays for all
/// ports and queues that there may be, and a simulation a hundred switches with a few.
#[derive(Clone, Debug)]
struct Cells {
    size: usize,
    limbs: usize,
    blocks: Vec<Option<Box<[u64]>>>,
}

impl Cells {
    fn new(size: usize, limbs: usize) -> Self {
        Self { size, limbs, blocks: vec![None; size.div_ceil(BLOCK)] }
    }

    fn get(&self, index: usize) -> Option<&[u64]> {
        if index >= self.size {
            return None;
        }
        let block = self.blocks.get(index / BLOCK)?.as_deref();
        let at = index % BLOCK * self.limbs;
        block.map_or(ZEROS.get(..self.limbs), |block| block.get(at..at + self.limbs))
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut [u64]> {
        if index >= self.size {
            return None;
        }
        let block = self.blocks.get_mut(index / BLOCK)?;
        let block = block.get_or_insert_with(|| vec![0; BLOCK * self.limbs].into());
        let at = index % BLOCK * self.limbs;
        block.get_mut(at..at + self.limbs)
    }

    /// A cell of one limb; `None` where there is none, or its limbs are more.
    #[inline]
    fn word(&self, index: usize) -> Option<u64> {
        if index >= self.size {
            return None;
        }
        match self.blocks.get(index / BLOCK)? {
            Some(block) => block.get(index % BLOCK * self.limbs).copied(),
            None => Some(0),
        }
    }

    /// The same, to be written; `None` also where nobody has written to its block.
    #[inline]
    fn word_mut(&mut self, index: usize) -> Option<&mut u64> {
        if index >= self.size || self.limbs != 1 {
            return None;
        }
        self.blocks.get_mut(index / BLOCK)?.as_mut()?.get_mut(index % BLOCK)
    }
}

/// A cell that nobody has written to.
static ZEROS: [u64; MOST_LIMBS] = [0; MOST_LIMBS];

/// An array of counters: packets, bytes.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    pub(super) name: String,
    cells: Cells,
}

impl Counter {
    pub(super) fn new(name: String, size: usize) -> Self {
        Self { name, cells: Cells::new(size, 2) }
    }

    pub(super) fn size(&self) -> usize {
        self.cells.size
    }

    pub(super) fn get(&self, index: usize) -> Option<CounterValue> {
        match *self.cells.get(index)? {
            [packets, bytes] => Some(CounterValue { packets, bytes }),
            _ => None,
        }
    }

    /// Whether there is such a cell.
    pub(super) fn set(&mut self, index: usize, value: CounterValue) -> bool {
        let cell = self.cells.get_mut(index);
        cell.map(|cell| cell.copy_from_slice(&[value.packets, value.bytes])).is_some()
    }

    /// Counts a packet; an index outside the array is ignored, as BMv2 does.
    #[inline]
    pub(super) fn count(&mut self, index: usize, length: u32) {
        if let Some([packets, bytes]) = self.cells.get_mut(index) {
            *packets = packets.wrapping_add(1);
            *bytes = bytes.wrapping_add(u64::from(length));
        }
    }
}

/// An array of cells of one width.
#[derive(Clone, Debug)]
pub(super) struct Register {
    pub(super) name: String,
    pub(super) width: u32,
    pub(super) size: usize,
    cells: Cells,
}

impl Register {
    pub(super) fn new(name: String, width: u32, size: usize) -> Self {
        Self { name, width, size, cells: Cells::new(size, limbs_for(width)) }
    }

    pub(super) fn cell(&self, index: u32) -> Option<&[u64]> {
        self.cells.get(index as usize)
    }

    pub(super) fn cell_mut(&mut self, index: u32) -> Option<&mut [u64]> {
        self.cells.get_mut(index as usize)
    }

    /// A cell of at most 64 bits.
    #[inline]
    pub(super) fn word(&self, index: u32) -> Option<u64> {
        self.cells.word(index as usize)
    }

    /// Writes the low bits to a cell of at most 64; an index outside the array is ignored, as BMv2 does.
    #[inline]
    pub(super) fn set_word(&mut self, index: u32, value: u64) {
        let kept = value & mask64(self.width);
        if let Some(cell) = self.cells.word_mut(index as usize) {
            *cell = kept;
        } else if let Some([cell]) = self.cells.get_mut(index as usize) {
            *cell = kept;
        }
    }

    /// Writes the low bits to a cell, from at least as many limbs.
    pub(super) fn set(&mut self, index: u32, value: &[u64]) {
        let width = self.width;
        if let Some(cell) = self.cell_mut(index) {
            cell.iter_mut().zip(value).for_each(|(limb, value)| *limb = *value);
            trim(cell, width);
        }
    }
}

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

/// BMv2's variant of RFC 2698's two-rate three-colour marker: peak bucket first, and a packet that is red takes
/// tokens from neither, one that is yellow only from the peak bucket. Tokens are kept in billionths, so that
/// virtual nanoseconds lose nothing to rounding.
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
    fn a_register_keeps_its_width_and_ignores_indices_outside() {
        let mut register = Register::new("r".into(), 12, 4);
        register.set_word(3, 0xffff);
        register.set_word(4, 1);
        assert_eq!(register.word(3), Some(0xfff));
        assert_eq!(register.word(4), None);
        let mut wide = Register::new("w".into(), 100, 2);
        wide.set(1, &[u64::MAX; 2]);
        assert_eq!(wide.cell(1), Some(&[u64::MAX, (1 << 36) - 1][..]));
        assert_eq!(wide.cell(0), Some(&[0, 0][..]));
        assert_eq!(wide.cell(2), None);
    }

    #[test]
    fn copies_hold_what_was_written_and_are_apart_from_then_on() {
        let value = |packets, bytes| Some(CounterValue { packets, bytes });
        let (mut counter, mut register) = (Counter::new("c".into(), 130), Register::new("r".into(), 70, 130));
        let blank = (counter.clone(), register.clone());
        counter.count(65, 64);
        counter.count(130, 64);
        register.set(129, &[7, 1]);
        let (mut copy, mut wide_copy) = (counter.clone(), register.clone());
        copy.count(65, 36);
        assert!(
            copy.set(0, CounterValue { packets: 5, bytes: 6 }) && !copy.set(130, CounterValue::default())
        );
        wide_copy.set(129, &[8, 1]);
        let places = [0, 65, 129, 130];
        assert_eq!(places.map(|at| blank.0.get(at)), [value(0, 0), value(0, 0), value(0, 0), None]);
        assert_eq!(places.map(|at| counter.get(at)), [value(0, 0), value(1, 64), value(0, 0), None]);
        assert_eq!(places.map(|at| copy.get(at)), [value(5, 6), value(2, 100), value(0, 0), None]);
        assert_eq!((blank.1.cell(129), register.cell(129)), (Some(&[0, 0][..]), Some(&[7, 1][..])));
        assert_eq!((wide_copy.cell(129), wide_copy.cell(130)), (Some(&[8, 1][..]), None));
    }

    /// An array of its size that is there from the beginning is the definition.
    #[test]
    fn an_array_is_what_an_array_of_zeros_would_be() {
        for (width, size) in [(1, 1), (32, 63), (64, 64), (65, 65), (2_048, 200)] {
            let mut register = Register::new("r".into(), width, size);
            let mut whole = vec![vec![0; limbs_for(width)]; size];
            for step in 0_u32..150 {
                let index = step * 7 % (size as u32 + 3);
                let value = vec![u64::from(step) + 1; limbs_for(width)];
                register.set(index, &value);
                if let Some(cell) = whole.get_mut(index as usize) {
                    *cell = value;
                    trim(cell, width);
                }
            }
            for index in 0..size + 3 {
                assert_eq!(register.cell(index as u32), whole.get(index).map(Vec::as_slice), "{width} bits");
                assert_eq!(register.word(index as u32), whole.get(index).map(|cell| cell[0]), "{width} bits");
            }
        }
    }

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
