// SPDX-License-Identifier: Apache-2.0
//! A packet on its way through the program.

use super::calculation::Inputs;
use super::code::Code;
use super::layout::Layout;
use super::trace::{DropReason, Gress};
use std::sync::Arc;

/// Headers, metadata, payload and the requests that actions left for the end of the pipeline.
#[derive(Debug, Default)]
pub(super) struct Packet {
    /// The frame that code runs on; the packet header vector comes first.
    pub(super) phv: Vec<u64>,
    /// The frame as it was received.
    pub(super) frame: Vec<u8>,
    /// Bytes of payload behind `frame` that are counted and not kept.
    pub(super) beyond: usize,
    /// Where in `frame` the parser stopped.
    pub(super) payload_at: usize,
    /// Transmit no more than this many bytes.
    pub(super) truncate: usize,
    pub(super) ingress_port: u16,
    /// Length as received: what counters and meters count.
    pub(super) ingress_length: u32,
    /// Length with headers added and removed: egress's `packet_length`.
    pub(super) length: u64,
    pub(super) requests: Requests,
    /// An `exit` ends the pipeline.
    pub(super) exit: bool,
    /// An `assert` or `assume` did not hold, or an action found no end.
    pub(super) failed: Option<fn(Gress) -> DropReason>,
    pub(super) parser_error: u64,
    pub(super) checksum_error: bool,
    /// Headers that the parser extracted, by number modulo 64.
    pub(super) extracted: u64,
    /// Its number in the trace; 0 while tracing is off.
    pub(super) trace: u64,
}

/// What actions asked for. Field lists are by the JSON's id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    /// Clone session and field list.
    pub(super) clone: Option<(u16, u16)>,
    /// Field list; 0 for no resubmission.
    pub(super) resubmit: u16,
    /// Field list; 0 for no recirculation.
    pub(super) recirculate: u16,
    /// Digest list; 0 for none.
    pub(super) digest: u16,
}

/// Limbs that are cleared at once: over 2 KiB, libc's `memset` takes `rep stosb`, whose start costs
/// more than all of them do.
const CLEARED: usize = 64;

/// Buffers kept for reuse.
const MOST_RECYCLED: usize = 4096;

/// Buffers of packets and frames that are dead, for the next ones. Pipelines that take turns in one
/// thread may share them, so that packets find theirs in the caches:
/// [`Pipeline::lend`](super::Pipeline::lend).
#[derive(Debug, Default)]
pub struct Spares {
    #[expect(clippy::vec_box, reason = "they move to and from queues that hold boxes")]
    pub(super) packets: Vec<Box<Packet>>,
    pub(super) frames: Vec<Vec<u8>>,
    /// Whose constants the packets hold, without and with notes.
    code: Option<Arc<[Code; 2]>>,
}

impl Spares {
    /// Takes a frame's buffer back for reuse.
    pub fn recycle(&mut self, frame: Vec<u8>) {
        if self.frames.len() < MOST_RECYCLED {
            self.frames.push(frame);
        }
    }

    /// Takes a packet of the program that the others are of.
    pub(super) fn retire(&mut self, packet: Box<Packet>) {
        if self.packets.len() < MOST_RECYCLED {
            self.packets.push(packet);
        }
    }

    /// Keeps no packet of another program.
    pub(super) fn fit(&mut self, code: &Arc<[Code; 2]>) {
        if !self.code.as_ref().is_some_and(|own| Arc::ptr_eq(own, code)) {
            self.packets.clear();
            self.code = Some(Arc::clone(code));
        }
    }
}

impl Packet {
    /// A new life with zeroed headers and metadata and the code's constants, reusing the buffers.
    pub(super) fn reset(&mut self, code: &Code, frame_length: usize) {
        if self.phv.len() == code.frame.len() {
            // Constants are as they were; arguments and scratch are written before they are read.
            self.phv[..code.arguments].chunks_mut(CLEARED).for_each(|limbs| limbs.fill(0));
        } else {
            self.phv.clear();
            self.phv.extend_from_slice(&code.frame);
        }
        self.payload_at = 0;
        self.truncate = usize::MAX;
        self.ingress_length = frame_length as u32;
        self.length = frame_length as u64;
        self.requests = Requests::default();
        self.exit = false;
        self.failed = None;
        self.parser_error = 0;
        self.checksum_error = false;
        self.extracted = 0;
    }

    /// Becomes a copy of `other`, reusing the buffers; `arguments` is where headers and metadata
    /// end.
    pub(super) fn copy_from(&mut self, other: &Self, arguments: usize) {
        if self.phv.len() == other.phv.len() {
            // Constants are the same; arguments and scratch are written before they are read.
            self.phv[..arguments].copy_from_slice(&other.phv[..arguments]);
        } else {
            self.phv.clone_from(&other.phv);
        }
        self.frame.clone_from(&other.frame);
        let Self { beyond, payload_at, truncate, ingress_port, ingress_length, length, requests, .. } =
            *other;
        (self.beyond, self.payload_at, self.truncate, self.ingress_port) =
            (beyond, payload_at, truncate, ingress_port);
        (self.ingress_length, self.length, self.requests) = (ingress_length, length, requests);
        (self.exit, self.failed, self.parser_error, self.checksum_error) = (false, None, 0, false);
    }

    /// What the parser left.
    pub(super) fn payload(&self) -> &[u8] {
        self.frame.get(self.payload_at..).unwrap_or(&[])
    }

    /// The payload as a checksum sees it: truncated, as BMv2's `get_data_size` is.
    pub(super) fn inputs<'a>(&'a self, layout: &'a Layout, phv: &'a [u64]) -> Inputs<'a> {
        let payload = self.payload();
        Inputs { layout, phv, payload: &payload[..payload.len().min(self.truncate)] }
    }
}
