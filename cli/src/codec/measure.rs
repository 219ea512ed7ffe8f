// SPDX-License-Identifier: Apache-2.0
//! One measurement of the error: encode, trim, decode, compare.

use super::source::{Distribution, Dtype};
use super::trim::{Chooser, Depth, Sent, message_shares};
use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use trimwire_encoder::papers::{PaperCodec, Scheme, Trimmed};
use trimwire_encoder::{
    Codec, Decoder, Decoding, Encoder, Envelope, Job, Layout, Message, StreamId, bf16, f16, nmse,
};

/// Larger coordinates have squares that f32 does not hold.
const SQUARES: f32 = 1e19;

/// What is measured.
#[derive(Debug, Clone)]
pub(crate) struct Experiment {
    /// The codec, and how much of it packets carry.
    pub sent: Sent,
    /// How trimmed coordinates are filled in.
    pub decoding: Decoding,
    /// Rows and packets of a message.
    pub layout: Layout,
    /// Number format that the codec is handed.
    pub dtype: Dtype,
    /// How deep packets are trimmed.
    pub depth: Depth,
    /// Share of packets that is trimmed.
    pub trim_rate: f64,
    /// Messages, each with its own coordinates, signs and trims.
    pub messages: u32,
    /// Seed of everything random.
    pub seed: u64,
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// ‖decoded − exact‖² / ‖exact‖², mean over messages.
    pub nmse: f64,
    /// The closed form for Gaussian coordinates; `None` where there is none.
    pub expected: Option<f64>,
    /// `nmse / expected`; `None` where nothing is expected.
    pub ratio: Option<f64>,
    /// Standard error of `nmse` over the messages; `None` of a single one.
    pub standard_error: Option<f64>,
    /// Share of packets that was trimmed.
    pub trimmed_share: f64,
    /// Bytes of UDP payload that arrived, of those sent.
    pub bytes_share: f64,
}

/// The names of the decodings on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DecodingName {
    /// Unbiased at any mix of precisions.
    Unbiased,
    /// Least error of a single transfer, biased.
    Mmse,
    /// As the paper decodes: f · sign, or σ · sign without a rotation.
    Paper,
}

impl From<DecodingName> for Decoding {
    fn from(name: DecodingName) -> Self {
        match name {
            DecodingName::Unbiased => Self::Unbiased,
            DecodingName::Mmse => Self::Mmse,
            DecodingName::Paper => Self::Paper,
        }
    }
}

impl Measured {
    /// Refuses a gradient that the codec decoded to what is no number: values near the ends of
    /// f32's range, whose sums in a rotation or whose scales it does not hold.
    pub(crate) fn check(&self, codec: Scheme, gradient: Option<&[f32]>) -> Result<()> {
        let finite = self.nmse.is_finite() && self.standard_error.is_none_or(f64::is_finite);
        let largest = gradient.unwrap_or_default().iter().fold(0.0_f32, |largest, v| largest.max(v.abs()));
        // A scale that overflows can also decode to zeros: all of the energy is lost although
        // packets arrived.
        let vanished = self.nmse == 1.0 && self.bytes_share > 0.0 && largest > SQUARES;
        ensure!(
            finite && !vanished,
            "codec {codec} computes in f32, and coordinates of up to {largest:e} leave its range: what it decodes is no measure of the \
             error; scale them down"
        );
        Ok(())
    }
}

