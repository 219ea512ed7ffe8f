// SPDX-License-Identifier: Apache-2.0
//! A job under an algorithm, on a link that changes.

use crate::Contender;
use crate::fabric_program::{Ladder, program_ladder};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use trimwire_agent::collective::{CommunicatorConfig, Options};
use trimwire_agent::endpoint::{EndpointConfig, Reliability, Traffic};
use trimwire_agent::pacing::Pace;
use trimwire_agent::planes::{Adaptive, Counts};
use trimwire_encoder::nmse;
use trimwire_fabric::cluster::{Cluster, ClusterConfig, Completed};
use trimwire_lab::scenarios::Profile;
use trimwire_switch::{PortConfig, SharedSwitch, Switch, SwitchConfig};

const WORKERS: u16 = 4;
/// A hundredth of ResNet18's (NetSenseML §5.3: 46.2 MB).
const COORDINATES: usize = 115_500;
const COMPUTE_NS: u64 = 500_000;
/// Two bytes a coordinate, DDP's default.
const PLANES: u8 = 9;

/// A step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) at_ns: u64,
    pub(crate) planes: u8,
    pub(crate) pace: f64,
    pub(crate) step_ns: u64,
    bytes: u64,
    trimmed: f64,
    pub(crate) nmse: f64,
}

impl Sample {
    pub(crate) fn csv(&self, profile: &Profile) -> String {
        let Self { at_ns, planes, pace, step_ns, bytes, trimmed, nmse } = self;
        let (at, step, kilobytes) = (*at_ns as f64 / 1e6, *step_ns as f64 / 1e6, *bytes as f64 / 1e3);
        let link = profile.at(*at_ns) / 1e6;
        format!("{at:.3},{planes},{pace:.3},{step:.4},{kilobytes:.1},{trimmed:.4},{nmse:.3e},{link:.0}")
    }
}

pub(crate) struct Run {
    pub(crate) samples: Vec<Sample>,
    end_ns: u64,
}

impl Run {
    /// Columns of the table. *Progress* is steps a second over 1 + NMSE: an unbiased compressor's
    /// error adds so much to the variance of a gradient, and SGD takes so many steps more at most.
    pub(crate) fn figures(&self) -> String {
        let count = self.samples.len().max(1) as f64;
        let mean = |of: &dyn Fn(&Sample) -> f64| self.samples.iter().map(of).sum::<f64>() / count;
        let steps = count * 1e9 / self.end_ns.max(1) as f64;
        let progress =
            self.samples.iter().map(|s| 1.0 / (1.0 + s.nmse)).sum::<f64>() * 1e9 / self.end_ns.max(1) as f64;
        let mut times: Vec<u64> = self.samples.iter().map(|sample| sample.step_ns).collect();
        times.sort_unstable();
        let slowest = times.get(times.len() * 99 / 100).copied().unwrap_or(0) as f64 / 1e6;
        format!(
            "{steps:.0} | {:.1} | {:.0} | {:.1} % | {:.1e} | {progress:.0} | {slowest:.2}",
            mean(&|s| f64::from(s.planes)),
            mean(&|s| s.bytes as f64 / 1e3),
            mean(&|s| s.trimmed) * 100.0,
            mean(&|s| s.nmse),
        )
    }
}

pub(crate) struct Job<'p> {
    cluster: Cluster,
    switch: SharedSwitch,
    profile: &'p Profile,
    law: Adaptive,
    gradients: Vec<Vec<f32>>,
    exact: Vec<f32>,
}

