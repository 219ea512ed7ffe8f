// SPDX-License-Identifier: Apache-2.0
//! What the codec promises, against closed forms and independent arithmetic.

use crate::input::{gaussian, uniform};
use trimwire_encoder::wire::plane_offset;
use trimwire_encoder::{
    Codec, DEFAULT_COORDINATES_PER_PACKET, Decoder, Decoding, EncodeError, Encoder, Envelope, HEADER_LEN,
    Header, Importance, Isa, Job, Layout, Message, OutputError, PLANES, RowChoice, RowFigures, RowJob,
    RowReceiver, StreamId, Tensor, bf16, expected_nmse, f16, nmse,
};

const ENVELOPE: Envelope = Envelope { stream: StreamId::new(1, 5).unwrap(), message: 77 };

const JOB: Job = Job::new(42);

fn envelope(message: u32) -> Envelope {
    Envelope { message, ..ENVELOPE }
}

fn encode(gradient: &[f32], layout: &Layout, message: u32) -> Message {
    let mut out = Message::default();
    Encoder::new(layout.clone(), JOB).encode(gradient, envelope(message), PLANES, &mut out).unwrap();
    out
}

fn decoder(layout: &Layout, message: u32, decoding: Decoding) -> Decoder {
    Decoder::new(layout.clone(), JOB, envelope(message), decoding)
}

fn receive_all(decoder: &mut Decoder, sent: &Message) {
    for index in 0..sent.packets() {
        decoder.receive(sent.packet(index)).unwrap();
    }
}

/// Sends every packet trimmed to what `kept` says (`None`: lost) and decodes.
fn transfer(
    gradient: &[f32],
    layout: &Layout,
    message: u32,
    decoding: Decoding,
    kept: impl Fn(usize, &[u8]) -> Option<usize>,
) -> Vec<f32> {
    let sent = encode(gradient, layout, message);
    let mut decoder = decoder(layout, message, decoding);
    for index in 0..sent.packets() {
        let packet = sent.packet(index);
        if let Some(length) = kept(index, packet) {
            decoder.receive(&packet[..length.min(packet.len())]).unwrap();
        }
    }
    let mut out = vec![0.0; gradient.len()];
    decoder.decode_into(&mut out).unwrap();
    out
}

fn trim_to(planes: u8) -> impl Fn(usize, &[u8]) -> Option<usize> {
    move |_, packet| {
        let n = Header::parse(packet).unwrap().coordinates;
        Some(HEADER_LEN + plane_offset(planes, n))
    }
}

/// The share of coordinates in the packets that were drawn: with a few thousand packets it strays
/// from the drawing's probability by more than the tolerance of the formula.
fn share(layout: &Layout, hit: impl Fn(usize) -> bool) -> f64 {
    let count: usize = (0..layout.packets()).filter(|i| hit(*i)).map(|i| layout.packet_range(i).len()).sum();
    count as f64 / layout.padded_coordinates() as f64
}

/// [`share`] of each row; the mean of what a formula makes of them.
fn mean_over_rows(layout: &Layout, hit: impl Fn(usize) -> bool, formula: impl Fn(f64) -> f64) -> f64 {
    let of_row = |row| {
        let places = layout.row_places(row);
        let count: usize = places.filter(|(index, _)| hit(*index)).map(|(_, place)| place.len()).sum();
        let length = layout.row_range(row).len() as f64;
        length * formula(count as f64 / length)
    };
    (0..layout.rows()).map(of_row).sum::<f64>() / layout.padded_coordinates() as f64
}

fn layout(coordinates: usize) -> Layout {
    Layout::new(coordinates, DEFAULT_COORDINATES_PER_PACKET).unwrap()
}

#[test]
fn a_whole_message_decodes_to_rounding() {
    for length in [1, 2, 31, 32, 33, 1000, 32_768, 40_000, 65_536] {
        let gradient = gaussian(length, 1);
        let got = transfer(&gradient, &layout(length), 3, Decoding::Unbiased, |_, p| Some(p.len()));
        assert!(nmse(&got, &gradient) < 1e-13, "{length} coordinates: {}", nmse(&got, &gradient));
    }
}

