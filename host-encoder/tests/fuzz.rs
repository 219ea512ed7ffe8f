//! Fuzz targets: a valid message, and what can happen to it under way. `cargo test` runs each for a bounded number of inputs, after those in
//! `tests/__fuzz__`; under `cargo bolero test` the same targets run as long as one likes.
//!
//! Random bytes only test the first comparison of a parser. So every target starts from packets of a working encoder — rows of 2^15 and packets of every size among them —
//! and damages them: cut, repeated, reordered, repaired, flipped, spliced, with the header's check right or wrong.

mod input;

use bolero::{TypeGenerator, check};
use input::gaussian;
use std::sync::LazyLock;
use trimwire_encoder::wire::seal::{SealKey, Sealer};
use trimwire_encoder::{
    Codec, Decoder, Decoding, Encoder, Envelope, HEADER_LEN, Header, Job, Layout, Message, PacketView,
    Prefix, RotatedSum, Rotation, RowChoice, StreamId, Tensor,
};

/// Inputs of a `cargo test`; `TRIMWIRE_FUZZ` asks for another number.
fn iterations(usual: usize) -> usize {
    std::env::var("TRIMWIRE_FUZZ").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

const DECODINGS: [Decoding; 3] = [Decoding::Unbiased, Decoding::Mmse, Decoding::Paper];
const JOB: Job = Job { seed: 3, rotation: Rotation::Shared };

/// Two messages of one layout.
struct Subject {
    layout: Layout,
    codec: Codec,
    sealer: Option<Sealer>,
    messages: [Message; 2],
}

fn envelope(message: usize) -> Envelope {
    Envelope { stream: StreamId::new(1, 5).unwrap(), message: 4 + message as u32 }
}

impl Subject {
    fn new(layout: Layout, codec: Codec, planes: u8, sealed: bool) -> Self {
        let sealer =
            sealed.then(|| Sealer::new(&SealKey::from_bytes(&[7; 16]).expect("a key of 16 bytes"), 1));
        let mut encoder = Encoder::new(layout.clone(), JOB).with_codec(codec);
        if let Some(sealer) = &sealer {
            encoder = encoder.sealed(sealer.clone());
        }
        let messages = [0, 1].map(|number| {
            let mut gradient = gaussian(layout.coordinates(), 5 + number as u32);
            // A spike, so that some rows are rotated twice, and one row that is not finite.
            gradient[0] = 50.0;
            if number == 1 && layout.rows() > 2 && codec != Codec::Raw {
                gradient[layout.row_coordinates(1).start] = f32::NAN;
            }
            let mut message = Message::default();
            let choice = RowChoice { planes, ..RowChoice::whole(codec) };
            encoder.encode_with(&gradient, envelope(number), |_| choice, &mut message).expect("valid");
            message
        });
        Self { layout, codec, sealer, messages }
    }

    fn decoder(&self, decoding: Decoding) -> Decoder {
        let decoder = Decoder::new(self.layout.clone(), JOB, envelope(0), decoding)
            .with_codec(self.codec)
            .with_planes(self.messages[0].planes());
        match &self.sealer {
            Some(sealer) => decoder.sealed(sealer),
            None => decoder,
        }
    }

    fn decoded(&self, decoder: &Decoder) -> Vec<f32> {
        let mut out = vec![0.0; self.layout.coordinates()];
        decoder.decode_into(&mut out).expect("an output of the right length");
        out
    }
}

/// Small messages of every codec, with tails and several tensors.
static SMALL: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    let tensors = [(137, 1), (5, 2), (64, 7)].map(|(n, layer_class)| Tensor { coordinates: n, layer_class });
    let layout = Layout::of_tensors(&tensors, 32).and_then(|l| l.with_row_log2(6)).expect("a valid layout");
    let whole = Codec::ALL.map(|codec| Subject::new(layout.clone(), codec, codec.planes(), false));
    let fewer = [1, 5, 9].map(|planes| Subject::new(layout.clone(), Codec::Rht, planes, false));
    whole.into_iter().chain(fewer).collect()
});

/// Sealed ones.
static SEALED: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    let small = Layout::new(137, 32).and_then(|l| l.with_row_log2(6)).expect("a valid layout");
    let planes = [1, 2, 8, 9, 10].map(|planes| Subject::new(small.clone(), Codec::Rht, planes, true));
    let paper = Subject::new(small.clone(), Codec::RhtPaper, 11, true);
    planes.into_iter().chain([paper, Subject::new(small.clone(), Codec::Raw, 1, true)]).collect()
});

/// Rows of 2^15 in packets of the usual, the smallest, and the largest size.
static LARGE: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    [
        (448, Codec::Rht),
        (32, Codec::Rht),
        (8_160, Codec::Rht),
        (704, Codec::Rht),
        (8_160, Codec::SubtractiveDithering),
    ]
    .into_iter()
    .map(|(per_packet, codec)| {
        let layout = Layout::new((1 << 15) + 1_700, per_packet).expect("a valid layout");
        Subject::new(layout, codec, codec.planes(), false)
    })
    .collect()
});

/// A packet, and what happens to it under way.
#[derive(Debug, TypeGenerator)]
struct Arrival {
    index: u16,
    /// Of the other message.
    foreign: bool,
    repair: Option<(u8, u8)>,
    /// The length that arrives, of the whole; the longer half of the range is no cut.
    cut: u16,
    damage: Option<Damage>,
}

