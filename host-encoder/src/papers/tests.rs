// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::accuracy::nmse;
use crate::wire::StreamId;

const ENVELOPE: Envelope = Envelope { stream: StreamId::new(1, 5).unwrap(), message: 77 };

/// Box and Muller's.
fn gaussian(count: usize) -> Vec<f32> {
    let uniform = |i: usize, word: usize| {
        (f64::from(philox4x32([i as u32, 0, 0, 0], [1, 2])[word]) + 0.5) / f64::from(u32::MAX)
    };
    let turn = |i| (std::f64::consts::TAU * uniform(i, 1)).cos();
    (0..count).map(|i| ((-2.0 * uniform(i, 0).min(1.0).ln()).sqrt() * turn(i)) as f32).collect()
}

fn decoded(
    codec: PaperCodec,
    decoding: Decoding,
    seed: u64,
    values: &[f32],
    held: impl Fn(usize) -> usize + Copy,
) -> Vec<f32> {
    let layout = Layout::new(values.len(), 352).unwrap();
    let mut out = vec![f32::NAN; values.len()];
    for row in 0..layout.rows() {
        let of = Trimmed { layout: &layout, row, job: Job::new(seed), envelope: ENVELOPE, decoding };
        let place = layout.row_coordinates(row);
        codec.after_trim(of, &values[place.clone()], held, &mut out[place]);
    }
    out
}

/// E f(x) of N(0, 1), by the midpoint rule.
fn expectation(f: impl Fn(f64) -> f64) -> f64 {
    let h = 1e-4;
    let at = |i: i32| (f64::from(i) + 0.5) * h;
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt() * h;
    (-120_000..120_000).map(|i| f(at(i)) * density(at(i))).sum()
}

#[test]
fn closed_forms_are_their_integrals() {
    let stochastic = expectation(|x| 6.25 - 2.0 * x * x.clamp(-2.5, 2.5) + x * x);
    assert!((stochastic - STOCHASTIC).abs() < 1e-9, "{stochastic}");
    let dithered = expectation(|x| 6.25 / 3.0 + (x.abs() - 2.5).max(0.0).powi(2));
    assert!((dithered - DITHERED).abs() < 1e-9, "{dithered}");
    let sign = expectation(|x| (x.signum() - x).powi(2));
    let closed = PaperCodec::SignMagnitude.expected_nmse(Decoding::Paper, &[(1, 1.0)]);
    assert!((sign - closed).abs() < 1e-6, "{sign}");
}

#[test]
fn a_trim_to_heads_costs_what_the_closed_form_says() {
    let gradient = gaussian(1 << 18);
    for codec in PaperCodec::ALL {
        for decoding in [Decoding::Unbiased, Decoding::Mmse, Decoding::Paper] {
            for (rate, planes) in [(1.0, 1), (0.5, 1), (0.25, 0)] {
                // Every packet, every other one, or every fourth.
                let trimmed = move |index: usize| index.is_multiple_of((1.0 / rate) as usize);
                let held = move |index| match (trimmed(index), planes) {
                    (false, _) => 1_500,
                    (true, 0) => 0,
                    (true, planes) => codec.packet_len(planes, 352),
                };
                let got = nmse(&decoded(codec, decoding, 1, &gradient, held), &gradient);
                let expected = codec.expected_nmse(decoding, &[(planes, rate), (2, 1.0 - rate)]);
                let what = format!("{}, {decoding:?}, {rate} to {planes}", codec.name());
                assert!((got / expected - 1.0).abs() < 0.02, "{what}: {got}, expected {expected}");
            }
        }
    }
}

#[test]
fn whole_rows_are_exact_and_lost_ones_are_zero() {
    let mut gradient = gaussian(70_000);
    gradient[..6].copy_from_slice(&[0.0, -0.0, f32::MIN_POSITIVE, f32::from_bits(1), 3e18, -1e-40]);
    for codec in PaperCodec::ALL {
        let got = decoded(codec, Decoding::Unbiased, 1, &gradient, |_| 1_500);
        assert!(nmse(&got, &gradient) < 1e-12, "{}", codec.name());
        assert!(codec.rotates() || got == gradient, "{}", codec.name());
        assert!(decoded(codec, Decoding::Unbiased, 1, &gradient, |_| 0).iter().all(|v| *v == 0.0));
    }
}

#[test]
fn dithered_heads_are_unbiased_coordinate_by_coordinate() {
    // Within ±2.5 σ the expectation over dithers is the coordinate itself; five standard errors of
    // the mean bound the worst.
    let gradient: Vec<f32> = (0..512).map(|i| (i as f32 / 255.5 - 1.0) * 1.4).collect();
    let rounds = 4_000;
    for codec in [PaperCodec::StochasticQuantisation, PaperCodec::SubtractiveDithering] {
        let mut mean = vec![0.0; gradient.len()];
        for seed in 0..rounds {
            let out = decoded(codec, Decoding::Unbiased, seed, &gradient, |_| HEADER_LEN + 256 / 8);
            mean.iter_mut().zip(out).for_each(|(m, v)| *m += f64::from(v) / rounds as f64);
        }
        // L is at most 2.5 · 1.22 for these packets, and no head errs by more than a standard
        // deviation of L.
        let bound = 5.0 * 3.05 / (rounds as f64).sqrt();
        for (m, x) in mean.iter().zip(&gradient) {
            assert!((m - f64::from(*x)).abs() < bound, "{}: {x} decodes to {m} on average", codec.name());
        }
    }
}

#[test]
fn a_row_that_is_not_finite_is_nan_once_anything_of_it_arrives() {
    let mut gradient = gaussian(3 * 4_096);
    gradient[5_000] = f32::INFINITY;
    for codec in PaperCodec::ALL {
        let got = decoded(codec, Decoding::Unbiased, 1, &gradient, |_| HEADER_LEN);
        assert!(got[4_096..8_192].iter().all(|v| v.is_nan()), "{}", codec.name());
        assert!(got[..4_096].iter().chain(&got[8_192..]).all(|v| *v == 0.0));
    }
}

#[test]
fn packets_are_as_long_as_they_reach_and_fit_their_mtu() {
    for codec in PaperCodec::ALL {
        let whole = codec.packet_len(2, 96) - HEADER_LEN;
        for bytes in 0..=whole + 5 {
            let Reach { planes, more } = codec.reach(bytes, 96);
            let [before, next] = [planes, planes + 1].map(|p| codec.packet_len(p, 96) - HEADER_LEN);
            assert!(before <= bytes && more < 96, "{}, {bytes} bytes", codec.name());
            assert!(before + (next - before) * more / 96 <= bytes);
            assert_eq!(planes == 2, bytes >= whole);
        }
        let fits = |mtu| Scheme::Paper(codec).coordinates_per_packet(mtu, 2, false);
        assert!(fits(1_500) == if codec.tail_bits() == 31 { 352 } else { 320 } && fits(70_000) == 8_160);
    }
    for scheme in Scheme::ALL {
        assert_eq!(scheme.name().parse(), Ok(scheme));
    }
}
