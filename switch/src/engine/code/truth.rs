// SPDX-License-Identifier: Apache-2.0
//! Booleans: comparisons and branches in one instruction.

use super::super::expression::{Compare, Expr};
use super::emitter::{Emitter, Label};
use super::insn::{At, Insn, WideOp};

impl Compare {
    /// What holds where this does not.
    fn opposite(self) -> Self {
        match self {
            Self::Eq => Self::Ne,
            Self::Ne => Self::Eq,
            Self::Lt => Self::Ge,
            Self::Le => Self::Gt,
            Self::Gt => Self::Le,
            Self::Ge => Self::Lt,
        }
    }
}

/// A comparison of two limbs.
struct Test {
    compare: Compare,
    signed: bool,
    left: At,
    right: At,
}

impl Emitter<'_> {
    /// Goes to `to` where the expression is `wanted`, and on where it is not.
    pub(super) fn branch_if(&mut self, expr: &Expr, wanted: bool, to: Label) {
        match expr {
            Expr::BoolNot(value) => self.branch_if(value, !wanted, to),
            Expr::BoolAnd(left, right) | Expr::BoolOr(left, right) => {
                // One side decides: false of `and`, true of `or`.
                let decisive = matches!(expr, Expr::BoolOr(..));
                if wanted == decisive {
                    self.branch_if(left, wanted, to);
                    self.branch_if(right, wanted, to);
                } else {
                    let after = self.label();
                    self.branch_if(left, decisive, after);
                    self.branch_if(right, wanted, to);
                    self.place(after);
                }
            }
            Expr::If { condition, then, otherwise } => {
                let (second, after) = (self.label(), self.label());
                self.branch_if(condition, false, second);
                self.branch_if(then, wanted, to);
                self.jump(after);
                self.place(second);
                self.branch_if(otherwise, wanted, to);
                self.place(after);
            }
            expr => {
                let Test { compare, signed, left, right } = self.test(expr);
                if let (Compare::Ne, Some(left), Some(right)) = (compare, self.known(left), self.known(right))
                {
                    if (left != right) == wanted {
                        self.jump(to);
                    }
                    return;
                }
                let compare = if wanted { compare } else { compare.opposite() };
                self.branch(compare, signed, left, right, to);
            }
        }
    }

    /// A boolean as 0 or 1 in a limb.
    pub(super) fn truth_into(&mut self, expr: &Expr, to: At) {
        if matches!(expr, Expr::BoolNot(_) | Expr::BoolAnd(..) | Expr::BoolOr(..) | Expr::If { .. }) {
            let (no, after) = (self.label(), self.label());
            let (zero, one) = (self.word(0), self.word(1));
            self.branch_if(expr, false, no);
            self.emit(Insn::Low { drop: 0, to, from: one });
            self.jump(after);
            self.place(no);
            self.emit(Insn::Low { drop: 0, to, from: zero });
            self.place(after);
            return;
        }
        let Test { compare, signed, left, right } = self.test(expr);
        self.emit(Insn::Test { signed, compare, to, left, right });
    }

    fn test(&mut self, expr: &Expr) -> Test {
        let is = |left, right| Test { compare: Compare::Ne, signed: false, left, right };
        let zero = self.word(0);
        let found = match expr {
            Expr::NonZero(value) if value.is_boolean() => return self.test_of_truth(value),
            Expr::NonZero(value) => {
                let words = Self::words(value.need().exact);
                let at = self.number(value, words);
                if words == 1 {
                    return is(at, zero);
                }
                let order = self.take(1);
                self.emit(Insn::Wide {
                    op: WideOp::Clamp,
                    words: words as u8,
                    to: order,
                    left: at,
                    right: 0,
                });
                order
            }
            Expr::Compare { op, left, right, signed } => {
                let words = Self::words(expr.compared_bits());
                let (left, right) = (self.number(left, words), self.number(right, words));
                if words == 1 {
                    return Test { compare: *op, signed: *signed, left, right };
                }
                let (to, equal) = (self.take(1), self.word(1));
                let op_wide = WideOp::Order { signed: *signed };
                self.emit(Insn::Wide { op: op_wide, words: words as u8, to, left, right });
                return Test { compare: *op, signed: false, left: to, right: equal };
            }
            Expr::Valid(super::super::expression::HeaderRef::Fixed(header)) => {
                self.layout.headers[*header as usize].valid() as At
            }
            Expr::Valid(header) => {
                let header = self.header(header);
                let to = self.take(1);
                self.emit(Insn::IsValid { to, header });
                to
            }
            Expr::ValidUnion(union) => {
                let union = self.union(union);
                let to = self.take(1);
                self.emit(Insn::IsUnionValid { to, union });
                to
            }
            Expr::SameHeader(left, right) => {
                let (left, right) = (self.header(left), self.header(right));
                let to = self.take(1);
                self.emit(Insn::SameHeader { to, left, right });
                to
            }
            Expr::SameUnion(left, right) => {
                let (left, right) = (self.union(left), self.union(right));
                let to = self.take(1);
                self.emit(Insn::SameUnion { to, left, right });
                to
            }
            // A number, or a boolean that is made of others.
            other => return self.test_of_truth(other),
        };
        is(found, zero)
    }

    fn test_of_truth(&mut self, expr: &Expr) -> Test {
        let (left, right) = (self.take(1), self.word(0));
        if expr.is_boolean() {
            self.truth_into(expr, left);
        } else {
            let number = self.whole(expr);
            self.emit(Insn::Low { drop: 0, to: left, from: number });
        }
        Test { compare: Compare::Ne, signed: false, left, right }
    }
}
