// SPDX-License-Identifier: Apache-2.0
//! Which digests are on, and how they are sent (P4Runtime, "DigestEntry").

use super::super::digests::{Config, Digests};
use super::super::ledger::Ledger;
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

/// Makes the sender of digests do what is written.
pub(crate) fn subscribe(digests: &mut Digests, index: &Index, ledger: &Ledger) {
    let ns = |time: i64| time.max(0) as u64;
    let wanted: BTreeMap<u32, Config> = ledger
        .digests
        .iter()
        .filter_map(|(name, config)| {
            let id = index.digest(name.as_str()).ok()?.id();
            let config = Config {
                max_timeout_ns: ns(config.max_timeout_ns),
                max_list_size: config.max_list_size.max(0) as usize,
                ack_timeout_ns: ns(config.ack_timeout_ns),
            };
            Some((id, config))
        })
        .collect();
    digests.configure(wanted);
}