#[test]
fn extreme_rows_decode_whole() {
    let spike = |value: f32| {
        let mut row = vec![0.0; 32_768];
        row[12_345] = value;
        row
    };
    let mixed: Vec<f32> =
        (0..32_768).map(|i| 10f32.powi(i % 70 - 35) * if i % 3 == 0 { -1.0 } else { 1.0 }).collect();
    let subnormal: Vec<f32> = (0..4096).map(|i| f32::from_bits(i * 1000 + 1)).collect();
    for (name, row) in [
        ("spike", spike(3.0)),
        ("huge spike", spike(3e38)),
        ("tiny spike", spike(1e-38)),
        ("constant", vec![0.1; 32_768]),
        ("huge constant", vec![1e38; 32_768]),
        ("dynamic range", mixed),
        ("subnormal", subnormal),
    ] {
        let got = transfer(&row, &layout(row.len()), 3, Decoding::Unbiased, |_, p| Some(p.len()));
        // Squares of the smallest and largest f32 need an f64's range.
        assert!(nmse(&got, &row) < 1e-12, "{name}: {}", nmse(&got, &row));
    }
    let zeros = transfer(&vec![0.0; 5000], &layout(5000), 3, Decoding::Unbiased, |_, _| Some(HEADER_LEN));
    assert!(zeros.iter().all(|v| *v == 0.0), "zeros are exact, however deep the trim");
}

#[test]
fn sign_only_trims_of_a_share_p_have_the_closed_form_error() {
    let gradient = gaussian(64 * 32_768, 2);
    let layout = layout(gradient.len());
    for p in [0.1, 0.25, 0.5, 1.0] {
        let hit = |index: usize| uniform(7, index as u32) < p;
        let p = share(&layout, hit);
        let unbiased = |p: f64| 1.0 / (1.0 - p * (1.0 - std::f64::consts::FRAC_2_PI)) - 1.0;
        for (decoding, expected) in [
            // Each row has a share of its own.
            (Decoding::Unbiased, mean_over_rows(&layout, hit, unbiased)),
            (Decoding::Paper, p * (std::f64::consts::FRAC_PI_2 - 1.0)),
            (Decoding::Mmse, p * (1.0 - std::f64::consts::FRAC_2_PI)),
        ] {
            let trimmed = trim_to(1);
            let got = transfer(&gradient, &layout, 9, decoding, |index, packet| {
                if hit(index) { trimmed(index, packet) } else { Some(packet.len()) }
            });
            let measured = nmse(&got, &gradient);
            assert!(
                (measured / expected - 1.0).abs() < 0.02,
                "{decoding:?} at {p}: {measured} against {expected}"
            );
            let same = if decoding == Decoding::Unbiased { unbiased(p) } else { expected };
            assert!((expected_nmse(Codec::Rht, decoding, &[(1, p)]) / same - 1.0).abs() < 1e-6);
        }
    }
}

#[test]
fn every_depth_of_trim_has_the_error_of_the_best_known_quantiser() {
    let gradient = gaussian(32 * 32_768, 3);
    // EDEN's figures (Vargaftik et al., ICML'22), unbiased.
    for (planes, best) in [(1, 0.5708), (2, 0.133), (4, 0.0096), (8, 4.1e-5)] {
        let got = transfer(&gradient, &layout(gradient.len()), 4, Decoding::Unbiased, trim_to(planes));
        let measured = nmse(&got, &gradient);
        assert!((measured / best - 1.0).abs() < 0.05, "{planes} planes: {measured} against {best}");
    }
}

#[test]
fn lost_packets_have_the_closed_form_error_too() {
    let gradient = gaussian(64 * 32_768, 4);
    let lost = |index: usize| uniform(8, index as u32) < 0.2;
    let expected =
        mean_over_rows(&layout(gradient.len()), lost, |p| if p < 1.0 { 1.0 / (1.0 - p) - 1.0 } else { 1.0 });
    let got = transfer(&gradient, &layout(gradient.len()), 4, Decoding::Unbiased, |index, packet| {
        (!lost(index)).then_some(packet.len())
    });
    assert!((nmse(&got, &gradient) / expected - 1.0).abs() < 0.02, "{}", nmse(&got, &gradient));
}

