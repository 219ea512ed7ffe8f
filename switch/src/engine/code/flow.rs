// SPDX-License-Identifier: Apache-2.0
//! Controls: nodes in the order in which a packet meets them.

use super::super::action::{Action, Op};
use super::super::calculation::Checksum;
use super::super::control_flow::{Node, Start};
use super::super::error::LoadError;
use super::super::layout::Layout;
use super::super::limits::too_large;
use super::super::parser::{Deparser, Parser};
use super::super::table::{NextNodes, Table};
use super::action::may_exit;
use super::emitter::{Arguments, Emitter, Frame, Label};
use super::facts;
use super::form::{Code, Next};
use super::insn::Insn;

/// What code is made of.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) parser: &'a Parser,
    pub(crate) deparser: &'a Deparser,
    pub(crate) checksums: &'a [Checksum],
    pub(crate) actions: &'a [Action],
    /// By action.
    pub(crate) bodies: &'a [Vec<Op>],
    pub(crate) nodes: &'a [Node],
    pub(crate) tables: &'a [Table],
    pub(crate) ingress: Start,
    pub(crate) egress: Start,
}

/// The program's code, without and with the notes of a trace. Both run on the same frames. Each has
/// at most so many instructions, and a frame so many limbs.
pub(crate) fn compile(
    source: &Source<'_>,
    instructions: usize,
    limbs: usize,
) -> Result<[Code; 2], LoadError> {
    let most = (instructions, limbs);
    let paths: Vec<_> = source.nodes.iter().map(|node| edges(node, source)).collect();
    let shorter = facts::shortcuts(&[source.ingress.0, source.egress.0], source);
    let arguments = source.actions.iter().map(|action| action.param_limbs).max().unwrap_or(0);
    // Scratch lies before the constants: the first time tells how much it takes.
    let mut scratch = 0;
    loop {
        let frame = Frame::new(source.layout, arguments, scratch);
        let traced = emitted(source, &paths, Emitter::new(source.layout, frame, true, most));
        if traced.is_full() {
            return Err(too_large(instructions));
        }
        let (traced, frame) = traced.finish();
        // Whoever asks less needs no other constants.
        let code = emitted(source, &shorter, Emitter::new(source.layout, frame, false, most));
        if code.is_full() {
            return Err(too_large(instructions));
        }
        let (code, frame) = code.finish();
        if frame.scratch_used() <= scratch {
            let (first, constants) = (frame.scratch(), frame.scratch() + scratch);
            return Ok([code, traced].map(|code| {
                let limbs = frame.limbs.clone();
                Code { frame: limbs, scratch: first, constants, ..code }
            }));
        }
        scratch = frame.scratch_used();
    }
}

/// Where a node may lead: then and otherwise; behind a table hit and miss, or by action, and base.
pub(super) fn edges(node: &Node, source: &Source<'_>) -> Vec<Option<u32>> {
    match node {
        Node::If { then, otherwise, .. } => vec![*then, *otherwise],
        Node::Call { next, .. } => vec![*next],
        Node::Table(table) => {
            let table = &source.tables[*table as usize];
            match &table.next {
                NextNodes::HitMiss { hit, miss } => vec![*hit, *miss],
                NextNodes::ByAction(nodes) => {
                    nodes.iter().map(|(_, next)| *next).chain([table.base_next]).collect()
                }
            }
        }
    }
}

/// Where the edges of each node lead.
type Paths = [Vec<Option<u32>>];

