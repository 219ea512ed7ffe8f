//! The range of every expression's values, and from that the number of limbs that computes it exactly.

use super::super::layout::Slot;
use super::{Expr, Ring};

/// `0 <= value < 2^bits`, or where `negative`, `-2^bits <= value < 2^bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) negative: bool,
    pub(super) bits: u32,
}

impl Range {
    fn unsigned(bits: u32) -> Self {
        Self { negative: false, bits }
    }

    fn signed(bits: u32) -> Self {
        Self { negative: true, bits }
    }

    /// A number of `bits` bits holds it: as unsigned, or in two's complement.
    fn fits(self, bits: u32) -> bool {
        self.bits <= if self.negative { bits - 1 } else { bits }
    }

    fn either(self, other: Self, more: u32) -> Self {
        Self {
            negative: self.negative || other.negative,
            bits: self.bits.max(other.bits).saturating_add(more),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    /// The exact value.
    Exact,
    /// The value modulo a power of two.
    Low,
}

impl Expr {
    pub(super) fn is_boolean(&self) -> bool {
        match self {
            Self::Compare { .. }
            | Self::Narrow { .. }
            | Self::FieldIs { .. }
            | Self::FieldSet(_)
            | Self::FieldCompare { .. }
            | Self::BoolAnd(..)
            | Self::BoolOr(..)
            | Self::BoolNot(_)
            | Self::NonZero(_)
            | Self::Valid(_)
            | Self::ValidUnion(_)
            | Self::SameHeader(..)
            | Self::SameUnion(..) => true,
            Self::Wide { value, .. } => value.is_boolean(),
            Self::If { then, .. } => then.is_boolean(),
            _ => false,
        }
    }

    pub(super) fn range(&self) -> Range {
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
            Self::Field(_) | Self::FieldBits { .. } => Range::unsigned(64),
            Self::WideField(slot) | Self::Param(slot) => slot_range(slot),
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
            Self::Wide { value, .. } | Self::ShiftRight { value, .. } | Self::NarrowShift { value, .. } => {
                value.range()
            }
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

    /// Evaluating modulo 2^`bits` gives what unbounded integers would give.
    pub(super) fn exact_in(&self, bits: u32, demand: Demand) -> bool {
        let exact = |side: &Self| side.exact_in(bits, Demand::Exact);
        let low = |side: &Self| side.exact_in(bits, Demand::Low);
        let fits = demand == Demand::Low || self.range().fits(bits);
        match self {
            // A result that fits is exact once its low bits are.
            Self::Ring { left, right, .. } => fits && low(left) && low(right),
            Self::Not(value) => fits && low(value),
            Self::ShiftLeft { value, by } => fits && low(value) && exact(by),
            Self::ShiftRight { value, by, .. } => exact(value) && exact(by),
            Self::Divide { left, right } | Self::Modulo { left, right } => {
                // P4 defines both on unsigned numbers only.
                exact(left) && exact(right) && !left.range().negative && !right.range().negative
            }
            Self::Compare { left, right, signed, .. } => {
                let both = |range: Range| !signed || Range { negative: true, ..range }.fits(bits);
                exact(left) && exact(right) && both(left.range()) && both(right.range())
            }
            Self::SignExtend { value, width } => *width <= bits && low(value),
            Self::Saturate { value, width, to_signed, .. } => {
                let range = value.range();
                *width <= bits
                    && exact(value)
                    && (!to_signed || Range { negative: true, ..range }.fits(bits) || !range.negative)
            }
            Self::If { condition, then, otherwise } => {
                exact(condition) && fits && then.exact_in(bits, demand) && otherwise.exact_in(bits, demand)
            }
            Self::BoolAnd(left, right) | Self::BoolOr(left, right) | Self::Narrow { left, right, .. } => {
                exact(left) && exact(right)
            }
            Self::BoolNot(value) | Self::NonZero(value) | Self::NarrowShift { value, .. } => exact(value),
            Self::WideField(_)
            | Self::Param(_)
            | Self::Register { .. }
            | Self::Dynamic { .. }
            | Self::BigConst(_)
            | Self::Wide { .. } => fits,
            _ => true,
        }
    }
}
