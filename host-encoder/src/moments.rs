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

/// Sums in f32 over sixteen partial sums, coordinate j going to sum j mod 16: an order that no vector length disturbs.
/// The length of `values` is a multiple of 16.
#[inline(always)]
pub(crate) fn moments<L: Lanes>(lanes: L, values: &[f32]) -> Moments {
    let zero = lanes.splat(0.0);
    let magnitude = lanes.splat_u(0x7fff_ffff);
    // With eight lanes two vectors make sixteen sums; with sixteen the second half stays unused.
    let (mut squares, mut magnitudes, mut largest) = ([zero; 2], [zero; 2], [lanes.splat_u(0); 2]);
    for lines in L::lines(values).chunks_exact(16 / L::N) {
        for (i, line) in lines.iter().enumerate() {
            let v = lanes.load(line);
            let m = lanes.and(lanes.bits(v), magnitude);
            squares[i] = lanes.add(squares[i], lanes.mul(v, v));
            magnitudes[i] = lanes.add(magnitudes[i], lanes.floats(m));
            // What is positive is ordered as its bits are.
            largest[i] = lanes.max_u(largest[i], m);
        }
    }
    let sixteen = |v: [L::U; 2]| {
        let mut out = [0; 16];
        lanes.to_array(v[0], &mut out);
        if L::N == 8 {
            let mut upper = [0; 16];
            lanes.to_array(v[1], &mut upper);
            out[8..].copy_from_slice(&upper[..8]);
        }
        out
    };
    Moments {
        squares: sum(sixteen([lanes.bits(squares[0]), lanes.bits(squares[1])])),
        magnitudes: sum(sixteen([lanes.bits(magnitudes[0]), lanes.bits(magnitudes[1])])),
        largest: f32::from_bits(sixteen(largest).into_iter().fold(0, u32::max)),
    }
}

/// Halves upon halves.
#[inline(always)]
fn sum(v: [u32; 16]) -> f32 {
    let mut v = v.map(f32::from_bits);
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            v[i] += v[i + half];
        }
    }
    v[0]
}
