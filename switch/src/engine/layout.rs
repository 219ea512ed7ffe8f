// SPDX-License-Identifier: Apache-2.0
//! Where every header and field lives in the packet header vector (PHV).
//!
//! A PHV is one flat `Vec<u64>`. Every header owns a run of limbs: its validity, its fields
//! (little-endian limbs, unused high bits 0), and for a header with a variable-length field that
//! field's current width in bits. Stacks own one limb, the index of the next free element.
//! Everything is found by index; names exist at load time only.
//!
//! A signed field has one limb more: whether it holds its bits as an unsigned number. BMv2 lets a
//! signed field keep a number between its largest and `2^width - 1`, as registers and action
//! parameters of signed types give it, and computes with that number (the specification's value
//! would be negative); arithmetic and packets wrap as P4 says.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;

use super::bits::limbs_for;
use super::json::{self, Result, malformed, unsupported};
use super::wire::Words;

/// Widest fixed-width field accepted.
const WIDEST_FIELD: u64 = 1 << 14;

/// A value's place in a limb array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) at: u32,
    pub(super) width: u32,
    pub(super) signed: bool,
}

impl Slot {
    #[inline]
    pub(super) fn limbs(self) -> Range<usize> {
        let at = self.at as usize;
        at..at + limbs_for(self.width)
    }

    /// The limbs and, for a signed field of the PHV, the limb that says how to read them.
    pub(super) fn all_limbs(self) -> Range<usize> {
        let limbs = self.limbs();
        limbs.start..limbs.end + usize::from(self.signed)
    }

    /// The limb that is not 0 where a signed field of the PHV holds its bits as an unsigned number.
    pub(super) fn unsigned_flag(self) -> usize {
        self.limbs().end
    }
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) slot: Slot,
    /// Variable-length: `slot.width` is the largest width, the current one is in the header's
    /// `length` limb.
    pub(super) varbit: bool,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "P4's word")]
pub(super) struct Header {
    pub(super) name: String,
    pub(super) header_type: String,
    pub(super) metadata: bool,
    /// All of the header's limbs; the first is its validity.
    pub(super) limbs: Range<usize>,
    pub(super) fields: Vec<Field>,
    /// Fields' numbers by name.
    numbers: BTreeMap<String, u32>,
    /// How the fields lie in a packet; `None` where only their widths one after another tell.
    pub(super) words: Option<Words>,
    /// Bits of the fixed-width fields.
    pub(super) fixed_bits: u32,
    /// Limb that holds the current width of the variable-length field.
    pub(super) length: Option<usize>,
    /// The union it belongs to.
    pub(super) union: Option<u32>,
    /// The limbs that say how to read its signed fields.
    pub(super) unsigned_flags: Vec<usize>,
}

impl Header {
    #[inline]
    pub(super) fn valid(&self) -> usize {
        self.limbs.start
    }

    /// Bytes the header takes in a packet.
    #[inline]
    pub(super) fn bytes(&self, phv: &[u64]) -> usize {
        let variable = self.length.map_or(0, |length| phv[length] as usize);
        (self.fixed_bits as usize + variable) / 8
    }
}

#[derive(Clone, Debug)]
pub(super) struct Stack {
    pub(super) headers: Vec<u32>,
    /// Limb that holds the index of the next free element.
    pub(super) next: usize,
}

#[derive(Clone, Debug)]
pub(super) struct UnionStack {
    pub(super) unions: Vec<u32>,
    /// Limb that holds the index of the next free element.
    pub(super) next: usize,
}

/// The shape of a program's PHV.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) headers: Vec<Header>,
    pub(super) stacks: Vec<Stack>,
    pub(super) unions: Vec<Vec<u32>>,
    pub(super) union_stacks: Vec<UnionStack>,
    /// Limbs of a whole PHV.
    pub(super) size: usize,
    by_name: BTreeMap<String, u32>,
    stacks_by_name: BTreeMap<String, u32>,
    unions_by_name: BTreeMap<String, u32>,
    union_stacks_by_name: BTreeMap<String, u32>,
    /// The type of every union.
    union_types: Vec<String>,
    /// Names of a union type's members.
    union_members: BTreeMap<String, Vec<String>>,
    aliases: BTreeMap<String, (String, String)>,
}

