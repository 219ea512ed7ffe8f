// SPDX-License-Identifier: Apache-2.0
//! The whole program, compiled: what never changes after loading, and the state it starts with.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::action::{self, Names};
use super::arrays::{Arrays, Counter, Register};
use super::bits::limbs_for;
use super::calculation::{self, Calculation, Checksum};
use super::code::{self, Code, Source};
use super::control_flow;
use super::entity::{CounterValue, DigestInfo};
use super::error::LoadError;
use super::expression::Scope;
use super::flow_cache::split::{self, Split};
use super::intrinsic::Intrinsics;
use super::json::{self, Result, malformed};
use super::layout::{Layout, Slot};
use super::limits::{Pieces, ProgramLimits};
use super::meter::{Meter, MeterArray, MeterUnit};
use super::parser::{Deparser, Parser};
use super::profile::Profile;
use super::state::InitialState;
use super::table::compile::{TableScope, load_table};

/// Newest format understood; BMv2 refuses other major versions, too.
const MAJOR_VERSION: u64 = 2;

/// What never changes after loading.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) layout: Layout,
    pub(super) intrinsics: Intrinsics,
    pub(super) parser: Parser,
    pub(super) deparser: Deparser,
    pub(super) calculations: Vec<Calculation>,
    pub(super) checksums: Vec<Checksum>,
    /// Without and with the notes of a trace; both run on the same frames.
    pub(super) code: Arc<[Code; 2]>,
    /// Fields that survive a clone, resubmission or recirculation, by the list's id.
    pub(super) field_lists: BTreeMap<u16, Vec<Slot>>,
    pub(super) digests: BTreeMap<u16, DigestList>,
    /// By limb of headers and metadata: whether something behind ingress may read it.
    pub(super) live: Vec<bool>,
    /// Where ingress stops following from the packet alone, or why that is nowhere.
    pub(super) split: std::result::Result<Split, String>,
    /// What a trace calls things.
    pub(super) names: super::trace::Names,
}

/// A digest's name and fields.
#[derive(Clone, Debug)]
pub(super) struct DigestList {
    pub(super) name: String,
    pub(super) fields: Vec<Slot>,
}

impl Program {
    pub(super) fn code(&self, traced: bool) -> &Code {
        &self.code[usize::from(traced)]
    }

    pub(super) fn digest_infos(&self) -> Vec<DigestInfo> {
        let widths = |list: &DigestList| list.fields.iter().map(|slot| slot.width as u16).collect();
        let info = |(&id, list): (&u16, &DigestList)| DigestInfo {
            id,
            name: list.name.clone(),
            widths: widths(list),
        };
        self.digests.iter().map(info).collect()
    }
}

