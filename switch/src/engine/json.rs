// SPDX-License-Identifier: Apache-2.0
//! Typed access to the BMv2 JSON tree, with errors that name the culprit and its place in the P4
//! source.

use serde_json::Value;

use super::error::LoadError;

pub(super) type Result<T> = std::result::Result<T, LoadError>;

/// ` (file.p4:12)` from the node's `source_info`, or nothing.
pub(super) fn location(node: &Value) -> String {
    let Some(info) = node.get("source_info") else { return String::new() };
    match (info.get("filename").and_then(Value::as_str), info.get("line").and_then(Value::as_u64)) {
        (Some(file), Some(line)) => format!(" ({file}:{line})"),
        _ => String::new(),
    }
}

pub(super) fn malformed(node: &Value, what: impl Into<String>) -> LoadError {
    LoadError::Malformed { what: what.into(), location: location(node) }
}

pub(super) fn unsupported(node: &Value, construct: impl Into<String>) -> LoadError {
    LoadError::Unsupported { construct: construct.into(), location: location(node) }
}

/// Gives an error without a place the node's.
pub(super) fn located<T>(node: &Value, result: Result<T>) -> Result<T> {
    result.map_err(|error| match error {
        LoadError::Malformed { what, location } if location.is_empty() => malformed(node, what),
        LoadError::Unsupported { construct, location } if location.is_empty() => unsupported(node, construct),
        other => other,
    })
}

pub(super) fn member<'a>(node: &'a Value, key: &str) -> Result<&'a Value> {
    node.get(key).ok_or_else(|| malformed(node, format!("`{key}` is missing from {}", excerpt(node))))
}

pub(super) fn text<'a>(node: &'a Value, key: &str) -> Result<&'a str> {
    let value = member(node, key)?;
    value.as_str().ok_or_else(|| malformed(node, format!("`{key}` is not a string: {}", excerpt(value))))
}

pub(super) fn number(node: &Value, key: &str) -> Result<u64> {
    let value = member(node, key)?;
    value.as_u64().ok_or_else(|| malformed(node, format!("`{key}` is not a number: {}", excerpt(value))))
}

pub(super) fn flag(node: &Value, key: &str) -> bool {
    node.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// The array under `key`; an absent or null one is empty.
pub(super) fn list<'a>(node: &'a Value, key: &str) -> Result<&'a [Value]> {
    match node.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => Err(malformed(node, format!("`{key}` is not an array: {}", excerpt(other)))),
    }
}

/// A pair of strings, such as `["ipv4", "ttl"]`.
pub(super) fn pair(node: &Value) -> Result<(&str, &str)> {
    match node.as_array().map(Vec::as_slice) {
        Some([Value::String(first), Value::String(second)]) => Ok((first, second)),
        _ => Err(malformed(node, format!("expected a header and a field, got {}", excerpt(node)))),
    }
}

/// The `index`-th of the node's `parameters`.
pub(super) fn parameter(node: &Value, index: usize) -> Result<&Value> {
    list(node, "parameters")?
        .get(index)
        .ok_or_else(|| malformed(node, format!("parameter {index} is missing from {}", excerpt(node))))
}

/// An upper bound on the bytes of memory that [`Value`]s of this text take: objects are maps whose
/// smallest node holds eleven members, arrays grow by doubling.
pub(super) fn memory(text: &[u8]) -> usize {
    const OBJECT: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 32;
    const MEMBER: usize = 48;
    const ELEMENT: usize = 2 * size_of::<Value>();
    const STRING: usize = 16;
    let mut bytes = 0;
    let mut text = text.iter();
    while let Some(byte) = text.next() {
        bytes += match byte {
            b'{' => OBJECT,
            b':' => MEMBER,
            b'[' | b',' => ELEMENT,
            b'"' => {
                let mut length = 0;
                while let Some(byte) = text.next().filter(|byte| **byte != b'"') {
                    length += 1;
                    if *byte == b'\\' {
                        text.next();
                    }
                }
                STRING + length
            }
            _ => 0,
        };
    }
    bytes
}

/// A size that has to be allocated: refused where it is absurd.
pub(super) fn array_size(node: &Value, key: &str) -> Result<usize> {
    const LARGEST: u64 = 1 << 24;
    let size = number(node, key)?;
    if size > LARGEST {
        return Err(malformed(node, format!("`{key}` is {size}, more than {LARGEST}")));
    }
    Ok(size as usize)
}

/// The beginning of a node's text, for error messages.
pub(super) fn excerpt(node: &Value) -> String {
    const LONGEST: usize = 120;
    let text = node.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
