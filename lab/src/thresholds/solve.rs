// SPDX-License-Identifier: Apache-2.0
//! The thresholds of least weighted loss.
//!
//! Queues of a port are coupled: what one admits is missing to those after it, and all heads share
//! the trim queue. So the exact optimum of [`appendix_b`](super::appendix_b), whose queues are not,
//! is where the search starts, beside other divisions of the buffer; from each start single
//! thresholds move, rooms are passed between queues, in steps that halve down to one packet, until
//! no such change helps. Tests hold what it finds against the least of all thresholds there are, on
//! ports small enough to try them all.

use super::appendix_b;
use super::port::{ClassLimits, Fate, PortLimits, Rungs, Traffic, fate};
use super::queue::Limits;

/// Packets up to which appendix B is solved to the packet, for a start; beyond, in units of
/// several.
const EXACT: u32 = 256;

/// Thresholds and what they lead to.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// In packets of mean size.
    pub limits: PortLimits,
    /// Their result.
    pub fate: Fate,
}

/// Searches thresholds whose rooms add up to at most `buffer` packets; without `rungs`, for a port
/// that drops.
pub fn solve(traffic: &Traffic, rungs: Option<&Rungs>, buffer: u32) -> Solution {
    let search = Search { traffic, rungs, buffer };
    let mut best: Option<Solution> = None;
    for start in search.starts() {
        let found = search.descend(start);
        if best.as_ref().is_none_or(|best| found.fate.weighted_loss < best.fate.weighted_loss) {
            best = Some(found);
        }
    }
    best.unwrap_or_else(|| search.evaluated(PortLimits { classes: Vec::new(), trim: 0 }))
}

/// The same from thresholds that were best for other buffers, and so are near: `far` scaled to this
/// one, and `below`, those of a smaller one, as they are, so that more buffer never loses more.
pub fn again(
    traffic: &Traffic,
    rungs: Option<&Rungs>,
    buffer: u32,
    far: &PortLimits,
    below: Option<&PortLimits>,
) -> Solution {
    let search = Search { traffic, rungs, buffer };
    let found = search.descend(scaled(far, buffer));
    let other = below.filter(|limits| limits.room() <= buffer).map(|limits| search.descend(limits.clone()));
    match other {
        Some(other) if other.fate.weighted_loss < found.fate.weighted_loss => other,
        _ => found,
    }
}

fn scaled(limits: &PortLimits, buffer: u32) -> PortLimits {
    let ratio = f64::from(buffer) / f64::from(limits.room().max(1));
    let scaled = |packets: u32| (f64::from(packets) * ratio) as u32;
    let mut start = limits.clone();
    start.trim = scaled(limits.trim);
    for class in &mut start.classes {
        let ClassLimits { limits, deep, .. } = *class;
        let all = scaled(limits.all);
        let less_important = scaled(limits.less_important).min(all);
        class.limits = Limits { less_important, all };
        class.deep = if deep > limits.all { all + 1 } else { scaled(deep).clamp(less_important, all + 1) };
    }
    start
}

struct Search<'t> {
    traffic: &'t Traffic,
    rungs: Option<&'t Rungs>,
    buffer: u32,
}

