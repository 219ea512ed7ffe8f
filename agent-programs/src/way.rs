// SPDX-License-Identifier: Apache-2.0
//! Which way parts and sums go, and how long that may take.

use crate::units::time_ns;
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::net::IpAddr;
use trimwire_agent::collective::{Algorithm, Options, Replicas};

#[derive(Args)]
pub(crate) struct WayArgs {
    /// Collective algorithm. `auto` chooses by size, ranks and hosts.
    #[arg(long, value_enum, default_value = "auto")]
    algorithm: AlgorithmName,
    /// Repair trimmed and lost packets, the most valuable first, until this long after the start.
    /// Then every rank takes what it has.
    #[arg(long, value_parser = time_ns, value_name = "TIME", conflicts_with_all = ["exact", "reliable"])]
    deadline: Option<u64>,
    /// Decode at the lowest precision that any rank got, so that all ranks end bit-identical.
    #[arg(long)]
    pub(crate) consistent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AlgorithmName {
    Auto,
    Direct,
    Ring,
    TwoLevel,
}

impl WayArgs {
    /// These options, with what was asked for.
    pub(crate) fn apply(&self, options: &Options) -> Options {
        Options {
            algorithm: match self.algorithm {
                AlgorithmName::Auto => Algorithm::Automatic,
                AlgorithmName::Direct => Algorithm::Direct,
                AlgorithmName::Ring => Algorithm::Ring,
                AlgorithmName::TwoLevel => Algorithm::TwoLevel,
            },
            deadline_ns: self.deadline,
            replicas: if self.consistent { Replicas::Consistent } else { Replicas::Free },
            ..options.clone()
        }
    }
}

/// A number for each address, the same for those of one host.
pub(crate) fn hosts(addresses: impl Iterator<Item = IpAddr>) -> Vec<u32> {
    let mut known = BTreeMap::new();
    let mut number = |address| {
        let next = known.len() as u32;
        *known.entry(address).or_insert(next)
    };
    addresses.map(&mut number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_one_address_are_on_one_host() {
        let addresses = ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.1", "fd00::1"];
        let addresses = addresses.iter().map(|text| text.parse().expect("an address"));
        assert_eq!(hosts(addresses), [0, 0, 1, 0, 2]);
    }
}
