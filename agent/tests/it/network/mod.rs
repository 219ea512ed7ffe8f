// SPDX-License-Identifier: Apache-2.0
//! A deterministic network in virtual time that delays, reorders, trims, drops and duplicates on
//! purpose.
#![allow(dead_code, reason = "each test binary uses a part")]

use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use trimwire_agent::burst::{Arrived, Burst, Origin};
use trimwire_agent::endpoint::{Endpoint, EndpointConfig, Event, Expectation, Reliability};
use trimwire_agent::rate::RateConfig;
use trimwire_encoder::wire::{HEADER_LEN, Header, Kind, PLANES, Prefix};
use trimwire_encoder::{
    Codec, DEFAULT_COORDINATES_PER_PACKET, Decoding, Encoder, Envelope, HeaderMask, Importance, Job, Layout,
    Message, PacketError, RowChoice, RowReceiver,
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
    pub(crate) trim: f64,
    /// A trim leaves at least so many bytes of the payload.
    pub(crate) trim_to_at_least: usize,
    /// And at most so many.
    pub(crate) trim_to_at_most: usize,
    /// DSCP of what was trimmed.
    pub(crate) trimmed_dscp: u8,
    pub(crate) duplicate: f64,
    /// One bit is wrong, of a control packet or of a DATA packet's header, and no checksum of UDP's
    /// tells.
    pub(crate) damage: f64,
    pub(crate) broken: Option<Broken>,
}

/// One of so many source ports leads over a broken spine: another one from each rank to each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Broken {
    pub(crate) one_in: u64,
    pub(crate) how: How,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    Dead,
    /// It works every other time for so long.
    Flapping(u64),
    /// After so long it is other ports.
    Rehashed(u64),
}

impl Broken {
    fn takes(&self, now_ns: u64, datagram: &Datagram) -> bool {
        let port = u64::from(datagram.source.port());
        let hash = port + 5 * datagram.from as u64 + 7 * datagram.to as u64;
        let (hash, works) = match self.how {
            How::Dead => (hash, false),
            How::Flapping(ns) => (hash, now_ns / ns % 2 == 1),
            How::Rehashed(ns) => (hash + 3 * (now_ns / ns), false),
        };
        datagram.source.port() != PORT && hash.is_multiple_of(self.one_in) && !works
    }
}

impl Faults {
    pub(crate) const NONE: Self = Self {
        data_delay_ns: 5_000,
        control_delay_ns: 5_000,
        jitter_ns: 0,
        drop_data: 0.0,
        drop_control: 0.0,
        trim: 0.0,
        trim_to_at_least: 0,
        trim_to_at_most: usize::MAX,
        trimmed_dscp: 35,
        duplicate: 0.0,
        damage: 0.0,
        broken: None,
    };

    /// The share of data that is lost.
    pub(crate) fn lost(&self) -> f64 {
        let broken = self.broken.map_or(0.0, |broken| 1.0 / broken.one_in as f64);
        self.drop_data + (1.0 - self.drop_data) * broken
    }

    /// Everything at once, and a lot of it; a trim leaves some planes.
    pub(crate) const ADVERSARY: Self = Self {
        data_delay_ns: 50_000,
        control_delay_ns: 50_000,
        jitter_ns: 100_000,
        drop_data: 0.3,
        drop_control: 0.3,
        trim: 0.6,
        trim_to_at_least: 600,
        duplicate: 0.2,
        ..Self::NONE
    };

    /// Half of all datagrams are lost, and most data is trimmed.
    pub(crate) const HARSH: Self = Self {
        data_delay_ns: 100_000,
        jitter_ns: 200_000,
        drop_data: 0.5,
        drop_control: 0.5,
        trim: 0.9,
        duplicate: 0.3,
        ..Self::ADVERSARY
    };

