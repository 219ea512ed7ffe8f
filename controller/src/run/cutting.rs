//! Digests `cutting_t`: a queue has started, or stopped, to cut packets.

use tonic::Code;
use trimwire_p4runtime::bytes;
use trimwire_p4runtime::client::Client;
use trimwire_p4runtime::entity;
use trimwire_p4runtime::p4info::{Index, Named};
use trimwire_p4runtime::v1::digest_entry::Config;
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{DigestEntry, DigestList, P4Data, p4_data};

/// Name of the digest in the P4Info.
const DIGEST: &str = "cutting_t";

/// Lists are short and come soon: somebody may be watching.
const CONFIG: Config =
    Config { max_timeout_ns: 10_000_000, max_list_size: 64, ack_timeout_ns: 1_000_000_000 };

/// A queue starts or stops to cut packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cutting {
    pub port: u16,
    pub queue: u8,
    pub starts: bool,
    /// Bytes waiting in the queue at that moment.
    pub queue_bytes: u64,
}

/// Asks the switch for the digests, if it is not asked already. Programs without the digest have nothing to tell.
pub(super) async fn subscribe(client: &Client, index: &Index) -> Result<(), String> {
    let Ok(digest) = index.digest(DIGEST) else { return Ok(()) };
    let entry = |config| DigestEntry { digest_id: digest.id(), config };
    let read = match client.read(vec![entry(None).into()]).await {
        // BMv2's answer for a digest that is not on.
        Err(error) if error.code() == Some(Code::NotFound) => Vec::new(),
        read => read.map_err(|error| error.to_string())?,
    };
    let there = read.into_iter().find_map(|entity| match entity.entity {
        Some(Kind::DigestEntry(found)) if found.digest_id == digest.id() => Some(found),
        _ => None,
    });
    let update = match there {
        Some(found) if found.config == Some(CONFIG) => return Ok(()),
        Some(_) => entity::modify(entry(Some(CONFIG))),
        None => entity::insert(entry(Some(CONFIG))),
    };
    client.write(vec![update], Atomicity::ContinueOnError).await.map_err(|error| error.to_string())
}

/// What a list tells. Lists of other digests, and what cannot be read, tell nothing.
pub(super) fn read(list: &DigestList, index: &Index) -> Vec<Cutting> {
    if index.digest(DIGEST).map(Named::id) != Ok(list.digest_id) {
        return Vec::new();
    }
    list.data.iter().filter_map(one).collect()
}

fn one(data: &P4Data) -> Option<Cutting> {
    let Some(p4_data::Data::Struct(fields)) = &data.data else { return None };
    // In the order of the struct's declaration (p4/include/headers.p4).
    let number = |position: usize| match &fields.members.get(position)?.data {
        Some(p4_data::Data::Bitstring(value)) => bytes::decode(value, 64).ok(),
        _ => None,
    };
    Some(Cutting {
        port: u16::try_from(number(0)?).ok()?,
        queue: u8::try_from(number(1)?).ok()?,
        starts: number(2)? == 1,
        queue_bytes: u64::try_from(number(3)?).ok()?,
    })
}
