// SPDX-License-Identifier: Apache-2.0
//! What ranks should have: sums in f64, and by how much they may err for what was trimmed or lost.
//!
//! The error of a row that arrived with parts missing is known in closed form
//! (docs/reference/wire-format.md §9): of Gaussian coordinates, which a rotated row's are, share L
//! of the energy is lost, and decoding without bias makes L / (1 − L) of that. Here these are added
//! up over all hops that a rank's result has behind it, from what each receiver held of each packet
//! when it handed its row over.

use super::case::{Case, Kind, Plan, Promise};
use crate::network::Random;
use half::{bf16, f16};
use std::collections::BTreeMap;
use trimwire_agent::collective::{ElementType, Memory, MessageId, Phase, shard_range};
use trimwire_encoder::quantiser::distortion;
use trimwire_encoder::{PLANES, RowReceiver, nmse};

/// Of a quantiser in σ, where no coordinate is beyond it.
const USUAL_END: f64 = 8.625 * 17.0 / 32.0;

/// What a receiver held of a row.
#[derive(Debug, Clone)]
struct Held {
    /// Coordinates of the row, as the application has them, and as they were rotated.
    coordinates: usize,
    padded: f64,
    /// Index of its first packet.
    first: u32,
    packets: Vec<Packet>,
}

/// What was held of a packet.
#[derive(Debug, Clone)]
struct Packet {
    coordinates: f64,
    planes: u8,
    /// Of the plane behind those, which counts as missing, but is decoded as far as it goes.
    part: f64,
    /// Where its quantiser ends, in σ.
    end: f64,
}

impl Packet {
    /// The share of the energy of its coordinates that is lost.
    fn lost(&self) -> f64 {
        let next = distortion(self.planes.saturating_add(1).min(PLANES));
        distortion(self.planes) + self.part * (next - distortion(self.planes))
    }

    /// The most that the square of one coordinate's error can be, in σ²: half a cell of the last
    /// zone, which reaches to the peak (wire-format §6). One or two of 10,000 coordinates are
    /// there, so that a few hundred have many times their usual error for one of them: of 60,000
    /// rows of 320, the worst had 5 to 8 times.
    fn outlier(&self) -> f64 {
        if !(7..=9).contains(&self.planes) {
            return 0.0;
        }
        let cells = [1.0, 2.0, 512.0][usize::from(self.planes) - 7];
        ((self.end - 7.0 * 17.0 / 32.0) / cells / 2.0).powi(2)
    }

    fn is_nothing(&self) -> bool {
        self.planes == 0 && self.part <= 0.0
    }
}

/// Of one operation: (receiver, sender, phase, shard) → row → what was held.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(BTreeMap<(usize, u16, Phase, u16), BTreeMap<usize, Held>>);

impl Arrivals {
    pub(crate) fn note(&mut self, rank: usize, from: u16, message: u32, row: &RowReceiver) {
        let (layout, number) = (row.layout(), row.row());
        let codec = row.codec();
        let held = |packet: usize| {
            let (coordinates, planes) = (layout.packet_range(packet).len(), row.coverage(packet));
            let rest = row.held(packet).unwrap_or(0).saturating_sub(codec.plane_offset(planes, coordinates));
            let part = (rest as f64 / codec.plane_len(planes, coordinates).max(1) as f64).min(1.0);
            Packet { coordinates: coordinates as f64, planes, part, end: USUAL_END }
        };
        let first = layout.row_packets(number).start as u32;
        let packets: Vec<Packet> = layout.row_packets(number).map(held).collect();
        let padded = packets.iter().map(|packet| packet.coordinates).sum();
        let held = Held { coordinates: layout.row_coordinates(number).len(), padded, first, packets };
        let MessageId { phase, shard, .. } = MessageId::from_u32(message);
        self.0.entry((rank, from, phase, shard)).or_default().insert(number, held);
    }

    /// Takes in the peaks of packets, by sender, message and packet.
    pub(crate) fn stretch(&mut self, number: u32, peaks: &BTreeMap<(usize, u32, u32), u8>) {
        for ((_, from, phase, shard), rows) in &mut self.0 {
            let message = MessageId { number, phase: *phase, shard: *shard }.to_u32();
            for held in rows.values_mut() {
                for (index, packet) in (held.first..).zip(&mut held.packets) {
                    let peak = peaks.get(&(usize::from(*from), message, index));
                    packet.end = peak.map_or(USUAL_END, |&peak| (f64::from(peak) / 32.0).exp2());
                }
            }
        }
    }

