// SPDX-License-Identifier: Apache-2.0
//! What all stages of an operation know of it.

use super::buffers::Buffers;
use super::device::Device;
use super::{CommunicatorConfig, MessageId, Options, Phase, Replicas, StartError, halves};
use crate::config::Reliability;
use crate::endpoint::Endpoint;
use std::sync::Arc;
use trimwire_encoder::{Codec, Encoder, Envelope, HeaderMask, Job, Layout, LayoutError, Sealer, StreamId};

/// What all stages of an operation know of it.
#[derive(Debug)]
pub(super) struct Scheme {
    pub(super) number: u32,
    /// As the endpoint names it.
    pub(super) rank: u16,
    /// Ranks of the epoch.
    pub(super) world: u16,
    pub(super) stream: StreamId,
    pub(super) options: Options,
    pub(super) sealer: Option<Sealer>,
    pub(super) mask: HeaderMask,
    pub(super) buffers: Buffers,
    /// Who has the tensors, where they are coded elsewhere.
    pub(super) device: Option<Arc<dyn Device>>,
    /// Two elements make a coordinate.
    pub(super) packs: bool,
    /// Ranks whose contributions are averaged.
    workers: usize,
    job_seed: u64,
    coordinates_per_packet: usize,
    row_log2: u8,
}

impl Scheme {
    pub(super) fn new(
        number: u32,
        config: &CommunicatorConfig,
        options: Options,
        workers: usize,
        buffers: Buffers,
        endpoint: &Endpoint,
    ) -> Self {
        let (stream, sealer) = (endpoint.stream(), endpoint.sealer());
        let codec = codec(&options);
        let fits = || codec.coordinates_per_packet(config.mtu, planes(&options), sealer.is_some());
        let chosen = options.coordinates_per_packet.filter(|_| !options.exact);
        let coordinates_per_packet = chosen.unwrap_or_else(fits);
        let rank = endpoint.config().rank;
        let (world, job_seed, row_log2) = (config.world, config.job_seed, config.row_log2);
        Self {
            number,
            rank,
            world,
            stream,
            options,
            sealer,
            mask: endpoint.mask(),
            buffers,
            device: None,
            packs: false,
            workers,
            job_seed,
            coordinates_per_packet,
            row_log2,
        }
    }

    pub(super) fn codec(&self) -> Codec {
        codec(&self.options)
    }

    pub(super) fn planes(&self) -> u8 {
        planes(&self.options)
    }

    /// What is exact is the same everywhere without an agreement.
    pub(super) fn replicas(&self) -> Replicas {
        if self.options.exact { Replicas::Free } else { self.options.replicas }
    }

    pub(super) fn scale(&self) -> Option<f32> {
        (self.options.average && self.workers > 1).then(|| 1.0 / self.workers as f32)
    }

    /// Independent rotations: so are the errors of the reduce-scatter, where every rank encodes
    /// under its own.
    pub(super) fn job(&self) -> Job {
        Job::new(self.job_seed)
    }

    /// Of messages of `length` elements.
    pub(super) fn layout(&self, shard: u16, length: usize) -> Result<Layout, StartError> {
        let length = if self.packs { halves::words(length) } else { length };
        let build = || -> Result<Layout, LayoutError> {
            Layout::new(length, self.coordinates_per_packet)?
                .with_row_log2(self.row_log2)?
                .with_layer_class(self.options.layer_class)
        };
        build().map_err(|reason| StartError::Layout { number: self.number, shard, reason })
    }

    pub(super) fn encoder(&self, layout: Layout) -> Encoder {
        let encoder = Encoder::new(layout, self.job()).with_codec(self.codec());
        match &self.sealer {
            Some(sealer) => encoder.sealed(sealer.clone()),
            None => encoder,
        }
    }

    /// Under whose keys a message was encoded that is passed on.
    pub(super) fn origin(&self, (rank, phase): (u16, Phase), shard: u16) -> Option<Envelope> {
        let stream = StreamId::new(self.stream.job(), rank)?;
        Some(Envelope { stream, message: MessageId::new(self.number, phase, shard).to_u32() })
    }

    /// When what comes by a hop is taken as it is: hops of an operation with a deadline have equal
    /// shares of its time.
    pub(super) fn until_ns(&self, now_ns: u64, (hop, hops): (u16, u16)) -> Option<u64> {
        let deadline_ns = u128::from(self.options.deadline_ns?);
        let share_ns = deadline_ns * u128::from(hop.min(hops)) / u128::from(hops.max(1));
        Some(now_ns.saturating_add(share_ns as u64))
    }

    pub(super) fn reliability(&self, endpoint: &Endpoint) -> Reliability {
        if self.options.exact || self.options.deadline_ns.is_some() {
            return Reliability::Full;
        }
        self.options.reliability.unwrap_or(endpoint.config().reliability)
    }
}

fn codec(options: &Options) -> Codec {
    if options.exact { Codec::Raw } else { Codec::default() }
}

fn planes(options: &Options) -> u8 {
    if options.exact { Codec::Raw.planes() } else { options.planes }
}
