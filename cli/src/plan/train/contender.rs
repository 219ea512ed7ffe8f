// SPDX-License-Identifier: Apache-2.0
//! How a worker's gradient is sent at a law's ratio, and what arrives of it.

use anyhow::Context as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use trimwire_encoder::{
    Codec, DEFAULT_COORDINATES_PER_PACKET, Decoder, Decoding, Encoder, Envelope, Job, Layout, Message,
    StreamId,
};
use trimwire_planner::compress::{Feedback, Method, NetSenseCompression, Rung, rung};
use trimwire_planner::scenarios::Transfer;

/// A law with a compressor.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) law: &'static str,
    pub(super) compressor: Compressor,
}

/// What a ratio is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compressor {
    /// Everything goes as f32, whatever the ratio.
    None,
    /// The largest values, with error feedback.
    TopK,
    /// Values by chance, the same at all workers, with error feedback.
    RandomK,
    /// NetSenseML's algorithm 2.
    NetSense,
    /// As many planes as fit the ratio, cut to their signs where the link cuts; below one plane the largest values.
    Planes,
}

impl Compressor {
    /// How gradients are summed among so many workers: values at the same places, and planes, by an all-reduce.
    pub(super) fn transfer(self, workers: u16) -> Transfer {
        let ranks = u32::from(workers);
        match self {
            Self::None | Self::RandomK | Self::Planes => Transfer::AllReduce { ranks },
            Self::TopK => Transfer::AllGather { ranks, quantised_below: 0.0 },
            Self::NetSense => {
                Transfer::AllGather { ranks, quantised_below: NetSenseCompression::default().quantise_below }
            }
        }
    }
}

/// A worker's memory of what was not sent, and its packets.
pub(super) struct Worker {
    feedback: Feedback,
    encoder: Encoder,
    decoder: Decoder,
    message: Message,
    stream: StreamId,
    coins: ChaCha8Rng,
    seed: u64,
}

impl Worker {
    pub(super) fn new(rank: usize, length: usize, seed: u64) -> anyhow::Result<Self> {
        let layout =
            Layout::new(length, DEFAULT_COORDINATES_PER_PACKET).context("a gradient has no layout")?;
        let stream = StreamId::new(0, rank as u16).context("more workers than ranks")?;
        let job = Job::new(seed);
        let envelope = Envelope { stream, message: 0 };
        Ok(Self {
            feedback: Feedback::new(length),
            encoder: Encoder::new(layout.clone(), job),
            decoder: Decoder::new(layout, job, envelope, Decoding::Unbiased),
            message: Message::default(),
            stream,
            coins: ChaCha8Rng::seed_from_u64(seed ^ (rank as u64) << 32),
            seed,
        })
    }

    /// What arrives of a gradient.
    pub(super) fn send(
        &mut self,
        compressor: Compressor,
        gradient: &[f32],
        weights: &[f32],
        step: u32,
        ratio: f64,
        cut: f64,
    ) -> anyhow::Result<Vec<f32>> {
        let mut arrived = vec![0.0; gradient.len()];
        let method = match compressor {
            Compressor::None => return Ok(gradient.to_vec()),
            Compressor::NetSense => {
                let sent =
                    NetSenseCompression::default().compress(&mut self.feedback, gradient, weights, ratio)?;
                sent.decode_into(&mut arrived);
                return Ok(arrived);
            }
            Compressor::TopK => Method::TopK { ratio },
            Compressor::RandomK => Method::RandomK { ratio, seed: self.seed ^ u64::from(step) << 20 },
            Compressor::Planes => match rung(ratio, gradient.len()) {
                Rung::Planes(planes) => {
                    self.send_planes(gradient, step, planes, cut, &mut arrived)?;
                    return Ok(arrived);
                }
                Rung::TopK(entries) => Method::TopK { ratio: entries as f64 / gradient.len() as f64 },
            },
        };
        self.feedback.compress(gradient, method)?.decode_into(&mut arrived);
        Ok(arrived)
    }

