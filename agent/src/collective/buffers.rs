// SPDX-License-Identifier: Apache-2.0
//! Memory of rows, used again: asking the system for it and giving it back costs more than filling
//! it.

use std::sync::{Arc, Mutex, PoisonError};

/// Rows' buffers that are kept.
const KEPT: usize = 256;

/// Buffers that come back when the last packet of a row is gone, from whatever thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer that is lent out.
pub(super) struct Lent {
    bytes: Vec<u8>,
    home: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut kept = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

impl Buffers {
    /// A buffer of that length, with anything in it.
    pub(super) fn take(&self, length: usize) -> Vec<u8> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        bytes.resize(length, 0);
        bytes
    }

    /// Lends a buffer to whoever sends it.
    pub(super) fn lend(&self, bytes: Vec<u8>) -> Lent {
        Lent { bytes, home: self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_packet_is_gone() {
        let buffers = Buffers::default();
        let mut bytes = buffers.take(1_000);
        bytes[7] = 9;
        let at = bytes.as_ptr();
        let lent = bytes::Bytes::from_owner(buffers.lend(bytes));
        let packet = lent.slice(5..10);
        drop(lent);
        let other = buffers.take(1_000);
        assert_ne!(other.as_ptr(), at, "it is still on its way");
        assert_eq!(packet[2], 9);
        drop(packet);
        let again = buffers.take(900);
        assert_eq!((again.as_ptr(), again.len()), (at, 900));
    }
}
