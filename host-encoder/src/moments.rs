//! What the header says about a packet's coordinates, and what a row's scale depends on.

use crate::simd::{Isa, Kernel, Lanes};

/// Sums over a packet's coordinates (docs/wire-format.md §4).
#[derive(Debug, Clone, Copy, PartialEq)]
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
    let (mut squares, mut magnitudes, mut largest) = ([zero; 2], [zero; 2], [zero; 2]);
    for lines in L::lines(values).chunks_exact(16 / L::N) {
        for (i, line) in lines.iter().enumerate() {
            let v = lanes.load(line);
            let m = lanes.floats(lanes.and(lanes.bits(v), magnitude));
            squares[i] = lanes.add(squares[i], lanes.mul(v, v));
            magnitudes[i] = lanes.add(magnitudes[i], m);
            largest[i] = lanes.max(largest[i], m);
        }
    }
    let sixteen = |v: [L::F; 2]| {
        let mut out = [0; 16];
        lanes.to_array(lanes.bits(v[0]), &mut out);
        if L::N == 8 {
            let mut upper = [0; 16];
            lanes.to_array(lanes.bits(v[1]), &mut upper);
            out[8..].copy_from_slice(&upper[..8]);
        }
        out.map(f32::from_bits)
    };
    Moments {
        squares: fold(sixteen(squares), |a, b| a + b),
        magnitudes: fold(sixteen(magnitudes), |a, b| a + b),
        largest: fold(sixteen(largest), f32::max),
    }
}

/// Halves upon halves.
#[inline(always)]
fn fold(mut v: [f32; 16], with: impl Fn(f32, f32) -> f32) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            v[i] = with(v[i], v[i + half]);
        }
    }
    v[0]
}

/// The bits of the largest |v|: bits of non-negative floats order as the floats do, and those of infinity and NaN are
/// above all finite ones.
pub(crate) fn largest_bits(isa: Isa, values: &[f32]) -> u32 {
    isa.run(Largest { values })
}

struct Largest<'a> {
    values: &'a [f32],
}

impl Kernel for Largest<'_> {
    type Output = u32;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> u32 {
        let magnitude = lanes.splat_u(0x7fff_ffff);
        let mut largest = [lanes.splat_u(0); 4];
        let lines = L::lines(self.values);
        let rest = &self.values[lines.len() * L::N..];
        let (groups, single) = lines.as_chunks::<4>();
        for group in groups {
            for i in 0..4 {
                let m = lanes.and(lanes.bits(lanes.load(&group[i])), magnitude);
                largest[i] = lanes.max_u(largest[i], m);
            }
        }
        for line in single {
            largest[0] = lanes.max_u(largest[0], lanes.and(lanes.bits(lanes.load(line)), magnitude));
        }
        let mut out = [0; 16];
        let all = lanes.max_u(lanes.max_u(largest[0], largest[1]), lanes.max_u(largest[2], largest[3]));
        lanes.to_array(all, &mut out);
        rest.iter().map(|v| v.to_bits() & 0x7fff_ffff).chain(out).max().unwrap_or(0)
    }
}
