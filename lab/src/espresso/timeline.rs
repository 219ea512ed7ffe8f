// SPDX-License-Identifier: Apache-2.0
//! F(S): when everything that a strategy does begins and ends.

use super::chain::{Chain, Operation, Resource};

/// What happens when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Place in the backward pass.
    pub tensor: usize,
    /// Place in the tensor's chain; none for its computation.
    pub operation: Option<usize>,
    /// Which resource.
    pub resource: Resource,
    /// ns from the beginning of the backward pass.
    pub start: f64,
    /// The same.
    pub end: f64,
}

/// A whole backward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// In the order in which they became ready.
    pub spans: Vec<Span>,
    /// By tensor: when its gradient is there.
    pub ready: Vec<f64>,
    /// By tensor: when it has been synchronised.
    pub done: Vec<f64>,
    /// When everything has, ns.
    pub end: f64,
}

impl Schedule {
    /// The last tensor before whose gradient everything that was there had been synchronised: a
    /// bubble in communication. What is communicated before it delays nothing behind it, so that
    /// compressing it gains nothing (property 1).
    pub fn bubble(&self) -> usize {
        last_bubble(self.ready.iter().copied().zip(self.done.iter().copied()))
    }
}

/// Simulates strategies of one model, again and again in the same memory.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    simulation: Simulation,
}

impl Timeline {
    /// When everything is synchronised, ns. `compute` has each tensor's computation, ns, and
    /// `chains` what is done to it then, in the order of the backward pass.
    pub fn end(&mut self, compute: &[f64], chains: &[Chain]) -> f64 {
        self.simulation.restart();
        self.simulation.run(Strategy { compute, chains, other: None }, None, &mut Nobody)
    }

    /// The same with everything that happens.
    pub fn schedule(&mut self, compute: &[f64], chains: &[Chain]) -> Schedule {
        let mut spans = Spans(Vec::new());
        self.simulation.restart();
        let end = self.simulation.run(Strategy { compute, chains, other: None }, None, &mut spans);
        let Spans(spans) = spans;
        let (mut ready, mut done) = (vec![0.0; compute.len()], vec![0.0_f64; compute.len()]);
        for span in &spans {
            if span.operation.is_none() {
                ready[span.tensor] = span.end;
            }
            done[span.tensor] = done[span.tensor].max(span.end);
        }
        Schedule { spans, ready, done, end }
    }
}

/// What is simulated.
#[derive(Clone, Copy)]
pub(super) struct Strategy<'a> {
    /// ns, by tensor.
    pub compute: &'a [f64],
    pub chains: &'a [Chain],
    /// A tensor that has another chain than that.
    pub other: Option<(usize, &'a Chain)>,
}

impl<'a> Strategy<'a> {
    fn of(&self, tensor: usize) -> &'a [Operation] {
        match self.other {
            Some((place, chain)) if place == tensor => chain.operations(),
            _ => self.chains[tensor].operations(),
        }
    }
}

/// From when on nobody wants to know when a strategy ends.
#[derive(Clone, Copy)]
pub(super) struct Limit<'a> {
    /// ns.
    pub end: f64,
    /// All that there is to do on each resource, ns.
    pub total: [f64; 4],
    /// By tensor, from `from` on: what there is at least between the end of its computation, and of
    /// compression on the GPU right behind it, and the end of everything, ns.
    pub after: &'a [f64],
    pub from: usize,
}

/// A share for rounding, which is less than that by an order or two.
pub(super) const ROUNDING: f64 = 1e-12;

/// Who is told what happens.
pub(super) trait Witness {
    /// `tensor` is computed next.
    fn computation(&mut self, _tensor: usize, _now: &State, _queues: &[Vec<Ready>; 5]) {}
    /// Something was done.
    fn span(&mut self, _span: Span) {}
}

struct Nobody;

impl Witness for Nobody {}

struct Spans(Vec<Span>);

impl Witness for Spans {
    fn span(&mut self, span: Span) {
        self.0.push(span);
    }
}

/// A simulation on its way.
///
/// Each resource does one operation at a time, whole, in the order in which operations became
/// ready. On a GPU an operation that became ready with the next tensor's computation goes first:
/// its communication waits for it, and nothing waits for the computation but other computation
/// (figure 2 (c)).
///
/// Operations end on a resource in the order in which they began, so what becomes ready behind them
/// is in order, too: five sorted queues, of which the least head is next, stand for a heap.
#[derive(Debug, Clone, Default)]
pub(super) struct Simulation {
    /// What became ready behind the operations of each resource, and behind computation.
    queues: [Vec<Ready>; 5],
    now: State,
}

/// How far a simulation is, beside what is in the queues.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    heads: [usize; 5],
    /// When each head became ready, as bits, which for times, as they are not negative, are in
    /// their order: the least is next, of equal ones the first tensor's.
    keys: [u64; 5],
    /// From when on each resource is free.
    pub free: [f64; 4],
    /// The computation that is next, and since when it could begin.
    next: usize,
    pub since: f64,
    end: f64,
    /// What was done on each resource, ns.
    pub work: [f64; 4],
}

impl Default for State {
    fn default() -> Self {
        Self {
            heads: [0; 5],
            keys: [NOTHING; 5],
            free: [0.0; 4],
            next: 0,
            since: 0.0,
            end: 0.0,
            work: [0.0; 4],
        }
    }
}

/// An operation that waits for its resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    at: f64,
    tensor: u32,
    operation: u32,
}

/// The key of an empty queue.
const NOTHING: u64 = u64::MAX;