    /// Packets of which nothing was held, and all packets, of a rank's messages of most missing
    /// ones: (missing, packets) each.
    pub(crate) fn missing(&self, rank: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mine = self.0.range((rank, 0, Phase::ReduceScatter, 0)..(rank + 1, 0, Phase::ReduceScatter, 0));
        mine.map(|(_, rows)| {
            let packets = || rows.values().flat_map(|held| &held.packets);
            (packets().filter(|packet| packet.planes == 0).count(), packets().count())
        })
    }

    /// Whether every packet had so many planes.
    pub(crate) fn all_have(&self, rank: usize, planes: u8) -> bool {
        let mine = self.0.range((rank, 0, Phase::ReduceScatter, 0)..(rank + 1, 0, Phase::ReduceScatter, 0));
        mine.flat_map(|(_, rows)| rows.values())
            .flat_map(|held| &held.packets)
            .all(|packet| packet.planes >= planes)
    }

    /// Replicas that are to agree decode each packet at the least precision that any of them has.
    pub(crate) fn agree(&mut self) {
        let mut least: BTreeMap<(u16, u16, usize), Vec<u8>> = BTreeMap::new();
        for ((_, from, phase, shard), rows) in &self.0 {
            for (row, held) in rows.iter().filter(|_| *phase == Phase::AllGather) {
                let least =
                    least.entry((*from, *shard, *row)).or_insert_with(|| vec![u8::MAX; held.packets.len()]);
                least
                    .iter_mut()
                    .zip(&held.packets)
                    .for_each(|(least, packet)| *least = (*least).min(packet.planes));
            }
        }
        for ((_, from, phase, shard), rows) in &mut self.0 {
            for (row, held) in rows.iter_mut().filter(|_| *phase == Phase::AllGather) {
                let Some(least) = least.get(&(*from, *shard, *row)) else { continue };
                held.packets.iter_mut().zip(least).for_each(|(packet, &least)| {
                    (packet.planes, packet.part) = (least, 0.0);
                });
            }
        }
    }
}

/// A row's share of the energy that is lost, and over how many coordinates chance evens out what
/// that does: those concerned, or, where little is left, those that what is there is scaled from.
fn lost(held: &Held) -> (f64, f64) {
    let (mut share, mut concerned, mut whole) = (0.0, 0.0, 0.0);
    for packet in &held.packets {
        let lost = packet.lost();
        share += packet.coordinates * lost;
        concerned += if lost > 0.0 { packet.coordinates } else { 0.0 };
        whole += if packet.planes > 0 { packet.coordinates } else { packet.part * packet.coordinates };
    }
    (share / held.padded.max(1.0), concerned.min(whole).max(1.0))
}

/// A part of the squared error of a result, and how many coordinates it is spread over: what chance
/// makes of it.
type Part = (f64, f64);

/// What a rank holds of a row: the energy of a coordinate, and the error in it.
#[derive(Debug, Clone, Default)]
struct Value {
    energy: f64,
    parts: Vec<Part>,
}

struct Walk<'a> {
    plan: &'a Plan,
    arrivals: &'a Arrivals,
    /// Energy of a coordinate of each rank's tensor, 0 of ranks that contribute nothing.
    energies: &'a [f64],
    /// Sums of few coordinates may be of one sign.
    aligned: bool,
    shard: u16,
    row: usize,
    /// Of the row, as the application has it.
    coordinates: usize,
}

