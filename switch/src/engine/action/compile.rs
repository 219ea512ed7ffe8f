// SPDX-License-Identifier: Apache-2.0
//! From the JSON's actions and primitives to [`Op`]s.

use std::cell::Cell;
use std::collections::BTreeMap;

use serde_json::Value;

use super::super::bits::limbs_for;
use super::super::expression::{self, HeaderRef, Scope, StackRef};
use super::super::json::{self, Result, malformed, parameter, unsupported};
use super::super::layout::{Layout, Slot};
use super::{Op, Target, Varbit};

/// An action: its parameters as slots of the argument limbs.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) name: String,
    /// The JSON's id: several actions may share a name.
    pub(crate) id: u64,
    pub(crate) params: Vec<(String, Slot)>,
    /// Limbs that the arguments take.
    pub(crate) param_limbs: usize,
}

/// The program's named objects that primitives refer to.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) counters: BTreeMap<String, u32>,
    /// With widths in bits.
    pub(crate) registers: BTreeMap<String, (u32, u32)>,
    pub(crate) meters: BTreeMap<String, u32>,
    pub(crate) calculations: BTreeMap<String, u32>,
}

/// The first action of each id.
pub(crate) fn by_id(actions: &[Action]) -> BTreeMap<u64, u32> {
    let mut ids = BTreeMap::new();
    for (number, action) in (0..).zip(actions) {
        ids.entry(action.id).or_insert(number);
    }
    ids
}

/// All actions of each name: p4c copies an action for each table.
pub(crate) fn by_name(actions: &[Action]) -> BTreeMap<&str, Vec<u32>> {
    let mut names: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (number, action) in (0..).zip(actions) {
        names.entry(&action.name).or_default().push(number);
    }
    names
}

/// The actions, and what each does; the arguments of one take at most so many limbs.
pub(crate) fn load_all(
    root: &Value,
    layout: &Layout,
    names: &Names,
    most_limbs: usize,
) -> Result<(Vec<Action>, Vec<Vec<Op>>)> {
    let mut actions = Vec::new();
    let mut bodies = Vec::new();
    for node in json::list(root, "actions")? {
        let mut params = Vec::new();
        let mut slots = Vec::new();
        let mut at = 0;
        for param in json::list(node, "runtime_data")? {
            let width = json::array_size(param, "bitwidth")? as u32;
            let slot = Slot { at, width: width.clamp(1, 1 << 14), signed: false };
            at += limbs_for(slot.width) as u32;
            if at as usize > most_limbs {
                let name = json::text(node, "name")?;
                return Err(unsupported(
                    node,
                    format!("action `{name}`, whose parameters take more than {most_limbs} limbs"),
                ));
            }
            params.push((json::text(param, "name")?.to_owned(), slot));
            slots.push(slot);
        }
        let scope = Scope { layout, registers: &names.registers, params: &slots };
        let ops = json::list(node, "primitives")?
            .iter()
            .map(|primitive| compile_primitive(primitive, &scope, names))
            .collect::<Result<Vec<Op>>>()?;
        actions.push(Action {
            name: json::text(node, "name")?.to_owned(),
            id: json::number(node, "id")?,
            params,
            param_limbs: at as usize,
        });
        bodies.push(ops);
    }
    Ok((actions, bodies))
}

pub(crate) fn compile_primitive(node: &Value, scope: &Scope<'_>, names: &Names) -> Result<Op> {
    json::located(node, primitive(node, scope, names))
}

