// SPDX-License-Identifier: Apache-2.0
//! Digests of what queues cut: `cutting_t`, a queue has started, or stopped; `cut_packet_t`, one of the packets.

use std::net::{IpAddr, Ipv6Addr};

use tonic::Code;
use trimwire_p4runtime::bytes;
use trimwire_p4runtime::client::Client;
use trimwire_p4runtime::entity;
use trimwire_p4runtime::p4info::{Index, Named};
use trimwire_p4runtime::v1::digest_entry::Config;
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{DigestEntry, DigestList, P4Data, p4_data};

use crate::talkers::{CutSample, Flow};

/// Names in the P4Info.
const CUTTING: &str = "cutting_t";
const CUT_PACKET: &str = "cut_packet_t";

/// Lists come soon, since somebody may be watching, and seldom, since each costs as much as dozens of its samples: room for all that a
/// switch samples in that time.
const CONFIG: Config =
    Config { max_timeout_ns: 100_000_000, max_list_size: 128, ack_timeout_ns: 1_000_000_000 };

/// A queue starts or stops to trim packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cutting {
    pub port: u16,
    pub queue: u8,
    pub starts: bool,
    /// Bytes waiting in the queue at that moment.
    pub queue_bytes: u64,
    /// Times that the queue has started and stopped, this one included; wraps round. `None` from programs that do not count.
    pub turns: Option<u32>,
}

/// The data of a list, by the digest that it is of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DigestData {
    Cutting(Vec<Cutting>),
    CutPackets(Vec<CutSample>),
}

/// Asks the switch for the digests, if it is not asked already. What a program does not have it does not tell.
pub(super) async fn subscribe(client: &Client, index: &Index) -> Result<(), String> {
    for id in [CUTTING, CUT_PACKET].into_iter().filter_map(|name| index.digest(name).ok()).map(Named::id) {
        turn_on(client, id).await?;
    }
    Ok(())
}

async fn turn_on(client: &Client, digest_id: u32) -> Result<(), String> {
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

/// Lists of other digests, and what cannot be read, tell nothing.
pub(super) fn read(list: &DigestList, index: &Index) -> Option<DigestData> {
    let is = |name| index.digest(name).map(Named::id) == Ok(list.digest_id);
    if is(CUTTING) {
        Some(DigestData::Cutting(
            list.data.iter().filter_map(|data| cutting(&StructMembers::of(data)?)).collect(),
        ))
    } else if is(CUT_PACKET) {
        Some(DigestData::CutPackets(
            list.data.iter().filter_map(|data| cut_packet(&StructMembers::of(data)?)).collect(),
        ))
    } else {
        None
    }
}

/// The members of a struct, in the order of its declaration.
struct StructMembers<'d>(&'d [P4Data]);

impl<'d> StructMembers<'d> {
    fn of(data: &'d P4Data) -> Option<Self> {
        match &data.data {
            Some(p4_data::Data::Struct(data)) => Some(Self(&data.members)),
            _ => None,
        }
    }

    fn number<T: TryFrom<u128>>(&self, position: usize) -> Option<T> {
        match &self.0.get(position)?.data {
            Some(p4_data::Data::Bitstring(value)) => T::try_from(bytes::decode(value, 128).ok()?).ok(),
            _ => None,
        }
    }

    /// IPv4 addresses come in IPv6's form.
    fn address(&self, position: usize) -> Option<IpAddr> {
        Some(Ipv6Addr::from_bits(self.number(position)?).to_canonical())
    }
}

/// Of `p4/bmv2/cut_events.p4`; Tofino's has no `turns`.
fn cutting(members: &StructMembers<'_>) -> Option<Cutting> {
    Some(Cutting {
        port: members.number(0)?,
        queue: members.number(1)?,
        starts: members.number::<u8>(2)? == 1,
        queue_bytes: members.number(3)?,
        turns: members.number(4),
    })
}

/// Of `p4/bmv2/cut_samples.p4`; the source port, between the addresses and the destination's, is only entropy.
fn cut_packet(members: &StructMembers<'_>) -> Option<CutSample> {
    let flow = Flow {
        source: members.address(4)?,
        destination: members.address(5)?,
        destination_port: members.number(7)?,
    };
    Some(CutSample {
        port: members.number(0)?,
        queue: members.number(1)?,
        number: members.number(2)?,
        bytes: members.number(3)?,
        flow,
    })
}
