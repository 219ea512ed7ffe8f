//! Packets of all codecs, cut anywhere, damaged, foreign; and captures of them.

use super::codes::coordinates;
use super::report::Packet;
use super::*;
use proptest::prelude::*;
use serde_json::Value;
use trimwire_encoder::{
    Codec, Encoder, Envelope, Isa, Layout, Message, PacketView, RotationKey, StreamId, packet::VERSION,
    rotation,
};

const KEY: RotationKey = RotationKey { job_seed: 7, message: 9, rank: 0 };

fn gradient() -> Vec<f32> {
    (0..512).map(|i| ((i * 2_654_435_761_usize) % 1000) as f32 / 500.0 - 0.9).collect()
}

fn encoded(codec: Codec) -> Message {
    let layout = Layout::new(512, 256).unwrap();
    let envelope = Envelope { stream: StreamId::new(5, 300).unwrap(), message: 9, layer_class: 3 };
    let mut message = Message::default();
    let encoder = Encoder::new(layout, KEY).with_codec(codec);
    encoder.encode(&gradient(), envelope, codec.planes(), &mut message).unwrap();
    message
}

fn json(payload: &[u8]) -> Value {
    let datagram = Datagram::bare("test".to_owned(), payload.to_vec());
    serde_json::to_value(Packet::decode(&datagram, 8)).unwrap()
}

/// An Ethernet frame around a payload.
fn frame(payload: &[u8], port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(40_000, port)
        .write(&mut frame, payload)
        .unwrap();
    frame
}

/// A little-endian pcap file of Ethernet frames.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend(65_535_u32.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

fn captured(file: &[u8], port: u16) -> (Vec<Datagram>, capture::Counted) {
    let mut all = Vec::new();
    let counted = capture::each(file, "c.pcap", port, &mut |datagram| all.push(datagram)).unwrap();
    (all, counted)
}

#[test]
fn what_a_packet_says_brackets_what_was_encoded_at_every_cut() {
    for codec in Codec::ALL {
        let message = encoded(codec);
        let mut exact = gradient();
        if codec.rotates() {
            rotation::forward(Isa::PORTABLE, &mut exact, KEY, 0);
        }
        let packet = message.packet(1);
        let mut widths = vec![f64::INFINITY];
        for length in (18..=packet.len()).step_by(7).chain([packet.len()]) {
            let view = PacketView::parse(&packet[..length]).unwrap();
            let (mut width, mut bits) = (0.0, 0);
            for (coordinate, exact) in coordinates(&view, 256).iter().zip(&exact[256..]) {
                let exact = f64::from(*exact);
                let slack = 2e-6 * f64::from(view.header().sigma);
                assert!(
                    coordinate.low - slack <= exact && exact <= coordinate.high + slack,
                    "{codec}, {length} bytes: {exact} in {coordinate:?}"
                );
                width += coordinate.high - coordinate.low;
                bits += coordinate.bits;
            }
            assert!(bits as usize <= 8 * (length - 18), "{codec}: more bits than arrived");
            assert!(width <= widths[widths.len() - 1], "{codec}: more bytes never say less");
            widths.push(width);
        }
        let sigma = f64::from(message.header(1).unwrap().sigma);
        assert!(
            widths[widths.len() - 1] / 256.0 <= 1e-6 * sigma,
            "{codec}: a whole packet is as good as exact"
        );
    }
}

#[test]
fn a_packets_fields_are_named_in_json() {
    let message = encoded(Codec::Rht);
    let packet = json(&message.packet(1)[..18 + 3 * 32 + 4]);
    assert_eq!(packet["kind"], "DATA");
    let stream = &packet["stream"];
    assert_eq!((&stream["job"], &stream["rank"], &stream["message"]), (&5.into(), &300.into(), &9.into()));
    assert_eq!((&stream["layer_class"], &stream["last"]), (&3.into(), &true.into()));
    let data = &packet["data"];
    assert_eq!(
        (&data["codec"], &data["index"], &data["coordinates"]),
        (&"rht".into(), &1.into(), &256.into())
    );
    assert_eq!((&data["planes_held"], &data["whole_bytes"]), (&3.into(), &(18 + 768).into()));
    assert_eq!(data["partial_plane"], serde_json::json!({"plane": 3, "coordinates": 32}));
    assert_eq!(data["values"].as_array().unwrap().len(), 8);
    for key in ["index", "code", "known", "bits", "low", "high"] {
        assert!(data["values"][0][key].is_number(), "{key}");
    }
    assert_eq!(data["values"][0]["bits"], 4);
}