impl Layout {
    /// Of a program whose headers and metadata take at most so many limbs.
    pub(super) fn load(root: &Value, most: usize) -> Result<Self> {
        let mut types = BTreeMap::new();
        for node in json::list(root, "header_types")? {
            types.insert(json::text(node, "name")?, node);
        }
        let mut layout = Self::default();
        let mut by_id = BTreeMap::new();
        for node in json::list(root, "headers")? {
            let type_name = json::text(node, "header_type")?;
            let header_type = types.get(type_name).ok_or_else(|| {
                malformed(node, format!("header type `{type_name}` is not among `header_types`"))
            })?;
            let index = layout.headers.len() as u32;
            let name = json::text(node, "name")?;
            layout.add_header(name, node, header_type, most)?;
            by_id.insert(json::number(node, "id")?, index);
            if layout.by_name.insert(name.to_owned(), index).is_some() {
                return Err(malformed(node, format!("two headers are called `{name}`")));
            }
        }
        let members = |node: &Value| -> Result<Vec<u32>> {
            json::list(node, "header_ids")?
                .iter()
                .map(|id| id.as_u64().and_then(|id| by_id.get(&id)).copied())
                .collect::<Option<Vec<u32>>>()
                .ok_or_else(|| malformed(node, "`header_ids` names a header that does not exist"))
        };
        for node in json::list(root, "header_stacks")? {
            let name = json::text(node, "name")?;
            let headers = members(node)?;
            let kind = |index: &u32| &layout.headers[*index as usize].header_type;
            if headers.windows(2).any(|two| kind(&two[0]) != kind(&two[1])) || headers.is_empty() {
                return Err(malformed(node, format!("stack `{name}` mixes header types or is empty")));
            }
            layout.stacks_by_name.insert(name.to_owned(), layout.stacks.len() as u32);
            layout.stacks.push(Stack { headers, next: layout.size });
            layout.size += 1;
        }
        layout.load_unions(root, &members)?;
        for node in json::list(root, "field_aliases")? {
            if let (Some(Value::String(alias)), Some(target)) = (node.get(0), node.get(1)) {
                let (header, field) = json::pair(target)?;
                layout.aliases.insert(alias.clone(), (header.to_owned(), field.to_owned()));
            }
        }
        Ok(layout)
    }

    fn load_unions(&mut self, root: &Value, members: &dyn Fn(&Value) -> Result<Vec<u32>>) -> Result<()> {
        let mut by_id = BTreeMap::new();
        let mut types = Vec::new();
        for node in json::list(root, "header_unions")? {
            let headers = members(node)?;
            let index = self.unions.len() as u32;
            for &header in &headers {
                self.headers[header as usize].union = Some(index);
            }
            by_id.insert(json::number(node, "id")?, index);
            types.push(json::text(node, "union_type")?.to_owned());
            self.unions_by_name.insert(json::text(node, "name")?.to_owned(), index);
            self.unions.push(headers);
        }
        for node in json::list(root, "header_union_stacks")? {
            let name = json::text(node, "name")?;
            let union_type = json::text(node, "union_type")?;
            let unions = json::list(node, "header_union_ids")?
                .iter()
                .map(|id| id.as_u64().and_then(|id| by_id.get(&id)).copied())
                .collect::<Option<Vec<u32>>>()
                .filter(|unions| unions.iter().all(|&union| types[union as usize] == union_type))
                .filter(|unions| !unions.is_empty())
                .ok_or_else(|| {
                    malformed(node, format!("union stack `{name}` is empty or has a union of another type"))
                })?;
            self.union_stacks_by_name.insert(name.to_owned(), self.union_stacks.len() as u32);
            self.union_stacks.push(UnionStack { unions, next: self.size });
            self.size += 1;
        }
        for node in json::list(root, "header_union_types")? {
            let mut names = Vec::new();
            for member in json::list(node, "headers")? {
                names.push(json::pair(member)?.0.to_owned());
            }
            self.union_members.insert(json::text(node, "name")?.to_owned(), names);
        }
        self.union_types = types;
        Ok(())
    }

