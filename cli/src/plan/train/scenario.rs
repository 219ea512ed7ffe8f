// SPDX-License-Identifier: Apache-2.0
//! The papers' links and models, and who is compared on them.

use super::contender::{Compressor, Contender, Worker};
use super::recurrent::Recurrent;
use super::{TrainOptions, Trained};
use crate::training::digits::Digits;
use crate::training::job::{Hyper, Job as Replicas};
use anyhow::Context as _;
use trimwire_planner::scenarios::{
    LSTM, Link, Network, Profile, RESNET18, RESNET50, VGG16, profiles, run_with,
};
use trimwire_planner::sensing::parse;

/// Virtual time at which a run ends, ns.
const END_NS: u64 = 1_200_000_000_000;
/// Steps between looks at the accuracy.
const EVERY: usize = 5;

/// A link, a job's times and bytes, and contenders.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    network: Network,
    /// Whether what is trained is an LSTM, and not a perceptron.
    recurrent: bool,
    bottleneck: Bottleneck,
    pub(super) contenders: &'static [Contender],
}

/// What there is of the link.
enum Bottleneck {
    /// bit/s.
    Constant(f64),
    /// One of the planner's profiles.
    Named(&'static str),
}

const NETSENSE: &[Contender] = &[
    Contender { name: "all-reduce", law: "fixed:first=1", compressor: Compressor::None },
    Contender { name: "top-k 0.1", law: "fixed:first=0.1", compressor: Compressor::TopK },
    Contender { name: "NetSenseML", law: "netsense", compressor: Compressor::NetSense },
    Contender { name: "nine planes", law: "fixed:first=0.535", compressor: Compressor::Planes },
    Contender { name: "progress", law: "progress", compressor: Compressor::Planes },
];
const DC2: &[Contender] = &[
    Contender { name: "no compression", law: "fixed:first=1", compressor: Compressor::None },
    Contender { name: "top-k 0.1", law: "fixed:first=0.1", compressor: Compressor::TopK },
    Contender { name: "top-k 0.001", law: "fixed:first=0.001", compressor: Compressor::TopK },
    Contender { name: "random-k 0.1", law: "fixed:first=0.1", compressor: Compressor::RandomK },
    Contender { name: "DA2, top-k", law: "da2", compressor: Compressor::TopK },
    Contender { name: "DA4, top-k", law: "da4", compressor: Compressor::TopK },
    Contender { name: "DA5, top-k", law: "da5", compressor: Compressor::TopK },
    Contender { name: "DA2, random-k", law: "da2", compressor: Compressor::RandomK },
    Contender { name: "progress", law: "progress", compressor: Compressor::Planes },
];

const fn netsense(name: &'static str, what: &'static str, network: Network, bps: f64) -> Scenario {
    let bottleneck = Bottleneck::Constant(bps);
    Scenario { name, what, network, recurrent: false, bottleneck, contenders: NETSENSE }
}

const fn dc2(name: &'static str, what: &'static str, network: Network, profile: &'static str) -> Scenario {
    let bottleneck = Bottleneck::Named(profile);
    Scenario { name, what, network, recurrent: false, bottleneck, contenders: DC2 }
}

/// All of them.
pub(super) const SCENARIOS: &[Scenario] = &[
    netsense("resnet18-200", "NetSenseML, figure 5: ResNet18's bytes, 200 Mbit/s", RESNET18, 200e6),
    netsense("resnet18-500", "NetSenseML, figure 5: ResNet18's bytes, 500 Mbit/s", RESNET18, 500e6),
    netsense("resnet18-800", "NetSenseML, figure 5: ResNet18's bytes, 800 Mbit/s", RESNET18, 800e6),
    netsense("vgg16-2500", "NetSenseML, figure 6: VGG16's bytes, 2.5 Gbit/s", VGG16, 2.5e9),
    netsense("vgg16-5000", "NetSenseML, figure 6: VGG16's bytes, 5 Gbit/s", VGG16, 5e9),
    netsense("vgg16-10000", "NetSenseML, figure 6: VGG16's bytes, 10 Gbit/s", VGG16, 10e9),
    dc2(
        "dc2-dynamic",
        "DC2, figures 4 and 5: ResNet50's bytes, a link like figure 3's public cloud",
        RESNET50,
        DYNAMIC,
    ),
    dc2(
        "dc2-static",
        "DC2, figure 7: ResNet50's bytes, a link like figure 3's own cluster",
        RESNET50,
        STATIC,
    ),
    Scenario {
        recurrent: true,
        ..dc2(
            "dc2-lstm-dynamic",
            "DC2, figure 6: an LSTM and its bytes, the public cloud's link",
            LSTM,
            DYNAMIC,
        )
    },
    Scenario {
        recurrent: true,
        ..dc2("dc2-lstm-static", "DC2, figure 8: an LSTM and its bytes, the own cluster's link", LSTM, STATIC)
    },
];

const DYNAMIC: &str = "DC2, dynamic";
const STATIC: &str = "DC2, static";

/// The workers' network.
enum Learners {
    Perceptron(Replicas),
    Lstm(Recurrent),
}

impl Learners {
    fn gradients(&mut self) -> Vec<Vec<f32>> {
        match self {
            Self::Perceptron(replicas) => replicas.gradients(),
            Self::Lstm(recurrent) => recurrent.gradients(),
        }
    }

