// SPDX-License-Identifier: Apache-2.0
//! From the JSON's expression objects to [`Expr`].

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::bits::{limbs_from_bytes, parse_hex};
use super::super::error::LoadError;
use super::super::json::{self, Result, malformed, unsupported};
use super::super::layout::{Layout, Slot};
use super::super::slot::sign_extend;
use super::form::{Compare, Expr, HeaderRef, MOST_LIMBS, Ring, StackRef};
use super::reference::{header, is_header, is_union, stack, union};

/// Names that expressions may use.
pub(crate) struct Scope<'a> {
    pub(crate) layout: &'a Layout,
    /// Register arrays and their widths in bits.
    pub(crate) registers: &'a BTreeMap<String, (u32, u32)>,
    /// The enclosing action's parameters.
    pub(crate) params: &'a [Slot],
}

/// A number whose exact value matters: an index, a key, an operand of a comparison.
pub(crate) fn number(node: &Value, scope: &Scope<'_>) -> Result<Expr> {
    let expr = value(node, scope)?;
    require(node, !expr.is_boolean(), "a boolean where a number is due")?;
    Ok(expr)
}

/// A number or a boolean, exactly.
pub(crate) fn value(node: &Value, scope: &Scope<'_>) -> Result<Expr> {
    let expr = build(node, scope)?;
    let bits = expr.need().alone();
    checked(node, expr, bits)
}

/// A number of which the low `width` bits matter: the right side of an assignment.
pub(crate) fn number_of_width(node: &Value, scope: &Scope<'_>, width: u32) -> Result<Expr> {
    let expr = build(node, scope)?;
    let bits = match expr {
        // Copied, not computed with.
        Expr::Const(_) | Expr::BigConst(_) | Expr::Field(_) | Expr::Param(_) => 1,
        ref expr => expr.need().modulo(width),
    };
    checked(node, expr, bits)
}

pub(crate) fn boolean(node: &Value, scope: &Scope<'_>) -> Result<Expr> {
    let expr = value(node, scope)?;
    require(node, expr.is_boolean(), "a number where a boolean is due")?;
    Ok(expr)
}

fn require(node: &Value, condition: bool, what: &str) -> Result<()> {
    if condition { Ok(()) } else { Err(malformed(node, format!("{what}: {}", json::excerpt(node)))) }
}

fn checked(node: &Value, expr: Expr, bits: u32) -> Result<Expr> {
    if bits as usize <= MOST_LIMBS * 64 { Ok(expr) } else { Err(too_wide(node)) }
}

fn too_wide(node: &Value) -> LoadError {
    let most = MOST_LIMBS * 64;
    unsupported(node, format!("arithmetic on more than {most} bits: {}", json::excerpt(node)))
}

/// A literal number, which may have a sign.
fn literal(node: &Value, text: &str) -> Result<Expr> {
    let (negative, bytes) =
        parse_hex(text).ok_or_else(|| malformed(node, format!("`{text}` is not hexadecimal")))?;
    let short = bytes.iter().skip_while(|&&byte| byte == 0).count() <= 16;
    if short && let Ok(value) = hex(node, text) {
        let value = Expr::Const(value);
        return Ok(if negative { Expr::SignExtend { value: Box::new(value), width: 128 } } else { value });
    }
    let wide = limbs_from_bytes(&bytes, bytes.len() as u32 * 8).unwrap_or_default();
    let wide = Expr::BigConst(wide.into());
    if !negative {
        return Ok(wide);
    }
    Ok(Expr::Ring { op: Ring::Sub, left: Box::new(Expr::Const(0)), right: Box::new(wide) })
}

fn hex(node: &Value, text: &str) -> Result<u128> {
    let (negative, bytes) =
        parse_hex(text).ok_or_else(|| malformed(node, format!("`{text}` is not hexadecimal")))?;
    let mut value = 0u128;
    for byte in bytes {
        if value >> 120 != 0 {
            return Err(unsupported(node, format!("constant of more than 128 bits: {text}")));
        }
        value = value << 8 | u128::from(byte);
    }
    if negative && value > 1 << 127 {
        return Err(unsupported(node, format!("constant of more than 128 bits: {text}")));
    }
    Ok(if negative { value.wrapping_neg() } else { value })
}

fn build(node: &Value, scope: &Scope<'_>) -> Result<Expr> {
    let value = json::member(node, "value")?;
    match json::text(node, "type")? {
        "expression" if value.get("op").is_some() => operation(value, scope),
        "expression" => build(value, scope),
        "field" => Ok(Expr::Field(scope.layout.field(value)?)),
        "hexstr" => literal(node, json::text(node, "value")?),
        "bool" => {
            let value = value.as_bool().ok_or_else(|| malformed(node, "a `bool` is not true or false"))?;
            Ok(Expr::NonZero(Box::new(Expr::Const(u128::from(value)))))
        }
        "local" | "runtime_data" => {
            let slot = value.as_u64().and_then(|index| scope.params.get(index as usize));
            let slot = slot.ok_or_else(|| malformed(node, "an action parameter that does not exist"))?;
            Ok(Expr::Param(*slot))
        }
        "stack_field" => {
            let (stack, field) = json::pair(value)?;
            let stack = scope.layout.stack(stack)?;
            let first = scope.layout.stacks[stack as usize].headers[0];
            let field = scope.layout.field_number(first, field)?;
            let field = field.ok_or_else(|| malformed(node, "a stack's validity is not a field"))?;
            dynamic(node, HeaderRef::Last(stack), first, field, scope)
        }
        "register" => {
            let (Some(name), Some(index)) = (value.get(0).and_then(Value::as_str), value.get(1)) else {
                return Err(malformed(node, "a register reference needs a name and an index"));
            };
            let known = || malformed(node, format!("there is no register `{name}`"));
            let (register, width) = *scope.registers.get(name).ok_or_else(known)?;
            Ok(Expr::Register { register, width, index: Box::new(number(index, scope)?) })
        }
        other => Err(unsupported(node, format!("expression of type `{other}`"))),
    }
}

