// SPDX-License-Identifier: Apache-2.0
//! What a program's messages and entries cost at most, known when it is pushed: one that would take
//! more than its share is refused then, by name, and no packet or Read meets it.

use crate::engine::{Control, ProgramLimits};
use std::collections::BTreeMap;
use trimwire_p4runtime::config::p4_data_type_spec::TypeSpec;
use trimwire_p4runtime::config::p4_new_type_spec::Representation;
use trimwire_p4runtime::config::{P4DataTypeSpec, P4TypeInfo};
use trimwire_p4runtime::p4info::{Index, Named as _};

/// Deepest nesting of a digest's types: types that contain themselves must not exhaust the stack.
pub(super) const DEEPEST: u32 = 32;
/// Bytes of a value in a message, beside its own.
const PIECE: u64 = 64;
/// Bytes of a value in a table entry, beside its own.
const FIELD: u64 = 16;
/// Bytes of an entry of which `--limit entries` may be there.
const ENTRY: u64 = 2 << 10;
/// Bytes of entries that are read at a time.
const READ: u64 = 2 << 20;

/// Costs of a program, in bytes of memory.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// A message of each digest, by id.
    pub(super) digests: BTreeMap<u32, u64>,
    /// The largest entry of a table, or cell of a register.
    entry: u64,
}

impl Costs {
    /// Holds a P4Info against its program, which has everything that the P4Info speaks of.
    ///
    /// # Errors
    /// In words that name the culprit.
    pub(super) fn of(index: &Index, control: &Control, limits: &ProgramLimits) -> Result<Self, String> {
        let (info, most) = (index.p4info(), limits.message_bytes() as u64);
        let within = |what: &str, name: &str, bytes: u64, most: u64| {
            if bytes <= most {
                return Ok(bytes);
            }
            Err(format!(
                "{what} {name} would take {bytes} bytes of memory, more than {most} (--limit program)"
            ))
        };
        let check = |what: &str, name: &str, bytes: u64| within(what, name, bytes, most);
        for header in &info.controller_packet_metadata {
            let fields = header.metadata.iter().map(|field| value(PIECE, field.bitwidth));
            check("a packet with header", header.name(), sum(fields))?;
        }
        let none = P4TypeInfo::default();
        let mut types = Types { info: info.type_info.as_ref().unwrap_or(&none), shapes: BTreeMap::new() };
        let sent: BTreeMap<&str, &[u16]> =
            control.digests().iter().map(|digest| (digest.name.as_str(), digest.widths.as_slice())).collect();
        let mut digests = BTreeMap::new();
        for digest in &info.digests {
            let (name, Some(spec)) = (digest.name(), &digest.type_spec) else { continue };
            let widths = sent.get(name).copied().unwrap_or_default();
            let shape = types.shape(spec, DEEPEST).map_err(|words| format!("digest {name}: {words}"))?;
            if let Some(fields) = shape.fields.filter(|fields| *fields != widths.len() as u64) {
                let sent = widths.len();
                return Err(format!(
                    "digest {name} has {fields} fields in the P4Info, {sent} in the program"
                ));
            }
            let sent = sum(widths.iter().map(|width| value(PIECE, i32::from(*width))));
            digests
                .insert(digest.id(), check("a message of digest", name, shape.bytes.saturating_add(sent))?);
        }
        let calls: BTreeMap<u32, u64> = info
            .actions
            .iter()
            .map(|action| (action.id(), sum(action.params.iter().map(|param| value(FIELD, param.bitwidth)))))
            .collect();
        let mut entry = 0;
        for table in &info.tables {
            let keys = sum(table.match_fields.iter().map(|field| 2 * value(FIELD, field.bitwidth)));
            let call = table.action_refs.iter().filter_map(|action| calls.get(&action.id)).max();
            let bytes = keys.saturating_add(call.copied().unwrap_or_default());
            entry = entry.max(check("an entry of table", table.name(), bytes)?);
        }
        for set in control.value_sets() {
            let member = sum(set.widths.iter().map(|width| value(PIECE, i32::from(*width))));
            within("value set", &set.name, member.saturating_mul(set.size as u64), READ)?;
        }
        for (name, _, width) in control.registers() {
            entry = entry.max(check("a cell of register", name, value(FIELD, i32::from(width)))?);
        }
        Ok(Self { digests, entry })
    }

    /// So many entries, or fewer where they are large.
    pub(super) fn entries(&self, most: usize) -> usize {
        (most as u64 * ENTRY / self.entry.max(ENTRY)) as usize
    }

    /// So many cells, or fewer where they are large.
    pub(super) fn cells(&self, most: u64) -> u64 {
        most.min(READ / self.entry.max(1)).max(1)
    }
}

