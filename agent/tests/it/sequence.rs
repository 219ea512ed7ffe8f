// SPDX-License-Identifier: Apache-2.0
//! Any sequence of sends, expectations, cancellations, pauses and restarts, between ranks whose
//! network misbehaves and in which a stranger forges packets and repeats recorded ones: against a
//! model that knows what every message holds.

use crate::network;
use crate::network::{Datagram, Faults, JOB, Network, Random, address, config, expectation};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use trimwire_agent::endpoint::{
    Endpoint, EndpointConfig, Event, ExpectError, Expectation, Reliability, SendError,
};
use trimwire_agent::transfer::TransferError;
use trimwire_agent::wire::{Abort, CONTROL_LEN_MAX, Identity, Reason, Report, Stop, Writer, checked};
use trimwire_encoder::wire::{Codec, Kind, StreamId};
use trimwire_encoder::{
    DEFAULT_COORDINATES_PER_PACKET, Decoding, Encoder, Envelope, HeaderMask, Importance, Layout, Message,
    PLANES, RowChoice, RowReceiver, SealKey,
};

const ADVERSARY: Faults = Faults {
    data_delay_ns: 100_000,
    control_delay_ns: 50_000,
    jitter_ns: 100_000,
    drop_data: 0.4,
    drop_control: 0.4,
    trim: 0.6,
    trim_to_at_least: 200,
    duplicate: 0.3,
    ..Faults::NONE
};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
/// Source ports of DATA, the same in all incarnations: tags tell those of sealed jobs apart, masks
/// the others'.
const PORTS: std::ops::Range<u16> = 50_000..50_016;

/// What somebody does.
#[derive(Debug, Clone, Copy)]
enum Op {
    /// Begins a message: which ranks, how long, layer class, planes; the receiver expects it
    /// already if `expected`.
    Send { pair: u8, length: u16, class: u8, planes: u8, expected: bool },
    /// Expects a message that is not expected yet.
    Expect(u8),
    /// Lets time pass, µs.
    Wait(u32),
    /// Everybody's application is busy for minutes; the endpoints are driven.
    Checkpoint(u8),
    /// A rank is not driven for so many ms.
    Pause { rank: u8, ms: u16 },
    /// Gives a message up, at the sender or at the receiver.
    Cancel { message: u8, sender: bool },
    /// Uses the number of a message that is over.
    Reuse(u8),
    /// A rank's process ends, and starts anew.
    Restart(u8),
    /// Tells an endpoint what is over.
    Retire(u8),
    /// Recorded packets arrive again.
    Replay { first: u16, count: u8 },
    /// A stranger's packet.
    Forge { pair: u8, message: u8, what: u8, knows: bool },
}

fn op() -> impl Strategy<Value = Op> {
    let send = || {
        (any::<u8>(), 1_u16..9_000, 0_u8..8, prop_oneof![4 => Just(PLANES), 1 => 1_u8..PLANES], any::<bool>())
            .prop_map(|(pair, length, class, planes, expected)| Op::Send {
                pair,
                length,
                class,
                planes,
                expected,
            })
    };
    prop_oneof![
        10 => send(),
        5 => any::<u8>().prop_map(Op::Expect),
        6 => (0_u32..3_000).prop_map(Op::Wait),
        1 => (1_u8..4).prop_map(Op::Checkpoint),
        1 => (any::<u8>(), 1_u16..8_000).prop_map(|(rank, ms)| Op::Pause { rank, ms }),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(message, sender)| Op::Cancel { message, sender }),
        2 => any::<u8>().prop_map(Op::Reuse),
        1 => any::<u8>().prop_map(Op::Restart),
        1 => any::<u8>().prop_map(Op::Retire),
        3 => (any::<u16>(), 1_u8..60).prop_map(|(first, count)| Op::Replay { first, count }),
        3 => (any::<u8>(), any::<u8>(), any::<u8>(), any::<bool>())
            .prop_map(|(pair, message, what, knows)| Op::Forge { pair, message, what, knows }),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Nothing has been asked of the endpoint yet.
    Waiting,
    Live,
    /// Well.
    Done,
    /// The application does not want it any more, or its process is gone.
    Dropped,
    /// The endpoint refused it.
    Refused,
    Failed(TransferError),
}

