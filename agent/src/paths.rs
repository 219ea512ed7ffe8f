// SPDX-License-Identifier: Apache-2.0
//! Which paths to a peer work, and which to take next.
//!
//! ```text
//!         a packet is lost, and none that left later has arrived
//!  ALIVE ───────────────────────────────────────────────────────► SUSPECTED
//!    ▲ ▲        asked and answered, or data arrives                  │  │
//!    │ └─────────────────────────────────────────────────────────────┘  │ asked three times
//!    │                                                                  ▼
//!    │                               asked three times                 OUT
//!    └─────────────── PROBED ─────────────────────────────────────────► │
//!     as above          ▲           waits, longer each time             │
//!                       └───────────────────────────────────────────────┘
//! ```
//!
//! Data takes the paths that are alive, as [`Spray`] weighs them, and all alike while none is. What
//! is sent again takes another path than before. Questions (PATH) go the way of the path's data;
//! answers come the way of control packets, so that only the way there is judged.
//!
//! A question is as long as the longest data. Where it gets no answer a short one follows: a path
//! on which short packets live and long ones die carries a smaller MTU (RFC 8899 §4.3). Losses
//! alone say nothing of the MTU.
#![forbid(unsafe_code)]

use crate::rtt::backoff;
use crate::snapshot::PathStats;
use crate::spray::Spray;

/// Rounds of questions before a path is out (RFC 8899 §5.1.2: MAX_PROBES).
const ROUNDS: u32 = 3;
/// So many answers to short questions, and none to the long ones, are no chance.
const SHORT: u32 = 2;
/// Paths that are asked at a time. Questions are as long as data: where a full queue loses packets
/// of every path, more would fill it further.
const AT_ONCE: usize = 2;
/// A path that is out is asked again after this time first, and at last.
const WAIT_NS: (u64, u64) = (10_000_000, 1_000_000_000);
/// Numbers of these questions, which PATH shares with the search for an MTU: long or short, path,
/// and how often that was asked.
const OURS: u32 = 1 << 31;
const LONG: u32 = 1 << 30;
const PATHS: u16 = 1 << 14;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Health {
    #[default]
    Alive,
    Suspected,
    Out,
    Probed,
}

#[derive(Debug, Clone, Copy, Default)]
struct Path {
    health: Health,
    /// Newest times of sending of what has arrived, and of what was lost.
    arrived_ns: u64,
    lost_ns: u64,
    /// Which suspicion or probe: answers to older ones say nothing.
    number: u16,
    /// Questions of this number so far.
    rounds: u32,
    /// Answers to short ones of them.
    short: u32,
    /// Waits since it was alive.
    waits: u32,
    /// When to ask, or to give up asking, unless it is alive.
    at_ns: u64,
}

/// A question to be asked on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// The path.
    pub path: u16,
    /// Its number.
    pub sequence: u32,
    /// As long as the longest data, or as short as can be.
    pub long: bool,
}

/// The paths to one peer. After [`on_lost`](Self::on_lost), and when
/// [`timeout_ns`](Self::timeout_ns) has come, call [`ask`](Self::ask).
#[derive(Debug)]
pub struct Paths {
    spray: Spray,
    all: Vec<Path>,
    alive: usize,
    /// The path in use, and packets that are still to go that way.
    current: (u16, u32),
    packets_per_path: u32,
}

impl Paths {
    /// Paths that are all alive; 0 counts as 1. `packets_per_path` take one before the next is
    /// chosen.
    pub fn new(paths: u16, packets_per_path: u32, seed: u64) -> Self {
        let paths = paths.clamp(1, PATHS);
        Self {
            spray: Spray::new(paths, seed),
            all: vec![Path::default(); usize::from(paths)],
            alive: usize::from(paths),
            current: (0, 0),
            packets_per_path: packets_per_path.max(1),
        }
    }

    /// Weights and totals.
    pub fn spray(&mut self) -> &mut Spray {
        &mut self.spray
    }

    /// A path's totals, and its share of the bursts.
    pub fn state(&self, path: u16) -> Option<(PathStats, f64)> {
        let used = is_used(&self.all, self.alive, path);
        Some((*self.spray.stats(path)?, if used { self.spray.share(path) } else { 0.0 }))
    }

    /// Paths that are known to lead nowhere.
    pub fn dead(&self) -> u16 {
        let dead = |path: &&Path| matches!(path.health, Health::Out | Health::Probed);
        self.all.iter().filter(dead).count() as u16
    }

    /// The path of the next burst; `before`: the one on which it was lost.
    pub fn choose(&mut self, now_ns: u64, before: Option<u16>) -> u16 {
        let Self { spray, all, alive, current, .. } = self;
        let alone = if *alive == 0 { all.len() == 1 } else { *alive == 1 };
        let fits = |path| is_used(all, *alive, path) && (before != Some(path) || alone);
        if current.1 == 0 || !fits(current.0) {
            *current = (spray.choose_among(now_ns, fits), self.packets_per_path);
        }
        current.0
    }

