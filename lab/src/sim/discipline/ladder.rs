// SPDX-License-Identifier: Apache-2.0
//! The P4 program's rule (p4/include/ladder.p4, p4/bmv2/levels.p4, p4/bmv2/trim_cap.p4) on one
//! port, without its tables.

use super::{Counts, Discipline};
use crate::sim::packet::{Ecn, HEAD, Packet, Trimming};
use std::collections::VecDeque;

const QUEUES: usize = 8;

/// Thresholds and sizes of every data queue, in bytes, as the fabric file's policy has them
/// (docs/reference/fabric-file.md). Thresholds by importance: of less important packets first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rungs {
    /// ECN-capable packets that may not be trimmed are marked.
    pub mark_at: [u64; 2],
    /// Packets are trimmed to `shallow_size`; those that may not be and are not ECN-capable are
    /// dropped.
    pub shallow_at: [u64; 2],
    /// Packets are trimmed to `deep_size`.
    pub deep_at: [u64; 2],
    /// Whatever enters the queue is dropped.
    pub drop_at: [u64; 2],
    /// Bytes of a frame that is trimmed a little.
    pub shallow_size: u32,
    /// Bytes of a frame that is trimmed to its signs.
    pub deep_size: u32,
    /// Queue of what is trimmed.
    pub trim_queue: u8,
    /// Heads find no room in the trim queue: their packets go into their own queue whole, below
    /// `drop_at`; what comes trimmed is dropped.
    pub trim_drop_at: u64,
    /// Of trimmed packets: bytes per 1,024 µs, and burst in bytes.
    pub cap: Option<(u32, u32)>,
}

impl Rungs {
    /// The fabric file's default thresholds (docs/reference/fabric-file.md) on a port of `rate_bps`,
    /// for whole packets of ten planes and so much payload, trimmed to eight planes and to one: the
    /// first of two thresholds is for less important packets.
    pub fn defaults(rate_bps: u64, payload: u32) -> Self {
        let us = |time: u64| time * (rate_bps / 1_000_000) / 8;
        Self {
            mark_at: [us(10), us(20)],
            shallow_at: [us(20), us(40)],
            deep_at: [us(40), us(80)],
            drop_at: [us(400), us(400)],
            shallow_size: HEAD + payload / 3,
            deep_size: HEAD + payload / 24,
            trim_queue: 6,
            trim_drop_at: us(100),
            cap: None,
        }
    }
}

/// The length below which the program does not trim: Ethernet, IPv4, UDP, and a DATA header
/// (`TRIMWIRE_HEAD_BYTES`).
const HEAD_END: u32 = 14 + 20 + 8 + 20;

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Packet>,
    bytes: u64,
}

/// Eight queues, the highest served first, and the ladder in front of them.
#[derive(Debug)]
pub struct Ladder {
    rungs: Rungs,
    queues: [Queue; QUEUES],
    /// By bit, queues in which packets wait.
    waiting: u8,
    bytes: u64,
    /// Of the cap: bytes not yet paid for by time, and when that was worked out, µs.
    debt: u64,
    debt_us: u64,
}

/// What the ladder says (`Verdict` of p4/include/headers.p4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Admit,
    AdmitMarked,
    Trim(u32),
    Drop,
}

impl Ladder {
    /// An empty port.
    pub fn new(rungs: Rungs) -> Self {
        Self { rungs, queues: Default::default(), waiting: 0, bytes: 0, debt: 0, debt_us: 0 }
    }

    fn trim_queue(&self) -> usize {
        usize::from(self.rungs.trim_queue).min(QUEUES - 1)
    }

