// SPDX-License-Identifier: Apache-2.0
//! Packets to and from the controller: the program's `packet_out` and `packet_in` headers as
//! metadata (P4Runtime, "Packet I/O").

use super::refusal::{Refusal, Result};
use std::collections::BTreeMap;
use trimwire_p4runtime::config::controller_packet_metadata::Metadata;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::{bytes, v1};

/// Takes the `packet_in` header off a frame and names its fields. A frame that is too short for it
/// reads as if zeros followed.
pub(super) fn packet_in(index: &Index, frame: &[u8]) -> v1::PacketIn {
    let Ok(header) = index.controller_header("packet_in") else {
        return v1::PacketIn { payload: frame.to_vec(), ..v1::PacketIn::default() };
    };
    let mut start = 0;
    let mut metadata = Vec::with_capacity(header.metadata.len());
    for field in &header.metadata {
        let width = width(field);
        let value = bits(frame, start, width);
        start += width;
        metadata.push(v1::PacketMetadata { metadata_id: field.id, value: bytes::shortest(&value).to_vec() });
    }
    v1::PacketIn { payload: frame.get(start.div_ceil(8)..).unwrap_or_default().to_vec(), metadata }
}

/// Puts the `packet_out` header in front of a packet. Padding may be left out; it is 0 then.
pub(super) fn packet_out(index: &Index, packet: &v1::PacketOut) -> Result<Vec<u8>> {
    let fields = index.controller_header("packet_out").map_or(&[][..], |header| &header.metadata);
    let mut given: BTreeMap<u32, Option<&[u8]>> = fields.iter().map(|field| (field.id, None)).collect();
    for v1::PacketMetadata { metadata_id: id, value } in &packet.metadata {
        let Some(place) = given.get_mut(id) else {
            let known: Vec<_> = fields.iter().map(|field| format!("{} ({})", field.name, field.id)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Refusal::invalid(format!(
                "packet_out has no metadata of id {id}; there are: {known}"
            )));
        };
        if place.replace(value).is_some() {
            return Err(Refusal::invalid(format!("packet_out metadata of id {id} is given twice")));
        }
    }
    let bits: usize = fields.iter().map(width).sum();
    let mut frame = vec![0; bits.div_ceil(8)];
    let mut start = 0;
    for field in fields {
        let width = width(field);
        let value = match given.get(&field.id).copied().flatten() {
            Some(value) => bytes::check(value, width as u32)
                .map_err(|error| Refusal::invalid(format!("packet_out metadata {}: {error}", field.name)))?,
            None if is_padding(field) => &[],
            None => return Err(Refusal::invalid(format!("packet_out metadata {} is missing", field.name))),
        };
        put(&mut frame, start, width, &bytes::padded(value, width as u32));
        start += width;
    }
    frame.extend_from_slice(&packet.payload);
    Ok(frame)
}

fn is_padding(field: &Metadata) -> bool {
    field.annotations.iter().any(|annotation| annotation.starts_with("@padding"))
        || field.name.contains("pad")
}

fn width(field: &Metadata) -> usize {
    // The index refuses negative widths.
    usize::try_from(field.bitwidth).unwrap_or_default()
}

/// `width` bits of big-endian `bytes` from bit `start` on, as a number; beyond the end all are 0.
fn bits(bytes: &[u8], start: usize, width: usize) -> Vec<u8> {
    let (before, shift, spare) = place(start, width);
    let byte = |at: usize| at.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or_default();
    let pair = |at| u16::from_be_bytes([byte(at), byte(at + 1)]);
    let mut value: Vec<u8> =
        (0..width.div_ceil(8)).map(|at| (pair(before + at) << shift >> 8) as u8).collect();
    if let Some(first) = value.first_mut() {
        *first &= 0xff >> spare;
    }
    value
}