#[test]
fn a_repair_shows_the_planes_that_it_brings() {
    let repair = encoded(Codec::Rht).repair(0, 4..6).unwrap();
    let data = &json(&repair)["data"];
    assert_eq!((&data["first_plane"], &data["planes_held"]), (&4.into(), &2.into()));
    assert_eq!(data["values"][0]["known"], 0x0c00_0000);
}

#[test]
fn what_is_wrong_with_a_packet_is_said() {
    let whole = encoded(Codec::Rht).packet(0).to_vec();
    let damaged = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    for (bytes, message) in [
        (whole[..12].to_vec(), "packet of 12 bytes is cut inside its head (18 bytes)"),
        (damaged(0, 0x11), "unknown version 1 (this side speaks 2)"),
        (damaged(0, 0x2f), "unknown kind 15"),
        (damaged(1, 0xe0), "unknown codec 7 (valid: 0 rht"),
        (damaged(11, 0), "no coordinates"),
        (damaged(12, 0xff), "is not a magnitude"),
    ] {
        let packet = json(&bytes);
        assert!(packet["error"].as_str().unwrap().contains(message), "{packet}");
    }
}

#[test]
fn captures_give_the_packets_of_their_port_and_count_the_rest() {
    let whole = encoded(Codec::Rht);
    let file = pcap(&[
        frame(whole.packet(0), 9217),
        frame(b"dns", 53),
        frame(&whole.packet(1)[..62], 9217),
        vec![0; 9],
    ]);
    let (datagrams, counted) = captured(&file, 9217);
    let payloads: Vec<&[u8]> = datagrams.iter().map(|d| &d.payload[..]).collect();
    assert_eq!(payloads, [whole.packet(0), &whole.packet(1)[..62]]);
    assert_eq!(datagrams[1].source, "c.pcap, frame 3");
    assert_eq!(datagrams[1].route.unwrap().to.to_string(), "10.0.0.2:9217");
    assert_eq!(counted, capture::Counted { elsewhere: 2, problem: None });
    assert_eq!(captured(&file, 0).0.len(), 3);
}

#[test]
fn a_frame_cut_by_a_switch_that_leaves_lengths_alone_gives_what_arrived() {
    let whole = encoded(Codec::Rht);
    let cut = frame(whole.packet(0), 9217)[..256].to_vec();
    let (datagrams, _) = captured(&pcap(&[cut]), 9217);
    assert_eq!(datagrams[0].payload, whole.packet(0)[..256 - 42]);
    assert_eq!(usize::from(datagrams[0].route.unwrap().announced), whole.packet(0).len());
}

#[test]
fn a_capture_that_ends_early_gives_what_is_in_front() {
    let whole = encoded(Codec::Rht);
    let file = pcap(&[frame(whole.packet(0), 9217), frame(whole.packet(1), 9217)]);
    let (datagrams, counted) = captured(&file[..file.len() - 5], 9217);
    assert_eq!(datagrams.len(), 1);
    assert!(counted.problem.unwrap().contains("behind frame 1: it ends inside a block"));
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), first in 0u8..7) {
        let mut likely = bytes.clone();
        if let Some(byte) = likely.first_mut() {
            *byte = VERSION << 4 | first;
        }
        for payload in [bytes, likely] {
            let packet = Packet::decode(&Datagram::bare(String::new(), payload), 300);
            prop_assert!(!packet.render().is_empty());
            prop_assert!(serde_json::to_string(&packet).is_ok());
        }
    }

    #[test]
    fn damaged_headers_never_panic(at in 0usize..18, byte in any::<u8>(), length in 0usize..1042, codec in 0u8..6) {
        let mut bytes = encoded(Codec::from_id(codec).unwrap()).packet(0).to_vec();
        bytes[at] = byte;
        bytes.truncate(length);
        prop_assert!(!Packet::decode(&Datagram::bare(String::new(), bytes), 300).render().is_empty());
    }

    #[test]
    fn damaged_captures_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), magic in 0usize..3, at in 0usize..200, byte in any::<u8>(),
    ) {
        let mut file = pcap(&[frame(&[0x21; 40], 9217), frame(&bytes, 9217)]);
        let place = at % file.len();
        file[place] = byte;
        let magics = [[0xd4, 0xc3, 0xb2, 0xa1], [0x0a, 0x0d, 0x0d, 0x0a], [0xa1, 0xb2, 0xc3, 0xd4]];
        let garbage = [&magics[magic][..], &bytes].concat();
        for file in [file, garbage] {
            let _ = capture::each(&file, "c", 0, &mut |datagram| {
                let _ = Packet::decode(&datagram, 10).render();
            });
        }
    }
}
