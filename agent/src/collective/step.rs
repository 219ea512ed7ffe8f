//! One step of an all-reduce at one rank.

use super::figures::Figures;
use super::{
    AllReduceConfig, MessageId, Outcome, OutcomeStats, Phase, Replicas, StartError, StepError, shard_range,
};
use crate::endpoint::{Endpoint, Event, Expectation, Reliability};
use crate::transfer::TransferStats;
use crate::wire::cut_map::{CutMap, FULL};
use std::collections::BTreeMap;
use std::sync::Arc;
use trimwire_encoder::{Decoder, Encoder, Envelope, Job, Layout, LayoutError, Message, RowChoice, StreamId};

/// A message of the step, as this rank sends or receives it.
type MessageKey = (u16, u32);

/// State between `start` and the outcome.
#[derive(Debug)]
pub(super) struct Step {
    number: u32,
    started_ns: u64,
    gradient: Vec<f32>,
    /// The own shard's sum so far: of the ranks below `next_rank`.
    sum: Vec<f32>,
    next_rank: u16,
    /// Contributions that arrived before those of lower ranks.
    contributions: BTreeMap<u16, Box<Decoder>>,
    result: Vec<f32>,
    /// Shards whose sum is not in `result`.
    shards_left: usize,
    /// Consistent replicas: what arrived of other shards, until the owner says at which precision to decode it.
    undecided: BTreeMap<u16, Box<Decoder>>,
    /// Likewise the own shard: what was sent of it, the merged map, and receivers that have not reported.
    own: Option<(Decoder, CutMap, u16)>,
    expected: Vec<MessageKey>,
    /// Messages sent, with their counts once they are over.
    sent: Vec<(MessageKey, Option<TransferStats>)>,
    stats: OutcomeStats,
}

/// The other ranks, in an order that starts behind `rank`: if all began with rank 0 its link would be the bottleneck.
fn others(config: &AllReduceConfig) -> impl Iterator<Item = u16> + use<> {
    let (rank, world) = (u32::from(config.rank), u32::from(config.world));
    (1..world).map(move |k| ((rank + k) % world) as u16)
}

fn layout(config: &AllReduceConfig, step: u32, shard: u16, length: usize) -> Result<Layout, StartError> {
    let build = || -> Result<Layout, LayoutError> {
        Layout::new(length, config.coordinates_per_packet)?
            .with_row_log2(config.row_log2)?
            .with_layer_class(config.layer_class)
    };
    build().map_err(|source| StartError::Layout { step, shard, source })
}

/// Independent rotations: so are the errors of the reduce-scatter, where every rank encodes under its own.
fn job(config: &AllReduceConfig) -> Job {
    Job::new(config.job_seed)
}

fn encode(
    config: &AllReduceConfig,
    stream: StreamId,
    step: u32,
    id: MessageId,
    values: &[f32],
    figures: &Figures,
) -> Result<(Message, Layout), StartError> {
    let layout = layout(config, step, id.shard, values.len())?;
    let envelope = Envelope { stream, message: id.to_u32() };
    let choice = RowChoice { planes: config.planes, importance: figures.importance(id, values.len()) };
    let mut message = Message::default();
    Encoder::new(layout.clone(), job(config))
        .encode_with(values, envelope, |_row| choice, &mut message)
        .map_err(|source| StartError::Encode { step, shard: id.shard, source })?;
    Ok((message, layout))
}

/// A decoder of what `rank`, of the same job as `own`, sends.
fn decoder(config: &AllReduceConfig, own: StreamId, rank: u16, id: MessageId, layout: Layout) -> Decoder {
    // Every rank of an endpoint's world fits a stream.
    let stream = StreamId::new(own.job(), rank).unwrap_or(own);
    let envelope = Envelope { stream, message: id.to_u32() };
    Decoder::new(layout, job(config), envelope, config.decoding).with_planes(config.planes)
}