    fn add_header(&mut self, name: &str, node: &Value, header_type: &Value, most: usize) -> Result<()> {
        let start = self.size;
        let mut at = start + 1;
        let mut fields = Vec::new();
        let mut numbers = BTreeMap::new();
        let mut fixed_bits = 0;
        let mut variable = None;
        for field in json::list(header_type, "fields")? {
            let (Some(Value::String(field_name)), Some(width)) = (field.get(0), field.get(1)) else {
                return Err(malformed(header_type, format!("a field of `{name}` has no name or width")));
            };
            let flag = |index: usize| field.get(index).and_then(Value::as_bool).unwrap_or(false);
            if flag(3) {
                return Err(unsupported(header_type, format!("saturating field `{name}.{field_name}`")));
            }
            let varbit = width.as_str() == Some("*");
            let width = if varbit {
                // `max_length` counts the header's bytes, those of fixed fields among them.
                let header_bits = json::number(header_type, "max_length")?.min(WIDEST_FIELD / 8) * 8;
                let longest = header_bits.saturating_sub(fixed_bits_of(header_type)?).max(8) as u32;
                if variable.replace(longest).is_some() {
                    return Err(malformed(header_type, format!("`{name}` has two variable-length fields")));
                }
                longest
            } else {
                let Some(width @ 1..=WIDEST_FIELD) = width.as_u64() else {
                    let field = json::excerpt(field);
                    return Err(malformed(header_type, format!("field {field} has a bad width")));
                };
                fixed_bits += width as u32;
                width as u32
            };
            let slot = Slot { at: at as u32, width, signed: flag(2) };
            at = slot.all_limbs().end;
            if at > most {
                return Err(unsupported(
                    node,
                    format!(
                        "`{name}`, with which headers and metadata take more than {most} limbs of 64 bits (--limit program)"
                    ),
                ));
            }
            numbers.entry(field_name.clone()).or_insert(fields.len() as u32);
            fields.push(Field { name: field_name.clone(), slot, varbit });
        }
        let metadata = json::flag(node, "metadata");
        if !metadata && !fixed_bits.is_multiple_of(8) {
            return Err(malformed(header_type, format!("header `{name}` is not a whole number of bytes")));
        }
        let length = variable.map(|_| at);
        at += usize::from(length.is_some());
        if at > most {
            let construct = format!("more than {most} limbs of headers and metadata (--limit program)");
            return Err(unsupported(node, construct));
        }
        self.size = at;
        let signed = fields.iter().map(|field: &Field| field.slot).filter(|slot| slot.signed);
        let words = if metadata { None } else { Words::plan(&fields) };
        let unsigned_flags = signed.map(Slot::unsigned_flag).collect();
        self.headers.push(Header {
            name: name.to_owned(),
            header_type: json::text(header_type, "name")?.to_owned(),
            metadata,
            limbs: start..at,
            fields,
            numbers,
            words,
            fixed_bits,
            length,
            union: None,
            unsigned_flags,
        });
        Ok(())
    }

    pub(super) fn header(&self, name: &str) -> Result<u32> {
        let known = || self.by_name.keys().cloned().collect::<Vec<_>>().join(", ");
        self.by_name.get(name).copied().ok_or_else(|| {
            malformed(&Value::Null, format!("there is no header `{name}`; there are: {}", known()))
        })
    }

    pub(super) fn stack(&self, name: &str) -> Result<u32> {
        let missing = || malformed(&Value::Null, format!("there is no header stack `{name}`"));
        self.stacks_by_name.get(name).copied().ok_or_else(missing)
    }

    pub(super) fn union(&self, name: &str) -> Result<u32> {
        let missing = || malformed(&Value::Null, format!("there is no header union `{name}`"));
        self.unions_by_name.get(name).copied().ok_or_else(missing)
    }

    pub(super) fn union_stack(&self, name: &str) -> Result<u32> {
        let missing = || malformed(&Value::Null, format!("there is no header union stack `{name}`"));
        self.union_stacks_by_name.get(name).copied().ok_or_else(missing)
    }

    /// A member's place in the unions of a stack, and the member of the first of them.
    pub(super) fn union_stack_member(&self, stack: u32, member: &str) -> Result<(u32, u32)> {
        let union = self.union_stacks[stack as usize].unions[0] as usize;
        let place = self.union_members.get(&self.union_types[union]);
        let place = place.and_then(|names| names.iter().position(|name| name == member));
        let header = place.and_then(|place| self.unions[union].get(place).copied());
        match (place, header) {
            (Some(place), Some(header)) => Ok((place as u32, header)),
            _ => Err(malformed(&Value::Null, format!("there is no union member `{member}`"))),
        }
    }

    /// The number of the member that is valid.
    pub(super) fn valid_member(&self, phv: &[u64], union: u32) -> Option<usize> {
        let members = &self.unions[union as usize];
        members.iter().position(|&header| phv[self.headers[header as usize].valid()] != 0)
    }