fn emitted<'a>(source: &Source<'a>, paths: &Paths, mut emitter: Emitter<'a>) -> Emitter<'a> {
    emitter.code.parse = emitter.here();
    let accept = emitter.label();
    emitter.parser(source.parser, accept);
    emitter.place(accept);
    emitter.code.rejected = emitter.here();
    for (number, checksum) in (0..).zip(source.checksums).filter(|(_, checksum)| checksum.verify) {
        emitter.conditional(checksum.condition.as_ref(), Insn::Verify { checksum: number });
    }
    emitter.emit(Insn::End);
    let labels: Vec<Label> = source.nodes.iter().map(|_| emitter.label()).collect();
    let end = emitter.label();
    emitter.code.ingress = emitter.here();
    emitter.control(source, paths, source.ingress, &labels, end);
    emitter.code.egress = emitter.here();
    emitter.control(source, paths, source.egress, &labels, end);
    emitter.place(end);
    emitter.emit(Insn::End);
    emitter.code.deparse = emitter.here();
    for (number, checksum) in (0..).zip(source.checksums).filter(|(_, checksum)| checksum.update) {
        emitter.conditional(checksum.condition.as_ref(), Insn::Update { checksum: number });
    }
    emitter.operations(&source.deparser.ops);
    emitter.emit(Insn::End);
    emitter.arguments = Arguments::Passed;
    for body in source.bodies {
        if emitter.is_full() {
            break;
        }
        let here = emitter.here();
        emitter.code.actions.push(here);
        emitter.operations(body);
        emitter.emit(if may_exit(body) { Insn::ReturnUnlessExit } else { Insn::Return });
    }
    let place = |node: Option<u32>| node.map_or(end, |node| labels[node as usize]).0;
    let mut behind: Vec<Next> =
        source.tables.iter().map(|_| Next::HitMiss { hit: end.0, miss: end.0 }).collect();
    for (node, paths) in source.nodes.iter().zip(paths) {
        let Node::Table(number) = node else { continue };
        behind[*number as usize] = match (&source.tables[*number as usize].next, &paths[..]) {
            (NextNodes::ByAction(nodes), [paths @ .., otherwise]) => {
                let actions = nodes.iter().zip(paths).map(|((action, _), next)| (*action, place(*next)));
                Next::ByAction { actions: actions.collect(), otherwise: place(*otherwise) }
            }
            (_, [hit, miss]) => Next::HitMiss { hit: place(*hit), miss: place(*miss) },
            _ => continue,
        };
    }
    emitter.code.next = behind;
    emitter
}

impl<'a> Emitter<'a> {
    fn control(&mut self, source: &Source<'a>, paths: &Paths, start: Start, labels: &[Label], end: Label) {
        let place = |node: Option<u32>| node.map_or(end, |node| labels[node as usize]);
        let mut waiting: Vec<u32> = Vec::new();
        let mut next = start.0.filter(|node| !self.is_placed(labels[*node as usize]));
        if next.is_none() {
            self.go_to(place(start.0));
        }
        while let Some(node) = next.take().or_else(|| waiting.pop()) {
            if self.is_placed(labels[node as usize]) {
                continue;
            }
            if self.is_full() {
                return;
            }
            self.place(labels[node as usize]);
            let paths = &paths[node as usize];
            let after = match &source.nodes[node as usize] {
                Node::If { condition, .. } => {
                    let (then, otherwise) = (paths[0], paths[1]);
                    if self.traced {
                        let (no, yes) = (self.label(), self.label());
                        self.branch_if(condition, false, no);
                        self.emit(Insn::NoteCondition { node, result: true });
                        self.go_to(yes);
                        self.place(no);
                        self.emit(Insn::NoteCondition { node, result: false });
                        self.go_to(place(otherwise));
                        self.place(yes);
                    } else {
                        self.branch_if(condition, false, place(otherwise));
                    }
                    waiting.extend(otherwise);
                    then
                }
                Node::Call { action, params, .. } => {
                    if self.traced {
                        self.emit(Insn::NoteCall { action: *action });
                    }
                    let body = &source.bodies[*action as usize];
                    self.arguments = Arguments::Fixed(params);
                    self.operations(body);
                    self.arguments = Arguments::Passed;
                    if may_exit(body) {
                        self.emit(Insn::EndIfExit);
                    }
                    paths[0]
                }
                Node::Table(table) => {
                    self.emit(Insn::Apply { table: *table });
                    self.release();
                    waiting.extend(paths.iter().copied().flatten());
                    continue;
                }
            };
            self.release();
            match after {
                Some(after) if !self.is_placed(labels[after as usize]) => next = Some(after),
                after => self.go_to(place(after)),
            }
        }
    }

    /// Controls have no circles: wherever it stands, this is not going back.
    fn go_to(&mut self, to: Label) {
        self.emit(Insn::Jump { to: to.0 });
    }
}
