// SPDX-License-Identifier: Apache-2.0
//! PIECE: a part of a DATA packet.

use trimwire_encoder::wire::{HEADER_LEN, Kind};

/// Bytes in front of the part.
pub const PIECE_HEADER_LEN: usize = 16;

/// A checked PIECE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The first twelve bytes of the DATA packet: its prefix and its place in the message. They
    /// tell packets apart.
    pub head: [u8; 12],
    /// Where the part begins in it, a multiple of 8.
    pub offset: u16,
    /// Bytes of the whole packet.
    pub total: u16,
    /// The part: at least one byte, and within the packet.
    pub part: &'a [u8],
}

impl<'a> Piece<'a> {
    /// Parts begin at multiples of this.
    pub const UNIT: usize = 8;

    /// Reads a PIECE, prefix included. `None`: it is none, or no part of a DATA packet. Bytes
    /// behind the packet's end are filling.
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let (header, part) = payload.split_first_chunk::<PIECE_HEADER_LEN>()?;
        let mut head = [0; 12];
        head.copy_from_slice(&header[..12]);
        if head[0] & 15 != Kind::Piece as u8 {
            return None;
        }
        head[0] = head[0] & 0xf0 | Kind::Data as u8;
        let offset = u16::from_be_bytes([header[12], header[13]]);
        let total = u16::from_be_bytes([header[14], header[15]]);
        let room = usize::from(total).checked_sub(usize::from(offset)).filter(|&room| room > 0)?;
        let part = part.get(..part.len().min(room)).filter(|part| !part.is_empty())?;
        let fits = usize::from(offset).is_multiple_of(Self::UNIT) && usize::from(total) >= HEADER_LEN;
        fits.then_some(Self { head, offset, total, part })
    }

    /// Divides DATA packets of `segment` bytes each, the last one being shorter perhaps, into
    /// PIECEs of at most `room` bytes. Gives them one behind the other, and the length of each but
    /// the last. Those of a packet end in zeros where it takes that for all to be of one length.
    /// `None` where not even eight bytes of a packet fit a PIECE, or a packet is too long for a
    /// length of 16 bits.
    pub fn divide(packets: &[u8], segment: usize, room: usize) -> Option<(Vec<u8>, usize)> {
        let most = room.checked_sub(PIECE_HEADER_LEN)? / Self::UNIT * Self::UNIT;
        if most == 0 || segment == 0 || segment > usize::from(u16::MAX) {
            return None;
        }
        // As many as it takes, and all about as long.
        let part = segment.div_ceil(segment.div_ceil(most)).next_multiple_of(Self::UNIT).min(most);
        let mut out = Vec::with_capacity(packets.len() + packets.len().div_ceil(part) * PIECE_HEADER_LEN);
        for packet in packets.chunks(segment) {
            let head = packet.first_chunk::<12>()?;
            for (nth, bytes) in packet.chunks(part).enumerate() {
                // The one before has to be as long as all others.
                out.resize(out.len().next_multiple_of(PIECE_HEADER_LEN + part), 0);
                out.push(head[0] & 0xf0 | Kind::Piece as u8);
                out.extend_from_slice(&head[1..]);
                out.extend_from_slice(&((nth * part) as u16).to_be_bytes());
                out.extend_from_slice(&(packet.len() as u16).to_be_bytes());
                out.extend_from_slice(bytes);
            }
        }
        Some((out, PIECE_HEADER_LEN + part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_fit_are_of_one_length_and_hold_every_byte_of_every_packet_once(
            segment in 20_usize..9_200, count in 1_usize..6, last in 12_usize..9_200, room in 24_usize..9_300,
        ) {
            let length = segment * (count - 1) + last.min(segment);
            let packets: Vec<u8> = (0..length).map(|at| if at % segment == 0 { 0x31 } else { (at % 251) as u8 }).collect();
            let (pieces, each) = Piece::divide(&packets, segment, room).expect("fits");
            prop_assert!(each <= room);
            let mut joined = Vec::new();
            for bytes in pieces.chunks(each) {
                let packet = joined.len() / segment * segment;
                let Some(piece) = Piece::parse(bytes) else {
                    // A packet shorter than a header is none.
                    prop_assert!(packets.len() - packet < HEADER_LEN);
                    return Ok(());
                };
                prop_assert_eq!(&piece.head[..], &packets[packet..][..12]);
                prop_assert_eq!(packet + usize::from(piece.offset), joined.len());
                prop_assert_eq!(usize::from(piece.total), segment.min(packets.len() - packet));
                joined.extend_from_slice(piece.part);
            }
            prop_assert_eq!(joined, packets);
        }

        #[test]
        fn any_bytes_are_a_part_within_a_packet_or_none(mut bytes in prop::collection::vec(any::<u8>(), 0..60), small: bool) {
            if let Some(first) = bytes.first_mut() {
                *first = 0x30 | Kind::Piece as u8;
            }
            if small && bytes.len() > 16 {
                bytes[12..16].copy_from_slice(&[0, 8, 0, 64]);
            }
            if let Some(piece) = Piece::parse(&bytes) {
                prop_assert!(!piece.part.is_empty() && usize::from(piece.offset) + piece.part.len() <= usize::from(piece.total));
                prop_assert!(usize::from(piece.total) >= HEADER_LEN && piece.offset % 8 == 0);
            }
        }
    }

    #[test]
    fn where_nothing_fits_nothing_is_divided() {
        assert_eq!(Piece::divide(&[0x31; 100], 100, 23), None);
        assert_eq!(Piece::divide(&vec![0x31; 70_000], 70_000, 1_000), None);
        assert_eq!(Piece::divide(&[0x31; 11], 11, 1_000), None);
    }
}
