// SPDX-License-Identifier: Apache-2.0
//! Which of a port's queues is served next: strict ones first, then the weighted ones, capped ones
//! within their share.
//!
//! All sums are integers of bytes, so the order depends on nothing but the packets.

use super::config::{QUEUES, QueueConfig, Service};

/// A weighted queue's turn grants this many bytes per unit of weight: an Ethernet frame.
const QUANTUM: i64 = 1_518;

/// A capped queue may be this far ahead of its share: a jumbo frame, so that a share is reached
/// whatever the frames of the other queues, in bytes times 1,000.
const BURST: i64 = 9_234 * 1_000;

/// One port's choice. Bit `n` of a set is queue `n`.
#[derive(Debug)]
pub(super) struct Scheduler {
    backlog: u8,
    weighted: u8,
    capped: u8,
    /// Bytes that a weighted queue may still send in its turn.
    deficit: [i64; QUEUES],
    quantum: [i64; QUEUES],
    turn: usize,
    /// The queue whose turn it is has had its quantum.
    granted: bool,
    /// Per mille of the line; and what a capped queue is ahead of (below 0) or behind its share, in
    /// bytes times 1,000.
    cap: [i64; QUEUES],
    credit: [i64; QUEUES],
    /// The last choice: others waited, and the queue was within its share.
    contended: bool,
    within: bool,
}

fn bit(queue: usize) -> u8 {
    1 << queue
}

/// The queues in a set.
fn queues(set: u8) -> impl DoubleEndedIterator<Item = usize> {
    (0..QUEUES).filter(move |&queue| set & bit(queue) != 0)
}

impl Scheduler {
    pub(super) fn new(configs: &[QueueConfig; QUEUES]) -> Self {
        let mut scheduler = Self {
            backlog: 0,
            weighted: 0,
            capped: 0,
            deficit: [0; QUEUES],
            quantum: [0; QUEUES],
            turn: QUEUES - 1,
            granted: false,
            cap: [0; QUEUES],
            credit: [BURST; QUEUES],
            contended: false,
            within: true,
        };
        for (queue, config) in configs.iter().enumerate() {
            scheduler.configure(queue, config);
        }
        scheduler
    }

    pub(super) fn configure(&mut self, queue: usize, config: &QueueConfig) {
        self.weighted &= !bit(queue);
        self.capped &= !bit(queue);
        self.deficit[queue] = 0;
        if let Service::Weighted(weight) = config.service {
            self.weighted |= bit(queue);
            self.quantum[queue] = i64::from(weight.get()) * QUANTUM;
        }
        if let Some(share) = config.cap {
            self.capped |= bit(queue);
            self.cap[queue] = i64::from(share.permille());
            self.credit[queue] = BURST;
        }
    }

    /// Says whether a queue holds packets.
    pub(super) fn set_backlog(&mut self, queue: usize, waits: bool) {
        if waits {
            self.backlog |= bit(queue);
        } else {
            self.backlog &= !bit(queue);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.backlog == 0
    }

    /// The line was idle: nobody has to wait for a share of a time that has passed.
    pub(super) fn forget(&mut self) {
        self.credit = [BURST; QUEUES];
    }

    /// The queue to serve, none when all are empty; `head` gives the length of a queue's first
    /// packet.
    pub(super) fn choose(&mut self, head: impl Fn(usize) -> u32) -> Option<usize> {
        let mut over = 0;
        if self.capped & self.backlog != 0 {
            over = queues(self.capped).filter(|&q| self.credit[q] < 0).fold(0, |set, q| set | bit(q));
        }
        let within = self.backlog & !over;
        let strict = within & !self.weighted;
        self.within = within != 0;
        let queue = if strict != 0 {
            QUEUES - 1 - strict.leading_zeros() as usize
        } else if within != 0 {
            self.take_turns(within, head)
        } else {
            // All that wait have had their share, and nobody wants the rest: the one least ahead,
            // the highest among equals.
            queues(self.backlog).max_by_key(|&queue| self.credit[queue])?
        };
        self.contended = self.backlog & !bit(queue) != 0;
        Some(queue)
    }

    /// The chosen queue has put `bytes` on the line.
    pub(super) fn charge(&mut self, queue: usize, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX >> 16);
        if self.weighted & bit(queue) != 0 && self.within {
            self.deficit[queue] -= bytes;
        }
        if self.capped == 0 || !self.contended {
            return;
        }
        for capped in queues(self.capped) {
            let own = if capped == queue { 1_000 * bytes } else { 0 };
            let credit = self.credit[capped] + self.cap[capped] * bytes - own;
            // Beyond its share it was served for want of others: that is no debt to pay for long.
            let least = if self.within { i64::MIN } else { -BURST };
            self.credit[capped] = credit.clamp(least, BURST);
        }
    }

    /// Deficit round robin, from the highest queue down. A queue that is empty keeps nothing for
    /// later.
    fn take_turns(&mut self, among: u8, head: impl Fn(usize) -> u32) -> usize {
        loop {
            let queue = self.turn;
            if among & bit(queue) != 0 {
                if !self.granted {
                    self.granted = true;
                    self.deficit[queue] += self.quantum[queue];
                }
                if self.deficit[queue] >= i64::from(head(queue)) {
                    return queue;
                }
            }
            if self.backlog & bit(queue) == 0 {
                self.deficit[queue] = 0;
            }
            self.turn = (queue + QUEUES - 1) % QUEUES;
            self.granted = false;
        }
    }
}
