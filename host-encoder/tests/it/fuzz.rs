// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: a valid message, and what can happen to it under way. `cargo test` runs each for a
//! bounded number of inputs, after those in `tests/it/__fuzz__`; under `cargo bolero test` the same
//! targets run as long as one likes.
//!
//! Random bytes only test the first comparison of a parser. So every target starts from packets of
//! a working encoder — rows of 2^15 and packets of every size among them — and damages them:
//! trimmed, repeated, reordered, repaired, flipped, spliced, with the header's check right or
//! wrong.

use crate::arrival::{Arrival, LARGE, SEALED, SMALL, Subject, envelope, mend};
use bolero::check;
use trimwire_encoder::{Codec, Decoder, Decoding, HEADER_LEN, Header, PacketView, Prefix};

/// Inputs of a `cargo test`; `TRIMWIRE_FUZZ` asks for another number.
fn iterations(usual: usize) -> usize {
    std::env::var("TRIMWIRE_FUZZ").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

const DECODINGS: [Decoding; 3] = [Decoding::Unbiased, Decoding::Mmse, Decoding::Paper];

/// What decoders are held to, whatever arrives.
fn receive_and_decode(subject: &Subject, decoding: Decoding, arrivals: &[Arrival]) {
    let (layout, codec) = (&subject.layout, subject.codec);
    let mut decoder = subject.decoder(decoding);
    let mut marked = vec![false; layout.rows()];
    // What a naive receiver would know: the bytes of each plane that arrived, from its front.
    let mut known = vec![vec![0; codec.planes().into()]; layout.packets()];
    let mut all_genuine = true;
    for arrival in arrivals {
        let (packet, genuine) = arrival.bytes(subject);
        let before = decoder.stats();
        let Ok(receipt) = decoder.receive(&packet) else {
            assert_eq!(decoder.stats(), before, "a refused packet changed something");
            let short = packet.len() < HEADER_LEN || subject.sealer.is_some();
            assert!(!genuine || short || !all_genuine, "a genuine packet was refused");
            continue;
        };
        assert!(receipt.planes_before <= receipt.planes_now && receipt.planes_now <= codec.planes());
        let view = PacketView::parse(&packet).expect("what was received parses");
        let header = view.header();
        assert_eq!(header.prefix.envelope(), envelope(0), "a foreign packet was taken");
        marked[layout.packet_row(receipt.index)] |= header.is_not_finite();
        let mut left = view.body().len();
        for plane in header.first_plane..codec.planes() {
            let length = codec.plane_len(plane, header.coordinates);
            let held = &mut known[receipt.index][usize::from(plane)];
            *held = left.min(length).max(*held);
            left = left.saturating_sub(length);
        }
        all_genuine &= genuine;
    }
    if subject.sealer.is_none() {
        for (index, planes) in known.iter().enumerate() {
            let n = layout.packet_range(index).len();
            let whole = (0..codec.planes()).take_while(|p| planes[usize::from(*p)] >= codec.plane_len(*p, n));
            assert_eq!(usize::from(decoder.coverage(index)), whole.count(), "packet {index}");
        }
    }
    let out = subject.decoded(&decoder);
    if codec != Codec::Raw {
        for (row, marked) in marked.iter().enumerate() {
            let values = &out[layout.row_coordinates(row)];
            let nan = values.iter().filter(|value| value.is_nan()).count();
            assert_eq!(nan, if *marked { values.len() } else { 0 }, "{codec}, {decoding:?}, row {row}");
        }
    }
    if all_genuine {
        completing_gives_the_whole_message(subject, decoder, decoding);
    }
}

/// Whatever arrived before, of a genuine message, in whatever order: with the rest it is the
/// message.
fn completing_gives_the_whole_message(subject: &Subject, mut decoder: Decoder, decoding: Decoding) {
    let mut whole = subject.decoder(decoding);
    for index in 0..subject.messages[0].packets() {
        let packet = subject.messages[0].packet(index);
        decoder.receive(packet).expect("a packet of the message");
        whole.receive(packet).expect("a packet of the message");
    }
    let bits =
        |decoder: &Decoder| -> Vec<u32> { subject.decoded(decoder).into_iter().map(f32::to_bits).collect() };
    assert!(bits(&decoder) == bits(&whole));
}

#[test]
fn any_bytes_are_a_header_or_an_error_and_headers_write_what_they_read() {
    check!().with_iterations(iterations(20_000)).for_each(|bytes: &[u8]| {
        let _ = Prefix::parse(bytes);
        // As they are, and with a right check, which random bytes never have.
        let mut mended = bytes.to_vec();
        mend(&mut mended);
        for bytes in [bytes, &mended] {
            if let Ok(header) = Header::parse(bytes) {
                assert_eq!(header.to_bytes()[..], bytes[..HEADER_LEN]);
            }
            if let Ok(view) = PacketView::parse(bytes) {
                let (header, body) = (view.header(), view.body().len());
                let codec = header.codec();
                let whole = codec.body_len(header.coordinates)
                    - codec.plane_offset(header.first_plane, header.coordinates);
                assert_eq!(
                    body,
                    (bytes.len() - HEADER_LEN).min(whole),
                    "bytes behind the last plane are ignored"
                );
            }
        }
    });
}

#[test]
fn small_messages_of_every_codec_are_refused_or_decoded() {
    check!().with_iterations(iterations(10_000)).with_type::<(u8, u8, Vec<Arrival>)>().for_each(
        |(subject, decoding, arrivals)| {
            let subject = &SMALL[usize::from(*subject) % SMALL.len()];
            receive_and_decode(subject, DECODINGS[usize::from(*decoding) % 3], arrivals);
        },
    );
}

#[test]
fn rows_of_full_length_in_packets_of_all_sizes_are_refused_or_decoded() {
    check!().with_iterations(iterations(300)).with_type::<(u8, u8, Vec<Arrival>)>().for_each(
        |(subject, decoding, arrivals)| {
            let subject = &LARGE[usize::from(*subject) % LARGE.len()];
            receive_and_decode(subject, DECODINGS[usize::from(*decoding) % 3], arrivals);
        },
    );
}

#[test]
fn of_sealed_packets_nothing_counts_but_what_their_sender_wrote() {
    check!().with_iterations(iterations(3_000)).with_type::<(u8, Vec<Arrival>)>().for_each(
        |(subject, arrivals)| {
            let subject = &SEALED[usize::from(*subject) % SEALED.len()];
            let mut decoder = subject.decoder(Decoding::Unbiased);
            for arrival in arrivals {
                let _ = decoder.receive(&arrival.bytes(subject).0);
            }
            // A receiver that got the genuine packets, and looks at no more of them.
            let mut genuine = subject.decoder(Decoding::Unbiased);
            for index in 0..subject.messages[0].packets() {
                if decoder.arrived(index) {
                    genuine.receive(subject.messages[0].packet(index)).expect("a packet of the message");
                    genuine.limit(index, decoder.coverage(index));
                }
            }
            let bits = |decoder: &Decoder| -> Vec<u32> {
                subject.decoded(decoder).into_iter().map(f32::to_bits).collect()
            };
            // Where only a repair arrived, the header counts but no plane does: a limit of 0 would
            // not count the header.
            let repaired =
                (0..subject.messages[0].packets()).any(|i| decoder.arrived(i) && decoder.coverage(i) == 0);
            assert!(repaired || bits(&decoder) == bits(&genuine));
        },
    );
}

/// A packet with some of its header's bits flipped.
fn with_wrong_bits(index: u8, bits: &[u8]) -> Vec<u8> {
    let message = &SMALL[0].messages[0];
    let mut packet = message.packet(usize::from(index) % message.packets()).to_vec();
    for bit in bits {
        let bit = usize::from(*bit) % (8 * HEADER_LEN);
        packet[bit / 8] ^= 1 << (bit % 8);
    }
    packet
}

#[test]
fn up_to_four_wrong_bits_in_a_header_are_refused() {
    check!().with_iterations(iterations(20_000)).with_type::<(u8, [u8; 4], u8)>().for_each(
        |(index, bits, count)| {
            let packet = with_wrong_bits(*index, &bits[..=usize::from(*count) % 4]);
            let sent = with_wrong_bits(*index, &[]);
            let refused = SMALL[0].decoder(Decoding::Unbiased).receive(&packet).is_err();
            assert_eq!(refused, packet != sent, "two flips of one bit are none");
        },
    );
}
