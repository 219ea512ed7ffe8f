// SPDX-License-Identifier: Apache-2.0
//! One operation at one rank: its stages, messages and memory.

use super::agenda::{Agenda, first};
use super::common_precision::Step;
use super::device::MessagePlaces;
use super::plan::Blueprint;
use super::row_figures::FigureMemory;
use super::scheme::Scheme;
use super::stage::{Stage, Tensors};
use super::task::{Done, Key, Task};
use super::{Memory, MessageId, OperationError, Outcome, OutcomeStats, Phase, Replicas, StartError};
use crate::endpoint::{Endpoint, Event, Expectation, Outbound, Reliability};
use crate::interface::RowPlaces;
use crate::transfer::TransferStats;
use crate::wire::Reason;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A message of the operation: the other rank, and the id.
type MessageKey = (u16, u32);

/// State between `start` and the outcome.
#[derive(Debug)]
pub(super) struct Operation {
    scheme: Scheme,
    started_ns: u64,
    tensors: Tensors,
    stages: Vec<Stage>,
    /// Of each stage, rows whose place in memory has been read.
    read: Vec<Vec<bool>>,
    agenda: Agenda,
    /// Which stages have nothing left to do, and how many have.
    finished: Vec<bool>,
    unfinished: usize,
    /// Which stage a message is for.
    expected: BTreeMap<MessageKey, usize>,
    /// Which stage sends it; its counts once it is over.
    sent: BTreeMap<MessageKey, (usize, Option<TransferStats>)>,
    stats: OutcomeStats,
    /// Tasks that threads have.
    in_work: usize,
    failure: Option<OperationError>,
}

impl Operation {
    pub(super) fn start(
        now_ns: u64,
        mut scheme: Scheme,
        plan: Vec<Blueprint>,
        tensors: Tensors,
        figures: &FigureMemory,
        endpoint: &mut Endpoint,
    ) -> Result<Self, StartError> {
        scheme.device = tensors.output.as_ref().and_then(Memory::device).cloned();
        // Everything that can fail for the tensors' sake comes before the first packet.
        let stages = plan.into_iter().map(|blueprint| Stage::new(&scheme, blueprint, figures));
        let stages = stages.collect::<Result<Vec<_>, _>>()?;
        let read = stages.iter().map(|stage| vec![false; stage.rows()]).collect();
        let sources = stages.iter().enumerate().filter(|(_, stage)| stage.has_sources()).map(|(at, _)| at);
        let (agenda, unfinished) = (Agenda { sources: sources.collect(), ..Agenda::default() }, stages.len());
        let mut this = Self {
            scheme,
            started_ns: now_ns,
            tensors,
            stages,
            read,
            agenda,
            finished: vec![false; unfinished],
            unfinished,
            expected: BTreeMap::new(),
            sent: BTreeMap::new(),
            stats: OutcomeStats::default(),
            in_work: 0,
            failure: None,
        };
        let rank = this.scheme.rank;
        this.open_all(now_ns, endpoint)
            .inspect_err(|_| this.abort(now_ns, rank, Reason::Cancelled, endpoint))?;
        Ok(this)
    }