/// The way back: a number of `width` bits into `bytes`, which are 0 there.
fn put(bytes: &mut [u8], start: usize, width: usize, value: &[u8]) {
    let (before, shift, _) = place(start, width);
    for (at, byte) in value.iter().enumerate() {
        let pair = (u16::from(*byte) << 8 >> shift).to_be_bytes();
        for (at, part) in (before + at..).zip(pair) {
            if let Some(byte) = at.checked_sub(1).and_then(|at| bytes.get_mut(at)) {
                *byte |= part;
            }
        }
    }
}

/// Where a number's first whole byte begins: in the byte before which one of a packet (its first is
/// 1), at which bit, and how many bits of it are not the number's.
fn place(start: usize, width: usize) -> (usize, usize, usize) {
    let spare = width.next_multiple_of(8) - width;
    let first = start + 8 - spare;
    (first / 8, first % 8, spare)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwire_p4runtime::config::{ControllerPacketMetadata, P4Info, Preamble};

    /// Both headers with fields of these names and widths.
    fn index(fields: &[(&str, i32)]) -> Index {
        let header = |id, name: &str| ControllerPacketMetadata {
            preamble: Some(Preamble { id, name: name.to_owned(), ..Preamble::default() }),
            metadata: (1..)
                .zip(fields)
                .map(|(id, (name, bitwidth))| Metadata {
                    id,
                    name: (*name).to_owned(),
                    bitwidth: *bitwidth,
                    ..Metadata::default()
                })
                .collect(),
        };
        let controller_packet_metadata = vec![header(1, "packet_in"), header(2, "packet_out")];
        Index::new(&P4Info { controller_packet_metadata, ..P4Info::default() }).unwrap()
    }

    fn given(metadata_id: u32, value: &[u8]) -> v1::PacketMetadata {
        v1::PacketMetadata { metadata_id, value: value.to_vec() }
    }

    #[test]
    fn fields_are_packed_without_gaps_and_padding_may_be_left_out() {
        let index = index(&[("port", 9), ("pad", 7)]);
        let packet = v1::PacketOut { payload: vec![7], metadata: vec![given(1, &[0, 1, 0x2c])] };
        // 300 = 1_0010_1100 in nine bits, then seven zeros.
        assert_eq!(packet_out(&index, &packet).unwrap(), [0b1001_0110, 0, 7]);
        let back = packet_in(&index, &[0b1001_0110, 0, 7]);
        assert_eq!(back.metadata, vec![given(1, &[1, 0x2c]), given(2, &[0])]);
        assert_eq!(back.payload, [7]);
    }

    #[test]
    fn fields_wider_than_any_integer_survive() {
        let index = index(&[("flag", 1), ("wide", 200), ("rest", 7)]);
        let wide: Vec<u8> = (1..=25).collect();
        let metadata = vec![given(1, &[1]), given(2, &wide), given(3, &[0x55])];
        let frame =
            packet_out(&index, &v1::PacketOut { payload: vec![9], metadata: metadata.clone() }).unwrap();
        assert_eq!(packet_in(&index, &frame), v1::PacketIn { payload: vec![9], metadata });
    }

    #[test]
    fn a_frame_shorter_than_the_header_is_read_without_panic() {
        let index = index(&[("port", 9), ("wide", 300)]);
        for length in 0..45 {
            assert_eq!(packet_in(&index, &vec![0xff; length]).metadata.len(), 2);
        }
    }

    #[test]
    fn a_refused_packet_out_names_the_field() {
        let index = index(&[("port", 9)]);
        for (metadata, words) in [
            (vec![], "port is missing"),
            (vec![given(1, &[2, 0])], "bit<9>"),
            (vec![given(1, &[])], "empty"),
            (vec![given(1, &[1]), given(1, &[1])], "twice"),
            (vec![given(1, &[1]), given(8, &[1])], "id 8; there are: port (1)"),
        ] {
            let refusal = packet_out(&index, &v1::PacketOut { payload: vec![], metadata }).unwrap_err();
            assert!(refusal.message.contains(words), "{}", refusal.message);
        }
    }
}
