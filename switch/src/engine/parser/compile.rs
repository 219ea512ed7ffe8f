// SPDX-License-Identifier: Apache-2.0
//! From the JSON's parsers, value sets and deparsers to states and steps.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::action::{Names, Op, Target, assign, compile_primitive};
use super::super::bits::{BitWriter, limbs_for, parse_hex, read_limbs};
use super::super::calculation::write_header;
use super::super::expression::{self, HeaderRef, Scope, UnionRef};
use super::super::json::{self, Result, malformed, parameter, unsupported};
use super::super::layout::{Header, Layout};
use super::{Case, KeyPart, LONGEST_LOOKAHEAD, State, Step};

/// A compiled parser.
#[derive(Clone, Debug)]
pub(crate) struct Parser {
    pub(crate) states: Vec<State>,
    pub(crate) start: Option<u32>,
    pub(crate) errors: Errors,
}

/// The program's codes of the core library's errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errors {
    pub(crate) no_error: u64,
    pub(crate) packet_too_short: u64,
    pub(crate) stack_out_of_bounds: u64,
    pub(crate) header_too_short: u64,
    pub(crate) parser_timeout: u64,
    pub(crate) invalid_argument: u64,
}

impl Errors {
    pub(crate) fn load(root: &Value) -> Result<Self> {
        let mut codes = BTreeMap::new();
        for node in json::list(root, "errors")? {
            if let (Some(name), Some(code)) =
                (node.get(0).and_then(Value::as_str), node.get(1).and_then(Value::as_u64))
            {
                codes.insert(name, code);
            }
        }
        // An error that the program does not declare still needs a code that is not `NoError`'s.
        let code = |name: &str, fallback| codes.get(name).copied().unwrap_or(fallback);
        Ok(Self {
            no_error: code("NoError", 0),
            packet_too_short: code("PacketTooShort", 1),
            stack_out_of_bounds: code("StackOutOfBounds", 3),
            header_too_short: code("HeaderTooShort", 4),
            parser_timeout: code("ParserTimeout", 5),
            invalid_argument: code("ParserInvalidArgument", 6),
        })
    }
}

/// A parser value set: filled by the control plane.
#[derive(Clone, Debug)]
pub(crate) struct ValueSet {
    pub(crate) name: String,
    /// Width in bits of a member.
    pub(crate) width: u32,
    /// Most members.
    pub(crate) size: usize,
    /// Widths of the select key's parts, which a member's bits are dealt out to.
    pub(crate) parts: Vec<u32>,
    pub(crate) members: Vec<Vec<u8>>,
    /// The members as select keys.
    pub(crate) limbs: Vec<Box<[u64]>>,
}

impl ValueSet {
    /// Replaces the members, each a big-endian number of the set's width.
    pub(crate) fn fill(&mut self, members: Vec<Vec<u8>>) {
        self.limbs = members.iter().map(|member| self.key(member)).collect();
        self.members = members;
    }

    fn key(&self, member: &[u8]) -> Box<[u64]> {
        let bytes = (self.width as usize).div_ceil(8);
        let mut padded = vec![0; bytes.saturating_sub(member.len())];
        padded.extend_from_slice(member);
        let mut offset = padded.len() * 8 - (self.width as usize).min(padded.len() * 8);
        let mut key = Vec::new();
        for &width in &self.parts {
            let at = key.len();
            key.resize(at + limbs_for(width), 0);
            read_limbs(&padded, offset, width, &mut key[at..]);
            offset += width as usize;
        }
        key.into()
    }
}

pub(crate) fn load_value_sets(root: &Value) -> Result<Vec<ValueSet>> {
    let mut sets = Vec::new();
    for node in json::list(root, "parse_vsets")? {
        let width = json::array_size(node, "compressed_bitwidth")? as u32;
        let name = json::text(node, "name")?.to_owned();
        let size = json::array_size(node, "max_size")?;
        sets.push(ValueSet { name, width, size, parts: vec![width], members: Vec::new(), limbs: Vec::new() });
    }
    Ok(sets)
}

