// SPDX-License-Identifier: Apache-2.0
//! What an encoded message takes in memory once it is decoded, found without decoding it.
//!
//! An empty `Update` is two bytes on the wire and more than four hundred in memory, so that a
//! message within any limit of bytes may be worth gigabytes. [`bytes`] walks the encoding
//! (protobuf's wire format) with the messages' descriptors and adds up what the decoder would make.
//! It allocates nothing.

use crate::p4info::FILE_DESCRIPTOR_SET;
use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A string, a byte string or a list of Rust's.
const VEC: u64 = 24;
/// What the allocator keeps beside a piece of memory.
const PIECE: u64 = 16;
/// Deepest nesting that the decoder follows (prost's limit).
const DEEPEST: usize = 100;

/// Why a message has no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodedError {
    /// The message would take more memory than asked about.
    #[error("the message takes more than {most} bytes of memory once it is decoded")]
    Beyond {
        /// The most that was asked about.
        most: u64,
    },
    /// The bytes are no message.
    #[error("byte {at} of the message is not protobuf's")]
    Malformed {
        /// Where.
        at: usize,
    },
    /// This crate has no message of this name.
    #[error("there is no message {name}")]
    Unknown {
        /// The name.
        name: String,
    },
}

/// An upper bound on the memory, in bytes, that `encoded`, a message of the type `name` (such as
/// `p4.v1.WriteRequest`), takes once it is decoded by the types of this crate.
///
/// # Errors
/// When that is more than `most`, as soon as that is known, or when `encoded` is no message.
pub fn bytes(name: &str, encoded: &[u8], most: u64) -> Result<u64, DecodedError> {
    let message = *SHAPES.by_name.get(name).ok_or_else(|| DecodedError::Unknown { name: name.to_owned() })?;
    let mut walk = Walk { encoded, at: 0, bytes: SHAPES.all[message].bytes, most };
    walk.message(message, encoded.len(), 0)?;
    Ok(walk.bytes)
}

/// What a field costs each time that it occurs.
#[derive(Clone, Copy, Debug)]
enum Field {
    /// A number on its own: it lies in its message.
    Number,
    /// Numbers in a list, each of so many bytes: one on its own, or many packed.
    Numbers(u64),
    /// A string or byte string.
    Bytes,
    /// Strings or byte strings in a list.
    BytesList,
    /// A message in its parent.
    Message(usize),
    /// Messages in a list, or boxed.
    Messages(usize),
}

#[derive(Debug, Default)]
struct Shape {
    /// The message's own size, those of the messages that it holds in place included.
    bytes: u64,
    fields: BTreeMap<u32, Field>,
}

#[derive(Debug, Default)]
struct Shapes {
    all: Vec<Shape>,
    by_name: BTreeMap<String, usize>,
}

static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("built by build.rs");
    let mut shapes = Shapes::default();
    for (number, message) in pool.all_messages().enumerate() {
        shapes.by_name.insert(message.full_name().to_owned(), number);
    }
    for message in pool.all_messages() {
        let fields = message.fields().map(|field| (field.number(), shapes.field(&field))).collect();
        shapes.all.push(Shape { bytes: size(&message, 0), fields });
    }
    shapes
});

impl Shapes {
    fn field(&self, field: &FieldDescriptor) -> Field {
        match field.kind() {
            Kind::Message(message) => {
                let number = self.by_name.get(message.full_name()).copied().unwrap_or_default();
                if field.is_list() || field.is_map() || recursive(&message) {
                    Field::Messages(number)
                } else {
                    Field::Message(number)
                }
            }
            Kind::String | Kind::Bytes if field.is_list() => Field::BytesList,
            Kind::String | Kind::Bytes => Field::Bytes,
            number if field.is_list() => Field::Numbers(scalar(&number)),
            _ => Field::Number,
        }
    }
}

/// Whether a message may hold itself, and so is boxed where it lies.
fn recursive(message: &MessageDescriptor) -> bool {
    fn reaches(from: &MessageDescriptor, to: &MessageDescriptor, depth: usize) -> bool {
        depth < 8
            && from.fields().any(|field| match field.kind() {
                Kind::Message(next) => next == *to || reaches(&next, to, depth + 1),
                _ => false,
            })
    }
    reaches(message, message, 0)
}

