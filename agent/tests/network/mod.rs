//! A deterministic network in virtual time that delays, reorders, cuts, drops and duplicates on purpose.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use trimwire_agent::endpoint::{Endpoint, EndpointConfig, Event, Reliability, Transmit};
use trimwire_agent::rate::RateConfig;
use trimwire_encoder::wire::{Header, Kind, Prefix};
use trimwire_encoder::{
    DEFAULT_COORDINATES_PER_PACKET, Decoder, Decoding, Encoder, Envelope, Importance, Job, Layout, Message,
    RowChoice, StreamId,
};

pub(crate) const LINE_BPS: u64 = 10_000_000_000;
/// Bytes of a bit-plane of the largest packets.
pub(crate) const PLANE_BYTES: usize = DEFAULT_COORDINATES_PER_PACKET / 8;

/// What the network does to datagrams. Shares are in [0, 1].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    pub(crate) data_delay_ns: u64,
    pub(crate) control_delay_ns: u64,
    /// Each datagram is late by up to this: reordering.
    pub(crate) jitter_ns: u64,
    pub(crate) drop_data: f64,
    pub(crate) drop_control: f64,
    pub(crate) cut: f64,
    /// A cut leaves at least so many bytes of the payload.
    pub(crate) cut_to_at_least: usize,
    /// DSCP of what was cut.
    pub(crate) trimmed_dscp: u8,
    pub(crate) duplicate: f64,
}

impl Faults {
    pub(crate) const NONE: Self = Self {
        data_delay_ns: 5_000,
        control_delay_ns: 5_000,
        jitter_ns: 0,
        drop_data: 0.0,
        drop_control: 0.0,
        cut: 0.0,
        cut_to_at_least: 0,
        trimmed_dscp: 35,
        duplicate: 0.0,
    };
}

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub(crate) fn chance(&mut self, share: f64) -> bool {
        ((self.next() >> 11) as f64) < share * (1_u64 << 53) as f64
    }

    pub(crate) fn gradient(&mut self, length: usize) -> Vec<f32> {
        // A sum of four uniforms: bell-shaped enough.
        (0..length).map(|_| (0..4).map(|_| self.below(2_001) as f32 / 1_000.0 - 1.0).sum()).collect()
    }
}

type Flying = Reverse<(u64, u64, usize, u8, Vec<u8>)>;

#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) now_ns: u64,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Ranks whose datagrams vanish, both ways.
    pub(crate) dead: Vec<bool>,
    pub(crate) faults: Faults,
    pub(crate) random: Random,
    /// Drops or changes a datagram before chance does: (from, datagram, how many of this kind before).
    pub(crate) script: Option<fn(usize, &Transmit, u64) -> bool>,
    seen: BTreeMap<u8, u64>,
    flying: BinaryHeap<Flying>,
    sent: u64,
    /// (from, to) → packet index → most bytes of it that have been delivered in one datagram from plane 0.
    pub(crate) delivered: BTreeMap<(usize, usize, u32), BTreeMap<u32, usize>>,
    /// All departures: (time, from, datagram).
    pub(crate) log: Vec<(u64, usize, Transmit)>,
    pub(crate) keep_log: bool,
}

impl Network {
    pub(crate) fn new(world: u16, faults: Faults, seed: u64, reliability: Reliability) -> Self {
        Self::with(world, faults, seed, |config| config.reliability = reliability)
    }

    pub(crate) fn with(world: u16, faults: Faults, seed: u64, change: impl Fn(&mut EndpointConfig)) -> Self {
        let endpoint = |rank| {
            let mut config = EndpointConfig::new(rank, world, LINE_BPS);
            config.rate = RateConfig::Fixed(None);
            change(&mut config);
            Endpoint::new(config)
        };
        Self {
            now_ns: 0,
            endpoints: (0..world).map(endpoint).collect(),
            dead: vec![false; usize::from(world)],
            faults,
            random: Random(seed),
            script: None,
            seen: BTreeMap::new(),
            flying: BinaryHeap::new(),
            sent: 0,
            delivered: BTreeMap::new(),
            log: Vec::new(),
            keep_log: false,
        }
    }