impl Parser {
    pub(crate) fn load(root: &Value, scope: &Scope<'_>, names: &Names) -> Result<(Self, Vec<ValueSet>)> {
        let mut value_sets = load_value_sets(root)?;
        let errors = Errors::load(root)?;
        let Some(node) = json::list(root, "parsers")?.first() else {
            return Ok((Self { states: Vec::new(), start: None, errors }, value_sets));
        };
        let nodes = json::list(node, "parse_states")?;
        let mut numbers = BTreeMap::new();
        for (number, state) in nodes.iter().enumerate() {
            numbers.insert(json::text(state, "name")?, number as u32);
        }
        let find = |at: &Value, name: &Value| -> Result<Option<u32>> {
            match name {
                Value::Null => Ok(None),
                Value::String(name) => match numbers.get(name.as_str()) {
                    Some(number) => Ok(Some(*number)),
                    None => Err(malformed(at, format!("there is no parser state `{name}`"))),
                },
                other => Err(malformed(at, format!("{} is not a parser state", json::excerpt(other)))),
            }
        };
        let mut set_numbers: BTreeMap<String, usize> = BTreeMap::new();
        for (number, set) in value_sets.iter().enumerate() {
            set_numbers.entry(set.name.clone()).or_insert(number);
        }
        let mut states = Vec::new();
        for state in nodes {
            let steps = json::list(state, "parser_ops")?
                .iter()
                .map(|op| json::located(op, step(op, scope, names)))
                .collect::<Result<Vec<Step>>>()?;
            let key = json::list(state, "transition_key")?
                .iter()
                .map(|part| key_part(part, scope.layout))
                .collect::<Result<Vec<KeyPart>>>()?;
            let mut cases = Vec::new();
            let mut default = None;
            for transition in json::list(state, "transitions")? {
                let next = find(transition, transition.get("next_state").unwrap_or(&Value::Null))?;
                match transition.get("type").and_then(Value::as_str).unwrap_or("hexstr") {
                    "default" => default = next,
                    "hexstr" if transition.get("value").and_then(Value::as_str) == Some("default") => {
                        default = next;
                    }
                    "hexstr" => {
                        let value = padded_key(transition, "value", &key)?
                            .ok_or_else(|| malformed(transition, "a transition without a value"))?;
                        cases.push(Case::Value { value, mask: padded_key(transition, "mask", &key)?, next });
                    }
                    "parse_vset" => {
                        let name = json::text(transition, "value")?;
                        let missing = || malformed(transition, format!("there is no value set `{name}`"));
                        let set = *set_numbers.get(name).ok_or_else(missing)?;
                        let parts: Vec<u32> = key.iter().map(KeyPart::width).collect();
                        if parts.iter().sum::<u32>() != value_sets[set].width {
                            return Err(malformed(
                                transition,
                                format!("value set `{name}` is not as wide as the key it is matched against"),
                            ));
                        }
                        value_sets[set].parts = parts;
                        let mask = padded_key(transition, "mask", &key)?;
                        cases.push(Case::Set { set: set as u32, mask, next });
                    }
                    other => {
                        return Err(unsupported(transition, format!("parser transition of type `{other}`")));
                    }
                }
            }
            states.push(State { steps, key, cases, default });
        }
        let start = find(node, json::member(node, "init_state")?)?;
        Ok((Self { states, start, errors }, value_sets))
    }
}