impl Experiment {
    /// Runs the experiment on coordinates drawn from `distribution`, or, where there is one, on the
    /// same `gradient` every time. `done` is called after every message.
    pub(crate) fn run(
        &self,
        distribution: &Distribution,
        gradient: Option<&[f32]>,
        mut done: impl FnMut(),
    ) -> Result<Measured> {
        let mut chooser = Chooser::new(self.trim_rate, ChaCha8Rng::seed_from_u64(!self.seed));
        let (layout, scheme) = (&self.layout, self.sent.codec);
        let mut packets = match scheme {
            Scheme::Wire(codec) => Some(Packets::new(self, codec)),
            Scheme::Paper(_) => None,
        };
        let mut decoded = vec![0.0; layout.coordinates()];
        let (mut errors, mut trimmed, mut sent, mut arrived) = (Vec::new(), 0, 0, 0);
        for number in 0..self.messages {
            // Messages far apart in the seed's space: neighbouring --seed values share none.
            let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(number));
            let exact = gradient.map_or_else(
                || {
                    let mut values = distribution.draw(seed, layout);
                    self.dtype.round(&mut values);
                    values
                },
                <[f32]>::to_vec,
            );
            let mut held = Vec::new();
            for (index, is_trimmed) in chooser.choose(layout).into_iter().enumerate() {
                let n = layout.packet_range(index).len();
                let whole = self.sent.payload(n);
                let keep = if is_trimmed { self.depth.payload(self.sent, n) } else { whole };
                trimmed += u64::from(is_trimmed);
                (sent, arrived) = (sent + whole, arrived + keep);
                held.push(keep);
            }
            match (scheme, &mut packets) {
                (Scheme::Paper(codec), _) => self.figure(codec, number, &exact, &held, &mut decoded),
                (_, Some(packets)) => packets.carry(self, number, &exact, &held, &mut decoded)?,
                _ => {}
            }
            errors.push(nmse(&decoded, &exact));
            done();
        }
        let shares = message_shares(layout, self.sent, self.depth, self.trim_rate);
        let expected = closed_form(scheme, self.decoding, &shares);
        let (mean, standard_error) = mean_and_standard_error(&errors);
        Ok(Measured {
            nmse: mean,
            expected,
            ratio: expected.filter(|e| *e > 0.0).map(|e| mean / e),
            standard_error,
            trimmed_share: trimmed as f64 / (layout.packets() * errors.len().max(1)) as f64,
            bytes_share: arrived as f64 / sent.max(1) as f64,
        })
    }

    /// What a receiver would make of a message of a codec that nobody sends.
    fn figure(&self, codec: PaperCodec, number: u32, exact: &[f32], held: &[usize], out: &mut [f32]) {
        let (layout, job, decoding) = (&self.layout, Job::new(self.seed), self.decoding);
        for row in 0..layout.rows() {
            let of = Trimmed { layout, row, job, envelope: envelope(number), decoding };
            let place = layout.row_coordinates(row);
            codec.after_trim(of, &exact[place.clone()], |index| held[index], &mut out[place]);
        }
    }
}

/// Both ends of a codec that is sent.
struct Packets {
    encoder: Encoder,
    decoder: Decoder,
    message: Message,
}

impl Packets {
    fn new(experiment: &Experiment, codec: Codec) -> Self {
        let Experiment { layout, sent, seed, decoding, .. } = experiment;
        let job = Job::new(*seed);
        let decoder = Decoder::new(layout.clone(), job, envelope(0), *decoding);
        Self {
            encoder: Encoder::new(layout.clone(), job).with_codec(codec),
            decoder: decoder.with_codec(codec).with_planes(sent.planes),
            message: Message::default(),
        }
    }

    /// Encodes a message, and decodes what is `held` of its packets, in bytes.
    fn carry(
        &mut self,
        experiment: &Experiment,
        number: u32,
        exact: &[f32],
        held: &[usize],
        out: &mut [f32],
    ) -> Result<()> {
        let Self { encoder, decoder, message } = self;
        experiment.encode(encoder, number, exact, message).context("cannot encode the gradient")?;
        decoder.reset(envelope(number));
        for (index, keep) in held.iter().enumerate().filter(|(_, keep)| **keep > 0) {
            let packet = message.packet(index);
            let arrived = packet.get(..*keep).unwrap_or(packet);
            decoder.receive(arrived).context("a packet of our own was refused")?;
        }
        decoder.decode_into(out).context("the message is as long as the output")
    }
}

impl Experiment {
    fn encode(&self, encoder: &Encoder, number: u32, exact: &[f32], message: &mut Message) -> Result<()> {
        let (envelope, planes) = (envelope(number), self.sent.planes);
        match self.dtype {
            Dtype::F32 => encoder.encode(exact, envelope, planes, message)?,
            Dtype::F16 => {
                let narrow: Vec<f16> = exact.iter().map(|v| f16::from_f32(*v)).collect();
                encoder.encode(&narrow, envelope, planes, message)?;
            }
            Dtype::Bf16 => {
                let narrow: Vec<bf16> = exact.iter().map(|v| bf16::from_f32(*v)).collect();
                encoder.encode(&narrow, envelope, planes, message)?;
            }
        }
        Ok(())
    }
}

/// Of message `number` of job 0's rank 0.
pub(crate) const fn envelope(number: u32) -> Envelope {
    const STREAM: StreamId = StreamId::new(0, 0).expect("job 0 and rank 0 are valid");
    Envelope { stream: STREAM, message: number }
}

/// The closed form, where there is one. Unbiased decoding of nothing has none: λ is infinite, and a
/// decoder gives zeros.
fn closed_form(codec: Scheme, decoding: Decoding, shares: &[(u8, f64)]) -> Option<f64> {
    Some(codec.expected_nmse(decoding, shares)).filter(|error| error.is_finite())
}

/// The standard error is `None` of a single value.
fn mean_and_standard_error(values: &[f64]) -> (f64, Option<f64>) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (values.len() > 1).then(|| (variance / count).sqrt()))
}

#[cfg(test)]
mod tests;
