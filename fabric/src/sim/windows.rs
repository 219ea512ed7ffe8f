//! Domains in windows as long as the shortest link between them, by any number of threads.
//!
//! ```text
//!  next event of all ─► window: [next, next + lookahead) ─► each domain by itself ─► frames to others change hands ─► next event …
//! ```
//!
//! What a domain does in a window can reach another one after it at the earliest, so nobody waits for anybody inside of one. Domains and windows do not depend on the
//! number of threads, and frames are taken in by the number of the domain that they come from: so results do not either. Most domains have nothing to do in most windows of an
//! incast, and cost nothing then.

mod meeting;

use super::domain::{Domain, Handed};
use super::run::Progress;
use meeting::Meeting;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::vec::Drain;

/// When to end, and how far domains may run apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) window_ns: u64,
    /// Virtual time after which nothing is simulated.
    pub(crate) limit_ns: u64,
    /// Flows after which nothing is.
    pub(crate) foreground: u64,
}

/// A thread's next event, and its flows of the foreground that are over.
type Report = (AtomicU64, AtomicU64);
/// Frames from a thread to another one, by the number of the domain that they come from.
type Mailbox = Mutex<Vec<Handed>>;

/// What threads tell each other. Of this round and of the next: who is ahead already writes the next one's.
struct Shared {
    /// By round, receiving thread, and sending one.
    mailboxes: [Vec<Vec<Mailbox>>; 2],
    /// By round, and thread.
    reports: [Vec<Report>; 2],
    meeting: Meeting,
    bounds: Bounds,
}

/// Runs all domains with so many threads, at least one.
pub(crate) fn run(domains: &mut [Domain], threads: usize, bounds: Bounds, progress: impl FnMut(Progress)) {
    let boxes = || (0..threads).map(|_| Mailbox::default()).collect();
    let shared = &Shared {
        mailboxes: std::array::from_fn(|_| (0..threads).map(|_| boxes()).collect()),
        reports: std::array::from_fn(|_| (0..threads).map(|_| Report::default()).collect()),
        meeting: Meeting::new(threads),
        bounds,
    };
    // Every nth domain: racks come first and are what takes time.
    let mut parts: Vec<Vec<&mut Domain>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, domain) in domains.iter_mut().enumerate() {
        parts[number % threads].push(domain);
    }
    std::thread::scope(|scope| {
        let mut workers =
            parts.into_iter().enumerate().map(|(thread, part)| Worker::new(thread, part, shared));
        let first = workers.next();
        for worker in workers {
            scope.spawn(move || worker.work(|_| {}));
        }
        if let Some(first) = first {
            first.work(progress);
        }
    });
}

/// A thread, and its domains: those whose numbers are its own modulo the number of threads.
struct Worker<'a> {
    thread: usize,
    domains: Vec<&'a mut Domain>,
    /// By domain: when its next event is, `u64::MAX` for never.
    next_ns: Vec<u64>,
    /// By thread: frames for its domains.
    leaving: Vec<Vec<Handed>>,
    shared: &'a Shared,
}

impl<'a> Worker<'a> {
    fn new(thread: usize, domains: Vec<&'a mut Domain>, shared: &'a Shared) -> Self {
        let next_ns = domains.iter().map(|domain| domain.next_at().unwrap_or(u64::MAX)).collect();
        let leaving = shared.reports[0].iter().map(|_| Vec::new()).collect();
        Self { thread, domains, next_ns, leaving, shared }
    }

    /// Runs the domains, window by window, until all threads see that the run is over. They meet once a window: what one hands over it has counted among what comes next, and all draw the same
    /// conclusions from the same reports.
    fn work(mut self, mut progress: impl FnMut(Progress)) {
        let Shared { mailboxes, reports, meeting, bounds } = self.shared;
        let _attends = meeting.attend();
        let (mut handed_ns, mut over) = (u64::MAX, 0);
        for round in 0_usize.. {
            let (now, then) = (round % 2, (round + 1) % 2);
            let at_ns = self.next_ns.iter().copied().fold(handed_ns, u64::min);
            reports[now][self.thread].0.store(at_ns, Ordering::Release);
            reports[now][self.thread].1.store(over, Ordering::Release);
            if !meeting.wait() {
                return;
            }
            let all = reports[now].iter();
            let now_ns = all.clone().map(|(next, _)| next.load(Ordering::Acquire)).min().unwrap_or(u64::MAX);
            let finished = all.map(|(_, finished)| finished.load(Ordering::Acquire)).sum();
            if now_ns > bounds.limit_ns || finished == bounds.foreground {
                return;
            }
            progress(Progress { now_ns, finished, flows: bounds.foreground });
            self.take(&mailboxes[now][self.thread]);
            over += self.window(now_ns.saturating_add(bounds.window_ns));
            handed_ns = self.hand_over(&mailboxes[then]);
        }
    }

    /// Takes in what came, by the number of the domain that it comes from. That is one thread's, which has it in order.
    fn take(&mut self, mailboxes: &[Mailbox]) {
        let threads = self.leaving.len();
        let mut boxes: Vec<_> = mailboxes.iter().map(lock).collect();
        let mut came: Vec<_> = boxes.iter_mut().map(|frames| frames.drain(..)).collect();
        let first =
            |frames: &Drain<'_, Handed>| frames.as_slice().first().map_or(u32::MAX, |handed| handed.from);
        while let Some(handed) = came.iter_mut().min_by_key(|frames| first(frames)).and_then(Iterator::next) {
            let place = handed.to as usize / threads;
            self.next_ns[place] = self.next_ns[place].min(handed.at_ns);
            self.domains[place].take(handed.at_ns, handed.event);
        }
    }

    /// Runs every domain that has something to do to the end of a window. Gives how many flows of the foreground ended.
    fn window(&mut self, end_ns: u64) -> u64 {
        let mut over = 0;
        for (domain, next_ns) in self.domains.iter_mut().zip(&mut self.next_ns) {
            if *next_ns < end_ns {
                domain.run(end_ns, &mut self.leaving);
                *next_ns = domain.next_at().unwrap_or(u64::MAX);
                over += domain.count_finished();
            }
        }
        over
    }

    /// Hands over what left. Gives when the first of it arrives.
    fn hand_over(&mut self, mailboxes: &[Vec<Mailbox>]) -> u64 {
        let mut handed_ns = u64::MAX;
        for (frames, mailboxes) in self.leaving.iter_mut().zip(mailboxes) {
            handed_ns = frames.iter().map(|handed| handed.at_ns).fold(handed_ns, u64::min);
            // What lies there was taken a round ago: its memory comes back.
            std::mem::swap(&mut *lock(&mailboxes[self.thread]), frames);
        }
        handed_ns
    }
}

/// A poisoned lock means that another thread has panicked, and that panic is on its way.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
