// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with an operation.

use super::memory::ElementType;
use super::{Algorithm, Phase};
use crate::endpoint::{ExpectError, SendError};
use crate::transfer::TransferError;
use crate::wire::Reason;
use trimwire_encoder::{EncodeError, LayoutError};

/// Why an operation is not started. Nothing has been sent then, and its number is free.
#[expect(missing_docs, reason = "messages say what the fields are")]
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The endpoint is another rank's, or of another number of ranks.
    #[error(
        "the communicator is rank {rank} of {world}, its endpoint rank {endpoint_rank} of {endpoint_world}"
    )]
    Rank { rank: u16, world: u16, endpoint_rank: u16, endpoint_world: u16 },
    /// Operations are numbered in ascending order (modulo 2^[`super::NUMBER_BITS`]), and each
    /// number is used once, whether its operation ended well or not.
    #[error(
        "operation {number} does not come after operation {last}; numbers ascend, and those of operations that failed are not used again"
    )]
    Order {
        number: u32,
        /// That of the last one that began.
        last: u32,
    },
    /// Somebody wants the next epoch, or this rank is in none.
    #[error(
        "operation {number} does not begin: epoch {epoch} is over, or this rank was never in it; the next one comes by `shrink`, `grow` or `join`"
    )]
    Epoch { number: u32, epoch: u32 },
    /// Message ids do not tell so many channels and ranks apart.
    #[error("{channels} channels of {world} ranks: at most {most} are possible")]
    Channels { channels: u16, world: u16, most: u16 },
    /// There is no such rank.
    #[error("operation {number}: there is no rank {rank}; valid are those below {world}")]
    NoRank { number: u32, rank: u16, world: u16 },
    /// A push-pull has no servers.
    #[error("operation {number}: there are no servers; a push-pull needs at least one")]
    NoServer { number: u32 },
    /// Consistent replicas need the direct algorithm.
    #[error(
        "operation {number}: replicas that are to be consistent need the direct algorithm, not {algorithm}"
    )]
    Algorithm { number: u32, algorithm: Algorithm },
    /// Exact operations have no deadline.
    #[error("operation {number}: what is exact has no deadline")]
    ExactDeadline { number: u32 },
    /// Lengths of two tensors do not fit each other.
    #[error(
        "operation {number}: the {what} has {got} elements, and has to have {expected} for {world} ranks"
    )]
    Length { number: u32, what: &'static str, got: usize, expected: usize, world: u16 },
    /// Two tensors are of different number formats.
    #[error("operation {number}: the input is {input}, the output {output}; they have to be of one type")]
    Type { number: u32, input: ElementType, output: ElementType },
    /// Tensors that are coded elsewhere need the direct algorithm.
    #[error(
        "operation {number}: rows that are coded elsewhere need the direct algorithm, not {algorithm}; it has to be the same at all ranks"
    )]
    ElsewhereAlgorithm {
        number: u32,
        /// The algorithm that was asked for, or is chosen for such a tensor among these hosts.
        algorithm: Algorithm,
    },
    /// The operation cannot be coded elsewhere.
    #[error(
        "operation {number}: all-reduces, reduce-scatters and all-gathers that may be trimmed are coded elsewhere, both of their tensors, and nothing else"
    )]
    ElsewhereOperation { number: u32 },
    /// The operation has no lossy form.
    #[error("operation {number}: an all-to-all moves every bit: it needs `exact`")]
    Lossy { number: u32 },
    /// A shard cannot be divided into packets.
    #[error("operation {number}, shard {shard}: {reason}")]
    Layout { number: u32, shard: u16, reason: LayoutError },
    /// The endpoint refuses to send.
    #[error("operation {number}: {reason}")]
    Send { number: u32, reason: SendError },
    /// The endpoint refuses to expect.
    #[error("operation {number}: {reason}")]
    Expect { number: u32, reason: ExpectError },
}

/// Why an operation failed. It is over then, here and at the other ranks, who are told.
#[expect(missing_docs, reason = "messages say what the fields are")]
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// A transfer was given up.
    #[error("operation {number}, {phase} of shard {shard}: {reason}")]
    Transfer { number: u32, phase: Phase, shard: u16, reason: TransferError },
    /// A row cannot be encoded.
    #[error("operation {number}, shard {shard}: {reason}")]
    Encode {
        number: u32,
        /// The shard; coordinates are counted from its beginning.
        shard: u16,
        reason: EncodeError,
    },
    /// The encoder wrote something else than a row's packets.
    #[error(
        "operation {number}, shard {shard}: a row was encoded to packets of other lengths than its layout's"
    )]
    Mismatch { number: u32, shard: u16 },
    /// The agreed precision cannot be told.
    #[error("operation {number}, shard {shard}: {reason}")]
    Agree { number: u32, shard: u16, reason: SendError },
    /// A row is coded elsewhere, and that failed.
    #[error("operation {number}, shard {shard}: a row is coded elsewhere, where that failed")]
    Elsewhere { number: u32, shard: u16 },
    /// One of this rank's channels has ended, and its part of the operation with it.
    #[error("operation {number}: channel {channel} of {channels} of this rank has ended: {why}")]
    Channel { number: u32, channel: u16, channels: u16, why: ChannelEnd },
    /// A channel cannot begin its part.
    #[error("channel {channel}: {reason}")]
    Part { channel: u16, reason: StartError },
    /// Ranks agree on who is left: everything that was under way is void.
    #[error("operation {number} is void: ranks agree on epoch {epoch}")]
    Void { number: u32, epoch: u32 },
    /// It was cancelled at this rank.
    #[error("operation {number} was cancelled")]
    Cancelled { number: u32 },
}

/// Why a channel has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelEnd {
    /// Its sockets cannot be used any more.
    #[error("its sockets cannot be used any more ({0})")]
    Sockets(std::io::ErrorKind),
    /// A defect of this program.
    #[error("its thread panicked, which is a defect of Trimwire")]
    Panic,
}

impl OperationError {
    /// The rank to blame, as it was numbered in the beginning; `None` where no other rank is.
    pub fn culprit(&self) -> Option<u16> {
        self.blame().map(|(culprit, _)| culprit)
    }

    /// Likewise, and what it is blamed for.
    pub(super) fn blame(&self) -> Option<(u16, Reason)> {
        match self {
            Self::Transfer { reason, .. } => Some(reason.blame()),
            Self::Part { reason, .. } => reason.blame(),
            _ => None,
        }
    }
}

impl StartError {
    /// The rank that gave the operation up before it began here, and why.
    pub(super) fn blame(&self) -> Option<(u16, Reason)> {
        match *self {
            Self::Send { reason: SendError::Aborted { culprit, reason, .. }, .. }
            | Self::Expect { reason: ExpectError::Aborted { culprit, reason, .. }, .. } => {
                Some((culprit, reason))
            }
            _ => None,
        }
    }
}
