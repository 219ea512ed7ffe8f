//! Message ids of collectives.

/// Bits of the step that fit a message id. Steps are serial numbers (RFC 1982): they ascend, and are compared modulo 2^21, of which ranks are never half apart.
pub const STEP_BITS: u32 = 21;

const SHARD_BITS: u32 = 10;

/// A half of an all-reduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Parts travel to the shard's owner.
    ReduceScatter,
    /// The owner's sum travels to everyone.
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

/// What a message of a collective is about: `step:21 | phase:1 | shard:10`. One to one with a u32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageId {
    /// Low [`STEP_BITS`] bits of the step.
    pub step: u32,
    /// The phase.
    pub phase: Phase,
    /// The shard, which is its owner's rank.
    pub shard: u16,
}

impl MessageId {
    /// The bits of a step that are in its messages' ids.
    pub fn step_key(step: u32) -> u32 {
        step & ((1 << STEP_BITS) - 1)
    }

    /// Whether `step` comes after `last`, as serial numbers of [`STEP_BITS`] bits (RFC 1982).
    pub fn follows(step: u32, last: u32) -> bool {
        let ahead = Self::step_key(step.wrapping_sub(last));
        ahead != 0 && ahead < 1 << (STEP_BITS - 1)
    }

    /// The message of a step; bits that do not fit are left out.
    pub fn new(step: u32, phase: Phase, shard: u16) -> Self {
        Self { step: Self::step_key(step), phase, shard: shard & ((1 << SHARD_BITS) - 1) }
    }

    /// As it is on the wire.
    pub fn to_u32(self) -> u32 {
        self.step << (SHARD_BITS + 1) | (self.phase as u32) << SHARD_BITS | u32::from(self.shard)
    }

    /// From the wire; every value is some message's.
    pub fn from_u32(id: u32) -> Self {
        Self {
            step: id >> (SHARD_BITS + 1),
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
        fn steps_less_than_two_million_apart_never_share_an_id(step: u32, ahead in 1_u32..(1 << STEP_BITS), shard in 0_u16..1_024) {
            let id = |step| MessageId::new(step, Phase::AllGather, shard).to_u32();
            prop_assert_ne!(id(step), id(step.wrapping_add(ahead)));
        }
    }
}
