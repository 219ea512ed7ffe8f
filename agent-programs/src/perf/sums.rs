// SPDX-License-Identifier: Apache-2.0
//! What an operation should have given, by plain arithmetic.

use super::args::PerfArgs;
use crate::gradient;
use crate::operation::Operation;
use trimwire_agent::collective::shard_range;

/// What ranks put in, and what is to come of it.
#[derive(Clone)]
pub(super) struct Sums<'a> {
    pub(super) args: &'a PerfArgs,
    /// As it was started.
    pub(super) rank: u16,
    /// Ranks of this epoch, likewise.
    pub(super) members: Vec<u16>,
    pub(super) seed: u64,
}

impl Sums<'_> {
    pub(super) fn gradient(&self, coordinates: usize, rank: u16) -> Vec<f32> {
        gradient::gaussian(coordinates, self.seed, rank, 0)
    }

    /// This rank's gradient, and what comes of all of them at any rank, exactly; `None` where that
    /// depends on how many coordinates are each rank's.
    pub(super) fn of(&self, coordinates: usize) -> (Vec<f32>, Option<Vec<f32>>) {
        (self.gradient(coordinates, self.rank), self.sum(coordinates))
    }

    pub(super) fn sum(&self, coordinates: usize) -> Option<Vec<f32>> {
        match self.args.operation {
            Operation::AllGather => None,
            Operation::Broadcast => Some(self.gradient(coordinates, self.args.root)),
            _ => {
                let mut exact = vec![0.0_f32; coordinates];
                for &rank in self.members.iter().filter(|rank| !self.args.servers.contains(rank)) {
                    let part = self.gradient(coordinates, rank);
                    exact.iter_mut().zip(&part).for_each(|(sum, value)| *sum += value);
                }
                Some(exact)
            }
        }
    }

    /// What is gathered.
    pub(super) fn gathered(&self, coordinates: usize) -> Vec<f32> {
        let world = self.members.len() as u16;
        let shard = |(place, &rank)| {
            let range = shard_range(coordinates, world, place);
            self.gradient(range.end, rank).get(range).map(<[f32]>::to_vec)
        };
        (0..).zip(&self.members).filter_map(shard).flatten().collect()
    }
}