fn scalar(kind: &Kind) -> u64 {
    match kind {
        Kind::Double | Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64 => 8,
        Kind::Bool => 1,
        _ => 4,
    }
}

/// Bytes of a message's struct: at least what the compiler makes of it.
fn size(message: &MessageDescriptor, depth: usize) -> u64 {
    let field_size = |field: &FieldDescriptor| match field.kind() {
        _ if field.is_list() || field.is_map() => VEC,
        Kind::Message(inner) if recursive(&inner) => 8,
        Kind::Message(inner) if depth < 16 => size(&inner, depth + 1) + 8,
        Kind::Message(_) | Kind::String | Kind::Bytes => VEC,
        kind if field.supports_presence() => 2 * scalar(&kind).max(4),
        kind => scalar(&kind).max(4),
    };
    let alone = message.fields().filter(|field| field.containing_oneof().is_none());
    let alone: u64 = alone.map(|field| field_size(&field)).sum();
    let one_of = message.oneofs().map(|one| {
        let largest = one.fields().map(|field| field_size(&field)).max().unwrap_or(0);
        largest.next_multiple_of(8) + 8
    });
    (alone + one_of.sum::<u64>()).next_multiple_of(8)
}

struct Walk<'a> {
    encoded: &'a [u8],
    at: usize,
    bytes: u64,
    most: u64,
}