    /// Any network that is less bad than this one.
    pub(crate) fn any_up_to(self) -> impl Strategy<Value = Self> {
        let delays = (0..self.data_delay_ns, 0..self.control_delay_ns, 0..self.jitter_ns);
        let drops = (0.0..self.drop_data, 0.0..self.drop_control, 0.0..self.duplicate);
        let trims = (0.0..self.trim, 0..self.trim_to_at_least);
        (delays, drops, trims).prop_map(move |(delays, drops, trims)| Self {
            data_delay_ns: delays.0,
            control_delay_ns: delays.1,
            jitter_ns: delays.2,
            drop_data: drops.0,
            drop_control: drops.1,
            duplicate: drops.2,
            trim: trims.0,
            trim_to_at_least: trims.1,
            ..self
        })
    }
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

/// Bytes of headers in front of a payload.
const IPV4_AND_UDP: usize = 28;

/// The port on which every rank listens.
pub(crate) const PORT: u16 = 9217;
/// Of a quantiser that ends where it usually does, at 4.58 σ (wire-format §6).
const USUAL_PEAK: u8 = 70;

/// Where a rank listens.
pub(crate) fn address(rank: usize) -> SocketAddr {
    let [high, low] = (rank as u16 + 1).to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, high, low)), PORT)
}

/// The address of one of a rank's interfaces; the first one's is [`address`].
pub(crate) fn interface(rank: usize, index: usize) -> IpAddr {
    let [high, low] = (rank as u16 + 1).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, index as u8, high, low))
}

/// A rank that sends at line rate to the others.
pub(crate) fn config(rank: u16, world: u16) -> EndpointConfig {
    let mut config = EndpointConfig::new(rank, world, LINE_BPS);
    config.rate = RateConfig::Fixed(None);
    let others = (0..usize::from(world)).filter(|&other| other != usize::from(rank));
    config.peers = others.map(|other| (other as u16, address(other))).collect();
    config
}

/// A datagram on the network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Datagram {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) source: SocketAddr,
    pub(crate) tos: u8,
    /// What is over its header, of DATA.
    pub(crate) mask: HeaderMask,
    pub(crate) payload: Vec<u8>,
}

impl Datagram {
    /// The header of DATA as it was before it was masked.
    pub(crate) fn header(&self) -> Result<Header, PacketError> {
        Header::parse_masked(&self.payload, self.mask)
    }
}

type Flying = Reverse<(u64, u64, Datagram)>;

#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) now_ns: u64,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Ranks whose datagrams vanish, both ways.
    pub(crate) dead: Vec<bool>,
    /// Interfaces that lead nowhere.
    pub(crate) down: BTreeSet<IpAddr>,
    /// From where to where bursts went, and whether they were data.
    pub(crate) ways: BTreeSet<(IpAddr, IpAddr, bool)>,
    /// Ranks that nobody drives until then: what arrives waits in their sockets.
    pub(crate) paused_until_ns: Vec<u64>,
    /// With when each came: a driver's kernel stamps arrivals.
    inboxes: Vec<Vec<(u64, Datagram)>>,
    pub(crate) faults: Faults,
    pub(crate) random: Random,
    /// Drops or changes a datagram before chance does: (from, datagram, how many of this kind
    /// before).
    pub(crate) script: Option<fn(usize, &Datagram, u64) -> bool>,
    /// Drops what leaves at a time: paths that are dead.
    pub(crate) blocked: Option<fn(u64, &Datagram) -> bool>,
    /// Bytes of the longest IP packet that the path carries at a time, from rank to rank; longer
    /// ones vanish.
    pub(crate) carries: Option<fn(u64, usize, usize) -> usize>,
    /// Longest IP packet that got through of each kind, from rank to rank.
    pub(crate) longest: BTreeMap<(usize, usize, u8), usize>,
    seen: BTreeMap<u8, u64>,
    flying: BinaryHeap<Flying>,
    sent: u64,
    /// (from, to) → packet index → most bytes of it that have been delivered in one datagram from
    /// plane 0.
    pub(crate) delivered: BTreeMap<(usize, usize, u32), BTreeMap<u32, usize>>,
    /// All departures: (time, from, datagram).
    pub(crate) log: Vec<(u64, usize, Datagram)>,
    pub(crate) keep_log: bool,
    /// Peaks of packets of which a coordinate is beyond the quantiser's usual end, by sender,
    /// message and packet, if they are wanted.
    pub(crate) stretched: Option<BTreeMap<(usize, u32, u32), u8>>,
    departed: u64,
    /// More datagrams than this, and 500 a second, are a failure.
    pub(crate) most: u64,
}

impl Network {
    pub(crate) fn new(world: u16, faults: Faults, seed: u64, reliability: Reliability) -> Self {
        Self::with(world, faults, seed, |config| config.reliability = reliability)
    }

