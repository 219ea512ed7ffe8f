// SPDX-License-Identifier: Apache-2.0
//! Headers, unions and stacks that expressions and primitives refer to: known at load time, or
//! found at run time.

use serde_json::Value;

use super::super::json::{self, Result, malformed, unsupported};
use super::super::layout::Layout;
use super::compile::{Scope, number};
use super::form::{HeaderRef, StackRef, UnionRef};

impl HeaderRef {
    /// A header of the same type.
    pub(crate) fn sample(&self, layout: &Layout) -> Option<u32> {
        match self {
            Self::Fixed(header) => Some(*header),
            Self::Element { stack, .. } | Self::Last(stack) => {
                layout.stacks[*stack as usize].headers.first().copied()
            }
            Self::Member { union, member } => {
                let union = union.sample(layout)?;
                layout.unions[union as usize].get(*member as usize).copied()
            }
        }
    }
}

impl UnionRef {
    fn sample(&self, layout: &Layout) -> Option<u32> {
        match self {
            Self::Fixed(union) => Some(*union),
            Self::Element { stack, .. } | Self::Last(stack) => {
                layout.union_stacks[*stack as usize].unions.first().copied()
            }
        }
    }
}

/// The operation under any number of `expression` wrappers, and its operator's name.
fn operation(node: &Value) -> Option<(&Value, &str)> {
    let mut node = node;
    while node.get("type").and_then(Value::as_str) == Some("expression") {
        let inner = node.get("value")?;
        match inner.get("op").and_then(Value::as_str) {
            Some(op) => return Some((inner, op)),
            None => node = inner,
        }
    }
    None
}

/// The type of the node under any number of `expression` wrappers.
fn leaf(node: &Value) -> Option<&str> {
    match node.get("type").and_then(Value::as_str)? {
        "expression" if node.get("value")?.get("op").is_none() => leaf(node.get("value")?),
        kind => Some(kind),
    }
}

pub(crate) fn is_header(node: &Value) -> bool {
    match operation(node) {
        Some((_, op)) => {
            matches!(op, "dereference_header_stack" | "dereference_stack" | "access_union_header")
        }
        None => leaf(node) == Some("header"),
    }
}

pub(crate) fn is_union(node: &Value) -> bool {
    match operation(node) {
        Some((_, op)) => op == "dereference_union_stack",
        None => leaf(node) == Some("header_union"),
    }
}

/// A header: by name, an element of a stack, or a member of a union.
pub(crate) fn header(node: &Value, scope: &Scope<'_>) -> Result<HeaderRef> {
    let value = json::member(node, "value")?;
    match json::text(node, "type")? {
        "header" => {
            let name = value.as_str().ok_or_else(|| malformed(node, "a header's name is not a string"))?;
            Ok(HeaderRef::Fixed(scope.layout.header(name)?))
        }
        // p4c's way to write `stack.last` where a header is due.
        "stack_field" => match json::pair(value)? {
            (stack, "last") => Ok(HeaderRef::Last(scope.layout.stack(stack)?)),
            _ => Err(malformed(node, format!("{} where a header is due", json::excerpt(node)))),
        },
        "expression" if value.get("op").is_none() => header(value, scope),
        "expression" => match json::text(value, "op")? {
            "dereference_header_stack" | "dereference_stack" => {
                let StackRef::Headers(stack) = stack(json::member(value, "left")?, scope)? else {
                    return Err(malformed(node, "a stack of unions where one of headers is due"));
                };
                let index = Box::new(number(json::member(value, "right")?, scope)?);
                Ok(HeaderRef::Element { stack, index })
            }
            "access_union_header" => {
                let union = union(json::member(value, "left")?, scope)?;
                let header = HeaderRef::Member { union, member: json::number(value, "right")? as u32 };
                let missing = || malformed(node, "no such union member");
                header.sample(scope.layout).map(|_| header).ok_or_else(missing)
            }
            other => Err(unsupported(node, format!("expression operator `{other}`"))),
        },
        other => Err(malformed(node, format!("`{other}` where a header is due"))),
    }
}

/// A header union: by name, or an element of a stack.
pub(crate) fn union(node: &Value, scope: &Scope<'_>) -> Result<UnionRef> {
    match json::text(node, "type")? {
        "header_union" => Ok(UnionRef::Fixed(scope.layout.union(json::text(node, "value")?)?)),
        "expression" => {
            let value = json::member(node, "value")?;
            match value.get("op").and_then(Value::as_str) {
                None => union(value, scope),
                Some("dereference_union_stack") => {
                    let StackRef::Unions(stack) = stack(json::member(value, "left")?, scope)? else {
                        return Err(malformed(node, "a stack of headers where one of unions is due"));
                    };
                    let index = Box::new(number(json::member(value, "right")?, scope)?);
                    Ok(UnionRef::Element { stack, index })
                }
                Some(other) => Err(malformed(node, format!("`{other}` where a header union is due"))),
            }
        }
        other => Err(malformed(node, format!("`{other}` where a header union is due"))),
    }
}

/// A stack of headers or of unions, by name.
pub(crate) fn stack(node: &Value, scope: &Scope<'_>) -> Result<StackRef> {
    match json::text(node, "type")? {
        "header_stack" => Ok(StackRef::Headers(scope.layout.stack(json::text(node, "value")?)?)),
        "header_union_stack" => Ok(StackRef::Unions(scope.layout.union_stack(json::text(node, "value")?)?)),
        "expression" => stack(json::member(node, "value")?, scope),
        other => Err(malformed(node, format!("`{other}` where a header stack is due"))),
    }
}
