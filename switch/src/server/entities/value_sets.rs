// SPDX-License-Identifier: Apache-2.0
//! Parser value sets (P4Runtime, "ValueSetEntry").

use super::target::{Kind, Refusal, Result, Target};
use trimwire_p4runtime::config::MatchField;
use trimwire_p4runtime::p4info::Named as _;
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::field_match::{Exact, FieldMatchType};
use trimwire_p4runtime::{bytes, config};

impl Target<'_> {
    /// Replaces the members of a set.
    pub(super) fn write_value_set(&mut self, entry: &v1::ValueSetEntry) -> Result<()> {
        let set = self.index.value_set(entry.value_set_id)?;
        let members =
            entry.members.iter().map(|member| pack(set, member)).collect::<Result<Vec<Vec<u8>>>>()?;
        Ok(self.control.set_value_set(set.name(), &members)?)
    }

    pub(super) fn read_value_sets(&self, filter: &v1::ValueSetEntry) -> Result<Vec<Kind>> {
        let mut found = Vec::new();
        let sets = self.index.p4info().value_sets.iter();
        for set in sets.filter(|set| filter.value_set_id == 0 || filter.value_set_id == set.id()) {
            let members = self.control.value_set(set.name())?;
            found.push(Kind::ValueSetEntry(v1::ValueSetEntry {
                value_set_id: set.id(),
                members: members.iter().map(|member| unpack(set, member)).collect(),
            }));
        }
        Ok(found)
    }
}

fn width(field: &MatchField) -> u32 {
    field.bitwidth.unsigned_abs()
}

/// A member as one number: its fields in the order of the select key, most significant first,
/// without padding.
fn pack(set: &config::ValueSet, member: &v1::ValueSetMember) -> Result<Vec<u8>> {
    let mut bits = Vec::new();
    for field in &set.r#match {
        let given = member.r#match.iter().find(|given| given.field_id == field.id);
        let Some(FieldMatchType::Exact(exact)) = given.and_then(|given| given.field_match_type.as_ref())
        else {
            return Err(Refusal::unsupported(&format!(
                "matches other than exact in value sets, as field {} of {} is to have",
                field.name,
                set.name()
            )));
        };
        let value = bytes::padded(&exact.value, width(field));
        let unused = value.len() as u32 * 8 - width(field);
        bits.extend((unused..unused + width(field)).map(|at| value[at as usize / 8] >> (7 - at % 8) & 1));
    }
    let unused = bits.len().next_multiple_of(8) - bits.len();
    let mut packed = vec![0_u8; bits.len().div_ceil(8)];
    for (at, bit) in bits.iter().enumerate() {
        packed[(at + unused) / 8] |= bit << (7 - (at + unused) % 8);
    }
    Ok(packed)
}

/// The way back.
fn unpack(set: &config::ValueSet, member: &[u8]) -> v1::ValueSetMember {
    let all: u32 = set.r#match.iter().map(width).sum();
    let packed = bytes::padded(member, all);
    let mut at = all.next_multiple_of(8) - all;
    let mut matches: Vec<v1::FieldMatch> = set
        .r#match
        .iter()
        .map(|field| {
            let width = width(field);
            let mut value = vec![0_u8; width.div_ceil(8) as usize];
            let unused = width.next_multiple_of(8) - width;
            for bit in 0..width {
                let one =
                    packed.get((at + bit) as usize / 8).is_some_and(|b| b >> (7 - (at + bit) % 8) & 1 == 1);
                let to = unused + bit;
                value[to as usize / 8] |= u8::from(one) << (7 - to % 8);
            }
            at += width;
            let exact = Exact { value: bytes::shortest(&value).to_vec() };
            v1::FieldMatch { field_id: field.id, field_match_type: Some(FieldMatchType::Exact(exact)) }
        })
        .collect();
    matches.sort_by_key(|field| field.field_id);
    v1::ValueSetMember { r#match: matches }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trimwire_p4runtime::config::match_field::{Match, MatchType};

    fn set(widths: &[i32]) -> config::ValueSet {
        let fields = (1..).zip(widths).map(|(id, bitwidth)| MatchField {
            id,
            bitwidth: *bitwidth,
            r#match: Some(Match::MatchType(MatchType::Exact.into())),
            ..MatchField::default()
        });
        config::ValueSet { r#match: fields.collect(), ..config::ValueSet::default() }
    }

    fn member(values: &[u128]) -> v1::ValueSetMember {
        let fields = (1..).zip(values).map(|(field_id, value)| {
            let exact = Exact { value: bytes::encode(*value) };
            v1::FieldMatch { field_id, field_match_type: Some(FieldMatchType::Exact(exact)) }
        });
        v1::ValueSetMember { r#match: fields.collect() }
    }

    #[test]
    fn fields_stand_in_order_without_gaps() {
        let packed = pack(&set(&[4, 9, 16]), &member(&[0xa, 0x101, 0xbeef])).unwrap();
        // 1010 1_0000_0001 1011_1110_1110_1111, 29 bits.
        assert_eq!(packed, [0b000_10101, 0b0000_0001, 0xbe, 0xef]);
    }

    proptest! {
        #[test]
        fn members_come_back_as_they_were_given(
            fields in prop::collection::vec((1_i32..128, any::<u128>()), 1..6)
        ) {
            let (widths, values): (Vec<i32>, Vec<u128>) =
                fields.iter().map(|&(width, value)| (width, value & ((1 << width) - 1))).unzip();
            let (set, member) = (set(&widths), member(&values));
            prop_assert_eq!(unpack(&set, &pack(&set, &member).unwrap()), member);
        }
    }
}
