//! F(S): when everything that a strategy does begins and ends.

use super::chain::{Chain, Resource};

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
    /// The last tensor before whose gradient everything that was there had been synchronised: a bubble in communication. What is communicated before
    /// it delays nothing behind it, so that compressing it gains nothing (property 1).
    pub fn bubble(&self) -> usize {
        last_bubble(self.ready.iter().copied().zip(self.done.iter().copied()))
    }
}

/// Simulates strategies of one model, again and again in the same memory.
///
/// Each resource does one operation at a time, whole, in the order in which operations became ready. On a GPU an operation that became ready with the
/// next tensor's computation goes first: its communication waits for it, and nothing waits for the computation but other computation (figure 2 (c)).
///
/// Operations end on a resource in the order in which they began, so what becomes ready behind them is in order, too: five sorted queues, of which the least
/// head is next, stand for a heap.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// What became ready behind the operations of each resource, and behind computation.
    queues: [Vec<Ready>; 5],
    now: State,
    /// As it was before a tensor's computation, for strategies that differ in that tensor.
    branch: Branch,
    /// By tensor, for bubbles: when its gradient is there, and when it has been synchronised.
    done: Vec<(f64, f64)>,
}

/// How far a simulation is, beside what is in the queues.
#[derive(Debug, Clone, Copy)]
struct State {
    heads: [usize; 5],
    /// Of each head its time and tensor ([`Ready::key`]): the least of them is next.
    keys: [u128; 5],
    /// From when on each resource is free.
    free: [f64; 4],
    /// The computation that is next, and since when it could begin.
    next: usize,
    since: f64,
    end: f64,
    /// What is left to do, ns.
    left: [f64; 4],
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
            left: [0.0; 4],
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Branch {
    state: State,
    lengths: [usize; 5],
}

#[derive(Debug, Clone, Copy)]
struct Ready {
    at: f64,
    tensor: u32,
    operation: u32,
}

impl Ready {
    /// Orders by time, then by tensor: times are not negative, so that their bits are in their order.
    fn key(self) -> u128 {
        u128::from(self.at.to_bits()) << 32 | u128::from(self.tensor)
    }
}

/// The key of an empty queue.
const NOTHING: u128 = u128::MAX;

/// What became ready behind computation.
const COMPUTED: usize = 4;

impl Timeline {
    /// Simulates what is the same whatever `tensor`'s chain is: all before its computation.
    pub fn branch(&mut self, compute: &[f64], chains: &[Chain], tensor: usize) {
        self.begin(compute, chains, Some(tensor));
        self.run(compute, chains, None, Some(tensor), f64::INFINITY, |_| {});
        self.branch = Branch { state: self.now, lengths: self.queues.each_ref().map(Vec::len) };
    }

    /// When everything is synchronised with another chain for the tensor that [`Self::branch`] was told, as far as it is below `limit`, as [`Self::end_below`]. All other arguments
    /// have to be what they were then.
    pub fn end_with(
        &mut self,
        compute: &[f64],
        chains: &[Chain],
        tensor: usize,
        chain: &Chain,
        limit: f64,
    ) -> f64 {
        self.now = self.branch.state;
        for (queue, length) in self.queues.iter_mut().zip(self.branch.lengths) {
            queue.truncate(length);
        }
        for operation in chain.operations() {
            self.now.left[operation.resource as usize] += operation.time;
        }
        self.run(compute, chains, Some((tensor, chain)), None, limit, |_| {})
    }

    /// When everything is synchronised, ns. `compute` has each tensor's computation, ns, and `chains` what is done to it then, in the order of the backward pass.
    pub fn end(&mut self, compute: &[f64], chains: &[Chain]) -> f64 {
        self.begin(compute, chains, None);
        self.run(compute, chains, None, None, f64::INFINITY, |_| {})
    }

    /// The same where it is below `limit`; else `limit` or more, found out as soon as what is left for some resource cannot be done before.
    pub fn end_below(&mut self, compute: &[f64], chains: &[Chain], limit: f64) -> f64 {
        self.begin(compute, chains, None);
        self.run(compute, chains, None, None, limit, |_| {})
    }

    /// The same with everything that happens.
    pub fn schedule(&mut self, compute: &[f64], chains: &[Chain]) -> Schedule {
        let mut spans = Vec::new();
        self.begin(compute, chains, None);
        let end = self.run(compute, chains, None, None, f64::INFINITY, |span| spans.push(span));
        let (mut ready, mut done) = (vec![0.0; compute.len()], vec![0.0_f64; compute.len()]);
        for span in &spans {
            if span.operation.is_none() {
                ready[span.tensor] = span.end;
            }
            done[span.tensor] = done[span.tensor].max(span.end);
        }
        Schedule { spans, ready, done, end }
    }

