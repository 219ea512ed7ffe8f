// SPDX-License-Identifier: Apache-2.0
//! Digest messages on their way to the primary: lists, time-outs, and the cache of what has been
//! sent but not acknowledged (P4Runtime, "DigestEntry"). Sans-IO: callers pass the time, in ns of
//! any clock that does not run backwards.
//!
//! Order of calls: [`Digests::configure`] whenever what is on changes, [`Digests::handle_digest`]
//! for what the program sends, [`Digests::handle_ack`] for what the primary says,
//! [`Digests::handle_timeout`] now and then; after each, drain [`Digests::poll_list`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How the messages of a digest are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Config {
    /// The longest that a message waits for others, in ns.
    pub(super) max_timeout_ns: u64,
    /// Messages in a list.
    pub(super) max_list_size: usize,
    /// Unacknowledged messages that are kept; beyond it the oldest lists are forgotten, and may be
    /// sent again.
    pub(super) most_cached: usize,
    /// How long an unacknowledged message keeps its duplicates from being sent, in ns.
    pub(super) ack_timeout_ns: u64,
}

/// A list to send.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_field_names, reason = "DigestList's own names")]
pub(super) struct List {
    pub(super) digest_id: u32,
    pub(super) list_id: u64,
    pub(super) messages: Vec<Fields>,
}

/// A message's fields, as the program sent them. Duplicates are known by them.
pub(super) type Fields = Arc<[Vec<u8>]>;

#[derive(Debug)]
struct Unacknowledged {
    list_id: u64,
    sent_ns: u64,
    messages: Vec<Fields>,
}

#[derive(Debug)]
struct Digest {
    config: Config,
    /// Waiting, oldest first, and when the first of them came.
    buffer: Vec<Fields>,
    first_ns: u64,
    /// Sent and not acknowledged, oldest first.
    cache: VecDeque<Unacknowledged>,
    /// What is in `buffer` or `cache`.
    known: BTreeSet<Fields>,
}

/// All digests that are on.
#[derive(Debug, Default)]
pub(super) struct Digests {
    on: BTreeMap<u32, Digest>,
    ready: VecDeque<List>,
    last_list: u64,
}

impl Digests {
    /// Whether messages wait for others to fill a list.
    pub(super) fn is_waiting(&self) -> bool {
        self.on.values().any(|digest| !digest.buffer.is_empty())
    }

    /// Makes `wanted` the digests that are on. Those that stay on keep their messages, under their
    /// new configuration.
    pub(super) fn configure(&mut self, wanted: BTreeMap<u32, Config>) {
        self.on.retain(|id, _| wanted.contains_key(id));
        for (id, config) in wanted {
            let new = || Digest {
                config,
                buffer: Vec::new(),
                first_ns: 0,
                cache: VecDeque::new(),
                known: BTreeSet::new(),
            };
            self.on.entry(id).or_insert_with(new).config = config;
        }
    }

    /// Forgets everything that waits or is unacknowledged: another program, or another primary.
    pub(super) fn clear(&mut self) {
        for digest in self.on.values_mut() {
            digest.buffer.clear();
            digest.cache.clear();
            digest.known.clear();
        }
        self.ready.clear();
    }

    /// Whether a digest is on.
    pub(super) fn is_on(&self, digest_id: u32) -> bool {
        self.on.contains_key(&digest_id)
    }

    /// A message of the program's.
    pub(super) fn handle_digest(&mut self, now_ns: u64, digest_id: u32, fields: Fields) {
        let Some(digest) = self.on.get_mut(&digest_id) else { return };
        digest.expire(now_ns);
        if digest.known.contains(&fields) {
            return;
        }
        if digest.buffer.is_empty() {
            digest.first_ns = now_ns;
        }
        digest.known.insert(Arc::clone(&fields));
        digest.buffer.push(fields);
        if digest.buffer.len() >= digest.config.max_list_size || digest.config.max_timeout_ns == 0 {
            self.send(now_ns, digest_id);
        }
    }

    /// The primary has acted on a list; false when there is no such list, or it has expired.
    pub(super) fn handle_ack(&mut self, digest_id: u32, list_id: u64) -> bool {
        let Some(digest) = self.on.get_mut(&digest_id) else { return false };
        let Some(at) = digest.cache.iter().position(|sent| sent.list_id == list_id) else { return false };
        if let Some(sent) = digest.cache.remove(at) {
            digest.forget(&sent);
        }
        true
    }

    /// Time has passed: sends what has waited long enough, and forgets what has not been
    /// acknowledged in time.
    pub(super) fn handle_timeout(&mut self, now_ns: u64) {
        self.on.values_mut().for_each(|digest| digest.expire(now_ns));
        let due: Vec<u32> = self
            .on
            .iter()
            .filter(|(_, digest)| digest.send_at().is_some_and(|at_ns| at_ns <= now_ns))
            .map(|(id, _)| *id)
            .collect();
        due.into_iter().for_each(|id| self.send(now_ns, id));
    }

    /// The next list to send.
    pub(super) fn poll_list(&mut self) -> Option<List> {
        self.ready.pop_front()
    }

    fn send(&mut self, now_ns: u64, digest_id: u32) {
        let Some(digest) = self.on.get_mut(&digest_id) else { return };
        self.last_list += 1;
        let list_id = self.last_list;
        let messages = std::mem::take(&mut digest.buffer);
        let sent = Unacknowledged { list_id, sent_ns: now_ns, messages: messages.clone() };
        if digest.config.ack_timeout_ns == 0 {
            digest.forget(&sent);
        } else {
            digest.cache.push_back(sent);
        }
        while digest.known.len() > digest.config.most_cached
            && let Some(oldest) = digest.cache.pop_front()
        {
            digest.forget(&oldest);
        }
        self.ready.push_back(List { digest_id, list_id, messages });
    }
}

impl Digest {
    fn expire(&mut self, now_ns: u64) {
        while let Some(oldest) = self.cache.front()
            && now_ns.saturating_sub(oldest.sent_ns) >= self.config.ack_timeout_ns
            && let Some(oldest) = self.cache.pop_front()
        {
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, sent: &Unacknowledged) {
        for message in &sent.messages {
            self.known.remove(message);
        }
    }

    fn send_at(&self) -> Option<u64> {
        (!self.buffer.is_empty()).then(|| self.first_ns.saturating_add(self.config.max_timeout_ns))
    }
}

#[cfg(test)]
mod tests;