impl Walk<'_> {
    fn malformed(&self) -> DecodedError {
        DecodedError::Malformed { at: self.at }
    }

    fn varint(&mut self, end: usize) -> Result<u64, DecodedError> {
        let mut value = 0;
        for shift in 0..10 {
            let byte =
                *self.encoded.get(self.at).filter(|_| self.at < end).ok_or_else(|| self.malformed())?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << (7 * shift);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.malformed())
    }

    fn skip(&mut self, bytes: u64, end: usize) -> Result<(), DecodedError> {
        let left = (end - self.at) as u64;
        if bytes > left {
            return Err(self.malformed());
        }
        self.at += bytes as usize;
        Ok(())
    }

    fn add(&mut self, bytes: u64) -> Result<(), DecodedError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.most { Err(DecodedError::Beyond { most: self.most }) } else { Ok(()) }
    }

    fn message(&mut self, message: usize, end: usize, depth: usize) -> Result<(), DecodedError> {
        if depth > DEEPEST {
            return Err(self.malformed());
        }
        let shape = &SHAPES.all[message];
        while self.at < end {
            let key = self.varint(end)?;
            let field = u32::try_from(key >> 3).ok().and_then(|number| shape.fields.get(&number)).copied();
            match key & 7 {
                0 => {
                    self.varint(end)?;
                    self.number(field)?;
                }
                1 => {
                    self.skip(8, end)?;
                    self.number(field)?;
                }
                5 => {
                    self.skip(4, end)?;
                    self.number(field)?;
                }
                2 => {
                    let length = self.varint(end)?;
                    let start = self.at;
                    self.skip(length, end)?;
                    self.piece(field, start, depth)?;
                }
                // Groups: none of these messages has one, and no length says where they end.
                _ => return Err(self.malformed()),
            }
        }
        Ok(())
    }

    fn number(&mut self, field: Option<Field>) -> Result<(), DecodedError> {
        match field {
            // A list's room doubles as it grows.
            Some(Field::Numbers(bytes)) => self.add(2 * bytes),
            _ => Ok(()),
        }
    }

    /// What lies from `start` to here.
    fn piece(&mut self, field: Option<Field>, start: usize, depth: usize) -> Result<(), DecodedError> {
        let end = self.at;
        let length = (end - start) as u64;
        match field {
            // Nobody knows it: the decoder skips it.
            None | Some(Field::Number) => Ok(()),
            // A packed number is at least a byte.
            Some(Field::Numbers(bytes)) => self.add(length * 2 * bytes),
            Some(Field::Bytes) => self.add(length + PIECE),
            Some(Field::BytesList) => self.add(length + PIECE + 2 * VEC),
            Some(Field::Message(inner)) => {
                self.at = start;
                self.message(inner, end, depth + 1)
            }
            Some(Field::Messages(inner)) => {
                self.add(2 * SHAPES.all[inner].bytes + PIECE)?;
                self.at = start;
                self.message(inner, end, depth + 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config, v1};
    use prost::Message as _;

    const NO_LIMIT: u64 = u64::MAX;

    #[test]
    fn a_messages_own_size_is_at_least_the_compilers_and_not_twice_as_much() {
        for (name, actual) in [
            ("p4.v1.Update", size_of::<v1::Update>()),
            ("p4.v1.Entity", size_of::<v1::Entity>()),
            ("p4.v1.TableEntry", size_of::<v1::TableEntry>()),
            ("p4.v1.FieldMatch", size_of::<v1::FieldMatch>()),
            ("p4.v1.ActionProfileAction", size_of::<v1::ActionProfileAction>()),
            ("p4.v1.ActionProfileGroup.Member", size_of::<v1::action_profile_group::Member>()),
            ("p4.v1.Replica", size_of::<v1::Replica>()),
            ("p4.v1.P4Data", size_of::<v1::P4Data>()),
            ("p4.v1.ReadRequest", size_of::<v1::ReadRequest>()),
            ("p4.v1.StreamMessageRequest", size_of::<v1::StreamMessageRequest>()),
            ("p4.config.v1.Table", size_of::<config::Table>()),
            ("p4.config.v1.Action.Param", size_of::<config::action::Param>()),
            ("p4.config.v1.MatchField", size_of::<config::MatchField>()),
        ] {
            let (computed, actual) = (bytes(name, &[], NO_LIMIT).unwrap(), actual as u64);
            assert!((actual..=2 * actual).contains(&computed), "{name}: {computed} of {actual}");
        }
    }

    #[test]
    fn empty_updates_are_counted_and_refused_at_once() {
        let request =
            v1::WriteRequest { updates: vec![v1::Update::default(); 1 << 19], ..Default::default() };
        let encoded = request.encode_to_vec();
        assert!(encoded.len() <= 1 << 20);
        let memory = bytes("p4.v1.WriteRequest", &encoded, NO_LIMIT).unwrap();
        assert!(memory >= (size_of::<v1::Update>() as u64) << 19, "{memory}");
        let most = 32 << 20;
        assert_eq!(bytes("p4.v1.WriteRequest", &encoded, most), Err(DecodedError::Beyond { most }));
    }

    #[test]
    fn packed_numbers_and_text_and_nested_messages_are_counted() {
        let role = crate::stratum::P4RoleConfig { shared_p4_ids: vec![1; 1000], ..Default::default() };
        let memory = bytes("stratum.P4RoleConfig", &role.encode_to_vec(), NO_LIMIT).unwrap();
        assert!(memory >= 4_000, "{memory}");
        let packet = v1::PacketOut { payload: vec![7; 5_000], metadata: Vec::new() };
        let update = Some(v1::stream_message_request::Update::Packet(packet));
        let encoded = v1::StreamMessageRequest { update }.encode_to_vec();
        let memory = bytes("p4.v1.StreamMessageRequest", &encoded, NO_LIMIT).unwrap();
        assert!((5_000..6_000).contains(&memory), "{memory}");
    }

    #[test]
    fn what_is_no_message_has_no_size_and_no_panic() {
        for garbage in [&[0x12, 0xff][..], &[0x80; 11], &[0x0b], &[0x12, 5, 1], &[0x09, 1, 2], &[0x0d]] {
            let answer = bytes("p4.v1.WriteRequest", garbage, NO_LIMIT);
            assert!(matches!(answer, Err(DecodedError::Malformed { .. })), "{garbage:?}: {answer:?}");
        }
        assert!(matches!(bytes("p4.v1.Nothing", &[], 1), Err(DecodedError::Unknown { .. })));
    }

    #[test]
    fn what_the_decoder_takes_has_a_size_whatever_the_bytes() {
        use proptest::prelude::*;
        proptest!(|(garbage in prop::collection::vec(any::<u8>(), 0..64))| {
            let size = bytes("p4.v1.WriteRequest", &garbage, NO_LIMIT);
            if let Ok(request) = v1::WriteRequest::decode(&garbage[..]) {
                // Groups of unknown fields are skipped by the decoder and refused here.
                let updates = request.updates.len() * size_of::<v1::Update>();
                prop_assert!(size.is_err() || size.unwrap_or(0) >= updates as u64);
            }
        });
    }
}
