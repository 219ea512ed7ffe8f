// SPDX-License-Identifier: Apache-2.0
//! What a receiver of all of a row's packets holds, made of their code words while these are in the first-level cache.

use super::row::{RowError, RowTask, Writer, Written, next_statistics};
use crate::aligned::AlignedRow;
use crate::decode::decoding::Decoding;
use crate::decode::reception::Precision;
use crate::decode::row::{InverseRow, Put, RowDecoder};
use crate::element::ValuesMut;
use crate::quantise::statistics::{EightStatistics, Statistics};
use crate::simd::Planes;

/// What is between a row's packets and what their receiver holds.
#[derive(Debug, Default)]
pub(crate) struct ReplicaScratch {
    /// Of each packet, with what multiplies working values into zone widths.
    statistics: Vec<(Statistics, f32)>,
    /// The code words of one packet.
    words: AlignedRow<u32>,
}

/// Where what a receiver holds of a row is kept.
pub(super) struct Replica<'a> {
    pub(super) own: &'a mut ReplicaScratch,
    /// Of the row's first, or only, rotation, and of its second.
    pub(super) signs: (&'a [u32], &'a [u32]),
    /// As long as the row's coordinates.
    pub(super) out: ValuesMut<'a>,
}

impl Replica<'_> {
    /// Writes the packets of a rotated row, and to `out` what their receiver decodes without bias. Each packet's values make room for what its receiver makes of them,
    /// which needs all packets' statistics first: the row has one scale. Working values are `unit` times the values themselves.
    #[inline(always)]
    pub(super) fn write<L: Planes>(
        self,
        lanes: L,
        mut writer: Writer<'_>,
        values: &mut [f32],
        unit: f64,
    ) -> Result<Written, RowError> {
        let Self { own: ReplicaScratch { statistics, words }, signs, mut out } = self;
        let (task, twice) = (writer.task, writer.twice);
        let RowTask { layout, row, key, isa, planes, .. } = *task;
        let mut places = layout.row_places(row);
        statistics.clear();
        while statistics.len() < layout.row_packets(row).len() {
            let eight = next_statistics(lanes, values, &mut places, unit);
            for nth in 0..EightStatistics::LEN {
                statistics.push(eight.get(nth).ok_or(RowError::TooLarge)?);
            }
        }
        let whole = |statistics| Precision { statistics, planes, more: 0 };
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
            Some(way) => way.finish(lanes, values, signs, &mut out),
            None => out.fill(0.0),
        }
        Ok(writer.written())
    }
}
