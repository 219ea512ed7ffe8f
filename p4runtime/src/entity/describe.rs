// SPDX-License-Identifier: Apache-2.0
//! Entities in words, for differences and errors.
//!
//! Names come from the [`Index`] where there is one and it knows the id; else the id stands in hex.
//! Nothing here fails: what is wrong with an entity is shown as it is.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::check::port_of;
use super::table::Watch;
use crate::bytes;
use crate::config;
use crate::p4info::{Index, Named};
use crate::v1::action_profile_group::Member;
use crate::v1::entity::Entity as Kind;
use crate::v1::field_match::FieldMatchType;
use crate::v1::p4_data::Data;
use crate::v1::packet_replication_engine_entry::Type as Pre;
use crate::v1::table_action::Type as ActionType;
use crate::v1::update::Type as UpdateType;
use crate::v1::{self, ActionProfileGroup, Entity, FieldMatch, Replica, TableEntry, Update};

/// An update: `INSERT Ingress.ipv4_route{dst_addr=10.0.1.0/24} -> group 1`.
pub fn describe_update(update: &Update, index: Option<&Index>) -> String {
    let verb = UpdateType::try_from(update.r#type).unwrap_or(UpdateType::Unspecified).as_str_name();
    match &update.entity {
        Some(entity) => format!("{verb} {}", describe(entity, index)),
        None => format!("{verb} of nothing"),
    }
}

/// An entity.
pub fn describe(entity: &Entity, index: Option<&Index>) -> String {
    match &entity.entity {
        None => "empty entity".to_owned(),
        Some(Kind::TableEntry(entry)) => table_entry(entry, index),
        Some(Kind::ActionProfileMember(member)) => {
            let profile = profile_name(member.action_profile_id, index);
            let mut text = format!("{profile} member {}", member.member_id);
            if let Some(action) = &member.action {
                let _ = write!(text, " -> {}", describe_action(action, index));
            }
            text
        }
        Some(Kind::ActionProfileGroup(group)) => describe_group(group, index, |_| String::new()),
        Some(Kind::MeterEntry(meter)) => {
            let name =
                name("meter", meter.meter_id, index.and_then(|index| index.meter(meter.meter_id).ok()));
            format!("{name}{}{}", element(meter.index), meter_config(meter.config.as_ref()))
        }
        Some(Kind::DirectMeterEntry(meter)) => {
            let entry =
                meter.table_entry.as_ref().map_or_else(String::new, |entry| table_entry(entry, index));
            format!("direct meter of {entry}{}", meter_config(meter.config.as_ref()))
        }
        Some(Kind::CounterEntry(counter)) => {
            let id = counter.counter_id;
            let name = name("counter", id, index.and_then(|index| index.counter(id).ok()));
            format!("{name}{}{}", element(counter.index), counter_data(counter.data.as_ref()))
        }
        Some(Kind::DirectCounterEntry(counter)) => {
            let entry =
                counter.table_entry.as_ref().map_or_else(String::new, |entry| table_entry(entry, index));
            format!("direct counter of {entry}{}", counter_data(counter.data.as_ref()))
        }
        Some(Kind::PacketReplicationEngineEntry(entry)) => match &entry.r#type {
            None => "empty packet replication engine entry".to_owned(),
            Some(Pre::MulticastGroupEntry(group)) => {
                format!("multicast group {} -> ports [{}]", group.multicast_group_id, ports(&group.replicas))
            }
            Some(Pre::CloneSessionEntry(session)) => {
                let trimmed = match session.packet_length_bytes {
                    0 => String::new(),
                    length => format!(", truncated to {length} bytes"),
                };
                let class = match session.class_of_service {
                    0 => String::new(),
                    class => format!(", class {class}"),
                };
                let ports = ports(&session.replicas);
                format!("clone session {} -> ports [{ports}]{trimmed}{class}", session.session_id)
            }
        },
        Some(Kind::ValueSetEntry(set)) => {
            let found = index.and_then(|index| index.value_set(set.value_set_id).ok());
            let members: Vec<_> = set
                .members
                .iter()
                .map(|member| matches(&member.r#match, found.map_or(&[], |found| &found.r#match)))
                .collect();
            format!("{} -> [{}]", name("value set", set.value_set_id, found), members.join(", "))
        }
        Some(Kind::RegisterEntry(register)) => {
            let id = register.register_id;
            let name = name("register", id, index.and_then(|index| index.register(id).ok()));
            let data = match register.data.as_ref().and_then(|data| data.data.as_ref()) {
                None => String::new(),
                Some(Data::Bitstring(value)) => format!(" = {}", bytes::hex(value)),
                Some(other) => format!(" = {other:?}"),
            };
            format!("{name}{}{data}", element(register.index))
        }
        Some(Kind::DigestEntry(digest)) => {
            let id = digest.digest_id;
            name("digest", id, index.and_then(|index| index.digest(id).ok()))
        }
        Some(Kind::ExternEntry(entry)) => {
            let id = entry.extern_id;
            name("extern instance", id, index.and_then(|index| index.extern_instance(id).ok()))
        }
    }
}

/// An action with its parameters: `Ingress.forward(port=3, dst_mac=02:00:00:00:00:01)`.
pub fn describe_action(action: &v1::Action, index: Option<&Index>) -> String {
    let found = index.and_then(|index| index.action(action.action_id).ok());
    let params: Vec<_> = action
        .params
        .iter()
        .map(|given| match found.and_then(|action| action.param(given.param_id).ok()) {
            Some(param) => {
                format!("{}={}", param.name, describe_value(&given.value, param.bitwidth, &param.name))
            }
            None => format!("#{}={}", given.param_id, bytes::hex(&given.value)),
        })
        .collect();
    format!("{}({})", name("action", action.action_id, found.map(|found| found.action)), params.join(", "))
}

/// A group with the ports that its members watch: `Ingress.ecmp group 1 -> members [2 watching port
/// 5, 3 watching none]`.
pub fn describe_watching(group: &ActionProfileGroup, index: Option<&Index>) -> String {
    describe_group(group, index, |member| match member.watch_kind.as_ref().map(Watch::from) {
        None => " watching none".to_owned(),
        Some(Watch::Number(port)) => format!(" watching port {port}"),
        Some(Watch::Port(port)) => match bytes::decode(port, 32) {
            Ok(port) => format!(" watching port {port}"),
            Err(_) => format!(" watching port {}", bytes::hex(port)),
        },
    })
}

fn describe_group(
    group: &ActionProfileGroup,
    index: Option<&Index>,
    more: impl Fn(&Member) -> String,
) -> String {
    let profile = profile_name(group.action_profile_id, index);
    let member = |member: &Member| match member.weight {
        1 => format!("{}{}", member.member_id, more(member)),
        weight => format!("{}×{weight}{}", member.member_id, more(member)),
    };
    let members: Vec<String> = group.members.iter().map(member).collect();
    format!("{profile} group {} -> members [{}]", group.group_id, members.join(", "))
}

/// A value as people write it: addresses by width and name (`dst_addr`, `dst_mac`, `src_ip`), other
/// numbers up to 64 bits in decimal, the rest in hex. `bitwidth` 0 is text.
pub fn describe_value(value: &[u8], bitwidth: i32, field: &str) -> String {
    let field = field.to_lowercase();
    let is_address =
        field.contains("addr") || field.contains("ipv") || field.split(['_', '.']).any(|word| word == "ip");
    match (bitwidth, bytes::decode(value, bitwidth.unsigned_abs())) {
        (0, _) => format!("{:?}", String::from_utf8_lossy(value)),
        (32, Ok(number)) if is_address => Ipv4Addr::from(number as u32).to_string(),
        (128, Ok(number)) if is_address => Ipv6Addr::from(number).to_string(),
        (48, Ok(_)) if field.contains("addr") || field.contains("mac") => {
            bytes::padded(value, 48).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
        }
        (..=64, Ok(number)) => number.to_string(),
        _ => bytes::hex(value),
    }
}

fn table_entry(entry: &TableEntry, index: Option<&Index>) -> String {
    let found = index.and_then(|index| index.table(entry.table_id).ok());
    let mut text = name("table", entry.table_id, found.map(|found| found.table));
    if entry.is_default_action {
        text.push_str(" default");
    } else {
        text.push_str(&matches(&entry.r#match, found.map_or(&[], |found| &found.table.match_fields)));
    }
    // Writing to a String cannot fail.
    if entry.priority != 0 {
        let _ = write!(text, " priority {}", entry.priority);
    }
    if let Some(action) = entry.action.as_ref().and_then(|action| action.r#type.as_ref()) {
        text.push_str(" -> ");
        match action {
            ActionType::Action(action) => text.push_str(&describe_action(action, index)),
            ActionType::ActionProfileMemberId(id) => {
                let _ = write!(text, "member {id}");
            }
            ActionType::ActionProfileGroupId(id) => {
                let _ = write!(text, "group {id}");
            }
            ActionType::ActionProfileActionSet(set) => {
                let actions: Vec<_> = set
                    .action_profile_actions
                    .iter()
                    .filter_map(|element| element.action.as_ref())
                    .map(|action| describe_action(action, index))
                    .collect();
                let _ = write!(text, "one of [{}]", actions.join(", "));
            }
        }
    }
    text
}

fn matches(matches: &[FieldMatch], fields: &[config::MatchField]) -> String {
    let parts: Vec<_> = matches
        .iter()
        .map(|field_match| {
            let id = field_match.field_id;
            let field = fields.iter().find(|field| field.id == id);
            let name = field.map_or_else(|| format!("#{id}"), |field| field.name.clone());
            let value = |bytes: &[u8]| match field {
                Some(field) => describe_value(bytes, field.bitwidth, &field.name),
                None => bytes::hex(bytes),
            };
            match &field_match.field_match_type {
                None => format!("{name}=?"),
                Some(FieldMatchType::Exact(exact)) => format!("{name}={}", value(&exact.value)),
                Some(FieldMatchType::Lpm(lpm)) => format!("{name}={}/{}", value(&lpm.value), lpm.prefix_len),
                // A mask is read in hex whatever it masks.
                Some(FieldMatchType::Ternary(ternary)) => {
                    format!("{name}={}&{}", value(&ternary.value), bytes::hex(&ternary.mask))
                }
                Some(FieldMatchType::Range(range)) => {
                    format!("{name}={}..={}", value(&range.low), value(&range.high))
                }
                Some(FieldMatchType::Optional(optional)) => format!("{name}={}", value(&optional.value)),
                Some(FieldMatchType::Other(other)) => format!("{name}=<{}>", other.type_url),
            }
        })
        .collect();
    format!("{{{}}}", parts.join(", "))
}

fn name<T: Named>(kind: &str, id: u32, found: Option<&T>) -> String {
    found.map_or_else(|| format!("{kind} {id:#010x}"), |found| found.name().to_owned())
}

fn profile_name(id: u32, index: Option<&Index>) -> String {
    name("action profile", id, index.and_then(|index| index.action_profile(id).ok()))
}

fn element(index: Option<v1::Index>) -> String {
    index.map_or_else(|| "[*]".to_owned(), |index| format!("[{}]", index.index))
}

fn meter_config(config: Option<&v1::MeterConfig>) -> String {
    config.map_or_else(String::new, |config| {
        format!(" cir {} cburst {} pir {} pburst {}", config.cir, config.cburst, config.pir, config.pburst)
    })
}

fn counter_data(data: Option<&v1::CounterData>) -> String {
    data.map_or_else(String::new, |data| {
        format!(" = {} packets, {} bytes", data.packet_count, data.byte_count)
    })
}

fn ports(replicas: &[Replica]) -> String {
    let ports: Vec<_> = replicas
        .iter()
        .map(|replica| {
            let port = port_of(replica);
            match (bytes::decode(&port, 32), replica.instance) {
                (Ok(port), 0) => port.to_string(),
                (Ok(port), instance) => format!("{port}#{instance}"),
                (Err(_), _) => bytes::hex(&port),
            }
        })
        .collect();
    ports.join(", ")
}
