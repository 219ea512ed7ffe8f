// SPDX-License-Identifier: Apache-2.0
//! Packets of all codecs, trimmed anywhere, damaged, foreign; and captures of them.

use super::codes::coordinates;
use super::report::Packet;
use super::*;
use proptest::prelude::*;
use serde_json::Value;
use trimwire_encoder::wire::VERSION;
use trimwire_encoder::{
    Codec, Encoder, Envelope, HEADER_LEN, Header, HeaderMask, Isa, Job, Kind, Layout, Message, PacketView,
    Prefix, SealKey, Sealer, StreamId, rotate,
};

const JOB: Job = Job::new(7);
const ENVELOPE: Envelope = Envelope { stream: StreamId::new(5, 300).unwrap(), message: 9 };

fn gradient() -> Vec<f32> {
    (0..512).map(|i| ((i * 2_654_435_761_usize) % 1000) as f32 / 500.0 - 0.9).collect()
}

fn encoded(codec: Codec) -> Message {
    let mut message = Message::default();
    encoder(codec).encode(&gradient(), ENVELOPE, codec.planes(), &mut message).unwrap();
    message
}

fn encoder(codec: Codec) -> Encoder {
    let layout = Layout::new(512, 256).and_then(|layout| layout.with_layer_class(3)).unwrap();
    Encoder::new(layout, JOB).with_codec(codec)
}

