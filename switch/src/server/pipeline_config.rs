// SPDX-License-Identifier: Apache-2.0
//! Pipelines: what a P4Info and a compiled program have to agree on (P4Runtime, "P4
//! Forwarding-Pipeline Configuration").

use super::ledger::Ledger;
use super::stages::Stages;
use crate::engine::{Control, Pipeline, ProgramLimits};
use tonic::Status;
use trimwire_p4runtime::config::match_field::MatchType;
use trimwire_p4runtime::config::{MatchField, P4Info};
use trimwire_p4runtime::p4info::{Index, Named, TableRef};
use trimwire_p4runtime::v1;

/// A configuration, what it means, and what has been written for it.
pub(super) struct Realm {
    pub(super) config: v1::ForwardingPipelineConfig,
    pub(super) index: Index,
    pub(super) ledger: Ledger,
    pub(super) stages: Stages,
}

/// Characters of an error that travel in a gRPC trailer.
const LONGEST_ERROR: usize = 2_000;

/// Reads a configuration and compiles it, without touching the switch.
pub(super) fn verify(
    config: v1::ForwardingPipelineConfig,
    limits: &ProgramLimits,
    most_entries: usize,
) -> Result<(Realm, Pipeline), Status> {
    let bad = |what: &str, error: &dyn std::fmt::Display| {
        // Errors that list what there is may be as long as a program.
        let words: String = format!("{what}: {error}").chars().take(LONGEST_ERROR).collect();
        Status::invalid_argument(words)
    };
    let p4info: &P4Info =
        config.p4info.as_ref().ok_or_else(|| Status::invalid_argument("the P4Info is missing"))?;
    let index = Index::new(p4info).map_err(|error| bad("P4Info", &error))?;
    let wrapped = unwrapped(&config.p4_device_config);
    let program = wrapped.as_deref().unwrap_or(&config.p4_device_config);
    let mut pipeline =
        Pipeline::load_within(program, limits).map_err(|error| bad("device config", &error))?;
    matches_program(&index, pipeline.control())?;
    pipeline.control().limit_entries(most_entries);
    let stages = Stages::of(program);
    Ok((Realm { config, index, ledger: Ledger::default(), stages }, pipeline))
}

/// The program in a `p4.tmp.P4DeviceConfig`, which BMv2 takes as well as the JSON alone, and
/// p4lang's tutorials send.
#[derive(Clone, PartialEq, prost::Message)]
struct P4DeviceConfig {
    #[prost(bool, tag = "1")]
    reassign: bool,
    #[prost(bytes = "vec", tag = "3")]
    device_data: Vec<u8>,
}

/// `None`: it is not wrapped.
fn unwrapped(device_config: &[u8]) -> Option<Vec<u8>> {
    // JSON's first byte would be field 15 of a wire type that there is not.
    if device_config.trim_ascii_start().first() == Some(&b'{') {
        return None;
    }
    let wrapped = <P4DeviceConfig as prost::Message>::decode(device_config).ok()?;
    Some(wrapped.device_data).filter(|program| !program.is_empty())
}

/// Whether everything that the P4Info speaks of exists in the compiled program.
pub(super) fn matches_program(index: &Index, control: &Control) -> Result<(), Status> {
    for table in index.tables() {
        table_matches(table, control)?;
    }
    let info = index.p4info();
    check("counter", &info.counters, |name| control.counters().any(|(known, _)| known == name))?;
    check("meter", &info.meters, |name| control.meters().any(|(known, _)| known == name))?;
    check("register", &info.registers, |name| control.registers().any(|(known, ..)| known == name))?;
    check("action profile", &info.action_profiles, |name| {
        control.profiles().any(|(known, ..)| known == name)
    })?;
    let value_sets = control.value_sets();
    check("value set", &info.value_sets, |name| value_sets.iter().any(|known| known.name == name))?;
    check("digest", &info.digests, |name| control.digests().iter().any(|known| known.name == name))
}

fn mismatch(what: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("P4Info and device config do not match: {what}"))
}

fn check<T: Named>(kind: &str, objects: &[T], exists: impl Fn(&str) -> bool) -> Result<(), Status> {
    match objects.iter().find(|object| !exists(object.name())) {
        Some(missing) => Err(mismatch(format!("the program has no {kind} {}", missing.name()))),
        None => Ok(()),
    }
}

fn table_matches(table: TableRef<'_>, control: &Control) -> Result<(), Status> {
    let name = table.name();
    let known = control.table(name).map_err(|_| mismatch(format!("the program has no table {name}")))?;
    let asked: Vec<String> = table.table.match_fields.iter().map(asked_key).collect();
    let found: Vec<String> =
        known.keys.iter().map(|key| format!("{}:{}", key.kind.name(), key.width)).collect();
    if asked != found {
        return Err(mismatch(format!(
            "keys of table {name} are {asked:?} in the P4Info, {found:?} in the program"
        )));
    }
    for action in table.actions() {
        let Some(known) = known.actions.iter().find(|known| known.name == action.name()) else {
            return Err(mismatch(format!("the program has no action {} of table {name}", action.name())));
        };
        let asked: Vec<i32> = action.action.params.iter().map(|param| param.bitwidth).collect();
        let found: Vec<i32> = known.params.iter().map(|(_, width)| i32::from(*width)).collect();
        if asked != found {
            return Err(mismatch(format!(
                "parameters of action {} have widths {asked:?} in the P4Info, {found:?} in the program",
                action.name()
            )));
        }
    }
    for (what, asked, found) in [
        ("direct counter", table.direct_counter().is_some(), known.has_counter),
        ("direct meter", table.direct_meter().is_some(), known.has_meter),
        ("action profile", table.implementation().is_some(), known.action_profile.is_some()),
    ] {
        if asked && !found {
            return Err(mismatch(format!("table {name} has no {what} in the program")));
        }
    }
    Ok(())
}

/// A key element as the program's are written: optional keys are ternary ones in BMv2's JSON.
fn asked_key(field: &MatchField) -> String {
    let kind = match field.kind() {
        MatchType::Exact => "exact",
        MatchType::Lpm => "lpm",
        MatchType::Ternary | MatchType::Optional => "ternary",
        MatchType::Range => "range",
        MatchType::Unspecified => "unknown",
    };
    format!("{kind}:{}", field.bitwidth)
}
