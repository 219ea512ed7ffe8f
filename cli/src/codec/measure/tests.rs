// SPDX-License-Identifier: Apache-2.0
//! Promises about the error, on fewer coordinates than the command takes by default. The encoder's
//! own tests hold the figures themselves.

use super::*;
use crate::codec::trim::FRAME_OVERHEAD;

const RHT: Scheme = Scheme::Wire(Codec::Rht);

fn experiment(codec: Scheme, depth: Depth, trim_rate: f64) -> Experiment {
    Experiment {
        sent: Sent { codec, planes: codec.planes() },
        decoding: Decoding::Unbiased,
        layout: Layout::new(1 << 17, codec.coordinates_per_packet(1500, codec.planes(), false)).unwrap(),
        dtype: Dtype::F32,
        depth,
        trim_rate,
        messages: 6,
        seed: 1,
    }
}

fn measured(experiment: &Experiment) -> Measured {
    experiment.run(&Distribution::Gaussian, None, || ()).unwrap()
}

fn assert_near(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!((got / want - 1.0).abs() < tolerance, "{what}: {got} where {want} was promised");
}

#[test]
fn whole_packets_are_exact_in_every_codec() {
    for codec in Scheme::ALL {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let all = Experiment { dtype, messages: 1, ..experiment(codec, Depth::Planes(0), 0.0) };
            let result = measured(&all);
            assert!(result.nmse < 1e-12, "{codec}: {}", result.nmse);
            assert_eq!((result.expected, result.trimmed_share, result.bytes_share), (Some(0.0), 0.0, 1.0));
        }
    }
}

#[test]
fn every_codec_errs_by_its_closed_form_at_every_trim_and_in_every_decoding() {
    for codec in Scheme::ALL {
        for decoding in [Decoding::Unbiased, Decoding::Mmse, Decoding::Paper] {
            for planes in 0..codec.planes() {
                let trimmed = Experiment { decoding, ..experiment(codec, Depth::Planes(planes), 0.5) };
                let result = measured(&trimmed);
                let Some(expected) = result.expected else {
                    assert!(planes == 0, "{codec}, {decoding:?}: no closed form of {planes} planes");
                    continue;
                };
                let what = format!("{codec}, {decoding:?}, {planes} planes");
                if expected == 0.0 {
                    assert!(result.nmse < 1e-12, "{what}: {}", result.nmse);
                } else {
                    assert_near(result.nmse, expected, 0.03, &what);
                }
            }
        }
    }
}

#[test]
fn a_trim_inside_a_plane_errs_by_what_arrived() {
    for codec in [RHT, Scheme::Wire(Codec::Raw)] {
        for frame in [128, 256, 300] {
            let depth = Depth::Payload(frame - FRAME_OVERHEAD);
            let result = measured(&Experiment { messages: 3, ..experiment(codec, depth, 1.0) });
            assert_near(
                result.nmse,
                result.expected.unwrap(),
                0.02,
                &format!("{codec}, frames of {frame} bytes"),
            );
        }
    }
}

#[test]
fn a_rotation_makes_the_error_independent_of_the_distribution() {
    // Of 1 % non-zeros some blocks of 32 have none, and are exact.
    let blocks = 1.0 - 0.99_f64.powi(32);
    for (distribution, share) in
        [(Distribution::Lognormal, 1.0), (Distribution::StudentT, 1.0), (Distribution::Sparse, blocks)]
    {
        let result = experiment(RHT, Depth::Planes(1), 1.0).run(&distribution, None, || ()).unwrap();
        assert_near(result.nmse, 0.5708 * share, 0.03, &distribution.to_string());
    }
    let spike = experiment(RHT, Depth::Planes(1), 1.0);
    let result = spike.run(&Distribution::OneSpike, None, || ()).unwrap();
    assert!(
        result.nmse < 1e-4,
        "a spike's rotated coordinates are all ±σ, which signs carry: {}",
        result.nmse
    );
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_seed_others() {
    let run = |seed| measured(&Experiment { seed, messages: 2, ..experiment(RHT, Depth::Planes(1), 0.3) });
    assert_eq!(run(4), run(4));
    assert_ne!(run(4).nmse, run(5).nmse);
}
