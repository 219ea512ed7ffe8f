// SPDX-License-Identifier: Apache-2.0
//! An encoded sparse message.

use super::Entry;
use super::header::{SPARSE_HEAD_LEN, SparseHeader};
use super::select::Selection;
use crate::element::Element;
use crate::message::OutputError;

/// The packets of one message, as they go on the wire, and what they hold. Reuse it: a second encoding of the same size does not allocate.
#[derive(Debug, Clone, Default)]
pub struct SparseMessage {
    /// Of the layout; 0 before the first encoding.
    pub(super) coordinates: usize,
    pub(super) headers: Vec<SparseHeader>,
    /// Where each packet begins.
    pub(super) starts: Vec<usize>,
    pub(super) bytes: Vec<u8>,
    /// What is sent, in ascending order of coordinates.
    pub(super) entries: Vec<Entry>,
    /// Room to work in: a gradient as f32, coordinates that are chosen, gaps of a packet.
    pub(super) wide: Vec<f32>,
    pub(super) selection: Selection,
    pub(super) gaps: Vec<u64>,
}

impl SparseMessage {
    /// Number of packets; 0 before the first encoding.
    pub fn packets(&self) -> usize {
        self.headers.len()
    }

    /// A packet's UDP payload; empty beyond the last packet.
    pub fn packet(&self, index: usize) -> &[u8] {
        let Some(&start) = self.starts.get(index) else { return &[] };
        let end = self.starts.get(index + 1).copied().unwrap_or(self.bytes.len());
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// A packet's heads; `None` beyond the last.
    pub fn header(&self, index: usize) -> Option<&SparseHeader> {
        self.headers.get(index)
    }

    /// What is sent, in ascending order of coordinates: values are those that receivers of whole packets decode, bit for bit.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether what should be sent holds NaN or an infinity: the message has no entries then, and decodes to NaN.
    pub fn is_not_finite(&self) -> bool {
        self.headers.first().is_some_and(SparseHeader::is_not_finite)
    }

    /// Takes what receivers of whole packets decode from `residual` (shape: the layout's coordinates), so that what was not sent, and what rounding took, is
    /// left for the next step (error feedback). f32s are exact to the bit: each becomes itself minus the value received. A message that is not finite takes nothing.
    pub fn subtract_from<E: Element>(&self, residual: &mut [E]) -> Result<(), OutputError> {
        if residual.len() != self.coordinates {
            return Err(OutputError { got: residual.len(), expected: self.coordinates });
        }
        for &Entry { index, value } in &self.entries {
            let at = index as usize;
            if let Some(of) = residual.get_mut(at..=at) {
                E::add(&[-value], of);
            }
        }
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.coordinates = 0;
        self.headers.clear();
        self.starts.clear();
        self.bytes.clear();
        self.entries.clear();
    }

    /// Begins a packet; its heads are written when all are known.
    pub(super) fn put_head(&mut self, header: SparseHeader) {
        self.headers.push(header);
        self.starts.push(self.bytes.len());
        self.bytes.extend([0; SPARSE_HEAD_LEN]);
    }
}
