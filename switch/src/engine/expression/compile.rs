//! From the JSON's expression objects to [`Expr`], with the range analysis that keeps 128 bits exact.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::bits::parse_hex;
use super::super::json::{self, Result, malformed, unsupported};
use super::super::layout::{Layout, Slot};
use super::{Compare, Expr, HeaderRef, Ring, sign_extend};

/// Names that expressions may use.
pub(in super::super) struct Scope<'a> {
    pub(in super::super) layout: &'a Layout,
    /// Register arrays and their widths in bits.
    pub(in super::super) registers: &'a BTreeMap<String, (u32, u32)>,
    /// The enclosing action's parameters.
    pub(in super::super) params: &'a [Slot],
}

/// `0 <= value < 2^bits`, or where `negative`, `-2^bits <= value < 2^bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    negative: bool,
    bits: u32,
}

impl Range {
    fn unsigned(bits: u32) -> Self {
        Self { negative: false, bits }
    }

    fn signed(bits: u32) -> Self {
        Self { negative: true, bits }
    }

    /// A word holds it: as unsigned, or in two's complement.
    fn fits(self) -> bool {
        self.bits <= if self.negative { 127 } else { 128 }
    }

    fn either(self, other: Self, more: u32) -> Self {
        Self {
            negative: self.negative || other.negative,
            bits: self.bits.max(other.bits).saturating_add(more),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// The exact value.
    Exact,
    /// The value modulo 2^128.
    Low,
}

/// A number whose exact value matters: an index, a key, an operand of a comparison.
pub(in super::super) fn number(node: &Value, scope: &Scope<'_>) -> Result<Expr> {
    let expr = checked(build(node, scope)?, node, Demand::Exact)?;
    require(node, !expr.is_boolean(), "a boolean where a number is due")?;
    Ok(expr)
}

/// An exact number that is never negative: what may be widened with zeros.
pub(in super::super) fn unsigned_number(node: &Value, scope: &Scope<'_>) -> Result<Expr> {
    let expr = number(node, scope)?;
    if expr.range().negative {
        return Err(unsupported(node, "signed arithmetic on more than 128 bits"));
    }
    Ok(expr)
}

/// A number of which only the low 128 bits matter: the right side of an assignment.
pub(in super::super) fn number_low(node: &Value, scope: &Scope<'_>) -> Result<Expr> {
    let expr = checked(build(node, scope)?, node, Demand::Low)?;
    Ok(expr)
}

pub(in super::super) fn boolean(node: &Value, scope: &Scope<'_>) -> Result<Expr> {
    let expr = checked(build(node, scope)?, node, Demand::Exact)?;
    require(node, expr.is_boolean(), "a number where a boolean is due")?;
    Ok(expr)
}

fn require(node: &Value, condition: bool, what: &str) -> Result<()> {
    if condition { Ok(()) } else { Err(malformed(node, format!("{what}: {}", json::excerpt(node)))) }
}

fn checked(expr: Expr, node: &Value, demand: Demand) -> Result<Expr> {
    if expr.exact_in_a_word(demand) {
        Ok(expr)
    } else {
        Err(unsupported(node, format!("arithmetic on more than 128 bits: {}", json::excerpt(node))))
    }
}

/// A header: `header`, or an element of a stack.
pub(in super::super) fn header(node: &Value, scope: &Scope<'_>) -> Result<HeaderRef> {
    let value = json::member(node, "value")?;
    match json::text(node, "type")? {
        "header" => {
            let name = value.as_str().ok_or_else(|| malformed(node, "a header's name is not a string"))?;
            Ok(HeaderRef::Fixed(scope.layout.header(name)?))
        }
        "expression" if value.get("op").is_none() => header(value, scope),
        "expression" => match json::text(value, "op")? {
            "dereference_header_stack" | "dereference_stack" => {
                let stack = stack(json::member(value, "left")?, scope)?;
                let index = Box::new(number(json::member(value, "right")?, scope)?);
                Ok(HeaderRef::Element { stack, index })
            }
            "access_union_header" => {
                let left = json::member(value, "left")?;
                let union = scope.layout.union(json::text(left, "value")?)?;
                let member = json::number(value, "right")? as usize;
                let members = &scope.layout.unions[union as usize];
                let header = members.get(member).ok_or_else(|| malformed(node, "no such union member"))?;
                Ok(HeaderRef::Fixed(*header))
            }
            other => Err(unsupported(node, format!("expression operator `{other}`"))),
        },
        other => Err(malformed(node, format!("`{other}` where a header is due"))),
    }
}

pub(in super::super) fn stack(node: &Value, scope: &Scope<'_>) -> Result<u32> {
    match json::text(node, "type")? {
        "header_stack" => scope.layout.stack(json::text(node, "value")?),
        "expression" => stack(json::member(node, "value")?, scope),
        other => Err(malformed(node, format!("`{other}` where a header stack is due"))),
    }
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

fn field(slot: Slot) -> Expr {
    if slot.width <= 64 && !slot.signed { Expr::Field(slot.at) } else { Expr::WideField(slot) }
}

fn build(node: &Value, scope: &Scope<'_>) -> Result<Expr> {
    let value = json::member(node, "value")?;
    match json::text(node, "type")? {
        "expression" if value.get("op").is_some() => operation(value, scope),
        "expression" => build(value, scope),
        "field" => Ok(field(scope.layout.field(value)?)),
        "hexstr" => {
            let text = json::text(node, "value")?;
            Ok(match hex(node, text)? {
                value if text.starts_with('-') => {
                    Expr::SignExtend { value: Box::new(Expr::Const(value)), width: 128 }
                }
                value => Expr::Const(value),
            })
        }
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
            .filter(|width| (1..=128).contains(width))
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
        "&" => match widening_mask(node, scope)? {
            Some(masked) => masked,
            None => ring(Ring::And)?,
        },
        "|" => ring(Ring::Or)?,
        "^" => ring(Ring::Xor)?,
        "~" => Expr::Not(right()?),
        "<<" => Expr::ShiftLeft { value: left()?, by: right()? },
        ">>" => {
            let value = left()?;
            let range = value.range();
            match *right()? {
                Expr::Const(by) if !range.negative && range.bits <= 64 => {
                    Expr::NarrowShift { value, by: u32::try_from(by).unwrap_or(u32::MAX) }
                }
                by => Expr::ShiftRight { value, by: Box::new(by), signed: range.negative },
            }
        }
        "/" => Expr::Divide { left: left()?, right: right()? },
        "%" => Expr::Modulo { left: left()?, right: right()? },
        "==" | "!=" if is_header(json::member(node, "left")?) => {
            let left = header(json::member(node, "left")?, scope)?;
            let same = Expr::SameHeader(left, header(json::member(node, "right")?, scope)?);
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
        "valid_union" => {
            Expr::ValidUnion(scope.layout.union(json::text(json::member(node, "right")?, "value")?)?)
        }
        "access_field" => {
            let field = json::number(node, "right")? as u32;
            let header = header(json::member(node, "left")?, scope)?;
            let first = match &header {
                HeaderRef::Fixed(header) => *header,
                HeaderRef::Element { stack, .. } | HeaderRef::Last(stack) => {
                    scope.layout.stacks[*stack as usize].headers[0]
                }
            };
            dynamic(node, header, first, field, scope)?
        }
        "last_stack_index" => {
            Expr::StackNext { stack: stack(json::member(node, "right")?, scope)?, minus: 1 }
        }
        "size_stack" => Expr::StackNext { stack: stack(json::member(node, "right")?, scope)?, minus: 0 },
        other => return Err(unsupported(node, format!("expression operator `{other}`"))),
    })
}

/// A field of an element of a stack.
fn dynamic(node: &Value, header: HeaderRef, like: u32, field: u32, scope: &Scope<'_>) -> Result<Expr> {
    let fields = &scope.layout.headers[like as usize].fields;
    let found = fields.get(field as usize).ok_or_else(|| malformed(node, "no such field"))?;
    if found.slot.width > 128 || found.slot.signed {
        return Err(unsupported(node, format!("field `{}` of a stack, wide or signed", found.name)));
    }
    Ok(Expr::Dynamic { header, field, width: found.slot.width })
}

/// `number & mask` where the mask has more than 128 bits, as a cast to a wide type leaves it.
fn widening_mask(node: &Value, scope: &Scope<'_>) -> Result<Option<Expr>> {
    let mask = json::member(node, "right")?;
    if mask.get("type").and_then(Value::as_str) != Some("hexstr") {
        return Ok(None);
    }
    let (false, mask) = parse_hex(json::text(mask, "value")?).unwrap_or((true, Vec::new())) else {
        return Ok(None);
    };
    let (high, low) = mask.split_at(mask.len().saturating_sub(16));
    if high.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let left = build(json::member(node, "left")?, scope)?;
    let range = left.range();
    if range.negative || range.bits > 128 {
        return Err(unsupported(node, "arithmetic on more than 128 bits"));
    }
    let low = low.iter().fold(0, |low, &byte| low << 8 | u128::from(byte));
    Ok(Some(Expr::Ring { op: Ring::And, left: Box::new(left), right: Box::new(Expr::Const(low)) }))
}

fn is_header(node: &Value) -> bool {
    match node.get("type").and_then(Value::as_str) {
        Some("header") => true,
        Some("expression") => {
            let value = node.get("value").unwrap_or(&Value::Null);
            match value.get("op").and_then(Value::as_str) {
                Some(op) => matches!(op, "dereference_header_stack" | "access_union_header"),
                None => is_header(value),
            }
        }
        _ => false,
    }
}

fn compare(op: Compare, left: Box<Expr>, right: Box<Expr>) -> Expr {
    if op == Compare::Eq
        && let (Expr::Field(at), Expr::Const(value)) = (&*left, &*right)
        && let Ok(value) = u64::try_from(*value)
    {
        return Expr::FieldIs { at: *at, value };
    }
    let below_64 = |range: Range| !range.negative && range.bits <= 64;
    if below_64(left.range()) && below_64(right.range()) {
        return Expr::Narrow { op, left, right };
    }
    let signed = left.range().negative || right.range().negative;
    Expr::Compare { op, left, right, signed }
}

impl Expr {
    fn is_boolean(&self) -> bool {
        match self {
            Self::Compare { .. }
            | Self::Narrow { .. }
            | Self::FieldIs { .. }
            | Self::BoolAnd(..)
            | Self::BoolOr(..)
            | Self::BoolNot(_)
            | Self::NonZero(_)
            | Self::Valid(_)
            | Self::ValidUnion(_)
            | Self::SameHeader(..) => true,
            Self::If { then, .. } => then.is_boolean(),
            _ => false,
        }
    }

    fn range(&self) -> Range {
        let slot_range = |slot: &Slot| {
            if slot.signed { Range::signed(slot.width - 1) } else { Range::unsigned(slot.width) }
        };
        match self {
            Self::Const(value) => Range::unsigned(128 - value.leading_zeros()),
            Self::Field(_) => Range::unsigned(64),
            Self::WideField(slot) | Self::Param(slot) => slot_range(slot),
            Self::Dynamic { width, .. }
            | Self::Register { width, .. }
            | Self::Saturate { width, to_signed: false, .. } => Range::unsigned(*width),
            Self::Ring { op, left, right } => {
                let (a, b) = (left.range(), right.range());
                match op {
                    Ring::Add => a.either(b, 1),
                    Ring::Sub => Range { negative: true, ..a.either(b, 1) },
                    Ring::Mul => Range {
                        negative: a.negative || b.negative,
                        bits: a.bits.saturating_add(b.bits).saturating_add(1),
                    },
                    Ring::And => match (a.negative, b.negative) {
                        (false, false) => Range::unsigned(a.bits.min(b.bits)),
                        (false, true) => a,
                        (true, false) => b,
                        (true, true) => a.either(b, 0),
                    },
                    Ring::Or | Ring::Xor => a.either(b, 0),
                }
            }
            Self::Not(value) => Range::signed(value.range().bits),
            Self::ShiftLeft { value, by } => {
                let range = value.range();
                let by = match **by {
                    Self::Const(by) => u32::try_from(by).unwrap_or(u32::MAX),
                    _ => u32::MAX,
                };
                Range { bits: range.bits.saturating_add(by), ..range }
            }
            Self::ShiftRight { value, .. } | Self::NarrowShift { value, .. } => value.range(),
            Self::Divide { left, .. } => left.range(),
            Self::Modulo { right, .. } => right.range(),
            Self::SignExtend { value, width } => match (&**value, width) {
                (Self::Const(value), 128) => Range::signed(128 - value.wrapping_neg().leading_zeros()),
                _ => Range::signed(width - 1),
            },
            Self::Saturate { width, .. } => Range::signed(width - 1),
            Self::If { then, otherwise, .. } => then.range().either(otherwise.range(), 0),
            Self::StackNext { .. } => Range::signed(32),
            _ => Range::unsigned(1),
        }
    }

    /// Evaluating in 128-bit words gives what unbounded integers would give.
    fn exact_in_a_word(&self, demand: Demand) -> bool {
        let exact = |side: &Self| side.exact_in_a_word(Demand::Exact);
        let fits = demand == Demand::Low || self.range().fits();
        match self {
            // A result that fits is exact once its low bits are.
            Self::Ring { left, right, .. } => {
                fits && left.exact_in_a_word(Demand::Low) && right.exact_in_a_word(Demand::Low)
            }
            Self::Not(value) => fits && value.exact_in_a_word(Demand::Low),
            Self::ShiftLeft { value, by } => fits && value.exact_in_a_word(Demand::Low) && exact(by),
            Self::ShiftRight { value, by, .. } => exact(value) && exact(by),
            Self::Divide { left, right } | Self::Modulo { left, right } => {
                // P4 defines both on unsigned numbers only.
                exact(left) && exact(right) && !left.range().negative && !right.range().negative
            }
            Self::Compare { left, right, signed, .. } => {
                let both = |range: Range| !signed || Range { negative: true, ..range }.fits();
                exact(left) && exact(right) && both(left.range()) && both(right.range())
            }
            Self::SignExtend { value, .. } => value.exact_in_a_word(Demand::Low),
            Self::Saturate { value, to_signed, .. } => {
                let range = value.range();
                exact(value) && (!to_signed || Range { negative: true, ..range }.fits() || !range.negative)
            }
            Self::If { condition, then, otherwise } => {
                exact(condition) && fits && then.exact_in_a_word(demand) && otherwise.exact_in_a_word(demand)
            }
            Self::BoolAnd(left, right) | Self::BoolOr(left, right) | Self::Narrow { left, right, .. } => {
                exact(left) && exact(right)
            }
            Self::BoolNot(value) | Self::NonZero(value) | Self::NarrowShift { value, .. } => exact(value),
            Self::WideField(_) | Self::Param(_) | Self::Register { .. } => fits,
            _ => true,
        }
    }
}

/// The value of a constant expression: literals only.
pub(in super::super) fn constant(node: &Value) -> Result<u128> {
    hex(node, json::text(node, "value")?).map(|value| sign_extend(value, 128))
}
