//! One step of an all-reduce at one rank.

use super::buffers::Buffers;
use super::figures::Figures;
use super::gather::Gathering;
use super::parts::Parts;
use super::reduce::Reduction;
use super::{
    AllReduceConfig, MessageId, Outcome, OutcomeStats, Phase, Replicas, StartError, StepError, shard_range,
};
use crate::endpoint::{Endpoint, Event, Expectation, Outbound, Reliability};
use crate::transfer::TransferStats;
use crate::wire::Reason;
use std::sync::Arc;
use trimwire_encoder::{Decoding, EncodeError, Encoder, Job, Layout, LayoutError, Sealer};

/// A message of the step, as this rank sends or receives it.
type MessageKey = (u16, u32);

/// What all parts of a step know of it.
#[derive(Debug)]
pub(super) struct Scheme {
    pub(super) step: u32,
    pub(super) rank: u16,
    pub(super) world: u16,
    pub(super) planes: u8,
    pub(super) decoding: Decoding,
    pub(super) replicas: Replicas,
    pub(super) sealer: Option<Sealer>,
    pub(super) buffers: Buffers,
    length: usize,
    job_seed: u64,
    coordinates_per_packet: usize,
    row_log2: u8,
    layer_class: u8,
}

pub(super) fn encode_error(step: u32, shard: u16) -> impl Fn(EncodeError) -> StartError {
    move |source| StartError::Encode { step, shard, source }
}

impl Scheme {
    /// The other ranks, in an order that starts behind this one: if all began with rank 0 its link would be the bottleneck.
    pub(super) fn others(&self) -> impl Iterator<Item = u16> + use<> {
        let (rank, world) = (u32::from(self.rank), u32::from(self.world));
        (1..world).map(move |k| ((rank + k) % world) as u16)
    }

    /// Independent rotations: so are the errors of the reduce-scatter, where every rank encodes under its own.
    pub(super) fn job(&self) -> Job {
        Job::new(self.job_seed)
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealer.is_some()
    }

    fn layout(&self, shard: u16, length: usize) -> Result<Layout, StartError> {
        let build = || -> Result<Layout, LayoutError> {
            Layout::new(length, self.coordinates_per_packet)?
                .with_row_log2(self.row_log2)?
                .with_layer_class(self.layer_class)
        };
        build().map_err(|source| StartError::Layout { step: self.step, shard, source })
    }

    /// The layout of a shard, where it has one.
    pub(super) fn layout_of(&self, shard: u16) -> Option<Layout> {
        self.layout(shard, shard_range(self.length, self.world, shard).len()).ok()
    }

    pub(super) fn encoder(&self, shard: u16, length: usize) -> Result<Encoder, StartError> {
        let encoder = Encoder::new(self.layout(shard, length)?, self.job());
        Ok(match &self.sealer {
            Some(sealer) => encoder.sealed(sealer.clone()),
            None => encoder,
        })
    }
}

/// State between `start` and the outcome.
#[derive(Debug)]
pub(super) struct Step {
    scheme: Scheme,
    started_ns: u64,
    /// This rank's gradient, and row by row the sum in its place.
    gradient: Vec<f32>,
    parts: Parts,
    /// `None` where the own shard is empty.
    reduction: Option<Reduction>,
    gathering: Gathering,
    expected: Vec<MessageKey>,
    /// Messages sent, with their counts once they are over.
    sent: Vec<(MessageKey, Option<TransferStats>)>,
    stats: OutcomeStats,
}