#[test]
fn decoding_is_unbiased_over_rotations_at_any_mix_of_trims() {
    // The mean over many independent rotations must approach the input as 1/N does: its NMSE over N
    // rotations is the single one's divided by N, plus the squared bias.
    let gradient = gaussian(2_048, 5);
    let rounds = 400;
    let mut mean = vec![0.0f64; gradient.len()];
    let mut single = 0.0;
    for message in 0..rounds {
        let got =
            transfer(&gradient, &layout(gradient.len()), message, Decoding::Unbiased, |index, packet| {
                match (uniform(message, index as u32) * 4.0) as u32 {
                    0 => None,
                    1 => trim_to(1)(index, packet),
                    2 => trim_to(3)(index, packet),
                    _ => Some(packet.len()),
                }
            });
        single += nmse(&got, &gradient) / f64::from(rounds);
        mean.iter_mut().zip(&got).for_each(|(m, g)| *m += f64::from(*g) / f64::from(rounds));
    }
    let mean: Vec<f32> = mean.into_iter().map(|m| m as f32).collect();
    let remaining = nmse(&mean, &gradient);
    assert!(remaining < 1.3 * single / f64::from(rounds), "{remaining} left of {single}");
    // The projection on the input, which no averaging of noise can hide, is 1 within one percent.
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    let projection = dot(&mean, &gradient) / dot(&gradient, &gradient);
    assert!((projection - 1.0).abs() < 0.01, "{projection}");
}

#[test]
fn the_error_shrinks_with_every_byte_that_arrives() {
    let gradient = gaussian(32_768, 6);
    let mut last = f64::INFINITY;
    let whole = HEADER_LEN + plane_offset(PLANES, DEFAULT_COORDINATES_PER_PACKET);
    for length in (HEADER_LEN..=whole).step_by(11) {
        let got = transfer(&gradient, &layout(gradient.len()), 1, Decoding::Mmse, |_, _| Some(length));
        let error = nmse(&got, &gradient);
        // Within the last byte-plane the error is below f32's rounding of the rotation.
        assert!(error <= last * 1.02 + 1e-13, "{length} bytes: {error} after {last}");
        last = error;
    }
}

#[test]
fn order_duplicates_and_repairs_do_not_matter() {
    let gradient = gaussian(40_000, 7);
    let layout = layout(gradient.len());
    let sent = encode(&gradient, &layout, 2);
    let decode = |order: &mut dyn Iterator<Item = Vec<u8>>| {
        let mut decoder = decoder(&layout, 2, Decoding::Unbiased);
        order.for_each(|packet| {
            decoder.receive(&packet).unwrap();
        });
        let mut out = vec![0.0; gradient.len()];
        decoder.decode_into(&mut out).unwrap();
        (out, decoder.stats())
    };
    let all: Vec<Vec<u8>> = (0..sent.packets()).map(|i| sent.packet(i).to_vec()).collect();
    let plain = decode(&mut all.iter().cloned());
    let twice_backwards =
        decode(&mut all.iter().rev().flat_map(|p| [p[..60].to_vec(), p.clone(), p[..200].to_vec()]));
    assert!(plain == twice_backwards);
    // Trimmed to three planes and a piece, then the rest as repairs, upper planes first.
    let repaired = decode(&mut (0..sent.packets()).flat_map(|i| {
        let repair = |planes| sent.repair(i, planes).unwrap();
        [repair(8..PLANES), all[i][..HEADER_LEN + 56 * 3 + 7].to_vec(), repair(3..8)]
    }));
    assert!(plain == repaired);
    assert_eq!(plain.1.full, sent.packets());
}

#[test]
fn a_sender_trims_as_a_switch_does() {
    let gradient = gaussian(3_000, 12);
    let whole = encode(&gradient, &layout(3_000), 2);
    for planes in 1..=PLANES {
        let mut short = Message::default();
        Encoder::new(layout(3_000), JOB).encode(&gradient, envelope(2), planes, &mut short).unwrap();
        for i in 0..whole.packets() {
            let n = layout(3_000).packet_range(i).len();
            assert_eq!(short.packet(i), &whole.packet(i)[..HEADER_LEN + plane_offset(planes, n)]);
            assert!(short.repair(i, planes..PLANES).is_none(), "what is not held cannot be repaired");
        }
    }
}

