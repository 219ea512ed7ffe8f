//! Which packets matter more: importance within a message, layer classes between messages.
//!
//! MLT's `prio_func` (mlt §4.2) lets a sender order packets by what their loss would cost. After a rotation every
//! coordinate of a row is as important as any other, so a packet counts as much as its row's energy (DESIGN §4);
//! without one a packet counts as much as the magnitude of its mean.

use crate::codec::Codec;
use crate::layout::Layout;
use crate::packet::HEADER_LEN;
use crate::simd::Ahead;

/// One packet in twenty is looked at to find the median of unrotated packets (MLT's 5 % sample).
const SAMPLE_STEP: usize = 20;
/// Packets whose headers are asked for before they are needed.
const AHEAD: usize = 16;
/// Byte and bit of the header's importance.
const FLAGS: usize = 1;
const IMPORTANT: u8 = 0x10;

/// Guesses which rows will turn out important, from those before: what is right then need not be mended when long messages have left
/// the cache.
#[derive(Debug, Default)]
pub(crate) struct Guess {
    /// The last rows' scores, in no order.
    recent: [f64; Self::ROWS],
    rows: usize,
}

impl Guess {
    const ROWS: usize = 15;

    /// Takes a row's score, and says whether it is above the median of the last ones.
    pub(crate) fn important(&mut self, score: f64) -> bool {
        self.recent[self.rows % Self::ROWS] = score;
        self.rows += 1;
        let mut recent = self.recent;
        let recent = &mut recent[..self.rows.min(Self::ROWS)];
        let middle = recent.len() / 2;
        score >= *recent.select_nth_unstable_by(middle, f64::total_cmp).1
    }
}

/// Where the flags of a row's packets are, counted from the row's first byte.
fn flags_of(layout: Layout, codec: Codec, planes: u8, row: usize) -> impl Iterator<Item = usize> {
    let mut end = 0;
    layout.row_places(row).map(move |(_, place)| {
        let start = end;
        end += HEADER_LEN + codec.plane_offset(planes, place.len());
        start + FLAGS
    })
}

/// Turns the importance of a row's packets over.
pub(crate) fn turn_over(layout: Layout, codec: Codec, planes: u8, row: usize, packets: &mut [u8]) {
    let flags = || flags_of(layout, codec, planes, row);
    // No packet has to wait for another.
    let mut ahead = flags();
    for flags in ahead.by_ref().take(AHEAD) {
        Ahead::new(&packets[flags..=flags]).line();
    }
    for flags in flags() {
        if let Some(flags) = ahead.next() {
            Ahead::new(&packets[flags..=flags]).line();
        }
        packets[flags] ^= IMPORTANT;
    }
}

/// Sets the importance of every packet of a message whose score is not below the median; so are those whose score is not finite. Packets of a
/// rotated row, of which one is as important as the other, may be marked already.
pub(crate) fn mark_important(
    layout: Layout,
    codec: Codec,
    planes: u8,
    (scores, sample): (&[f64], &mut Vec<f64>),
    packets: &mut [u8],
) {
    let threshold = threshold(layout, codec, scores, sample);
    let important = |score: f64| !score.is_finite() || score >= threshold;
    for row in 0..layout.rows() {
        let range = layout.row_packets(row);
        let scores = &scores[range.clone()];
        let packets = &mut packets[layout.packet_offset(codec, range.start, planes)..];
        if codec.rotates() {
            if (packets[FLAGS] & IMPORTANT != 0) != important(scores[0]) {
                turn_over(layout, codec, planes, row, packets);
            }
            continue;
        }
        for (flags, score) in flags_of(layout, codec, planes, row).zip(scores) {
            if important(*score) {
                packets[flags] |= IMPORTANT;
            }
        }
    }
}

/// The upper median of the rows' scores, or of a sample of the packets'.
fn threshold(layout: Layout, codec: Codec, scores: &[f64], sample: &mut Vec<f64>) -> f64 {
    sample.clear();
    if codec.rotates() {
        sample.extend((0..layout.rows()).map(|row| scores[layout.row_packets(row).start]));
    } else {
        sample.extend(scores.iter().copied().step_by(SAMPLE_STEP));
    }
    sample.retain(|score| score.is_finite());
    let middle = sample.len() / 2;
    if sample.is_empty() { f64::INFINITY } else { *sample.select_nth_unstable_by(middle, f64::total_cmp).1 }
}

/// The class of layer `layer` (0 = the front, which the next step needs first) among `layers`: ⌊layer · classes / layers⌋
/// (MLT §4.2.2). `classes` is at most 8, the header's three bits; layers beyond the last count as the last.
pub fn layer_class(layer: usize, layers: usize, classes: u8) -> u8 {
    let classes = usize::from(classes.clamp(1, 8));
    let layer = layer.min(layers.saturating_sub(1));
    (layer * classes / layers.max(1)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_spread_evenly_over_the_classes_front_first() {
        let classes: Vec<u8> = (0..10).map(|layer| layer_class(layer, 10, 4)).collect();
        assert_eq!(classes, [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]);
        assert_eq!([layer_class(0, 0, 0), layer_class(99, 3, 8), layer_class(5, 6, 200)], [0, 5, 6]);
    }
}
