// SPDX-License-Identifier: Apache-2.0
//! What decides ingress's first part for packets with the same headers, and what it leaves:
//! conditional constant propagation (Wegman and Zadeck, TOPLAS 1991), with the headers' validity as
//! constants.

use super::super::code::Insn;
use super::super::layout::Header;
use super::super::native::packing::NativePacking;
use super::graph::{Graph, OUTSIDE, Place};
use super::packing::{Packing, widths};
use super::split::Split;
use std::collections::{BTreeMap, BTreeSet};

/// Instructions that are looked at, and limbs that are compared or kept, before a plan is given up.
const MOST_STEPS: usize = 1 << 16;
const MOST_COMPARED: usize = 1 << 21;
/// Limbs of keys, and of results, at most.
const MOST_LIMBS: usize = 96;

/// What the flow cache keeps of packets with the same headers.
#[derive(Debug)]
pub(super) struct Plan {
    /// Limbs that decide.
    pub(super) key: Packing,
    /// By word of the key, what it is multiplied with in its hash.
    pub(super) factors: Box<[u64]>,
    /// By end of what is remembered: limbs that may be read behind it and written in front of it.
    pub(super) results: Box<[Packing]>,
    /// Both as machine code, where there is any.
    pub(super) native: Option<NativePacking>,
}

/// What is known of a limb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Known(u64),
    /// As the packet brought it.
    Given,
    /// It follows from the key.
    Computed,
    /// Of an earlier packet: it is written before it is read.
    Stale,
}

struct Planner<'a> {
    graph: Graph<'a>,
    key: BTreeSet<u32>,
    written: BTreeSet<u32>,
    /// By place to which something leads.
    known: BTreeMap<Place, Vec<Value>>,
    waiting: BTreeSet<Place>,
    compared: usize,
}

/// The plan for packets of which the parser has extracted these headers, by number; `None` where
/// there is none.
pub(super) fn plan(graph: Graph<'_>, split: &Split, extracted: u64) -> Option<Plan> {
    let beginning = beginning(&graph, split, extracted);
    let start = (graph.code.ingress, OUTSIDE);
    let mut planner = Planner {
        graph,
        key: BTreeSet::new(),
        written: BTreeSet::new(),
        known: BTreeMap::from([(start, beginning.clone())]),
        waiting: BTreeSet::from([start]),
        compared: 0,
    };
    let mut targets = vec![false; graph.code.insns.len()];
    for place in 0..graph.code.insns.len() as u32 {
        let leads_on = |to: u32| to != place + 1 || matches!(graph.insn(place), Insn::Apply { .. });
        graph.next((place, OUTSIDE), |(to, back)| {
            for to in [to, back].into_iter().filter(|to| leads_on(*to)) {
                targets.get_mut(to as usize).into_iter().for_each(|target| *target = true);
            }
        });
    }
    let mut steps = 0;
    while let Some(place) = planner.waiting.pop_first() {
        let mut state = planner.known.get(&place)?.clone();
        let mut here = Some(place);
        while let Some((at, back)) = here.take() {
            steps += 1;
            if steps > MOST_STEPS || planner.compared > MOST_COMPARED {
                return None;
            }
            let insn = graph.insn(at);
            if insn == Insn::Remember {
                break;
            }
            planner.carry_out(insn, &mut state)?;
            let answer = planner.answer(insn, &state);
            let mut next = Vec::new();
            graph.next((at, back), |to| next.push(to));
            if let (Some(answer), [on, to]) = (answer, &next[..]) {
                next = vec![if answer { *to } else { *on }];
            }
            match next[..] {
                [on] if !targets.get(on.0 as usize).copied().unwrap_or(true) => here = Some(on),
                _ => next.into_iter().for_each(|to| planner.arrive(to, &state)),
            }
        }
    }
    let Planner { mut key, written, .. } = planner;
    let result = |live: &[bool]| -> Vec<u32> {
        written.iter().filter(|at| live.get(**at as usize).is_none_or(|live| *live)).copied().collect()
    };
    let results: Vec<Vec<u32>> = split.ends_at.iter().map(|(_, live)| result(live)).collect();
    // What was not written everywhere may be as it was given.
    let given = |at: &&u32| beginning[**at as usize] == Value::Given;
    key.extend(results.iter().flat_map(|result| result.iter().filter(given)));
    if key.len() > MOST_LIMBS || results.iter().any(|result| result.len() > MOST_LIMBS) {
        return None;
    }
    let widths = widths(graph.layout);
    let key = Packing::new(key, &widths);
    let factors = (0..key.words() as u64).map(factor).collect();
    let results: Box<[Packing]> = results.into_iter().map(|result| Packing::new(result, &widths)).collect();
    let native = NativePacking::compile(&key, &results);
    Some(Plan { key, factors, results, native })
}

impl Plan {
    /// Words of the longest results.
    pub(super) fn most_results(&self) -> usize {
        self.results.iter().map(Packing::words).max().unwrap_or(0)
    }
}

