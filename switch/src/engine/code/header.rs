// SPDX-License-Identifier: Apache-2.0
//! Headers and unions that are found at run time: their numbers in limbs.

use super::super::expression::{HeaderRef, UnionRef};
use super::emitter::Emitter;
use super::insn::{At, Insn};

impl Emitter<'_> {
    /// The limb with a header's number, [`NONE`](super::NONE) where there is none.
    pub(super) fn header(&mut self, header: &HeaderRef) -> At {
        match header {
            HeaderRef::Fixed(header) => self.word(u64::from(*header)),
            HeaderRef::Last(stack) => {
                let to = self.take(1);
                self.emit(Insn::LastElement { to, stack: *stack });
                to
            }
            HeaderRef::Element { stack, index } => {
                let index = self.whole(index);
                let to = self.take(1);
                self.emit(Insn::Element { to, stack: *stack, index });
                to
            }
            HeaderRef::Member { union, member } => {
                let union = self.union(union);
                let to = self.take(1);
                self.emit(Insn::Member { to, union, member: *member });
                to
            }
        }
    }

    /// The limb with a union's number, [`NONE`](super::NONE) where there is none.
    pub(super) fn union(&mut self, union: &UnionRef) -> At {
        match union {
            UnionRef::Fixed(union) => self.word(u64::from(*union)),
            UnionRef::Last(stack) => {
                let to = self.take(1);
                self.emit(Insn::LastUnion { to, stack: *stack });
                to
            }
            UnionRef::Element { stack, index } => {
                let index = self.whole(index);
                let to = self.take(1);
                self.emit(Insn::UnionElement { to, stack: *stack, index });
                to
            }
        }
    }
}
