// SPDX-License-Identifier: Apache-2.0
//! Data-parallel training: every rank its own replica, its own share of each batch.

use super::digits::{CLASSES, Digits, PIXELS};
use super::mlp::Mlp;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;

/// Hyper-parameters. The width is chosen so that an eighth of the gradient nearly fills a power of
/// two (15,841 of 16,384 coordinates): the rotation pads each shard to one.
#[derive(Debug, Clone, PartialEq)]
pub struct Hyper {
    /// Units of each of the two hidden layers.
    pub hidden: usize,
    /// Images a rank sees in a step.
    pub batch: usize,
    /// Learning rate.
    pub rate: f32,
    /// Momentum.
    pub momentum: f32,
}

impl Default for Hyper {
    fn default() -> Self {
        Self { hidden: 320, batch: 8, rate: 0.02, momentum: 0.9 }
    }
}

/// The replicas of all ranks.
#[derive(Debug)]
pub struct Job {
    hyper: Hyper,
    network: Mlp,
    digits: Digits,
    replicas: Vec<Replica>,
    order: Vec<usize>,
    rng: ChaCha8Rng,
}

#[derive(Debug, Clone)]
struct Replica {
    weights: Vec<f32>,
    velocity: Vec<f32>,
}

impl Job {
    /// `ranks` identical replicas, drawn from the seed.
    pub fn new(hyper: Hyper, digits: Digits, ranks: usize, seed: u64) -> Self {
        let network = Mlp::new(&[PIXELS, hyper.hidden, hyper.hidden, CLASSES]);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let weights = network.initial(&mut rng);
        let velocity = vec![0.0; weights.len()];
        Self {
            hyper,
            network,
            digits,
            replicas: vec![Replica { weights, velocity }; ranks],
            order: Vec::new(),
            rng,
        }
    }

    /// Coordinates of the gradient.
    pub fn parameters(&self) -> usize {
        self.network.parameters()
    }

    /// Every rank's gradient on its share of the next batch; epochs are reshuffled.
    pub fn gradients(&mut self) -> Vec<Vec<f32>> {
        let batch = self.hyper.batch;
        let mut gradients = Vec::with_capacity(self.replicas.len());
        for replica in &self.replicas {
            if self.order.len() < batch {
                self.order = (0..self.digits.train.len()).collect();
                self.order.shuffle(&mut self.rng);
            }
            let picked = self.order.split_off(self.order.len() - batch);
            let images = self.digits.train.select(&picked);
            gradients.push(self.network.gradient(&replica.weights, &images).1);
        }
        gradients
    }

    /// One step of gradient descent with momentum on a rank's replica; `sum` is the sum over the
    /// ranks.
    pub fn apply(&mut self, rank: usize, sum: &[f32]) {
        let scale = 1.0 / self.replicas.len() as f32;
        let Replica { weights, velocity } = &mut self.replicas[rank];
        for ((w, v), g) in weights.iter_mut().zip(velocity).zip(sum) {
            *v = self.hyper.momentum * *v + g * scale;
            *w -= self.hyper.rate * *v;
        }
    }

    /// Rank 0's accuracy on the held-out images.
    pub fn accuracy(&self) -> f64 {
        self.network.accuracy(&self.replicas[0].weights, &self.digits.test)
    }

    /// Largest ‖wᵢ − wⱼ‖ / ‖wⱼ‖ over all pairs of ranks.
    pub fn drift(&self) -> f64 {
        let mut largest = 0.0f64;
        for a in &self.replicas {
            for b in &self.replicas {
                largest = largest.max(relative_error(&a.weights, &b.weights).sqrt());
            }
        }
        largest
    }
}

/// The exact sum of the gradients, in f64, rounded once.
pub fn exact_sum(gradients: &[Vec<f32>]) -> Vec<f32> {
    let length = gradients.first().map_or(0, Vec::len);
    let mut sum = vec![0.0f64; length];
    for gradient in gradients {
        for (s, g) in sum.iter_mut().zip(gradient) {
            *s += f64::from(*g);
        }
    }
    sum.into_iter().map(|s| s as f32).collect()
}

/// ‖got − exact‖² / ‖exact‖²; 0 where both are zero.
pub fn relative_error(got: &[f32], exact: &[f32]) -> f64 {
    let square = |v: f64| v * v;
    let error: f64 = got.iter().zip(exact).map(|(g, e)| square(f64::from(*g) - f64::from(*e))).sum();
    let energy: f64 = exact.iter().map(|e| square(f64::from(*e))).sum();
    if error == 0.0 { 0.0 } else { error / energy }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(ranks: usize, steps: usize) -> Job {
        let mut job = Job::new(Hyper { hidden: 32, ..Hyper::default() }, Digits::load().unwrap(), ranks, 5);
        for _ in 0..steps {
            let sum = exact_sum(&job.gradients());
            (0..ranks).for_each(|rank| job.apply(rank, &sum));
        }
        job
    }

    #[test]
    fn exact_sums_keep_the_replicas_together_and_learn() {
        let job = train(4, 150);
        assert_eq!(job.drift(), 0.0);
        assert!(job.accuracy() > 0.85, "{}", job.accuracy());
    }

    #[test]
    fn drift_is_seen() {
        let mut job = train(2, 1);
        let sum = exact_sum(&job.gradients());
        job.apply(0, &sum);
        assert!(job.drift() > 0.0);
    }
}