impl<'p> Job<'p> {
    pub(crate) fn new(profile: &'p Profile, contender: &Contender) -> Result<Self, Box<dyn Error>> {
        let line = profile.line_bps() as u64;
        let config = ClusterConfig {
            workers: WORKERS,
            link_bps: line,
            delay_ns: 1_000,
            cross_groups: 0,
            cross_per_group: 0,
            cross: None,
            seed: 1,
            sample_ns: 1_000_000,
        };
        let port = PortConfig { rate_bps: line, queue_limit_bytes: 16 << 20 };
        let mut switch = Switch::new(SwitchConfig { default_port: port, ..SwitchConfig::default() });
        switch.load_pipeline(include_bytes!("../../../p4/build/bmv2/trimwire.json"))?;
        // As the demo's: 120 us of a line of 10 Gbit/s before anything is dropped, marks at a sixth
        // of that.
        let trimmed = contender.trims.then_some([20, 60]);
        let ladder = Ladder { rate_bps: 10_000_000_000, mark: 20, trimmed, drop: 120, trim_drop: 120 };
        program_ladder(switch.pipeline().ok_or("no pipeline")?, &config, &ladder);
        let switch: SharedSwitch = Arc::new(Mutex::new(switch));
        let cluster = Cluster::new(&config, switch.clone(), 9217, |rank| {
            let (reliability, traffic) = if contender.trims {
                (Reliability::Bounded { loss: 0.0 }, Traffic::Trimmable)
            } else {
                (Reliability::Full, Traffic::Droppable)
            };
            let endpoint = EndpointConfig {
                reliability,
                traffic,
                rate: contender.rate,
                ..EndpointConfig::new(rank, WORKERS, line)
            };
            (endpoint, CommunicatorConfig::new(rank, WORKERS), Options::default())
        })?;
        let gradients: Vec<Vec<f32>> = (0..WORKERS).map(|rank| gaussian(u64::from(rank))).collect();
        let sum = |i: usize| gradients.iter().map(|gradient| f64::from(gradient[i])).sum::<f64>() as f32;
        let exact = (0..COORDINATES).map(sum).collect();
        let law = Adaptive::new(contender.algorithm, PLANES)?;
        Ok(Self { cluster, switch, profile, law, gradients, exact })
    }

    pub(crate) fn run(mut self) -> Result<Run, Box<dyn Error>> {
        let mut samples = Vec::new();
        let mut step = 0;
        while self.cluster.now_ns() < self.profile.end_ns {
            samples.push(self.step(step)?);
            step += 1;
        }
        Ok(Run { samples, end_ns: self.cluster.now_ns() })
    }

    fn step(&mut self, step: u32) -> Result<Sample, Box<dyn Error>> {
        let computed_ns = self.cluster.now_ns() + COMPUTE_NS;
        self.cluster.run_until(computed_ns);
        // The link is what it is when the step begins: steps are short beside the scenario's
        // pieces.
        let rate_bps = (self.profile.at(computed_ns) as u64).max(1);
        let port = PortConfig { rate_bps, queue_limit_bytes: 16 << 20 };
        let mut switch = self.switch.lock().unwrap_or_else(PoisonError::into_inner);
        (1..=WORKERS).for_each(|number| switch.configure_port(number, port));
        drop(switch);
        let (planes, pace) = (self.law.planes(), self.law.pace());
        self.cluster.set_options(&Options { planes, pace: Pace::of_share(pace), ..Options::default() });
        let done = self.cluster.all_reduce(step, self.gradients.clone())?;
        let at_ns = done.iter().map(|completed| completed.at_ns).max().unwrap_or(computed_ns);
        let counts: Vec<Counts> = done.iter().map(counts).collect();
        // A measurement that is refused leaves planes and pace as they are.
        let _ = self.law.step(&counts);
        let measured = Counts::step(&counts, 0);
        let errors = done.iter().map(|completed| nmse(&completed.outcome.sum, &self.exact));
        Ok(Sample {
            at_ns,
            planes,
            pace,
            step_ns: at_ns - computed_ns,
            bytes: measured.bytes,
            trimmed: measured.trimmed,
            nmse: errors.sum::<f64>() / f64::from(WORKERS),
        })
    }
}

fn counts(completed: &Completed) -> Counts {
    let stats = &completed.outcome.stats;
    Counts {
        bytes: stats.bytes_expected,
        bytes_arrived: stats.bytes_received,
        packets: stats.packets,
        trimmed: stats.trimmed,
        missing: stats.missing,
        repaired: stats.repaired,
        busy_ns: completed.outcome.duration_ns,
        idle_ns: COMPUTE_NS,
    }
}

/// N(0, 1), by SplitMix64 and Box–Muller.
fn gaussian(seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut uniform = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    let draw = |_| {
        let (radius, angle) = (-2.0 * (1.0 - uniform()).ln(), std::f64::consts::TAU * uniform());
        (radius.sqrt() * angle.cos()) as f32
    };
    (0..COORDINATES).map(draw).collect()
}
