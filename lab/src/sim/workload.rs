// SPDX-License-Identifier: Apache-2.0
//! Who sends how much to whom, and when; and what hosts compute meanwhile.

mod all_reduce;
mod astra_sim;
mod background;
mod goal;
mod hpcc;
mod htsim;
mod order;
mod parameter_server;
mod patterns;
mod trace;

pub use all_reduce::{AllReduce, all_reduce};
pub use background::{Background, Sizes};
pub use hpcc::distribution;
pub use parameter_server::{ParameterServer, parameter_server};
pub use patterns::{Incasts, all_to_all, incast, permutation};
use serde::Deserialize;
use trace::Maker;
pub use trace::TraceError;

/// Whose files a trace is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Ours: a row a computation, message or collective.
    #[default]
    Csv,
    /// GOAL, of LogGOPSim and ATLAHS.
    Goal,
    /// htsim's connection matrices.
    Htsim,
    /// HPCC's flows.
    Hpcc,
    /// ASTRA-sim's text.
    AstraSim,
}

/// Reads a trace for a network of so many hosts; every message has so many times fewer bytes, at
/// least 1.
pub fn trace(format: Format, text: &str, hosts: u32, compression: f64) -> Result<Vec<Demand>, TraceError> {
    let mut made = Maker::new(hosts, compression);
    match format {
        Format::Csv => trace::rows(text, &mut made),
        Format::Goal => goal::goal(text, &mut made),
        Format::Htsim => htsim::htsim(text, &mut made),
        Format::Hpcc => hpcc::hpcc(text, &mut made),
        Format::AstraSim => astra_sim::astra_sim(text, &mut made),
    }?;
    Ok(made.demands)
}

/// When a flow begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// At a time, ns.
    At(u64),
    /// So long after the last of those that it waits for has arrived, ns.
    Later(u64),
}

/// A flow that somebody wants, or a computation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Host.
    pub source: u32,
    /// Host, another one; the same for a [computation](Demand::computation).
    pub destination: u32,
    /// Of payload.
    pub bytes: u64,
    /// When.
    pub begin: Begin,
    /// Earlier demands, by number, that have to be over; all of them end at this one's source.
    pub after: Vec<u32>,
    /// Whether it is what the run is about; background is not reported.
    pub foreground: bool,
    /// Of its layer, 0 to 6: the front layers', which the next step needs first, are the highest.
    pub priority: u8,
}

impl Demand {
    /// A host computes for so long, ns, when all that it waits for is over. It computes one thing
    /// at a time, in the order in which they may begin. What takes no time is a meeting point: it
    /// does not wait for other computations.
    pub fn computation(host: u32, takes_ns: u64, after: Vec<u32>) -> Self {
        let begin = Begin::Later(takes_ns);
        Self { source: host, destination: host, bytes: 0, begin, after, foreground: true, priority: 0 }
    }

    /// Whether it is a computation, of which nothing is sent.
    pub fn computes(&self) -> bool {
        self.source == self.destination
    }

    fn at(source: u32, destination: u32, bytes: u64, at_ns: u64) -> Self {
        Self {
            source,
            destination,
            bytes,
            begin: Begin::At(at_ns),
            after: Vec::new(),
            foreground: true,
            priority: 0,
        }
    }
}
