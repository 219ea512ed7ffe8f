// SPDX-License-Identifier: Apache-2.0
//! Rows that are passed on as they came.

use super::choice::EncodedRow;
use super::receiver::{Packet, RowReceiver};
use super::sealing::seal_row;
use crate::encode::repack::Repack;
use crate::quantise::statistics::Statistics;
use crate::scratch::with_scratch;
use crate::wire::seal::Sealer;
use crate::wire::zeros::write_mask;
use crate::wire::{Codec, Envelope, HEADER_LEN, Header, Kind, Prefix};

impl RowReceiver {
    /// Writes the row's packets anew for the sender of `to`, who passes them on. Code words stay
    /// the same, so their receiver ([`Self::with_origin`]) decodes the same bits. `packets` is as
    /// long as [`super::Encoder::encode_row`]'s with the same layout, planes and sealer. `None` if
    /// the row is not complete, the buffer has another length, or the codec is not rht.
    pub fn repack(&self, to: Envelope, sealer: Option<&Sealer>, packets: &mut [u8]) -> Option<EncodedRow> {
        let (row, codec, planes) = (self.row, self.codec, self.planes);
        let length = |sealed| self.layout.row_len(codec, row, planes, sealed);
        let fits = packets.len() == length(sealer.is_some());
        let whole = |packet: &Packet| {
            let length = codec.plane_offset(planes, (packet.end - packet.start) as usize);
            packet.limit >= planes && packet.most.is_some_and(|most| usize::from(most) >= length)
        };
        let limited = !self.packets.iter().all(whole);
        let words = self.words.as_ref().filter(|_| self.is_complete() && fits && !limited)?;
        if codec != Codec::Rht {
            return None;
        }
        let (important, twice) = (self.important, self.twice.unwrap_or(false));
        let mut energy = 0.0;
        // Room for tags is left in front of the first packet.
        let (_, mut rest) = packets.split_at_mut(packets.len() - length(false));
        for (nth, (index, place)) in self.layout.row_places(row).enumerate() {
            let (packet, tail) = rest.split_at_mut(HEADER_LEN + codec.plane_offset(planes, place.len()));
            rest = tail;
            let Statistics { sigma, kappa, peak, zeros } =
                self.packets.get(nth)?.reception.as_ref()?.statistics();
            let header = Header {
                prefix: Prefix {
                    kind: Kind::Data,
                    codec: codec.id(),
                    important,
                    layer_class: self.layout.layer_class(row),
                    last: index + 1 == self.layout.packets(),
                    stream: to.stream,
                    message: to.message,
                },
                first_plane: 0,
                index: index as u32,
                coordinates: place.len(),
                twice,
                sigma,
                kappa,
                peak,
                zeros,
            };
            packet[..HEADER_LEN].copy_from_slice(&header.to_bytes());
            energy += place.len() as f64 * f64::from(sigma).powi(2);
            let (mask, body) = packet[HEADER_LEN..].split_at_mut(codec.mask_len(place.len()));
            write_mask(words.zeros(place.clone()), mask);
            let words = words.of(place);
            with_scratch(|scratch| self.isa.run(Repack { words, planes, body, room: &mut scratch.room }));
        }
        if let Some(sealer) = sealer {
            seal_row(sealer, &self.layout, row, (codec, planes), packets);
        }
        let figure = energy / self.layout.row_range(row).len() as f64;
        Some(EncodedRow { planes, figure, important, twice })
    }
}
