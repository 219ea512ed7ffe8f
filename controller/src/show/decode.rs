// SPDX-License-Identifier: Apache-2.0
//! From entities to rows.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use trimwire_p4runtime::bytes;
use trimwire_p4runtime::client::Client;
use trimwire_p4runtime::entity::EntityError;
use trimwire_p4runtime::p4info::{Index, LookupError};
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::field_match::FieldMatchType;
use trimwire_p4runtime::v1::table_action::Type as ActionType;
use trimwire_p4runtime::v1::{Action, Entity, TableEntry};

use super::{CapRow, CounterRow, Entry, NextHop, PolicyRow, RouteRow};
use crate::compile::Compiler;
use crate::counters::{self, Count, Look};
use crate::device::{self, DeviceError};
use crate::model::Mac;
use crate::model::QueuePolicy;
use crate::program::names;

/// Looks at one switch.
pub(super) struct Decoder<'d> {
    pub compiler: &'d Compiler,
    pub switch: &'d str,
    pub index: &'d Index,
    pub client: &'d Client,
}

impl Decoder<'_> {
    fn misfit(&self, source: impl Into<EntityError>) -> DeviceError {
        DeviceError::Foreign { address: self.client.address().to_owned(), source: Box::new(source.into()) }
    }

    pub(super) async fn routes(&self) -> Result<Vec<RouteRow>, DeviceError> {
        let actual = device::actual(self.client, self.index).await?;
        let own = self.compiler.topology().routes(self.compiler.fabric(), self.switch);
        let mut hops: BTreeMap<u32, NextHop> = BTreeMap::new();
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for entity in actual.values() {
            match &entity.entity {
                Some(Kind::ActionProfileMember(member)) => {
                    let Some(action) = &member.action else { continue };
                    let number = |name| self.param(action, name);
                    let (Ok(Some(port)), Ok(Some(mac))) = (number("port"), number("dst_mac")) else {
                        continue;
                    };
                    let [_, _, mac @ ..] = (mac as u64).to_be_bytes();
                    let port = port as u16;
                    let to = own.neighbours.get(&port).map_or_else(String::new, |n| n.end.to_string());
                    hops.insert(member.member_id, NextHop { port, to, mac: Mac(mac).to_string() });
                }
                Some(Kind::ActionProfileGroup(group)) => {
                    let members = group.members.iter().map(|member| member.member_id).collect();
                    groups.insert(group.group_id, members);
                }
                _ => {}
            }
        }
        let mut rows = Vec::new();
        for entry in entries(actual.values(), self.index, &[names::IPV4_ROUTE, names::IPV6_ROUTE]) {
            let members = match entry.action.as_ref().and_then(|action| action.r#type.as_ref()) {
                Some(ActionType::ActionProfileMemberId(id)) => vec![*id],
                Some(ActionType::ActionProfileGroupId(id)) => groups.get(id).cloned().unwrap_or_default(),
                _ => Vec::new(),
            };
            let mut next_hops: Vec<NextHop> = members.iter().filter_map(|id| hops.get(id).cloned()).collect();
            next_hops.sort();
            let ipv6 = self.index.table(entry.table_id).is_ok_and(|table| table.name() == names::IPV6_ROUTE);
            let (address, prefix) = prefix(entry, ipv6);
            let text = format!("{address}/{prefix}");
            let route = own.prefixes.iter().find(|(prefix, _)| prefix.to_string() == text);
            rows.push(RouteRow {
                switch: self.switch.to_owned(),
                prefix: text,
                host: route.map_or_else(String::new, |(_, route)| route.to.clone()),
                next_hops,
            });
        }
        Ok(rows)
    }

    pub(super) async fn policy(&self) -> Result<Vec<PolicyRow>, DeviceError> {
        let actual = device::actual(self.client, self.index).await?;
        let mut caps: BTreeMap<u16, CapRow> = BTreeMap::new();
        for entry in entries(actual.values(), self.index, &[names::TRIM_CAP]) {
            let port = self.exact(entry, "egress_port")? as u16;
            if let Some(ActionType::Action(action)) = entry.action.as_ref().and_then(|a| a.r#type.as_ref())
                && let (Ok(Some(rate)), Ok(Some(burst))) =
                    (self.param(action, "rate"), self.param(action, "burst"))
            {
                caps.insert(port, CapRow::of_table(rate as u32, burst as u32));
            }
        }
        let mut rows = Vec::new();
        for entry in entries(actual.values(), self.index, &[names::POLICY]) {
            let key = |name| self.exact(entry, name);
            let (port, queue, important) = (key("egress_port")?, key("queue")?, key("importance")? == 1);
            let Some(ActionType::Action(action)) = entry.action.as_ref().and_then(|a| a.r#type.as_ref())
            else {
                continue;
            };
            let is_thresholds =
                self.index.action(action.action_id).is_ok_and(|found| found.name() == names::SET_THRESHOLDS);
            if !is_thresholds {
                continue;
            }
            let value = |name| {
                self.param(action, name).map(|value| value.unwrap_or(0)).map_err(|error| self.misfit(error))
            };
            let values = QueuePolicy {
                mark_at: value("mark_at")? as u32,
                shallow_at: value("shallow_at")? as u32,
                deep_at: value("deep_at")? as u32,
                drop_at: value("drop_at")? as u32,
                shallow_size: value("shallow_size")? as u16,
                deep_size: value("deep_size")? as u16,
                trim_drop_at: value("trim_drop_at")? as u32,
            };
            let (port, trimmed_dscp) = (port as u16, value("trimmed_dscp")? as u8);
            let entry = Entry { port, queue: queue as u8, important, trimmed_dscp };
            rows.push(super::row(
                self.compiler.fabric(),
                self.switch,
                &entry,
                &values,
                caps.get(&port).copied(),
            ));
        }
        rows.sort();
        Ok(rows)
    }

    /// What an entry matches exactly, by the field's name.
    fn exact(&self, entry: &TableEntry, name: &str) -> Result<u128, DeviceError> {
        let table = self.index.table(entry.table_id).map_err(|error| self.misfit(error))?;
        let id = table.match_field(name).map_err(|error| self.misfit(error))?.id;
        let found = entry.r#match.iter().find(|field| field.field_id == id);
        Ok(match found.and_then(|field| field.field_match_type.as_ref()) {
            Some(FieldMatchType::Exact(exact)) => bytes::decode(&exact.value, 128).unwrap_or(0),
            _ => 0,
        })
    }

    /// An action's parameter by name.
    fn param(&self, action: &Action, name: &str) -> Result<Option<u128>, LookupError> {
        let id = self.index.action(action.action_id)?.param(name)?.id;
        let value = action.params.iter().find(|param| param.param_id == id);
        Ok(value.and_then(|param| bytes::decode(&param.value, 128).ok()))
    }

    pub(super) async fn counters(&self) -> Result<Vec<CounterRow>, DeviceError> {
        let counters = counters::read(self.client, self.index, None, &Look::default()).await?;
        let counted = |_, _, count: Count| (count != Count::default()).then_some(count);
        let mut rows = super::counter_rows(self.compiler.fabric(), self.switch, &counters, counted);
        rows.retain(|row| !row.counters.is_empty() || row.occupancy_bytes.unwrap_or(0) > 0);
        if counters.unroutable > 0 {
            let count = Count { packets: counters.unroutable, bytes: 0 };
            let row = CounterRow {
                switch: self.switch.to_owned(),
                port: None,
                queue: None,
                name: String::new(),
                occupancy_bytes: None,
                peak_bytes: None,
                counters: BTreeMap::from([("unroutable".to_owned(), count)]),
            };
            rows.insert(0, row);
        }
        Ok(rows)
    }
}

/// Entries, without default entries, of some tables.
fn entries<'e>(
    entities: impl Iterator<Item = &'e Entity>,
    index: &Index,
    tables: &[&str],
) -> Vec<&'e TableEntry> {
    entities
        .filter_map(|entity| match &entity.entity {
            Some(Kind::TableEntry(entry)) if !entry.is_default_action => Some(entry),
            _ => None,
        })
        .filter(|entry| index.table(entry.table_id).is_ok_and(|table| tables.contains(&table.name())))
        .collect()
}

fn prefix(entry: &TableEntry, ipv6: bool) -> (String, i32) {
    let lpm = entry.r#match.iter().find_map(|field| match &field.field_match_type {
        Some(FieldMatchType::Lpm(lpm)) => Some((bytes::decode(&lpm.value, 128).unwrap_or(0), lpm.prefix_len)),
        _ => None,
    });
    let (value, prefix) = lpm.unwrap_or((0, 0));
    let address =
        if ipv6 { Ipv6Addr::from(value).to_string() } else { Ipv4Addr::from(value as u32).to_string() };
    (address, prefix)
}