fn step(node: &Value, scope: &Scope<'_>, names: &Names) -> Result<Step> {
    let first = parameter(node, 0)?;
    let op = json::text(node, "op")?;
    Ok(match op {
        "extract" | "extract_VL" => {
            let kind = json::text(first, "type")?;
            let bits = match op {
                "extract_VL" => Some(expression::number(parameter(node, 1)?, scope)?),
                _ => None,
            };
            let has_varbit = |header: u32| scope.layout.headers[header as usize].length.is_some();
            let check = |header| match (has_varbit(header), bits.is_some()) {
                (true, false) => Err(unsupported(node, "extract of a header with a length expression")),
                (false, true) => Err(malformed(node, "extract_VL of a header of fixed length")),
                _ => Ok(()),
            };
            match kind {
                "regular" => {
                    let header = scope.layout.header(json::text(first, "value")?)?;
                    check(header)?;
                    match bits {
                        Some(bits) => Step::ExtractVariable { header, bits },
                        None => Step::Extract(header),
                    }
                }
                "stack" => {
                    let stack = scope.layout.stack(json::text(first, "value")?)?;
                    check(scope.layout.stacks[stack as usize].headers[0])?;
                    match bits {
                        Some(bits) => Step::ExtractNextVariable { stack, bits },
                        None => Step::ExtractNext(stack),
                    }
                }
                "union_stack" => {
                    let (stack, member) = json::pair(json::member(first, "value")?)?;
                    let stack = scope.layout.union_stack(stack)?;
                    let (member, header) = scope.layout.union_stack_member(stack, member)?;
                    check(header)?;
                    Step::ExtractNextMember { stack, member, bits }
                }
                other => return Err(unsupported(node, format!("extract to a `{other}`"))),
            }
        }
        "set" => {
            let to = scope.layout.field(json::member(first, "value")?)?;
            let source = parameter(node, 1)?;
            match json::text(source, "type")? {
                "lookahead" => {
                    let (offset, width) = lookahead(json::member(source, "value")?)?;
                    Step::SetLookahead { to: Target::Slot(to), offset, width }
                }
                _ => Step::Primitive(assign(node, scope)?),
            }
        }
        "verify" => {
            let error = parameter(node, 1)?;
            let error = match error.as_u64() {
                Some(code) => expression::Expr::Const(u128::from(code)),
                None => expression::number(error, scope)?,
            };
            Step::Verify { condition: expression::boolean(first, scope)?, error }
        }
        "shift" => {
            let bytes = first.as_u64().ok_or_else(|| malformed(node, "shift by what is not a number"))?;
            Step::Advance(expression::Expr::Const(u128::from(bytes) * 8))
        }
        "advance" => Step::Advance(expression::number(first, scope)?),
        "primitive" => Step::Primitive(compile_primitive(first, scope, names)?),
        other => return Err(unsupported(node, format!("parser operation `{other}`"))),
    })
}

fn lookahead(node: &Value) -> Result<(u32, u32)> {
    const FARTHEST: u64 = 1 << 20;
    match (node.get(0).and_then(Value::as_u64), node.get(1).and_then(Value::as_u64)) {
        (Some(offset @ 0..FARTHEST), Some(width @ 1..)) if width <= u64::from(LONGEST_LOOKAHEAD) => {
            Ok((offset as u32, width as u32))
        }
        _ => Err(malformed(node, "lookahead needs an offset and a width")),
    }
}

fn key_part(node: &Value, layout: &Layout) -> Result<KeyPart> {
    let value = json::member(node, "value")?;
    match json::text(node, "type")? {
        "field" => Ok(KeyPart::Field(layout.field(value)?)),
        "stack_field" => {
            let (stack, field) = json::pair(value)?;
            let stack = layout.stack(stack)?;
            let first = layout.stacks[stack as usize].headers[0];
            let field = layout.field_number(first, field)?;
            let field = field.ok_or_else(|| malformed(node, "validity in a select"))?;
            let width = layout.headers[first as usize].fields[field as usize].slot.width;
            Ok(KeyPart::Last { header: HeaderRef::Last(stack), field, width })
        }
        "union_stack_field" => {
            let (Some(stack), Some(member), Some(field)) =
                (value.get(0).and_then(Value::as_str), value.get(1).and_then(Value::as_str), value.get(2))
            else {
                return Err(malformed(node, "a union stack's field needs a stack, a member and a field"));
            };
            let stack = layout.union_stack(stack)?;
            let (member, like) = layout.union_stack_member(stack, member)?;
            let field = layout.field_number(like, field.as_str().unwrap_or_default())?;
            let field = field.ok_or_else(|| malformed(node, "validity in a select"))?;
            let width = layout.headers[like as usize].fields[field as usize].slot.width;
            let header = HeaderRef::Member { union: UnionRef::Last(stack), member };
            Ok(KeyPart::Last { header, field, width })
        }
        "lookahead" => {
            let (offset, width) = lookahead(value)?;
            Ok(KeyPart::Lookahead { offset, width })
        }
        other => Err(unsupported(node, format!("select on a `{other}`"))),
    }
}