#[derive(Debug)]
struct Entry {
    from: usize,
    to: usize,
    id: u32,
    layout: Layout,
    planes: u8,
    /// Incarnations of both ends when it was planned.
    incarnations: (u32, u32),
    sender: Side,
    receiver: Side,
    rows: BTreeSet<usize>,
    missing: u32,
    /// Somebody cancelled it, or an end started anew in its life.
    disturbed: bool,
}

struct World {
    network: Network,
    incarnations: Vec<u32>,
    entries: Vec<Entry>,
    next_id: u32,
    reliability: Reliability,
    sealed: bool,
    /// (Rank, peer, incarnations of both): something came of a message between them.
    met: BTreeSet<(usize, usize, u32, u32)>,
    /// By rank: what it was told to be over.
    retired: Vec<u32>,
}

fn endpoint(rank: usize, world: u16, incarnation: u32, reliability: Reliability, sealed: bool) -> Endpoint {
    let mut config = config(rank as u16, world);
    change(&mut config, incarnation, reliability, sealed);
    Endpoint::new(config)
}

fn change(config: &mut EndpointConfig, incarnation: u32, reliability: Reliability, sealed: bool) {
    config.incarnation = incarnation;
    config.reliability = reliability;
    config.window = 60_000;
    config.seal = sealed.then(|| SealKey::from_bytes(&[7; 16]).expect("16 bytes"));
    config.source_ports = PORTS.collect();
}

fn seed_of(entry: &Entry) -> u64 {
    u64::from(entry.id) << 32
        ^ u64::from(entry.incarnations.0) << 8
        ^ (entry.from as u64) << 4
        ^ entry.to as u64
}

fn encode(entry: &Entry, endpoint: &Endpoint, sealed: bool) -> Message {
    let gradient = Random(seed_of(entry)).gradient(entry.layout.coordinates());
    let stream = StreamId::new(0, entry.from as u16).expect("fits");
    let mut encoder = Encoder::new(entry.layout.clone(), JOB);
    if sealed && let Some(sealer) = endpoint.sealer() {
        encoder = encoder.sealed(sealer);
    }
    let choice = RowChoice { planes: entry.planes, importance: Importance::AtLeast(0.5) };
    let mut out = Message::default();
    let envelope = Envelope { stream, message: entry.id };
    encoder.encode_with(&gradient, envelope, |_| choice, &mut out).expect("finite");
    out
}

impl World {
    fn new(world: u16, faults: Faults, seed: u64, reliability: Reliability, sealed: bool) -> Self {
        let incarnations: Vec<u32> = (0..u32::from(world)).map(|rank| 100 * rank + 1).collect();
        let mut network = Network::with(world, faults, seed, |config| {
            let incarnation = 100 * u32::from(config.rank) + 1;
            change(config, incarnation, reliability, sealed);
        });
        network.keep_log = true;
        network.most = 40_000;
        let retired = vec![0; usize::from(world)];
        Self {
            network,
            incarnations,
            entries: Vec::new(),
            next_id: 1,
            reliability,
            sealed,
            met: BTreeSet::new(),
            retired,
        }
    }

    fn world(&self) -> usize {
        self.incarnations.len()
    }

    fn pair(&self, pair: u8) -> (usize, usize) {
        let from = usize::from(pair) % self.world();
        (from, (from + 1 + usize::from(pair) / self.world() % (self.world() - 1)) % self.world())
    }

    fn live(&self, at: usize) -> bool {
        let entry = &self.entries[at];
        entry.incarnations == (self.incarnations[entry.from], self.incarnations[entry.to])
    }

