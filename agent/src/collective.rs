//! Collectives: sums across ranks.
//!
//! [`AllReduce`] is a direct reduce-scatter followed by an all-gather: shard s of the gradient belongs to rank s.
//!
//! ```text
//!  reduce-scatter   every rank r ── its part of shard s, encoded under its own rotation ──► rank s
//!  reduce           rank s: exact own part + decoded parts, in f32, in the order of the ranks
//!  all-gather       rank s ── the sum, encoded once ──► every other rank
//! ```
//!
//! Rows are important (docs/wire-format.md §7) where the same message's were worth at least their median one step ago; in the first step, and
//! after one of a gradient of another length, all are.
//!
//! The order of the additions is that of the ranks, whatever the order of arrival, so that the same packets give
//! the same bits. Steps may overlap: a fast rank can be a step ahead of a slow one.
//!
//! Everything goes row by row: a row is encoded when the network is about to run out of packets for its receiver, a row of the own shard is summed and sent on as soon as it is there from
//! every rank, a row of another's sum is decoded when it arrives. All of it happens in [`AllReduce::work`], a row at a time, so that a caller can look at its sockets in between.
#![forbid(unsafe_code)]

mod buffers;
mod figures;
mod gather;
mod message_id;
mod parts;
mod reduce;
mod shards;
mod step;

pub use message_id::{MessageId, Phase, STEP_BITS};
pub use shards::shard_range;

use crate::endpoint::{Endpoint, Event, ExpectError, SendError};
use crate::transfer::TransferError;
use crate::wire::Reason;
use buffers::Buffers;
use figures::Figures;
use std::collections::BTreeMap;
use step::Step;
use trimwire_encoder::{
    DEFAULT_COORDINATES_PER_PACKET, DEFAULT_ROW_LOG2, Decoding, EncodeError, LayoutError, PLANES,
};

/// What the ranks' results have to do with each other. Each receiver of the all-gather sees other cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replicas {
    /// Every rank decodes what it got, the owner of a shard what it sent. With nothing cut or lost in the all-gather, results are
    /// bit-identical, whatever the number of planes; where something is, the ranks that got less of it have a larger error.
    #[default]
    Free,
    /// Every rank, the owner included, decodes each packet at the lowest precision that any rank got: results are
    /// bit-identical. Costs a round trip, and a packet that is missing at one rank is missing at all, so each
    /// transfer of the all-gather has to keep to the loss bound divided by the number of receivers.
    Consistent,
}

/// How gradients are summed; the same on all ranks, but for `rank`.
#[derive(Debug, Clone, PartialEq)]
pub struct AllReduceConfig {
    /// This rank, the endpoint's.
    pub rank: u16,
    /// Number of ranks, the endpoint's.
    pub world: u16,
    /// Seed of the rotations.
    pub job_seed: u64,
    /// Coordinates in a packet, a multiple of 32.
    pub coordinates_per_packet: usize,
    /// Rows of 2^this coordinates are rotated as one.
    pub row_log2: u8,
    /// Planes that are sent, 1 to [`PLANES`]: fewer compress ahead of time.
    pub planes: u8,
    /// How cut packets are decoded.
    pub decoding: Decoding,
    /// Layer class of the gradient, 0 (front layers) to 7.
    pub layer_class: u8,
    /// What the ranks' results have to do with each other.
    pub replicas: Replicas,
}

impl AllReduceConfig {
    /// Rank `rank` of `world` with everything else at its default.
    pub fn new(rank: u16, world: u16) -> Self {
        Self {
            rank,
            world,
            job_seed: 0,
            coordinates_per_packet: DEFAULT_COORDINATES_PER_PACKET,
            row_log2: DEFAULT_ROW_LOG2,
            planes: PLANES,
            decoding: Decoding::Unbiased,
            layer_class: 0,
            replicas: Replicas::Free,
        }
    }
}