    /// Both valid, of one type, equal in every field.
    pub(super) fn same_header(&self, phv: &[u64], left: u32, right: u32) -> bool {
        let (left, right) = (&self.headers[left as usize], &self.headers[right as usize]);
        left.header_type == right.header_type
            && phv[left.valid()] != 0
            && phv[left.limbs.clone()] == phv[right.limbs.clone()]
    }

    /// Exchanges two headers of one type, validity and all.
    pub(super) fn swap_headers(&self, phv: &mut [u64], left: u32, right: u32) {
        let (left, right) = (&self.headers[left as usize].limbs, &self.headers[right as usize].limbs);
        for (left, right) in left.clone().zip(right.clone()) {
            phv.swap(left, right);
        }
    }

    /// A field's number inside its header; `None` for the hidden validity field.
    pub(super) fn field_number(&self, header: u32, name: &str) -> Result<Option<u32>> {
        let header = &self.headers[header as usize];
        if name == "$valid$" {
            return Ok(None);
        }
        if let Some(&number) = header.numbers.get(name) {
            return Ok(Some(number));
        }
        let known: Vec<&str> = header.fields.iter().map(|field| field.name.as_str()).collect();
        let (header, known) = (&header.name, known.join(", "));
        Err(malformed(&Value::Null, format!("`{header}` has no field `{name}`; it has: {known}")))
    }

    /// The place of `["header", "field"]`, where field may be `$valid$`.
    pub(super) fn field(&self, node: &Value) -> Result<Slot> {
        let (header, field) = json::pair(node)?;
        self.named(header, field)
    }

    /// The limb with the validity of the header of `["header", "field"]`; `None` for metadata,
    /// which is always there, and for validity itself.
    pub(super) fn validity_of(&self, node: &Value) -> Result<Option<usize>> {
        let (header, field) = json::pair(node)?;
        let header = &self.headers[self.header(header)? as usize];
        Ok((!header.metadata && field != "$valid$").then(|| header.valid()))
    }

    fn named(&self, header: &str, field: &str) -> Result<Slot> {
        let index = self.header(header)?;
        let header = &self.headers[index as usize];
        Ok(match self.field_number(index, field)? {
            Some(number) => header.fields[number as usize].slot,
            None => Slot { at: header.valid() as u32, width: 1, signed: false },
        })
    }

    /// A field under the name that BMv2 gives it, by way of the program's aliases.
    pub(super) fn intrinsic(&self, name: &str) -> Option<Slot> {
        if let Some((header, field)) = self.aliases.get(name) {
            return self.named(header, field).ok();
        }
        let (header, field) = name.split_once('.')?;
        self.named(header, field).ok()
    }

    /// Marks a header valid; its union siblings become invalid.
    pub(super) fn set_valid(&self, phv: &mut [u64], header: u32) {
        let header = &self.headers[header as usize];
        if let Some(union) = header.union {
            for &sibling in &self.unions[union as usize] {
                phv[self.headers[sibling as usize].valid()] = 0;
            }
        }
        phv[header.valid()] = 1;
    }

    /// Sets all metadata to 0, as BMv2 does between the life of a packet and of its copies.
    pub(super) fn reset_metadata(&self, phv: &mut [u64]) {
        for header in self.headers.iter().filter(|header| header.metadata) {
            phv[header.limbs.clone()].fill(0);
        }
    }

    /// Copies a whole header: its validity and, if valid, its fields.
    pub(super) fn copy_header(&self, phv: &mut [u64], to: u32, from: u32) {
        let source = &self.headers[from as usize];
        let target = &self.headers[to as usize];
        if phv[source.valid()] == 0 {
            phv[target.valid()] = 0;
        } else if source.limbs.len() == target.limbs.len() {
            self.set_valid(phv, to);
            phv.copy_within(source.limbs.clone(), target.limbs.start);
            // A source in the same union is valid no longer.
            phv[target.valid()] = 1;
        }
    }
}

/// Bits of a header type's fields of fixed width.
fn fixed_bits_of(header_type: &Value) -> Result<u64> {
    let width = |field: &Value| field.get(1).and_then(Value::as_u64).unwrap_or(0).min(WIDEST_FIELD);
    Ok(json::list(header_type, "fields")?.iter().map(width).sum())
}
