// SPDX-License-Identifier: Apache-2.0
//! Domains in windows as long as the shortest link between them, by any number of threads.
//!
//! ```text
//!  next event of all ─► window: [next, next + lookahead) ─► each domain by itself ─► frames to others change hands ─► next event …
//! ```
//!
//! What a domain does in a window can reach another one after it at the earliest, so nobody waits
//! for anybody inside of one. Domains and windows do not depend on the number of threads, and
//! frames are taken in by the number of the domain that they come from: so results do not either.
//! Most domains have nothing to do in most windows of an incast, and cost nothing then.
//!
//! A thread begins with domains of its own, whose state its caches hold, and goes on with those
//! that others have not come to: windows are short, and which domains are busy changes.

mod meeting;

use super::domain::Domain;
use super::event::Handed;
use super::setup::Progress;
use meeting::Meeting;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use trimwire_switch::engine::Spares;

/// When to end, and how far domains may run apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) window_ns: u64,
    /// Virtual time after which nothing is simulated.
    pub(crate) limit_ns: u64,
    /// Flows after which nothing is.
    pub(crate) foreground: u64,
    /// Frames handed from node to node after which no window begins.
    pub(crate) hops: u64,
}

/// No time.
const NEVER: u64 = u64::MAX;
/// Round n reads the nth of so many boards, writes the one behind it, and clears the one before it,
/// which nobody looks at any longer.
const ROUNDS: usize = 3;

/// What a round begins with. Threads meet between rounds, which orders what they write here.
struct Board {
    /// By domain: when its next event is.
    next_ns: Vec<AtomicU64>,
    /// By domain: frames that come from others, and when the first of them arrives.
    came: Vec<Mutex<Vec<Handed>>>,
    came_ns: Vec<AtomicU64>,
    /// By thread: its flows of the foreground that are over, of all rounds.
    over: Vec<AtomicU64>,
    /// By thread: frames that arrived, of all rounds.
    hops: Vec<AtomicU64>,
}

impl Board {
    fn new(domains: &[Domain], threads: usize) -> Self {
        let times = |of: fn(&Domain) -> Option<u64>| {
            domains.iter().map(|domain| AtomicU64::new(of(domain).unwrap_or(NEVER))).collect()
        };
        Self {
            next_ns: times(Domain::next_at),
            came: domains.iter().map(|_| Mutex::default()).collect(),
            came_ns: times(|_| None),
            over: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            hops: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// When a domain has something to do.
    fn due_ns(&self, domain: usize) -> u64 {
        self.next_ns[domain].load(Relaxed).min(self.came_ns[domain].load(Relaxed))
    }
}

/// What threads share.
struct Shared<'a> {
    domains: Vec<Mutex<&'a mut Domain>>,
    /// By domain: the round that somebody has begun to run it in, counted from 1.
    begun: Vec<AtomicU64>,
    boards: [Board; ROUNDS],
    threads: usize,
    meeting: Meeting,
    bounds: Bounds,
}

/// Runs all domains with so many threads, at least one.
pub(crate) fn run(domains: &mut [Domain], threads: usize, bounds: Bounds, progress: impl FnMut(Progress)) {
    let shared = &Shared {
        begun: domains.iter().map(|_| AtomicU64::new(0)).collect(),
        boards: std::array::from_fn(|_| Board::new(domains, threads)),
        domains: domains.iter_mut().map(Mutex::new).collect(),
        threads,
        meeting: Meeting::new(threads),
        bounds,
    };
    std::thread::scope(|scope| {
        for thread in 1..threads {
            scope.spawn(move || Worker::new(thread, shared).work(|_| {}));
        }
        Worker::new(0, shared).work(progress);
    });
}

/// A thread. Its own domains are those whose numbers are its own modulo the number of threads:
/// racks come first and are what takes time.
struct Worker<'a> {
    thread: usize,
    shared: &'a Shared<'a>,
    /// Domains that have something to do in this window.
    due: Vec<usize>,
    leaving: Vec<Handed>,
    spares: Spares,
    over: u64,
    hops: u64,
}

