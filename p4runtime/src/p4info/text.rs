// SPDX-License-Identifier: Apache-2.0
//! Writes protobuf text format as p4c does: a field a line, fields by number, map entries by key.
//!
//! prost-reflect's own writer follows the iteration order of its hash maps, so that the same P4Info
//! would come out differently each time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};

/// Appends `message`'s fields, indented by `indent` spaces.
pub(super) fn write_message(message: &DynamicMessage, indent: usize, text: &mut String) {
    // `fields()` of a descriptor are in order of their numbers.
    for field in message.descriptor().fields().filter(|field| message.has_field(field)) {
        let value = message.get_field(&field);
        match value.as_ref() {
            Value::List(elements) => {
                for element in elements {
                    write_field(&field, element, indent, text);
                }
            }
            Value::Map(entries) => {
                let entries: BTreeMap<&MapKey, &Value> = entries.iter().collect();
                let Kind::Message(entry) = field.kind() else { continue };
                let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
                for (key, value) in entries {
                    let _ = writeln!(text, "{:indent$}{} {{", "", field.name());
                    write_field(&key_field, &Value::from(key.clone()), indent + 2, text);
                    write_field(&value_field, value, indent + 2, text);
                    let _ = writeln!(text, "{:indent$}}}", "");
                }
            }
            single => write_field(&field, single, indent, text),
        }
    }
}

// Writing to a String cannot fail.
fn write_field(field: &FieldDescriptor, value: &Value, indent: usize, text: &mut String) {
    let _ = write!(text, "{:indent$}{}", "", field.name());
    if let Value::Message(message) = value {
        text.push_str(" {\n");
        write_message(message, indent + 2, text);
        let _ = writeln!(text, "{:indent$}}}", "");
        return;
    }
    text.push_str(": ");
    match value {
        Value::String(string) => quote(string.as_bytes(), text),
        Value::Bytes(bytes) => quote(bytes, text),
        Value::Bool(bool) => text.push_str(if *bool { "true" } else { "false" }),
        Value::I32(number) => text.push_str(&number.to_string()),
        Value::I64(number) => text.push_str(&number.to_string()),
        Value::U32(number) => text.push_str(&number.to_string()),
        Value::U64(number) => text.push_str(&number.to_string()),
        Value::F32(number) => text.push_str(&number.to_string()),
        Value::F64(number) => text.push_str(&number.to_string()),
        Value::EnumNumber(number) => {
            let known = match field.kind() {
                Kind::Enum(descriptor) => descriptor.get_value(*number),
                _ => None,
            };
            match known {
                Some(known) => text.push_str(known.name()),
                None => text.push_str(&number.to_string()),
            }
        }
        // Taken care of above, and never nested.
        Value::Message(_) | Value::List(_) | Value::Map(_) => {}
    }
    text.push('\n');
}

fn quote(bytes: &[u8], text: &mut String) {
    text.push('"');
    for byte in bytes {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'"' | b'\'' | b'\\' => {
                text.push('\\');
                text.push(char::from(*byte));
            }
            0x20..=0x7e => text.push(char::from(*byte)),
            other => {
                let _ = write!(text, "\\{other:03o}");
            }
        }
    }
    text.push('"');
}
