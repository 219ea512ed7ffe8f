// SPDX-License-Identifier: Apache-2.0
//! Formulas against queues that are simulated packet by packet.

use super::super::port::{ClassLimits, PortLimits, Traffic, fate};
use super::super::queue::{Limits, Shared, loss};
use super::splitmix;

/// A class: queue, limits, and what arrived and was refused, by importance.
struct Class {
    waiting: u32,
    limits: Limits,
    arrived: [u32; 2],
    refused: [u32; 2],
}

/// A port with exponential service and strict priority between packets, event by event.
fn simulate(arrivals: &[f64], less_important: f64, limits: &[Limits], packets: u32, seed: u64) -> Vec<Class> {
    let mut random = seed;
    let mut exponential = |rate: f64| -(1.0 - splitmix(&mut random)).ln() / rate;
    let total: f64 = arrivals.iter().sum();
    let mut classes: Vec<Class> = limits
        .iter()
        .map(|limits| Class { waiting: 0, limits: *limits, arrived: [0; 2], refused: [0; 2] })
        .collect();
    let (mut next_arrival, mut next_departure) = (exponential(total), f64::INFINITY);
    let mut on_the_line = None;
    let mut choice = seed ^ 0x5bd1_e995;
    let mut left = packets;
    while left > 0 {
        if next_arrival < next_departure {
            let now = next_arrival;
            left -= 1;
            next_arrival = now + exponential(total);
            let mut at = splitmix(&mut choice) * total;
            let which = arrivals
                .iter()
                .position(|rate| {
                    at -= rate;
                    at < 0.0
                })
                .unwrap_or(arrivals.len() - 1);
            let important = usize::from(splitmix(&mut choice) >= less_important);
            let class = &mut classes[which];
            class.arrived[important] += 1;
            let limit = [class.limits.less_important, class.limits.all][important];
            if class.waiting >= limit {
                class.refused[important] += 1;
                continue;
            }
            class.waiting += 1;
            if on_the_line.is_none() {
                on_the_line = Some(which);
                next_departure = now + exponential(1.0);
            }
        } else {
            let now = next_departure;
            // The packet on the line counted as waiting, as m does and as the switch's occupancy
            // does until it has left.
            if let Some(sent) = on_the_line.take() {
                classes[sent].waiting -= 1;
            }
            on_the_line = classes.iter().position(|class| class.waiting > 0);
            next_departure = if on_the_line.is_some() { now + exponential(1.0) } else { f64::INFINITY };
        }
    }
    classes
}

impl Class {
    fn share(&self, importance: usize) -> f64 {
        f64::from(self.refused[importance]) / f64::from(self.arrived[importance])
    }
}

#[test]
fn a_simulated_queue_loses_what_the_formula_says() {
    for (seed, (rho, m)) in [(0.7, 5), (0.95, 20), (1.0, 10), (1.5, 8)].into_iter().enumerate() {
        let limits = Limits { less_important: m, all: m };
        let simulated = simulate(&[rho], 0.5, &[limits], 400_000, seed as u64);
        let formula = loss(rho, f64::from(m));
        for importance in [0, 1] {
            let share = simulated[0].share(importance);
            // Losses come in runs, so more than a binomial's deviation.
            assert!((share - formula).abs() < 0.05 * formula + 0.0005, "{rho} {m}: {share} for {formula}");
        }
    }
}

#[test]
fn a_simulated_queue_with_two_limits_refuses_what_the_chain_says() {
    for (seed, (rho, theta, first, all)) in
        [(0.9, 0.5, 4, 12), (1.2, 0.5, 3, 9), (1.6, 0.3, 6, 8), (2.5, 0.7, 2, 30)].into_iter().enumerate()
    {
        let limits = Limits { less_important: first, all };
        let simulated = simulate(&[rho], theta, &[limits], 400_000, 10 + seed as u64);
        let chain = Shared::new(rho, theta, 1.0, limits).refusals();
        for (importance, expected) in [chain.less_important, chain.important].into_iter().enumerate() {
            let share = simulated[0].share(importance);
            assert!(
                (share - expected).abs() < 0.05 * expected + 0.001,
                "{rho} {theta}: {share} for {expected}"
            );
        }
    }
}

/// The approximation that the paper makes, and how far it is off: the second class does not have a
/// slower line all the time, but the whole line some of the time. `docs/explanation/thresholds.md`
/// has these figures.
#[test]
fn strict_priority_is_approximated_as_well_as_documented() {
    let limits = [Limits { less_important: 6, all: 12 }, Limits { less_important: 15, all: 30 }];
    for (seed, (arrivals, factor)) in
        [([0.3, 0.5], 6.0), ([0.45, 0.5], 2.5), ([0.5, 0.7], 2.5), ([0.8, 1.2], 2.5)].into_iter().enumerate()
    {
        let simulated = simulate(&arrivals, 0.5, &limits, 1_000_000, 20 + seed as u64);
        let traffic = Traffic {
            arrivals: arrivals.to_vec(),
            weights: vec![0.5; 2],
            less_important: 0.5,
            less_important_energy: 0.2,
        };
        let class = |limits: Limits| ClassLimits { limits, deep: limits.all + 1, important_deep: false };
        let found = fate(&traffic, None, &PortLimits { classes: limits.map(class).to_vec(), trim: 0 });
        let refused = |class: usize| {
            let refused = found.classes[class].refused;
            0.5 * (refused.less_important + refused.important)
        };
        let lost = |class: &Class| {
            f64::from(class.refused.iter().sum::<u32>()) / f64::from(class.arrived.iter().sum::<u32>())
        };
        for (class, simulated) in simulated.iter().enumerate() {
            let (approximate, real) = (refused(class), lost(simulated));
            println!("{arrivals:?} class{class}: {approximate:.5} approximated, {real:.5} simulated");
            let near = approximate <= real * factor + 5e-4 && real <= approximate * factor + 5e-4;
            assert!(near, "{arrivals:?} class{class}: {approximate} approximated, {real} simulated");
        }
    }
}
