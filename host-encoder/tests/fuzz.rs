//! Fuzz targets: bytes from anywhere, and packets that were tampered with. `cargo test` runs each for a bounded number of inputs; under
//! `cargo bolero test` the same targets run as long as one likes.

use bolero::{TypeGenerator, check};
use trimwire_encoder::packet::{HEADER_LEN, Prefix, StreamId};
use trimwire_encoder::{
    Codec, Decoder, Decoding, Encoder, Envelope, Header, Layout, Message, PacketView, RotatedSum,
    RotatedSumError, RotationKey,
};

const ITERATIONS: usize = 3_000;
const KEY: RotationKey = RotationKey { job_seed: 3, message: 4, rank: 5 };
const DECODINGS: [Decoding; 3] = [Decoding::Unbiased, Decoding::Mmse, Decoding::Paper];

/// Rows of 64 in packets of 32, the last row short: 5 packets.
fn layout() -> Layout {
    Layout::new(137, 32).and_then(|layout| layout.with_row_log2(6)).unwrap()
}

fn encoded(codec: Codec) -> Message {
    let gradient: Vec<f32> =
        (0..137u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 8) as f32 / 1e7 - 0.8).collect();
    let envelope = Envelope { stream: StreamId::new(1, 5).unwrap(), message: 4, layer_class: 0 };
    let mut message = Message::default();
    Encoder::new(layout(), KEY)
        .with_codec(codec)
        .encode(&gradient, envelope, codec.planes(), &mut message)
        .unwrap();
    message
}

/// Receives packets, whatever they are, and decodes. Only rows of which a marked packet arrived may be NaN; raw carries what it is given.
fn receive_and_decode<'a>(codec: Codec, decoding: Decoding, packets: impl Iterator<Item = &'a [u8]>) {
    let layout = layout();
    let mut decoder = Decoder::new(layout, KEY, decoding).with_codec(codec);
    let mut marked = vec![false; layout.rows()];
    for packet in packets {
        if let Ok(receipt) = decoder.receive(packet) {
            assert!(receipt.planes_before <= receipt.planes_now && receipt.planes_now <= codec.planes());
            let header = PacketView::parse(packet).expect("what was received parses").header().to_owned();
            marked[layout.packet_row(receipt.index)] |= header.is_not_finite();
        }
    }
    let mut out = vec![0.0; layout.coordinates()];
    decoder.finish_into(&mut out);
    if codec != Codec::Raw {
        for (at, value) in out.iter().enumerate() {
            let row = at >> layout.row_log2();
            assert_eq!(value.is_nan(), marked[row], "{codec}, {decoding:?}: coordinate {at} is {value}");
        }
    }
    // Rows that are complete may be taken one by one, and are the same.
    let mut by_row = decoder.clone();
    let mut taken = None;
    for row in 0..layout.rows() {
        let (place, mut got) = (layout.row_coordinates(row), vec![0.0f32; layout.row_coordinates(row).len()]);
        if by_row.finish_row_into(row, &mut got) {
            taken.get_or_insert(row);
            assert!(
                got.iter()
                    .zip(&out[place])
                    .all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
            );
        }
    }
    if codec.rotates() {
        let mut sum = RotatedSum::new(layout, KEY);
        let refused = taken.map_or(Ok(()), |row| Err(RotatedSumError::Taken { row }));
        assert_eq!(sum.add(&by_row), refused);
        let mut sum = RotatedSum::new(layout, KEY);
        sum.add(&decoder).unwrap();
        sum.finish_into(&mut out);
    }
    let stats = decoder.stats();
    assert_eq!(stats.full + stats.cut + stats.missing, layout.packets());
}

#[test]
fn any_bytes_are_a_header_or_an_error_and_headers_write_what_they_read() {
    check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
        let _ = Prefix::parse(bytes);
        if let Ok(header) = Header::parse(bytes) {
            assert_eq!(header.to_bytes()[..], bytes[..HEADER_LEN]);
        }
        if let Ok(view) = PacketView::parse(bytes) {
            assert_eq!(view.body().len() + HEADER_LEN, bytes.len());
        }
    });
}