    /// At the beginning, with everything left to do but `without`'s chain.
    fn begin(&mut self, compute: &[f64], chains: &[Chain], without: Option<usize>) {
        self.queues.iter_mut().for_each(Vec::clear);
        self.now = State::default();
        let left = &mut self.now.left;
        left[Resource::Gpu as usize] = compute.iter().sum();
        for (tensor, chain) in chains.iter().enumerate() {
            if without == Some(tensor) {
                continue;
            }
            for operation in chain.operations() {
                left[operation.resource as usize] += operation.time;
            }
        }
    }

    /// Goes on from where it is: with `other` instead of a tensor's chain, and up to the computation of `stop`.
    fn run(
        &mut self,
        compute: &[f64],
        chains: &[Chain],
        other: Option<(usize, &Chain)>,
        stop: Option<usize>,
        limit: f64,
        mut visit: impl FnMut(Span),
    ) -> f64 {
        let Self { queues, now, .. } = self;
        let State { heads, keys, free, next, since, end, left } = now;
        let count = stop.unwrap_or(usize::MAX).min(compute.len()).min(chains.len());
        let whole = compute.len().min(chains.len());
        let of = |tensor: usize| match other {
            Some((place, chain)) if place == tensor => chain.operations(),
            _ => chains[tensor].operations(),
        };
        // With a share for rounding, which is less than that by an order or two.
        let late = limit * (1.0 + 1e-12);
        loop {
            let mut queue = 0;
            for i in 1..5 {
                if keys[i] < keys[queue] {
                    queue = i;
                }
            }
            if *next < whole && u128::from(since.to_bits()) < keys[queue] >> 32 {
                if *next >= count {
                    return *end;
                }
                let start = (*since).max(free[Resource::Gpu as usize]);
                let ends = start + compute[*next];
                free[Resource::Gpu as usize] = ends;
                visit(Span { tensor: *next, operation: None, resource: Resource::Gpu, start, end: ends });
                *end = (*end).max(ends);
                left[Resource::Gpu as usize] -= compute[*next];
                if ends + left[Resource::Gpu as usize] > late {
                    return (ends + left[Resource::Gpu as usize]).max(limit);
                }
                if !of(*next).is_empty() {
                    let ready = Ready { at: ends, tensor: *next as u32, operation: 0 };
                    if keys[COMPUTED] == NOTHING {
                        keys[COMPUTED] = ready.key();
                    }
                    queues[COMPUTED].push(ready);
                }
                (*next, *since) = (*next + 1, ends);
                continue;
            }
            let Some(&Ready { at, tensor, operation }) = queues[queue].get(heads[queue]) else { return *end };
            heads[queue] += 1;
            keys[queue] = queues[queue].get(heads[queue]).map_or(NOTHING, |ready| ready.key());
            let operations = of(tensor as usize);
            let now = operations[operation as usize];
            let resource = now.resource as usize;
            let start = at.max(free[resource]);
            let ends = start + now.time;
            free[resource] = ends;
            left[resource] -= now.time;
            if ends + left[resource] > late {
                return (ends + left[resource]).max(limit);
            }
            let place = Some(operation as usize);
            visit(Span {
                tensor: tensor as usize,
                operation: place,
                resource: now.resource,
                start,
                end: ends,
            });
            *end = (*end).max(ends);
            if operation as usize + 1 < operations.len() {
                let ready = Ready { at: ends, tensor, operation: operation + 1 };
                if keys[resource] == NOTHING {
                    keys[resource] = ready.key();
                }
                queues[resource].push(ready);
            }
        }
    }

    /// The last tensor before whose gradient everything that was there had been synchronised ([`Schedule::bubble`]).
    pub fn bubble(&mut self, compute: &[f64], chains: &[Chain]) -> usize {
        let mut done = std::mem::take(&mut self.done);
        done.clear();
        done.resize(compute.len(), (0.0, 0.0));
        self.begin(compute, chains, None);
        self.run(compute, chains, None, None, f64::INFINITY, |span| {
            let (ready, done): &mut (f64, f64) = &mut done[span.tensor];
            if span.operation.is_none() {
                *ready = span.end;
            }
            *done = done.max(span.end);
        });
        let last = last_bubble(done.iter().copied());
        self.done = done;
        last
    }
}

/// Of (ready, done) of each tensor.
fn last_bubble(tensors: impl Iterator<Item = (f64, f64)>) -> usize {
    let (mut latest, mut last) = (0.0_f64, 0);
    for (tensor, (ready, done)) in tensors.enumerate() {
        if latest <= ready {
            last = tensor;
        }
        latest = latest.max(done);
    }
    last
}