fn json(payload: &[u8]) -> Value {
    let datagram = Datagram::bare("test".to_owned(), payload.to_vec());
    serde_json::to_value(Packet::decode(&datagram, 8, &Masks::default())).unwrap()
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
fn what_a_packet_says_brackets_what_was_encoded_at_every_trim() {
    for codec in Codec::ALL {
        let message = encoded(codec);
        let mut exact = gradient();
        if codec.rotates() {
            rotate::forward(Isa::PORTABLE, &mut exact, JOB, ENVELOPE, 0);
            assert!(!message.rows()[0].twice, "rows of many like coordinates are rotated once");
        }
        let packet = message.packet(1);
        let mut widths = vec![f64::INFINITY];
        for length in (HEADER_LEN..=packet.len()).step_by(7).chain([packet.len()]) {
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
            assert!(bits as usize <= 8 * (length - HEADER_LEN), "{codec}: more bits than arrived");
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
    let packet = json(&message.packet(1)[..HEADER_LEN + 3 * 32 + 4]);
    assert_eq!(packet["kind"], "DATA");
    let stream = &packet["stream"];
    assert_eq!((&stream["job"], &stream["rank"], &stream["message"]), (&5.into(), &300.into(), &9.into()));
    assert_eq!((&stream["layer_class"], &stream["last"]), (&3.into(), &true.into()));
    let data = &packet["data"];
    assert_eq!(
        (&data["codec"], &data["index"], &data["coordinates"]),
        (&"rht".into(), &1.into(), &256.into())
    );
    assert_eq!((&data["planes_held"], &data["whole_bytes"]), (&3.into(), &(HEADER_LEN + 768).into()));
    assert_eq!(data["partial_plane"], serde_json::json!({"plane": 3, "coordinates": 32}));
    assert_eq!(data["values"].as_array().unwrap().len(), 8);
    for key in ["index", "code", "known", "bits", "low", "high"] {
        assert!(data["values"][0][key].is_number(), "{key}");
    }
    assert_eq!(data["values"][0]["bits"], 4);
    let check = u16::from_be_bytes([message.packet(1)[18], message.packet(1)[19]]);
    assert_eq!((&data["check"], &data["twice"]), (&check.into(), &false.into()));
    assert_eq!((&data["bytes_behind"], &data["long_as_sealed"]), (&0.into(), &false.into()));
}

#[test]
fn a_repair_shows_the_planes_that_it_brings() {
    let repair = encoded(Codec::Rht).repair(0, 4..6).unwrap();
    let data = &json(&repair)["data"];
    assert_eq!((&data["first_plane"], &data["planes_held"]), (&4.into(), &2.into()));
    assert_eq!(data["values"][0]["known"], 0x0c00_0000);
}

/// What people see of a payload.
fn shown(payload: &[u8]) -> String {
    Packet::decode(&Datagram::bare("test".to_owned(), payload.to_vec()), 1, &Masks::default()).render()
}

#[test]
fn what_is_wrong_with_a_packet_is_said() {
    let message = encoded(Codec::Rht);
    let (whole, header) = (message.packet(0).to_vec(), message.header(0).unwrap());
    let started = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    // Headers that no encoder writes, with a check that is right.
    let made = |header: Header| [&header.to_bytes()[..], &whole[HEADER_LEN..]].concat();
    for (bytes, message) in [
        (whole[..12].to_vec(), "packet of 12 bytes ends inside its head (20 bytes)"),
        (started(0, 0xf1), "unknown version 15 of the wire format (this side speaks 5)"),
        (started(0, 0x5f), "unknown kind 15"),
        (made(Header { coordinates: 0, ..header }), "blocks 0x0001 name no number of coordinates"),
        (made(Header { first_plane: 10, ..header }), "first plane 10 of codec rht, which has 10"),
        (made(Header { sigma: f32::INFINITY, ..header }), "is not a magnitude"),
    ] {
        let packet = json(&bytes);
        assert!(packet["error"].as_str().unwrap().contains(message), "{packet}");
        assert!(shown(&bytes).contains(message));
    }
}

#[test]
fn packets_of_earlier_versions_are_called_what_they_are() {
    for version in [1, 2, 3, 4] {
        let mut bytes = encoded(Codec::Rht).packet(0).to_vec();
        bytes[0] = version << 4 | 1;
        let said = format!("version {version} of the format, which this command does not read (it reads 5)");
        assert_eq!(json(&bytes)["error"], said);
        assert!(shown(&bytes).contains(&format!("cannot be decoded: {said}")));
    }
}

#[test]
fn a_damaged_header_is_shown_with_its_check_and_what_it_should_be() {
    let whole = encoded(Codec::Rht).packet(0).to_vec();
    let right = u16::from_be_bytes([whole[18], whole[19]]);
    let mut damaged = whole.clone();
    damaged[19] ^= 0x40;
    let packet = json(&damaged);
    assert_eq!((&packet["check"], &packet["check_expected"]), (&(right ^ 0x40).into(), &right.into()));
    assert_eq!((&packet["kind"], &packet["stream"]["rank"]), (&"DATA".into(), &300.into()));
    assert!(packet["data"].is_null(), "nothing that cannot be believed is shown as if it could");
    let text = shown(&damaged);
    let said = format!("check is {:#06x} where its bytes make {right:#06x}: it was damaged", right ^ 0x40);
    assert!(text.contains(&said) && text.contains("its header says DATA of job 5, rank 300"), "{text}");
    let mut elsewhere = whole;
    elsewhere[7] ^= 1;
    assert_eq!(json(&elsewhere)["check"], right);
}

/// What `inspect` makes of frames, with what control packets among them say.
fn inspected(frames: &[Vec<u8>], given: &[u32]) -> Vec<Value> {
    let (datagrams, _) = captured(&pcap(frames), 9217);
    let mut masks = Masks::new(given);
    datagrams.iter().for_each(|datagram| masks.hear(&datagram.payload));
    let value = |datagram| serde_json::to_value(Packet::decode(datagram, 1, &masks)).unwrap();
    datagrams.iter().map(value).collect()
}

#[test]
fn a_captured_packet_is_checked_under_the_mask_of_an_incarnation_that_a_control_packet_or_the_user_tells() {
    const INCARNATION: u32 = 0x00c0_ffee;
    let whole = encoded(Codec::Rht);
    let mut masked = whole.packet(0).to_vec();
    HeaderMask::of(INCARNATION).apply(&mut masked);
    let mut damaged = masked.clone();
    damaged[13] ^= 0x40;
    // An ACK's prefix, and the incarnations of both ends.
    let mut control = Prefix { kind: Kind::Ack, ..whole.header(0).unwrap().prefix }.to_bytes().to_vec();
    control.extend([INCARNATION.to_be_bytes(), 7_u32.to_be_bytes()].concat());
    let data = [frame(&masked, 9217), frame(&damaged, 9217), frame(whole.packet(1), 9217)];

    let told = [&data[..], &[frame(&control, 9217)]].concat();
    for packets in [inspected(&told, &[]), inspected(&data, &[3, INCARNATION])] {
        assert_eq!(
            (&packets[0]["stream"]["message"], &packets[0]["data"]["incarnation"]),
            (&9.into(), &INCARNATION.into())
        );
        assert_eq!(
            packets[0]["data"]["check"],
            u16::from_be_bytes([whole.packet(0)[18], whole.packet(0)[19]])
        );
        assert!(packets[1]["check_expected"].is_number(), "damage is seen under the mask: {}", packets[1]);
        assert!(packets[2]["data"]["incarnation"].is_null(), "some are under none, as a sealed job's");
    }
    let packets = inspected(&data, &[]);
    for packet in &packets[..2] {
        assert!(packet["stream"]["message"].is_null() && packet["data"]["check"].is_null(), "{packet}");
        assert_eq!(packet["data"]["coordinates"], 256);
    }
    let (datagrams, _) = captured(&pcap(&data), 9217);
    let text = Packet::decode(&datagrams[0], 1, &Masks::default()).render();
    assert!(
        text.contains("message under a mask") && text.contains("were not looked at: no control packet tells"),
        "{text}"
    );
}

#[test]
fn a_row_that_was_rotated_twice_says_so() {
    let mut spikes = vec![0.0; 512];
    (spikes[3], spikes[300]) = (1.0, -1.0);
    let mut message = Message::default();
    encoder(Codec::Rht).encode(&spikes, ENVELOPE, 10, &mut message).unwrap();
    assert_eq!(json(message.packet(0))["data"]["twice"], true);
    assert_eq!(json(message.packet(0))["data"]["zero_blocks"], 7);
    let text = shown(message.packet(0));
    assert!(text.contains("256 coordinates (rotated twice), 7 of 8 blocks zero, σ = "), "{text}");
    assert!(shown(&message.repair(0, 8..10).unwrap()).contains("7 of 8 blocks zero"));
    assert!(shown(encoded(Codec::Rht).packet(0)).contains("256 coordinates (rotated), σ = "));
    assert!(shown(encoded(Codec::Raw).packet(0)).contains("256 coordinates, σ = "));
}

#[test]
fn bytes_behind_the_last_plane_are_counted_and_a_sealed_packet_s_length_is_known() {
    let long = [encoded(Codec::Rht).packet(0), &[0; 5]].concat();
    assert_eq!(json(&long)["data"]["bytes_behind"], 5);
    assert!(shown(&long).contains("5 bytes behind the last plane are ignored"));
    let sealer = Sealer::new(&SealKey::from_bytes(&[1; 16]).unwrap(), 1);
    let mut sealed = Message::default();
    encoder(Codec::Rht).sealed(sealer).encode(&gradient(), ENVELOPE, 10, &mut sealed).unwrap();
    let data = &json(sealed.packet(0))["data"];
    assert_eq!((&data["bytes_behind"], &data["long_as_sealed"]), (&24.into(), &true.into()));
    let text = shown(sealed.packet(0));
    assert!(text.contains("24 bytes more, as many as the tags of a sealed packet have"), "{text}");
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
fn a_frame_trimmed_by_a_switch_that_leaves_lengths_alone_gives_what_arrived() {
    let whole = encoded(Codec::Rht);
    let trimmed = frame(whole.packet(0), 9217)[..256].to_vec();
    let (datagrams, _) = captured(&pcap(&[trimmed]), 9217);
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
            let packet = Packet::decode(&Datagram::bare(String::new(), payload), 300, &Masks::default());
            prop_assert!(!packet.render().is_empty());
            prop_assert!(serde_json::to_string(&packet).is_ok());
        }
    }

    #[test]
    fn damaged_headers_never_panic(at in 0usize..20, byte in any::<u8>(), length in 0usize..1042, raw: bool) {
        let mut bytes = encoded(if raw { Codec::Raw } else { Codec::Rht }).packet(0).to_vec();
        bytes[at] = byte;
        bytes.truncate(length);
        prop_assert!(!Packet::decode(&Datagram::bare(String::new(), bytes), 300, &Masks::default()).render().is_empty());
    }

    #[test]
    fn damaged_captures_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), magic in 0usize..3, at in 0usize..200, byte in any::<u8>(),
    ) {
        let mut file = pcap(&[frame(&[0x41; 40], 9217), frame(&bytes, 9217)]);
        let place = at % file.len();
        file[place] = byte;
        let magics = [[0xd4, 0xc3, 0xb2, 0xa1], [0x0a, 0x0d, 0x0d, 0x0a], [0xa1, 0xb2, 0xc3, 0xd4]];
        let garbage = [&magics[magic][..], &bytes].concat();
        for file in [file, garbage] {
            let _ = capture::each(&file, "c", 0, &mut |datagram| {
                let _ = Packet::decode(&datagram, 10, &Masks::default()).render();
            });
        }
    }
}
