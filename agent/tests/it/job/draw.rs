// SPDX-License-Identifier: Apache-2.0
//! Any job from a seed.

use super::case::{Case, Kind, MS, Plan, Promise, SECOND, Trouble};
use crate::network::{Broken, Faults, How, Random};
use trimwire_agent::collective::{Algorithm, ElementType};
use trimwire_encoder::PLANES;

/// Packets of one trim map: messages of more have several parts.
const MAP_PACKETS: u64 = 5_212;

/// How much work a case may be, in packets and in coordinates that are coded, over all ranks and
/// operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) packets: u64,
    pub(crate) coordinates: u64,
    /// Most ranks, now and then.
    pub(crate) world: u16,
}

impl Size {
    /// A second or so, in a release build.
    pub(crate) const NIGHTLY: Self = Self { packets: 120_000, coordinates: 4_000_000, world: 256 };
    /// For tests without optimisation.
    pub(crate) const SHORT: Self = Self { packets: 15_000, coordinates: 500_000, world: 32 };
}

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

fn uniform(random: &mut Random, from: f64, to: f64) -> f64 {
    from + (to - from) * (random.next() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Every order of magnitude is as likely as any other.
fn any_size(random: &mut Random, from: u64, to: u64) -> u64 {
    let to = to.max(from);
    let drawn = uniform(random, (from as f64).ln(), (to as f64 + 1.0).ln()).exp();
    (drawn as u64).clamp(from, to)
}

/// What kind of case.
enum Shape {
    Usual,
    /// One or two operations between few ranks, of messages of several map parts.
    Large,
    /// Many ranks.
    Wide,
}

impl Case {
    pub(crate) fn draw(seed: u64, size: Size) -> Self {
        let mut random = Random(seed);
        let random = &mut random;
        let shape = match random.below(20) {
            0 | 1 => Shape::Large,
            2 => Shape::Wide,
            _ => Shape::Usual,
        };
        let world = match shape {
            Shape::Usual => 2 + random.below(7) as u16,
            Shape::Large => 2 + random.below(2) as u16,
            Shape::Wide => any_size(random, 9, size.world.into()) as u16,
        };
        let hosts = match random.below(3) {
            0 => (0..u32::from(world)).map(|rank| rank / 2).collect(),
            1 => (0..world).map(|_| random.below(3) as u32).collect(),
            _ => Vec::new(),
        };
        let coordinates_per_packet = match shape {
            Shape::Large => 32,
            _ => pick(random, &[32, 64, 128, 448, 448, 704]),
        };
        let mut case = Self {
            seed,
            world,
            hosts,
            operations: Vec::new(),
            coordinates_per_packet,
            mtu: if coordinates_per_packet <= 64 { 256 } else { pick(random, &[576, 1_500, 9_000]) },
            row_log2: 7 + random.below(9) as u8,
            faults: Faults::NONE,
            adapts: random.chance(0.3),
            sealed: random.chance(0.15),
            warm: random.chance(0.5),
            trouble: Trouble::None,
        };
        let most = match shape {
            Shape::Usual => any_size(random, 1, 16),
            Shape::Large | Shape::Wide => 1 + random.below(2),
        };
        for _ in 0..most {
            let plan = case.plan(&shape, size, most, random);
            case.operations.push(plan);
        }
        case.faults = case.faults(random);
        case.trouble = case.trouble(random);
        case
    }

    fn plan(&self, shape: &Shape, size: Size, operations: u64, random: &mut Random) -> Plan {
        let world = u64::from(self.world);
        let root = random.below(world) as u16;
        let kind = match random.below(20) {
            0..10 => Kind::AllReduce,
            10..12 => Kind::ReduceScatter,
            12..14 => Kind::AllGather,
            14..16 => Kind::Broadcast { root },
            16..17 => Kind::Reduce { root },
            _ => Kind::PushPull { servers: 1 + random.below((world - 1).min(3)) as u16 },
        };
        let promise = match random.below(10) {
            0..4 => Promise::Bounded { loss: uniform(random, 0.0, 0.05) as f32 },
            4 => Promise::Bounded { loss: 0.0 },
            5..7 => Promise::Reliable,
            7..9 => Promise::Exact,
            _ => Promise::BestEffort { deadline_ns: any_size(random, MS, 50 * MS) },
        };
        let lossy = !matches!(promise, Promise::Exact | Promise::BestEffort { .. });
        let consistent = lossy && random.chance(0.15);
        let algorithm = if consistent {
            pick(random, &[Algorithm::Direct, Algorithm::Automatic])
        } else {
            pick(
                random,
                &[
                    Algorithm::Direct,
                    Algorithm::Direct,
                    Algorithm::Automatic,
                    Algorithm::Ring,
                    Algorithm::TwoLevel,
                ],
            )
        };
        let plan = Plan {
            kind,
            length: 0,
            element: pick(random, &[ElementType::F32, ElementType::F32, ElementType::F16, ElementType::Bf16]),
            promise,
            algorithm,
            consistent,
            planes: if random.chance(0.6) { PLANES } else { 1 + random.below(PLANES.into()) as u8 },
            average: promise != Promise::Exact && random.chance(0.3),
            layer_class: random.below(8) as u8,
        };
        // Each coordinate crosses 2 (world − 1) links, and is coded at both ends.
        let crossings = 2 * (world - 1) * operations;
        let packet = self.coordinates_per_packet(&plan) as u64;
        let most = (size.packets / crossings * packet).min(size.coordinates / crossings).max(1);
        let length = match shape {
            // Each message has a shard of it at least.
            Shape::Large => any_size(random, ((MAP_PACKETS + 100) * packet * world).min(most), most),
            _ => any_size(random, 1, most),
        };
        Plan { length: length as usize, ..plan }
    }

    fn faults(&self, random: &mut Random) -> Faults {
        if random.chance(0.1) {
            return Faults::NONE;
        }
        let mut faults = Faults::NONE;
        faults.data_delay_ns = any_size(random, 1_000, 2 * MS);
        faults.control_delay_ns =
            if random.chance(0.5) { faults.data_delay_ns } else { any_size(random, 1_000, 500_000) };
        faults.jitter_ns = if random.chance(0.4) { any_size(random, 1, 500_000) } else { 0 };
        if random.chance(0.4) {
            faults.drop_data = uniform(random, 0.0, 0.05);
            faults.drop_control = if random.chance(0.7) { uniform(random, 0.0, 0.05) } else { 0.0 };
        }
        if random.chance(0.25) {
            let ns = any_size(random, 200_000, 50 * MS);
            let how = [How::Dead, How::Flapping(ns), How::Rehashed(ns)];
            faults.broken = Some(Broken { one_in: pick(random, &[2, 4, 16]), how: pick(random, &how) });
        }
        faults.duplicate = if random.chance(0.2) { uniform(random, 0.0, 0.1) } else { 0.0 };
        if random.chance(0.6) {
            faults.trim = if random.chance(0.15) { 1.0 } else { uniform(random, 0.0, 1.0) };
            let whole = self
                .operations
                .iter()
                .map(|plan| self.packet_len(plan, plan.sent_planes()))
                .max()
                .unwrap_or(0);
            faults.trim_to_at_least = random.below(whole as u64 + 1) as usize;
            match random.below(4) {
                // As a switch does: everything that is longer, to one size.
                0 | 1 => faults.trim_to_at_most = faults.trim_to_at_least,
                2 => faults.trim_to_at_least = 0,
                _ => {}
            }
        }
        // What never gets through ends in an error after a time that says nothing of the transport.
        let failure = |faults| {
            let case = Self { faults, ..self.clone() };
            case.plans().map(|plan| case.failure(plan)).fold(0.0, f64::max)
        };
        while failure(faults) > 0.6 {
            faults.trim *= 0.9;
        }
        faults
    }

    fn trouble(&self, random: &mut Random) -> Trouble {
        let rank = random.below(self.world.into()) as usize;
        let messages = self.operations.len() as u64 * u64::from(self.world);
        // In the middle of it, most of the time.
        let at_ns = any_size(random, 1_000, 20 * MS);
        // Waiting is cheap, but not free: each message is asked for ten times a second.
        let by_ns =
            any_size(random, SECOND, 60 * SECOND).min(60 * SECOND * 32 / messages.max(32)).max(SECOND);
        match random.below(20) {
            0..3 => Trouble::Late { rank, by_ns },
            3 if !self.warm => Trouble::Absent { rank, by_ns },
            // A rank that nobody has met may take as long as it likes to come.
            6..9 if !self.warm => Trouble::None,
            4..6 => Trouble::Stopped { rank, at_ns, for_ns: 5 * SECOND },
            6..8 => Trouble::Restarted { rank, at_ns },
            8 => Trouble::Killed { rank, at_ns },
            _ => Trouble::None,
        }
    }
}