    /// Puts what the endpoints want to send into flight, and hands their events to `on_event`.
    fn drain(&mut self, on_event: &mut impl FnMut(&mut Self, usize, Event)) {
        loop {
            let mut quiet = true;
            for rank in 0..self.endpoints.len() {
                while let Some(event) = self.endpoints[rank].poll_event() {
                    quiet = false;
                    on_event(self, rank, event);
                }
                while let Some(datagram) = self.endpoints[rank].poll_transmit(self.now_ns) {
                    quiet = false;
                    self.fly(rank, datagram);
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn fly(&mut self, from: usize, mut datagram: Transmit) {
        if self.keep_log {
            self.log.push((self.now_ns, from, datagram.clone()));
        }
        let kind = datagram.payload[0] & 15;
        let before = self.seen.entry(kind).or_default();
        *before += 1;
        let before = *before - 1;
        if self.script.is_some_and(|script| script(from, &datagram, before)) {
            return;
        }
        let to = usize::from(datagram.to_rank);
        if self.dead[from] || self.dead[to] {
            return;
        }
        let data = kind == Kind::Data as u8;
        let (drop, delay_ns) = if data {
            (self.faults.drop_data, self.faults.data_delay_ns)
        } else {
            (self.faults.drop_control, self.faults.control_delay_ns)
        };
        if self.random.chance(drop) {
            return;
        }
        if data && self.random.chance(self.faults.cut) {
            let least = self.faults.cut_to_at_least.min(datagram.payload.len());
            let room = datagram.payload.len() - least;
            datagram.payload.truncate(least + self.random.below(room as u64 + 1) as usize);
            datagram.tos = self.faults.trimmed_dscp << 2 | datagram.tos & 3;
        }
        let copies = 1 + u64::from(self.random.chance(self.faults.duplicate));
        for _ in 0..copies {
            let at_ns = self.now_ns + delay_ns + self.random.below(self.faults.jitter_ns + 1);
            self.sent += 1;
            self.flying.push(Reverse((
                at_ns,
                self.sent,
                from << 16 | to,
                datagram.tos,
                datagram.payload.clone(),
            )));
        }
    }

    /// Runs until nothing is left to happen or `until_ns` has come.
    pub(crate) fn run(&mut self, until_ns: u64, mut on_event: impl FnMut(&mut Self, usize, Event)) {
        loop {
            self.drain(&mut on_event);
            let timeouts = self.endpoints.iter().filter_map(Endpoint::poll_timeout).min();
            let arrival = self.flying.peek().map(|Reverse((at_ns, ..))| *at_ns);
            let Some(next_ns) = [timeouts, arrival].into_iter().flatten().min() else { return };
            // Or a driver would spin.
            assert!(next_ns > self.now_ns || arrival == Some(next_ns), "work left at {next_ns}");
            if next_ns > until_ns {
                self.now_ns = until_ns;
                return;
            }
            self.now_ns = next_ns;
            while let Some(Reverse((at_ns, ..))) = self.flying.peek() {
                if *at_ns > self.now_ns {
                    break;
                }
                let Some(Reverse((_, _, route, tos, payload))) = self.flying.pop() else { break };
                self.arrive(route >> 16, route & 0xffff, tos, &payload);
            }
            for endpoint in &mut self.endpoints {
                if endpoint.poll_timeout().is_some_and(|at_ns| at_ns <= self.now_ns) {
                    endpoint.handle_timeout(self.now_ns);
                }
            }
        }
    }

    fn arrive(&mut self, from: usize, to: usize, tos: u8, payload: &[u8]) {
        if let Ok(header) = Header::parse(payload)
            && header.first_plane == 0
        {
            let best = self.delivered.entry((from, to, header.prefix.message)).or_default();
            let bytes = best.entry(header.index).or_default();
            *bytes = (*bytes).max(payload.len());
        }
        self.endpoints[to].handle_datagram(self.now_ns, tos, payload);
    }

    /// Runs to the end and gives all events.
    pub(crate) fn finish(&mut self, until_ns: u64) -> Vec<(usize, Event)> {
        let mut events = Vec::new();
        self.run(until_ns, |_, rank, event| events.push((rank, event)));
        events
    }
}

pub(crate) fn kind(datagram: &Transmit) -> Kind {
    Prefix::parse(&datagram.payload).expect("own packet").kind
}

pub(crate) fn layout(length: usize) -> Layout {
    Layout::new(length, DEFAULT_COORDINATES_PER_PACKET)
        .and_then(|layout| layout.with_row_log2(12))
        .expect("valid layout")
}

pub(crate) const JOB: Job = Job::new(1);

/// A message of rank 0.
pub(crate) fn envelope(message: u32) -> Envelope {
    Envelope { stream: StreamId::new(0, 0).expect("fits"), message }
}

pub(crate) fn encode(endpoint: &Endpoint, message: u32, gradient: &[f32], planes: u8) -> Arc<Message> {
    let envelope = Envelope { stream: endpoint.stream(), message };
    let mut out = Message::default();
    // `Random::gradient` has an energy of 4/3 a coordinate.
    let choice = RowChoice { planes, importance: Importance::AtLeast(0.5) };
    Encoder::new(layout(gradient.len()), JOB)
        .encode_with(gradient, envelope, |_row| choice, &mut out)
        .expect("finite");
    Arc::new(out)
}

pub(crate) fn decoder(message: u32, length: usize) -> Decoder {
    Decoder::new(layout(length), JOB, envelope(message), Decoding::Unbiased)
}