/// What became ready behind computation.
const COMPUTED: usize = 4;

impl Simulation {
    /// Back to the beginning.
    pub(super) fn restart(&mut self) {
        self.queues.iter_mut().for_each(Vec::clear);
        self.now = State::default();
    }

    /// Back to where it was when its queues were of these lengths.
    pub(super) fn rewind(&mut self, state: &State, lengths: &[usize; 5]) {
        self.now = *state;
        for (queue, length) in self.queues.iter_mut().zip(lengths) {
            queue.truncate(*length);
        }
    }

    /// To where `other` was when its queues were of these lengths.
    pub(super) fn fork(&mut self, other: &Self, state: &State, lengths: &[usize; 5]) {
        self.now = State { heads: [0; 5], ..*state };
        for (i, queue) in self.queues.iter_mut().enumerate() {
            queue.clear();
            queue.extend_from_slice(&other.queues[i][state.heads[i]..lengths[i]]);
        }
    }

    /// Goes on from where it is to the end, and says when that is; with a limit, as far as it is
    /// below it, else the limit or more, found out as soon as what is left cannot be done in time.
    pub(super) fn run(
        &mut self,
        strategy: Strategy<'_>,
        limit: Option<Limit<'_>>,
        witness: &mut impl Witness,
    ) -> f64 {
        let queues = &mut self.queues;
        // A copy that nothing else refers to stays in registers.
        let mut state = self.now;
        let count = strategy.compute.len().min(strategy.chains.len());
        let limit =
            limit.unwrap_or(Limit { end: f64::INFINITY, total: [0.0; 4], after: &[], from: usize::MAX });
        let late = limit.end * (1.0 + ROUNDING);
        // Where an operation ends later than all that was done on its resource by that, it is too
        // late for what is left there.
        let latest = limit.total.map(|total| late - total);
        loop {
            let (mut queue, mut least, mut is_tie) = (0, state.keys[0], false);
            for i in 1..5 {
                let key = state.keys[i];
                is_tie = key == least || is_tie && key > least;
                (queue, least) = if key < least { (i, key) } else { (queue, least) };
            }
            if state.next < count && state.since.to_bits() < least {
                let tensor = state.next;
                witness.computation(tensor, &state, queues);
                let gpu = Resource::Gpu as usize;
                let start = state.since.max(state.free[gpu]);
                let ends = start + strategy.compute[tensor];
                state.free[gpu] = ends;
                state.work[gpu] += strategy.compute[tensor];
                state.end = state.end.max(ends);
                witness.span(Span { tensor, operation: None, resource: Resource::Gpu, start, end: ends });
                let operations = strategy.of(tensor);
                if tensor >= limit.from {
                    let least = ends + compressed_first(operations) + limit.after[tensor];
                    if least > late {
                        return least.max(limit.end);
                    }
                }
                if !operations.is_empty() {
                    if state.keys[COMPUTED] == NOTHING {
                        state.keys[COMPUTED] = ends.to_bits();
                    }
                    queues[COMPUTED].push(Ready { at: ends, tensor: tensor as u32, operation: 0 });
                }
                (state.next, state.since) = (tensor + 1, ends);
                continue;
            }
            if is_tie {
                queue = first_of_equal(queues, &state, least);
            }
            let waiting = &queues[queue];
            let Some(&Ready { at, tensor, operation }) = waiting.get(state.heads[queue]) else {
                return state.end;
            };
            state.heads[queue] += 1;
            state.keys[queue] = waiting.get(state.heads[queue]).map_or(NOTHING, |ready| ready.at.to_bits());
            let operations = strategy.of(tensor as usize);
            let now = operations[operation as usize];
            let resource = now.resource as usize;
            let start = at.max(state.free[resource]);
            let ends = start + now.time;
            state.free[resource] = ends;
            state.work[resource] += now.time;
            if ends - state.work[resource] > latest[resource] {
                return (ends - state.work[resource] + limit.total[resource]).max(limit.end);
            }
            state.end = state.end.max(ends);
            witness.span(Span {
                tensor: tensor as usize,
                operation: Some(operation as usize),
                resource: now.resource,
                start,
                end: ends,
            });
            if operation as usize + 1 < operations.len() {
                if state.keys[resource] == NOTHING {
                    state.keys[resource] = ends.to_bits();
                }
                queues[resource].push(Ready { at: ends, tensor, operation: operation + 1 });
            }
        }
    }
}

/// The queue whose head is of the first tensor, of those whose heads became ready at a time.
fn first_of_equal(queues: &[Vec<Ready>; 5], state: &State, at: u64) -> usize {
    let tensor = |queue: &usize| queues[*queue].get(state.heads[*queue]).map(|ready| ready.tensor);
    let heads = (0..5).filter(|queue| state.keys[*queue] == at);
    heads.min_by_key(|queue| tensor(queue).unwrap_or(u32::MAX)).unwrap_or(0)
}

/// How long the GPU compresses a tensor right after its computation, before it computes the next
/// one, ns.
pub(super) fn compressed_first(operations: &[Operation]) -> f64 {
    operations.first().filter(|first| first.resource == Resource::Gpu).map_or(0.0, |first| first.time)
}

/// Of (ready, done) of each tensor.
pub(super) fn last_bubble(tensors: impl Iterator<Item = (f64, f64)>) -> usize {
    let (mut latest, mut last) = (0.0_f64, 0);
    for (tensor, (ready, done)) in tensors.enumerate() {
        if latest <= ready {
            last = tensor;
        }
        latest = latest.max(done);
    }
    last
}
