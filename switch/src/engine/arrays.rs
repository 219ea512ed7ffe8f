// SPDX-License-Identifier: Apache-2.0
//! Counters and registers: arrays of cells that outlive packets.
//!
//! Cells of arrays of one size lie beside each other, index by index:
//!
//! ```text
//!          │ occupancy │ peak │ admitted │
//!  index 0 │     ▒     │  ▒   │  ▒    ▒  │ ← a packet mostly touches one index of them all
//!  index 1 │     ▒     │  ▒   │  ▒    ▒  │
//! ```

use super::bits::{limbs_for, mask64, trim};
use super::entity::CounterValue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Indices of a block.
const BLOCK: usize = 64;
/// Limbs that a cell has at most: registers are of 2,048 bits.
const MOST_LIMBS: usize = 32;
/// Limbs of the cells that lie beside each other, at most.
const MOST_BESIDE: usize = 64;

/// A cell that nobody has written to.
static ZEROS: [u64; MOST_LIMBS] = [0; MOST_LIMBS];

/// The cells of arrays of one size, which begin as zeros. A block takes memory from the first time
/// on that somebody writes to it: programs have arrays for all ports and queues that there may be,
/// and a simulation a hundred switches with a few.
#[derive(Clone, Debug)]
struct Rows {
    size: usize,
    /// Limbs of a row: of one cell of each array.
    limbs: usize,
    /// Empty ones are zeros.
    blocks: Vec<Box<[u64]>>,
}

/// Where an array's cells are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Column {
    /// In which rows,
    pub(super) rows: u32,
    /// and where in each, in limbs.
    pub(super) at: u32,
    limbs: u32,
}

impl Rows {
    fn cell(&self, index: usize, column: Column) -> Option<&[u64]> {
        if index >= self.size {
            return None;
        }
        let (at, limbs) = (index % BLOCK * self.limbs + column.at as usize, column.limbs as usize);
        self.blocks.get(index / BLOCK)?.get(at..at + limbs).or(ZEROS.get(..limbs))
    }

    #[inline]
    fn cell_mut(&mut self, index: usize, column: Column) -> Option<&mut [u64]> {
        let (at, limbs) = (index % BLOCK * self.limbs + column.at as usize, column.limbs as usize);
        self.block_mut(index)?.get_mut(at..at + limbs)
    }

    /// The block of an index, there to be written to.
    #[inline]
    fn block_mut(&mut self, index: usize) -> Option<&mut [u64]> {
        if index >= self.size {
            return None;
        }
        let block = self.blocks.get_mut(index / BLOCK)?;
        if block.is_empty() {
            // The last one is no longer than what was declared, which is what a program's memory is
            // limited by.
            let rows = (self.size - index / BLOCK * BLOCK).min(BLOCK);
            *block = vec![0; rows * self.limbs].into();
        }
        Some(block)
    }
}

/// What is known of a counter array; its cells have two limbs: packets, bytes.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    pub(super) name: String,
    pub(super) size: usize,
    pub(super) column: Column,
}

impl Counter {
    pub(super) fn new(name: String, size: usize) -> Self {
        Self { name, size, column: Column { limbs: 2, ..Column::default() } }
    }
}

/// What is known of a register array.
#[derive(Clone, Debug)]
pub(super) struct Register {
    pub(super) name: String,
    pub(super) width: u32,
    pub(super) size: usize,
    /// The bits of a cell's first limb.
    pub(super) mask: u64,
    pub(super) column: Column,
}

impl Register {
    pub(super) fn new(name: String, width: u32, size: usize) -> Self {
        let column = Column { limbs: limbs_for(width) as u32, ..Column::default() };
        Self { name, width, size, mask: mask64(width), column }
    }
}

/// A program's counters and registers, by number. An index outside an array reads as nothing, and
/// what is written there is ignored, as BMv2 does.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrays {
    pub(super) counters: Arc<[Counter]>,
    pub(super) registers: Arc<[Register]>,
    rows: Vec<Rows>,
}