pub(super) fn load(bytes: &[u8], limits: &ProgramLimits) -> Result<(Program, InitialState)> {
    let (memory, most) = (json::memory(bytes), limits.json_bytes);
    if memory > most {
        let construct = format!(
            "a program that takes {memory} bytes of memory to read, more than {most} (--limit program)"
        );
        return Err(LoadError::Unsupported { construct, location: String::new() });
    }
    let root: Value = serde_json::from_slice(bytes).map_err(|error| LoadError::Syntax(error.to_string()))?;
    if !root.is_object() {
        return Err(LoadError::Syntax("the top level is not an object".into()));
    }
    let version =
        root.get("__meta__").and_then(|meta| meta.get("version")).and_then(|version| version.get(0));
    if version.and_then(Value::as_u64) != Some(MAJOR_VERSION) {
        return Err(malformed(&root, format!("`__meta__.version` is not {MAJOR_VERSION}.x")));
    }
    if let Some(node) = json::list(&root, "extern_instances")?.first() {
        let kind = node.get("type").and_then(Value::as_str).unwrap_or("?");
        return Err(json::unsupported(node, format!("extern `{kind}`")));
    }
    let layout = Layout::load(&root, limits.header_limbs)?;
    let intrinsics = Intrinsics::load(&layout)?;
    let mut names = Names::default();
    check_state(&root, limits.state_bytes)?;
    let pieces = Pieces::new(limits.instructions);
    let arrays = Arrays::new(load_counters(&root, &mut names)?, load_registers(&root, &mut names)?);
    let (meters, direct_meters) = load_meters(&root, &layout, &mut names)?;
    let (calculations, calculation_names) = Calculation::load_all(&root, &layout)?;
    names.calculations = calculation_names;
    let scope = Scope { layout: &layout, registers: &names.registers, params: &[] };
    let (actions, bodies) = action::load_all(&root, &layout, &names, limits.header_limbs)?;
    let (parser, value_sets) = Parser::load(&root, &scope, &names)?;
    let deparser = Deparser::load(&root, &scope, &names)?;
    let checksums = Checksum::load_all(&root, &scope, &names.calculations)?;
    let numbers = control_flow::number_nodes(&root)?;
    let (mut profiles, profile_names) = load_profiles(&root, &layout, calculations.len())?;
    let table_scope = TableScope {
        layout: &layout,
        actions: &actions,
        by_id: action::by_id(&actions),
        by_name: action::by_name(&actions),
        profiles: &profile_names,
        direct_meters: &direct_meters,
        nodes: &numbers,
        pieces: &pieces,
    };
    let mut tables = Vec::new();
    for pipeline in json::list(&root, "pipelines")? {
        for table in json::list(pipeline, "tables")? {
            tables.push(json::located(table, load_table(table, &table_scope))?);
        }
    }
    for table in &tables {
        if let Some(profile) = table.profile.and_then(|profile| profiles.get_mut(profile as usize)) {
            pieces.take(table.actions.len())?;
            profile.actions.extend(&table.actions);
        }
    }
    let (mut nodes, starts) = control_flow::load_nodes(&root, &scope, &actions, &numbers)?;
    control_flow::check_acyclic(&nodes, &tables)?;
    control_flow::inline_constant_tables(&mut nodes, &tables);
    let start = |name: &str| {
        let missing = || malformed(&root, format!("there is no `{name}` pipeline"));
        starts.get(name).copied().ok_or_else(missing)
    };
    let (ingress, egress) = (start("ingress")?, start("egress")?);
    let field_lists = load_lists(&root, "field_lists", &layout)?;
    let digests: BTreeMap<u16, DigestList> = load_lists(&root, "learn_lists", &layout)?
        .into_iter()
        .map(|(id, (name, fields))| (id, DigestList { name, fields }))
        .collect();
    let field_lists: BTreeMap<u16, Vec<Slot>> =
        field_lists.into_iter().map(|(id, (_, fields))| (id, fields)).collect();
    let source = Source {
        layout: &layout,
        parser: &parser,
        deparser: &deparser,
        checksums: &checksums,
        actions: &actions,
        bodies: &bodies,
        nodes: &nodes,
        tables: &tables,
        ingress,
        egress,
    };
    let mut code = code::compile(&source, limits.instructions, 4 * limits.header_limbs)?;
    let actions = actions.into();
    let state = InitialState { actions, tables, profiles, arrays, meters, value_sets };
    let digest_fields = digests.values().flat_map(|list: &DigestList| &list.fields);
    let source = split::Source {
        layout: &layout,
        calculations: &calculations,
        intrinsics: &intrinsics,
        state: &state,
        checksums: &checksums,
        lists: field_lists.values().flatten().chain(digest_fields).copied().collect(),
    };
    let live = split::behind_ingress(&code, &source);
    let split = split::split(&mut code, &source);
    let program = Program {
        live,
        split,
        layout,
        intrinsics,
        parser,
        deparser,
        calculations,
        checksums,
        code: code.into(),
        field_lists,
        digests,
        names: super::trace::Names::load(&root),
    };
    Ok((program, state))
}

/// Refuses programs whose state, which is there from the first packet on, would not fit: each array
/// may be within its limit, and all together not.
fn check_state(root: &Value, most: usize) -> Result<()> {
    let most = most as u128;
    let mut bytes = 0_u128;
    for (arrays, cell) in [
        ("counter_arrays", size_of::<CounterValue>() as u128),
        ("register_arrays", 0),
        ("meter_arrays", size_of::<Meter>() as u128),
    ] {
        for node in json::list(root, arrays)? {
            if json::flag(node, "is_direct") {
                continue;
            }
            let cell = match arrays {
                "register_arrays" => limbs_for(json::array_size(node, "bitwidth")? as u32) as u128 * 8,
                _ => cell,
            };
            bytes += json::array_size(node, "size")? as u128 * cell;
            if bytes > most {
                let name = json::text(node, "name")?;
                return Err(json::unsupported(
                    node,
                    format!(
                        "`{name}`, with which counters, registers and meters take {bytes} bytes of state together, more than {most} (--limit program)"
                    ),
                ));
            }
        }
    }
    let mut room: Vec<u8> = Vec::new();
    let reserved = room.try_reserve_exact(bytes as usize);
    reserved.map_err(|_| malformed(root, format!("there is no memory for its state of {bytes} bytes")))
}