    fn pick(&self, of: u8, which: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.entries.len()).filter(|&at| which(self, at)).collect();
        (!all.is_empty()).then(|| all[usize::from(of) % all.len()])
    }

    /// The newest message of an id between two ranks, in their incarnations of today.
    fn find(&mut self, from: usize, to: usize, id: u32) -> Option<usize> {
        (0..self.entries.len()).rev().find(|&at| {
            let entry = &self.entries[at];
            (entry.from, entry.to, entry.id) == (from, to, id)
        })
    }

    fn run(&mut self, duration_ns: u64) -> Result<(), TestCaseError> {
        let until_ns = self.network.now_ns.saturating_add(duration_ns);
        let mut events = Vec::new();
        self.network.run(until_ns, |_, rank, event| events.push((rank, event)));
        self.network.now_ns = self.network.now_ns.max(until_ns);
        events.into_iter().try_for_each(|(rank, event)| self.on_event(rank, event))
    }

    fn on_event(&mut self, rank: usize, event: Event) -> Result<(), TestCaseError> {
        let both = match &event {
            Event::Row { from, message, .. } | Event::Received { from, message, .. } => {
                Some((usize::from(*from), self.find(usize::from(*from), rank, *message)))
            }
            Event::Sent { to, message, .. } => {
                Some((usize::from(*to), self.find(rank, usize::from(*to), *message)))
            }
            _ => None,
        };
        if let Some((peer, Some(at))) = both
            && self.live(at)
        {
            self.met.insert((rank, peer, self.incarnations[rank], self.incarnations[peer]));
        }
        let unknown = |what: &str| TestCaseError::fail(format!("rank {rank}: {what} of no message"));
        match event {
            Event::Row { from, message, row } => {
                let at = self.find(usize::from(from), rank, message).ok_or_else(|| unknown("row"))?;
                if self.entries[at].receiver == Side::Dropped {
                    return Ok(());
                }
                prop_assert_eq!(self.entries[at].receiver, Side::Live, "row of {:?}", self.entries[at]);
                self.check_row(at, &row)?;
                let entry = &mut self.entries[at];
                prop_assert!(entry.rows.insert(row.row()), "row {} of {} twice", row.row(), entry.id);
                entry.missing +=
                    entry.layout.row_packets(row.row()).filter(|&p| row.coverage(p) == 0).count() as u32;
            }
            Event::Received { from, message, stats } => {
                let at = self.find(usize::from(from), rank, message).ok_or_else(|| unknown("end"))?;
                let reliability = self.reliability;
                let entry = &mut self.entries[at];
                if entry.receiver == Side::Dropped {
                    return Ok(());
                }
                prop_assert_eq!(entry.receiver, Side::Live);
                entry.receiver = Side::Done;
                prop_assert_eq!(entry.rows.len(), entry.layout.rows(), "all rows before the end");
                prop_assert_eq!(entry.missing, stats.missing);
                let loss = match reliability {
                    Reliability::Full => 0.0,
                    Reliability::Bounded { loss } => loss,
                };
                prop_assert!(f64::from(stats.missing) <= f64::from(loss) * f64::from(stats.packets));
            }
            Event::Sent { to, message, .. } => {
                let at = self.find(rank, usize::from(to), message).ok_or_else(|| unknown("sent"))?;
                if self.entries[at].sender == Side::Dropped {
                    return Ok(());
                }
                prop_assert_eq!(self.entries[at].sender, Side::Live);
                self.entries[at].sender = Side::Done;
                let (entry, now) = (&self.entries[at], self.live(at));
                // Whoever is told that it arrived is told the truth.
                let arrived = entry.receiver == Side::Done
                    || entry.receiver == Side::Dropped && (entry.disturbed || !now);
                prop_assert!(arrived, "silently lost: {:?}", entry);
            }
            Event::Failed { peer, message, error } => {
                let peer = usize::from(peer);
                let out = self.find(rank, peer, message).filter(|&at| self.entries[at].sender == Side::Live);
                let inward =
                    self.find(peer, rank, message).filter(|&at| self.entries[at].receiver == Side::Live);
                if matches!(error, TransferError::Restarted { .. }) {
                    prop_assert!(
                        self.incarnations[peer] > 100 * peer as u32 + 1,
                        "{} has never started anew",
                        peer
                    );
                    let session = (rank, peer, self.incarnations[rank], self.incarnations[peer]);
                    prop_assert!(
                        !self.met.contains(&session),
                        "{} has not started anew since it was met",
                        peer
                    );
                    // Of what was begun before this end heard of the restart, the other end may
                    // know nothing.
                    out.into_iter().chain(inward).for_each(|at| self.entries[at].disturbed = true);
                }
                match (out, inward) {
                    (Some(at), _) => self.entries[at].sender = Side::Failed(error),
                    (None, Some(at)) => self.entries[at].receiver = Side::Failed(error),
                    (None, None) => {
                        let known = self.find(rank, peer, message).or_else(|| self.find(peer, rank, message));
                        prop_assert!(known.is_some_and(|at| self.entries[at].disturbed), "{error}");
                    }
                }
            }
            Event::Passed { .. } | Event::Agreed { .. } | Event::Epoch(_) => {
                prop_assert!(false, "nothing is agreed");
            }
        }
        Ok(())
    }

    /// A row decodes, bit for bit, to what its sender's packets decode to when trimmed as these
    /// were.
    fn check_row(&self, at: usize, row: &RowReceiver) -> Result<(), TestCaseError> {
        let entry = &self.entries[at];
        let stream = StreamId::new(0, entry.from as u16).expect("fits");
        let envelope = Envelope { stream, message: entry.id };
        let message = encode(entry, &self.network.endpoints[entry.from], false);
        let mut quiet = RowReceiver::new(&entry.layout, row.row(), JOB, envelope, Decoding::Unbiased);
        for index in entry.layout.row_packets(row.row()) {
            let planes = row.coverage(index);
            if planes > 0 {
                let packet = message.packet(index);
                quiet
                    .receive(&packet[..entry.layout.packet_len(Codec::Rht, index, planes)])
                    .expect("own packet");
                prop_assert_eq!(quiet.coverage(index), planes);
            }
            if self.reliability == Reliability::Full {
                prop_assert_eq!(planes, entry.planes);
            }
        }
        let range = entry.layout.row_coordinates(row.row());
        let (mut got, mut expected) = (vec![0.0_f32; range.len()], vec![0.0_f32; range.len()]);
        row.decode_into(&mut got).expect("of its length");
        quiet.decode_into(&mut expected).expect("of its length");
        let trimmed = |index| row.arrived(index) && row.coverage(index) < entry.planes;
        if entry.layout.row_packets(row.row()).any(trimmed) {
            // Of a plane that was trimmed in its middle the front is used, too.
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            let alike = dot(&got, &expected) / (dot(&got, &got) * dot(&expected, &expected)).sqrt();
            prop_assert!(
                expected.iter().all(|v| *v == 0.0) || alike > 0.5,
                "{alike} alike: row {} of {entry:?}",
                row.row()
            );
        } else {
            let same = got.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
            prop_assert!(same, "wrong content: row {} of {:?}", row.row(), entry);
        }
        Ok(())
    }

    /// Whether an endpoint may refuse this number: it, or a higher one that was retired, was used
    /// before.
    fn may_refuse(&self, at: usize, rank: usize) -> bool {
        let entry = &self.entries[at];
        let before = |other: &Entry| (other.from, other.to, other.id) == (entry.from, entry.to, entry.id);
        self.entries[..at].iter().any(before) || entry.id < self.retired[rank]
    }

    fn open(&mut self, at: usize) -> Result<(), TestCaseError> {
        let from = self.entries[at].from;
        let message = encode(&self.entries[at], &self.network.endpoints[from], self.sealed);
        let to = self.entries[at].to as u16;
        let opened = self.network.endpoints[from].send(self.network.now_ns, to, &message);
        self.entries[at].sender = match opened {
            Ok(()) => Side::Live,
            Err(error) => {
                let told = matches!(error, SendError::Aborted { .. }) && self.entries[at].disturbed;
                prop_assert!(told || self.may_refuse(at, from), "{error}: {:?}", self.entries[at]);
                Side::Refused
            }
        };
        Ok(())
    }

    fn expect(&mut self, at: usize) -> Result<(), TestCaseError> {
        let (to, from, id) = (self.entries[at].to, self.entries[at].from as u16, self.entries[at].id);
        let layout = self.entries[at].layout.clone();
        let expectation = Expectation { layout, ..expectation(&self.network.endpoints[to], 1) };
        let expected = self.network.endpoints[to].expect(self.network.now_ns, from, id, expectation);
        self.entries[at].receiver = match expected {
            Ok(()) => Side::Live,
            Err(error) => {
                let told = matches!(error, ExpectError::Aborted { .. });
                let failed = self.entries[at].disturbed;
                prop_assert!(told && failed || self.may_refuse(at, to), "{error}: {:?}", self.entries[at]);
                Side::Refused
            }
        };
        // What arrived early is handed over at once.
        self.run(0)
    }

    fn add(&mut self, from: usize, to: usize, id: u32, length: usize, class: u8, planes: u8) -> usize {
        let layout = Layout::new(length, DEFAULT_COORDINATES_PER_PACKET)
            .and_then(|layout| layout.with_row_log2(10)?.with_layer_class(class))
            .expect("valid layout");
        let incarnations = (self.incarnations[from], self.incarnations[to]);
        let (sender, receiver, rows) = (Side::Waiting, Side::Waiting, BTreeSet::new());
        let missing = 0;
        self.entries.push(Entry {
            from,
            to,
            id,
            layout,
            planes,
            incarnations,
            sender,
            receiver,
            rows,
            missing,
            disturbed: false,
        });
        self.entries.len() - 1
    }

    fn act(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Send { pair, length, class, planes, expected } => {
                let (from, to) = self.pair(pair);
                // After a restart numbers begin anew, once the receiver has heard of it: before,
                // they are the old ones.
                let now = (self.incarnations[from], self.incarnations[to]);
                let reborn = self.entries.iter().position(|old| {
                    let heard = old.incarnations.0 != now.0 && self.met.contains(&(to, from, now.1, now.0));
                    heard
                        && old.id >= self.retired[from].max(self.retired[to])
                        && (old.from, old.to) == (from, to)
                        && old.incarnations != now
                        && length % 2 == 0
                        && !self
                            .entries
                            .iter()
                            .any(|e| (e.from, e.to, e.id) == (from, to, old.id) && e.incarnations == now)
                });
                let id = reborn.map_or(self.next_id, |at| self.entries[at].id);
                self.next_id += u32::from(reborn.is_none());
                let at = self.add(from, to, id, usize::from(length), class, planes);
                if let Some(old) = reborn {
                    // What its end that is still there does with the old one is over.
                    let now = self.network.now_ns;
                    let restarted_from = self.entries[old].incarnations.0 != self.incarnations[from];
                    if restarted_from && self.entries[old].receiver == Side::Live {
                        self.network.endpoints[to].abort_expect(now, from as u16, id, 0, Reason::Cancelled);
                    }
                    if !restarted_from && self.entries[old].sender == Side::Live {
                        self.network.endpoints[from].abort_send(now, to as u16, id, 0, Reason::Cancelled);
                    }
                    for entry in self.entries.iter_mut().filter(|e| (e.from, e.to, e.id) == (from, to, id)) {
                        entry.disturbed = true;
                    }
                }
                if expected {
                    self.expect(at)?;
                }
                self.open(at)?;
            }
            Op::Expect(of) => {
                let found =
                    self.pick(of, |world, at| world.live(at) && world.entries[at].receiver == Side::Waiting);
                if let Some(at) = found {
                    self.expect(at)?;
                }
            }
            Op::Wait(us) => self.run(u64::from(us) * 1_000)?,
            Op::Checkpoint(minutes) => self.run(u64::from(minutes) * 60 * SECOND)?,
            Op::Pause { rank, ms } => {
                let rank = usize::from(rank) % self.world();
                let duration_ns = u64::from(ms) * MILLISECOND;
                self.network.paused_until_ns[rank] = self.network.now_ns + duration_ns;
                self.run(duration_ns + 3 * SECOND / 2)?;
            }
            Op::Cancel { message, sender } => {
                let found = self.pick(message, |world, at| {
                    let entry = &world.entries[at];
                    world.live(at) && Side::Live == if sender { entry.sender } else { entry.receiver }
                });
                let Some(at) = found else { return Ok(()) };
                self.entries[at].disturbed = true;
                self.drop_side(at, sender);
            }
            Op::Reuse(of) => {
                let over = |side| matches!(side, Side::Done);
                let found = self.pick(of, |world, at| {
                    let entry = &world.entries[at];
                    world.live(at) && over(entry.sender) && over(entry.receiver)
                });
                let Some(at) = found else { return Ok(()) };
                let (from, to, id) = (self.entries[at].from, self.entries[at].to, self.entries[at].id);
                let message = encode(&self.entries[at], &self.network.endpoints[from], self.sealed);
                let sent = self.network.endpoints[from].send(self.network.now_ns, to as u16, &message);
                prop_assert!(matches!(sent, Err(SendError::Reused { .. })), "{id}: {sent:?}");
                let expectation = Expectation {
                    layout: self.entries[at].layout.clone(),
                    ..expectation(&self.network.endpoints[to], 1)
                };
                let expected =
                    self.network.endpoints[to].expect(self.network.now_ns, from as u16, id, expectation);
                prop_assert!(matches!(expected, Err(ExpectError::Reused { .. })), "{id}: {expected:?}");
            }
            Op::Restart(rank) => {
                let rank = usize::from(rank) % self.world();
                self.incarnations[rank] += 1;
                let (world, incarnation) = (self.world() as u16, self.incarnations[rank]);
                let fresh = endpoint(rank, world, incarnation, self.reliability, self.sealed);
                self.network.restart(rank, fresh);
                self.retired[rank] = 0;
                for entry in &mut self.entries {
                    if entry.from == rank && matches!(entry.sender, Side::Live | Side::Waiting) {
                        entry.sender = Side::Dropped;
                        entry.disturbed = true;
                    }
                    if entry.to == rank && matches!(entry.receiver, Side::Live | Side::Waiting) {
                        entry.receiver = Side::Dropped;
                        entry.disturbed = true;
                    }
                }
            }
            Op::Retire(rank) => {
                let rank = usize::from(rank) % self.world();
                let open = self.entries.iter().filter(|entry| {
                    let open = |side| matches!(side, Side::Live | Side::Waiting);
                    entry.from == rank && open(entry.sender) || entry.to == rank && open(entry.receiver)
                });
                let below = open.map(|entry| entry.id).min().unwrap_or(self.next_id);
                self.network.endpoints[rank].retire(below);
                self.retired[rank] = self.retired[rank].max(below);
            }
            Op::Replay { first, count } => {
                let log = &self.network.log;
                if log.is_empty() {
                    return Ok(());
                }
                let first = usize::from(first) % log.len();
                let recorded: Vec<Datagram> = log[first..]
                    .iter()
                    .take(usize::from(count))
                    .map(|(.., datagram)| datagram.clone())
                    .collect();
                // A HELLO of an incarnation that its receiver never met, and that echoes the
                // receiver's, cannot be told from a restart.
                let unmet = |datagram: &Datagram| {
                    let from = datagram
                        .payload
                        .get(8..12)
                        .map_or(0, |word| word.iter().fold(0, |n, b| n << 8 | u32::from(*b)));
                    let (at, of, own) = (datagram.to, datagram.from, self.incarnations[datagram.to]);
                    network::kind(datagram) == Kind::Hello
                        && from != self.incarnations[of]
                        && !self.met.contains(&(at, of, own, from))
                };
                let recorded: Vec<Datagram> =
                    recorded.into_iter().filter(|datagram| !unmet(datagram)).collect();
                for (nth, datagram) in recorded.into_iter().enumerate() {
                    self.network.inject(self.network.now_ns + nth as u64 * 700, datagram);
                }
            }
            Op::Forge { pair, message, what, knows } => self.forge(pair, message, what, knows),
        }
        Ok(())
    }

    /// The application of one end lets go.
    fn drop_side(&mut self, at: usize, sender: bool) {
        let (now, entry) = (self.network.now_ns, &mut self.entries[at]);
        let (from, to) = (entry.from, entry.to);
        if sender {
            entry.sender = Side::Dropped;
            self.network.endpoints[from].abort_send(now, to as u16, entry.id, from as u16, Reason::Cancelled);
        } else {
            entry.receiver = Side::Dropped;
            self.network.endpoints[to].abort_expect(now, from as u16, entry.id, to as u16, Reason::Cancelled);
        }
    }

    /// Right job, rank and message; who knows the incarnations sends from elsewhere, who does not
    /// forges the source.
    fn forge(&mut self, pair: u8, message: u8, what: u8, knows: bool) {
        let (from, to) = self.pair(pair);
        let id = self.pick(message, |_, _| true).map_or(1, |at| self.entries[at].id);
        let stream = StreamId::new(0, from as u16).expect("fits");
        let right = Identity { from: self.incarnations[from], to: self.incarnations[to] };
        let identity = if knows {
            right
        } else {
            let both = [
                (right.from ^ 0x55, right.to ^ 0xaa),
                (right.from, 0),
                (right.from, right.to ^ 1),
                (9_999, right.to + 7),
            ];
            let (from, to) = both[usize::from(what) / 8 % 4];
            Identity { from, to }
        };
        let writer = Writer { stream, identity, room: CONTROL_LEN_MAX };
        let mut source = address(from);
        if knows {
            // Another host, or another port.
            source = if what & 128 == 0 {
                SocketAddr::new([10, 0, 9, 9].into(), source.port())
            } else {
                SocketAddr::new(source.ip(), 40_000)
            };
        }
        let stop = Stop { sequence: 1, report: Report::default(), missing: 0, agreed: 0, map: None };
        let payload = match what % 5 {
            0 => checked(writer.stop(id, &stop, None).0),
            1 => checked(writer.abort(id, Abort { reason: Reason::Lost, culprit: 1 })),
            2 => checked(writer.hello(false, &[40_000], &[])),
            3 => checked(writer.hello(true, &[40_000], &[])),
            _ => {
                // Who does not know the incarnation may guess the port.
                source = SocketAddr::new(
                    source.ip(),
                    if knows { 40_000 } else { PORTS.start + u16::from(what) / 5 % 16 },
                );
                let layout = Layout::new(500, DEFAULT_COORDINATES_PER_PACKET).expect("valid");
                let mut out = Message::default();
                let envelope = Envelope { stream, message: id };
                Encoder::new(layout, JOB).encode(&[9.0; 500], envelope, PLANES, &mut out).expect("finite");
                out.packet(0).to_vec()
            }
        };
        let datagram = Datagram { from, to, source, tos: 3 << 2, mask: HeaderMask::NONE, payload };
        self.network.inject(self.network.now_ns, datagram);
    }

    /// Everything is brought to an end.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        for at in 0..self.entries.len() {
            if self.live(at) && self.entries[at].receiver == Side::Waiting {
                self.expect(at)?;
            }
        }
        self.run(60 * SECOND)?;
        let open = |side| matches!(side, Side::Live | Side::Waiting);
        for at in 0..self.entries.len() {
            let entry = &self.entries[at];
            // Who waits for a message of which the other end knows nothing is told by its
            // application alone.
            let (s, r) = (open(entry.sender), open(entry.receiver));
            if !entry.disturbed && entry.sender != Side::Refused && entry.receiver != Side::Refused {
                prop_assert_eq!((entry.sender, entry.receiver), (Side::Done, Side::Done), "{:?}", entry);
            }
            if s {
                self.drop_side(at, true);
            }
            if r {
                self.drop_side(at, false);
            }
        }
        self.run(60 * SECOND)?;
        for rank in 0..self.world() {
            self.network.endpoints[rank].retire(self.next_id);
        }
        self.run(60 * SECOND)?;
        for (rank, endpoint) in self.network.endpoints.iter().enumerate() {
            prop_assert_eq!(endpoint.poll_timeout(), None, "rank {} goes on", rank);
            let (bytes, endings) = endpoint.footprint();
            prop_assert_eq!(bytes, 0, "rank {}", rank);
            prop_assert!(endings <= 2 * 256 * (self.world() - 1));
        }
        Ok(())
    }
}

fn run(
    world: u16,
    faults: Faults,
    seed: u64,
    reliability: Reliability,
    sealed: bool,
    ops: &[Op],
) -> Result<(), TestCaseError> {
    let mut world = World::new(world, faults, seed, reliability, sealed);
    for &op in ops {
        world.act(op)?;
    }
    world.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, max_shrink_iters: 600, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_operations_ends_and_delivers_nothing_wrong_or_stale(
        world in 2_u16..4, faults in ADVERSARY.any_up_to(), seed: u64, sealed: bool,
        loss in prop_oneof![Just(None), (0.0_f32..0.3).prop_map(Some)],
        ops in prop::collection::vec(op(), 1..40),
    ) {
        let reliability = loss.map_or(Reliability::Full, |loss| Reliability::Bounded { loss });
        run(world, faults, seed, reliability, sealed, &ops)?;
    }
}