#[derive(Debug, TypeGenerator)]
enum Damage {
    /// Bits of the header, with its check made right again or not.
    Header { at: u8, mask: u8, right: bool },
    /// Bits behind the header.
    Body { at: u16, mask: u8 },
    /// Another packet's body behind this one's header.
    Splice { index: u16, foreign: bool },
    /// Made-up statistics.
    Statistics { sigma: u32, kappa: u8, peak: u8, twice: bool },
    /// Anything behind the packet's end.
    Longer { by: u8, fill: u8 },
}

impl Arrival {
    /// What arrives, and whether it is a prefix of what was sent.
    fn bytes(&self, subject: &Subject) -> (Vec<u8>, bool) {
        let codec = subject.codec;
        let message = &subject.messages[usize::from(self.foreign)];
        let index = usize::from(self.index) % message.packets();
        let repair = self
            .repair
            .and_then(|(from, to)| message.repair(index, from % codec.planes()..to % (codec.planes() + 1)));
        let mut packet = repair.unwrap_or_else(|| message.packet(index).to_vec());
        packet.truncate(usize::from(self.cut) % (2 * packet.len()));
        let genuine = self.damage.is_none() && !self.foreign;
        if let Some(damage) = &self.damage {
            damage.inflict(subject, &mut packet);
        }
        (packet, genuine)
    }
}

impl Damage {
    fn inflict(&self, subject: &Subject, packet: &mut Vec<u8>) {
        match *self {
            Self::Header { at, mask, right } => {
                let at = usize::from(at) % HEADER_LEN;
                if let Some(byte) = packet.get_mut(at) {
                    *byte ^= mask;
                    if right {
                        mend(packet);
                    }
                }
            }
            Self::Body { at, mask } => {
                let length = packet.len().saturating_sub(HEADER_LEN).max(1);
                if let Some(byte) = packet.get_mut(HEADER_LEN + usize::from(at) % length) {
                    *byte ^= mask;
                }
            }
            Self::Splice { index, foreign } => {
                let other = &subject.messages[usize::from(foreign)];
                let other = other.packet(usize::from(index) % other.packets());
                packet.truncate(HEADER_LEN);
                packet.extend(&other[HEADER_LEN..]);
            }
            Self::Statistics { sigma, kappa, peak, twice } => {
                if let Ok(header) = Header::parse(packet) {
                    let sigma = f32::from_bits(sigma & 0x7fff_ffff);
                    let sigma = if sigma.is_finite() { sigma } else { f32::MAX };
                    let twice = twice && subject.codec.rotates();
                    packet[..HEADER_LEN]
                        .copy_from_slice(&Header { sigma, kappa, peak, twice, ..header }.to_bytes());
                }
            }
            Self::Longer { by, fill } => packet.extend(std::iter::repeat_n(fill, by.into())),
        }
    }
}

/// Makes the check of a header right: where it is, a known header's check, turned by what changes.
fn mend(packet: &mut [u8]) {
    let Some(head) = packet.first_chunk_mut::<HEADER_LEN>() else { return };
    let check = head[..HEADER_LEN - 2].iter().fold(0xffff_u16, |register, byte| {
        (0..8).fold(register ^ u16::from(*byte) << 8, |register, _| {
            register << 1 ^ if register & 0x8000 == 0 { 0 } else { 0x5935 }
        })
    });
    head[HEADER_LEN - 2..].copy_from_slice(&check.to_be_bytes());
}

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
    rows_are_those_of_the_message(subject, &decoder, &out);
    if all_genuine {
        completing_gives_the_whole_message(subject, decoder, decoding);
    }
}

/// Rows that are complete may be taken one by one, and are the same; sums before the rotation take none that were.
fn rows_are_those_of_the_message(subject: &Subject, decoder: &Decoder, out: &[f32]) {
    let mut by_row = decoder.clone();
    let mut taken = false;
    for row in 0..subject.layout.rows() {
        let place = subject.layout.row_coordinates(row);
        let mut got = vec![0.0f32; place.len()];
        if by_row.decode_row_into(row, &mut got).expect("an output of the right length") {
            taken = true;
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(got.iter().zip(&out[place]).all(same), "row {row}");
        }
    }
    if subject.codec.rotates() {
        let sum = || RotatedSum::new(subject.layout.clone(), JOB.seed, envelope(0));
        assert_eq!(sum().add(&by_row).is_err(), taken);
        assert!(sum().add(decoder).is_ok());
    }
}

/// Whatever arrived before, of a genuine message, in whatever order: with the rest it is the message.
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
            // Where only a repair arrived, the header counts but no plane does: a limit of 0 would not count the header.
            let repaired =
                (0..subject.messages[0].packets()).any(|i| decoder.arrived(i) && decoder.coverage(i) == 0);
            assert!(repaired || bits(&decoder) == bits(&genuine));
        },
    );
}

#[test]
fn up_to_four_wrong_bits_in_a_header_are_refused() {
    check!().with_iterations(iterations(20_000)).with_type::<(u8, [u8; 4], u8)>().for_each(
        |(index, bits, count)| {
            let subject = &SMALL[0];
            let message = &subject.messages[0];
            let mut packet = message.packet(usize::from(*index) % message.packets()).to_vec();
            let sent = packet.clone();
            for bit in &bits[..=usize::from(*count) % 4] {
                let bit = usize::from(*bit) % (8 * HEADER_LEN);
                packet[bit / 8] ^= 1 << (bit % 8);
            }
            let refused = subject.decoder(Decoding::Unbiased).receive(&packet).is_err();
            assert_eq!(refused, packet != sent, "two flips of one bit are none");
        },
    );
}