    /// Expects and opens all messages.
    fn open_all(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> Result<(), StartError> {
        let scheme = &self.scheme;
        let number = scheme.number;
        let consistent = scheme.replicas() == Replicas::Consistent;
        for (at, stage) in self.stages.iter().enumerate() {
            let blueprint = &stage.blueprint;
            let agree = consistent && blueprint.phase_in == Phase::AllGather;
            let reliability = match scheme.reliability(endpoint) {
                // A union bound: at most `loss` of the packets are missing at any of the receivers,
                // and after all of the hops.
                Reliability::Bounded { loss } => {
                    let times = if agree { scheme.world - 1 } else { blueprint.depth };
                    Reliability::Bounded { loss: loss / f32::from(times.max(1)) }
                }
                Reliability::Full => Reliability::Full,
            };
            let id = MessageId::new(number, blueprint.phase_in, blueprint.shard).to_u32();
            let origin = blueprint.origin.and_then(|origin| scheme.origin(origin, blueprint.shard));
            for &peer in &blueprint.from {
                let sealed = scheme.sealer.is_some();
                let bytes = stage.layout().message_len(scheme.codec(), scheme.planes(), sealed);
                self.stats.bytes_expected += bytes as u64;
                let expectation = Expectation {
                    layout: stage.layout().clone(),
                    codec: scheme.codec(),
                    job: scheme.job(),
                    decoding: scheme.options.decoding,
                    reliability,
                    planes: scheme.planes(),
                    origin,
                    until_ns: scheme.until_ns(now_ns, blueprint.hop),
                    keep: places(scheme, stage, peer),
                    agree,
                };
                let expected = endpoint.expect(now_ns, peer, id, expectation);
                expected.map_err(|reason| StartError::Expect { number, reason })?;
                self.expected.insert((peer, id), at);
            }
        }
        for (at, stage) in self.stages.iter().enumerate() {
            let want_map = consistent && stage.blueprint.phase_out == Phase::AllGather;
            let message = stage.message(scheme).to_u32();
            for &peer in &stage.blueprint.to {
                let layout = stage.layout().clone();
                self.stats.sent += layout.packets() as u64;
                let outbound = Outbound {
                    message,
                    layout,
                    planes: scheme.planes(),
                    want_map,
                    best_effort: scheme.options.deadline_ns.is_some(),
                    pace: scheme.options.pace,
                };
                let opened = endpoint.open(now_ns, peer, &outbound);
                opened.map_err(|reason| StartError::Send { number, reason })?;
                self.sent.insert((peer, message), (at, None));
            }
        }
        Ok(())
    }

    pub(super) fn number(&self) -> u32 {
        self.scheme.number
    }

    /// Which goes first: by layer class.
    pub(super) fn class(&self) -> u8 {
        self.scheme.options.layer_class
    }

    /// Takes an event of one of its messages.
    pub(super) fn handle_event(
        &mut self,
        now_ns: u64,
        id: MessageId,
        event: Event,
        endpoint: &mut Endpoint,
    ) -> Result<(), OperationError> {
        match event {
            Event::Row { from, message, row } => {
                if let Some(&at) = self.expected.get(&(from, message)) {
                    let ready = self.stages[at].take(&self.scheme, from, row);
                    self.agenda.add(at, ready);
                }
            }
            Event::Received { from, message, stats } => {
                if self.expected.contains_key(&(from, message)) {
                    self.stats.packets += u64::from(stats.packets);
                    self.stats.full += u64::from(stats.full);
                    self.stats.trimmed += u64::from(stats.trimmed);
                    self.stats.missing += u64::from(stats.missing);
                    self.stats.bytes_received += stats.bytes_received;
                }
            }
            Event::Sent { to, message, map, stats } => {
                let Some((at, counts)) = self.sent.get_mut(&(to, message)) else { return Ok(()) };
                *counts = Some(stats);
                let at = *at;
                if let Some(map) = map {
                    let step = self.stages[at].report(to, map, true);
                    self.agree(now_ns, at, message, step, endpoint)?;
                }
            }
            Event::Passed { to, message, map } => {
                if let Some(&(at, _)) = self.sent.get(&(to, message)) {
                    let step = self.stages[at].report(to, map, false);
                    self.agree(now_ns, at, message, step, endpoint)?;
                }
            }
            Event::Agreed { from, message, map } => {
                if let Some(&at) = self.expected.get(&(from, message)) {
                    let ready = self.stages[at].decide(&map);
                    self.agenda.add(at, ready);
                    self.look_at(at);
                }
            }
            Event::Failed { peer, message, error } => {
                let ours = (peer, message);
                if self.expected.contains_key(&ours) || self.sent.contains_key(&ours) {
                    let (number, phase, shard) = (self.scheme.number, id.phase, id.shard);
                    return Err(OperationError::Transfer { number, phase, shard, reason: error });
                }
            }
            Event::Epoch(_) => {}
        }
        Ok(())
    }

    /// All receivers have reported: sends them tails, or tells them the precision to decode at, and
    /// decodes likewise.
    fn agree(
        &mut self,
        now_ns: u64,
        at: usize,
        message: u32,
        step: Step,
        endpoint: &mut Endpoint,
    ) -> Result<(), OperationError> {
        let merged = match step {
            Step::Wait => return Ok(()),
            Step::Fetch(tails) => {
                for (peer, packets) in tails {
                    endpoint.settle(now_ns, peer, message, &packets);
                }
                return Ok(());
            }
            Step::Agreed(merged) => merged,
        };
        let stage = &mut self.stages[at];
        let (number, shard) = (self.scheme.number, stage.blueprint.shard);
        let merged = Arc::new(merged);
        for &peer in &stage.blueprint.to {
            let told = endpoint.agree(now_ns, peer, message, merged.clone());
            told.map_err(|reason| OperationError::Agree { number, shard, reason })?;
        }
        let ready = stage.decide(&merged);
        self.agenda.add(at, ready);
        self.look_at(at);
        Ok(())
    }

    /// Takes note of a stage that has become finished.
    fn look_at(&mut self, at: usize) {
        if !self.finished[at] && self.stages[at].is_finished() {
            self.finished[at] = true;
            self.unfinished -= 1;
        }
    }

    /// A row's worth of work: what others wait for first.
    pub(super) fn poll_task(&mut self, key: u32, endpoint: &Endpoint) -> Option<Task> {
        if self.failure.is_some() {
            return None;
        }
        let task = self.next_task(key, endpoint);
        self.in_work += usize::from(task.is_some());
        task
    }

    fn next_task(&mut self, operation: u32, endpoint: &Endpoint) -> Option<Task> {
        let Self { scheme, tensors, stages, read, agenda, .. } = self;
        let key = |stage| Key { operation, stage, shard: 0, row: 0 };
        let free = |after: Option<usize>, row: usize| {
            let read = after.and_then(|after| read.get(after));
            read.is_none_or(|read| read.get(row).is_some_and(|&read| read))
        };
        let fold = |at: usize| {
            let after = stages[at].blueprint.after;
            stages[at].poll_fold(key(at), scheme, tensors, |row| free(after, row))
        };
        if let Some((_, task)) = first(&mut agenda.folds, fold) {
            return Some(task);
        }
        let source = |at: usize| stages[at].poll_source(key(at), scheme, tensors, endpoint);
        if let Some((at, task)) = first(&mut agenda.sources, source) {
            if stages[at].has_sources() {
                agenda.sources.push_back(at);
            }
            return Some(task);
        }
        let store = |at: usize| {
            let after = stages[at].blueprint.after;
            stages[at].poll_store(key(at), scheme, tensors, |row| free(after, row))
        };
        first(&mut agenda.stores, store).map(|(_, task)| task)
    }

    /// Takes finished work.
    pub(super) fn complete(
        &mut self,
        now_ns: u64,
        done: Done,
        figures: &mut FigureMemory,
        endpoint: &mut Endpoint,
    ) -> Result<(), OperationError> {
        self.in_work -= 1;
        if self.failure.is_some() {
            return Ok(());
        }
        let Key { stage, row, .. } = done.key;
        self.stages[stage].complete(now_ns, done, &self.scheme, figures, endpoint)?;
        self.read[stage][row] = true;
        self.look_at(stage);
        Ok(())
    }

    /// Whether this rank has its result, or has given up, and nobody works on its memory any more.
    /// Transfers to slower ranks go on.
    pub(super) fn is_over(&self) -> bool {
        self.in_work == 0 && (self.failure.is_some() || self.unfinished == 0)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Stops everything, and tells the other ranks.
    pub(super) fn give_up(&mut self, now_ns: u64, error: OperationError, endpoint: &mut Endpoint) {
        if self.failure.is_some() {
            return;
        }
        let (culprit, reason) = match error {
            OperationError::Void { .. } => (self.scheme.rank, Reason::Epoch),
            _ => error.blame().unwrap_or((self.scheme.rank, Reason::Cancelled)),
        };
        self.abort(now_ns, culprit, reason, endpoint);
        self.failure = Some(error);
    }

    fn abort(&self, now_ns: u64, culprit: u16, reason: Reason, endpoint: &mut Endpoint) {
        for &(peer, id) in self.expected.keys() {
            endpoint.abort_expect(now_ns, peer, id, culprit, reason);
        }
        for &(peer, id) in self.sent.keys() {
            endpoint.abort_send(now_ns, peer, id, culprit, reason);
        }
    }

    /// The result.
    pub(super) fn outcome(self, now_ns: u64, endpoint: &Endpoint) -> Outcome {
        let mut stats = self.stats;
        for (&(peer, id), &(_, over)) in &self.sent {
            let counts = over.or_else(|| endpoint.transfer_stats(peer, id)).unwrap_or_default();
            stats.repaired += u64::from(counts.repaired);
            stats.bytes_sent += counts.bytes_sent;
            stats.retransmitted_bytes += counts.retransmitted_bytes;
        }
        Outcome {
            number: self.scheme.number,
            result: self.failure.map_or(Ok(()), Err),
            input: self.tensors.input,
            output: self.tensors.output,
            stats,
            duration_ns: now_ns.saturating_sub(self.started_ns),
        }
    }
}

/// Where the rows of a stage go that come from a rank, and are decoded elsewhere.
fn places(scheme: &Scheme, stage: &Stage, from: u16) -> Option<Arc<dyn RowPlaces>> {
    let device = Arc::clone(scheme.device.as_ref()?);
    let (layout, shard, planes) = (stage.layout().clone(), stage.blueprint.shard, scheme.planes());
    Some(Arc::new(MessagePlaces { device, shard, from, layout, planes }))
}
