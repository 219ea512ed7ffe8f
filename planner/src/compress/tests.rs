// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;
use trimwire_encoder::{Codec, DEFAULT_COORDINATES_PER_PACKET};

const METHODS: [Method; 7] = [
    Method::TopK { ratio: 0.1 },
    Method::RandomK { ratio: 0.1, seed: 7 },
    Method::Dgc { ratio: 0.1, momentum: 0.0 },
    Method::F16,
    Method::Bf16,
    Method::EfSign,
    Method::EightBit,
];

fn decoded(sent: &Compressed, count: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; count];
    sent.decode_into(&mut out);
    out
}

fn noise(count: usize, mut seed: u64) -> Vec<f32> {
    // Sums of uniforms: near enough to Gaussian.
    let mut uniform = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as f32 / (1_u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| (0..6).map(|_| uniform()).sum()).collect()
}

proptest! {
    /// The promise of error feedback: over any number of steps, what was sent and what is kept add up to what was given.
    #[test]
    fn nothing_is_ever_lost(
        which in 0_usize..7, steps in prop::collection::vec(prop::collection::vec(-10.0..10.0_f32, 40), 1..12),
    ) {
        let mut feedback = Feedback::new(40);
        let (mut given, mut sent) = (vec![0.0_f64; 40], vec![0.0_f64; 40]);
        for step in &steps {
            let message = feedback.compress(step, METHODS[which]).unwrap();
            for (i, value) in decoded(&message, 40).into_iter().enumerate() {
                given[i] += f64::from(step[i]);
                sent[i] += f64::from(value);
            }
        }
        for ((given, sent), kept) in given.iter().zip(&sent).zip(feedback.residual()) {
            let lost = given - sent - f64::from(*kept);
            prop_assert!(lost.abs() < 1e-3, "{:?}: {given} {sent} {kept}", METHODS[which]);
        }
    }

    /// Against sorting everything.
    #[test]
    fn top_k_sends_the_largest(values in prop::collection::vec(-10.0..10.0_f32, 1..80), ratio in 0.0..1.2_f64) {
        let mut feedback = Feedback::new(values.len());
        let Compressed::Sparse { places, values: sent, .. } = feedback.compress(&values, Method::TopK { ratio }).unwrap()
        else { panic!() };
        let mut all: Vec<(usize, f32)> = values.iter().copied().enumerate().collect();
        all.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0)));
        let k = ((values.len() as f64 * ratio.min(1.0)).round() as usize).max(1);
        let mut wanted: Vec<(u32, f32)> = all[..k].iter().map(|(place, value)| (*place as u32, *value)).collect();
        wanted.sort_by_key(|(place, _)| *place);
        prop_assert_eq!(places.into_iter().zip(sent).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn residuals_survive_a_checkpoint_to_the_bit(values in prop::collection::vec(-1e6..1e6_f32, 30), which in 0_usize..7) {
        let mut feedback = Feedback::new(30);
        feedback.compress(&values, METHODS[which]).unwrap();
        let mut again: Feedback = serde_json::from_str(&serde_json::to_string(&feedback).unwrap()).unwrap();
        prop_assert_eq!(&again, &feedback);
        prop_assert_eq!(again.compress(&values, METHODS[which]), feedback.compress(&values, METHODS[which]));
    }

    #[test]
    fn any_values_are_compressed_or_refused(
        values in prop::collection::vec(any::<f32>(), 0..40), which in 0_usize..7,
    ) {
        let mut feedback = Feedback::new(values.len());
        for _ in 0..3 {
            match feedback.compress(&values, METHODS[which]) {
                Ok(sent) => prop_assert!(decoded(&sent, values.len()).iter().all(|value| value.is_finite())),
                Err(error) => {
                    let finite = values.iter().all(|value| value.is_finite());
                    let named = matches!(error, CompressError::NotFinite { .. });
                    prop_assert!(!finite && named);
                }
            }
            prop_assert!(feedback.residual().iter().all(|value| value.is_finite()));
        }
    }
}

#[test]
fn what_cannot_be_compressed_is_refused_by_name() {
    let mut feedback = Feedback::new(3);
    let error = feedback.compress(&[1.0, f32::NAN, 2.0], Method::F16).unwrap_err().to_string();
    assert_eq!(error, "gradient[1] is NaN: residuals take finite values only");
    let error = feedback.compress(&[1.0], Method::F16).unwrap_err().to_string();
    assert_eq!(error, "1 values for a memory of 3");
    assert_eq!(feedback, Feedback::new(3));
}