impl Walk<'_> {
    /// What a rank has been sent of the row in a phase.
    fn incoming(&self, rank: usize, phase: Phase) -> Vec<(u16, &Held)> {
        let all =
            self.arrivals.0.range((rank, 0, Phase::ReduceScatter, 0)..(rank + 1, 0, Phase::ReduceScatter, 0));
        let mine = all.filter(|((_, _, of, shard), _)| *of == phase && *shard == self.shard);
        mine.filter_map(|((_, from, ..), rows)| Some((*from, rows.get(&self.row)?))).collect()
    }

    /// Whether all that was sent of a row is there.
    fn is_whole(&self, held: &Held) -> bool {
        held.packets.iter().all(|packet| packet.planes >= self.plan.sent_planes())
    }

    /// Energy of a coordinate of the sum of all ranks.
    fn whole(&self) -> f64 {
        if self.aligned {
            self.energies.iter().map(|energy| energy.sqrt()).sum::<f64>().powi(2)
        } else {
            self.energies.iter().sum()
        }
    }

    fn arrived(&self, sent: Value, held: &Held) -> Value {
        let (share, concerned) = lost(held);
        if share <= 0.0 {
            return sent;
        }
        let energy = sent.energy;
        if held.packets.iter().all(Packet::is_nothing) {
            // Zeros: whatever was sent is missing, and whatever that lacked itself.
            let parts = vec![(self.whole() * self.coordinates as f64, self.coordinates as f64)];
            return Value { energy: 0.0, parts };
        }
        let mut parts = sent.parts;
        parts.push((share / (1.0 - share) * energy * self.coordinates as f64, concerned));
        // No chance evens this out.
        let outliers: f64 = held.packets.iter().map(Packet::outlier).sum();
        parts.push((outliers * energy, f64::INFINITY));
        Value { energy: energy / (1.0 - share), parts }
    }

    /// The sum of what comes to a rank and its own part, before anybody is told.
    fn partial(&self, rank: usize, hops: usize) -> Value {
        let mut sum = Value { energy: self.energies[rank], parts: Vec::new() };
        if hops == 0 {
            return sum;
        }
        for (from, held) in self.incoming(rank, Phase::ReduceScatter) {
            let sent = self.partial(usize::from(from), hops - 1);
            let part = self.arrived(sent, held);
            sum.energy = if self.aligned {
                (sum.energy.sqrt() + part.energy.sqrt()).powi(2)
            } else {
                sum.energy + part.energy
            };
            sum.parts.extend(part.parts);
        }
        sum
    }

    /// What a rank has of the row in the end, or passes on.
    fn last(&self, rank: usize, hops: usize) -> Value {
        let incoming = self.incoming(rank, Phase::AllGather);
        if let (Some(&(from, held)), true) = (incoming.first(), hops > 0) {
            let before = self.received(usize::from(from));
            let sent = self.last(usize::from(from), hops - 1);
            // Rows that came whole are passed on as they came: what was not sent of them is missing
            // once.
            let again = before.is_some_and(|before| self.is_whole(before)) && self.is_whole(held);
            return if again { sent } else { self.arrived(sent, held) };
        }
        match self.plan.kind {
            Kind::Broadcast { root } => {
                let root = Value { energy: self.energies[usize::from(root)], parts: Vec::new() };
                // To those who pass them on the root's rows come under the other phase.
                match self.incoming(rank, Phase::ReduceScatter).first() {
                    Some((_, held)) => self.arrived(root, held),
                    None => root,
                }
            }
            _ => self.partial(rank, hops),
        }
    }

    /// The row as it came down to a rank, if it did.
    fn received(&self, rank: usize) -> Option<&Held> {
        let relayed = matches!(self.plan.kind, Kind::Broadcast { .. });
        let phases = [Phase::AllGather, Phase::ReduceScatter];
        let mut came = phases.into_iter().take(if relayed { 2 } else { 1 });
        came.find_map(|phase| self.incoming(rank, phase).first().map(|(_, held)| *held))
    }

    /// What a rank has as its result: of its own shard what the packets say that it sent, or all
    /// agreed on.
    fn result(&self, rank: usize, hops: usize) -> Value {
        let value = self.last(rank, hops);
        if self.received(rank).is_some() || self.plan.promise == Promise::Exact {
            return value;
        }
        if self.plan.consistent {
            let mut told = self.arrivals.0.iter().filter(|((_, from, phase, shard), _)| {
                (usize::from(*from), *phase, *shard) == (rank, Phase::AllGather, self.shard)
            });
            if let Some(held) = told.find_map(|(_, rows)| rows.get(&self.row)) {
                return self.arrived(value, held);
            }
        }
        let share = distortion(self.plan.sent_planes());
        let mut parts = value.parts;
        if share > 0.0 {
            let error = share / (1.0 - share) * value.energy * self.coordinates as f64;
            parts.push((error, self.coordinates as f64));
        }
        Value { parts, ..value }
    }
}