/// Why a step is not started. Nothing has been sent then.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Nothing to sum.
    #[error("the gradient of step {step} is empty; an all-reduce needs at least one coordinate")]
    Empty {
        /// The step.
        step: u32,
    },
    /// The endpoint is another rank's, or of another number of ranks.
    #[error("all-reduce is rank {rank} of {world}, its endpoint rank {endpoint_rank} of {endpoint_world}")]
    Rank {
        /// Rank of the collective.
        rank: u16,
        /// Ranks of the collective.
        world: u16,
        /// Rank of the endpoint.
        endpoint_rank: u16,
        /// Ranks of the endpoint.
        endpoint_world: u16,
    },
    /// Steps are numbered in ascending order (modulo 2^[`STEP_BITS`]), and each number is used once, whether its step ended well or not.
    #[error(
        "step {step} does not come after step {last}; numbers ascend, and those of steps that failed are not used again"
    )]
    Order {
        /// The step.
        step: u32,
        /// The last one that began.
        last: u32,
    },
    /// A shard cannot be divided into packets.
    #[error("shard {shard} of step {step}: {source}")]
    Layout {
        /// The step.
        step: u32,
        /// The shard.
        shard: u16,
        /// Why.
        source: LayoutError,
    },
    /// A shard cannot be encoded.
    #[error("shard {shard} of step {step}: {source}")]
    Encode {
        /// The step.
        step: u32,
        /// The shard; coordinates are counted from its beginning.
        shard: u16,
        /// Why.
        source: EncodeError,
    },
    /// The encoder wrote something else than a row's packets.
    #[error("shard {shard} of step {step} was encoded to packets of other lengths than its layout's")]
    Mismatch {
        /// The step.
        step: u32,
        /// The shard.
        shard: u16,
    },
    /// The endpoint refuses to send.
    #[error("step {step}: {source}")]
    Send {
        /// The step.
        step: u32,
        /// Why.
        source: SendError,
    },
    /// The endpoint refuses to expect.
    #[error("step {step}: {source}")]
    Expect {
        /// The step.
        step: u32,
        /// Why.
        source: ExpectError,
    },
}

/// Why a step failed. It is over then, its other transfers are cancelled.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// A transfer was given up.
    #[error("step {step}, {phase} of shard {shard}: {source}")]
    Transfer {
        /// The step.
        step: u32,
        /// In which phase.
        phase: Phase,
        /// The shard.
        shard: u16,
        /// Why.
        source: TransferError,
    },
    /// The sum of a shard cannot be sent.
    #[error("step {step}, sum of shard {shard}: {source}")]
    Sum {
        /// The step.
        step: u32,
        /// The shard.
        shard: u16,
        /// Why, as an error of starting the second phase.
        source: StartError,
    },
}

/// What became of a step's packets at one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutcomeStats {
    /// Packets of the messages this rank received.
    pub packets: u64,
    /// Of these: everything arrived.
    pub full: u64,
    /// Some planes arrived.
    pub cut: u64,
    /// Nothing arrived.
    pub missing: u64,
    /// Packets of the messages this rank sent.
    pub sent: u64,
    /// Repairs this rank sent, up to the time it had its own result: others may still ask for more, which
    /// [`crate::endpoint::EndpointStats`] counts.
    pub repaired: u64,
    /// Payload bytes of DATA this rank sent, repairs included, up to then.
    pub bytes_sent: u64,
    /// Payload bytes of repairs, up to then.
    pub retransmitted_bytes: u64,
}

/// A finished step.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The step.
    pub step: u32,
    /// Sum of the ranks' gradients; the mean is this divided by `world`.
    pub sum: Vec<f32>,
    /// How its packets fared.
    pub stats: OutcomeStats,
    /// From the start at this rank to its result, ns.
    pub duration_ns: u64,
}

/// What a piece of work came to.
#[derive(Debug)]
pub enum Worked {
    /// There was nothing to do: only an event of the endpoint, or room in its queues, brings more.
    Nothing,
    /// A row of something. There may be more.
    Row,
    /// A step is finished.
    Finished(Box<Outcome>),
}

/// Sums one gradient per step across the ranks.
///
/// After every [`Self::start`] and [`Self::handle_event`], and after packets have left, call [`Self::work`] until it has [`Worked::Nothing`] to do. It needs the time between two looks at the
/// sockets, a row's worth at a time.
#[derive(Debug)]
pub struct AllReduce {
    config: AllReduceConfig,
    /// By the step's bits that are in message ids.
    steps: BTreeMap<u32, Step>,
    last: Option<u32>,
    figures: Figures,
    buffers: Buffers,
}

impl AllReduce {
    /// A collective with no step begun. The configuration is checked by [`Self::start`].
    pub fn new(config: AllReduceConfig) -> Self {
        Self {
            config,
            steps: BTreeMap::new(),
            last: None,
            figures: Figures::default(),
            buffers: Buffers::default(),
        }
    }

    /// The configuration.
    pub fn config(&self) -> &AllReduceConfig {
        &self.config
    }

