// SPDX-License-Identifier: Apache-2.0
//! A port on an interface, whether that is there or not.

use super::counters::PortStats;
use super::offload::Refusal;
use super::packet_socket::{PacketSocket, Sent};
use crate::pcap::Capture;
use std::io;

/// A port on an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Port number.
    pub port: u16,
    /// Interface name.
    pub interface: String,
}

/// An interface that has gone is looked for at this interval.
const REOPEN_NS: u64 = 1_000_000_000;
/// Frames a port keeps while the kernel's buffer is full, of one turn in which the interface was
/// found to be slower than the port.
pub(super) const MOST_OUTGOING: usize = 1024;

#[derive(Debug)]
pub(super) struct Port {
    /// Its number among the driver's ports.
    pub(super) place: usize,
    pub(super) attachment: Attachment,
    pub(super) socket: Option<PacketSocket>,
    ring_bytes: usize,
    /// Something waits there: a frame, or an error.
    pub(super) ready: bool,
    pub(super) reopen_at_ns: u64,
    /// The cable's other end is there.
    pub(super) carrier: bool,
    pub(super) outgoing: Vec<Vec<u8>>,
    /// Frames that the interface is trusted to take: one after its buffer was full, twice as many
    /// each time that it takes all; `MOST_OUTGOING` stands for any number. Others wait in the
    /// switch's queues, where the program sees them.
    pub(super) window: usize,
    pub(super) stats: PortStats,
    warned: bool,
    pub(super) capture: Option<Capture>,
}

impl Port {
    pub(super) fn new(
        place: usize,
        attachment: Attachment,
        socket: Option<PacketSocket>,
        reopen_at_ns: u64,
        ring_bytes: usize,
    ) -> Self {
        Self {
            place,
            attachment,
            socket,
            ring_bytes,
            ready: true,
            reopen_at_ns,
            outgoing: Vec::new(),
            window: MOST_OUTGOING,
            stats: PortStats::default(),
            warned: false,
            capture: None,
            carrier: true,
        }
    }

    /// An interface without carrier is up, takes frames, and loses them.
    pub(super) fn look_at_carrier(&mut self) {
        let carrier =
            self.socket.as_ref().is_none_or(|socket| socket.has_carrier(&self.attachment.interface));
        if std::mem::replace(&mut self.carrier, carrier) != carrier {
            let (Attachment { port, interface }, word) =
                (&self.attachment, if carrier { "has its carrier back" } else { "has lost its carrier" });
            tracing::warn!("port {port}: interface '{interface}' {word}");
        }
    }

    /// Sends what the interface takes; keeps some of the rest.
    pub(super) fn flush(&mut self, spent: &mut Vec<Vec<u8>>, now_ns: u64, unix_ns: u64) {
        if self.outgoing.is_empty() {
            return;
        }
        let sent = match self.socket.as_ref().map(|socket| socket.send(&self.outgoing)) {
            Some(Ok(sent)) => sent,
            gone => {
                if let Some(Err(error)) = gone {
                    self.failed(&error, now_ns);
                }
                Sent { taken: self.outgoing.len(), refused: self.outgoing.len() }
            }
        };
        self.stats.sent += (sent.taken - sent.refused) as u64;
        self.stats.lost += sent.refused as u64;
        if let Some(capture) = self.capture.as_mut().filter(|_| self.socket.is_some()) {
            self.outgoing.iter().take(sent.taken).for_each(|frame| capture.sent(unix_ns, frame));
        }
        spent.extend(self.outgoing.drain(..sent.taken));
        if !self.outgoing.is_empty() {
            self.window = 1;
        }
        if self.outgoing.len() > MOST_OUTGOING {
            self.stats.lost += (self.outgoing.len() - MOST_OUTGOING) as u64;
            spent.extend(self.outgoing.drain(MOST_OUTGOING..));
        }
    }

    /// Frames came that are none.
    pub(super) fn refused(&mut self, count: u64, why: Option<Refusal>) {
        self.stats.refused += count;
        if let Some(why) = why.filter(|_| !std::mem::replace(&mut self.warned, true)) {
            let Attachment { port, interface } = &self.attachment;
            tracing::warn!(
                "port {port}: interface '{interface}' gives what is no frame and cannot be split into frames: {why}; it is dropped. \
                 Turn such bursts off at the sender: ethtool -K IFACE tso off gso off gro off lro off"
            );
        }
    }

    /// The interface went away or down; the others go on.
    pub(super) fn failed(&mut self, error: &io::Error, now_ns: u64) {
        let Attachment { port, interface } = &self.attachment;
        tracing::warn!("port {port}: interface '{interface}': {error}; trying again every second");
        if let Some(socket) = self.socket.take() {
            self.stats.missed += socket.missed();
        }
        self.reopen_at_ns = now_ns + REOPEN_NS;
    }

    pub(super) fn reopen(&mut self, now_ns: u64) {
        let Attachment { port, interface } = &self.attachment;
        match PacketSocket::open(interface, self.ring_bytes) {
            Ok(socket) => {
                tracing::info!("port {port}: interface '{interface}' is back");
                (self.socket, self.ready) = (Some(socket), true);
            }
            Err(_) => self.reopen_at_ns = now_ns + REOPEN_NS,
        }
    }
}