impl Step {
    pub(super) fn start(
        now_ns: u64,
        step: u32,
        gradient: Vec<f32>,
        config: &AllReduceConfig,
        figures: &mut Figures,
        endpoint: &mut Endpoint,
    ) -> Result<Self, StartError> {
        let length = gradient.len();
        let own = shard_range(length, config.world, config.rank);
        let mut this = Self {
            number: step,
            started_ns: now_ns,
            sum: vec![0.0; own.len()],
            next_rank: 0,
            contributions: BTreeMap::new(),
            result: vec![0.0; length],
            shards_left: usize::from(config.world).min(length),
            undecided: BTreeMap::new(),
            own: None,
            gradient,
            expected: Vec::new(),
            sent: Vec::new(),
            stats: OutcomeStats::default(),
        };
        // Everything that can fail for the gradient's sake comes before the first packet.
        let stream = endpoint.stream();
        let mut messages = Vec::new();
        let mut decoders = Vec::new();
        for peer in others(config) {
            let range = shard_range(length, config.world, peer);
            if !range.is_empty() {
                let id = MessageId::new(step, Phase::ReduceScatter, peer);
                let (message, layout) = encode(config, stream, step, id, &this.gradient[range], figures)?;
                messages.push((peer, id, message));
                let id = MessageId::new(step, Phase::AllGather, peer);
                decoders.push((peer, id, decoder(config, stream, peer, id, layout)));
            }
            if !own.is_empty() {
                let id = MessageId::new(step, Phase::ReduceScatter, config.rank);
                let layout = layout(config, step, config.rank, own.len())?;
                decoders.push((peer, id, decoder(config, stream, peer, id, layout)));
            }
        }
        for (peer, id, decoder) in decoders {
            let agree = id.phase == Phase::AllGather && config.replicas == Replicas::Consistent;
            let reliability = match endpoint.config().reliability {
                // A union bound: at most `loss` of the packets are missing at any of the receivers.
                Reliability::Bounded { loss } if agree => {
                    Reliability::Bounded { loss: loss / f32::from((config.world - 1).max(1)) }
                }
                other => other,
            };
            let id = id.to_u32();
            if let Err(source) = endpoint.expect_with(
                now_ns,
                peer,
                id,
                decoder,
                Expectation { reliability, planes: config.planes, agree },
            ) {
                this.cancel(endpoint);
                return Err(StartError::Expect { step, source });
            }
            this.expected.push((peer, id));
        }
        for (peer, id, message) in messages {
            figures.learn(id, shard_range(length, config.world, peer).len(), &message);
            this.stats.sent += message.packets() as u64;
            if let Err(source) = endpoint.send(now_ns, peer, Arc::new(message)) {
                this.cancel(endpoint);
                return Err(StartError::Send { step, source });
            }
            this.sent.push(((peer, id.to_u32()), None));
        }
        Ok(this)
    }

    /// Takes an event of one of the step's messages. `Ok(true)`: the result is complete.
    pub(super) fn handle_event(
        &mut self,
        now_ns: u64,
        id: MessageId,
        event: Event,
        config: &AllReduceConfig,
        figures: &mut Figures,
        endpoint: &mut Endpoint,
    ) -> Result<bool, StepError> {
        match event {
            Event::Received { from, message, decoder, stats } => {
                if !self.expected.contains(&(from, message)) {
                    return Ok(false);
                }
                self.stats.packets += u64::from(stats.packets);
                self.stats.full += u64::from(stats.full);
                self.stats.cut += u64::from(stats.cut);
                self.stats.missing += u64::from(stats.missing);
                match (id.phase, config.replicas) {
                    (Phase::ReduceScatter, _) => {
                        self.contributions.insert(from, decoder);
                        self.reduce(now_ns, config, figures, endpoint)?;
                    }
                    (Phase::AllGather, Replicas::Free) => self.gathered(config, from, &decoder),
                    (Phase::AllGather, Replicas::Consistent) => {
                        self.undecided.insert(from, decoder);
                    }
                }
            }
            Event::Sent { to, message, map, stats } => {
                if let Some(entry) = self.sent.iter_mut().find(|(key, _)| *key == (to, message)) {
                    entry.1 = Some(stats);
                }
                if let (Some(map), Some((_, merged, waiting))) = (map, &mut self.own) {
                    merged.merge_minimum(&map);
                    *waiting -= 1;
                    self.agree(now_ns, id, config, endpoint)?;
                }
            }
            Event::Agreed { from, map, .. } => {
                if let Some(mut decoder) = self.undecided.remove(&from) {
                    limit(&mut decoder, &map);
                    self.gathered(config, from, &decoder);
                }
            }
            Event::Failed { peer, message, error } => {
                let ours = (peer, message);
                if self.expected.contains(&ours) || self.sent.iter().any(|(key, _)| *key == ours) {
                    let (step, phase, shard) = (self.number, id.phase, id.shard);
                    return Err(StepError::Transfer { step, phase, shard, source: error });
                }
            }
        }
        Ok(self.shards_left == 0)
    }

