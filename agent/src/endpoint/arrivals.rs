// SPDX-License-Identifier: Apache-2.0
//! What arrives: sorted by rank and kind, checked, handed to peers.

use super::{CE, Endpoint};
use crate::burst::Arrived;
use crate::peer::DataArrival;
use crate::transfer::incoming::Arrival;
use crate::wire::{Control, Piece, content_of};
use trimwire_encoder::PacketError;
use trimwire_encoder::PacketView;
use trimwire_encoder::wire::Kind;
use trimwire_encoder::wire::PREFIX_LEN;
use trimwire_encoder::wire::Prefix;
use trimwire_encoder::wire::TAG_LEN;

impl Endpoint {
    /// Takes a datagram: how it arrived, and the UDP payload. Nothing here panics, whatever the
    /// bytes: what does not fit is counted and ignored.
    pub fn handle_datagram(&mut self, now_ns: u64, arrived: Arrived, payload: &[u8]) {
        let prefix = match Prefix::parse(payload) {
            Ok(prefix) => prefix,
            Err(error) => {
                self.stats.malformed += 1;
                if let (PacketError::Version(version), None) = (error, self.other_version)
                    && let Some(&[high, low]) = payload.get(2..).and_then(<[u8]>::first_chunk)
                    && let Some(address) = self.peer(u16::from_be_bytes([high & 3, low]))
                    && address == arrived.source
                {
                    self.other_version = Some((version, address));
                }
                return;
            }
        };
        let rank = prefix.stream.rank();
        if prefix.stream.job() != self.config.job || !self.is_other(rank) {
            self.stats.foreign += 1;
            return;
        }
        if prefix.kind == Kind::Data {
            return self.on_data(now_ns, rank, arrived, payload);
        }
        if prefix.kind == Kind::Piece {
            return self.on_piece(now_ns, rank, arrived, payload);
        }
        let Some(payload) = self.believed(rank, payload) else {
            let sealed = self.config.seal.is_some();
            *if sealed { &mut self.stats.unsealed } else { &mut self.stats.malformed } += 1;
            return;
        };
        let body = payload.get(PREFIX_LEN..).unwrap_or_default();
        let Ok((identity, control)) = Control::parse(prefix.kind, body) else {
            self.stats.malformed += 1;
            return;
        };
        self.with_peer(now_ns, rank, |peer, cx| {
            cx.age_ns = arrived.age_ns;
            peer.on_control(cx, arrived.source, prefix.message, identity, &control);
        });
        if matches!(control, Control::Hello(_) | Control::Vote(_)) {
            self.take_votes(now_ns, rank);
        }
    }

    /// A control packet without its check, or its tag in a sealed job; `None` where that is wrong,
    /// or not of the rank's incarnation that the packet names.
    pub(super) fn believed<'a>(&mut self, rank: u16, payload: &'a [u8]) -> Option<&'a [u8]> {
        let Some(key) = &self.config.seal else { return content_of(payload) };
        let content = payload.len().checked_sub(TAG_LEN)?;
        let from = payload.get(PREFIX_LEN..)?.first_chunk().map(|&bytes| u32::from_be_bytes(bytes))?;
        let sealer = self.peers.get_mut(usize::from(rank))?.sealer_of(key, from);
        (sealer.believed(payload, &[content]) == content).then_some(&payload[..content])
    }

    pub(super) fn on_piece(&mut self, now_ns: u64, rank: u16, arrived: Arrived, payload: &[u8]) {
        let Some(peer) =
            self.peers.get_mut(usize::from(rank)).filter(|peer| peer.sends_data_from(arrived.source))
        else {
            self.stats.foreign += 1;
            return;
        };
        let Some(piece) = Piece::parse(payload) else {
            self.stats.malformed += 1;
            return;
        };
        if let Some((packet, congested)) = peer.on_piece(&piece, arrived.tos & CE == CE) {
            let tos = if congested { arrived.tos | CE } else { arrived.tos };
            self.on_data(now_ns, rank, Arrived { tos, ..arrived }, &packet);
        }
    }

    pub(super) fn on_data(&mut self, now_ns: u64, rank: u16, arrived: Arrived, payload: &[u8]) {
        let Arrived { source, tos, age_ns } = arrived;
        let Some(peer) = self.peers.get(usize::from(rank)).filter(|peer| peer.sends_data_from(source)) else {
            self.stats.foreign += 1;
            return;
        };
        let Ok(packet) = PacketView::parse_masked(payload, peer.mask()) else {
            self.stats.malformed += 1;
            return;
        };
        let (plan, dscp) = (self.config.dscp, tos >> 2);
        let last_hop = dscp == plan.trimmed_last_hop;
        self.stats.trimmed_last_hop_received += u64::from(last_hop);
        let arrival = Arrival {
            at_ns: now_ns.saturating_sub(age_ns),
            marked_trimmed: last_hop || dscp == plan.trimmed,
            congested: tos & CE == CE,
        };
        self.stats.trimmed_received += u64::from(arrival.marked_trimmed);
        let data = DataArrival { arrival, packet: &packet, payload };
        self.with_receiving(now_ns, rank, |peer, cx| peer.on_data(cx, &data));
    }
}
