// SPDX-License-Identifier: Apache-2.0
//! Collectives: operations that all ranks take part in.
//!
//! A [`Communicator`] runs any number of them at once over one endpoint. What an operation is made
//! of at a rank is a plan (`plan.rs`): for each shard of the tensor, whose contributions are
//! summed, who gets the sum, and where it is written. Each entry of a plan is a stage (`stage.rs`),
//! which works row by row:
//!
//! ```text
//!  packets of other ranks ─► rows ─┐
//!                                  ├─► sum, in the order of the ranks ─┬─► encoded once ─► other ranks
//!  the row in memory ──────────────┘                                   └─► the row in memory: what the packets say, not the sum itself
//! ```
//!
//! A row is encoded when the network is about to run out of packets for its receiver, summed and
//! sent on as soon as it is there from every rank, and decoded when it arrives. This coding is done
//! in [`Task`]s, each a row's worth, which own or lease (`memory.rs`) what they need: by the thread
//! that looks after the sockets, between two looks ([`Communicator::work`]), or by others
//! ([`Communicator::poll_task`], [`Communicator::complete`]).
//!
//! The order of the additions is that of the ranks, whatever the order of arrival and however many
//! threads work, so that the same packets give the same bits. Operations may overlap: a fast rank
//! can be ahead of a slow one.
//!
//! Rows are important (docs/reference/wire-format.md §7) where the same message's were worth at
//! least their median one operation of the same [`Options::tag`] ago; in the first one, and after
//! one of another length, all are.

mod agenda;
mod algorithm;
mod buffers;
mod common_precision;
mod device;
mod epochs;
mod error;
mod halves;
mod memory;
mod message_id;
mod offload;
mod operation;
mod part;
mod plan;
mod row_figures;
mod scheme;
mod shards;
mod stage;
mod task;

pub use algorithm::{Algorithm, Hosts, direct_shards};
pub use device::Device;
pub use error::{ChannelEnd, OperationError, StartError};
pub use memory::{ElementType, Memory, Number};
pub use message_id::{MessageId, NUMBER_BITS, Phase};
pub use offload::{Encode, Offloaded};
pub use part::Part;
pub use part::channel_parts;
pub use shards::{resync_range, shard_range};
pub use task::{Done, Task};

use crate::config::Reliability;
use crate::endpoint::{Endpoint, Event};
use crate::epoch::{Epoch, EpochError, RankSet};
use crate::pacing::Pace;
use algorithm::{Trees, most_shards};
use buffers::Buffers;
use operation::Operation;
use plan::Ranks;
use row_figures::FigureMemory;
use scheme::Scheme;
use stage::Tensors;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use trimwire_encoder::{DEFAULT_ROW_LOG2, Decoding, PLANES};

/// What the ranks' results have to do with each other. Each receiver of the all-gather sees other
/// trims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replicas {
    /// Every rank decodes what it got, the owner of a shard what it sent. With nothing trimmed or
    /// lost in the all-gather, results are bit-identical, whatever the number of planes; where
    /// something is, the ranks that got less of it have a larger error.
    #[default]
    Free,
    /// Every rank, the owner included, decodes each packet at the lowest precision that any rank
    /// got: results are bit-identical. Before that the tails that take most off the error are sent
    /// again, until all together err by no more than each alone would on average. Costs two round
    /// trips, and a packet that is missing at one rank is missing at all, so each transfer of the
    /// all-gather has to keep to the loss bound divided by the number of receivers.
    Consistent,
}

/// A rank of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct CommunicatorConfig {
    /// This rank, the endpoint's.
    pub rank: u16,
    /// Number of ranks, the endpoint's.
    pub world: u16,
    /// Seed of the rotations; the same on all ranks.
    pub job_seed: u64,
    /// Longest IP packet that the fabric carries, bytes: packets are made to fit; the same on all
    /// ranks.
    pub mtu: usize,
    /// Rows of 2^this coordinates are rotated as one; the same on all ranks.
    pub row_log2: u8,
    /// A number for each rank, the same for ranks that are on one host; empty: every rank has a
    /// host of its own. The same on all ranks.
    pub hosts: Vec<u32>,
    /// Which part of every operation is done here.
    pub part: Part,
}

impl CommunicatorConfig {
    /// Rank `rank` of `world` with everything else at its default.
    pub fn new(rank: u16, world: u16) -> Self {
        Self {
            rank,
            world,
            job_seed: 0,
            mtu: 1_500,
            row_log2: DEFAULT_ROW_LOG2,
            hosts: Vec::new(),
            part: Part::WHOLE,
        }
    }
}