    /// Adds what can be added to the own shard's sum, in the order of the ranks, and sends the sum when it is complete.
    fn reduce(
        &mut self,
        now_ns: u64,
        config: &AllReduceConfig,
        figures: &mut Figures,
        endpoint: &mut Endpoint,
    ) -> Result<(), StepError> {
        let own = shard_range(self.gradient.len(), config.world, config.rank);
        while self.next_rank < config.world {
            if self.next_rank == config.rank {
                for (sum, value) in self.sum.iter_mut().zip(&self.gradient[own.clone()]) {
                    *sum += value;
                }
            } else if let Some(decoder) = self.contributions.remove(&self.next_rank) {
                // Never another length than the shard's, which its layout was made for.
                let _ = decoder.add_into(&mut self.sum);
            } else {
                return Ok(());
            }
            self.next_rank += 1;
        }
        let (step, shard) = (self.number, config.rank);
        let failed = |source| StepError::Sum { step, shard, source };
        let id = MessageId::new(step, Phase::AllGather, shard);
        let stream = endpoint.stream();
        let (message, layout) = encode(config, stream, step, id, &self.sum, figures).map_err(failed)?;
        figures.learn(id, self.sum.len(), &message);
        let message = Arc::new(message);
        let consistent = config.replicas == Replicas::Consistent;
        for peer in others(config) {
            let sent = if consistent {
                endpoint.send_agreed(now_ns, peer, message.clone())
            } else {
                endpoint.send(now_ns, peer, message.clone())
            };
            sent.map_err(|source| failed(StartError::Send { step, source }))?;
            self.sent.push(((peer, id.to_u32()), None));
            self.stats.sent += message.packets() as u64;
        }
        // Others have what the packets say of the sum, so its owner takes that, too, rather than the sum itself. (That their
        // decoder reads them makes it the same bits whatever the decoding and the number of planes.)
        let mut decoder = decoder(config, stream, shard, id, layout);
        for packet in (0..message.packets()).map(|index| message.packet(index)) {
            // The decoder refuses none of them: they come from an encoder of the same layout.
            let _ = decoder.receive(packet);
        }
        if consistent {
            let merged = CutMap::from_planes(vec![FULL; message.packets()]);
            self.own = Some((decoder, merged, config.world - 1));
        } else {
            self.gathered(config, shard, &decoder);
        }
        Ok(())
    }

    /// When all receivers have reported, tells them the precision to decode at and decodes the own shard likewise.
    fn agree(
        &mut self,
        now_ns: u64,
        id: MessageId,
        config: &AllReduceConfig,
        endpoint: &mut Endpoint,
    ) -> Result<(), StepError> {
        let Some((mut decoder, merged, _)) = self.own.take_if(|(.., waiting)| *waiting == 0) else {
            return Ok(());
        };
        let (step, shard) = (self.number, config.rank);
        let merged = Arc::new(merged);
        for peer in others(config) {
            endpoint.agree(now_ns, peer, id.to_u32(), merged.clone()).map_err(|source| StepError::Sum {
                step,
                shard,
                source: StartError::Send { step, source },
            })?;
        }
        limit(&mut decoder, &merged);
        self.gathered(config, shard, &decoder);
        Ok(())
    }

    /// Puts the sum of a shard into the result.
    fn gathered(&mut self, config: &AllReduceConfig, shard: u16, decoder: &Decoder) {
        let range = shard_range(self.result.len(), config.world, shard);
        let values = &mut self.result[range];
        // As in `reduce`: of the shard's length.
        let _ = decoder.decode_into(values);
        if config.replicas == Replicas::Consistent {
            // A row that no replica may use decodes to +0 where nothing of it arrived, and to ±0 where something did:
            // −0 + 0 is +0.
            values.iter_mut().for_each(|value| *value += 0.0);
        }
        self.shards_left = self.shards_left.saturating_sub(1);
    }

    /// Stops everything.
    pub(super) fn cancel(&self, endpoint: &mut Endpoint) {
        for &(peer, id) in &self.expected {
            endpoint.cancel_expect(peer, id);
        }
        for &((peer, id), _) in &self.sent {
            endpoint.cancel_send(peer, id);
        }
    }

    /// The result. Transfers to slower ranks go on.
    pub(super) fn outcome(self, now_ns: u64, endpoint: &Endpoint) -> Outcome {
        let mut stats = self.stats;
        for &((peer, id), over) in &self.sent {
            let counts = over.or_else(|| endpoint.transfer_stats(peer, id)).unwrap_or_default();
            stats.repaired += u64::from(counts.repaired);
            stats.bytes_sent += counts.bytes_sent;
            stats.retransmitted_bytes += counts.retransmitted_bytes;
        }
        let duration_ns = now_ns.saturating_sub(self.started_ns);
        Outcome { step: self.number, sum: self.result, stats, duration_ns }
    }
}

/// Makes a decoder forget what not every replica has.
fn limit(decoder: &mut Decoder, map: &CutMap) {
    for (index, &planes) in map.as_slice().iter().enumerate() {
        if planes < FULL {
            decoder.limit(index, planes);
        }
    }
}