    pub(crate) fn with(world: u16, faults: Faults, seed: u64, change: impl Fn(&mut EndpointConfig)) -> Self {
        let endpoint = |rank| {
            let mut config = config(rank, world);
            if faults.drop_data.max(faults.trim) > 0.3 {
                // One packet in thirty gets through when half are dropped and trims leave less than
                // a plane: slow, not dead.
                config.timeouts.give_up_ns = 600_000_000_000;
            }
            change(&mut config);
            Endpoint::new(config)
        };
        Self {
            now_ns: 0,
            endpoints: (0..world).map(endpoint).collect(),
            dead: vec![false; usize::from(world)],
            down: BTreeSet::new(),
            ways: BTreeSet::new(),
            paused_until_ns: vec![0; usize::from(world)],
            inboxes: vec![Vec::new(); usize::from(world)],
            faults,
            random: Random(seed),
            script: None,
            blocked: None,
            carries: None,
            longest: BTreeMap::new(),
            seen: BTreeMap::new(),
            flying: BinaryHeap::new(),
            sent: 0,
            delivered: BTreeMap::new(),
            log: Vec::new(),
            keep_log: false,
            stretched: None,
            departed: 0,
            most: u64::MAX,
        }
    }

    /// Puts what the endpoints want to send into flight, and hands their events to `on_event`.
    fn drain(
        &mut self,
        on_event: &mut impl FnMut(&mut Self, usize, Event),
        work: &mut impl FnMut(&mut Self, usize) -> bool,
    ) {
        loop {
            let mut quiet = true;
            for rank in 0..self.endpoints.len() {
                if self.is_paused(rank) {
                    continue;
                }
                while let Some(event) = self.endpoints[rank].poll_event() {
                    quiet = false;
                    on_event(self, rank, event);
                }
                while work(self, rank) {
                    quiet = false;
                }
                while let Some(burst) = self.endpoints[rank].poll_transmit(self.now_ns) {
                    quiet = false;
                    self.depart(rank, &burst);
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn is_paused(&self, rank: usize) -> bool {
        self.paused_until_ns[rank] > self.now_ns
    }

    /// Puts a new endpoint in the place of a rank's.
    pub(crate) fn restart(&mut self, rank: usize, endpoint: Endpoint) {
        self.endpoints[rank] = endpoint;
        self.inboxes[rank].clear();
        self.paused_until_ns[rank] = 0;
    }

    /// A datagram arrives at a time, whatever the network does to others.
    pub(crate) fn inject(&mut self, at_ns: u64, datagram: Datagram) {
        self.sent += 1;
        self.flying.push(Reverse((at_ns.max(self.now_ns), self.sent, datagram)));
    }

    fn depart(&mut self, from: usize, burst: &Burst) {
        let interfaces = |rank: usize| self.endpoints[rank].config().addresses.len().max(1);
        let has = |rank: usize| (0..interfaces(rank)).any(|index| interface(rank, index) == burst.to.ip());
        let Some(to) = (0..self.endpoints.len()).find(|&rank| has(rank) && burst.to.port() == PORT) else {
            return;
        };
        let (port, index) = match burst.origin {
            Origin::Listening(index) => (PORT, index),
            Origin::Path(path) => (self.endpoints[from].config().source_ports[usize::from(path)], path),
        };
        let source = SocketAddr::new(interface(from, usize::from(index) % interfaces(from)), port);
        self.ways.insert((source.ip(), burst.to.ip(), burst.payload[0] & 15 == Kind::Data as u8));
        if self.down.contains(&source.ip()) || self.down.contains(&burst.to.ip()) {
            return;
        }
        for payload in burst.datagrams() {
            let mask = self.endpoints[from].mask();
            let datagram = Datagram { from, to, source, tos: burst.tos, mask, payload: payload.to_vec() };
            self.fly(self.now_ns, datagram);
        }
    }

    /// A datagram leaves at a time: what is given out ahead of it is held until then.
    fn fly(&mut self, leaves_ns: u64, mut datagram: Datagram) {
        let from = datagram.from;
        if self.keep_log {
            self.log.push((leaves_ns, from, datagram.clone()));
        }
        if let Some(stretched) = &mut self.stretched
            && let Ok(header) = datagram.header()
            && header.peak > USUAL_PEAK
        {
            stretched.insert((from, header.prefix.message, header.index), header.peak);
        }
        let most = self.most.saturating_add(self.now_ns / 2_000_000);
        assert!(
            self.departed < most,
            "{} datagrams by {} ns: somebody goes round in circles",
            self.departed,
            self.now_ns
        );
        self.departed += 1;
        let kind = datagram.payload[0] & 15;
        let before = self.seen.entry(kind).or_default();
        *before += 1;
        let before = *before - 1;
        if self.script.is_some_and(|script| script(from, &datagram, before)) {
            return;
        }
        if self.blocked.is_some_and(|blocked| blocked(leaves_ns, &datagram)) {
            return;
        }
        let to = datagram.to;
        if self.dead[from] || self.dead[to] {
            return;
        }
        let length = datagram.payload.len() + IPV4_AND_UDP;
        if self.carries.is_some_and(|carries| length > carries(leaves_ns, from, to)) {
            return;
        }
        let longest = self.longest.entry((from, to, kind)).or_default();
        *longest = length.max(*longest);
        let data = [Kind::Data as u8, Kind::Piece as u8].contains(&kind);
        let (drop, delay_ns) = if data {
            (self.faults.drop_data, self.faults.data_delay_ns)
        } else {
            (self.faults.drop_control, self.faults.control_delay_ns)
        };
        if self.random.chance(drop)
            || self.faults.broken.is_some_and(|broken| broken.takes(leaves_ns, &datagram))
        {
            return;
        }
        if kind == Kind::Data as u8 && self.random.chance(self.faults.trim) {
            let least = self.faults.trim_to_at_least.min(datagram.payload.len());
            let room = self.faults.trim_to_at_most.min(datagram.payload.len()).max(least) - least;
            datagram.payload.truncate(least + self.random.below(room as u64 + 1) as usize);
            datagram.tos = self.faults.trimmed_dscp << 2 | datagram.tos & 3;
        }
        if self.faults.damage > 0.0 && self.random.chance(self.faults.damage) {
            let of_header = if data { HEADER_LEN } else { usize::MAX };
            let bytes = datagram.payload.len().min(of_header);
            let bit = self.random.below(8 * bytes as u64) as usize;
            datagram.payload[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = 1 + u64::from(self.random.chance(self.faults.duplicate));
        for _ in 0..copies {
            let at_ns = leaves_ns + delay_ns + self.random.below(self.faults.jitter_ns + 1);
            self.sent += 1;
            self.flying.push(Reverse((at_ns, self.sent, datagram.clone())));
        }
    }

    /// Runs until nothing is left to happen or `until_ns` has come.
    pub(crate) fn run(&mut self, until_ns: u64, on_event: impl FnMut(&mut Self, usize, Event)) {
        self.run_with(until_ns, on_event, |_, _| false);
    }

    /// Likewise, and lets ranks work: `work` tells whether there was anything to do.
    pub(crate) fn run_with(
        &mut self,
        until_ns: u64,
        mut on_event: impl FnMut(&mut Self, usize, Event),
        mut work: impl FnMut(&mut Self, usize) -> bool,
    ) {
        loop {
            self.drain(&mut on_event, &mut work);
            let timeouts = (0..self.endpoints.len()).filter_map(|rank| {
                if self.is_paused(rank) {
                    return Some(self.paused_until_ns[rank]);
                }
                self.endpoints[rank].poll_timeout()
            });
            let timeouts = timeouts.min();
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
                let Some(Reverse((_, _, datagram))) = self.flying.pop() else { break };
                self.arrive(self.now_ns, &datagram);
            }
            for rank in 0..self.endpoints.len() {
                if self.is_paused(rank) {
                    continue;
                }
                for (came_ns, datagram) in std::mem::take(&mut self.inboxes[rank]) {
                    self.arrive(came_ns, &datagram);
                }
                let endpoint = &mut self.endpoints[rank];
                if endpoint.poll_timeout().is_some_and(|at_ns| at_ns <= self.now_ns) {
                    endpoint.handle_timeout(self.now_ns);
                }
            }
        }
    }

    fn arrive(&mut self, came_ns: u64, datagram: &Datagram) {
        let Datagram { from, to, source, tos, payload, .. } = datagram;
        if self.is_paused(*to) {
            // A socket's buffer holds so many.
            if self.inboxes[*to].len() < 1_000 {
                self.inboxes[*to].push((came_ns, datagram.clone()));
            }
            return;
        }
        if let Ok(header) = datagram.header()
            && header.first_plane == 0
        {
            let best = self.delivered.entry((*from, *to, header.prefix.message)).or_default();
            let bytes = best.entry(header.index).or_default();
            *bytes = (*bytes).max(payload.len());
        }
        let arrived = Arrived { age_ns: self.now_ns - came_ns, ..Arrived::now(*source, *tos) };
        self.endpoints[*to].handle_datagram(self.now_ns, arrived, payload);
    }

    /// Runs to the end and gives all events but rows.
    pub(crate) fn finish(&mut self, until_ns: u64) -> Vec<(usize, Event)> {
        let mut events = self.finish_with_rows(until_ns);
        events.retain(|(_, event)| !matches!(event, Event::Row { .. }));
        events
    }

    /// Runs to the end and gives all events.
    pub(crate) fn finish_with_rows(&mut self, until_ns: u64) -> Vec<(usize, Event)> {
        let mut events = Vec::new();
        self.run(until_ns, |_, rank, event| events.push((rank, event)));
        events
    }
}

pub(crate) fn kind(datagram: &Datagram) -> Kind {
    Prefix::parse(&datagram.payload).expect("own packet").kind
}

pub(crate) fn layout(length: usize) -> Layout {
    Layout::new(length, DEFAULT_COORDINATES_PER_PACKET)
        .and_then(|layout| layout.with_row_log2(12))
        .expect("valid layout")
}

pub(crate) const JOB: Job = Job::new(1);

pub(crate) fn encode(endpoint: &Endpoint, message: u32, gradient: &[f32], planes: u8) -> Message {
    encode_in(layout(gradient.len()), endpoint, message, gradient, planes)
}

pub(crate) fn encode_in(
    layout: Layout,
    endpoint: &Endpoint,
    message: u32,
    gradient: &[f32],
    planes: u8,
) -> Message {
    let envelope = Envelope { stream: endpoint.stream(), message };
    let mut out = Message::default();
    // `Random::gradient` has an energy of 4/3 a coordinate.
    let choice = RowChoice { planes, importance: Importance::AtLeast(0.5) };
    Encoder::new(layout, JOB).encode_with(gradient, envelope, |_row| choice, &mut out).expect("finite");
    out
}

/// To receive a gradient with an endpoint's reliability.
pub(crate) fn expectation(endpoint: &Endpoint, length: usize) -> Expectation {
    Expectation {
        layout: layout(length),
        codec: Codec::Rht,
        job: JOB,
        decoding: Decoding::Unbiased,
        reliability: endpoint.config().reliability,
        planes: PLANES,
        until_ns: None,
        keep: None,
        origin: None,
        agree: false,
    }
}

impl Network {
    /// `rank` expects a gradient of so many coordinates from `from`.
    pub(crate) fn expect(&mut self, rank: usize, from: u16, message: u32, length: usize) {
        let expectation = expectation(&self.endpoints[rank], length);
        self.endpoints[rank].expect(self.now_ns, from, message, expectation).expect("expected once");
    }

    /// `rank` sends a gradient to `to`.
    pub(crate) fn send(&mut self, rank: usize, to: u16, message: u32, gradient: &[f32]) {
        let encoded = encode(&self.endpoints[rank], message, gradient, PLANES);
        self.endpoints[rank].send(self.now_ns, to, &encoded).expect("sent once");
    }
}

/// The rows of a message, as they came.
#[derive(Debug, Default)]
pub(crate) struct Rows(pub(crate) BTreeMap<usize, RowReceiver>);

impl Rows {
    /// Takes a row; each comes once.
    pub(crate) fn take(&mut self, row: RowReceiver) {
        assert!(self.0.insert(row.row(), row).is_none(), "a row came twice");
    }

    /// Planes held of a packet.
    pub(crate) fn coverage(&self, layout: &Layout, index: usize) -> u8 {
        self.0[&layout.packet_row(index)].coverage(index)
    }

    /// The decoded gradient.
    pub(crate) fn decode(&self, layout: &Layout) -> Vec<f32> {
        assert_eq!(self.0.len(), layout.rows(), "all rows came");
        let mut out = vec![0.0; layout.coordinates()];
        for (&row, receiver) in &self.0 {
            receiver.decode_into(&mut out[layout.row_coordinates(row)]).expect("of its length");
        }
        out
    }
}
