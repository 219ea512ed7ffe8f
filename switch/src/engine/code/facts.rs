// SPDX-License-Identifier: Apache-2.0
//! What is known of a packet on its way through a control, so that nothing is asked twice:
//! constants that were assigned, headers that were found valid, comparisons that held or did not.
//!
//! An edge that leads to a condition whose answer is known there goes on to where the answer leads.
//! Facts are those that hold on every edge that leads to a node.

use std::collections::BTreeMap;

use super::super::action::{Op, Target};
use super::super::control_flow::Node;
use super::super::expression::{Compare, Expr, HeaderRef};
use super::super::layout::Slot;
use super::super::table::{self, NextNodes, Table};
use super::flow::Source;

/// Of one limb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fact {
    Is(u64),
    IsNot(u64),
}

/// By limb, in order; at most [`MOST_FACTS`], so that what is known of one edge is copied to the
/// next in a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts(Vec<(u32, Fact)>);

const MOST_FACTS: usize = 512;
/// Operations of actions behind tables that are looked at; of larger programs nothing is known.
const MOST_WORK: usize = 1 << 22;
/// Most conditions that one edge leads past, or a program's loading would take the square of their
/// number.
const MOST_SKIPPED: usize = 256;

/// An edge: where it leads, and what is known there.
type Edge = (Option<u32>, Facts);

/// A field of one limb without a sign.
fn plain(expr: &Expr) -> Option<Slot> {
    match expr {
        Expr::Field(slot) if slot.width <= 64 && !slot.signed => Some(*slot),
        _ => None,
    }
}