#[test]
fn adding_is_decoding_and_then_adding() {
    let gradient = gaussian(5_000, 8);
    let sent = encode(&gradient, &layout(5_000), 2);
    let mut decoder = decoder(&layout(5_000), 2, Decoding::Unbiased);
    for i in 0..sent.packets() {
        decoder.receive(&sent.packet(i)[..100]).unwrap();
    }
    let (mut once, mut sum) = (vec![0.0; 5_000], gradient.clone());
    decoder.decode_into(&mut once).unwrap();
    decoder.add_into(&mut sum).unwrap();
    assert!(sum.iter().zip(&gradient).zip(&once).all(|((s, g), o)| *s == g + o));
}

#[test]
fn a_row_s_bits_do_not_depend_on_where_it_goes() {
    let gradient = gaussian(1 << 15, 21);
    let layout = layout(gradient.len());
    let sent = encode(&gradient, &layout, 4);
    for isa in Isa::available() {
        let mut decoder = decoder(&layout, 4, Decoding::Unbiased).with_isa(isa);
        for index in 0..sent.packets() {
            let packet = sent.packet(index);
            decoder.receive(if index % 5 == 0 { &packet[..packet.len() / 3] } else { packet }).unwrap();
        }
        let (mut alone, mut sum) = (vec![0.25; gradient.len()], vec![0.25; gradient.len()]);
        decoder.decode_into(&mut alone).unwrap();
        decoder.add_into(&mut sum).unwrap();
        let mut room = vec![0.25; gradient.len() + 1100];
        for start in [0, 1, 3, 16, 500, 512, 1024, 1099] {
            let whole = &mut room[start..start + gradient.len()];
            decoder.decode_into(whole).unwrap();
            assert!(alone.iter().zip(&*whole).all(|(a, b)| a.to_bits() == b.to_bits()), "{isa} at {start}");
            whole.fill(0.25);
            decoder.add_into(whole).unwrap();
            assert!(
                sum.iter().zip(&*whole).all(|(a, b)| a.to_bits() == b.to_bits()),
                "{isa} at {start}: sums"
            );
            whole.fill(0.25);
            assert!(room.iter().all(|v| *v == 0.25), "{isa} at {start}: more than the row was written");
        }
    }
}

#[test]
fn outputs_of_a_wrong_length_are_refused_and_left_alone() {
    let gradient = gaussian(40_000, 22);
    let layout = layout(gradient.len());
    let sent = encode(&gradient, &layout, 4);
    let mut decoder = decoder(&layout, 4, Decoding::Unbiased);
    receive_all(&mut decoder, &sent);
    for length in [0, 1, 39_999, 40_001, 40_960, 65_536] {
        let mut out = vec![0.25f32; length];
        let expected = Err(OutputError { got: length, expected: 40_000 });
        assert_eq!(decoder.decode_into(&mut out), expected);
        assert_eq!(decoder.add_into(&mut out), expected);
        assert!(out.iter().all(|v| *v == 0.25), "{length}");
    }
    let row = RowReceiver::new(&layout, 1, JOB, ENVELOPE, Decoding::Unbiased);
    let expected = layout.row_coordinates(1).len();
    for length in [0, expected - 1, expected + 1] {
        let mut out = vec![0.25f32; length];
        assert_eq!(row.decode_into(&mut out), Err(OutputError { got: length, expected }));
        assert_eq!(row.add_into(&mut out), Err(OutputError { got: length, expected }));
        assert!(out.iter().all(|v| *v == 0.25), "{length}");
    }
}

