// SPDX-License-Identifier: Apache-2.0
//! Time models from measurements: a constant and a slope.

/// `constant + slope · x`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// At x = 0, not negative.
    pub constant: f64,
    /// Of each x, not negative.
    pub slope: f64,
    /// Greatest relative distance of a sample from the line.
    pub worst: f64,
}

/// The line through samples (x, time), both positive, of least *relative* squares: launches show in
/// small sizes, which absolute squares would not look at. `None` where samples are fewer than two
/// sizes or no numbers.
pub fn fit(samples: &[(f64, f64)]) -> Option<Line> {
    let valid = |&(x, t): &(f64, f64)| x.is_finite() && t.is_finite() && x > 0.0 && t > 0.0;
    let first = samples.first()?.0;
    if !samples.iter().all(valid) || samples.iter().all(|&(x, _)| x == first) {
        return None;
    }
    // Minimises Σ (1 − c u − s v)², where u = 1 / t and v = x / t.
    let sum = |of: fn(f64, f64) -> f64| samples.iter().map(|&(x, t)| of(1.0 / t, x / t)).sum::<f64>();
    let (u, v) = (sum(|u, _| u), sum(|_, v| v));
    let (uu, uv, vv) = (sum(|u, _| u * u), sum(|u, v| u * v), sum(|_, v| v * v));
    let determinant = uu * vv - uv * uv;
    let free = ((u * vv - v * uv) / determinant, (v * uu - u * uv) / determinant);
    // A negative one is nothing that takes time: the other alone, then.
    let (constant, slope) = match free {
        (constant, slope) if constant >= 0.0 && slope >= 0.0 => free,
        (constant, _) if constant < 0.0 => (0.0, v / vv),
        _ => (u / uu, 0.0),
    };
    let off = |&(x, t): &(f64, f64)| (1.0 - (constant + slope * x) / t).abs();
    Some(Line { constant, slope, worst: samples.iter().map(off).fold(0.0, f64::max) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_line_is_found_again(constant in 0.0..100.0_f64, slope in 0.001..10.0_f64, sizes in prop::collection::vec(1_u32..1_000_000, 2..20)) {
            let samples: Vec<(f64, f64)> = sizes.iter().map(|&x| (f64::from(x), constant + slope * f64::from(x))).collect();
            prop_assume!(sizes.iter().any(|x| f64::from(*x) > 1.5 * f64::from(sizes[0])));
            let line = fit(&samples).unwrap();
            prop_assert!(line.worst < 1e-6, "{line:?}");
        }

        /// No pair on a grid around it is better.
        #[test]
        fn no_line_near_it_is_better(samples in prop::collection::vec((1.0..1e6_f64, 0.1..1e3_f64), 2..12)) {
            let line = fit(&samples).unwrap();
            prop_assert!(line.constant >= 0.0 && line.slope >= 0.0);
            let error = |c: f64, s: f64| samples.iter().map(|(x, t)| (1.0 - (c + s * x) / t).powi(2)).sum::<f64>();
            let best = error(line.constant, line.slope);
            for (c, s) in [(0.9, 1.0), (1.1, 1.0), (1.0, 0.9), (1.0, 1.1), (1.05, 0.95), (0.95, 1.05)] {
                prop_assert!(best <= error(line.constant * c, line.slope * s) * (1.0 + 1e-9) + 1e-12);
            }
        }
    }

    #[test]
    fn samples_that_are_no_line_are_refused() {
        for samples in [
            &[][..],
            &[(1.0, 1.0)],
            &[(2.0, 1.0), (2.0, 3.0)],
            &[(1.0, f64::NAN), (2.0, 1.0)],
            &[(1.0, 0.0), (2.0, 1.0)],
        ] {
            assert_eq!(fit(samples), None);
        }
    }
}
