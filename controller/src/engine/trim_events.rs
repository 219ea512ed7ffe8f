// SPDX-License-Identifier: Apache-2.0
//! Digests that tell when a queue starts and stops to trim.

use tonic::Code;
use trimwire_p4runtime::bytes;
use trimwire_p4runtime::client::Client;
use trimwire_p4runtime::entity;
use trimwire_p4runtime::p4info::{Index, Named};
use trimwire_p4runtime::v1::digest_entry::Config;
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{DigestEntry, DigestList, P4Data, p4_data};

/// The digest's name in the P4Info.
const DIGEST: &str = "trimming_t";

/// Lists come soon, since somebody may be watching, and seldom, since each costs as much as dozens
/// of its events.
const CONFIG: Config =
    Config { max_timeout_ns: 100_000_000, max_list_size: 128, ack_timeout_ns: 1_000_000_000 };

/// A queue starts or stops to trim packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TrimEvent {
    pub port: u16,
    pub queue: u8,
    pub starts: bool,
    /// Bytes waiting in the queue at that moment.
    pub queue_bytes: u64,
    /// Times that the queue has started and stopped, this one included; wraps round. `None` from
    /// programs that do not count.
    pub turns: Option<u32>,
}

/// Asks the switch for the digest, unless it is asked already. A program without it tells nothing.
pub(super) async fn subscribe(client: &Client, index: &Index) -> Result<(), String> {
    let Ok(digest_id) = index.digest(DIGEST).map(Named::id) else { return Ok(()) };
    let entry = |config| DigestEntry { digest_id, config };
    let read = match client.read(vec![entry(None).into()]).await {
        // BMv2's answer for a digest that is not on.
        Err(error) if error.code() == Some(Code::NotFound) => Vec::new(),
        read => read.map_err(|error| error.to_string())?,
    };
    let there = read.into_iter().find_map(|entity| match entity.entity {
        Some(Kind::DigestEntry(found)) if found.digest_id == digest_id => Some(found),
        _ => None,
    });
    let update = match there {
        Some(found) if found.config == Some(CONFIG) => return Ok(()),
        Some(_) => entity::modify(entry(Some(CONFIG))),
        None => entity::insert(entry(Some(CONFIG))),
    };
    client.write(vec![update], Atomicity::ContinueOnError).await.map_err(|error| error.to_string())
}

/// The events of a list. Lists of other digests, and data that cannot be read, have none.
pub(super) fn read(list: &DigestList, index: &Index) -> Vec<TrimEvent> {
    let is_ours = index.digest(DIGEST).map(Named::id) == Ok(list.digest_id);
    list.data.iter().filter(|_| is_ours).filter_map(event).collect()
}

/// The struct's members in the order of `p4/bmv2/trim_events.p4`. Tofino's has no `turns`.
fn event(data: &P4Data) -> Option<TrimEvent> {
    let Some(p4_data::Data::Struct(data)) = &data.data else { return None };
    let number = |position: usize| match &data.members.get(position)?.data {
        Some(p4_data::Data::Bitstring(value)) => bytes::decode(value, 128).ok(),
        _ => None,
    };
    Some(TrimEvent {
        port: number(0)?.try_into().ok()?,
        queue: number(1)?.try_into().ok()?,
        starts: number(2)? == 1,
        queue_bytes: number(3)?.try_into().ok()?,
        turns: number(4).and_then(|turns| turns.try_into().ok()),
    })
}