/// An odd number that shows no pattern: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn factor(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31) | 1
}

fn beginning(graph: &Graph<'_>, split: &Split, extracted: u64) -> Vec<Value> {
    let mut state = vec![Value::Stale; graph.code.constants];
    for (limb, given) in state.iter_mut().zip(&split.given) {
        *limb = if *given { Value::Given } else { Value::Known(0) };
    }
    let headers = graph.layout.headers.iter().enumerate();
    let there = headers.filter(|(number, _)| extracted >> number & 1 != 0).map(|(_, header)| header);
    for header in there {
        state[header.limbs.clone()].fill(Value::Given);
        if header.union.is_none() {
            state[header.valid()] = Value::Known(1);
        }
    }
    state
}

impl Planner<'_> {
    fn value(&self, at: u32, state: &[Value]) -> Value {
        match state.get(at as usize) {
            Some(value) => *value,
            None => self.graph.code.frame.get(at as usize).map_or(Value::Stale, |word| Value::Known(*word)),
        }
    }

    /// `None` where a limb is read of which nothing is known.
    fn carry_out(&mut self, insn: Insn, state: &mut [Value]) -> Option<()> {
        if let Some(header) = self.graph.header(insn)
            && let Some(valid) = self.known_validity(header, state)
        {
            return self.add_or_remove(insn, header, valid, state);
        }
        let effect = self.graph.effect(insn);
        for at in effect.reads.into_iter().flatten().map(|at| at as u32) {
            match self.value(at, state) {
                Value::Given => _ = self.key.insert(at),
                Value::Stale => return None,
                Value::Known(_) | Value::Computed => {}
            }
        }
        let follows = |value| match value {
            known @ Value::Known(_) => known,
            _ => Value::Computed,
        };
        let copied: Vec<(u32, Value)> = match insn {
            Insn::Copy { to, from } => vec![(to, follows(self.value(from, state)))],
            Insn::Low { drop, to, from } => vec![match self.value(from, state) {
                Value::Known(word) => (to, Value::Known(word & u64::MAX >> (drop & 63))),
                _ => (to, Value::Computed),
            }],
            Insn::CopyRun { count, to, from } => {
                (0..u32::from(count)).map(|at| (to + at, follows(self.value(from + at, state)))).collect()
            }
            _ => effect.writes.into_iter().flatten().map(|at| (at as u32, Value::Computed)).collect(),
        };
        for (at, value) in copied {
            *state.get_mut(at as usize)? = value;
            self.written.insert(at);
        }
        Some(())
    }

    /// Whether a header is valid that is in no union and whose length does not vary.
    fn known_validity(&self, header: &Header, state: &[Value]) -> Option<bool> {
        match self.value(header.valid() as u32, state) {
            Value::Known(valid) if header.union.is_none() && header.length.is_none() => Some(valid != 0),
            _ => None,
        }
    }

    fn add_or_remove(&mut self, insn: Insn, header: &Header, valid: bool, state: &mut [Value]) -> Option<()> {
        let limbs = match insn {
            Insn::AddHeader { .. } if !valid => header.limbs.clone(),
            Insn::RemoveHeader { .. } if valid => header.valid()..header.valid() + 1,
            _ => return Some(()),
        };
        self.written.extend(limbs.clone().map(|at| at as u32));
        state.get_mut(limbs)?.fill(Value::Known(0));
        state[header.valid()] = Value::Known(u64::from(!valid));
        Some(())
    }

    /// Whether a branch is taken, where that is known.
    fn answer(&self, insn: Insn, state: &[Value]) -> Option<bool> {
        let word = |at| match self.value(at, state) {
            Value::Known(word) => Some(word),
            _ => None,
        };
        Some(match insn {
            Insn::IfZero { value, .. } => word(value)? == 0,
            Insn::IfNotZero { value, .. } => word(value)? != 0,
            Insn::IfEqual { left, right, .. } => word(left)? == word(right)?,
            Insn::IfUnequal { left, right, .. } => word(left)? != word(right)?,
            Insn::IfLess { left, right, .. } => word(left)? < word(right)?,
            Insn::IfNotLess { left, right, .. } => word(left)? >= word(right)?,
            _ => return None,
        })
    }

    /// What is known at a place is what is known on all ways there.
    fn arrive(&mut self, place: Place, state: &[Value]) {
        self.compared += state.len();
        let Some(before) = self.known.get_mut(&place) else {
            self.known.insert(place, state.to_vec());
            self.waiting.insert(place);
            return;
        };
        let mut changed = false;
        for (at, (own, other)) in (0..).zip(before.iter_mut().zip(state)) {
            if own == other {
                continue;
            }
            let both = [*own, *other];
            if both.contains(&Value::Given) {
                self.key.insert(at);
            }
            let shared = if both.contains(&Value::Stale) { Value::Stale } else { Value::Computed };
            changed |= *own != shared;
            *own = shared;
        }
        if changed {
            self.waiting.insert(place);
        }
    }
}