impl Search<'_> {
    fn evaluated(&self, limits: PortLimits) -> Solution {
        Solution { fate: fate(self.traffic, self.rungs, &limits), limits }
    }

    fn starts(&self) -> Vec<PortLimits> {
        let count = self.traffic.arrivals.len();
        let classes = count as u32;
        if classes == 0 {
            return Vec::new();
        }
        let mut starts = Vec::new();
        let trims = if self.rungs.is_some() { vec![self.buffer / 8, self.buffer / 2] } else { vec![0] };
        for trim in trims {
            let room = self.buffer - trim;
            let unit = room.div_ceil(EXACT).max(1);
            let paper = appendix_b::optimum(self.traffic, room / unit);
            let paper: Vec<(u32, u32)> = paper
                .thresholds(self.traffic.less_important)
                .into_iter()
                .map(|(first, all)| ((first * f64::from(unit)) as u32, all * unit))
                .collect();
            let equal = vec![(room / classes / 2, room / classes); count];
            // Where the paper's loads end, in an overload: all room to one class, and none to the
            // rest.
            let single = |class: usize| {
                let mut rooms = vec![(0, 0); count];
                rooms[class] = (room / 2, room);
                rooms
            };
            let divisions = [paper, equal].into_iter().chain((0..count).map(single));
            for rooms in divisions {
                let rungs: &[bool] = if self.rungs.is_some() { &[false, true] } else { &[false] };
                for deep in rungs {
                    let class = |(first, all): &(u32, u32)| {
                        let limits = Limits { less_important: *first.min(all), all: *all };
                        let deep_from = if *deep { limits.less_important } else { limits.all + 1 };
                        ClassLimits { limits, deep: deep_from, important_deep: *deep }
                    };
                    starts.push(PortLimits { classes: rooms.iter().map(class).collect(), trim });
                }
            }
        }
        starts
    }

    fn descend(&self, start: PortLimits) -> Solution {
        let mut best = self.evaluated(start);
        let mut step = (self.buffer / 4).max(1).next_power_of_two();
        loop {
            // As long as a round helps at this step, another may.
            while self.round(&mut best, step) {}
            if step == 1 {
                return best;
            }
            step /= 2;
        }
    }

    /// Tries every change of this size once, keeping those that help.
    fn round(&self, best: &mut Solution, step: u32) -> bool {
        let mut helped = false;
        let count = best.limits.classes.len();
        let mut attempt = |change: &dyn Fn(&mut PortLimits)| {
            let mut limits = best.limits.clone();
            change(&mut limits);
            if limits == best.limits || limits.room() > self.buffer {
                return;
            }
            let found = self.evaluated(limits);
            // Less than rounding is no help, and could go on for ever.
            if found.fate.weighted_loss < best.fate.weighted_loss * (1.0 - 1e-9) {
                *best = found;
                helped = true;
            }
        };
        for to in 0..=count {
            // From nothing, where room is left, and to nothing: a class that admits less leaves
            // more to the others.
            for from in 0..=count + 1 {
                if from == to {
                    continue;
                }
                attempt(&|limits| {
                    resize(limits, from, -i64::from(step));
                    resize(limits, to, i64::from(step));
                });
                attempt(&|limits| {
                    resize_both(limits, from, -i64::from(step));
                    resize_both(limits, to, i64::from(step));
                });
            }
            attempt(&|limits| resize(limits, to, -i64::from(step)));
            attempt(&|limits| resize_both(limits, to, -i64::from(step)));
        }
        for class in 0..count {
            for by in [-i64::from(step), i64::from(step)] {
                attempt(&|limits| {
                    let class = &mut limits.classes[class];
                    let always = class.deep <= class.limits.less_important;
                    class.limits.less_important =
                        moved(class.limits.less_important, by).min(class.limits.all);
                    if always {
                        class.deep = class.limits.less_important;
                    }
                    class.deep = class.deep.max(class.limits.less_important);
                });
            }
            if self.rungs.is_none() {
                continue;
            }
            attempt(&|limits| limits.classes[class].important_deep ^= true);
            attempt(&|limits| limits.classes[class].deep = limits.classes[class].limits.less_important);
            attempt(&|limits| limits.classes[class].deep = limits.classes[class].limits.all + 1);
            for by in [-i64::from(step), i64::from(step)] {
                attempt(&|limits| {
                    let class = &mut limits.classes[class];
                    class.deep =
                        moved(class.deep, by).clamp(class.limits.less_important, class.limits.all + 1);
                });
            }
        }
        helped
    }
}

fn moved(value: u32, by: i64) -> u32 {
    u32::try_from(i64::from(value) + by).unwrap_or(0)
}

/// Changes the room of a class, or of the trim queue, which follows the classes; what comes after
/// that is nothing.
fn resize(limits: &mut PortLimits, which: usize, by: i64) {
    let count = limits.classes.len();
    if let Some(class) = limits.classes.get_mut(which) {
        let never = class.deep > class.limits.all;
        class.limits.all = moved(class.limits.all, by);
        class.limits.less_important = class.limits.less_important.min(class.limits.all);
        class.deep = if never {
            class.limits.all + 1
        } else {
            class.deep.clamp(class.limits.less_important, class.limits.all + 1)
        };
    } else if which == count {
        limits.trim = moved(limits.trim, by);
    }
}

/// The same, the limit for less important packets with it.
fn resize_both(limits: &mut PortLimits, which: usize, by: i64) {
    resize(limits, which, by);
    if let Some(class) = limits.classes.get_mut(which) {
        let always = class.deep <= class.limits.less_important;
        if by > 0 {
            class.limits.less_important = moved(class.limits.less_important, by).min(class.limits.all);
        } else {
            class.limits.less_important = moved(class.limits.less_important, by);
        }
        class.deep =
            if always { class.limits.less_important } else { class.deep.max(class.limits.less_important) };
    }
}
