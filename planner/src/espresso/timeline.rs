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
        let mut latest = 0.0_f64;
        let mut last = 0;
        for (tensor, (ready, done)) in self.ready.iter().zip(&self.done).enumerate() {
            if latest <= *ready {
                last = tensor;
            }
            latest = latest.max(*done);
        }
        last
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
    heads: [usize; 5],
}

#[derive(Debug, Clone, Copy)]
struct Ready {
    at: f64,
    tensor: u32,
    operation: u32,
}

/// What became ready behind computation.
const COMPUTED: usize = 4;

impl Timeline {
    /// When everything is synchronised, ns. `compute` has each tensor's computation, ns, and `chains` what is done to it then, in the order of the backward pass.
    pub fn end(&mut self, compute: &[f64], chains: &[Chain]) -> f64 {
        self.run(compute, chains, f64::INFINITY, |_| {})
    }

    /// The same where it is below `limit`; else `limit` or more, found out as soon as what is left for some resource cannot be done before.
    pub fn end_below(&mut self, compute: &[f64], chains: &[Chain], limit: f64) -> f64 {
        self.run(compute, chains, limit, |_| {})
    }

    /// The same with everything that happens.
    pub fn schedule(&mut self, compute: &[f64], chains: &[Chain]) -> Schedule {
        let mut spans = Vec::new();
        let end = self.run(compute, chains, f64::INFINITY, |span| spans.push(span));
        let (mut ready, mut done) = (vec![0.0; compute.len()], vec![0.0_f64; compute.len()]);
        for span in &spans {
            if span.operation.is_none() {
                ready[span.tensor] = span.end;
            }
            done[span.tensor] = done[span.tensor].max(span.end);
        }
        Schedule { spans, ready, done, end }
    }

    fn run(&mut self, compute: &[f64], chains: &[Chain], limit: f64, mut visit: impl FnMut(Span)) -> f64 {
        for queue in &mut self.queues {
            queue.clear();
        }
        self.heads = [0; 5];
        let mut free = [0.0_f64; 4];
        let count = compute.len().min(chains.len());
        // The computation that is next, and since when it could begin.
        let (mut next, mut since) = (0, 0.0_f64);
        let mut end = 0.0_f64;
        // What is left to do, ns; with a share for rounding.
        let mut left = [0.0_f64; 4];
        if limit.is_finite() {
            left[Resource::Gpu as usize] = compute.iter().sum();
            for operation in chains.iter().flat_map(Chain::operations) {
                left[operation.resource as usize] += operation.time;
            }
        }
        let late = limit * (1.0 + 1e-9);
        loop {
            let mut best: Option<(usize, Ready)> = None;
            for (i, queue) in self.queues.iter().enumerate() {
                if let Some(head) = queue.get(self.heads[i])
                    && best.is_none_or(|(_, best)| (head.at, head.tensor) < (best.at, best.tensor))
                {
                    best = Some((i, *head));
                }
            }
            if next < count && best.is_none_or(|(_, best)| since < best.at) {
                let start = since.max(free[Resource::Gpu as usize]);
                let ends = start + compute[next];
                free[Resource::Gpu as usize] = ends;
                visit(Span { tensor: next, operation: None, resource: Resource::Gpu, start, end: ends });
                end = end.max(ends);
                left[Resource::Gpu as usize] -= compute[next];
                if !chains[next].operations().is_empty() {
                    self.queues[COMPUTED].push(Ready { at: ends, tensor: next as u32, operation: 0 });
                }
                (next, since) = (next + 1, ends);
                continue;
            }
            let Some((queue, Ready { at, tensor, operation })) = best else { return end };
            self.heads[queue] += 1;
            let operations = chains[tensor as usize].operations();
            let now = operations[operation as usize];
            let resource = now.resource as usize;
            let start = at.max(free[resource]);
            let ends = start + now.time;
            free[resource] = ends;
            left[resource] -= now.time;
            if ends + left[resource] > late {
                return ends + left[resource];
            }
            let place = Some(operation as usize);
            visit(Span {
                tensor: tensor as usize,
                operation: place,
                resource: now.resource,
                start,
                end: ends,
            });
            end = end.max(ends);
            if operation as usize + 1 < operations.len() {
                self.queues[resource].push(Ready { at: ends, tensor, operation: operation + 1 });
            }
        }
    }
}
