// SPDX-License-Identifier: Apache-2.0
//! The range of every expression's values, and from that the number of bits that computes it
//! exactly.

use super::super::layout::Slot;
use super::form::{Expr, Ring};

/// `0 <= value < 2^bits`, or where `negative`, `-2^bits <= value < 2^bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) negative: bool,
    pub(crate) bits: u32,
}

impl Range {
    fn unsigned(bits: u32) -> Self {
        Self { negative: false, bits }
    }

    fn signed(bits: u32) -> Self {
        Self { negative: true, bits }
    }

    /// Bits of a number that holds it: unsigned, or in two's complement.
    fn width(self) -> u32 {
        self.bits.saturating_add(u32::from(self.negative)).max(1)
    }

    fn either(self, other: Self, more: u32) -> Self {
        Self {
            negative: self.negative || other.negative,
            bits: self.bits.max(other.bits).saturating_add(more),
        }
    }
}

/// How many bits evaluating an expression takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// For the exact value.
    pub(crate) exact: u32,
    /// For the low bits, besides those that are asked for.
    pub(crate) low: u32,
    /// The most that an operand takes that is evaluated by itself: what is shifted right, divided,
    /// compared, an index.
    most: u32,
}

impl Default for Need {
    fn default() -> Self {
        Self { exact: 1, low: 1, most: 0 }
    }
}

impl Need {
    /// The most bits of any number in it, where its own value is exact.
    pub(crate) fn alone(self) -> u32 {
        self.exact.max(self.most)
    }

    /// The most bits of any number in it, where `width` low bits of its value are asked for.
    pub(crate) fn modulo(self, width: u32) -> u32 {
        self.low.max(self.most).max(width)
    }
}

impl Expr {
    pub(crate) fn is_boolean(&self) -> bool {
        match self {
            Self::Compare { .. }
            | Self::BoolAnd(..)
            | Self::BoolOr(..)
            | Self::BoolNot(_)
            | Self::NonZero(_)
            | Self::Valid(_)
            | Self::ValidUnion(_)
            | Self::SameHeader(..)
            | Self::SameUnion(..) => true,
            Self::If { then, .. } => then.is_boolean(),
            _ => false,
        }
    }

    pub(crate) fn range(&self) -> Range {
        let slot_range = |slot: &Slot| {
            // A signed field may hold its bits as an unsigned number.
            if slot.signed { Range::signed(slot.width) } else { Range::unsigned(slot.width) }
        };
        match self {
            Self::Const(value) => Range::unsigned(128 - value.leading_zeros()),
            Self::BigConst(limbs) => {
                let zeros = limbs.iter().rev().take_while(|&&limb| limb == 0).count();
                let top =
                    limbs.get(limbs.len().wrapping_sub(zeros + 1)).map_or(64, |limb| limb.leading_zeros());
                Range::unsigned((limbs.len() - zeros) as u32 * 64 - top)
            }
            Self::Field(slot) | Self::Param(slot) => slot_range(slot),
            Self::Dynamic { width, signed: true, .. } => Range::signed(*width),
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
            Self::ShiftRight { value, by, .. } => match (value.range(), &**by) {
                (Range { negative: false, bits }, Self::Const(by)) => {
                    Range::unsigned(bits.saturating_sub(u32::try_from(*by).unwrap_or(u32::MAX)))
                }
                (range, _) => range,
            },
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

    /// The bits that evaluating it takes.
    pub(crate) fn need(&self) -> Need {
        match self {
            Self::Const(_)
            | Self::BigConst(_)
            | Self::Field(_)
            | Self::Param(_)
            | Self::Dynamic { .. }
            | Self::StackNext { .. } => self.leaf(0),
            Self::Register { index, .. } => self.leaf(index.need().alone()),
            Self::Ring { left, right, .. } => self.ring(left.need(), right.need()),
            Self::Not(value) => self.ring(value.need(), Need::default()),
            Self::ShiftLeft { value, by } => {
                self.ring(value.need(), Need { most: by.need().alone(), ..Need::default() })
            }
            Self::ShiftRight { value, by, .. } => self.leaf(value.need().alone().max(by.need().alone())),
            // P4 defines both on unsigned numbers only.
            Self::Divide { left, right } | Self::Modulo { left, right } => {
                let negative = left.range().negative || right.range().negative;
                self.leaf(if negative { u32::MAX } else { left.need().alone().max(right.need().alone()) })
            }
            Self::SignExtend { value, .. } if matches!(**value, Self::Const(_)) => self.leaf(0),
            Self::SignExtend { value, width } => {
                let need = value.need();
                Need { exact: need.low.max(*width), ..need }
            }
            Self::Saturate { value, width, .. } => {
                self.leaf(value.need().alone().max(*width).saturating_add(1))
            }
            Self::If { condition, then, otherwise } => {
                let (then, otherwise) = (then.need(), otherwise.need());
                Need {
                    exact: then.exact.max(otherwise.exact).max(self.range().width()),
                    low: then.low.max(otherwise.low),
                    most: then.most.max(otherwise.most).max(condition.need().most),
                }
            }
            Self::Compare { .. } => Need { most: self.compared_bits(), ..Need::default() },
            Self::BoolAnd(left, right) | Self::BoolOr(left, right) => {
                Need { most: left.need().most.max(right.need().most), ..Need::default() }
            }
            Self::BoolNot(value) => Need { most: value.need().most, ..Need::default() },
            Self::NonZero(value) => Need { most: value.need().alone(), ..Need::default() },
            Self::Valid(_) | Self::ValidUnion(_) | Self::SameHeader(..) | Self::SameUnion(..) => {
                Need::default()
            }
        }
    }

    /// Bits in which a comparison's two sides are exact, and ordered as the comparison orders them.
    pub(crate) fn compared_bits(&self) -> u32 {
        let Self::Compare { left, right, signed, .. } = self else { return 1 };
        let side =
            |side: &Self| side.need().alone().max(side.range().bits.saturating_add(u32::from(*signed)));
        side(left).max(side(right))
    }

    fn leaf(&self, most: u32) -> Need {
        Need { exact: self.range().width(), low: 1, most }
    }

    /// Of an operation whose low bits depend on no more than its operands' low bits.
    fn ring(&self, left: Need, right: Need) -> Need {
        let low = left.low.max(right.low);
        Need { exact: self.range().width().max(low), low, most: left.most.max(right.most) }
    }
}