    /// Begins a step with this rank's gradient, of the same length on all ranks; the outcome's sum is in the same memory. A lone rank has its result at once.
    pub fn start(
        &mut self,
        now_ns: u64,
        step: u32,
        gradient: Vec<f32>,
        endpoint: &mut Endpoint,
    ) -> Result<Option<Outcome>, StartError> {
        let (rank, world) = (self.config.rank, self.config.world);
        let (endpoint_rank, endpoint_world) = (endpoint.config().rank, endpoint.config().world);
        if (rank, world) != (endpoint_rank, endpoint_world) {
            return Err(StartError::Rank { rank, world, endpoint_rank, endpoint_world });
        }
        if gradient.is_empty() {
            return Err(StartError::Empty { step });
        }
        if let Some(last) = self.last.filter(|&last| !MessageId::follows(step, last)) {
            return Err(StartError::Order { step, last });
        }
        if world == 1 {
            self.last = Some(step);
            let stats = OutcomeStats::default();
            return Ok(Some(Outcome { step, sum: gradient, stats, duration_ns: 0 }));
        }
        let begun = Step::start(now_ns, step, gradient, &self.config, &self.figures, &self.buffers, endpoint);
        if !matches!(begun, Err(StartError::Layout { .. })) {
            // Its messages have been opened, if only to be given up.
            self.last = Some(step);
        }
        let begun = begun?;
        self.steps.insert(MessageId::step_key(step), begun);
        Ok(None)
    }

    /// Takes an event of the endpoint; events of messages that are not this collective's are ignored.
    ///
    /// # Errors
    /// When a step has failed. It is over then, here and at the other ranks, who are told.
    pub fn handle_event(
        &mut self,
        now_ns: u64,
        event: Event,
        endpoint: &mut Endpoint,
    ) -> Result<(), StepError> {
        let (Event::Row { message, .. }
        | Event::Received { message, .. }
        | Event::Sent { message, .. }
        | Event::Agreed { message, .. }
        | Event::Failed { message, .. }) = event;
        let id = MessageId::from_u32(message);
        let Some(step) = self.steps.get_mut(&id.step) else { return Ok(()) };
        let taken = step.handle_event(now_ns, id, event, endpoint);
        taken.inspect_err(|error| self.give_up(now_ns, id.step, error, endpoint))
    }

    fn give_up(&mut self, now_ns: u64, key: u32, error: &StepError, endpoint: &mut Endpoint) {
        let (culprit, reason) = match error {
            StepError::Transfer { source, .. } => source.blame(),
            StepError::Sum { .. } => (self.config.rank, Reason::Cancelled),
        };
        if let Some(step) = self.steps.remove(&key) {
            step.cancel(now_ns, culprit, reason, endpoint);
        }
        self.retire(endpoint);
    }

    /// Gives a step up, here and at the other ranks. `false`: no such step is on its way.
    pub fn cancel(&mut self, now_ns: u64, step: u32, endpoint: &mut Endpoint) -> bool {
        let begun = self.steps.remove(&MessageId::step_key(step));
        if let Some(begun) = &begun {
            begun.cancel(now_ns, self.config.rank, Reason::Cancelled, endpoint);
        }
        self.retire(endpoint);
        begun.is_some()
    }

    /// Tells the endpoint which messages are over.
    fn retire(&self, endpoint: &mut Endpoint) {
        let Some(last) = self.last else { return };
        let active = self.steps.values().map(Step::number);
        let oldest =
            active.fold(
                last.wrapping_add(1),
                |oldest, step| {
                    if MessageId::follows(oldest, step) { step } else { oldest }
                },
            );
        endpoint.retire(MessageId::new(oldest, Phase::ReduceScatter, 0).to_u32());
    }

    /// Does a piece of work, if there is any: the oldest step's first.
    ///
    /// # Errors
    /// As [`Self::handle_event`].
    pub fn work(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> Result<Worked, StepError> {
        let Self { steps, figures, .. } = self;
        let mut failed = None;
        for (&key, step) in steps.iter_mut() {
            match step.work(now_ns, figures, endpoint) {
                Ok(false) if step.is_finished() => {
                    let outcome = steps.remove(&key).map(|step| step.outcome(now_ns, endpoint));
                    self.retire(endpoint);
                    return Ok(outcome.map_or(Worked::Nothing, |outcome| Worked::Finished(Box::new(outcome))));
                }
                Ok(false) => {}
                Ok(true) => return Ok(Worked::Row),
                Err(error) => {
                    failed = Some((key, error));
                    break;
                }
            }
        }
        let Some((key, error)) = failed else { return Ok(Worked::Nothing) };
        self.give_up(now_ns, key, &error, endpoint);
        Err(error)
    }

    /// Steps that have begun and not ended.
    pub fn active_steps(&self) -> impl Iterator<Item = u32> + '_ {
        self.steps.values().map(Step::number)
    }
}