    fn send_planes(
        &mut self,
        gradient: &[f32],
        step: u32,
        planes: u8,
        cut: f64,
        arrived: &mut [f32],
    ) -> anyhow::Result<()> {
        let envelope = Envelope { stream: self.stream, message: step };
        self.encoder.encode(gradient, envelope, planes, &mut self.message).context("a gradient")?;
        self.decoder.reset(envelope);
        for index in 0..self.message.packets() {
            let packet = self.message.packet(index);
            let held = if self.coins.random::<f64>() < cut {
                self.encoder.layout().packet_len(Codec::Rht, index, 1)
            } else {
                packet.len()
            };
            self.decoder.receive(&packet[..held]).context("a trimmed packet")?;
        }
        self.decoder.decode_into(arrived).context("a gradient")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwire_encoder::{expected_nmse, nmse};

    fn gradient() -> Vec<f32> {
        (0..40_000).map(|i| ((i * 2_654_435_761_usize) % 1_000) as f32 / 500.0 - 1.0).collect()
    }

    /// What arrives of the first step.
    fn arrived(compressor: Compressor, ratio: f64, cut: f64) -> Vec<f32> {
        let gradient = gradient();
        let mut worker = Worker::new(3, gradient.len(), 1).unwrap();
        worker.send(compressor, &gradient, &vec![1.0; gradient.len()], 0, ratio, cut).unwrap()
    }

    #[test]
    fn planes_that_are_sent_fit_the_ratio_and_cuts_leave_their_signs() {
        // Two planes of 448 coordinates are 174 of 1,792 bytes, a tenth.
        let error = |ratio, cut| nmse(&arrived(Compressor::Planes, ratio, cut), &gradient());
        for (ratio, cut, planes) in [(0.1, 0.0, 2), (0.1, 1.0, 1), (0.535, 1.0, 1)] {
            let expected = expected_nmse(Codec::Rht, Decoding::Unbiased, &[(planes, 1.0)]);
            let got = error(ratio, cut);
            assert!((got / expected - 1.0).abs() < 0.05, "{ratio}, {cut}: {got} for {expected}");
        }
        // Nine planes, of which the closed form knows the order only; and three packets in ten of them cut, drawn.
        assert!((1e-10..1e-9).contains(&error(0.535, 0.0)));
        let expected = expected_nmse(Codec::Rht, Decoding::Unbiased, &[(1, 0.3), (9, 0.7)]);
        let got = error(0.535, 0.3);
        assert!((got / expected - 1.0).abs() < 0.3, "{got} for {expected}");
    }

    #[test]
    fn sparse_gradients_keep_what_they_left_out_for_the_next_step() {
        for (compressor, ratio) in [
            (Compressor::TopK, 0.1),
            (Compressor::RandomK, 0.1),
            (Compressor::NetSense, 0.1),
            (Compressor::Planes, 0.01),
        ] {
            let gradient = gradient();
            let mut worker = Worker::new(0, gradient.len(), 1).unwrap();
            let weights = vec![1.0; gradient.len()];
            let mut sum = vec![0.0; gradient.len()];
            for step in 0..400 {
                let nothing = vec![0.0; gradient.len()];
                let part = if step == 0 { &gradient } else { &nothing };
                let sent = worker.send(compressor, part, &weights, step, ratio, 0.0).unwrap();
                assert!(
                    sent.iter().filter(|value| **value != 0.0).count() <= gradient.len() / 5,
                    "{compressor:?}"
                );
                sum.iter_mut().zip(sent).for_each(|(sum, value)| *sum += value);
            }
            // NetSenseML prunes half of the values by their weights, the same ones for ever where weights are equal.
            let most = if compressor == Compressor::NetSense { 0.6 } else { 1e-4 };
            let missing = nmse(&sum, &gradient);
            assert!(missing < most, "{compressor:?}: {missing}");
        }
    }

    #[test]
    fn without_a_compressor_everything_arrives() {
        assert_eq!(arrived(Compressor::None, 0.01, 1.0), gradient());
    }
}
