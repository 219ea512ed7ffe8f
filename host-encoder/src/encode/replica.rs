// SPDX-License-Identifier: Apache-2.0
//! What a receiver of all of a row's packets decodes, computed from their code words while these
//! are in the first-level cache.

use super::task::{RowError, RowTask, Writer, Written, next_statistics};
use crate::decode::decoding::Decoding;
use crate::decode::precision::Precision;
use crate::decode::row::{InverseRow, Put, RowDecoder};
use crate::element::ValuesMut;
use crate::quantise::statistics::EightStatistics;
use crate::scratch::ReplicaScratch;
use crate::simd::Planes;

/// Where the receiver's values of a row are kept.
pub(super) struct Replica<'a> {
    pub(super) own: &'a mut ReplicaScratch,
    /// Of the row's first rotation, and of its second, if there is one.
    pub(super) signs: (&'a [u32], &'a [u32]),
    /// As long as the row's coordinates.
    pub(super) out: ValuesMut<'a>,
}

impl Replica<'_> {
    /// Writes the packets of a rotated row, and to `out` what their receiver decodes without bias.
    /// The statistics of all packets come first, because the row has one scale. Then each packet's
    /// values are replaced by the receiver's. Working values are `unit` times the values.
    #[inline(always)]
    pub(super) fn write<L: Planes>(
        self,
        lanes: L,
        mut writer: Writer<'_>,
        values: &mut [f32],
        unit: f64,
    ) -> Result<Written, RowError> {
        let Self { own: ReplicaScratch { statistics, words }, signs, mut out } = self;
        let (task, twice, zeros) = (writer.task, writer.twice, writer.zeros);
        let RowTask { layout, row, key, isa, planes, .. } = *task;
        let mut places = layout.row_places(row);
        statistics.clear();
        while statistics.len() < layout.row_packets(row).len() {
            let eight = next_statistics(lanes, values, &mut places, unit);
            for nth in 0..EightStatistics::LEN {
                statistics.push(eight.get(nth).ok_or(RowError::TooLarge)?);
            }
        }
        let whole = |statistics| Precision { statistics, planes, more: 0, zeros: true };
        let precision = |nth: usize| statistics.get(nth).map(|(statistics, _)| whole(*statistics));
        let decoding = Decoding::Unbiased;
        let decoder = RowDecoder { layout, row, key, decoding, isa, twice, precision: &precision };
        let mut way =
            decoder.units().map(|units| InverseRow::new(lanes, units, twice, Put::Store, layout, &out));
        for ((index, place), statistics) in layout.row_places(row).zip(&*statistics) {
            let words = words.of(place.len());
            writer.packet(lanes, index, &values[place.clone()], *statistics, words);
            if let Some(way) = &mut way {
                way.packet(lanes, Some(whole(statistics.0)), words, place, values);
            }
        }
        match way {
            Some(way) => way.finish(lanes, values, signs, zeros, &mut out),
            None => out.fill(0.0),
        }
        Ok(writer.written())
    }
}
