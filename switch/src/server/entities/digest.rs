// SPDX-License-Identifier: Apache-2.0
//! Which digests are on, and how they are sent (P4Runtime, "DigestEntry").

use super::super::costs::Costs;
use super::super::digests::{Config, Digests};
use super::super::ledger::Ledger;
use super::super::limits::STREAM_BYTES;
use super::target::{Kind, Refusal, Result, Target};
use std::collections::BTreeMap;
use tonic::Code;
use trimwire_p4runtime::p4info::{Index, Named as _};
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::update::Type;

impl Target<'_> {
    pub(super) fn write_digest(&mut self, kind: Type, entry: &v1::DigestEntry) -> Result<()> {
        let name = self.index.digest(entry.digest_id)?.name();
        let on = self.ledger.digests.contains_key(name);
        match kind {
            Type::Insert if on => {
                return Err(Refusal::new(Code::AlreadyExists, format!("digest {name} is on already")));
            }
            Type::Modify | Type::Delete if !on => {
                return Err(Refusal::new(
                    Code::NotFound,
                    format!("digest {name} is not on; insert it first"),
                ));
            }
            Type::Delete => {
                self.ledger.set_digest(name, None);
            }
            _ => {
                self.ledger.set_digest(name, Some(entry.config.unwrap_or_default()));
            }
        }
        Ok(())
    }

    pub(super) fn read_digests(&self, filter: &v1::DigestEntry) -> Vec<Kind> {
        let digests = self.index.p4info().digests.iter();
        digests
            .filter(|digest| filter.digest_id == 0 || filter.digest_id == digest.id())
            .filter_map(|digest| {
                let config = self.ledger.digests.get(digest.name())?;
                Some(Kind::DigestEntry(v1::DigestEntry { digest_id: digest.id(), config: Some(*config) }))
            })
            .collect()
    }
}

/// Bytes of a list's messages, which keep it within what gRPC clients take and what waits for a
/// stream's client; and of all lists that wait for others or for acknowledgements.
const LIST_BYTES: u64 = STREAM_BYTES as u64 / 2;
const WAITING_BYTES: u64 = 8 << 20;
const CACHED_BYTES: u64 = 16 << 20;
/// Messages in the largest list, and that are kept without acknowledgement.
const LONGEST_LIST: u64 = 1_024;
const MOST_CACHED: u64 = 65_536;

/// Makes the sender of digests do what is written.
pub(crate) fn subscribe(digests: &mut Digests, index: &Index, ledger: &Ledger, costs: &Costs) {
    let ns = |time: i64| time.max(0) as u64;
    let on = ledger.digests.len().max(1) as u64;
    let wanted: BTreeMap<u32, Config> = ledger
        .digests
        .iter()
        .filter_map(|(name, config)| {
            let id = index.digest(name.as_str()).ok()?.id();
            let bytes = costs.digests.get(&id).copied().unwrap_or_default().max(1);
            let longest = (LIST_BYTES.min(WAITING_BYTES / on) / bytes).clamp(1, LONGEST_LIST) as usize;
            let config = Config {
                max_timeout_ns: ns(config.max_timeout_ns),
                max_list_size: match config.max_list_size {
                    size if size > 0 => longest.min(size as usize),
                    _ => longest,
                },
                most_cached: (CACHED_BYTES / on / bytes).clamp(1, MOST_CACHED) as usize,
                ack_timeout_ns: ns(config.ack_timeout_ns),
            };
            Some((id, config))
        })
        .collect();
    digests.configure(wanted);
}
