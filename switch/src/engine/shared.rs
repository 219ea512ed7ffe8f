// SPDX-License-Identifier: Apache-2.0
//! What several pipelines may have in common.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value that others may have as well; who writes to it gets a copy first.
#[derive(Clone, Debug)]
pub(super) struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Arc::new(value))
    }

    #[cfg(test)]
    pub(super) fn as_arc(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}