#[test]
fn a_limit_decodes_as_if_no_more_had_arrived() {
    let gradient = gaussian(33_000, 9);
    let layout = layout(gradient.len());
    let sent = encode(&gradient, &layout, 2);
    let decode = |lengths: &dyn Fn(usize) -> Option<usize>, limit: &dyn Fn(usize) -> u8| {
        let mut decoder = decoder(&layout, 2, Decoding::Unbiased);
        for i in 0..sent.packets() {
            let packet = sent.packet(i);
            if let Some(length) = lengths(i) {
                decoder.receive(&packet[..length.min(packet.len())]).unwrap();
            }
            decoder.limit(i, limit(i));
        }
        let mut out = vec![0.0; gradient.len()];
        decoder.decode_into(&mut out).unwrap();
        out
    };
    let planes = |i: usize| (i % usize::from(PLANES + 1)) as u8;
    let trimmed = decode(
        &|i| {
            let n = layout.packet_range(i).len();
            (planes(i) > 0).then(|| HEADER_LEN + plane_offset(planes(i), n))
        },
        &|_| PLANES,
    );
    let limited = decode(&|_| Some(usize::MAX), &planes);
    assert!(trimmed == limited, "replicas that hold more decode to the same bits");
}

#[test]
fn rows_of_low_energy_in_the_last_step_are_the_less_important_ones() {
    let mut gradient = gaussian(4 * 4_096, 10);
    for (row, scale) in [0.1f32, 3.0, 0.5, 1.0].into_iter().enumerate() {
        gradient[row * 4_096..][..4_096].iter_mut().for_each(|v| *v *= scale);
    }
    let layout = layout(gradient.len());
    let encoder = Encoder::new(layout.clone(), JOB);
    let (mut figures, mut sent) = (RowFigures::default(), Message::default());
    for step in 0..3 {
        let choice = RowChoice { importance: figures.importance(), ..RowChoice::whole(Codec::Rht) };
        encoder.encode_with(&gradient, envelope(step), |_| choice, &mut sent).unwrap();
        for i in 0..sent.packets() {
            let expected = step == 0 || [false, true, false, true][layout.packet_row(i)];
            assert_eq!(sent.importance(i), expected, "step {step}, packet {i}");
        }
        figures.learn(&sent);
        // Else the row in the middle would be measured against its own figure, under another
        // rotation.
        gradient.iter_mut().for_each(|v| *v *= 1.001);
    }
}

#[test]
fn importance_is_final_with_the_row_however_near_the_threshold_it_is() {
    let gradient = gaussian(3_000, 11);
    let layout = layout(gradient.len());
    let encoder = Encoder::new(layout.clone(), JOB);
    let mut sent = Message::default();
    encoder.encode(&gradient, ENVELOPE, PLANES, &mut sent).unwrap();
    let figures: Vec<f64> = sent.rows().iter().map(|row| row.figure).collect();
    for row in 0..layout.rows() {
        // What the row is measured at is known only when it is encoded; before, about 10⁻⁷ of it is
        // guesswork.
        for (threshold, expected) in
            [(figures[row], true), (figures[row].next_up(), false), (figures[row].next_down(), true)]
        {
            let choice = RowChoice { planes: PLANES, importance: Importance::AtLeast(threshold) };
            let mut packets = vec![0; encoder.row_len(row, PLANES)];
            let values = &gradient[layout.row_coordinates(row)];
            let encoded = encoder.encode_row(row, values, ENVELOPE, choice, &mut packets).unwrap();
            assert_eq!(encoded.important, expected);
            let header = Header::parse(&packets).expect("its check is right whichever way it was marked");
            assert_eq!(header.prefix.important, expected);
        }
    }
}

#[test]
fn a_choice_that_changes_its_mind_is_held_to_its_first_answer() {
    let gradient = gaussian(70_000, 19);
    let asked = std::sync::atomic::AtomicU8::new(0);
    let fickle = |_| {
        let planes = 1 + asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 10;
        RowChoice { planes, importance: Importance::Always }
    };
    let mut sent = Message::default();
    let encoder = Encoder::new(layout(gradient.len()), JOB);
    encoder.encode_with(&gradient, ENVELOPE, fickle, &mut sent).unwrap();
    let planes: Vec<u8> = sent.rows().iter().map(|row| row.planes).collect();
    assert_eq!(planes, (0..planes.len() as u8).map(|row| 1 + row % 10).collect::<Vec<_>>());
    assert!((0..sent.packets()).all(|index| sent.header(index).is_some()));
}

