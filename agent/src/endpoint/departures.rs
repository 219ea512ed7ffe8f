// SPDX-License-Identifier: Apache-2.0
//! What leaves: control packets first, then data as the schedule of classes and the card say.

use super::{ECT_0, Endpoint, NOT_ECT};
use crate::burst::Burst;
use crate::burst::Origin;
use crate::config::Traffic;
use crate::pacing::Pace;
use crate::peer::Data;
use crate::peer::Peer;
use crate::wire::{Piece, checked};
use bytes::Bytes;
use std::net::SocketAddr;
use trimwire_encoder::wire::TAG_LEN;

impl Endpoint {
    /// When the next data is to leave.
    pub(super) fn data_departs_ns(&self) -> Option<u64> {
        Some(self.schedule.data_ns()?.max(self.nic.next_ns()).max(self.spacing.next_ns()))
    }

    /// The next datagrams that may leave at `now_ns`, if any.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Burst> {
        let control = now_ns >= self.nic.next_ns();
        loop {
            let burst = if control { self.next_control(now_ns) } else { None };
            if let Some(burst) = burst.or_else(|| self.next_data(now_ns)) {
                return Some(burst);
            }
            // A message that had nothing to send after all may have a question instead.
            if !control || !self.schedule.has_control() {
                return None;
            }
        }
    }

    pub(super) fn next_control(&mut self, now_ns: u64) -> Option<Burst> {
        while let Some(rank) = self.schedule.next_control() {
            let Some((to, origin, mut payload)) = self.with_peer(now_ns, rank, Peer::next_control).flatten()
            else {
                continue;
            };
            let payload = if let Some(sealer) = &self.sealer {
                let content = payload.len();
                payload.resize(content + TAG_LEN, 0);
                sealer.seal(&mut payload, &[content]);
                payload
            } else {
                checked(payload)
            };
            self.stats.control_sent += 1;
            self.stats.control_bytes_sent += payload.len() as u64;
            let (tos, segment) = (self.config.dscp.control << 2 | ECT_0, payload.len());
            let burst = Burst { to, origin, tos, payload: Bytes::from(payload), segment };
            return Some(self.leave(now_ns, burst));
        }
        None
    }

    pub(super) fn next_data(&mut self, now_ns: u64) -> Option<Burst> {
        if self.data_departs_ns()? > now_ns {
            return None;
        }
        while let Some((_, rank)) = self.schedule.next_data(now_ns) {
            let data = self.with_peer(now_ns, rank, |peer, cx| {
                let data = peer.next_data(cx)?;
                Some((peer.address_of(data.path)?, peer.data_room(), data))
            });
            if let Some((to, room, data)) = data.flatten() {
                return Some(self.leave_data(now_ns, to, room, data));
            }
        }
        None
    }

    /// `room`: bytes of a payload that the path carries.
    pub(super) fn leave_data(&mut self, now_ns: u64, to: SocketAddr, room: usize, data: Data) -> Burst {
        let Data { chunk, class, path, pace } = data;
        let (packets, bytes) = (u64::from(chunk.run.packets), chunk.run.payload.len() as u64);
        self.stats.data_sent += packets;
        self.stats.data_bytes_sent += bytes;
        if chunk.repair {
            self.stats.repairs_sent += packets;
            self.stats.retransmitted_bytes += bytes;
        }
        let (mut payload, mut segment) = (chunk.run.payload, chunk.run.segment);
        let mut traffic = self.config.traffic;
        if segment.min(payload.len()) > room
            && let Some((pieces, each)) = Piece::divide(&payload, segment.min(payload.len()), room)
        {
            (payload, segment) = (pieces.into(), each);
            self.stats.pieces_sent += payload.len().div_ceil(segment) as u64;
            // Of a piece that is trimmed nothing would be of use.
            traffic = Traffic::Droppable;
        }
        let classes = match traffic {
            Traffic::Trimmable => &self.config.dscp.trimmable,
            Traffic::Droppable => &self.config.dscp.droppable,
        };
        let dscp = classes[usize::from(class).min(classes.len() - 1)];
        let tos = dscp << 2 | if chunk.important { ECT_0 } else { NOT_ECT };
        if pace < Pace::LINE {
            let bytes = pace.at_line(bytes + packets * u64::from(self.config.overhead_bytes));
            self.spacing.sent(now_ns, bytes, self.config.line_rate_bps, self.config.burst_ns);
        }
        self.leave(now_ns, Burst { to, origin: Origin::Path(path), tos, payload, segment })
    }

    pub(super) fn leave(&mut self, at_ns: u64, burst: Burst) -> Burst {
        let bytes = burst.payload.len() as u64 + burst.count() as u64 * u64::from(self.config.overhead_bytes);
        if self.config.pace_at_line {
            self.nic.sent(at_ns, bytes, self.config.line_rate_bps, self.config.burst_ns);
        }
        burst
    }
}
