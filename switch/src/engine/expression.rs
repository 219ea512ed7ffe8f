//! Expressions, evaluated without allocation on 128-bit words, or on wider numbers where those are too narrow.
//!
//! BMv2 computes with unbounded integers and p4c masks every result to its P4 width. Two's complement
//! arithmetic modulo 2^128 gives the same answer wherever either the exact value fits a word (by an analysis of
//! ranges at load time), or only its low 128 bits are asked for; `+ - * & | ^ ~ <<` need no more than the low bits
//! of their operands for the low bits of their result. For what fits neither case the same analysis finds how many
//! limbs are enough, up to [`wide::MOST_LIMBS`].

mod compile;
mod fuse;
mod range;
mod reference;
mod wide;

pub(super) use compile::{Scope, boolean, constant, number, number_low, number_of_width, value};
pub(super) use reference::{HeaderRef, StackRef, UnionRef, header, stack, union};

use std::cmp::Ordering;

use super::bits::{mask64, mask128};
use super::layout::{Layout, Slot};
use super::stateful::Register;

/// What an expression reads.
pub(super) struct Env<'a> {
    pub(super) layout: &'a Layout,
    pub(super) phv: &'a [u64],
    /// The action's arguments.
    pub(super) params: &'a [u64],
    pub(super) registers: &'a [Register],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// An expression. Booleans are 0 and 1.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Const(u128),
    /// A constant of more than 128 bits, and not negative.
    BigConst(Box<[u64]>),
    /// An unsigned PHV field of at most 64 bits.
    Field(u32),
    /// Any other PHV field; of one above 128 bits, the low 128.
    WideField(Slot),
    Param(Slot),
    /// A field of a header found at run time; 0 where there is none.
    Dynamic {
        header: HeaderRef,
        field: u32,
        width: u32,
        signed: bool,
    },
    Register {
        register: u32,
        width: u32,
        index: Box<Expr>,
    },
    Ring {
        op: Ring,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Not(Box<Expr>),
    ShiftLeft {
        value: Box<Expr>,
        by: Box<Expr>,
    },
    ShiftRight {
        value: Box<Expr>,
        by: Box<Expr>,
        signed: bool,
    },
    /// A number below 2^64, shifted right by a constant.
    NarrowShift {
        value: Box<Expr>,
        by: u32,
    },
    Divide {
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Modulo {
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Compare {
        op: Compare,
        left: Box<Expr>,
        right: Box<Expr>,
        signed: bool,
    },
    /// `==` between a field and a constant.
    FieldIs {
        at: u32,
        value: u64,
    },
    /// A field that is not 0, such as a header's validity.
    FieldSet(u32),
    /// Ordering of a field and a constant below 2^64.
    FieldCompare {
        op: Compare,
        at: u32,
        value: u64,
    },
    /// `field & mask`, shifted right before.
    FieldBits {
        at: u32,
        shift: u32,
        mask: u64,
    },
    /// Ordering of numbers below 2^64.
    Narrow {
        op: Compare,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    /// `two_comp_mod`: the low bits as a signed number.
    SignExtend {
        value: Box<Expr>,
        width: u32,
    },
    /// `usat_cast` and `sat_cast`.
    Saturate {
        value: Box<Expr>,
        width: u32,
        to_signed: bool,
        from_signed: bool,
    },
    If {
        condition: Box<Expr>,
        then: Box<Expr>,
        otherwise: Box<Expr>,
    },
    BoolAnd(Box<Expr>, Box<Expr>),
    BoolOr(Box<Expr>, Box<Expr>),
    BoolNot(Box<Expr>),
    NonZero(Box<Expr>),
    Valid(HeaderRef),
    ValidUnion(UnionRef),
    SameHeader(HeaderRef, HeaderRef),
    SameUnion(UnionRef, UnionRef),
    /// Elements in use of a stack, which the limb `next` holds, less `minus`.
    StackNext {
        next: usize,
        minus: u32,
    },
    /// An expression that needs `words` limbs to be exact.
    Wide {
        words: usize,
        value: Box<Expr>,
    },
}

pub(super) fn sign_extend(value: u128, width: u32) -> u128 {
    let shift = 128 - width.clamp(1, 128);
    ((value << shift).cast_signed() >> shift).cast_unsigned()
}

/// A PHV slot's or parameter's value as a word; of a slot above 128 bits, the low 128.
#[inline]
pub(super) fn load(limbs: &[u64], slot: Slot) -> u128 {
    let at = slot.at as usize;
    let mut value = u128::from(limbs[at]);
    if slot.width > 64 {
        value |= u128::from(limbs[at + 1]) << 64;
    }
    if slot.signed && limbs[slot.unsigned_flag()] == 0 { sign_extend(value, slot.width) } else { value }
}

/// Stores the low bits of a word in a PHV slot; limbs above 128 bits become 0.
#[inline]
pub(super) fn store(limbs: &mut [u64], slot: Slot, value: u128) {
    let at = slot.at as usize;
    if slot.signed {
        // Wider ones are assigned as wide numbers.
        limbs[slot.unsigned_flag()] = u64::from(slot.width < 128 && value >> (slot.width - 1) == 1);
    }
    if slot.width <= 64 {
        limbs[at] = value as u64 & mask64(slot.width);
        return;
    }
    let value = value & mask128(slot.width);
    limbs[slot.limbs()].fill(0);
    limbs[at] = value as u64;
    limbs[at + 1] = (value >> 64) as u64;
}

impl Compare {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Eq => order.is_eq(),
            Self::Ne => order.is_ne(),
            Self::Lt => order.is_lt(),
            Self::Le => order.is_le(),
            Self::Gt => order.is_gt(),
            Self::Ge => order.is_ge(),
        }
    }
}

impl Expr {
    /// The low 64 bits of the value, which need only the low 64 bits of most operands.
    pub(super) fn low64(&self, env: &Env<'_>) -> u64 {
        match self {
            Self::Const(value) => *value as u64,
            Self::Field(at) => env.phv[*at as usize],
            Self::WideField(slot) if !slot.signed => env.phv[slot.at as usize],
            Self::Param(slot) => env.params[slot.at as usize],
            Self::Ring { op, left, right } => {
                let (left, right) = (left.low64(env), right.low64(env));
                match op {
                    Ring::Add => left.wrapping_add(right),
                    Ring::Sub => left.wrapping_sub(right),
                    Ring::Mul => left.wrapping_mul(right),
                    Ring::And => left & right,
                    Ring::Or => left | right,
                    Ring::Xor => left ^ right,
                }
            }
            Self::FieldBits { at, shift, mask } => env.phv[*at as usize] >> shift & mask,
            other => other.rare_low64(env),
        }
    }

    /// Apart, so that the common cases need few registers.
    #[inline(never)]
    fn rare_low64(&self, env: &Env<'_>) -> u64 {
        match self {
            Self::Not(value) => !value.low64(env),
            Self::ShiftLeft { value, by } => match by.eval(env) {
                by @ 0..=63 => value.low64(env) << by,
                _ => 0,
            },
            Self::NarrowShift { value, by } => value.low64(env).checked_shr(*by).unwrap_or(0),
            Self::If { condition, then, otherwise } => {
                if condition.truth(env) {
                    then.low64(env)
                } else {
                    otherwise.low64(env)
                }
            }
            other => other.eval(env) as u64,
        }
    }

    /// The same without masks that change none of the bits in `kept`: the assignment masks once more.
    pub(super) fn without_mask(self, kept: u64) -> Self {
        match self {
            Self::Ring { op: Ring::And, left, right } => match *right {
                Self::Const(mask) if mask as u64 & kept == kept => left.without_mask(kept),
                right => Self::Ring { op: Ring::And, left, right: Box::new(right) },
            },
            other => other,
        }
    }

    pub(super) fn truth(&self, env: &Env<'_>) -> bool {
        match self {
            Self::FieldIs { at, value } => env.phv[*at as usize] == *value,
            Self::FieldSet(at) => env.phv[*at as usize] != 0,
            Self::FieldCompare { op, at, value } => op.holds(env.phv[*at as usize].cmp(value)),
            Self::BoolAnd(left, right) => left.truth(env) && right.truth(env),
            Self::BoolOr(left, right) => left.truth(env) || right.truth(env),
            Self::BoolNot(value) => !value.truth(env),
            other => other.rare_truth(env),
        }
    }

    /// Apart, so that the common cases need few registers.
    #[inline(never)]
    fn rare_truth(&self, env: &Env<'_>) -> bool {
        match self {
            Self::NonZero(value) => value.eval(env) != 0,
            Self::Narrow { op, left, right } => op.holds(left.low64(env).cmp(&right.low64(env))),
            Self::Compare { op, left, right, signed } => {
                let (left, right) = (left.eval(env), right.eval(env));
                let order =
                    if *signed { left.cast_signed().cmp(&right.cast_signed()) } else { left.cmp(&right) };
                op.holds(order)
            }
            Self::Valid(header) => header
                .resolve(env)
                .is_some_and(|header| env.phv[env.layout.headers[header as usize].valid()] != 0),
            Self::ValidUnion(union) => {
                union.resolve(env).is_some_and(|union| env.layout.valid_member(env.phv, union).is_some())
            }
            Self::SameHeader(left, right) => same_header(env, left, right).unwrap_or(false),
            Self::SameUnion(left, right) => same_union(env, left, right).unwrap_or(false),
            Self::Wide { words, value } => value.wide_truth(env, *words),
            other => other.eval(env) != 0,
        }
    }

    pub(super) fn eval(&self, env: &Env<'_>) -> u128 {
        match self {
            Self::Const(value) => *value,
            Self::BigConst(limbs) => u128::from(limbs[0]) | u128::from(limbs[1]) << 64,
            Self::Wide { words, value } if !value.is_boolean() => value.wide(env, *words).low128(),
            Self::Field(at) => u128::from(env.phv[*at as usize]),
            Self::WideField(slot) => load(env.phv, *slot),
            Self::Param(slot) => load(env.params, *slot),
            Self::Dynamic { header, field, .. } => {
                let header = header.resolve(env).and_then(|header| env.layout.headers.get(header as usize));
                let field = header.and_then(|header| header.fields.get(*field as usize));
                field.map_or(0, |field| load(env.phv, field.slot))
            }
            Self::Register { register, index, .. } => {
                env.registers[*register as usize].load(index.eval(env)).unwrap_or(0)
            }
            Self::Ring { op, left, right } => {
                let (left, right) = (left.eval(env), right.eval(env));
                match op {
                    Ring::Add => left.wrapping_add(right),
                    Ring::Sub => left.wrapping_sub(right),
                    Ring::Mul => left.wrapping_mul(right),
                    Ring::And => left & right,
                    Ring::Or => left | right,
                    Ring::Xor => left ^ right,
                }
            }
            Self::Not(value) => !value.eval(env),
            Self::ShiftLeft { value, by } => match u32::try_from(by.eval(env)) {
                Ok(by @ 0..=127) => value.eval(env) << by,
                _ => 0,
            },
            Self::ShiftRight { value, by, signed } => {
                let value = value.eval(env);
                let by = u32::try_from(by.eval(env)).unwrap_or(u32::MAX);
                match (signed, by) {
                    (true, by) => (value.cast_signed() >> by.min(127)).cast_unsigned(),
                    (false, 0..=127) => value >> by,
                    (false, _) => 0,
                }
            }
            Self::NarrowShift { .. } | Self::FieldBits { .. } => u128::from(self.low64(env)),
            Self::Divide { left, right } => left.eval(env).checked_div(right.eval(env)).unwrap_or(0),
            Self::Modulo { left, right } => left.eval(env).checked_rem(right.eval(env)).unwrap_or(0),
            Self::SignExtend { value, width } => sign_extend(value.eval(env), *width),
            Self::Saturate { value, width, to_signed, from_signed } => {
                saturate(value.eval(env), *width, *to_signed, *from_signed)
            }
            Self::If { condition, then, otherwise } => {
                if condition.truth(env) {
                    then.eval(env)
                } else {
                    otherwise.eval(env)
                }
            }
            Self::StackNext { next, minus } => u128::from(env.phv[*next]).wrapping_sub(u128::from(*minus)),
            boolean => u128::from(boolean.truth(env)),
        }
    }
}

fn saturate(value: u128, width: u32, to_signed: bool, from_signed: bool) -> u128 {
    let negative = from_signed && value.cast_signed() < 0;
    if to_signed {
        let largest = mask128(width.clamp(1, 128) - 1);
        if negative {
            value.cast_signed().max(!largest.cast_signed()).cast_unsigned()
        } else {
            value.min(largest)
        }
    } else if negative {
        0
    } else {
        value.min(mask128(width))
    }
}

/// Both valid, of one type, equal in every field (BMv2: two invalid headers are not equal).
fn same_header(env: &Env<'_>, left: &HeaderRef, right: &HeaderRef) -> Option<bool> {
    Some(env.layout.same_header(env.phv, left.resolve(env)?, right.resolve(env)?))
}

/// The same member is valid in both, and equal (BMv2: two invalid unions are not equal).
fn same_union(env: &Env<'_>, left: &UnionRef, right: &UnionRef) -> Option<bool> {
    let (left, right) = (left.resolve(env)?, right.resolve(env)?);
    let member = env.layout.valid_member(env.phv, left)?;
    let same_member = env.layout.valid_member(env.phv, right) == Some(member);
    let header = |union: u32| env.layout.unions[union as usize].get(member).copied();
    Some(same_member && env.layout.same_header(env.phv, header(left)?, header(right)?))
}