/// How an operation is done; the same on all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Planes that are sent, 1 to [`PLANES`]: fewer compress ahead of time.
    pub planes: u8,
    /// Every bit as it is, whatever it means (NaNs, integers): nothing is rotated, and what is
    /// trimmed is sent again. Four bytes a coordinate.
    pub exact: bool,
    /// Sums are divided by the number of ranks that contribute.
    pub average: bool,
    /// Which way parts and sums go.
    pub algorithm: Algorithm,
    /// How trimmed packets are decoded.
    pub decoding: Decoding,
    /// What the ranks' results have to do with each other.
    pub replicas: Replicas,
    /// Best effort until so long after the start at each rank, ns: trimmed and missing packets are
    /// sent again, those first that take most off the error per byte; then everybody takes what is
    /// there, however little: what has not come counts as zero, and [`OutcomeStats`] says how much
    /// that was. Takes the place of `reliability`; what is exact has no deadline.
    pub deadline_ns: Option<u64>,
    /// How much has to arrive; `None`: as the endpoint is configured.
    pub reliability: Option<Reliability>,
    /// Layer class of the tensor, 0 (front layers, which go first) to 7.
    pub layer_class: u8,
    /// Which tensor this is, of those that are summed again and again: a DDP bucket's number.
    pub tag: u32,
    /// Coordinates in a packet, a multiple of 32; `None`: [`Codec::coordinates_per_packet`].
    pub coordinates_per_packet: Option<usize>,
    /// Share of the line's rate at which this rank's data leaves at most; need not be the same on
    /// all ranks.
    pub pace: Pace,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            planes: PLANES,
            exact: false,
            average: false,
            algorithm: Algorithm::Automatic,
            decoding: Decoding::Unbiased,
            replicas: Replicas::Free,
            deadline_ns: None,
            reliability: None,
            layer_class: 0,
            tag: 0,
            coordinates_per_packet: None,
            pace: Pace::LINE,
        }
    }
}

/// What is to be done, and the memory that it is done to.
#[derive(Debug)]
pub enum Collective {
    /// The sum over all ranks, for all ranks; in place. Shape: the same on all ranks.
    AllReduce {
        /// This rank's part, then the sum.
        tensor: Memory,
    },
    /// The sum over all ranks, divided among them.
    ReduceScatter {
        /// This rank's part, shape: the same on all ranks.
        input: Memory,
        /// This rank's shard of the sum, shape: its [`shard_range`] of the input's.
        output: Memory,
    },
    /// All ranks' shards, for all of them.
    AllGather {
        /// This rank's shard, shape: its [`shard_range`] of the output's.
        input: Memory,
        /// All shards, by rank; shape: the same on all ranks.
        output: Memory,
    },
    /// One rank's tensor, for all; in place.
    Broadcast {
        /// The root's is sent, the others' overwritten. Where packets say less than the tensor, the
        /// root has what they say, too.
        tensor: Memory,
        /// Whose.
        root: u16,
    },
    /// The sum over all ranks, for one of them; in place there.
    Reduce {
        /// This rank's part, and at the root the sum.
        tensor: Memory,
        /// Who gets it.
        root: u16,
    },
    /// From every rank to every rank what it has for it, each directly. Needs [`Options::exact`].
    AllToAll {
        /// What this rank has for each, one behind the other by rank; shape: the sum of `to`.
        input: Memory,
        /// What each has for this rank, likewise; shape: the sum of `from`.
        output: Memory,
        /// Coordinates for each rank.
        to: Vec<usize>,
        /// Coordinates from each rank: what its `to` says of this one.
        from: Vec<usize>,
    },
    /// The sum over the ranks that are no servers, for all of them, by way of the servers: an
    /// all-reduce whose shards belong to these.
    PushPull {
        /// A worker's part, then the sum; at a server, which contributes nothing, `None`.
        tensor: Option<Memory>,
        /// Coordinates of the tensor.
        length: usize,
        /// Ranks of the servers.
        servers: Vec<u16>,
    },
}