fn primitive(node: &Value, scope: &Scope<'_>, names: &Names) -> Result<Op> {
    let given = json::list(node, "parameters")?.len();
    let read = Cell::new(0);
    let at = |index| {
        read.set(read.get().max(index + 1));
        parameter(node, index)
    };
    let number = |index| expression::number(at(index)?, scope);
    let low = |index| expression::number_of_width(at(index)?, scope, 64);
    let header = |index| expression::header(at(index)?, scope);
    let named = |index, names: &BTreeMap<String, u32>| -> Result<u32> {
        let name = json::text(at(index)?, "value")?;
        names.get(name).copied().ok_or_else(|| malformed(node, format!("there is no `{name}`")))
    };
    let register = |index| -> Result<(u32, u32)> {
        let name = json::text(at(index)?, "value")?;
        let found = names.registers.get(name).copied();
        found.ok_or_else(|| malformed(node, format!("there is no register `{name}`")))
    };
    let jump = |index| -> Result<u32> {
        let target = expression::constant(at(index)?)?;
        u32::try_from(target).map_err(|_| malformed(node, "a jump to nowhere"))
    };
    let name = json::text(node, "op")?;
    let op = match name {
        "assign" | "modify_field" => {
            at(1)?;
            assign(node, scope)?
        }
        "assign_VL" => Op::CopyVarbit { to: varbit(at(0)?, scope)?, from: varbit(at(1)?, scope)? },
        "assign_header" | "copy_header" => Op::CopyHeader { to: header(0)?, from: header(1)? },
        "assign_header_stack" | "assign_union_stack" => {
            match (expression::stack(at(0)?, scope)?, expression::stack(at(1)?, scope)?) {
                (StackRef::Headers(to), StackRef::Headers(from)) => Op::CopyStack { to, from },
                (StackRef::Unions(to), StackRef::Unions(from)) => Op::CopyUnionStack { to, from },
                _ => return Err(malformed(node, "a stack of headers and one of unions")),
            }
        }
        "assign_union" => {
            Op::CopyUnion { to: expression::union(at(0)?, scope)?, from: expression::union(at(1)?, scope)? }
        }
        "add_header" => Op::AddHeader(header(0)?),
        "remove_header" => Op::RemoveHeader(header(0)?),
        "push" => Op::Push { stack: expression::stack(at(0)?, scope)?, count: number(1)? },
        "pop" => Op::Pop { stack: expression::stack(at(0)?, scope)?, count: number(1)? },
        "mark_to_drop" => mark_to_drop(&header(0)?, scope),
        "drop" => drop_packet(node, scope)?,
        "count" => Op::Count { counter: named(0, &names.counters)?, index: low(1)? },
        "register_read" => {
            let (register, width) = register(1)?;
            Op::ReadRegister { to: target(at(0)?, scope)?, register, width, index: low(2)? }
        }
        "register_write" => {
            let (register, width) = register(0)?;
            let value = expression::number_of_width(at(2)?, scope, width)?;
            Op::WriteRegister { register, width, index: low(1)?, value }
        }
        "execute_meter" => {
            Op::Meter { meter: named(0, &names.meters)?, index: low(1)?, to: target(at(2)?, scope)? }
        }
        "modify_field_with_hash_based_offset" => Op::Hash {
            to: target(at(0)?, scope)?,
            base: low(1)?,
            calculation: named(2, &names.calculations)?,
            size: low(3)?,
        },
        "modify_field_rng_uniform" => Op::Random { to: target(at(0)?, scope)?, low: low(1)?, high: low(2)? },
        "clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress" => {
            Op::Clone { session: low(0)?, list: low(1)? }
        }
        "resubmit" => Op::Resubmit { list: low(0)? },
        "recirculate" => Op::Recirculate { list: low(0)? },
        "generate_digest" => Op::Digest { list: low(1)? },
        "truncate" => Op::Truncate { length: number(0)? },
        "exit" => Op::Exit,
        "assert" | "assume" => {
            Op::Assert { holds: expression::value(at(0)?, scope)?, place: json::location(node).into() }
        }
        "log_msg" => {
            // p4c writes an empty object for no arguments.
            let values = match json::member(at(1)?, "value")? {
                Value::Object(none) if none.is_empty() => &[],
                _ => json::list(at(1)?, "value")?,
            };
            let values = values.iter().map(|value| expression::value(value, scope));
            Op::Log { format: json::text(at(0)?, "value")?.into(), values: values.collect::<Result<_>>()? }
        }
        "_jump" => Op::Jump(jump(0)?),
        "_jump_if_zero" => Op::JumpIfZero { value: expression::value(at(0)?, scope)?, to: jump(1)? },
        "no_op" => Op::Nothing,
        other => return Err(unsupported(node, format!("primitive `{other}`"))),
    };
    // BMv2 loads no primitive with an argument too many either.
    if given > read.get() {
        let due = read.get();
        return Err(malformed(node, format!("`{name}` takes {due} parameters and is given {given}")));
    }
    Ok(op)
}

