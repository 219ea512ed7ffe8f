// SPDX-License-Identifier: Apache-2.0
//! Values of any P4 type, from the flat list of fields that the engine has (P4Runtime,
//! "Representation of Arbitrary P4 Types").

use super::costs::DEEPEST;
use trimwire_p4runtime::config::p4_bitstring_like_type_spec::TypeSpec as Bits;
use trimwire_p4runtime::config::p4_data_type_spec::TypeSpec;
use trimwire_p4runtime::config::p4_new_type_spec::Representation;
use trimwire_p4runtime::config::{P4BitstringLikeTypeSpec, P4DataTypeSpec, P4TypeInfo};
use trimwire_p4runtime::v1::{P4Data, P4Header, P4StructLike, p4_data::Data};

/// A value of type `spec` from its fields in order of declaration; `None` when there are too few or
/// too many, or when the type has no flat form.
pub(super) fn from_fields(types: &P4TypeInfo, spec: &P4DataTypeSpec, fields: &[Vec<u8>]) -> Option<P4Data> {
    let mut fields = fields.iter();
    let value = build(types, spec, &mut fields, DEEPEST)?;
    fields.next().is_none().then_some(value)
}

fn build<'f>(
    types: &P4TypeInfo,
    spec: &P4DataTypeSpec,
    fields: &mut impl Iterator<Item = &'f Vec<u8>>,
    depth: u32,
) -> Option<P4Data> {
    let depth = depth.checked_sub(1)?;
    let data = match spec.type_spec.as_ref()? {
        TypeSpec::Bitstring(bits) => Data::Bitstring(bitstring(bits, fields.next()?)),
        TypeSpec::Bool(_) => Data::Bool(fields.next()?.iter().any(|byte| *byte != 0)),
        TypeSpec::SerializableEnum(_) => Data::EnumValue(fields.next()?.clone()),
        TypeSpec::Enum(of) => {
            let members = &types.enums.get(&of.name)?.members;
            Data::Enum(members.get(small(fields.next()?)?)?.name.clone())
        }
        TypeSpec::Error(_) => {
            let members = &types.error.as_ref()?.members;
            Data::Error(members.get(small(fields.next()?)?)?.clone())
        }
        TypeSpec::NewType(of) => match types.new_types.get(&of.name)?.representation.as_ref()? {
            Representation::OriginalType(spec) => return build(types, spec, fields, depth),
            Representation::TranslatedType(_) => Data::Bitstring(fields.next()?.clone()),
        },
        TypeSpec::Tuple(of) => {
            let members = of.members.iter().map(|member| build(types, member, fields, depth));
            Data::Tuple(P4StructLike { members: members.collect::<Option<_>>()? })
        }
        TypeSpec::Struct(of) => {
            let members = types.structs.get(&of.name)?.members.iter();
            let members = members.map(|member| build(types, member.type_spec.as_ref()?, fields, depth));
            Data::Struct(P4StructLike { members: members.collect::<Option<_>>()? })
        }
        TypeSpec::Header(of) => {
            let members = types.headers.get(&of.name)?.members.iter();
            let values = members.map(|member| Some(bitstring(member.type_spec.as_ref()?, fields.next()?)));
            Data::Header(P4Header { is_valid: true, bitstrings: values.collect::<Option<_>>()? })
        }
        TypeSpec::HeaderUnion(_) | TypeSpec::HeaderStack(_) | TypeSpec::HeaderUnionStack(_) => return None,
    };
    Some(P4Data { data: Some(data) })
}

fn bitstring(spec: &P4BitstringLikeTypeSpec, value: &[u8]) -> Vec<u8> {
    match &spec.type_spec {
        Some(Bits::Int(int)) => super::entities::shortest_signed(value, int.bitwidth.unsigned_abs()),
        _ => value.to_vec(),
    }
}

fn small(value: &[u8]) -> Option<usize> {
    value.iter().try_fold(0_usize, |number, byte| number.checked_mul(256)?.checked_add(usize::from(*byte)))
}
