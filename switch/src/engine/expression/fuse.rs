//! The commonest small trees as single nodes: most of a packet's time goes into walking expressions.

use super::super::layout::Layout;
use super::{Compare, Expr, HeaderRef, Ring};

impl Compare {
    fn mirrored(self) -> Self {
        match self {
            Self::Lt => Self::Gt,
            Self::Le => Self::Ge,
            Self::Gt => Self::Lt,
            Self::Ge => Self::Le,
            same => same,
        }
    }
}

impl Expr {
    /// The same expression with its small trees fused. Only what has been found exact may be: the analysis of
    /// ranges knows less of fused nodes.
    pub(super) fn fused(self, layout: &Layout) -> Self {
        let fuse = |value: Box<Self>| Box::new(value.fused(layout));
        match self {
            Self::NonZero(value) => match value.fused(layout) {
                Self::Field(at) => Self::FieldSet(at),
                value => Self::NonZero(Box::new(value)),
            },
            Self::Valid(HeaderRef::Fixed(header)) => {
                Self::FieldSet(layout.headers[header as usize].valid() as u32)
            }
            Self::Narrow { op, left, right } => match (left.fused(layout), right.fused(layout)) {
                (Self::Field(at), Self::Const(value)) => Self::FieldCompare { op, at, value: value as u64 },
                (Self::Const(value), Self::Field(at)) => {
                    Self::FieldCompare { op: op.mirrored(), at, value: value as u64 }
                }
                (left, right) => Self::Narrow { op, left: Box::new(left), right: Box::new(right) },
            },
            Self::NarrowShift { value, by } => match value.fused(layout) {
                Self::Field(at) if by < 64 => Self::FieldBits { at, shift: by, mask: u64::MAX },
                value => Self::NarrowShift { value: Box::new(value), by },
            },
            Self::Ring { op: Ring::And, left, right } => match (left.fused(layout), right.fused(layout)) {
                (Self::Field(at), Self::Const(mask)) => Self::FieldBits { at, shift: 0, mask: mask as u64 },
                (Self::FieldBits { at, shift, mask }, Self::Const(more)) => {
                    Self::FieldBits { at, shift, mask: mask & more as u64 }
                }
                (left, right) => Self::Ring { op: Ring::And, left: Box::new(left), right: Box::new(right) },
            },
            Self::Ring { op, left, right } => Self::Ring { op, left: fuse(left), right: fuse(right) },
            Self::BoolAnd(left, right) => Self::BoolAnd(fuse(left), fuse(right)),
            Self::BoolOr(left, right) => Self::BoolOr(fuse(left), fuse(right)),
            Self::BoolNot(value) => Self::BoolNot(fuse(value)),
            Self::If { condition, then, otherwise } => {
                Self::If { condition: fuse(condition), then: fuse(then), otherwise: fuse(otherwise) }
            }
            other => other,
        }
    }
}