#[test]
fn a_row_alone_has_the_bytes_that_it_has_within_its_message() {
    let gradient = gaussian(100_000, 13);
    let tensors = [(70_000, 1), (77, 2), (29_923, 3)]
        .map(|(coordinates, layer_class)| Tensor { coordinates, layer_class });
    let layout = Layout::of_tensors(&tensors, DEFAULT_COORDINATES_PER_PACKET).unwrap();
    let encoder = Encoder::new(layout.clone(), JOB);
    let choice = |row| RowChoice { planes: 1 + (row % 10) as u8, importance: Importance::Never };
    let mut sent = Message::default();
    encoder.encode_with(&gradient, ENVELOPE, choice, &mut sent).unwrap();
    for row in (0..layout.rows()).rev() {
        let mut packets = vec![0xa5; encoder.row_len(row, choice(row).planes)];
        let values = &gradient[layout.row_coordinates(row)];
        encoder.encode_row(row, values, ENVELOPE, choice(row), &mut packets).unwrap();
        let together: Vec<u8> = layout.row_packets(row).flat_map(|i| sent.packet(i).to_vec()).collect();
        assert_eq!(packets, together, "row {row}");
        // What is asked for meanwhile changes nothing, however much it is.
        for next in [&gradient[..], &gradient[..1], &[]] {
            packets.fill(0xa5);
            let job = RowJob::of(values).before(next);
            encoder.encode_row(row, job, ENVELOPE, choice(row), &mut packets).unwrap();
            assert_eq!(packets, together, "row {row}, with {} values asked for", next.len());
        }
    }
}

#[test]
fn a_receiver_takes_only_packets_of_the_message_that_it_was_told() {
    let gradient = gaussian(40_000, 15);
    let layout = layout(gradient.len());
    let sent = encode(&gradient, &layout, 4);
    let refused = |decoder: &mut Decoder| decoder.receive(sent.packet(0)).unwrap_err().to_string();
    let others = [
        Envelope { stream: StreamId::new(2, 5).unwrap(), message: 4 },
        Envelope { stream: StreamId::new(1, 6).unwrap(), message: 4 },
        Envelope { stream: StreamId::new(1, 5).unwrap(), message: 5 },
    ];
    for other in others {
        let mut decoder = Decoder::new(layout.clone(), JOB, other, Decoding::Unbiased);
        assert!(refused(&mut decoder).starts_with("a packet of job 1, rank 5, message 4 where job"));
        assert!(!decoder.arrived(0));
    }
    let classed = layout.with_layer_class(3).unwrap();
    let mut decoder = Decoder::new(classed, JOB, envelope(4), Decoding::Unbiased);
    assert_eq!(refused(&mut decoder), "packet 0 is of layer class 0 where the layout has 3");
    let mut row = RowReceiver::new(&layout, 1, JOB, envelope(4), Decoding::Unbiased);
    let error = row.receive(sent.packet(0)).unwrap_err().to_string();
    assert_eq!(error, "packet 0 is not of row 1, which has packets 10 to 19");
}

#[test]
fn halves_are_decoded_to_the_nearest_half_of_what_f32s_are() {
    let gradient = gaussian(10_000, 16);
    let layout = layout(gradient.len());
    let sent = encode(&gradient, &layout, 4);
    let mut decoder = decoder(&layout, 4, Decoding::Unbiased);
    for index in 0..sent.packets() {
        let packet = sent.packet(index);
        decoder.receive(&packet[..packet.len().min(300)]).unwrap();
    }
    let mut exact = vec![0.0f32; gradient.len()];
    decoder.decode_into(&mut exact).unwrap();
    let mut halves = vec![f16::from_f32(0.5); gradient.len()];
    decoder.add_into(&mut halves).unwrap();
    assert!(halves.iter().zip(&exact).all(|(half, x)| *half == f16::from_f32(0.5 + x)));
    let mut brains = vec![bf16::ONE; gradient.len()];
    decoder.decode_into(&mut brains).unwrap();
    assert!(brains.iter().zip(&exact).all(|(brain, x)| *brain == bf16::from_f32(*x)));
}

