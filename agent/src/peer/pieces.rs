// SPDX-License-Identifier: Apache-2.0
//! DATA packets that came in PIECEs, as the way was too short for them, put together again.
//!
//! Lost pieces are not asked for: the packet counts as lost and is resent. So only what may be in
//! flight at once is kept, and the oldest packet gives way.

use crate::config::MTU_MOST;
use crate::wire::Piece;
use std::collections::VecDeque;

/// Incomplete packets that are kept: of all peers, at most of one, and at least of one. Whoever can
/// forge a peer's address can fill its part: the check is in the whole packet.
const PACKETS: usize = 512;
const OF_A_PEER: (usize, usize) = (4, 64);
/// The longest is a little shorter.
const LONGEST: usize = MTU_MOST as usize;
/// Of a bit for every eight bytes.
const WORDS: usize = LONGEST.div_ceil(Piece::UNIT * 64);

#[derive(Debug)]
struct Partial {
    head: [u8; 12],
    bytes: Vec<u8>,
    /// A bit for every eight bytes that are there.
    held: [u64; WORDS],
    /// How many are not.
    left: usize,
    /// Congestion experienced (RFC 3168), by any of its parts.
    congested: bool,
}

/// Incomplete packets of a peer.
#[derive(Debug)]
pub(super) struct Pieces {
    partial: VecDeque<Partial>,
    most: usize,
}

impl Pieces {
    /// Of one of the peers that a job of `world` ranks has.
    pub(super) fn new(world: u16) -> Self {
        let part = PACKETS / usize::from(world.saturating_sub(1).max(1));
        Self { partial: VecDeque::new(), most: part.clamp(OF_A_PEER.0, OF_A_PEER.1) }
    }

    /// Takes a part. Gives the packet that it completes, and whether any of its parts had
    /// experienced congestion.
    pub(super) fn take(&mut self, piece: &Piece<'_>, congested: bool) -> Option<(Vec<u8>, bool)> {
        let (offset, total) = (usize::from(piece.offset), usize::from(piece.total));
        if total > LONGEST {
            return None;
        }
        let known = self
            .partial
            .iter()
            .position(|partial| partial.head == piece.head && partial.bytes.len() == total);
        let at = known.unwrap_or_else(|| {
            if self.partial.len() >= self.most {
                self.partial.pop_front();
            }
            self.partial.push_back(Partial {
                head: piece.head,
                bytes: vec![0; total],
                held: [0; WORDS],
                left: total.div_ceil(Piece::UNIT),
                congested: false,
            });
            self.partial.len() - 1
        });
        let partial = self.partial.get_mut(at)?;
        let end = offset + piece.part.len();
        partial.bytes.get_mut(offset..end)?.copy_from_slice(piece.part);
        partial.congested |= congested;
        // What was trimmed on its way may end within eight bytes.
        let end = if end == total { end.div_ceil(Piece::UNIT) } else { end / Piece::UNIT };
        for unit in offset / Piece::UNIT..end {
            let word = partial.held.get_mut(unit / 64)?;
            partial.left -= usize::from(*word >> (unit % 64) & 1 == 0);
            *word |= 1 << (unit % 64);
        }
        if partial.left > 0 {
            return None;
        }
        let partial = self.partial.remove(at)?;
        Some((partial.bytes, partial.congested))
    }

    pub(super) fn forget(&mut self) {
        self.partial.clear();
    }

    /// Bytes kept.
    pub(super) fn bytes(&self) -> usize {
        self.partial.iter().map(|partial| partial.bytes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(number: u32, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length).map(|at| (at as u32 * 7 + number) as u8).collect();
        bytes[..12].copy_from_slice(&[0x31, 0, 0, 0, 0, 0, 0, 1, 0, 0, number as u8, 14]);
        bytes
    }

    proptest! {
        #[test]
        fn in_any_order_repeated_and_mixed_each_packet_comes_out_once_as_it_was(
            lengths in prop::collection::vec(20_usize..9_200, 1..20), room in 500_usize..1_500, order in any::<prop::sample::Index>(), seed: u64,
        ) {
            let mut parts = Vec::new();
            for (number, &length) in lengths.iter().enumerate() {
                let whole = packet(number as u32, length);
                let (pieces, each) = Piece::divide(&whole, length, room).expect("fits");
                parts.extend(pieces.chunks(each).map(<[u8]>::to_vec));
            }
            let mut state = seed | 1;
            for at in (1..parts.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                parts.swap(at, (state >> 33) as usize % (at + 1));
            }
            // One of them comes twice.
            let again = parts[order.index(parts.len())].clone();
            parts.insert(0, again);
            let mut pieces = Pieces::new(2);
            let mut complete: Vec<Vec<u8>> = parts.iter().filter_map(|bytes| {
                Some(pieces.take(&Piece::parse(bytes).expect("own"), false)?.0)
            }).collect();
            complete.sort_by_key(|bytes| bytes[10]);
            complete.dedup();
            prop_assert_eq!(complete.len(), lengths.len());
            for (number, bytes) in complete.iter().enumerate() {
                prop_assert_eq!(bytes, &packet(number as u32, lengths[number]));
            }
            prop_assert!(pieces.bytes() <= 9_200, "but for the one that came twice nothing is left");
        }
    }

    #[test]
    fn what_never_becomes_whole_gives_way_and_a_trimmed_part_completes_nothing() {
        let mut pieces = Pieces::new(2);
        for number in 0..1_000 {
            let whole = packet(number, 9_000);
            let (bytes, each) = Piece::divide(&whole, 9_000, 1_400).expect("fits");
            let mut parts = bytes.chunks(each);
            let first = parts.next().expect("several");
            assert_eq!(pieces.take(&Piece::parse(&first[..first.len() - 1]).expect("own"), true), None);
            for part in parts {
                assert_eq!(pieces.take(&Piece::parse(part).expect("own"), false), None, "a byte is missing");
            }
        }
        assert_eq!(pieces.bytes(), OF_A_PEER.1 * 9_000);
        let whole = packet(999, 9_000);
        let (bytes, each) = Piece::divide(&whole, 9_000, 1_400).expect("fits");
        let first = Piece::parse(&bytes[..each]).expect("own");
        assert_eq!(pieces.take(&first, false), Some((whole, true)), "congestion was seen by one part");
        let long = [&[0x3a; 12][..], &[0, 0, 0xff, 0xff, 1, 2]].concat();
        assert_eq!(pieces.take(&Piece::parse(&long).expect("a part"), false), None, "longer than any packet");
    }

    #[test]
    fn strangers_who_write_all_peers_addresses_fill_no_more_in_a_large_job() {
        for world in [2, 9, 65, 1_024] {
            let mut all = 0;
            for rank in 1..world {
                let mut pieces = Pieces::new(world);
                for number in 0..100 {
                    let whole = packet(number, 9_000);
                    let (bytes, each) = Piece::divide(&whole, 9_000, 1_400).expect("fits");
                    pieces.take(&Piece::parse(&bytes[..each]).expect("own"), false);
                }
                all += pieces.bytes();
                if rank == 8 && world > 9 {
                    all *= usize::from(world - 1) / 8;
                    break;
                }
            }
            assert!(all <= 40_000_000, "{world} ranks: {all} bytes");
        }
    }
}
