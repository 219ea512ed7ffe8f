// SPDX-License-Identifier: Apache-2.0
//! Data that arrived before the application expected it: ranks are not in lock-step.
//!
//! It is kept, but not acknowledged: what finds no room, or is never asked for, is the sender's to
//! send again. A sender knows how much may be here, all its messages together, and has no more on
//! its way; an honest one never finds the store full.

use crate::transfer::incoming::{Arrival, Tally};
use crate::transfer::loss::Load;
use crate::wire::Probe;
use std::collections::BTreeMap;
use trimwire_encoder::HeaderMask;

/// What a packet counts for beside its bytes.
const OVERHEAD: usize = 64;
/// Messages of which something is kept, a question at least.
const MESSAGES: usize = 4_096;

/// What packets take of the store's room.
pub(super) fn early_bytes(load: Load) -> u64 {
    load.bytes + load.packets * OVERHEAD as u64
}

/// What arrived early from one peer.
#[derive(Debug)]
pub(super) struct Early {
    messages: BTreeMap<u32, EarlyMessage>,
    bytes: usize,
    limit: usize,
}

#[derive(Debug, Default)]
pub(super) struct EarlyMessage {
    pub(super) packets: Vec<(Arrival, Vec<u8>)>,
    pub(super) tally: Tally,
    /// The newest question, to be answered when the application asks.
    pub(super) probe: Option<Probe>,
    pub(super) ack_queued: bool,
}

impl Early {
    pub(super) fn new(limit: usize) -> Self {
        Self { messages: BTreeMap::new(), bytes: 0, limit }
    }

    /// Keeps a datagram without the mask that is over its header, if there is room. `None`:
    /// dropped.
    pub(super) fn keep(
        &mut self,
        id: u32,
        arrival: Arrival,
        payload: &[u8],
        mask: HeaderMask,
    ) -> Option<&mut EarlyMessage> {
        let message = self.message(id, payload.len() + OVERHEAD)?;
        let mut bare = payload.to_vec();
        mask.apply(&mut bare);
        message.packets.push((arrival, bare));
        Some(message)
    }

    /// Keeps a question, if there is room for the message.
    pub(super) fn keep_probe(&mut self, id: u32, probe: Probe) {
        if let Some(message) = self.message(id, 0) {
            message.probe = Some(probe);
        }
    }

    fn message(&mut self, id: u32, bytes: usize) -> Option<&mut EarlyMessage> {
        let is_new = !self.messages.contains_key(&id);
        if self.bytes + bytes > self.limit || (is_new && self.messages.len() >= MESSAGES) {
            return None;
        }
        self.bytes += bytes;
        Some(self.messages.entry(id).or_default())
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut EarlyMessage> {
        self.messages.get_mut(&id)
    }

    /// Hands a message over to the application that expects it, or forgets it.
    pub(super) fn take(&mut self, id: u32) -> Option<EarlyMessage> {
        let message = self.messages.remove(&id)?;
        let bytes: usize = message.packets.iter().map(|(_, payload)| payload.len() + OVERHEAD).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(message)
    }

    /// Forgets all messages of which `gone` is true.
    pub(super) fn forget(&mut self, gone: impl Fn(u32) -> bool) {
        let ids: Vec<u32> = self.messages.keys().copied().filter(|&id| gone(id)).collect();
        for id in ids {
            self.take(id);
        }
    }

    /// Bytes kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