/// The values of a rank's tensor, as they are in its format: small whole numbers where the
/// operation is exact, so that sums are exact in any order.
pub(crate) fn values(case: &Case, number: u32, plan: &Plan, rank: usize) -> Vec<f32> {
    let mut random = Random(case.seed ^ (u64::from(number) + 1) << 44 ^ (rank as u64) << 20);
    if plan.promise == Promise::Exact {
        // Sums have so many bits.
        let room = match plan.element {
            ElementType::F32 => 1 << 23,
            ElementType::F16 => 1 << 11,
            ElementType::Bf16 => 1 << 8,
        };
        let most = (room / u64::from(case.world)).max(1);
        return (0..plan.length).map(|_| random.below(2 * most + 1) as f32 - most as f32).collect();
    }
    let values = random.gradient(plan.length);
    match plan.element {
        ElementType::F32 => values,
        ElementType::F16 => values.iter().map(|&value| f16::from_f32(value).to_f32()).collect(),
        ElementType::Bf16 => values.iter().map(|&value| bf16::from_f32(value).to_f32()).collect(),
    }
}

pub(crate) fn memory(element: ElementType, values: &[f32]) -> Memory {
    match element {
        ElementType::F32 => Memory::from_vec(values.to_vec()),
        ElementType::F16 => Memory::from_vec(values.iter().map(|&value| f16::from_f32(value)).collect()),
        ElementType::Bf16 => Memory::from_vec(values.iter().map(|&value| bf16::from_f32(value)).collect()),
    }
}