/// v1model's `mark_to_drop`: of the metadata that it is given, which may be a copy that never
/// becomes the packet's.
fn mark_to_drop(header: &HeaderRef, scope: &Scope<'_>) -> Op {
    let field = |name: &str| -> Option<Target> {
        let like = &scope.layout.headers[header.sample(scope.layout)? as usize];
        let field = like.fields.iter().position(|field| field.name == name)?;
        Some(match header {
            HeaderRef::Fixed(_) => Target::Slot(like.fields[field].slot),
            _ => Target::Dynamic { header: header.clone(), field: field as u32 },
        })
    };
    match field("egress_spec") {
        Some(egress_spec) => Op::Drop { egress_spec, mcast_grp: field("mcast_grp") },
        // BMv2 logs that this is not standard metadata, and goes on.
        None => Op::Nothing,
    }
}

/// P4-14's `drop`: of the packet's own metadata.
fn drop_packet(node: &Value, scope: &Scope<'_>) -> Result<Op> {
    let field = |name| scope.layout.intrinsic(name).map(Target::Slot);
    let missing = || malformed(node, "v1model needs the field `standard_metadata.egress_spec`");
    Ok(Op::Drop {
        egress_spec: field("standard_metadata.egress_spec").ok_or_else(missing)?,
        mcast_grp: field("intrinsic_metadata.mcast_grp"),
    })
}

/// The left side of an assignment, or the destination of an extern.
fn target(node: &Value, scope: &Scope<'_>) -> Result<Target> {
    let value = json::member(node, "value")?;
    match json::text(node, "type")? {
        "field" => Ok(Target::Slot(scope.layout.field(value)?)),
        "expression" if value.get("op").and_then(Value::as_str) == Some("access_field") => {
            let field = json::number(value, "right")? as u32;
            let header = expression::header(json::member(value, "left")?, scope)?;
            let like = header.sample(scope.layout).map(|header| &scope.layout.headers[header as usize]);
            match like.and_then(|like| like.fields.get(field as usize)) {
                Some(_) => Ok(Target::Dynamic { header, field }),
                None => Err(malformed(node, "no such field")),
            }
        }
        "expression" if value.get("op").is_none() => target(value, scope),
        "stack_field" => {
            let (stack, field) = json::pair(value)?;
            let stack = scope.layout.stack(stack)?;
            let first = scope.layout.stacks[stack as usize].headers[0];
            let field = scope.layout.field_number(first, field)?;
            let field = field.ok_or_else(|| malformed(node, "validity cannot be assigned"))?;
            Ok(Target::Dynamic { header: HeaderRef::Last(stack), field })
        }
        other => Err(unsupported(node, format!("assignment to a `{other}`"))),
    }
}

pub(crate) fn assign(node: &Value, scope: &Scope<'_>) -> Result<Op> {
    let to = target(parameter(node, 0)?, scope)?;
    let value = expression::number_of_width(parameter(node, 1)?, scope, to.value_bits(scope.layout))?;
    Ok(Op::Assign { to, value })
}

fn varbit(node: &Value, scope: &Scope<'_>) -> Result<Varbit> {
    let (header, field) = json::pair(json::member(node, "value")?)?;
    let index = scope.layout.header(header)?;
    let header = &scope.layout.headers[index as usize];
    let number = scope.layout.field_number(index, field)?;
    let field = number.map(|number| &header.fields[number as usize]).filter(|field| field.varbit);
    match (field, header.length) {
        (Some(field), Some(length)) => Ok(Varbit { slot: field.slot, length }),
        _ => Err(malformed(node, "assign_VL of a field of fixed width")),
    }
}
