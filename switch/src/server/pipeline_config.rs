// SPDX-License-Identifier: Apache-2.0
//! Pipelines: what a P4Info and a compiled program have to agree on (P4Runtime, "P4
//! Forwarding-Pipeline Configuration").

use super::costs::Costs;
use super::ledger::Ledger;
use super::stages::Stages;
use crate::engine::{Control, Pipeline, ProgramLimits};
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::Status;
use trimwire_p4runtime::config::match_field::MatchType;
use trimwire_p4runtime::config::{MatchField, P4Info};
use trimwire_p4runtime::p4info::{Index, Named, TableRef};
use trimwire_p4runtime::v1;

/// A configuration, what it means, and what has been written for it.
pub(super) struct Realm {
    pub(super) config: v1::ForwardingPipelineConfig,
    pub(super) index: Arc<Index>,
    pub(super) ledger: Ledger,
    pub(super) costs: Arc<Costs>,
    pub(super) stages: Stages,
}

/// Characters of an error that travel in a gRPC trailer.
const LONGEST_ERROR: usize = 2_000;

/// Reads a configuration and compiles it, without touching the switch.
pub(super) fn verify(
    config: v1::ForwardingPipelineConfig,
    program_bytes: usize,
    entries: usize,
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
    let limits = ProgramLimits::within(program_bytes);
    let mut pipeline =
        Pipeline::load_within(program, &limits).map_err(|error| bad("device config", &error))?;
    matches_program(&index, pipeline.control())?;
    let costs = Costs::of(&index, pipeline.control(), &limits).map_err(|words| bad("P4Info", &words))?;
    pipeline.control().limit_entries(costs.entries(entries));
    let stages = Stages::of(program);
    let (index, costs) = (Arc::new(index), Arc::new(costs));
    Ok((Realm { config, index, ledger: Ledger::default(), costs, stages }, pipeline))
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
    check_sizes("counter", &info.counters, &control.counters().collect(), |counter| counter.size)?;
    check_sizes("meter", &info.meters, &control.meters().collect(), |meter| meter.size)?;
    let registers = control.registers().map(|(name, size, _)| (name, size)).collect();
    check_sizes("register", &info.registers, &registers, |register| i64::from(register.size))?;
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

/// Arrays have to be as large as they are said to be, too.
fn check_sizes<T: Named>(
    kind: &str,
    arrays: &[T],
    known: &BTreeMap<&str, usize>,
    size: impl Fn(&T) -> i64,
) -> Result<(), Status> {
    check(kind, arrays, |name| known.contains_key(name))?;
    for array in arrays {
        let (asked, found) = (size(array), known.get(array.name()).copied().unwrap_or_default());
        if usize::try_from(asked) != Ok(found) {
            let name = array.name();
            return Err(mismatch(format!(
                "{kind} {name} has {asked} cells in the P4Info, {found} in the program"
            )));
        }
    }
    Ok(())
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
