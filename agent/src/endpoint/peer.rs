//! What an endpoint keeps per peer; all of it bounded.

use crate::pacing::Pacer;
use crate::rate::RateLaw;
use crate::transfer::incoming::{Finished, Progress};
use crate::transfer::outgoing::Path;
use crate::wire::Probe;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Finished transfers that are remembered, so that a sender whose STOP was lost gets another one.
const FINISHED_MAX: usize = 1_024;
/// What an early message counts for beside its packets, bytes; likewise each packet.
const EARLY_OVERHEAD: usize = 64;

/// Another rank.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rate: Box<dyn RateLaw>,
    pub(super) pacer: Pacer,
    pub(super) path: Path,
    /// Messages with data to send: (order, id).
    pub(super) sending: BTreeSet<(u64, u32)>,
    /// Whether the peer is among those ready to send.
    pub(super) ready: bool,
    pub(super) early: Early,
    finished: BTreeMap<u32, Finished>,
    finished_order: VecDeque<u32>,
}

impl Peer {
    pub(super) fn new(rate: Box<dyn RateLaw>, early_bytes: usize) -> Self {
        Self {
            rate,
            pacer: Pacer::default(),
            path: Path::default(),
            sending: BTreeSet::new(),
            ready: false,
            early: Early { messages: BTreeMap::new(), bytes: 0, limit: early_bytes },
            finished: BTreeMap::new(),
            finished_order: VecDeque::new(),
        }
    }

    pub(super) fn finished_mut(&mut self, id: u32) -> Option<&mut Finished> {
        self.finished.get_mut(&id)
    }

    pub(super) fn remember(&mut self, id: u32, finished: Finished) {
        if self.finished.insert(id, finished).is_none() {
            self.finished_order.push_back(id);
        }
        if self.finished_order.len() > FINISHED_MAX
            && let Some(oldest) = self.finished_order.pop_front()
        {
            self.finished.remove(&oldest);
        }
    }

    /// A message id is used again.
    pub(super) fn forget(&mut self, id: u32) {
        if self.finished.remove(&id).is_some() {
            self.finished_order.retain(|&other| other != id);
        }
    }
}

/// Data that arrived before the application expected it: ranks are not in lock-step.
#[derive(Debug)]
pub(super) struct Early {
    messages: BTreeMap<u32, EarlyMessage>,
    bytes: usize,
    limit: usize,
}

#[derive(Debug, Default)]
pub(super) struct EarlyMessage {
    /// Payloads, and whether their DSCP said that they were cut.
    pub(super) packets: Vec<(bool, Vec<u8>)>,
    pub(super) progress: Progress,
    /// The newest question, to be answered when the application asks.
    pub(super) probe: Option<Probe>,
    pub(super) ack_queued: bool,
    pub(super) answer_queued: bool,
}

impl Early {
    /// Keeps a datagram, if there is room. `None`: dropped.
    pub(super) fn keep(&mut self, id: u32, cut: bool, payload: &[u8]) -> Option<&mut EarlyMessage> {
        let bytes = payload.len() + EARLY_OVERHEAD;
        let message = self.message(id, bytes)?;
        message.packets.push((cut, payload.to_vec()));
        Some(message)
    }

    /// Keeps a question, if there is room for the message.
    pub(super) fn keep_probe(&mut self, id: u32, probe: Probe) -> Option<&mut EarlyMessage> {
        let message = self.message(id, 0)?;
        message.probe = Some(probe);
        Some(message)
    }

    fn message(&mut self, id: u32, bytes: usize) -> Option<&mut EarlyMessage> {
        let bytes = bytes + if self.messages.contains_key(&id) { 0 } else { EARLY_OVERHEAD };
        if self.bytes + bytes > self.limit {
            return None;
        }
        self.bytes += bytes;
        Some(self.messages.entry(id).or_default())
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut EarlyMessage> {
        self.messages.get_mut(&id)
    }

    /// Hands a message over to the application that expects it.
    pub(super) fn take(&mut self, id: u32) -> Option<EarlyMessage> {
        let message = self.messages.remove(&id)?;
        let bytes: usize = message.packets.iter().map(|(_, payload)| payload.len() + EARLY_OVERHEAD).sum();
        self.bytes = self.bytes.saturating_sub(bytes + EARLY_OVERHEAD);
        Some(message)
    }
}
