// SPDX-License-Identifier: Apache-2.0
//! F(S) of strategies that differ from one in few tensors: what is the same before the first of
//! them is simulated once, and what is the same behind the last of them says how long the rest
//! takes at least.

use super::chain::{Chain, Resource};
use super::timeline::{
    Limit, ROUNDING, Ready, Simulation, Span, State, Strategy, Witness, compressed_first, last_bubble,
};
use std::num::NonZeroUsize;

/// Moments of a strategy's simulation that are kept at most: they are hundreds of bytes each.
const MOMENTS: usize = 1024;

/// A strategy, simulated, and others simulated from where they part from it.
///
/// First [`Self::set`]; whenever the strategy changes, [`Self::changed`]; everything else is asked
/// of the strategy as it was told last.
#[derive(Debug, Clone)]
pub(super) struct Neighbours {
    simulation: Simulation,
    /// Before the computation of every `stride`th tensor.
    moments: Vec<Moment>,
    stride: NonZeroUsize,
    /// By tensor: when its gradient is there, and when it has been synchronised.
    done: Vec<(f64, f64)>,
    /// ns on each resource, all tensors' and computation.
    total: [f64; 4],
    /// By tensor: of it and all behind it.
    rest: Vec<Rest>,
    /// By tensor, as [`Limit::after`].
    after: Vec<f64>,
    other: Simulation,
}

#[derive(Debug, Clone, Copy, Default)]
struct Moment {
    state: State,
    /// Of the simulation's queues.
    lengths: [usize; 5],
}

/// What some last tensors do on each resource.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// How long, ns; on GPUs with computation but for the first one's.
    work: [f64; 4],
    /// From the end of the first one's computation to the first operation, at least.
    before: [f64; 4],
    /// From the last operation to the end of a chain, at least.
    behind: [f64; 4],
}

impl Rest {
    const NOTHING: Self = Self { work: [0.0; 4], before: [f64::INFINITY; 4], behind: [f64::INFINITY; 4] };

    /// With a tensor in front, from the end of whose computation and compression to that of the
    /// next computation it takes `next`.
    fn with(&self, chain: &Chain, next: f64) -> Self {
        let mut whole = *self;
        let first = compressed_first(chain.operations());
        whole.work[Resource::Gpu as usize] += next;
        whole.before.iter_mut().for_each(|before| *before += first + next);
        let mut at = 0.0;
        let mut behind = [None; 4];
        for operation in chain.operations() {
            let resource = operation.resource as usize;
            whole.before[resource] = whole.before[resource].min(at);
            whole.work[resource] += operation.time;
            at += operation.time;
            behind[resource] = Some(at);
        }
        for (least, last) in whole.behind.iter_mut().zip(behind) {
            *least = last.map_or(*least, |last| least.min(at - last));
        }
        whole
    }

    /// From the end of the first one's computation to the end of everything, at least: no resource
    /// does anything earlier than it can, nor two things at a time.
    fn least(&self) -> f64 {
        let mut least = self.work[Resource::Gpu as usize];
        for resource in [Resource::Cpu, Resource::Intra, Resource::Inter].map(|resource| resource as usize) {
            if self.before[resource].is_finite() {
                least = least.max(self.before[resource] + self.work[resource] + self.behind[resource]);
            }
        }
        least
    }
}

struct Recorder<'a> {
    moments: &'a mut Vec<Moment>,
    stride: NonZeroUsize,
    done: &'a mut [(f64, f64)],
}

impl Witness for Recorder<'_> {
    fn computation(&mut self, tensor: usize, now: &State, queues: &[Vec<Ready>; 5]) {
        if tensor % self.stride == 0
            && let Some(moment) = self.moments.get_mut(tensor / self.stride)
        {
            *moment = Moment { state: *now, lengths: queues.each_ref().map(Vec::len) };
        }
    }

    fn span(&mut self, span: Span) {
        let (ready, done) = &mut self.done[span.tensor];
        if span.operation.is_none() {
            *ready = span.end;
        }
        // The last one of its chain stays.
        *done = span.end;
    }
}

impl Default for Neighbours {
    fn default() -> Self {
        Self {
            simulation: Simulation::default(),
            moments: Vec::new(),
            stride: NonZeroUsize::MIN,
            done: Vec::new(),
            total: [0.0; 4],
            rest: Vec::new(),
            after: Vec::new(),
            other: Simulation::default(),
        }
    }
}

impl Neighbours {
    /// Takes a strategy, and says when everything is synchronised, ns.
    pub(super) fn set(&mut self, compute: &[f64], chains: &[Chain]) -> f64 {
        let count = compute.len().min(chains.len());
        self.stride = NonZeroUsize::new(count.div_ceil(MOMENTS)).unwrap_or(NonZeroUsize::MIN);
        self.moments = vec![Moment::default(); count.div_ceil(self.stride.get())];
        self.done = vec![(0.0, 0.0); count];
        self.rest = vec![Rest::NOTHING; count + 1];
        self.after = vec![0.0; count];
        self.simulation.restart();
        self.go_on(compute, chains, count)
    }