/// A transition's value or mask: the key's parts, each padded to whole bytes, as limbs.
fn padded_key(node: &Value, name: &str, key: &[KeyPart]) -> Result<Option<Box<[u64]>>> {
    let Some(text) = node.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let bytes = text.as_str().and_then(parse_hex).map(|(_, bytes)| bytes);
    let expected: usize = key.iter().map(|part| part.width().div_ceil(8) as usize).sum();
    let wrong = || malformed(node, format!("`{name}` is not {expected} bytes of hexadecimal: {text}"));
    let mut rest = &bytes.filter(|bytes| bytes.len() == expected).ok_or_else(wrong)?[..];
    let mut limbs = Vec::new();
    for part in key {
        let (bytes, after) = rest.split_at(part.width().div_ceil(8) as usize);
        rest = after;
        let at = limbs.len();
        limbs.resize(at + limbs_for(part.width()), 0);
        let padding = bytes.len() * 8 - part.width() as usize;
        read_limbs(bytes, padding, part.width(), &mut limbs[at..]);
    }
    Ok(Some(limbs.into()))
}

/// A header that leaves with the packet where its limb of validity says so.
#[derive(Clone, Copy, Debug)]
struct Emitted {
    valid: u32,
    header: u32,
    /// None where they vary.
    bytes: Option<u32>,
}

/// Which headers are sent, in which order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deparser {
    order: Vec<Emitted>,
    pub(crate) ops: Vec<Op>,
}

impl Deparser {
    pub(crate) fn load(root: &Value, scope: &Scope<'_>, names: &Names) -> Result<Self> {
        let Some(node) = json::list(root, "deparsers")?.first() else { return Ok(Self::default()) };
        let name = |header: &Value| match header.as_str() {
            Some(name) => scope.layout.header(name),
            None => Err(malformed(node, "`order` holds something other than header names")),
        };
        Ok(Self {
            order: json::list(node, "order")?
                .iter()
                .map(|header| {
                    let number = name(header)?;
                    let header = &scope.layout.headers[number as usize];
                    let bytes = header.length.is_none().then_some(header.fixed_bits / 8);
                    Ok(Emitted { header: number, valid: header.valid() as u32, bytes })
                })
                .collect::<Result<_>>()?,
            ops: json::list(node, "primitives")?
                .iter()
                .map(|primitive| compile_primitive(primitive, scope, names))
                .collect::<Result<_>>()?,
        })
    }

    /// Numbers of headers, valid or not, in the order in which they leave.
    #[cfg(feature = "native")]
    pub(crate) fn order(&self) -> impl Iterator<Item = u32> {
        self.order.iter().map(|emitted| emitted.header)
    }

    /// The headers that are valid, in order.
    fn valid<'a>(&'a self, layout: &'a Layout, phv: &'a [u64]) -> impl Iterator<Item = &'a Header> {
        let valid = self.order.iter().filter(|emitted| phv[emitted.valid as usize] != 0);
        valid.map(|emitted| &layout.headers[emitted.header as usize])
    }

    /// Bytes of all valid headers.
    pub(crate) fn header_bytes(&self, layout: &Layout, phv: &[u64]) -> usize {
        let bytes = |emitted: &Emitted| match emitted.bytes {
            _ if phv[emitted.valid as usize] == 0 => 0,
            Some(bytes) => bytes as usize,
            None => layout.headers[emitted.header as usize].bytes(phv),
        };
        self.order.iter().map(bytes).sum()
    }

    /// Writes the valid headers over the first `length` bytes of `data`; `false` where they take
    /// more or less, or are not made of whole words.
    pub(crate) fn overwrite(&self, layout: &Layout, phv: &[u64], data: &mut [u8], length: usize) -> bool {
        let mut at = 0;
        for header in self.valid(layout, phv) {
            let Some(words) = &header.words else { return false };
            let end = at + words.bytes();
            if end > length || !data.get_mut(at..).is_some_and(|data| words.overwrite(phv, data)) {
                return false;
            }
            at = end;
        }
        at == length
    }

    /// Appends the valid headers.
    pub(crate) fn write(&self, layout: &Layout, phv: &[u64], out: &mut Vec<u8>) {
        for header in self.valid(layout, phv) {
            if let Some(words) = &header.words {
                words.write(phv, out);
            } else {
                let mut writer = BitWriter::new(out);
                write_header(header, phv, &mut writer);
                writer.finish();
            }
        }
    }
}
