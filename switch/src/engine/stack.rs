// SPDX-License-Identifier: Apache-2.0
//! push_front and pop_front on stacks of headers and of unions.

use super::expression::StackRef;
use super::layout::Layout;

/// A stack's elements: headers, or unions of several headers.
pub(crate) struct Elements<'a> {
    layout: &'a Layout,
    next: usize,
    stack: StackRef,
}

impl<'a> Elements<'a> {
    pub(crate) fn new(layout: &'a Layout, stack: StackRef) -> Self {
        let next = match stack {
            StackRef::Headers(stack) => layout.stacks[stack as usize].next,
            StackRef::Unions(stack) => layout.union_stacks[stack as usize].next,
        };
        Self { layout, next, stack }
    }

    fn len(&self) -> usize {
        match self.stack {
            StackRef::Headers(stack) => self.layout.stacks[stack as usize].headers.len(),
            StackRef::Unions(stack) => self.layout.union_stacks[stack as usize].unions.len(),
        }
    }

    fn headers(&self, index: usize) -> &'a [u32] {
        match self.stack {
            StackRef::Headers(stack) => &self.layout.stacks[stack as usize].headers[index..=index],
            StackRef::Unions(stack) => {
                let union = self.layout.union_stacks[stack as usize].unions[index];
                &self.layout.unions[union as usize]
            }
        }
    }

    fn swap(&self, phv: &mut [u64], left: usize, right: usize) {
        for (&left, &right) in self.headers(left).iter().zip(self.headers(right)) {
            self.layout.swap_headers(phv, left, right);
        }
    }

    fn invalidate(&self, phv: &mut [u64], index: usize) {
        if let (StackRef::Headers(_), [header]) = (self.stack, self.headers(index)) {
            phv[self.layout.headers[*header as usize].valid()] = 0;
        }
    }

    /// P4 §8.18: elements move towards the end, the first `count` become invalid. BMv2 exchanges
    /// elements, so what an invalid one holds afterwards is what another held before, and leaves
    /// unions at the front as they are.
    pub(crate) fn push(&self, phv: &mut [u64], count: usize) {
        let size = self.len();
        let count = count.min(size);
        phv[self.next] = (phv[self.next] + count as u64).min(size as u64);
        for index in (count..size).rev() {
            self.swap(phv, index, index - count);
        }
        (0..count).for_each(|index| self.invalidate(phv, index));
    }

    /// P4 §8.18: elements move towards the start, the last `count` become invalid; as in BMv2, see
    /// `push`.
    pub(crate) fn pop(&self, phv: &mut [u64], count: usize) {
        let size = self.len();
        let count = count.min(size);
        phv[self.next] = phv[self.next].saturating_sub(count as u64);
        for index in 0..size - count {
            self.swap(phv, index, index + count);
        }
        (size - count..size).for_each(|index| self.invalidate(phv, index));
    }
}