fn load_counters(root: &Value, names: &mut Names) -> Result<Vec<Counter>> {
    let mut counters = Vec::new();
    for node in json::list(root, "counter_arrays")? {
        if json::flag(node, "is_direct") {
            continue;
        }
        let name = json::text(node, "name")?.to_owned();
        let size = json::array_size(node, "size")?;
        names.counters.insert(name.clone(), counters.len() as u32);
        counters.push(Counter::new(name, size));
    }
    Ok(counters)
}

fn load_registers(root: &Value, names: &mut Names) -> Result<Vec<Register>> {
    let mut registers = Vec::new();
    for node in json::list(root, "register_arrays")? {
        let name = json::text(node, "name")?.to_owned();
        let (width, size) = (json::array_size(node, "bitwidth")? as u32, json::array_size(node, "size")?);
        if !(1..=2048).contains(&width) {
            return Err(json::unsupported(node, format!("register `{name}` of {width} bits")));
        }
        names.registers.insert(name.clone(), (registers.len() as u32, width));
        registers.push(Register::new(name, width, size));
    }
    Ok(registers)
}

type DirectMeters = BTreeMap<String, (MeterUnit, Slot)>;

fn load_meters(root: &Value, layout: &Layout, names: &mut Names) -> Result<(Vec<MeterArray>, DirectMeters)> {
    let mut meters = Vec::new();
    let mut direct = BTreeMap::new();
    for node in json::list(root, "meter_arrays")? {
        let name = json::text(node, "name")?.to_owned();
        let unit = match json::text(node, "type")? {
            "packets" => MeterUnit::Packets,
            "bytes" => MeterUnit::Bytes,
            other => return Err(malformed(node, format!("meter `{name}` counts {other}"))),
        };
        let rates = json::number(node, "rate_count")?;
        if rates != 2 {
            return Err(json::unsupported(node, format!("meter `{name}` with {rates} rates")));
        }
        if json::flag(node, "is_direct") {
            direct.insert(name, (unit, layout.field(json::member(node, "result_target")?)?));
            continue;
        }
        let cells = vec![Meter::default(); json::array_size(node, "size")?];
        names.meters.insert(name.clone(), meters.len() as u32);
        meters.push(MeterArray { name, unit, cells });
    }
    Ok((meters, direct))
}

/// `number` is the first that no calculation has.
fn load_profiles(
    root: &Value,
    layout: &Layout,
    number: usize,
) -> Result<(Vec<Profile>, BTreeMap<String, u32>)> {
    let mut profiles = Vec::new();
    let mut names = BTreeMap::new();
    for pipeline in json::list(root, "pipelines")? {
        for node in json::list(pipeline, "action_profiles")? {
            let name = json::text(node, "name")?.to_owned();
            let selector = match node.get("selector") {
                None | Some(Value::Null) => None,
                Some(selector) => {
                    let algorithm = calculation::algorithm(selector)?;
                    Some(Calculation::load_inputs(selector, algorithm, layout, number + profiles.len())?)
                }
            };
            let size = json::array_size(node, "max_size")?;
            names.insert(name.clone(), profiles.len() as u32);
            profiles.push(Profile::new(name, size, selector));
        }
    }
    Ok((profiles, names))
}

type Lists = BTreeMap<u16, (String, Vec<Slot>)>;

fn load_lists(root: &Value, key: &str, layout: &Layout) -> Result<Lists> {
    let mut lists = BTreeMap::new();
    for node in json::list(root, key)? {
        let id = u16::try_from(json::number(node, "id")?);
        let id = id.map_err(|_| malformed(node, format!("an id in `{key}` exceeds 65535")))?;
        let mut fields = Vec::new();
        for element in json::list(node, "elements")? {
            let kind = json::text(element, "type")?;
            if kind != "field" {
                return Err(json::unsupported(node, format!("a `{kind}` in a field list")));
            }
            fields.push(layout.field(json::member(element, "value")?)?);
        }
        lists.insert(id, (json::text(node, "name")?.to_owned(), fields));
    }
    Ok(lists)
}
