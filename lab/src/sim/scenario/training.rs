// SPDX-License-Identifier: Apache-2.0
//! What a run trains: every step of a data-parallel job is an all-reduce on the network.

use super::file::Files;
use super::file::{TrainingWords, WorkloadWords};
use super::locate::{Wrong, wrong};
use super::prepare::background;
use crate::sim::random::mix;
use crate::sim::setup::{LinkChange, Setup};
use crate::sim::topology::Topology;
use crate::sim::transport::{Transport, bits, coordinates};
use crate::sim::workload::{AllReduce, Background, Begin, Demand, all_reduce};

/// Steps at most.
const MOST_STEPS: u32 = 100_000;
/// Coordinates of a row of the codec, least and most.
const ROWS: [usize; 2] = [32, 1 << 15];
/// Workers at most: who waits for whom in an all-reduce is a list of the cube of them, 64 MiB here.
const MOST_WORKERS: u32 = 256;
/// Coordinates of all workers' gradients together, of which some five copies are kept: half a
/// gigabyte each here.
const MOST_COORDINATES: usize = 1 << 27;

/// How gradients travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// In packets of the codec rht with so many planes, of which what arrived is decoded.
    Planes(u8),
    /// As floats of so many bytes, 4 or 2; what was lost counts as zero (MLT).
    Floats(u8),
}

impl Coding {
    /// Coordinates of a packet of so much payload; none where no packets are encoded.
    pub fn of_packet(self, payload: u32) -> Option<usize> {
        let Self::Planes(planes) = self else { return None };
        Some(coordinates(payload, planes) as usize)
    }
}

/// A job of all hosts, each of which owns a shard of the gradient and has a replica of the weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Training {
    /// Units of the two hidden layers.
    pub hidden: u32,
    /// Images a worker sees in a step.
    pub batch: u32,
    /// Of SGD.
    pub learning_rate: f32,
    /// Of SGD.
    pub momentum: f32,
    /// How many there are.
    pub steps: u32,
    /// Accuracy is looked at after so many.
    pub every: u32,
    /// The accuracy the time to which is told.
    pub target: f64,
    /// How gradients travel.
    pub coding: Coding,
    /// Coordinates of a shard, a power of two: one row of the codec. What the gradient lacks of all
    /// shards is zeros.
    pub shard: usize,
    compute_ns: u64,
    jitter_ns: u64,
    background: Option<(Background, u64)>,
}