impl Arrays {
    pub(super) fn new(mut counters: Vec<Counter>, mut registers: Vec<Register>) -> Self {
        let mut rows: Vec<Rows> = Vec::new();
        // By size, the rows that the next array of that size may join.
        let mut open: BTreeMap<usize, usize> = BTreeMap::new();
        let mut place = |size: usize, column: &mut Column| {
            let limbs = column.limbs as usize;
            let number = match open.get(&size) {
                Some(&number) if rows[number].limbs + limbs <= MOST_BESIDE => number,
                _ => {
                    rows.push(Rows { size, limbs: 0, blocks: vec![Box::default(); size.div_ceil(BLOCK)] });
                    open.insert(size, rows.len() - 1);
                    rows.len() - 1
                }
            };
            (column.rows, column.at) = (number as u32, rows[number].limbs as u32);
            rows[number].limbs += limbs;
        };
        registers.iter_mut().for_each(|register| place(register.size, &mut register.column));
        counters.iter_mut().for_each(|counter| place(counter.size, &mut counter.column));
        Self { counters: counters.into(), registers: registers.into(), rows }
    }

    pub(super) fn counter(&self, counter: usize, index: usize) -> Option<CounterValue> {
        let column = self.counters[counter].column;
        match *self.rows[column.rows as usize].cell(index, column)? {
            [packets, bytes] => Some(CounterValue { packets, bytes }),
            _ => None,
        }
    }

    /// Whether there is such a cell.
    pub(super) fn set_counter(&mut self, counter: usize, index: usize, value: CounterValue) -> bool {
        let column = self.counters[counter].column;
        let cell = self.rows[column.rows as usize].cell_mut(index, column);
        cell.map(|cell| cell.copy_from_slice(&[value.packets, value.bytes])).is_some()
    }

    /// Counts a packet.
    #[inline]
    pub(super) fn count(&mut self, counter: usize, index: u32, length: u32) {
        self.count_at(self.counters[counter].column, index, length);
    }

    #[inline]
    pub(super) fn count_at(&mut self, column: Column, index: u32, length: u32) {
        if let Some([packets, bytes]) = self.rows[column.rows as usize].cell_mut(index as usize, column) {
            *packets = packets.wrapping_add(1);
            *bytes = bytes.wrapping_add(u64::from(length));
        }
    }

    pub(super) fn register(&self, register: usize, index: u32) -> Option<&[u64]> {
        let column = self.registers[register].column;
        self.rows[column.rows as usize].cell(index as usize, column)
    }

    pub(super) fn register_mut(&mut self, register: usize, index: u32) -> Option<&mut [u64]> {
        let column = self.registers[register].column;
        self.rows[column.rows as usize].cell_mut(index as usize, column)
    }

    /// A cell of at most 64 bits.
    #[inline]
    pub(super) fn word(&self, register: usize, index: u32) -> Option<u64> {
        let Column { rows, at, .. } = self.registers[register].column;
        self.word_at(rows, at, index)
    }

    /// Writes the low bits to a cell of at most 64.
    #[inline]
    pub(super) fn set_word(&mut self, register: usize, index: u32, value: u64) {
        let Register { column: Column { rows, at, .. }, mask, .. } = self.registers[register];
        self.set_word_at(rows, at, index, value & mask);
    }

    /// The first limb of a column's cell.
    #[inline]
    pub(super) fn word_at(&self, rows: u32, at: u32, index: u32) -> Option<u64> {
        let (rows, index) = (&self.rows[rows as usize], index as usize);
        if index >= rows.size {
            return None;
        }
        let word = rows.blocks.get(index / BLOCK)?.get(index % BLOCK * rows.limbs + at as usize);
        Some(word.copied().unwrap_or(0))
    }

    #[inline]
    pub(super) fn set_word_at(&mut self, rows: u32, at: u32, index: u32, value: u64) {
        let (rows, index) = (&mut self.rows[rows as usize], index as usize);
        let place = index % BLOCK * rows.limbs + at as usize;
        if let Some(word) = rows.block_mut(index).and_then(|block| block.get_mut(place)) {
            *word = value;
        }
    }