impl Facts {
    fn place(&self, limb: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&limb, |(limb, _)| *limb)
    }

    fn set(&mut self, limb: u32, fact: Fact) {
        match self.place(limb) {
            Ok(place) => self.0[place].1 = fact,
            Err(place) if self.0.len() < MOST_FACTS => self.0.insert(place, (limb, fact)),
            Err(_) => {}
        }
    }

    fn forget(&mut self, slot: Slot) {
        let limbs = slot.all_limbs();
        let start = self.0.partition_point(|(limb, _)| (*limb as usize) < limbs.start);
        let end = self.0.partition_point(|(limb, _)| (*limb as usize) < limbs.end);
        self.0.drain(start..end);
    }

    fn forget_target(&mut self, target: &Target) {
        match target {
            Target::Slot(slot) => self.forget(*slot),
            Target::Dynamic { .. } => self.0.clear(),
        }
    }

    fn assign(&mut self, target: &Target, value: &Expr) {
        let known = match (target, value) {
            (Target::Slot(to), Expr::Const(value)) if to.width <= 64 && !to.signed => {
                Some(Fact::Is(*value as u64 & super::super::bits::mask64(to.width)))
            }
            (Target::Slot(to), from) if !to.signed => plain(from)
                .filter(|from| from.width <= to.width && to.width <= 64)
                .and_then(|from| self.fact(from.at as usize)),
            _ => None,
        };
        self.forget_target(target);
        if let (Target::Slot(to), Some(fact)) = (target, known) {
            self.set(to.at, fact);
        }
    }

    /// What an action leaves.
    fn after(mut self, body: &[Op]) -> Self {
        if body.iter().any(|op| matches!(op, Op::Jump(_) | Op::JumpIfZero { .. })) {
            return Self::default();
        }
        for op in body {
            match op {
                Op::Assign { to, value } => self.assign(to, value),
                Op::ReadRegister { to, .. }
                | Op::Meter { to, .. }
                | Op::Hash { to, .. }
                | Op::Random { to, .. } => self.forget_target(to),
                Op::Drop { egress_spec, mcast_grp } => {
                    self.forget_target(egress_spec);
                    mcast_grp.iter().for_each(|group| self.forget_target(group));
                }
                Op::Count { .. }
                | Op::WriteRegister { .. }
                | Op::Clone { .. }
                | Op::Resubmit { .. }
                | Op::Recirculate { .. }
                | Op::Digest { .. }
                | Op::Truncate { .. }
                | Op::Exit
                | Op::Assert { .. }
                | Op::Log { .. }
                | Op::Nothing => {}
                _ => self.0.clear(),
            }
        }
        self
    }

    fn fact(&self, limb: usize) -> Option<Fact> {
        self.place(limb as u32).ok().map(|place| self.0[place].1)
    }

    /// The condition's answer, where it is known.
    fn answer(&self, condition: &Expr, source: &Source<'_>) -> Option<bool> {
        match condition {
            Expr::BoolNot(value) => self.answer(value, source).map(|answer| !answer),
            Expr::BoolAnd(left, right) => match (self.answer(left, source), self.answer(right, source)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Expr::BoolOr(left, right) => match (self.answer(left, source), self.answer(right, source)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            condition => {
                let (limb, compare, value) = question(condition, source)?;
                match (self.fact(limb)?, compare) {
                    (Fact::Is(known), Compare::Eq) => Some(known == value),
                    (Fact::Is(known), Compare::Ne) => Some(known != value),
                    (Fact::Is(known), Compare::Lt) => Some(known < value),
                    (Fact::Is(known), Compare::Le) => Some(known <= value),
                    (Fact::Is(known), Compare::Gt) => Some(known > value),
                    (Fact::Is(known), Compare::Ge) => Some(known >= value),
                    (Fact::IsNot(known), Compare::Eq) if known == value => Some(false),
                    (Fact::IsNot(known), Compare::Ne) if known == value => Some(true),
                    _ => None,
                }
            }
        }
    }

    /// With what the condition's answer tells.
    fn assume(&mut self, condition: &Expr, answer: bool, source: &Source<'_>) {
        match (condition, answer) {
            (Expr::BoolNot(value), _) => self.assume(value, !answer, source),
            (Expr::BoolAnd(left, right), true) | (Expr::BoolOr(left, right), false) => {
                self.assume(left, answer, source);
                self.assume(right, answer, source);
            }
            (condition, _) => {
                let Some((limb, compare, value)) = question(condition, source) else { return };
                let fact = match (compare, answer) {
                    (Compare::Eq, true) | (Compare::Ne, false) => Fact::Is(value),
                    (Compare::Eq, false) | (Compare::Ne, true) => Fact::IsNot(value),
                    _ => return,
                };
                // That it is a value says more than that it is not another.
                if !matches!(self.fact(limb), Some(Fact::Is(_))) {
                    self.set(limb as u32, fact);
                }
            }
        }
    }
}

/// A condition that compares one limb with a constant.
fn question(condition: &Expr, source: &Source<'_>) -> Option<(usize, Compare, u64)> {
    match condition {
        Expr::NonZero(value) => Some((plain(value)?.at as usize, Compare::Ne, 0)),
        Expr::Valid(HeaderRef::Fixed(header)) => {
            Some((source.layout.headers[*header as usize].valid(), Compare::Ne, 0))
        }
        Expr::Compare { op, left, right, signed: false } => match **right {
            Expr::Const(value) => Some((plain(left)?.at as usize, *op, u64::try_from(value).ok()?)),
            _ => None,
        },
        _ => None,
    }
}

/// The edges of a node in the order of [`super::flow::edges`].
fn outgoing(node: &Node, facts: &Facts, source: &Source<'_>) -> Vec<Edge> {
    match node {
        Node::If { condition, then, otherwise } => {
            let edge = |next: &Option<u32>, answer| {
                let mut facts = facts.clone();
                facts.assume(condition, answer, source);
                (*next, facts)
            };
            vec![edge(then, true), edge(otherwise, false)]
        }
        Node::Call { action, next, .. } => {
            vec![(*next, facts.clone().after(&source.bodies[*action as usize]))]
        }
        Node::Table(table) => behind_table(&source.tables[*table as usize], facts, source),
    }
}

fn behind_table(table: &Table, facts: &Facts, source: &Source<'_>) -> Vec<Edge> {
    let mut before = facts.clone();
    if let Some((_, slot)) = table.direct_meter {
        before.forget(slot);
    }
    let after = |action: u32| before.clone().after(&source.bodies[action as usize]);
    let default = match &table.program_default {
        Some(table::call::Target::Call(call)) => Some(call.action),
        _ => None,
    };
    // Whatever it does, or nothing.
    let any = table
        .actions
        .iter()
        .copied()
        .chain(default)
        .map(after)
        .fold(before.clone(), |any, one| shared(any, &one));
    match &table.next {
        NextNodes::HitMiss { hit, miss } => vec![(*hit, any.clone()), (*miss, any)],
        NextNodes::ByAction(nodes) => {
            let edges = nodes.iter().map(|(action, next)| (*next, after(*action)));
            edges.chain([(table.base_next, any)]).collect()
        }
    }
}

/// What holds on both ways.
fn shared(mut left: Facts, right: &Facts) -> Facts {
    left.0.retain(|(limb, fact)| right.fact(*limb as usize) == Some(*fact));
    left
}

/// Nodes that can be reached from `start`, each before those that it leads to.
fn in_order(start: u32, source: &Source<'_>) -> Vec<u32> {
    let mut order = Vec::new();
    let mut seen = vec![false; source.nodes.len()];
    let mut path = vec![(start, false)];
    while let Some((node, leaving)) = path.pop() {
        if leaving {
            order.push(node);
        } else if !std::mem::replace(&mut seen[node as usize], true) {
            path.push((node, true));
            let next = super::flow::edges(&source.nodes[node as usize], source);
            path.extend(next.into_iter().flatten().map(|next| (next, false)));
        }
    }
    order.reverse();
    order
}

/// Where each node's edges lead when no known condition is asked again, in the order of
/// [`super::flow::edges`].
pub(super) fn shortcuts(starts: &[Option<u32>], source: &Source<'_>) -> Vec<Vec<Option<u32>>> {
    let mut found: Vec<Vec<Option<u32>>> =
        source.nodes.iter().map(|node| super::flow::edges(node, source)).collect();
    let orders: Vec<Vec<u32>> = starts.iter().flatten().map(|&start| in_order(start, source)).collect();
    let work = |table: &Table| -> usize {
        table.actions.iter().map(|&action| source.bodies[action as usize].len()).sum()
    };
    if source.tables.iter().map(work).sum::<usize>() > MOST_WORK {
        return found;
    }
    let mut once = vec![true; source.nodes.len()];
    if !orders.iter().flatten().all(|&node| std::mem::take(&mut once[node as usize])) {
        // What one control knows another does not.
        return found;
    }
    for (start, order) in starts.iter().copied().flatten().zip(orders) {
        let mut known: BTreeMap<u32, Facts> = BTreeMap::from([(start, Facts::default())]);
        for node in order {
            // Nothing leads here any more.
            let Some(facts) = known.remove(&node) else { continue };
            let edges = outgoing(&source.nodes[node as usize], &facts, source);
            for (place, (next, mut facts)) in edges.into_iter().enumerate() {
                let mut next = next;
                let mut left = MOST_SKIPPED;
                while left > 0
                    && let Some(Node::If { condition, then, otherwise }) =
                        next.map(|next| &source.nodes[next as usize])
                    && let Some(answer) = facts.answer(condition, source)
                {
                    left -= 1;
                    facts.assume(condition, answer, source);
                    next = if answer { *then } else { *otherwise };
                }
                found[node as usize][place] = next;
                if let Some(next) = next {
                    let merged = match known.remove(&next) {
                        Some(other) => shared(other, &facts),
                        None => facts,
                    };
                    known.insert(next, merged);
                }
            }
        }
    }
    found
}