impl Step {
    pub(super) fn start(
        now_ns: u64,
        step: u32,
        gradient: Vec<f32>,
        config: &AllReduceConfig,
        figures: &Figures,
        buffers: &Buffers,
        endpoint: &mut Endpoint,
    ) -> Result<Self, StartError> {
        let length = gradient.len();
        let scheme = Scheme {
            step,
            rank: config.rank,
            world: config.world,
            planes: config.planes,
            decoding: config.decoding,
            replicas: config.replicas,
            sealer: endpoint.sealer(),
            buffers: buffers.clone(),
            length,
            job_seed: config.job_seed,
            coordinates_per_packet: config.coordinates_per_packet,
            row_log2: config.row_log2,
            layer_class: config.layer_class,
        };
        let own = shard_range(length, config.world, config.rank);
        // Everything that can fail for the gradient's sake comes before the first packet.
        let mut parts = Parts::default();
        let mut gathering = Gathering::default();
        for peer in scheme.others() {
            let range = shard_range(length, config.world, peer);
            if !range.is_empty() {
                gathering.expect(peer, scheme.layout(peer, range.len())?);
                parts.push(&scheme, peer, range, figures)?;
            }
        }
        let reduction =
            if own.is_empty() { None } else { Some(Reduction::new(&scheme, own.clone(), figures)?) };
        if scheme.replicas == Replicas::Consistent && !own.is_empty() {
            gathering.add_rows(scheme.layout(config.rank, own.len())?.rows());
        }
        let (expected, sent, stats) = (Vec::new(), Vec::new(), OutcomeStats::default());
        let mut this =
            Self { scheme, started_ns: now_ns, gradient, parts, reduction, gathering, expected, sent, stats };
        this.open_all(now_ns, endpoint).inspect_err(|_| {
            this.cancel(now_ns, config.rank, Reason::Cancelled, endpoint);
        })?;
        Ok(this)
    }