/// The results of an operation, and what they may err by.
pub(crate) struct Oracle<'a> {
    case: &'a Case,
    plan: &'a Plan,
    number: u32,
    /// In f64: the sum of all contributions, or what is told to all.
    whole: Vec<f64>,
    energies: Vec<f64>,
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(case: &'a Case, number: u32, plan: &'a Plan) -> Self {
        let world = usize::from(case.world);
        let contributes = |rank: usize| match plan.kind {
            Kind::PushPull { servers } => rank >= usize::from(servers),
            Kind::Broadcast { root } => rank == usize::from(root),
            _ => true,
        };
        let (mut whole, mut energies) = (vec![0.0; plan.length], vec![0.0; world]);
        for rank in (0..world).filter(|&rank| contributes(rank)) {
            let part = values(case, number, plan, rank);
            let own = shard_range(plan.length, case.world, rank as u16);
            let taken = if plan.kind == Kind::AllGather { own } else { 0..plan.length };
            for at in taken {
                whole[at] += f64::from(part[at]);
            }
            let energy: f64 = part.iter().map(|&value| f64::from(value).powi(2)).sum();
            energies[rank] = energy / plan.length.max(1) as f64;
        }
        if plan.average {
            let workers = (0..world).filter(|&rank| contributes(rank)).count();
            if !matches!(plan.kind, Kind::Broadcast { .. } | Kind::AllGather) {
                whole.iter_mut().for_each(|sum| *sum /= workers as f64);
            }
        }
        Self { case, plan, number, whole, energies }
    }

    /// Squares of what averages are of sums.
    fn scale(&self) -> f64 {
        let world = f64::from(self.case.world);
        match self.plan.kind {
            _ if !self.plan.average => 1.0,
            Kind::Broadcast { .. } | Kind::AllGather => 1.0,
            Kind::PushPull { servers } => (world - f64::from(servers)).powi(-2),
            _ => world.powi(-2),
        }
    }

    /// What a rank should have; `None`: nothing.
    fn expected(&self, rank: usize) -> Option<Vec<f64>> {
        match self.plan.kind {
            Kind::ReduceScatter => {
                Some(self.whole[shard_range(self.plan.length, self.case.world, rank as u16)].to_vec())
            }
            Kind::Reduce { root } if rank != usize::from(root) => Some(
                values(self.case, self.number, self.plan, rank).iter().map(|&value| value.into()).collect(),
            ),
            Kind::PushPull { servers } if rank < usize::from(servers) => None,
            _ => Some(self.whole.clone()),
        }
    }

    /// Of rounding, and of what ten planes leave.
    fn rounding(&self) -> f64 {
        match self.plan.element {
            ElementType::F32 => 1e-12 * f64::from(self.case.world),
            ElementType::F16 => 1e-6,
            ElementType::Bf16 => 4e-5,
        }
    }

    /// What is wrong with a rank's result.
    pub(crate) fn check(
        &self,
        rank: usize,
        got: Option<Vec<f32>>,
        arrivals: &Arrivals,
    ) -> Result<(), String> {
        let Some(expected) = self.expected(rank) else {
            return got
                .is_none_or(|got| got.is_empty())
                .then_some(())
                .ok_or_else(|| "a server has a sum".to_owned());
        };
        let got = got.ok_or_else(|| "it has no result".to_owned())?;
        if got.len() != expected.len() {
            return Err(format!("{} coordinates, {} expected", got.len(), expected.len()));
        }
        if self.plan.promise == Promise::Exact {
            let differ =
                got.iter().zip(&expected).filter(|(got, expected)| f64::from(**got) != **expected).count();
            return if differ == 0 {
                Ok(())
            } else {
                Err(format!("{differ} coordinates differ of {}", got.len()))
            };
        }
        let error: f64 =
            got.iter().zip(&expected).map(|(got, expected)| (f64::from(*got) - expected).powi(2)).sum();
        let allowed = self.allowed(rank, got.len(), arrivals);
        let energy: f64 = expected.iter().map(|value| value.powi(2)).sum();
        let text = || {
            let plain: Vec<f32> = expected.iter().map(|&value| value as f32).collect();
            format!(
                "squared error {error:.3e}, allowed {allowed:.3e} of energy {energy:.3e} (NMSE {:.3e})",
                nmse(&got, &plain)
            )
        };
        if error <= allowed { Ok(()) } else { Err(text()) }
    }

    fn allowed(&self, rank: usize, coordinates: usize, arrivals: &Arrivals) -> f64 {
        let world = usize::from(self.case.world);
        let total: f64 = self.energies.iter().sum();
        let aligned = self.plan.length < 256;
        let all = if aligned {
            self.energies.iter().map(|energy| energy.sqrt()).sum::<f64>().powi(2)
        } else {
            total
        };
        // Rows of results that this rank has, or others that contribute to them.
        let mut rows: Vec<(u16, usize, usize)> = arrivals
            .0
            .iter()
            .flat_map(|((.., shard), rows)| rows.iter().map(|(row, held)| (*shard, *row, held.coordinates)))
            .collect();
        rows.sort_unstable();
        rows.dedup();
        let mut parts: Vec<Part> = Vec::new();
        let mut listed = 0;
        for (shard, row, length) in rows {
            let wanted = match self.plan.kind {
                Kind::ReduceScatter => usize::from(shard) == rank,
                Kind::Reduce { root } => usize::from(root) == rank,
                _ => true,
            };
            if !wanted {
                continue;
            }
            listed += length;
            let owned = self.owned(usize::from(shard));
            // Nobody sums what is gathered: each shard is its owner's.
            let energies = if self.plan.kind == Kind::AllGather { &owned } else { &self.energies };
            let walk = Walk { plan: self.plan, arrivals, energies, aligned, shard, row, coordinates: length };
            parts.extend(walk.result(rank, 2 * world).parts);
        }
        // Of rows that nobody else has been given (yet) a rank has what its own packets say.
        let (share, unlisted) =
            (distortion(self.plan.sent_planes()), coordinates.saturating_sub(listed) as f64);
        if share > 0.0 && unlisted > 0.0 {
            parts.push((share / (1.0 - share) * all * unlisted, unlisted));
        }
        let sum: f64 = parts.iter().map(|(error, _)| error).sum();
        let spread: f64 = parts.iter().map(|(error, concerned)| error * error / concerned).sum();
        // Ten deviations of a sum of squares; those of coordinates in a quantiser's outermost cells
        // are many times the others'.
        let chance = if sum > 0.0 { 10.0 * (40.0 * spread).sqrt() / sum } else { 0.0 };
        let floor = self.rounding() * all * coordinates as f64;
        self.scale() * (sum * (1.0 + chance) + floor)
    }

    /// Of a gather: only the owner of a shard contributes to it.
    fn owned(&self, owner: usize) -> Vec<f64> {
        (0..self.energies.len()).map(|rank| if rank == owner { self.energies[rank] } else { 0.0 }).collect()
    }
}
