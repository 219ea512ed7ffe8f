// SPDX-License-Identifier: Apache-2.0
//! Message ids of collectives.

/// Bits of an operation's number that fit a message id. Numbers are serial numbers (RFC 1982): they
/// ascend, and are compared modulo 2^21, of which ranks are never half apart.
pub const NUMBER_BITS: u32 = 21;

const SHARD_BITS: u32 = 10;

/// A half of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Parts travel to the shard's owner.
    ReduceScatter,
    /// The owner's shard travels to everyone.
    AllGather,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "all-gather",
        })
    }
}

/// What a message of a collective is about: `number:21 | phase:1 | shard:10`. One to one with a
/// u32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageId {
    /// Low [`NUMBER_BITS`] bits of the operation's number.
    pub number: u32,
    /// The phase.
    pub phase: Phase,
    /// The shard, which in most operations is its owner's rank.
    pub shard: u16,
}

impl MessageId {
    /// The bits of a number that are in its messages' ids.
    pub fn number_key(number: u32) -> u32 {
        number & ((1 << NUMBER_BITS) - 1)
    }

    /// Whether `number` comes after `last`, as serial numbers of [`NUMBER_BITS`] bits (RFC 1982).
    pub fn follows(number: u32, last: u32) -> bool {
        let ahead = Self::number_key(number.wrapping_sub(last));
        ahead != 0 && ahead < 1 << (NUMBER_BITS - 1)
    }

    /// A message of an operation; bits that do not fit are left out.
    pub fn new(number: u32, phase: Phase, shard: u16) -> Self {
        Self { number: Self::number_key(number), phase, shard: shard & ((1 << SHARD_BITS) - 1) }
    }

    /// As it is on the wire.
    pub fn to_u32(self) -> u32 {
        self.number << (SHARD_BITS + 1) | (self.phase as u32) << SHARD_BITS | u32::from(self.shard)
    }

    /// From the wire; every value is some message's.
    pub fn from_u32(id: u32) -> Self {
        Self {
            number: id >> (SHARD_BITS + 1),
            phase: if id >> SHARD_BITS & 1 == 0 { Phase::ReduceScatter } else { Phase::AllGather },
            shard: (id & ((1 << SHARD_BITS) - 1)) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_id_is_one_message_and_back(id: u32) {
            prop_assert_eq!(MessageId::from_u32(id).to_u32(), id);
        }

        #[test]
        fn operations_less_than_two_million_apart_never_share_an_id(number: u32, ahead in 1_u32..(1 << NUMBER_BITS), shard in 0_u16..1_024) {
            let id = |number| MessageId::new(number, Phase::AllGather, shard).to_u32();
            prop_assert_ne!(id(number), id(number.wrapping_add(ahead)));
        }
    }
}
