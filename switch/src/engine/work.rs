// SPDX-License-Identifier: Apache-2.0
//! What a pipeline works with beside the program and its state.

use super::calculation::Scratch;
use super::flow_cache::FlowCache;
use super::random::Random;
use super::trace::Recorder;

/// The random stream, and scratch space that keeps its allocation from packet to packet.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) random: Random,
    pub(super) scratch: Scratch,
    pub(super) key: Vec<u64>,
    pub(super) masked: Vec<u64>,
    pub(super) flows: FlowCache,
    /// Without machine code, though there may be some.
    pub(super) interpreted: bool,
    /// Carried out so far.
    #[cfg(test)]
    pub(super) instructions: u64,
    /// Present while tracing is on.
    pub(super) trace: Option<Box<Recorder>>,
}

impl Work {
    /// With a flow cache for so many flows.
    pub(super) fn new(random: Random, flows: usize) -> Self {
        Self {
            random,
            scratch: Scratch::default(),
            key: Vec::new(),
            masked: Vec::new(),
            flows: FlowCache::new(flows),
            interpreted: false,
            #[cfg(test)]
            instructions: 0,
            trace: None,
        }
    }
}