    /// Expects and opens all messages of the step.
    fn open_all(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> Result<(), StartError> {
        let scheme = &self.scheme;
        let step = scheme.step;
        let own_length = shard_range(scheme.length, scheme.world, scheme.rank).len();
        for peer in scheme.others() {
            let length = shard_range(scheme.length, scheme.world, peer).len();
            for (phase, shard, length) in
                [(Phase::ReduceScatter, scheme.rank, own_length), (Phase::AllGather, peer, length)]
            {
                if length == 0 {
                    continue;
                }
                let agree = phase == Phase::AllGather && scheme.replicas == Replicas::Consistent;
                let reliability = match endpoint.config().reliability {
                    // A union bound: at most `loss` of the packets are missing at any of the receivers.
                    Reliability::Bounded { loss } if agree => {
                        Reliability::Bounded { loss: loss / f32::from((scheme.world - 1).max(1)) }
                    }
                    other => other,
                };
                let id = MessageId::new(step, phase, shard).to_u32();
                let expectation = Expectation {
                    layout: scheme.layout(shard, length)?,
                    job: scheme.job(),
                    decoding: scheme.decoding,
                    reliability,
                    planes: scheme.planes,
                    agree,
                };
                let expected = endpoint.expect(now_ns, peer, id, expectation);
                expected.map_err(|source| StartError::Expect { step, source })?;
                self.expected.push((peer, id));
            }
        }
        for peer in scheme.others() {
            let length = shard_range(scheme.length, scheme.world, peer).len();
            for (phase, shard, length) in
                [(Phase::ReduceScatter, peer, length), (Phase::AllGather, scheme.rank, own_length)]
            {
                if length == 0 {
                    continue;
                }
                let layout = scheme.layout(shard, length)?;
                self.stats.sent += layout.packets() as u64;
                let want_map = phase == Phase::AllGather && scheme.replicas == Replicas::Consistent;
                let message = MessageId::new(step, phase, shard).to_u32();
                let outbound = Outbound { message, layout, planes: scheme.planes, want_map };
                let opened = endpoint.open(now_ns, peer, &outbound);
                opened.map_err(|source| StartError::Send { step, source })?;
                self.sent.push(((peer, message), None));
            }
        }
        Ok(())
    }

    pub(super) fn number(&self) -> u32 {
        self.scheme.step
    }

    /// Takes an event of one of its messages.
    pub(super) fn handle_event(
        &mut self,
        now_ns: u64,
        id: MessageId,
        event: Event,
        endpoint: &mut Endpoint,
    ) -> Result<(), StepError> {
        match event {
            Event::Row { from, message, row } if self.expected.contains(&(from, message)) => match id.phase {
                Phase::ReduceScatter => {
                    if let Some(reduction) = &mut self.reduction {
                        reduction.take(&self.scheme, from, row);
                    }
                }
                Phase::AllGather => self.gathering.take(&self.scheme, from, row),
            },
            Event::Received { from, message, stats } if self.expected.contains(&(from, message)) => {
                self.stats.packets += u64::from(stats.packets);
                self.stats.full += u64::from(stats.full);
                self.stats.cut += u64::from(stats.cut);
                self.stats.missing += u64::from(stats.missing);
            }
            Event::Row { .. } | Event::Received { .. } => {}
            Event::Sent { to, message, map, stats } => {
                if let Some(entry) = self.sent.iter_mut().find(|(key, _)| *key == (to, message)) {
                    entry.1 = Some(stats);
                }
                let merged = map.and_then(|map| self.reduction.as_mut()?.merge(&map));
                if let Some(merged) = merged {
                    self.agree(now_ns, message, merged, endpoint)?;
                }
            }
            Event::Agreed { from, map, .. } => self.gathering.decide(&self.scheme, from, Vec::new(), &map),
            Event::Failed { peer, message, error } => {
                let ours = (peer, message);
                if self.expected.contains(&ours) || self.sent.iter().any(|(key, _)| *key == ours) {
                    let (step, phase, shard) = (self.scheme.step, id.phase, id.shard);
                    return Err(StepError::Transfer { step, phase, shard, source: error });
                }
            }
        }
        Ok(())
    }

    /// All receivers have reported: tells them the precision to decode at, and decodes the own shard likewise.
    fn agree(
        &mut self,
        now_ns: u64,
        message: u32,
        merged: crate::wire::cut_map::CutMap,
        endpoint: &mut Endpoint,
    ) -> Result<(), StepError> {
        let (step, shard) = (self.scheme.step, self.scheme.rank);
        let merged = Arc::new(merged);
        for peer in self.scheme.others() {
            endpoint.agree(now_ns, peer, message, merged.clone()).map_err(|source| StepError::Sum {
                step,
                shard,
                source: StartError::Send { step, source },
            })?;
        }
        let rows = self.reduction.as_mut().map(Reduction::take_undecided).unwrap_or_default();
        self.gathering.decide(&self.scheme, shard, rows, &merged);
        Ok(())
    }

    /// Does a row's worth of work: what others wait for first. `false`: there is none.
    pub(super) fn work(
        &mut self,
        now_ns: u64,
        figures: &mut Figures,
        endpoint: &mut Endpoint,
    ) -> Result<bool, StepError> {
        let Self { scheme, gradient, parts, reduction, gathering, .. } = self;
        let (step, shard) = (scheme.step, scheme.rank);
        let failed = |source| StepError::Sum { step, shard, source };
        if let Some(reduction) = reduction
            && reduction.work(now_ns, scheme, gradient, figures, endpoint).map_err(failed)?
        {
            return Ok(true);
        }
        if parts.work(now_ns, scheme, gradient, figures, endpoint).map_err(failed)? {
            return Ok(true);
        }
        Ok(gathering.work(scheme, parts, gradient, endpoint))
    }

    /// Whether this rank has its result. Transfers to slower ranks go on.
    pub(super) fn is_finished(&self) -> bool {
        self.gathering.is_finished() && self.reduction.as_ref().is_none_or(Reduction::is_finished)
    }

    /// Stops everything, and tells the other ranks.
    pub(super) fn cancel(&self, now_ns: u64, culprit: u16, reason: Reason, endpoint: &mut Endpoint) {
        for &(peer, id) in &self.expected {
            endpoint.abort_expect(now_ns, peer, id, culprit, reason);
        }
        for &((peer, id), _) in &self.sent {
            endpoint.abort_send(now_ns, peer, id, culprit, reason);
        }
    }

    /// The result.
    pub(super) fn outcome(self, now_ns: u64, endpoint: &Endpoint) -> Outcome {
        let mut stats = self.stats;
        for &((peer, id), over) in &self.sent {
            let counts = over.or_else(|| endpoint.transfer_stats(peer, id)).unwrap_or_default();
            stats.repaired += u64::from(counts.repaired);
            stats.bytes_sent += counts.bytes_sent;
            stats.retransmitted_bytes += counts.retransmitted_bytes;
        }
        let duration_ns = now_ns.saturating_sub(self.started_ns);
        Outcome { step: self.scheme.step, sum: self.gradient, stats, duration_ns }
    }
}