fn value(beside: u64, bits: i32) -> u64 {
    beside + u64::from(bits.unsigned_abs().div_ceil(8))
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// What a value of a type is made of.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Fields that the program sends; `None`: the type has no flat form, and no message of it is
    /// ever made.
    fields: Option<u64>,
    bytes: u64,
    depth: u32,
}

/// Types by kind and name, each looked at once: they may name each other a million times over.
struct Types<'t> {
    info: &'t P4TypeInfo,
    /// `None`: it is being looked at.
    shapes: BTreeMap<(&'static str, &'t str), Option<Shape>>,
}

impl<'t> Types<'t> {
    fn shape(&mut self, spec: &'t P4DataTypeSpec, depth: u32) -> Result<Shape, String> {
        let info = self.info;
        if depth == 0 {
            return Err(format!("its types nest deeper than {DEEPEST}"));
        }
        let longest = |names: &mut dyn Iterator<Item = &String>| names.map(String::len).max().unwrap_or(0);
        match &spec.type_spec {
            None => Err("one of its types is missing".to_owned()),
            Some(TypeSpec::Bitstring(_) | TypeSpec::Bool(_) | TypeSpec::SerializableEnum(_)) => {
                Ok(Shape::leaf(0))
            }
            Some(TypeSpec::Enum(of)) => self.named("enum", &of.name, |_| {
                let members = &info.enums.get(&of.name)?.members;
                Some(Ok(Shape::leaf(longest(&mut members.iter().map(|member| &member.name)))))
            }),
            Some(TypeSpec::Error(_)) => self.named("error", "", |_| {
                Some(Ok(Shape::leaf(longest(&mut info.error.as_ref()?.members.iter()))))
            }),
            Some(TypeSpec::NewType(of)) => self.named("type", &of.name, |types| {
                Some(match info.new_types.get(&of.name)?.representation.as_ref()? {
                    Representation::OriginalType(spec) => types.around([spec].into_iter(), depth),
                    Representation::TranslatedType(_) => Ok(Shape::leaf(0)),
                })
            }),
            Some(TypeSpec::Tuple(of)) => self.around(of.members.iter(), depth),
            Some(TypeSpec::Struct(of)) => self.named("struct", &of.name, |types| {
                let members = &info.structs.get(&of.name)?.members;
                let specs =
                    members.iter().map(|member| member.type_spec.as_ref()).collect::<Option<Vec<_>>>()?;
                Some(types.around(specs.into_iter(), depth))
            }),
            Some(TypeSpec::Header(of)) => self.named("header", &of.name, |_| {
                let fields = info.headers.get(&of.name)?.members.len() as u64;
                Some(Ok(Shape { fields: Some(fields), bytes: PIECE * (fields + 1), depth: 1 }))
            }),
            Some(TypeSpec::HeaderUnion(_) | TypeSpec::HeaderStack(_) | TypeSpec::HeaderUnionStack(_)) => {
                Ok(Shape { fields: None, bytes: 0, depth: 1 })
            }
        }
    }

    fn named(
        &mut self,
        kind: &'static str,
        name: &'t str,
        look: impl FnOnce(&mut Self) -> Option<Result<Shape, String>>,
    ) -> Result<Shape, String> {
        match self.shapes.get(&(kind, name)) {
            Some(Some(shape)) => return Ok(*shape),
            Some(None) => return Err(format!("{kind} {name} contains itself")),
            None => {}
        }
        self.shapes.insert((kind, name), None);
        let shape = look(self).ok_or_else(|| format!("{kind} {name} is missing, or a part of it"))??;
        self.shapes.insert((kind, name), Some(shape));
        Ok(shape)
    }

    /// A value that holds others.
    fn around(
        &mut self,
        members: impl Iterator<Item = &'t P4DataTypeSpec>,
        depth: u32,
    ) -> Result<Shape, String> {
        let mut whole = Shape { fields: Some(0), bytes: PIECE, depth: 1 };
        for member in members {
            let member = self.shape(member, depth - 1)?;
            whole.fields = whole.fields.zip(member.fields).map(|(fields, more)| fields.saturating_add(more));
            whole.bytes = whole.bytes.saturating_add(member.bytes);
            whole.depth = whole.depth.max(member.depth + 1);
        }
        if whole.depth > DEEPEST {
            return Err(format!("its types nest deeper than {DEEPEST}"));
        }
        Ok(whole)
    }
}

impl Shape {
    /// A value of one field, which may be a name of so many bytes.
    fn leaf(name: usize) -> Self {
        Self { fields: Some(1), bytes: PIECE + name as u64, depth: 1 }
    }
}
