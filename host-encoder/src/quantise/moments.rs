// SPDX-License-Identifier: Apache-2.0
//! What the header says about a packet's coordinates.

use crate::simd::Lanes;

/// Sums over a packet's coordinates (docs/reference/wire-format.md §4).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Moments {
    /// Σ v².
    pub(crate) squares: f32,
    /// Σ |v|.
    pub(crate) magnitudes: f32,
    /// The largest |v|.
    pub(crate) largest: f32,
}

/// The moments of some packets: sums in f32 over sixteen partial sums, coordinate j going to sum j
/// mod 16, an order that no vector length disturbs. Each sum has to wait for the one before; other
/// packets' do not wait for it. Lengths are multiples of 16.
#[inline(always)]
pub(crate) fn moments<L: Lanes, const K: usize>(lanes: L, packets: [&[f32]; K]) -> [Moments; K] {
    let mut sums = [Sums::new(lanes); K];
    let mut both = usize::MAX;
    for packet in packets {
        both = both.min(L::lines(packet).len());
    }
    let step = 16 / L::N;
    let mut at = 0;
    while at + step <= both {
        for k in 0..K {
            sums[k].add(lanes, &L::lines(packets[k])[at..at + step]);
        }
        at += step;
    }
    let mut moments = [Moments::default(); K];
    for k in 0..K {
        for lines in L::lines(packets[k])[at..].chunks_exact(step) {
            sums[k].add(lanes, lines);
        }
        moments[k] = sums[k].total(lanes);
    }
    moments
}

/// Sixteen partial sums each. With eight lanes two vectors make sixteen; with sixteen the second
/// half stays unused.
#[derive(Clone, Copy)]
struct Sums<L: Lanes> {
    squares: [L::F; 2],
    magnitudes: [L::F; 2],
    largest: [L::U; 2],
}

impl<L: Lanes> Sums<L> {
    #[inline(always)]
    fn new(lanes: L) -> Self {
        let zero = [lanes.splat(0.0); 2];
        Self { squares: zero, magnitudes: zero, largest: [lanes.splat_u(0); 2] }
    }

    #[inline(always)]
    fn add(&mut self, lanes: L, lines: &[L::Line]) {
        for (i, line) in lines.iter().enumerate() {
            let v = lanes.load(line);
            let m = lanes.and(lanes.bits(v), lanes.splat_u(0x7fff_ffff));
            self.squares[i] = lanes.add(self.squares[i], lanes.mul(v, v));
            self.magnitudes[i] = lanes.add(self.magnitudes[i], lanes.floats(m));
            // What is positive is ordered as its bits are.
            self.largest[i] = lanes.max_u(self.largest[i], m);
        }
    }

    #[inline(always)]
    fn total(self, lanes: L) -> Moments {
        Moments {
            squares: lanes.sum(self.squares),
            magnitudes: lanes.sum(self.magnitudes),
            largest: f32::from_bits(lanes.largest(self.largest)),
        }
    }
}
