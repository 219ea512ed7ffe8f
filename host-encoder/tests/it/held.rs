// SPDX-License-Identifier: Apache-2.0
//! What a row says that it held, and the same packets whole, give the same bits: what a transcript
//! is worth.

use proptest::prelude::*;
use trimwire_encoder::wire::{HeaderMask, repair};
use trimwire_encoder::{
    Codec, Decoding, Encoder, Envelope, HEADER_LEN, Job, Layout, Message, RowReceiver, StreamId,
};

const JOB: Job = Job::new(5);
const ENVELOPE: Envelope = Envelope { stream: StreamId::new(1, 2).unwrap(), message: 12 };

fn bits(row: &RowReceiver, coordinates: usize) -> Vec<u32> {
    let mut out = vec![f32::NAN; coordinates];
    row.decode_into(&mut out).expect("an output of the row's length");
    out.into_iter().map(f32::to_bits).collect()
}

/// What arrives of a packet: a prefix, by tenths of a percent of its body; perhaps a repair from
/// some plane on, a prefix of it, too.
type Arrival = (Option<u16>, Option<(u8, u16)>);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let share = || prop_oneof![3 => Just(1_000_u16), 1 => 0_u16..1_000];
    let arrival = (prop::option::weighted(0.9, share()), prop::option::weighted(0.3, (0_u8..32, share())));
    prop::collection::vec(arrival, 1..40)
}

fn part(packet: &[u8], share: u16) -> &[u8] {
    &packet[..HEADER_LEN + (packet.len() - HEADER_LEN) * usize::from(share) / 1_000]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_whole_packet_trimmed_to_what_was_held_decodes_to_the_same_bits(
        gradient in prop::collection::vec(-2.0_f32..2.0, 1..900),
        codec in prop::sample::select(Codec::ALL.to_vec()),
        decoding in prop::sample::select(vec![Decoding::Unbiased, Decoding::Mmse, Decoding::Paper]),
        blocks in 1_usize..9, row_log2 in 5_u8..11, planes in 1_u8..32, arrivals in arrivals(), marked: bool,
    ) {
        let mut gradient = gradient;
        if marked && codec != Codec::Raw {
            gradient[0] = f32::NAN;
        }
        let planes = planes.min(codec.planes());
        let layout = Layout::new(gradient.len(), 32 * blocks).and_then(|l| l.with_row_log2(row_log2)).expect("a layout");
        let mut message = Message::default();
        let encoder = Encoder::new(layout.clone(), JOB).with_codec(codec);
        encoder.encode(&gradient, ENVELOPE, planes, &mut message).expect("a message");
        for row in 0..layout.rows() {
            let receiver = RowReceiver::new(&layout, row, JOB, ENVELOPE, decoding).with_codec(codec).with_planes(planes);
            let (mut lossy, mut whole) = (receiver.clone(), receiver);
            for index in layout.row_packets(row) {
                let packet = message.packet(index);
                whole.receive(packet).expect("a whole packet");
                let (prefix, more) = arrivals[index % arrivals.len()];
                if let Some(share) = prefix {
                    lossy.receive(part(packet, share)).expect("a trimmed packet");
                }
                if let Some((first, share)) = more
                    && let Some(again) = repair(packet, first % planes..planes, HeaderMask::NONE)
                {
                    lossy.receive(part(&again, share)).expect("a repair");
                }
            }
            for index in layout.row_packets(row) {
                prop_assert_eq!(whole.held(index), Some(message.packet(index).len() - HEADER_LEN));
                whole.trim_to(index, lossy.held(index));
                prop_assert_eq!(whole.held(index), lossy.held(index));
            }
            let coordinates = layout.row_coordinates(row).len();
            prop_assert_eq!(bits(&whole, coordinates), bits(&lossy, coordinates), "row {}", row);
        }
    }
}

#[test]
fn what_is_not_of_the_row_is_not_held_and_a_reset_forgets_trims() {
    let layout = Layout::new(300, 32).and_then(|layout| layout.with_row_log2(7)).expect("a layout");
    let mut message = Message::default();
    Encoder::new(layout.clone(), JOB).encode(&[1.0; 300], ENVELOPE, 10, &mut message).expect("a message");
    let mut row = RowReceiver::new(&layout, 0, JOB, ENVELOPE, Decoding::Unbiased);
    assert_eq!((row.held(0), row.held(layout.packets() - 1)), (None, None));
    row.receive(message.packet(0)).expect("the first packet");
    let body = message.packet(0).len() - HEADER_LEN;
    row.trim_to(0, Some(usize::MAX));
    assert_eq!(row.held(0), Some(body), "a trim to more than there is is none");
    row.trim_to(0, None);
    assert_eq!(row.held(0), None);
    row.reset(ENVELOPE);
    row.receive(message.packet(0)).expect("the first packet");
    assert_eq!(row.held(0), Some(body));
}