impl Training {
    pub(super) fn new(
        words: &TrainingWords,
        workload: &WorkloadWords,
        topology: &Topology,
        payload: u32,
        compression: f64,
        transport: &Transport,
        files: &mut dyn Files,
    ) -> Result<Self, Wrong> {
        let at = |key: &'static str| vec!["training", key];
        if workload.has_patterns() {
            let reason =
                "workload: a training's own flows are all that is reported; valid beside it is background";
            return Err((vec!["workload"], reason.to_owned()));
        }
        if topology.hosts > MOST_WORKERS {
            let reason =
                format!("training: {} hosts; valid are up to {MOST_WORKERS} workers", topology.hosts);
            return wrong(&["training"], reason);
        }
        let counts = [
            ("hidden", words.hidden),
            ("batch", words.batch),
            ("steps", words.steps),
            ("every", words.every),
        ];
        for (name, count) in counts {
            if !(1..=MOST_STEPS).contains(&count) {
                return Err((at(name), format!("{name}: {count}; valid are 1 to {MOST_STEPS}")));
            }
        }
        let shares = [("momentum", f64::from(words.momentum)), ("target", words.target)];
        for (name, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return Err((at(name), format!("{name}: {share}; valid are 0 to 1")));
            }
        }
        if !(words.learning_rate > 0.0 && words.learning_rate.is_finite()) {
            let reason = format!("learning_rate: {}; valid are positive numbers", words.learning_rate);
            return Err((at("learning_rate"), reason));
        }
        let coding = coding(transport, compression)?;
        if matches!(coding, Coding::Planes(_)) && !payload.is_multiple_of(96) {
            let reason = format!(
                "payload: {payload}; valid in a training are multiples of 96, of 32 coordinates each"
            );
            return wrong(&["payload"], reason);
        }
        let parameters = files.parameters(words.hidden).map_err(|reason| (at("hidden"), reason))?;
        let [least, most] = ROWS;
        let shard = parameters.div_ceil(topology.hosts.max(1) as usize).next_power_of_two().max(least);
        if shard > most {
            let reason = format!(
                "hidden: {} makes {parameters} coordinates, which are {shard} a worker; valid are up to {most}",
                words.hidden
            );
            return Err((at("hidden"), reason));
        }
        let all = (topology.hosts as usize).saturating_pow(2).saturating_mul(shard);
        if all > MOST_COORDINATES {
            let reason = format!(
                "hidden: {} makes {all} coordinates of {} workers together; valid are up to {MOST_COORDINATES}",
                words.hidden, topology.hosts
            );
            return Err((at("hidden"), reason));
        }
        let rate_bps = topology.cards().first().map_or(1, |(_, link, _)| link.rate_bps);
        Ok(Self {
            hidden: words.hidden,
            batch: words.batch,
            learning_rate: words.learning_rate,
            momentum: words.momentum,
            steps: words.steps,
            every: words.every,
            target: words.target,
            coding,
            shard,
            compute_ns: words.compute.0,
            jitter_ns: words.jitter.map_or(0, |jitter| jitter.0),
            background: background(workload, files)?.map(|others| (others, rate_bps)),
        })
    }

    /// The same training, over after one step.
    pub fn first_step(&self) -> Self {
        Self { steps: 1, ..self.clone() }
    }

    /// What a step puts on the network.
    pub(super) fn all_reduce(&self) -> AllReduce {
        let bytes = match self.coding {
            Coding::Planes(planes) => bits(planes) as usize * self.shard / 8,
            Coding::Floats(bytes) => usize::from(bytes) * self.shard,
        };
        AllReduce { bytes: bytes as u64, compute_ns: self.compute_ns, jitter_ns: self.jitter_ns }
    }

    /// The network of all steps: that of `first`, whose ranks remember each other.
    pub fn job(&self, first: &Setup) -> Setup {
        Setup { transport: first.transport.of_a_job(first.topology.hosts), ..first.clone() }
    }

    /// A step's network, which begins at `begin_ns`: that of the job, with other coins, other
    /// delays of workers, and other flows in the background. Every step finds queues empty, and
    /// ranks that know what the steps before it have told.
    pub fn step(&self, job: &Setup, step: u32, begin_ns: u64) -> Setup {
        let (hosts, seed) = (job.topology.hosts, mix(job.seed ^ mix(u64::from(step))));
        let mut demands: Vec<Demand> = all_reduce(hosts, &self.all_reduce(), seed);
        if let Some((background, rate_bps)) = &self.background {
            demands.extend(background.demands(hosts, *rate_bps, false, usize::MAX, seed));
        }
        for demand in &mut demands {
            demand.begin = match demand.begin {
                Begin::At(at_ns) => Begin::At(begin_ns.saturating_add(at_ns)),
                Begin::Later(pause_ns) if demand.after.is_empty() => {
                    Begin::At(begin_ns.saturating_add(pause_ns))
                }
                later @ Begin::Later(_) => later,
            };
        }
        let later =
            |change: &LinkChange| LinkChange { at_ns: begin_ns.saturating_add(change.at_ns), ..*change };
        let changes = job.changes.iter().map(later).collect();
        let limit_ns = begin_ns.saturating_add(job.limit_ns);
        Setup { demands, changes, seed, limit_ns, ..job.clone() }
    }

    /// The demand by which a worker's part of another's shard travels, or, `gathered`, a worker's
    /// own sum to another.
    pub fn demand(hosts: usize, gathered: bool, source: usize, destination: usize) -> usize {
        let behind = (destination + hosts - source) % hosts;
        (if gathered { hosts * (hosts - 1) } else { 0 }) + source * (hosts - 1) + behind - 1
    }
}

fn coding(transport: &Transport, compression: f64) -> Result<Coding, Wrong> {
    if let Transport::Trimwire(config) | Transport::Ranks(config, _) = transport {
        return match compression {
            // Without planes of its own, and with.
            1.0 => Ok(Coding::Planes(config.planes)),
            other if other == 32.0 / f64::from(bits(config.planes)) => Ok(Coding::Planes(config.planes)),
            other => wrong(
                &["compression"],
                format!(
                    "compression: {other}; gradients in planes take three bytes a coordinate, or what `planes` take; valid is none"
                ),
            ),
        };
    }
    match compression {
        1.0 => Ok(Coding::Floats(4)),
        2.0 => Ok(Coding::Floats(2)),
        other => {
            let reason = format!("compression: {other}; valid in a training are 1, f32, and 2, f16");
            wrong(&["compression"], reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_found_by_their_ends() {
        let hosts = 7;
        let how = AllReduce { bytes: 1, compute_ns: 0, jitter_ns: 0 };
        let demands = all_reduce(hosts, &how, 1);
        for gathered in [false, true] {
            for source in 0..hosts {
                for destination in (0..hosts).filter(|other| *other != source) {
                    let at =
                        Training::demand(hosts as usize, gathered, source as usize, destination as usize);
                    assert_eq!((demands[at].source, demands[at].destination), (source, destination));
                    assert_eq!(demands[at].after.is_empty(), !gathered);
                }
            }
        }
    }
}