    /// So many packets of so many payload bytes left on a path.
    pub fn on_sent(&mut self, path: u16, packets: u32, bytes: u64) {
        self.current.1 = self.current.1.saturating_sub(packets);
        self.spray.on_sent(path, packets, bytes);
    }

    /// A packet that left at `sent_ns` on a path has arrived.
    pub fn on_arrived(&mut self, path: u16, sent_ns: u64, trimmed: bool) {
        self.spray.on_arrived(path, 1, u32::from(trimmed));
        let Some(path) = self.all.get_mut(usize::from(path)) else { return };
        path.arrived_ns = path.arrived_ns.max(sent_ns);
        if path.health != Health::Alive && sent_ns > path.lost_ns {
            self.alive += 1;
            (path.health, path.waits) = (Health::Alive, 0);
        }
    }

    /// A packet that left at `sent_ns` on a path was lost.
    pub fn on_lost(&mut self, now_ns: u64, path: u16, sent_ns: u64) {
        self.spray.on_lost(path, 1);
        let Some(path) = self.all.get_mut(usize::from(path)) else { return };
        path.lost_ns = path.lost_ns.max(sent_ns);
        if path.health == Health::Alive && sent_ns > path.arrived_ns {
            self.alive -= 1;
            path.health = Health::Suspected;
            path.renew(now_ns);
        }
    }

    /// A question has arrived.
    pub fn on_answer(&mut self, sequence: u32) {
        let path = (sequence >> 16) as u16 & (PATHS - 1);
        let Some(path) = self.all.get_mut(usize::from(path)) else { return };
        if path.health == Health::Alive || path.number != sequence as u16 {
            return;
        }
        if sequence & LONG == 0 {
            path.short += 1;
        } else {
            self.alive += 1;
            path.health = Health::Alive;
        }
    }

    /// When to call [`ask`](Self::ask).
    pub fn timeout_ns(&self) -> Option<u64> {
        if self.alive == self.all.len() {
            return None;
        }
        self.all.iter().filter(|path| path.health != Health::Alive).map(|path| path.at_ns).min()
    }

    /// Questions that are due; `wait_ns`: how long to wait for an answer after so many in vain.
    /// Also, whether a path was found to carry short packets, and no long ones.
    pub fn ask(&mut self, now_ns: u64, wait_ns: impl Fn(u32) -> u64) -> (Vec<Question>, bool) {
        let (mut due, mut too_long) = (Vec::new(), false);
        if self.alive == self.all.len() {
            return (due, too_long);
        }
        let asked = |path: &Path| path.is_asked() && path.at_ns > now_ns;
        let mut room = AT_ONCE.saturating_sub(self.all.iter().filter(|path| asked(path)).count());
        for (number, path) in (0_u16..).zip(&mut self.all) {
            if path.health == Health::Alive || path.at_ns > now_ns {
                continue;
            }
            if path.health == Health::Out {
                if room == 0 {
                    continue;
                }
                path.health = Health::Probed;
                path.renew(now_ns);
            } else if path.rounds == ROUNDS {
                too_long |= path.short >= SHORT;
                path.health = Health::Out;
                path.at_ns = now_ns.saturating_add(backoff(WAIT_NS.0, path.waits, WAIT_NS.1));
                path.waits = path.waits.saturating_add(1);
                continue;
            }
            if room == 0 {
                continue;
            }
            room -= 1;
            let sequence = OURS | u32::from(number) << 16 | u32::from(path.number);
            due.push(Question { path: number, sequence: sequence | LONG, long: true });
            if path.rounds > 0 {
                due.push(Question { path: number, sequence, long: false });
            }
            path.at_ns = now_ns.saturating_add(wait_ns(path.rounds)).max(now_ns + 1);
            path.rounds += 1;
        }
        // The others follow when one of these has had its time.
        let soonest = self.all.iter().filter(|path| asked(path)).map(|path| path.at_ns).min();
        for path in self.all.iter_mut().filter(|path| path.health != Health::Alive && path.at_ns <= now_ns) {
            path.at_ns = soonest.unwrap_or(now_ns + 1);
        }
        (due, too_long)
    }
}

/// All are, while none is alive.
fn is_used(paths: &[Path], alive: usize, path: u16) -> bool {
    alive == 0 || paths.get(usize::from(path)).is_some_and(|path| path.health == Health::Alive)
}

/// Whether a PATH's number is of these questions.
pub fn is_ours(sequence: u32) -> bool {
    sequence & OURS != 0
}

impl Path {
    /// Whether it waits for an answer.
    fn is_asked(&self) -> bool {
        matches!(self.health, Health::Suspected | Health::Probed) && self.rounds > 0
    }

    fn renew(&mut self, now_ns: u64) {
        (self.number, self.rounds, self.short) = (self.number.wrapping_add(1), 0, 0);
        self.at_ns = now_ns;
    }
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