    /// Writes the low bits to a cell, from at least as many limbs.
    pub(super) fn set_register(&mut self, register: usize, index: u32, value: &[u64]) {
        let width = self.registers[register].width;
        if let Some(cell) = self.register_mut(register, index) {
            cell.iter_mut().zip(value).for_each(|(limb, value)| *limb = *value);
            trim(cell, width);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers of these widths and sizes.
    fn registers(of: &[(u32, usize)]) -> Arrays {
        let register =
            |&(width, size): &(u32, usize)| Register::new(format!("{width} × {size}"), width, size);
        Arrays::new(Vec::new(), of.iter().map(register).collect())
    }

    #[test]
    fn a_register_keeps_its_width_and_ignores_indices_outside() {
        let mut arrays = registers(&[(12, 4), (100, 2)]);
        arrays.set_word(0, 3, 0xffff);
        arrays.set_word(0, 4, 1);
        assert_eq!((arrays.word(0, 3), arrays.word(0, 4)), (Some(0xfff), None));
        arrays.set_register(1, 1, &[u64::MAX; 2]);
        assert_eq!(arrays.register(1, 1), Some(&[u64::MAX, (1 << 36) - 1][..]));
        assert_eq!(arrays.register(1, 0), Some(&[0, 0][..]));
        assert_eq!(arrays.register(1, 2), None);
    }

    #[test]
    fn copies_hold_what_was_written_and_are_apart_from_then_on() {
        let value = |packets, bytes| Some(CounterValue { packets, bytes });
        let blank =
            Arrays::new(vec![Counter::new("c".into(), 130)], vec![Register::new("r".into(), 70, 130)]);
        let mut first = blank.clone();
        first.count(0, 65, 64);
        first.count(0, 130, 64);
        first.set_register(0, 129, &[7, 1]);
        let mut copy = first.clone();
        copy.count(0, 65, 36);
        let other = CounterValue { packets: 5, bytes: 6 };
        assert!(copy.set_counter(0, 0, other) && !copy.set_counter(0, 130, other));
        copy.set_register(0, 129, &[8, 1]);
        let counts = |arrays: &Arrays| [0, 65, 129, 130].map(|at| arrays.counter(0, at));
        assert_eq!(counts(&blank), [value(0, 0), value(0, 0), value(0, 0), None]);
        assert_eq!(counts(&first), [value(0, 0), value(1, 64), value(0, 0), None]);
        assert_eq!(counts(&copy), [value(5, 6), value(2, 100), value(0, 0), None]);
        let cells = [&blank, &first, &copy].map(|arrays| arrays.register(0, 129));
        assert_eq!(cells, [Some(&[0, 0][..]), Some(&[7, 1][..]), Some(&[8, 1][..])]);
        assert_eq!(copy.register(0, 130), None);
    }

    /// Arrays of their sizes that are there from the beginning are the definition, whoever lies
    /// beside them.
    #[test]
    fn each_array_is_what_an_array_of_zeros_would_be() {
        let sizes =
            [(1, 1), (32, 63), (64, 64), (65, 65), (2_048, 200), (9, 200), (2_048, 200), (16, 63), (80, 200)];
        let mut arrays = registers(&sizes);
        assert_eq!(arrays.rows.len(), 6, "those of 200 do not fit one row");
        let mut whole: Vec<Vec<Vec<u64>>> =
            sizes.iter().map(|&(width, size)| vec![vec![0; limbs_for(width)]; size]).collect();
        for step in 0_u32..1_500 {
            let number = step as usize % sizes.len();
            let (width, size) = sizes[number];
            let index = step * 7 % (size as u32 + 3);
            let value = vec![u64::from(step) + 1; limbs_for(width)];
            arrays.set_register(number, index, &value);
            if let Some(cell) = whole[number].get_mut(index as usize) {
                *cell = value;
                trim(cell, width);
            }
        }
        let taken: usize = arrays.rows.iter().flat_map(|rows| &rows.blocks).map(|block| block.len()).sum();
        let declared: usize = whole.iter().flatten().map(Vec::len).sum();
        assert!(taken <= declared, "{taken} limbs for {declared}");
        for (number, whole) in whole.iter().enumerate() {
            for index in 0..whole.len() + 3 {
                let wanted = whole.get(index);
                assert_eq!(arrays.register(number, index as u32), wanted.map(Vec::as_slice), "{number}");
                assert_eq!(arrays.word(number, index as u32), wanted.map(|cell| cell[0]), "{number}");
            }
        }
    }
}