#[test]
fn any_packets_are_refused_or_decoded() {
    check!().with_iterations(ITERATIONS).with_type::<(u8, u8, Vec<Vec<u8>>)>().for_each(
        |(codec, decoding, packets)| {
            let codec = Codec::ALL[usize::from(*codec) % Codec::ALL.len()];
            let decoding = DECODINGS[usize::from(*decoding) % 3];
            receive_and_decode(codec, decoding, packets.iter().map(Vec::as_slice));
        },
    );
}

/// A packet whose shape is right and whose numbers are anyone's.
#[derive(Debug, TypeGenerator)]
struct Forged {
    index: u8,
    first_plane: u8,
    sigma: Sigma,
    kappa: u8,
    peak: u8,
    fill: u8,
    body: Vec<u8>,
    length: u8,
}

#[derive(Debug, TypeGenerator)]
enum Sigma {
    Any(u32),
    Zero,
    Smallest,
    Largest,
    One,
    Marked,
}

impl Forged {
    fn bytes(&self, codec: Codec) -> Vec<u8> {
        let index = usize::from(self.index) % layout().packets();
        let sigma = match self.sigma {
            Sigma::Any(bits) => bits & 0x7fff_ffff,
            Sigma::Zero => 0,
            Sigma::Smallest => 1,
            Sigma::Largest => 0x7f7f_ffff,
            Sigma::One => 0x3f80_0000,
            Sigma::Marked => 0x7fc0_0000,
        };
        let plane = self.first_plane % (2 * codec.planes());
        let mut packet = vec![0x21, codec.id() << 5, 4, 5, 0, 0, 0, 4];
        // Half of the packets begin with plane 0.
        packet.extend([if plane < codec.planes() { plane << 4 } else { 0 }, 0, index as u8]);
        packet.push((layout().packet_range(index).len() / 32) as u8);
        packet.extend(sigma.to_be_bytes());
        packet.extend([self.kappa, self.peak]);
        packet.extend(&self.body);
        packet.resize(HEADER_LEN + usize::from(self.length), self.fill);
        packet
    }
}

#[test]
fn forged_numbers_decode_to_numbers() {
    for codec in Codec::ALL {
        check!().with_iterations(ITERATIONS).with_type::<(u8, Vec<Forged>)>().for_each(
            |(decoding, forged)| {
                let packets: Vec<Vec<u8>> = forged.iter().map(|one| one.bytes(codec)).collect();
                let decoding = DECODINGS[usize::from(*decoding) % 3];
                receive_and_decode(codec, decoding, packets.iter().map(Vec::as_slice));
            },
        );
    }
}

/// What happens to a packet under way.
#[derive(Debug, TypeGenerator)]
struct Mishap {
    index: u8,
    cut: u16,
    flip: Option<(u16, u8)>,
    repair: Option<(u8, u8)>,
}

#[test]
fn packets_damaged_under_way_are_refused_or_decoded() {
    for codec in Codec::ALL {
        let message = encoded(codec);
        check!().with_iterations(ITERATIONS).with_type::<(u8, Vec<Mishap>)>().for_each(
            |(decoding, mishaps)| {
                let packets: Vec<Vec<u8>> = mishaps
                    .iter()
                    .map(|mishap| {
                        let index = usize::from(mishap.index) % message.packets();
                        let repair = mishap.repair.and_then(|(from, to)| {
                            message.repair(index, from % codec.planes()..to % (codec.planes() + 1))
                        });
                        let mut packet = repair.unwrap_or_else(|| message.packet(index).to_vec());
                        packet.truncate(usize::from(mishap.cut) % (packet.len() + 1));
                        if let Some((at, mask)) = mishap.flip
                            && !packet.is_empty()
                        {
                            let at = usize::from(at) % packet.len();
                            packet[at] ^= mask;
                        }
                        packet
                    })
                    .collect();
                let decoding = DECODINGS[usize::from(*decoding) % 3];
                receive_and_decode(codec, decoding, packets.iter().map(Vec::as_slice));
            },
        );
    }
}
