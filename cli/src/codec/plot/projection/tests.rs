// SPDX-License-Identifier: Apache-2.0
//! Promises about bias.

use super::*;

fn experiment(row_log2: u8, messages: u32) -> Experiment {
    let layout = Layout::new(1 << row_log2, 448).and_then(|layout| layout.with_row_log2(row_log2)).unwrap();
    Experiment { codec: Codec::Rht, decoding: Decoding::Unbiased, layout, messages, seed: 1 }
}

#[test]
fn the_mean_projection_is_within_one_percent_of_1_however_sparse_a_row_is_and_deep_the_cut() {
    for (row_log2, messages) in [(12, 400), (15, 40)] {
        let points = experiment(row_log2, messages).run(|| ()).unwrap();
        assert_eq!(points.len(), 12 * 8);
        for point in points {
            // What is drawn is the mean; its own error must not be what decides.
            assert!(point.standard_error.unwrap() < 0.2 * BAND, "{point:?} in rows of 2^{row_log2}");
            assert!((point.projection - 1.0).abs() < BAND, "{point:?} in rows of 2^{row_log2}");
        }
    }
}

#[test]
fn a_biased_decoding_is_seen() {
    let mmse = Experiment { decoding: Decoding::Mmse, ..experiment(12, 20) };
    let points = mmse.run(|| ()).unwrap();
    let gaussian = points.iter().find(|point| point.non_zeros.is_none() && point.planes == 1).unwrap();
    assert!((gaussian.projection - std::f64::consts::FRAC_2_PI).abs() < BAND, "{gaussian:?}");
}

#[test]
fn the_same_seed_gives_the_same_points_and_another_seed_others() {
    let run = |seed| Experiment { seed, ..experiment(9, 2) }.run(|| ()).unwrap();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
