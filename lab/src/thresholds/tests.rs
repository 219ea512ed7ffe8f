// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::appendix_b;
use super::port::{ClassLimits, PortLimits, Rungs, Traffic, fate};
use super::queue::{Limits, Shared, loss};
use super::solve::solve;

mod simulated;

/// Numbers that are the same on every run; not for anything but tests.
fn splitmix(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

fn traffic(random: &mut u64, classes: usize) -> Traffic {
    let load = 0.3 + 1.7 * splitmix(random);
    let shares: Vec<f64> = (0..classes).map(|_| 0.05 + splitmix(random)).collect();
    let sum: f64 = shares.iter().sum();
    Traffic {
        arrivals: shares.iter().map(|share| load * share / sum).collect(),
        weights: (0..classes).map(|_| splitmix(random)).collect(),
        less_important: 0.2 + 0.6 * splitmix(random),
        less_important_energy: 0.02 + 0.15 * splitmix(random),
    }
}

fn rungs(random: &mut u64) -> Rungs {
    let deep = 0.05 + 0.2 * splitmix(random);
    let shallow = deep + 0.3 * splitmix(random);
    let cost = 0.05 * splitmix(random);
    Rungs {
        sizes: [shallow, deep],
        costs: [cost, cost + 0.5 * splitmix(random)],
        cap: 0.2 + 0.5 * splitmix(random),
    }
}

/// The paper's formula, and its limits.
#[test]
fn the_loss_is_the_papers_formula_at_every_load() {
    for rho in [0.1_f64, 0.5, 0.9, 1.1, 3.0] {
        for m in 0..40 {
            let printed = (rho.powi(m) - rho.powi(m + 1)) / (1.0 - rho.powi(m + 1));
            assert!((loss(rho, f64::from(m)) / printed - 1.0).abs() < 1e-9, "{rho} {m}");
        }
    }
    // Where the formula is 0/0: one of m + 1 equally likely states.
    assert!((loss(1.0, 9.0) - 0.1).abs() < 1e-6 && (loss(1.0 + 1e-10, 9.0) - 0.1).abs() < 1e-6);
    // An overloaded queue loses what it cannot serve, whatever its buffer; an empty one nothing.
    assert!((loss(4.0, 1e6) - 0.75).abs() < 1e-12);
    assert_eq!((loss(0.0, 3.0), loss(f64::INFINITY, 3.0), loss(0.5, 1e9)), (0.0, 1.0, 0.0));
}

proptest! {
    /// The state probabilities written down one by one, against the closed sums.
    #[test]
    fn a_shared_queue_is_its_birth_death_chain(
        arrivals in 0.01_f64..3.0, theta in 0.0_f64..1.0, first in 0_u32..20, rest in 0_u32..20, from in 0_u32..45,
    ) {
        let limits = Limits { less_important: first, all: first + rest };
        let mut weights = vec![1.0];
        for n in 0..limits.all {
            let births = if n < first { arrivals } else { arrivals * (1.0 - theta) };
            weights.push(weights[n as usize] * births);
        }
        let sum: f64 = weights.iter().sum();
        let tail = |n: u32| weights.iter().skip(n as usize).sum::<f64>() / sum;
        let queue = Shared::new(arrivals, theta, 1.0, limits);
        let refused = queue.refusals();
        prop_assert!((refused.less_important - tail(first)).abs() < 1e-9);
        prop_assert!((refused.important - tail(limits.all)).abs() < 1e-9);
        let from = from.max(first);
        prop_assert!((queue.at_least(from) - tail(from)).abs() < 1e-9);
        // With equal limits it is the paper's queue.
        let one = Shared::new(arrivals, theta, 1.0, Limits { less_important: first, all: first });
        prop_assert!((one.refusals().important - loss(arrivals, f64::from(first))).abs() < 1e-9);
    }

    #[test]
    fn no_load_and_no_limit_leads_out_of_probabilities(
        arrivals in 1e-6_f64..1e3, theta in 0.0_f64..=1.0, capacity in 0.0_f64..1.0, first in 0_u32..100_000, rest in 0_u32..100_000,
    ) {
        let limits = Limits { less_important: first, all: first + rest };
        let queue = Shared::new(arrivals, theta, capacity, limits);
        let refused = queue.refusals();
        let tail = queue.at_least(first + rest / 2);
        for share in [refused.less_important, refused.important, tail] {
            prop_assert!((0.0..=1.0).contains(&share), "{refused:?} {tail}");
        }
        prop_assert!(refused.important <= refused.less_important);
    }
}

/// Every S'_i, L'_i that fits, tried.
#[test]
fn appendix_b_s_optimum_is_the_least_of_all_there_are() {
    let mut random = 1;
    for _ in 0..60 {
        let traffic = traffic(&mut random, 2);
        for buffer in 0..8_u32 {
            let mut least = f64::INFINITY;
            for_each_sum(buffer, &mut [0; 4], 0, &mut |parts| {
                let rooms = [(parts[0], parts[1]), (parts[2], parts[3])];
                let theta = traffic.less_important;
                let ordered = |(small, large): &(u32, u32)| {
                    f64::from(*small) / theta <= f64::from(small + large) + 1e-9
                };
                if rooms.iter().all(ordered) {
                    least = least.min(appendix_b::weighted_loss(&traffic, &rooms));
                }
            });
            let found = appendix_b::optimum(&traffic, buffer);
            assert!((found.loss - least).abs() < 1e-12, "{traffic:?} {buffer}: {found:?}, least {least}");
            assert!((appendix_b::weighted_loss(&traffic, &found.rooms) - least).abs() < 1e-12);
        }
    }
}

fn for_each_sum(left: u32, parts: &mut [u32; 4], position: usize, visit: &mut impl FnMut(&[u32; 4])) {
    if position == parts.len() {
        visit(parts);
        return;
    }
    for own in 0..=left {
        parts[position] = own;
        for_each_sum(left - own, parts, position + 1, visit);
    }
}

/// Every limit, deep point and trim room that fits, tried.
fn least_of_all(traffic: &Traffic, rungs: Option<&Rungs>, buffer: u32) -> f64 {
    let mut of_class = Vec::new();
    for all in 0..=buffer {
        for less_important in 0..=all {
            let limits = Limits { less_important, all };
            if rungs.is_none() {
                of_class.push(ClassLimits { limits, deep: all + 1, important_deep: false });
                continue;
            }
            for deep in less_important..=all + 1 {
                of_class.extend([false, true].map(|important_deep| ClassLimits {
                    limits,
                    deep,
                    important_deep,
                }));
            }
        }
    }
    let mut least = f64::INFINITY;
    for first in &of_class {
        for second in &of_class {
            let room = first.limits.all + second.limits.all;
            if room > buffer {
                continue;
            }
            // Room that nothing takes is no better than room for heads.
            let trim = if rungs.is_some() { buffer - room } else { 0 };
            let limits = PortLimits { classes: vec![*first, *second], trim };
            least = least.min(fate(traffic, rungs, &limits).weighted_loss);
        }
    }
    least
}

#[test]
fn thresholds_for_dropping_are_the_best_of_all_there_are() {
    let mut random = 2;
    for _ in 0..60 {
        let traffic = traffic(&mut random, 2);
        for buffer in 1..8 {
            let (found, least) = (solve(&traffic, None, buffer), least_of_all(&traffic, None, buffer));
            assert!(found.limits.room() <= buffer);
            let found = found.fate.weighted_loss;
            assert!(found <= least * (1.0 + 1e-6) + 1e-15, "{traffic:?}, {buffer}: {found} for {least}");
        }
    }
}

#[test]
fn thresholds_for_trimming_are_the_best_of_all_there_are() {
    let mut random = 3;
    for _ in 0..12 {
        let (traffic, rungs) = (traffic(&mut random, 2), rungs(&mut random));
        for buffer in 1..5 {
            let found = solve(&traffic, Some(&rungs), buffer);
            let least = least_of_all(&traffic, Some(&rungs), buffer);
            assert!(found.limits.room() <= buffer);
            let found = found.fate.weighted_loss;
            assert!(
                found <= least * (1.0 + 1e-6) + 1e-15,
                "{traffic:?}, {rungs:?}, {buffer}: {found} for {least}"
            );
        }
    }
}
/// MLT §4.2.2: what matters less has the lower threshold.
#[test]
fn a_class_that_matters_more_gets_no_lower_threshold() {
    let mut random = 4;
    for _ in 0..40 {
        let mut traffic = traffic(&mut random, 2);
        let mut before = 0;
        for weight in [0.1, 0.3, 1.0, 3.0, 10.0] {
            traffic.weights[1] = weight;
            let all = appendix_b::optimum(&traffic, 30).thresholds(traffic.less_important)[1].1;
            assert!(all >= before, "{traffic:?}: {all} after {before}");
            before = all;
        }
    }
}