impl<'a> Worker<'a> {
    fn new(thread: usize, shared: &'a Shared<'a>) -> Self {
        let (due, leaving, spares) = (Vec::new(), Vec::new(), Spares::default());
        Self { thread, shared, due, leaving, spares, over: 0, hops: 0 }
    }

    /// Runs domains, window by window, until all threads see that the run is over. They meet once a
    /// window, and all draw the same conclusions from the same board.
    fn work(mut self, mut progress: impl FnMut(Progress)) {
        let Shared { boards, meeting, bounds, .. } = self.shared;
        let _attends = meeting.attend();
        for round in 0_usize.. {
            let (board, then) = (&boards[round % ROUNDS], &boards[(round + 1) % ROUNDS]);
            board.over[self.thread].store(self.over, Relaxed);
            board.hops[self.thread].store(self.hops, Relaxed);
            if !meeting.wait() {
                return;
            }
            let domains = 0..board.next_ns.len();
            let now_ns = domains.clone().map(|domain| board.due_ns(domain)).min().unwrap_or(NEVER);
            let finished = board.over.iter().map(|over| over.load(Relaxed)).sum();
            let hops: u64 = board.hops.iter().map(|hops| hops.load(Relaxed)).sum();
            if now_ns > bounds.limit_ns || finished == bounds.foreground || hops >= bounds.hops {
                return;
            }
            progress(Progress { now_ns, finished, flows: bounds.foreground });
            // What happens at the limit is the last that does, however long the window.
            let end_ns = now_ns.saturating_add(bounds.window_ns).min(bounds.limit_ns.saturating_add(1));
            // Frames are taken in when they come, if only to lie there.
            let is_due = |&domain: &usize| {
                board.next_ns[domain].load(Relaxed) < end_ns || board.came_ns[domain].load(Relaxed) != NEVER
            };
            let mut due = std::mem::take(&mut self.due);
            due.clear();
            due.extend(domains.clone().filter(is_due));
            let old = &boards[(round + 2) % ROUNDS];
            for domain in domains.skip(self.thread).step_by(self.shared.threads) {
                old.came_ns[domain].store(NEVER, Relaxed);
                if !is_due(&domain) {
                    then.next_ns[domain].store(board.next_ns[domain].load(Relaxed), Relaxed);
                }
            }
            let Self { thread, shared: Shared { threads, .. }, .. } = self;
            let own = |domain: &&usize| **domain % threads == thread;
            // Others' from the end, where they come last.
            for &domain in due.iter().filter(own).chain(due.iter().rev().filter(|domain| !own(domain))) {
                self.begin(domain, round as u64 + 1, end_ns, board, then);
            }
            self.due = due;
        }
    }

    /// Runs a domain to the end of the window, unless another thread does.
    fn begin(&mut self, domain: usize, round: u64, end_ns: u64, board: &Board, then: &Board) {
        if self.shared.begun[domain].swap(round, Relaxed) == round {
            return;
        }
        let mut held = lock(&self.shared.domains[domain]);
        if board.came_ns[domain].load(Relaxed) != NEVER {
            let mut came = lock(&board.came[domain]);
            // Of one domain's they are in order already.
            came.sort_by_key(|handed| handed.from);
            came.drain(..).for_each(|handed| held.take(handed.at_ns, handed.event));
        }
        self.hops += held.run(end_ns, &mut self.leaving, &mut self.spares);
        self.over += held.count_finished();
        then.next_ns[domain].store(held.next_at().unwrap_or(NEVER), Relaxed);
        for handed in self.leaving.drain(..) {
            let to = handed.to as usize;
            then.came_ns[to].fetch_min(handed.at_ns, Relaxed);
            lock(&then.came[to]).push(handed);
        }
    }
}

/// A poisoned lock means that another thread has panicked, and that panic is on its way.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
