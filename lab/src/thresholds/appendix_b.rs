// SPDX-License-Identifier: Apache-2.0
//! MLT appendix B as the paper has it: queues split by importance, offered loads, dropping only;
//! and its exact optimum.

use super::port::Traffic;
use super::queue::loss;

/// S_i and L_i of every queue, in packets, and what they lead to.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimum {
    /// S'_i and L'_i: room for the less important and for the important packets of queue i.
    pub rooms: Vec<(u32, u32)>,
    /// Weighted loss, 0 to 1.
    pub loss: f64,
}

impl Optimum {
    /// S_i = S'_i / θ and L_i = S'_i + L'_i: where less important packets are dropped, and where
    /// all are.
    pub fn thresholds(&self, less_important: f64) -> Vec<(f64, u32)> {
        let of = |(small, large): &(u32, u32)| {
            let all = small + large;
            let first =
                if less_important > 0.0 { f64::from(*small) / less_important } else { f64::from(all) };
            (first.min(f64::from(all)), all)
        };
        self.rooms.iter().map(of).collect()
    }
}

/// ρ_i = λ_i / μ_i with μ_i = μ Π_{k<i} (1 − ρ_k), which is what the offered loads of the queues
/// before it leave of the line. Infinite where they leave nothing: there the paper's formula ends,
/// and everything is lost.
pub fn utilisations(traffic: &Traffic) -> Vec<f64> {
    let mut left = 1.0;
    traffic
        .arrivals
        .iter()
        .map(|arrivals| {
            let rho = if left > 1e-12 { arrivals / left } else { f64::INFINITY };
            left -= arrivals;
            rho
        })
        .collect()
}

/// Weighted loss Σ w_i (e r_i^S + (1 − e) r_i^L), e being the less important packets' share of the
/// energy.
pub fn weighted_loss(traffic: &Traffic, rooms: &[(u32, u32)]) -> f64 {
    let per_queue = utilisations(traffic).into_iter().zip(&traffic.weights).zip(rooms);
    per_queue.map(|((rho, weight), room)| weight * split(traffic, rho, *room)).sum()
}

fn split(traffic: &Traffic, rho: f64, (small, large): (u32, u32)) -> f64 {
    let energy = traffic.less_important_energy;
    energy * loss(rho, f64::from(small)) + (1.0 - energy) * loss(rho, f64::from(large))
}

/// S_i ≤ L_i, that is S'_i (1 − θ) ≤ θ L'_i.
fn ordered(less_important: f64, small: u32, large: u32) -> bool {
    f64::from(small) * (1.0 - less_important) <= less_important * f64::from(large) + 1e-9
}

/// The rooms of least weighted loss whose sum is at most `buffer` packets.
///
/// With the loads given, queues share nothing but the buffer. So: the best division of each room of
/// each queue, then the best division of the buffer among queues, one queue after the other. Exact,
/// in O(queues · buffer²) steps.
pub fn optimum(traffic: &Traffic, buffer: u32) -> Optimum {
    let room = buffer as usize;
    // best[b]: least loss of the queues so far with b packets. Losses are at most the weights' sum.
    let mut best = vec![0.0; room + 1];
    let mut choices: Vec<Vec<u32>> = Vec::new();
    let mut divisions: Vec<Vec<u32>> = Vec::new();
    for (rho, weight) in utilisations(traffic).into_iter().zip(&traffic.weights) {
        let (costs, division) = queue_costs(traffic, rho, *weight, room);
        let mut next = vec![f64::INFINITY; room + 1];
        let mut choice = vec![0; room + 1];
        for total in 0..=room {
            for own in 0..=total {
                let cost = best[total - own] + costs[own];
                if cost < next[total] {
                    next[total] = cost;
                    choice[total] = own as u32;
                }
            }
        }
        best = next;
        choices.push(choice);
        divisions.push(division);
    }
    let mut rooms = vec![(0, 0); choices.len()];
    let mut total = room;
    for (queue, slot) in rooms.iter_mut().enumerate().rev() {
        let own = choices[queue][total];
        let small = divisions[queue][own as usize];
        *slot = (small, own - small);
        total -= own as usize;
    }
    Optimum { loss: best[room], rooms }
}

/// For every room: the least cost, and how much of the room the less important packets get for it.
fn queue_costs(traffic: &Traffic, rho: f64, weight: f64, room: usize) -> (Vec<f64>, Vec<u32>) {
    let losses: Vec<f64> = (0..=room).map(|m| loss(rho, m as f64)).collect();
    let energy = traffic.less_important_energy;
    (0..=room)
        .map(|own| {
            let mut least = (f64::INFINITY, 0);
            for small in 0..=own {
                if !ordered(traffic.less_important, small as u32, (own - small) as u32) {
                    break;
                }
                let cost = weight * (energy * losses[small] + (1.0 - energy) * losses[own - small]);
                if cost < least.0 {
                    least = (cost, small as u32);
                }
            }
            least
        })
        .unzip()
}