fn operation(node: &Value, scope: &Scope<'_>) -> Result<Expr> {
    let op = json::text(node, "op")?;
    let null = |key| node.get(key).is_none_or(Value::is_null);
    let left = || json::member(node, "left").and_then(|side| build(side, scope)).map(Box::new);
    let right = || json::member(node, "right").and_then(|side| build(side, scope)).map(Box::new);
    let right_width = || {
        let width = json::member(node, "right").and_then(|side| json::text(side, "value"))?;
        u32::try_from(hex(node, width)?)
            .ok()
            .filter(|width| (1..MOST_LIMBS as u32 * 64).contains(width))
            .ok_or_else(|| unsupported(node, format!("`{op}` to a width of {width}")))
    };
    let ring = |op| -> Result<Expr> {
        let left = if null("left") { Box::new(Expr::Const(0)) } else { left()? };
        Ok(Expr::Ring { op, left, right: right()? })
    };
    Ok(match op {
        "+" => ring(Ring::Add)?,
        "-" => ring(Ring::Sub)?,
        "*" => ring(Ring::Mul)?,
        "&" => ring(Ring::And)?,
        "|" => ring(Ring::Or)?,
        "^" => ring(Ring::Xor)?,
        "~" => Expr::Not(right()?),
        "<<" => Expr::ShiftLeft { value: left()?, by: right()? },
        ">>" => {
            let value = left()?;
            let signed = value.range().negative;
            Expr::ShiftRight { value, by: right()?, signed }
        }
        "/" => Expr::Divide { left: left()?, right: right()? },
        "%" => Expr::Modulo { left: left()?, right: right()? },
        "==" | "!=" if is_header(json::member(node, "left")?) => {
            let left = header(json::member(node, "left")?, scope)?;
            let same = Expr::SameHeader(left, header(json::member(node, "right")?, scope)?);
            if op == "==" { same } else { Expr::BoolNot(Box::new(same)) }
        }
        "==" | "!=" if is_union(json::member(node, "left")?) => {
            let left = union(json::member(node, "left")?, scope)?;
            let same = Expr::SameUnion(left, union(json::member(node, "right")?, scope)?);
            if op == "==" { same } else { Expr::BoolNot(Box::new(same)) }
        }
        "==" => compare(Compare::Eq, left()?, right()?),
        "!=" => compare(Compare::Ne, left()?, right()?),
        "<" => compare(Compare::Lt, left()?, right()?),
        "<=" => compare(Compare::Le, left()?, right()?),
        ">" => compare(Compare::Gt, left()?, right()?),
        ">=" => compare(Compare::Ge, left()?, right()?),
        "and" => Expr::BoolAnd(left()?, right()?),
        "or" => Expr::BoolOr(left()?, right()?),
        "not" => Expr::BoolNot(right()?),
        "d2b" => Expr::NonZero(right()?),
        "b2d" => Expr::If {
            condition: right()?,
            then: Box::new(Expr::Const(1)),
            otherwise: Box::new(Expr::Const(0)),
        },
        "two_comp_mod" => Expr::SignExtend { value: left()?, width: right_width()? },
        "usat_cast" | "sat_cast" => {
            let value = left()?;
            let from_signed = value.range().negative;
            Expr::Saturate { value, width: right_width()?, to_signed: op == "sat_cast", from_signed }
        }
        "?" => {
            let condition = Box::new(boolean(json::member(node, "cond")?, scope)?);
            Expr::If { condition, then: left()?, otherwise: right()? }
        }
        "valid" => Expr::Valid(header(json::member(node, "right")?, scope)?),
        "valid_union" => Expr::ValidUnion(union(json::member(node, "right")?, scope)?),
        "access_field" => {
            let field = json::number(node, "right")? as u32;
            let header = header(json::member(node, "left")?, scope)?;
            let like = header.sample(scope.layout).ok_or_else(|| malformed(node, "no such header"))?;
            dynamic(node, header, like, field, scope)?
        }
        "last_stack_index" => Expr::StackNext { next: next_of(node, scope)?, minus: 1 },
        "size_stack" => Expr::StackNext { next: next_of(node, scope)?, minus: 0 },
        other => return Err(unsupported(node, format!("expression operator `{other}`"))),
    })
}

/// The limb that counts the elements of the stack on the right.
fn next_of(node: &Value, scope: &Scope<'_>) -> Result<usize> {
    Ok(match stack(json::member(node, "right")?, scope)? {
        StackRef::Headers(stack) => scope.layout.stacks[stack as usize].next,
        StackRef::Unions(stack) => scope.layout.union_stacks[stack as usize].next,
    })
}

/// A field of a header that is found at run time and has the fields of `like`.
fn dynamic(node: &Value, header: HeaderRef, like: u32, field: u32, scope: &Scope<'_>) -> Result<Expr> {
    let fields = &scope.layout.headers[like as usize].fields;
    let found = fields.get(field as usize).ok_or_else(|| malformed(node, "no such field"))?;
    let Slot { width, signed, .. } = found.slot;
    Ok(Expr::Dynamic { header, field, width, signed })
}

fn compare(op: Compare, left: Box<Expr>, right: Box<Expr>) -> Expr {
    let signed = left.range().negative || right.range().negative;
    Expr::Compare { op, left, right, signed }
}

/// The value of a constant expression: literals only.
pub(crate) fn constant(node: &Value) -> Result<u128> {
    hex(node, json::text(node, "value")?).map(|value| sign_extend(value, 128))
}