    fn verdict(&self, packet: &Packet, queue: usize) -> Verdict {
        let rungs = &self.rungs;
        let important = packet.ecn != Ecn::NotEct;
        let at = usize::from(important);
        let waiting = self.queues[queue].bytes;
        let trim_full = self.queues[self.trim_queue()].bytes >= rungs.trim_drop_at;
        match packet.trimming {
            Trimming::Trimmed if trim_full => Verdict::Drop,
            Trimming::Trimmable if waiting >= rungs.shallow_at[at] => {
                let deep = waiting >= rungs.deep_at[at];
                let size = if deep { rungs.deep_size } else { rungs.shallow_size }.max(HEAD_END);
                if size < packet.length && !trim_full {
                    Verdict::Trim(size)
                } else {
                    self.as_it_is(packet, queue)
                }
            }
            Trimming::Plain if !important && waiting >= rungs.shallow_at[at] => Verdict::Drop,
            Trimming::Plain if waiting >= rungs.drop_at[at] => Verdict::Drop,
            Trimming::Plain if important && waiting >= rungs.mark_at[at] => Verdict::AdmitMarked,
            _ => Verdict::Admit,
        }
    }

    /// Of a trimmable packet that is short already, or whose head finds no room: its own queue may
    /// have some.
    fn as_it_is(&self, packet: &Packet, queue: usize) -> Verdict {
        let important = usize::from(packet.ecn != Ecn::NotEct);
        if self.queues[queue].bytes >= self.rungs.drop_at[important] { Verdict::Drop } else { Verdict::Admit }
    }

    /// Whether a trimmed packet of so many bytes is within the cap; pays for it if so.
    fn within_cap(&mut self, now_ns: u64, length: u32) -> bool {
        let Some((rate, burst)) = self.rungs.cap else { return true };
        let now_us = now_ns / 1_000;
        let idle_us = now_us.saturating_sub(self.debt_us).min(0xf_ffff);
        let paid = (idle_us * u64::from(rate)) >> 10;
        self.debt = self.debt.saturating_sub(paid);
        self.debt_us = now_us;
        let wanted = self.debt + u64::from(length);
        let within = wanted <= u64::from(burst);
        if within {
            self.debt = wanted;
        }
        within
    }

    fn admit(&mut self, packet: Packet, queue: usize) {
        let length = u64::from(packet.length);
        self.bytes += length;
        self.queues[queue].bytes += length;
        self.queues[queue].waiting.push_back(packet);
        self.waiting |= 1 << queue;
    }
}

impl Discipline for Ladder {
    fn enqueue(&mut self, now_ns: u64, mut packet: Packet, counts: &mut Counts) {
        let queue = match packet.trimming {
            Trimming::Trimmed => self.trim_queue(),
            _ => usize::from(packet.class).min(QUEUES - 1),
        };
        match self.verdict(&packet, queue) {
            Verdict::Drop => counts.drop(&packet),
            Verdict::Admit => {
                if packet.is_trimmed() && !self.within_cap(now_ns, packet.length) {
                    return counts.drop(&packet);
                }
                self.admit(packet, queue);
            }
            Verdict::AdmitMarked => {
                if packet.ecn == Ecn::Ect {
                    counts.marked += 1;
                }
                packet.ecn = Ecn::Ce;
                self.admit(packet, queue);
            }
            Verdict::Trim(size) => {
                if !self.within_cap(now_ns, size) {
                    return match self.as_it_is(&packet, queue) {
                        Verdict::Drop => counts.drop(&packet),
                        _ => self.admit(packet, queue),
                    };
                }
                packet.length = size;
                packet.trimming = Trimming::Trimmed;
                counts.trimmed += 1;
                let trim_queue = self.trim_queue();
                self.admit(packet, trim_queue);
            }
        }
    }

    fn dequeue(&mut self) -> Option<Packet> {
        let highest = self.waiting.checked_ilog2()? as usize;
        let queue = &mut self.queues[highest];
        let packet = queue.waiting.pop_front()?;
        let length = u64::from(packet.length);
        queue.bytes -= length;
        self.bytes -= length;
        if queue.waiting.is_empty() {
            self.waiting &= !(1 << highest);
        }
        Some(packet)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
