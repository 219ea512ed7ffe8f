// SPDX-License-Identifier: Apache-2.0
//! Whether a switch has what it needs to forward, whoever filled it: a predecessor of ours may have
//! been killed in the middle.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use trimwire_p4runtime::bytes;
use trimwire_p4runtime::client::Client;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::field_match::FieldMatchType;
use trimwire_p4runtime::v1::{Entity, TableEntry};

use super::wanted::Wanted;
use crate::compile::Desired;
use crate::device::{self, DeviceError};
use crate::program::names;
use crate::reconcile::Actual;
use crate::topology::{Avoid, Prefix, addresses};

/// What a switch lacks, in words. Entries that are others than ours, or more, say nothing: a file
/// may have changed meanwhile, and a predecessor may have led routes around something.
pub(super) async fn lacks(
    client: &Client,
    wanted: &Wanted,
    avoid: &Arc<Avoid>,
) -> Result<Option<String>, DeviceError> {
    let (shared, name) = (&wanted.shared, &wanted.name);
    let Some(cookie) = device::cookie(client).await? else {
        return Ok(Some("it runs no program".to_owned()));
    };
    let routes = shared.routes(name, avoid);
    let is_routed = |address: &IpAddr| routes.lookup(*address).is_some();
    let hosts = shared.compiler.fabric().hosts.keys();
    let hosts = hosts.flat_map(|host| addresses(shared.compiler.fabric(), host)).filter(is_routed);
    if cookie == shared.artifacts(name).cookie() {
        let actual = device::actual(client, wanted.index()).await?;
        let desired = shared.compiler.compile_around(name, shared.around(avoid).as_deref())?;
        let empty = empty_table(&desired, &actual, wanted.index());
        return Ok(empty.or_else(|| unrouted(hosts, &actual, wanted.index())));
    }
    let Some(index) = device::running(client).await? else { return Ok(None) };
    if index.table(names::IPV4_ROUTE).is_err() || index.action_profile(names::ECMP).is_err() {
        // Another maker's program: nobody knows what it needs.
        return Ok(None);
    }
    Ok(unrouted(hosts, &device::actual(client, &index).await?, &index))
}

/// A table that is to have entries, and has none.
fn empty_table(desired: &Desired, actual: &Actual, index: &Index) -> Option<String> {
    let tables = |entities: Vec<&Entity>| -> BTreeSet<u32> {
        entities.into_iter().filter_map(entry).map(|entry| entry.table_id).collect()
    };
    let wanted = tables(desired.values().map(|wanted| &wanted.entity).collect());
    let held = tables(actual.values().collect());
    let table = *wanted.difference(&held).next()?;
    let name = index.table(table).map_or_else(|_| table.to_string(), |table| table.name().to_owned());
    Some(format!("its table {name} is empty"))
}

fn entry(entity: &Entity) -> Option<&TableEntry> {
    match &entity.entity {
        Some(Kind::TableEntry(entry)) if !entry.is_default_action => Some(entry),
        _ => None,
    }
}

/// An address without a route.
fn unrouted(mut hosts: impl Iterator<Item = IpAddr>, actual: &Actual, index: &Index) -> Option<String> {
    let held: BTreeSet<Prefix> = actual.values().filter_map(|entity| prefix(entry(entity)?, index)).collect();
    // None is part of another.
    let is_held = |address: &IpAddr| {
        let before = held.range(..=Prefix::host(*address)).next_back();
        before.is_some_and(|prefix| prefix.contains(*address))
    };
    hosts.find(|address| !is_held(address)).map(|address| format!("it has no route to {address}"))
}

fn prefix(entry: &TableEntry, index: &Index) -> Option<Prefix> {
    let is_ipv6 = match index.table(entry.table_id).map(|table| table.name()) {
        Ok(names::IPV4_ROUTE) => false,
        Ok(names::IPV6_ROUTE) => true,
        _ => return None,
    };
    let lpm = entry.r#match.iter().find_map(|field| match &field.field_match_type {
        Some(FieldMatchType::Lpm(lpm)) => Some(lpm),
        _ => None,
    });
    // Without the field: all addresses.
    let (bits, length) =
        lpm.map_or((0, 0), |lpm| (bytes::decode(&lpm.value, 128).unwrap_or(0), lpm.prefix_len));
    let address = if is_ipv6 {
        IpAddr::from(Ipv6Addr::from(bits))
    } else {
        IpAddr::from(Ipv4Addr::from(u32::try_from(bits).ok()?))
    };
    Some(Prefix::host(address).shortened(u32::try_from(length).ok()?))
}
