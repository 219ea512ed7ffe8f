// SPDX-License-Identifier: Apache-2.0
//! Memory of the host that a device copies from and to by itself, lent out in parts that do not
//! overlap.
//!
//! Parts are lent while packets are received into them or sent from them; in between a device reads
//! or writes the same memory, which nobody here sees.

use crate::dlpack::Tensor;
use pyo3::PyResult;
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use trimwire_encoder::RowMemory;

/// The bytes of a tensor.
pub(crate) struct Pinned {
    address: NonNull<u8>,
    length: usize,
    /// Where parts that are lent begin and end.
    lent: Mutex<BTreeMap<usize, usize>>,
    /// Keeps the bytes where they are.
    _tensor: Tensor,
}

// SAFETY: what `address` points to is only touched through parts, of which no two that are out
// overlap; the rest is behind the lock, or never touched.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} pinned bytes", self.length)
    }
}

impl Pinned {
    /// Of a contiguous tensor of the host's. Nobody writes to a part of it while that is lent,
    /// which is the contract of who makes it; nor reads one that may be written.
    pub(crate) fn new(tensor: Tensor) -> PyResult<Arc<Self>> {
        let (address, length) = tensor.raw_bytes()?;
        Ok(Arc::new(Self { address, length, lent: Mutex::default(), _tensor: tensor }))
    }

    /// A part; `None` where it is out of bounds, or some of it is lent already.
    pub(crate) fn lend(self: &Arc<Self>, range: Range<usize>) -> Option<Part> {
        if range.start > range.end || range.end > self.length {
            return None;
        }
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lent.range(..range.end).next_back();
        if before.is_some_and(|(_, &end)| end > range.start) || lent.contains_key(&range.start) {
            return None;
        }
        lent.insert(range.start, range.end);
        Some(Part { home: Arc::clone(self), range })
    }

    /// Whether nothing is lent.
    pub(crate) fn is_idle(&self) -> bool {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Where bytes of it begin, if they are its own.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<usize> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.address.as_ptr() as usize)?;
        (offset + bytes.len() <= self.length).then_some(offset)
    }
}

/// Bytes that are lent until this is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    home: Arc<Pinned>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: initialised bytes within the tensor, which `home` keeps; no other part that is
        // out has any of them.
        unsafe {
            let start = self.home.address.as_ptr().add(self.range.start);
            std::slice::from_raw_parts(start, self.range.len())
        }
    }
}

impl AsMut<[u8]> for Part {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this one is borrowed.
        unsafe {
            let start = self.home.address.as_ptr().add(self.range.start);
            std::slice::from_raw_parts_mut(start, self.range.len())
        }
    }
}

impl RowMemory for Part {}

impl Drop for Part {
    fn drop(&mut self) {
        self.home.lent.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.range.start);
    }
}