    /// A worker's; all of them get the same sums.
    fn weights(&self) -> &[f32] {
        match self {
            Self::Perceptron(replicas) => replicas.weights(0),
            Self::Lstm(recurrent) => recurrent.weights(),
        }
    }

    fn apply(&mut self, workers: usize, sum: &[f32]) {
        match self {
            Self::Perceptron(replicas) => (0..workers).for_each(|rank| replicas.apply(rank, sum)),
            Self::Lstm(recurrent) => recurrent.apply(sum),
        }
    }

    fn accuracy(&self) -> f64 {
        match self {
            Self::Perceptron(replicas) => replicas.accuracy(),
            Self::Lstm(recurrent) => recurrent.accuracy(),
        }
    }
}

impl Scenario {
    fn profile(&self, seed: u64) -> anyhow::Result<Profile> {
        Ok(match self.bottleneck {
            Bottleneck::Constant(bps) => Profile { name: self.name, pieces: vec![(0, bps)], end_ns: END_NS },
            Bottleneck::Named(name) => {
                let all = profiles(seed);
                let found =
                    all.into_iter().find(|profile| profile.name == name).context("no such profile")?;
                Profile { end_ns: END_NS, ..found }
            }
        })
    }

    /// Trains under one contender, until the steps or the time are over.
    pub(super) fn train(
        &self,
        contender: &Contender,
        options: &TrainOptions,
        seed: u64,
    ) -> anyhow::Result<Trained> {
        let profile = self.profile(seed)?;
        let trims = matches!(contender.compressor, Compressor::Planes);
        // A millisecond without queues; a shallow buffer of 1 MB.
        let link = Link { line_bps: profile.line_bps(), propagation_ns: 1e6, buffer: 1e6, trims };
        let mut controller = parse(contender.law)?;
        let (digits, workers) = (Digits::load()?, usize::from(options.workers));
        let mut learners = if self.recurrent {
            Learners::Lstm(Recurrent::new(digits, workers, seed))
        } else {
            let hyper = Hyper { hidden: usize::from(options.hidden), ..Hyper::default() };
            Learners::Perceptron(Replicas::new(hyper, digits, workers, seed))
        };
        let length = learners.weights().len();
        let mut memory: Vec<Worker> =
            (0..workers).map(|rank| Worker::new(rank, length, seed)).collect::<Result<_, _>>()?;
        let mut curve = vec![(0.0, learners.accuracy())];
        let (mut steps, mut failed) = (0, None);
        let compresses = contender.compressor != Compressor::None;
        let job = self.network.job(contender.compressor.transfer(options.workers), compresses);
        let outcome = run_with(job, link, &profile, &mut controller, seed, |sample, step| {
            let mut sum = vec![0.0; length];
            for (rank, gradient) in learners.gradients().iter().enumerate() {
                let sent = memory[rank].send(
                    contender.compressor,
                    gradient,
                    learners.weights(),
                    steps,
                    sample.ratio,
                    step.cut,
                );
                match sent {
                    Ok(arrived) => sum.iter_mut().zip(arrived).for_each(|(sum, value)| *sum += value),
                    Err(error) => {
                        failed = Some(error);
                        return false;
                    }
                }
            }
            learners.apply(workers, &sum);
            steps += 1;
            if steps.is_multiple_of(EVERY as u32) || steps == options.steps {
                curve.push((sample.at_ns as f64 / 1e9, learners.accuracy()));
            }
            steps < options.steps
        });
        if let Some(error) = failed {
            return Err(error.context(format!("{}, step {steps}", contender.name)));
        }
        Ok(Trained {
            contender: contender.name,
            seed,
            algorithm: contender.law,
            steps: outcome.samples.len(),
            seconds_to_target: curve.iter().find(|(_, right)| *right >= options.target).map(|(at, _)| *at),
            accuracy: curve.last().map_or(0.0, |(_, right)| *right),
            steps_per_second: outcome.throughput(),
            ratio: outcome.sent(),
            curve,
        })
    }
}