#[test]
fn huge_gradients_are_decoded_as_ordinary_ones_are() {
    let gradient = gaussian(1 << 15, 18);
    let scaled: Vec<f32> = gradient.iter().map(|v| v * 1e37).collect();
    for decoding in [Decoding::Unbiased, Decoding::Mmse, Decoding::Paper] {
        let of = |gradient: &[f32]| transfer(gradient, &layout(gradient.len()), 3, decoding, trim_to(1));
        let (usual, huge) = (of(&gradient), of(&scaled));
        let ratio = nmse(&huge, &scaled) / nmse(&usual, &gradient);
        assert!((ratio - 1.0).abs() < 1e-3, "{decoding:?}: {ratio}");
    }
}

#[test]
fn nine_planes_are_two_bytes_a_coordinate_and_far_more_accurate_than_bf16() {
    let gradient: Vec<bf16> = gaussian(1 << 18, 17).into_iter().map(bf16::from_f32).collect();
    let exact: Vec<f32> = gradient.iter().map(|v| v.to_f32()).collect();
    let planes = Codec::Rht.default_planes(size_of::<bf16>());
    assert_eq!((planes, Codec::Rht.default_planes(4)), (9, 10));
    let layout = Layout::new(gradient.len(), Codec::Rht.coordinates_per_packet(1500, planes, false)).unwrap();
    let mut sent = Message::default();
    Encoder::new(layout.clone(), JOB).encode(&gradient, envelope(4), planes, &mut sent).unwrap();
    let bytes = layout.message_len(Codec::Rht, planes, false) as f64 / gradient.len() as f64;
    assert!(bytes < 2.04, "{bytes} bytes a coordinate");
    let mut decoder = decoder(&layout, 4, Decoding::Unbiased).with_planes(planes);
    let mut completed = 0;
    for index in 0..sent.packets() {
        completed += usize::from(decoder.receive(sent.packet(index)).unwrap().completed.is_some());
    }
    assert_eq!((completed, decoder.stats().full), (layout.rows(), sent.packets()));
    let mut got = vec![0.0f32; gradient.len()];
    decoder.decode_into(&mut got).unwrap();
    let error = nmse(&got, &exact);
    assert!((5e-10..8e-10).contains(&error), "{error}");
    let mut rounded = vec![bf16::ZERO; gradient.len()];
    decoder.decode_into(&mut rounded).unwrap();
    let same = rounded.iter().zip(&gradient).filter(|(a, b)| a == b).count();
    assert!(same as f64 > 0.98 * gradient.len() as f64, "{same} come back as they were");
}

#[test]
fn a_decoder_that_is_told_other_planes_forgets_what_it_held() {
    let gradient = gaussian(100, 12);
    let layout = Layout::new(100, 128).unwrap();
    let sent = encode(&gradient, &layout, 1);
    let (whole, five) = (sent.packet(0), layout.packet_len(Codec::Rht, 0, 5));
    let mut decoder = decoder(&layout, 1, Decoding::Unbiased).with_planes(5);
    assert_eq!(decoder.receive(&whole[..five]).unwrap().completed, Some(0));
    let mut decoder = decoder.with_planes(PLANES);
    assert_eq!(decoder.coverage(0), 0);
    assert_eq!(decoder.receive(&whole[..five]).unwrap().completed, None);
    assert_eq!(decoder.receive(whole).unwrap().completed, Some(0));
}

#[test]
fn what_cannot_be_encoded_is_named() {
    let mut out = Message::default();
    let encoder = Encoder::new(layout(100), JOB).strict(true);
    let mut gradient = vec![1.0; 100];
    gradient[57] = f32::NEG_INFINITY;
    let error = encoder.encode(&gradient, ENVELOPE, PLANES, &mut out).unwrap_err();
    assert_eq!(error.to_string(), "coordinate 57 is -inf: strict encoding takes finite values only");
    assert_eq!(
        encoder.encode(&[1.0; 99], ENVELOPE, PLANES, &mut out),
        Err(EncodeError::Length { got: 99, expected: 100 })
    );
}