/// What became of an operation's packets at one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutcomeStats {
    /// Packets of the messages this rank received.
    pub packets: u64,
    /// Of these: everything arrived.
    pub full: u64,
    /// Some planes arrived.
    pub trimmed: u64,
    /// Nothing arrived.
    pub missing: u64,
    /// Payload bytes of the messages this rank received, as they were sent.
    pub bytes_expected: u64,
    /// Of these, what arrived, repairs included.
    pub bytes_received: u64,
    /// Packets of the messages this rank sent.
    pub sent: u64,
    /// Repairs this rank sent, up to the time it had its own result: others may still ask for more,
    /// which [`crate::endpoint::EndpointStats`] counts.
    pub repaired: u64,
    /// Payload bytes of DATA this rank sent, repairs included, up to then.
    pub bytes_sent: u64,
    /// Payload bytes of repairs, up to then.
    pub retransmitted_bytes: u64,
}

impl Collective {
    /// The same for another channel, which has its memory with this one.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::AllReduce { tensor } => Self::AllReduce { tensor: tensor.share() },
            Self::ReduceScatter { input, output } => {
                Self::ReduceScatter { input: input.share(), output: output.share() }
            }
            Self::AllGather { input, output } => {
                Self::AllGather { input: input.share(), output: output.share() }
            }
            Self::Broadcast { tensor, root } => Self::Broadcast { tensor: tensor.share(), root: *root },
            Self::Reduce { tensor, root } => Self::Reduce { tensor: tensor.share(), root: *root },
            Self::AllToAll { input, output, to, from } => {
                let (input, output) = (input.share(), output.share());
                Self::AllToAll { input, output, to: to.clone(), from: from.clone() }
            }
            Self::PushPull { tensor, length, servers } => Self::PushPull {
                tensor: tensor.as_ref().map(Memory::share),
                length: *length,
                servers: servers.clone(),
            },
        }
    }
}

/// A finished operation.
#[derive(Debug)]
pub struct Outcome {
    /// Its number.
    pub number: u32,
    /// How it ended. Where it failed, the tensors hold anything.
    pub result: Result<(), OperationError>,
    /// The input, if there was one apart.
    pub input: Option<Memory>,
    /// The tensor, or the output.
    pub output: Option<Memory>,
    /// How its packets fared.
    pub stats: OutcomeStats,
    /// From the start at this rank to its result, ns.
    pub duration_ns: u64,
}

impl Outcome {
    /// The output's vector, where it was made from one of f32.
    pub fn into_f32(self) -> Option<Vec<f32>> {
        self.output?.into_vec().ok()
    }
}

/// Layer classes of a packet's header.
const LAYER_CLASSES: u8 = 8;

/// Runs operations, several at once, in a group of ranks.
///
/// After every [`Self::start`] and [`Self::handle_event`], and after packets have left, there may
/// be work: call [`Self::work`] until there is none, or hand out what [`Self::poll_task`] gives and
/// bring it back by [`Self::complete`]. Then [`Self::poll_outcome`] tells what is over.
#[derive(Debug)]
pub struct Communicator {
    /// Of this epoch: ranks are numbered from 0 among its members.
    config: CommunicatorConfig,
    hosts: Hosts,
    /// As it was in the beginning.
    home: CommunicatorConfig,
    epoch: Epoch,
    /// Epochs that have begun, or have not, since somebody asked.
    epochs: VecDeque<Result<Epoch, EpochError>>,
    /// Ranks that failed operations of this epoch have found gone.
    blamed: RankSet,
    /// By the number's bits that are in message ids.
    operations: BTreeMap<u32, Operation>,
    last: Option<u32>,
    figures: FigureMemory,
    buffers: Buffers,
}

impl Communicator {
    /// A communicator without operations. The configuration is checked by [`Self::start`].
    pub fn new(config: CommunicatorConfig) -> Self {
        Self {
            hosts: Hosts::new(config.world, &config.hosts),
            home: config.clone(),
            epoch: Epoch { number: 0, members: (0..config.world).collect(), first: 0, arrivals: Vec::new() },
            epochs: VecDeque::new(),
            blamed: RankSet::new(),
            config,
            operations: BTreeMap::new(),
            last: None,
            figures: FigureMemory::default(),
            buffers: Buffers::default(),
        }
    }

    /// The configuration; rank and world are those of this epoch.
    pub fn config(&self) -> &CommunicatorConfig {
        &self.config
    }

    /// Begins an operation, which has the same number on all ranks. It ends in
    /// [`Self::poll_outcome`].
    ///
    /// # Errors
    /// [`StartError`] when it does not begin; its memory is gone then.
    pub fn start(
        &mut self,
        now_ns: u64,
        number: u32,
        collective: Collective,
        options: Options,
        endpoint: &mut Endpoint,
    ) -> Result<(), StartError> {
        self.start_part(now_ns, number, collective, options, endpoint).map(drop)
    }

