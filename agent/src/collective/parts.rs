//! Reduce-scatter, sending side: this rank's part of the other ranks' shards.

use super::figures::Figures;
use super::step::{Scheme, encode_error};
use super::{MessageId, Phase, StartError};
use crate::endpoint::Endpoint;
use crate::row::Row;
use std::ops::Range;
use trimwire_encoder::{Encoder, Envelope, Importance, RowChoice};

/// Packets that wait for the network, of one message: a row and what is being sent of the one before.
const AHEAD: u32 = 128;

/// A message that this rank encodes, row by row, from memory.
#[derive(Debug)]
struct Part {
    to: u16,
    id: MessageId,
    /// Its coordinates in the gradient.
    range: Range<usize>,
    encoder: Encoder,
    importance: Importance,
    next_row: usize,
    figures: Vec<f64>,
}

/// All of them. Peers take turns, so that all links are in use.
#[derive(Debug, Default)]
pub(super) struct Parts {
    parts: Vec<Part>,
    /// Whose turn it is.
    turn: usize,
}

impl Parts {
    pub(super) fn push(
        &mut self,
        scheme: &Scheme,
        to: u16,
        range: Range<usize>,
        figures: &Figures,
    ) -> Result<(), StartError> {
        let id = MessageId::new(scheme.step, Phase::ReduceScatter, to);
        let encoder = scheme.encoder(to, range.len())?;
        let importance = figures.importance(id, range.len());
        self.parts.push(Part { to, id, range, encoder, importance, next_row: 0, figures: Vec::new() });
        Ok(())
    }

    /// Rows of a shard that have been encoded: their place in the gradient is free.
    pub(super) fn encoded(&self, shard: u16) -> usize {
        self.parts.iter().find(|part| part.to == shard).map_or(usize::MAX, |part| part.next_row)
    }

    /// Encodes a row for the next peer who is about to run out of packets. `false`: nobody is.
    pub(super) fn work(
        &mut self,
        now_ns: u64,
        scheme: &Scheme,
        gradient: &[f32],
        figures: &mut Figures,
        endpoint: &mut Endpoint,
    ) -> Result<bool, StartError> {
        let count = self.parts.len();
        for nth in 0..count {
            let at = (self.turn + nth) % count;
            let part = &mut self.parts[at];
            let message = part.id.to_u32();
            if endpoint.backlog(part.to, message) > AHEAD {
                continue;
            }
            let layout = part.encoder.layout();
            let row = part.next_row;
            let envelope = Envelope { stream: endpoint.stream(), message };
            let choice = RowChoice { planes: scheme.planes, importance: part.importance };
            let coordinates = layout.row_coordinates(row);
            let (values, rest) =
                gradient[part.range.start + coordinates.start..part.range.end].split_at(coordinates.len());
            let mut packets = scheme.buffers.take(part.encoder.row_len(row, scheme.planes));
            let encoded = part
                .encoder
                .encode_row_before(row, values, rest, envelope, choice, &mut packets)
                .map_err(encode_error(scheme.step, part.to))?;
            part.figures.push(encoded.figure);
            if let Ok(ready) =
                Row::new(layout, row, &encoded, scheme.is_sealed(), scheme.buffers.lend(packets))
            {
                // A message that has been given up takes no more rows; its step ends with the event that says so.
                let _ = endpoint.supply(now_ns, part.to, message, row, ready);
            }
            part.next_row += 1;
            if part.next_row == layout.rows() {
                figures.learn(part.id, part.range.len(), &part.figures);
                self.parts.remove(at);
                self.turn = at;
            } else {
                self.turn = at + 1;
            }
            return Ok(true);
        }
        Ok(false)
    }
}
