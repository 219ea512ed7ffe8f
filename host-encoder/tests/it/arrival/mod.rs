// SPDX-License-Identifier: Apache-2.0
//! Packets of working encoders, and what can happen to them under way: what fuzz targets begin
//! with.

use crate::input::gaussian;
use bolero::TypeGenerator;
use std::sync::LazyLock;
use trimwire_encoder::wire::seal::{SealKey, Sealer};
use trimwire_encoder::{
    Codec, Decoder, Decoding, Encoder, Envelope, HEADER_LEN, Header, Job, Layout, Message, RowChoice,
    StreamId, Tensor,
};

pub(crate) const JOB: Job = Job::new(3);

/// Two messages of one layout.
pub(crate) struct Subject {
    pub(crate) layout: Layout,
    pub(crate) codec: Codec,
    pub(crate) sealer: Option<Sealer>,
    pub(crate) messages: [Message; 2],
}

pub(crate) fn envelope(message: usize) -> Envelope {
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
            for zeros in gradient.chunks_mut(32).skip(1 + number).step_by(3) {
                zeros.fill(0.0);
            }
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

    pub(crate) fn decoder(&self, decoding: Decoding) -> Decoder {
        let decoder = Decoder::new(self.layout.clone(), JOB, envelope(0), decoding)
            .with_codec(self.codec)
            .with_planes(self.messages[0].planes());
        match &self.sealer {
            Some(sealer) => decoder.sealed(sealer),
            None => decoder,
        }
    }

    pub(crate) fn decoded(&self, decoder: &Decoder) -> Vec<f32> {
        let mut out = vec![0.0; self.layout.coordinates()];
        decoder.decode_into(&mut out).expect("an output of the right length");
        out
    }
}

/// Small messages of every codec, with tails and several tensors.
pub(crate) static SMALL: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    let tensors = [(137, 1), (5, 2), (64, 7)].map(|(n, layer_class)| Tensor { coordinates: n, layer_class });
    let layout = Layout::of_tensors(&tensors, 32).and_then(|l| l.with_row_log2(6)).expect("a valid layout");
    let whole = Codec::ALL.map(|codec| Subject::new(layout.clone(), codec, codec.planes(), false));
    let fewer = [1, 5, 9].map(|planes| Subject::new(layout.clone(), Codec::Rht, planes, false));
    whole.into_iter().chain(fewer).collect()
});

/// Sealed ones.
pub(crate) static SEALED: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    let small = Layout::new(137, 32).and_then(|l| l.with_row_log2(6)).expect("a valid layout");
    let planes = [1, 2, 8, 9, 10].map(|planes| Subject::new(small.clone(), Codec::Rht, planes, true));
    planes.into_iter().chain([Subject::new(small.clone(), Codec::Raw, 1, true)]).collect()
});

/// Rows of 2^15 in packets of the usual, the smallest, and the largest size.
pub(crate) static LARGE: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    [(448, Codec::Rht), (32, Codec::Rht), (8_160, Codec::Rht), (704, Codec::Rht), (8_160, Codec::Raw)]
        .into_iter()
        .map(|(per_packet, codec)| {
            let layout = Layout::new((1 << 15) + 1_700, per_packet);
            let layout = layout.and_then(|layout| layout.with_row_log2(15)).expect("a valid layout");
            Subject::new(layout, codec, codec.planes(), false)
        })
        .collect()
});

/// A packet, and what happens to it under way.
#[derive(Debug, TypeGenerator)]
pub(crate) struct Arrival {
    pub(crate) index: u16,
    /// Of the other message.
    pub(crate) foreign: bool,
    pub(crate) repair: Option<(u8, u8)>,
    /// The length that arrives, of the whole; the longer half of the range is no trim.
    kept: u16,
    pub(crate) damage: Option<Damage>,
}

#[derive(Debug, TypeGenerator)]
pub(crate) enum Damage {
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
    pub(crate) fn bytes(&self, subject: &Subject) -> (Vec<u8>, bool) {
        let codec = subject.codec;
        let message = &subject.messages[usize::from(self.foreign)];
        let index = usize::from(self.index) % message.packets();
        let repair = self
            .repair
            .and_then(|(from, to)| message.repair(index, from % codec.planes()..to % (codec.planes() + 1)));
        let mut packet = repair.unwrap_or_else(|| message.packet(index).to_vec());
        packet.truncate(usize::from(self.kept) % (2 * packet.len()));
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
pub(crate) fn mend(packet: &mut [u8]) {
    let Some(head) = packet.first_chunk_mut::<HEADER_LEN>() else { return };
    let check = head[..HEADER_LEN - 2].iter().fold(0xffff_u16, |register, byte| {
        (0..8).fold(register ^ u16::from(*byte) << 8, |register, _| {
            register << 1 ^ if register & 0x8000 == 0 { 0 } else { 0x5935 }
        })
    });
    head[HEADER_LEN - 2..].copy_from_slice(&check.to_be_bytes());
}