    /// As [`Self::start`]; gives which channels have anything to do, by number.
    ///
    /// # Errors
    /// As there.
    pub fn start_part(
        &mut self,
        now_ns: u64,
        number: u32,
        collective: Collective,
        options: Options,
        endpoint: &mut Endpoint,
    ) -> Result<Vec<bool>, StartError> {
        let (rank, world) = (self.home.rank, self.home.world);
        let (endpoint_rank, endpoint_world) = (endpoint.config().rank, endpoint.config().world);
        if (rank, world) != (endpoint_rank, endpoint_world) {
            return Err(StartError::Rank { rank, world, endpoint_rank, endpoint_world });
        }
        if !endpoint.may_begin(number) {
            return Err(StartError::Epoch { number, epoch: self.epoch.number });
        }
        let world = self.config.world;
        if let Some(last) = self.last.filter(|&last| !MessageId::follows(number, last)) {
            return Err(StartError::Order { number, last });
        }
        if options.exact && options.deadline_ns.is_some() {
            return Err(StartError::ExactDeadline { number });
        }
        self.check_elsewhere(number, &collective, &options)?;
        let workers = match &collective {
            Collective::PushPull { servers, .. } => {
                (0..world).filter(|rank| !servers.contains(rank)).collect()
            }
            _ => (0..world).collect::<Vec<_>>(),
        };
        // Sums that are passed on are of f32s, and a server that has no tensor does not know of
        // what type others are.
        let (gathers, pushes) = (
            matches!(collective, Collective::AllGather { .. } | Collective::Broadcast { .. }),
            matches!(collective, Collective::PushPull { .. }),
        );
        let (mut plan, tensors) = self.plan(number, collective, &workers, &options)?;
        plan.iter_mut().for_each(|blueprint| blueprint.name_ranks(&self.epoch.members));
        let direct = !pushes && plan.iter().all(|part| part.depth == 1);
        let halves = tensors.output.as_ref().is_some_and(|output| output.element().size() == 2);
        let packs = options.exact && halves && (gathers || direct);
        let row = 1 << (self.config.row_log2.min(31) + u8::from(packs));
        let part = self.config.part;
        let used = (0..part.channels()).map(|channel| part.of(channel).is_used(&plan, row)).collect();
        let plan = part.narrow(plan, row);
        let buffers = self.buffers.clone();
        let mut scheme = Scheme::new(number, &self.config, options, workers.len(), buffers, endpoint);
        scheme.packs = packs;
        let begun = Operation::start(now_ns, scheme, plan, tensors, &self.figures, endpoint);
        if !matches!(begun, Err(StartError::Layout { .. })) {
            // Its messages have been opened, if only to be given up.
            self.last = Some(number);
        }
        let begun = begun.inspect_err(|error| self.blame_for_start(error))?;
        self.operations.insert(MessageId::number_key(number), begun);
        Ok(used)
    }