    /// The same where chains differ from those before in `first` and behind it, and nothing but
    /// chains does.
    pub(super) fn changed(&mut self, compute: &[f64], chains: &[Chain], first: usize, last: usize) -> f64 {
        let Some(moment) = self.moments.get(first / self.stride) else { return self.set(compute, chains) };
        self.simulation.rewind(&moment.state, &moment.lengths);
        self.go_on(compute, chains, last + 1)
    }

    /// To the end, from where the simulation is; chains from `same` on are those that they were.
    fn go_on(&mut self, compute: &[f64], chains: &[Chain], same: usize) -> f64 {
        let count = self.done.len();
        for tensor in (0..same.min(count)).rev() {
            let next = compute.get(tensor + 1).copied().filter(|_| tensor + 1 < count).unwrap_or(0.0);
            let behind = self.rest[tensor + 1];
            self.after[tensor] = if tensor + 1 < count {
                let first = compressed_first(chains[tensor + 1].operations());
                next + behind.least().max(first + self.after[tensor + 1])
            } else {
                0.0
            };
            self.rest[tensor] = behind.with(&chains[tensor], next);
        }
        self.total = [0.0; 4];
        self.total[Resource::Gpu as usize] = compute.iter().take(count).sum();
        for chain in chains.iter().take(count) {
            for operation in chain.operations() {
                self.total[operation.resource as usize] += operation.time;
            }
        }
        let recorder =
            &mut Recorder { moments: &mut self.moments, stride: self.stride, done: &mut self.done };
        self.simulation.run(Strategy { compute, chains, other: None }, None, recorder)
    }

    /// The last tensor before whose gradient everything that was there had been synchronised
    /// ([`super::Schedule::bubble`]).
    pub(super) fn bubble(&self) -> usize {
        last_bubble(self.done.iter().copied())
    }

    /// Before which no strategy ends that has another chain for a tensor, ns.
    pub(super) fn least_with(
        &self,
        compute: &[f64],
        chains: &[Chain],
        (tensor, chain): (usize, &Chain),
    ) -> f64 {
        let Some(moment) = self.moments.get(tensor / self.stride).filter(|_| tensor % self.stride == 0)
        else {
            return 0.0;
        };
        let state = &moment.state;
        let gpu = Resource::Gpu as usize;
        let computed = state.since.max(state.free[gpu]) + compute[tensor];
        let next = compute.get(tensor + 1).copied().unwrap_or(0.0);
        let behind = &self.rest[tensor + 1];
        let own = compressed_first(chain.operations()) + self.after[tensor];
        let mut least = computed + own.max(behind.with(chain, next).least());
        let (before, with) = (chains[tensor].totals(), chain.totals());
        for resource in 0..4 {
            if with[resource] > 0.0 {
                let left = self.total[resource] - state.work[resource] - before[resource] + with[resource];
                least = least.max(state.free[resource] + left);
            }
        }
        least
    }

    /// When everything is synchronised with another chain for a tensor, as far as it is below
    /// `limit`; else `limit` or more.
    pub(super) fn end_with(
        &mut self,
        compute: &[f64],
        chains: &[Chain],
        (tensor, chain): (usize, &Chain),
        limit: f64,
    ) -> f64 {
        let mut total = self.total;
        let (before, with) = (chains[tensor].totals(), chain.totals());
        for resource in 0..4 {
            total[resource] += with[resource] - before[resource];
        }
        let limit = Limit { end: limit, total, after: &self.after, from: tensor };
        let Some(moment) = self.moments.get(tensor / self.stride) else { return f64::INFINITY };
        self.other.fork(&self.simulation, &moment.state, &moment.lengths);
        self.other.run(Strategy { compute, chains, other: Some((tensor, chain)) }, Some(limit), &mut Unseen)
    }

    /// The same with `others` for `chains`, which differ in the tensors `differing`, in order.
    pub(super) fn end_of(
        &mut self,
        compute: &[f64],
        chains: &[Chain],
        others: &[Chain],
        differing: &[usize],
        limit: f64,
    ) -> f64 {
        let mut total = self.total;
        for tensor in differing {
            let (before, with) = (chains[*tensor].totals(), others[*tensor].totals());
            for resource in 0..4 {
                total[resource] += with[resource] - before[resource];
            }
        }
        let first = differing.first().copied().unwrap_or(0);
        let from = differing.last().copied().unwrap_or(0);
        let limit = Limit { end: limit, total, after: &self.after, from };
        let Some(moment) = self.moments.get(first / self.stride) else { return f64::INFINITY };
        self.other.fork(&self.simulation, &moment.state, &moment.lengths);
        self.other.run(Strategy { compute, chains: others, other: None }, Some(limit), &mut Unseen)
    }
}

struct Unseen;

impl Witness for Unseen {}

/// Whether something that is not below `least` can be below `limit`, whatever was rounded.
pub(super) fn is_too_late(least: f64, limit: f64) -> bool {
    least > limit * (1.0 + ROUNDING)
}