/// The papers' formulas by hand.
#[test]
fn signs_and_8_bits_are_their_papers_formulas() {
    let mut feedback = Feedback::new(4);
    let sent = feedback.compress(&[1.0, -2.0, 3.0, -6.0], Method::EfSign).unwrap();
    assert_eq!(decoded(&sent, 4), [3.0, -3.0, 3.0, -3.0]);
    assert_eq!(feedback.residual(), [-2.0, 1.0, 0.0, -3.0]);
    assert_eq!(sent.bytes(), 5);
    let mut feedback = Feedback::new(3);
    let sent = feedback.compress(&[127.0, -63.4, 0.4], Method::EightBit).unwrap();
    assert_eq!(decoded(&sent, 3), [127.0, -63.0, 0.0]);
}

/// DGC's algorithm with vectors written out: u = m u + g, v = v + u, both cleared where sent.
#[test]
fn momentum_is_corrected_and_masked_as_dgc_does() {
    let method = Method::Dgc { ratio: 0.5, momentum: 0.5 };
    let mut feedback = Feedback::new(2);
    let first = feedback.compress(&[4.0, 1.0], method).unwrap();
    assert_eq!(decoded(&first, 2), [4.0, 0.0]);
    // u = (0, 1), v = (0, 1); then u = (2, 1.5), v = (2, 2.5).
    let second = feedback.compress(&[2.0, 1.0], method).unwrap();
    assert_eq!(decoded(&second, 2), [0.0, 2.5]);
    // u = (2, 0): 0.5 · 2 + 0; v = 2 + 1.
    let third = feedback.compress(&[0.0, 0.0], method).unwrap();
    assert_eq!(decoded(&third, 2), [3.0, 0.0]);
}

#[test]
fn a_sampled_threshold_sends_about_the_share_that_it_aims_at() {
    let values = noise(200_000, 3);
    let mut feedback = Feedback::new(values.len());
    let sent = feedback.compress(&values, Method::Dgc { ratio: 0.01, momentum: 0.9 }).unwrap();
    let share = sent.bytes() as f64 / 8.0 / values.len() as f64;
    assert!((0.005..0.02).contains(&share), "{share}");
}

/// Algorithm 2 by hand: ratio 0.2 of 10 below tr_q is 0.4, prunes floor(0.3 · 10) = 3 of the smallest weights, sends 4 of the largest gradients.
#[test]
fn netsenses_compression_is_algorithm_2() {
    let weights = [0.1, 9.0, 8.0, 7.0, 0.2, 6.0, 5.0, 0.3, 4.0, 3.0];
    let grads = [50.0, 1.0, -2.0, 3.0, 40.0, -4.0, 5.0, 30.0, 0.1, 0.2];
    let law = NetSenseCompression { quantise_below: 0.25, norm_above: 1.0 };
    let mut feedback = Feedback::new(10);
    let sent = law.compress(&mut feedback, &grads, &weights, 0.2).unwrap();
    let wanted =
        Compressed::Sparse { places: vec![2, 3, 5, 6], values: vec![-2.0, 3.0, -4.0, 5.0], value_bytes: 2 };
    assert_eq!(sent, wanted);
    // Pruned gradients are kept: they come once their weights grow.
    assert_eq!(feedback.residual()[0], 50.0);
    // Above tr_q nothing is quantised, nor doubled: prunes 2, sends 5.
    let mut feedback = Feedback::new(10);
    let Compressed::Sparse { places, value_bytes, .. } =
        law.compress(&mut feedback, &grads, &weights, 0.5).unwrap()
    else {
        panic!()
    };
    assert_eq!((places, value_bytes), (vec![2, 3, 5, 6, 7], 4));
    // A small norm is not quantised, but as printed the ratio is doubled all the same.
    let small = grads.map(|g| g / 1e4);
    let mut feedback = Feedback::new(10);
    let sent = law.compress(&mut feedback, &small, &weights, 0.2).unwrap();
    assert_eq!(sent.bytes(), 4 * 8);
}

#[test]
fn a_ratio_becomes_the_planes_or_the_entries_that_it_has_room_for() {
    let share = |planes| {
        let bytes = Codec::Rht.packet_len(planes, DEFAULT_COORDINATES_PER_PACKET, false);
        bytes as f64 / (4 * DEFAULT_COORDINATES_PER_PACKET) as f64
    };
    assert_eq!(
        [1.0, 0.6, share(8), share(1)].map(|ratio| rung(ratio, 1000)),
        [10, 9, 8, 1].map(Rung::Planes)
    );
    assert!(matches!(rung(share(1) * 0.99, 1000), Rung::TopK(_)));
    assert_eq!(
        [rung(0.0, 1000), rung(f64::NAN, 1000), rung(-1.0, 0)],
        [Rung::TopK(1), Rung::TopK(1), Rung::TopK(0)]
    );
}