    /// What is coded elsewhere is coded there as a whole, and passed on nowhere.
    fn check_elsewhere(
        &self,
        number: u32,
        collective: &Collective,
        options: &Options,
    ) -> Result<(), StartError> {
        let (input, output) = match collective {
            Collective::AllReduce { tensor } => (tensor, tensor),
            Collective::ReduceScatter { input, output } | Collective::AllGather { input, output } => {
                (input, output)
            }
            Collective::AllToAll { input, output, .. } => {
                let here = input.device().is_none() && output.device().is_none();
                return if here { Ok(()) } else { Err(StartError::ElsewhereOperation { number }) };
            }
            Collective::Broadcast { tensor, .. }
            | Collective::Reduce { tensor, .. }
            | Collective::PushPull { tensor: Some(tensor), .. } => {
                let here = tensor.device().is_none();
                return if here { Ok(()) } else { Err(StartError::ElsewhereOperation { number }) };
            }
            Collective::PushPull { tensor: None, .. } => return Ok(()),
        };
        match (input.device(), output.device()) {
            (None, None) => return Ok(()),
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) && !options.exact => {}
            _ => return Err(StartError::ElsewhereOperation { number }),
        }
        let length = input.len().max(output.len());
        match options.algorithm.choose(length, &self.hosts, options) {
            Algorithm::Direct => Ok(()),
            algorithm => Err(StartError::ElsewhereAlgorithm { number, algorithm }),
        }
    }

    fn plan(
        &self,
        number: u32,
        collective: Collective,
        workers: &[u16],
        options: &Options,
    ) -> Result<(Vec<plan::Blueprint>, Tensors), StartError> {
        let (rank, world) = (self.config.rank, self.config.world);
        let ranks = Ranks { rank, world };
        let length = |what, tensor: &Memory, expected| match tensor.len() {
            got if got == expected => Ok(()),
            got => Err(StartError::Length { number, what, got, expected, world }),
        };
        let known =
            |rank| if rank < world { Ok(()) } else { Err(StartError::NoRank { number, rank, world }) };
        let like = |input: &Memory, output: &Memory| {
            let (input, output) = (input.element(), output.element());
            if input == output { Ok(()) } else { Err(StartError::Type { number, input, output }) }
        };
        let consistent = options.replicas == Replicas::Consistent && !options.exact;
        let trees = |length: usize| match options.algorithm.choose(length, &self.hosts, options) {
            // Owners agree with each receiver on what all decode.
            algorithm @ (Algorithm::Ring | Algorithm::TwoLevel) if consistent => {
                Err(StartError::Algorithm { number, algorithm })
            }
            algorithm => Ok(Trees::new(algorithm, &self.hosts)),
        };
        let apart = |input, output| Tensors { input: Some(input), output: Some(output) };
        let in_place = |output| Tensors { input: None, output };
        Ok(match collective {
            Collective::AllReduce { tensor } => {
                let trees = trees(tensor.len())?;
                let owners = trees.owners(world, most_shards(tensor.len()));
                (plan::all_reduce(ranks, tensor.len(), trees, &owners), in_place(Some(tensor)))
            }
            Collective::ReduceScatter { input, output } => {
                length("output", &output, shard_range(input.len(), world, rank).len())?;
                like(&input, &output)?;
                let trees = trees(input.len())?.with_all_owners();
                (plan::reduce_scatter(ranks, input.len(), trees), apart(input, output))
            }
            Collective::AllGather { input, output } => {
                length("input", &input, shard_range(output.len(), world, rank).len())?;
                like(&input, &output)?;
                let trees = trees(output.len())?.with_all_owners();
                (plan::all_gather(ranks, output.len(), trees), apart(input, output))
            }
            Collective::Broadcast { tensor, root } => {
                known(root)?;
                let direct = consistent || options.algorithm == Algorithm::Direct;
                (plan::broadcast(ranks, tensor.len(), root, direct), in_place(Some(tensor)))
            }
            Collective::Reduce { tensor, root } => {
                known(root)?;
                let trees = trees(tensor.len())?;
                (plan::reduce(ranks, tensor.len(), root, trees), in_place(Some(tensor)))
            }
            Collective::AllToAll { input, output, to, from } => {
                if !options.exact {
                    return Err(StartError::Lossy { number });
                }
                for (what, lengths) in
                    [("list of lengths to send", &to), ("list of lengths to receive", &from)]
                {
                    if lengths.len() != usize::from(world) {
                        let (got, expected) = (lengths.len(), usize::from(world));
                        return Err(StartError::Length { number, what, got, expected, world });
                    }
                }
                let sum =
                    |lengths: &[usize]| lengths.iter().fold(0_usize, |sum, &part| sum.saturating_add(part));
                length("input", &input, sum(&to))?;
                length("output", &output, sum(&from))?;
                let own = usize::from(rank);
                if to[own] != from[own] {
                    let (got, expected) = (from[own], to[own]);
                    return Err(StartError::Length { number, what: "part for itself", got, expected, world });
                }
                like(&input, &output)?;
                (plan::all_to_all(ranks, &to, &from), apart(input, output))
            }
            Collective::PushPull { tensor, length: coordinates, servers } => {
                if servers.is_empty() {
                    return Err(StartError::NoServer { number });
                }
                servers.iter().try_for_each(|&server| known(server))?;
                if let Some(tensor) = &tensor {
                    length("tensor", tensor, coordinates)?;
                } else if !servers.contains(&rank) {
                    return Err(StartError::Length {
                        number,
                        what: "tensor",
                        got: 0,
                        expected: coordinates,
                        world,
                    });
                }
                (plan::push_pull(ranks, coordinates, &servers, workers), in_place(tensor))
            }
        })
    }

    /// Takes an event of the endpoint; events of messages that are not this communicator's are
    /// ignored.
    pub fn handle_event(&mut self, now_ns: u64, event: Event, endpoint: &mut Endpoint) {
        if let Event::Epoch(change) = event {
            return self.on_change(now_ns, change, endpoint);
        }
        let (Event::Row { message, .. }
        | Event::Received { message, .. }
        | Event::Passed { message, .. }
        | Event::Sent { message, .. }
        | Event::Agreed { message, .. }
        | Event::Failed { message, .. }) = event
        else {
            return;
        };
        let id = MessageId::from_u32(message);
        let Some(operation) = self.operations.get_mut(&id.number) else { return };
        if operation.has_failed() {
            return;
        }
        if let Err(error) = operation.handle_event(now_ns, id, event, endpoint) {
            operation.give_up(now_ns, error, endpoint);
            if let OperationError::Transfer { reason, .. } = error {
                self.blame(reason.blame());
            }
        }
    }

    /// Gives an operation up, here and at the other ranks. `false`: no such operation is on its
    /// way.
    pub fn cancel(&mut self, now_ns: u64, number: u32, endpoint: &mut Endpoint) -> bool {
        let Some(operation) = self.operations.get_mut(&MessageId::number_key(number)) else { return false };
        operation.give_up(now_ns, OperationError::Cancelled { number }, endpoint);
        true
    }

    /// Gives an operation up, if it is under way, because another part of it has failed: other
    /// ranks hear of the same culprit.
    pub fn fail(&mut self, now_ns: u64, number: u32, error: OperationError, endpoint: &mut Endpoint) {
        if let Some(blame) = error.blame() {
            self.blame(blame);
        }
        if let Some(operation) = self.operations.get_mut(&MessageId::number_key(number)) {
            operation.give_up(now_ns, error, endpoint);
        }
    }

    /// A piece of work, if there is any: of the most urgent class first, then of the oldest
    /// operation. It is to be run, anywhere, and brought back.
    pub fn poll_task(&mut self, endpoint: &Endpoint) -> Option<Task> {
        (0..LAYER_CLASSES).find_map(|class| {
            let mut urgent = self.operations.iter_mut().filter(|(_, operation)| operation.class() == class);
            urgent.find_map(|(&key, operation)| operation.poll_task(key, endpoint))
        })
    }

    /// Takes a task back that is done.
    pub fn complete(&mut self, now_ns: u64, done: Done, endpoint: &mut Endpoint) {
        let Some(operation) = self.operations.get_mut(&done.key.operation) else { return };
        if let Err(error) = operation.complete(now_ns, done, &mut self.figures, endpoint) {
            operation.give_up(now_ns, error, endpoint);
        }
    }

    /// Does a piece of work itself. `false`: there is none; only an event of the endpoint, or room
    /// in its queues, brings more.
    pub fn work(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> bool {
        let Some(task) = self.poll_task(endpoint) else { return false };
        self.complete(now_ns, task.run(), endpoint);
        true
    }

    /// An operation that is over.
    pub fn poll_outcome(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> Option<Outcome> {
        let over = self.operations.iter().find(|(_, operation)| operation.is_over());
        let key = over.map(|(&key, _)| key)?;
        let operation = self.operations.remove(&key)?;
        self.retire(endpoint);
        Some(operation.outcome(now_ns, endpoint))
    }

    /// Tells the endpoint which messages are over.
    fn retire(&self, endpoint: &mut Endpoint) {
        let Some(last) = self.last else { return };
        let active = self.operations.values().map(Operation::number);
        let older = |oldest, number| if MessageId::follows(oldest, number) { number } else { oldest };
        let oldest = active.fold(last.wrapping_add(1), older);
        endpoint.retire(MessageId::new(oldest, Phase::ReduceScatter, 0).to_u32());
    }

    /// Operations that have begun and not ended.
    pub fn active(&self) -> impl Iterator<Item = u32> + '_ {
        self.operations.values().map(Operation::number)
    }
}

impl std::ops::AddAssign for OutcomeStats {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.full += other.full;
        self.trimmed += other.trimmed;
        self.missing += other.missing;
        self.bytes_expected += other.bytes_expected;
        self.bytes_received += other.bytes_received;
        self.sent += other.sent;
        self.repaired += other.repaired;
        self.bytes_sent += other.bytes_sent;
        self.retransmitted_bytes += other.retransmitted_bytes;
    }
}
