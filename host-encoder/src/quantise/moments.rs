//! What the header says about a packet's coordinates.

use crate::simd::Lanes;

/// Sums over a packet's coordinates (docs/wire-format.md §4).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Moments {
    /// Σ v².
    pub(crate) squares: f32,
    /// Σ |v|.
    pub(crate) magnitudes: f32,
    /// The largest |v|.
    pub(crate) largest: f32,
}

/// The moments of two packets: sums in f32 over sixteen partial sums, coordinate j going to sum j mod 16, an order that no vector length
/// disturbs. Each sum has to wait for the one before; two packets' do not wait for each other. Lengths are multiples of 16.
#[inline(always)]
pub(crate) fn moments<L: Lanes>(lanes: L, packets: [&[f32]; 2]) -> [Moments; 2] {
    let mut sums = [Sums::new(lanes); 2];
    let [first, second] = packets.map(|values| L::lines(values));
    let both = first.len().min(second.len());
    let ((first, rest_1), (second, rest_2)) = (first.split_at(both), second.split_at(both));
    let pieces = |lines| <[L::Line]>::chunks_exact(lines, 16 / L::N);
    for (first, second) in pieces(first).zip(pieces(second)) {
        sums[0].add(lanes, first);
        sums[1].add(lanes, second);
    }
    for (sums, rest) in sums.iter_mut().zip([rest_1, rest_2]) {
        for lines in pieces(rest) {
            sums.add(lanes, lines);
        }
    }
    [sums[0].total(lanes), sums[1].total(lanes)]
}

/// Sixteen partial sums each. With eight lanes two vectors make sixteen; with sixteen the second half stays unused.
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
