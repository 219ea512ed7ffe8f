// SPDX-License-Identifier: Apache-2.0
//! Fewer routes than hosts: a rack elsewhere is one prefix, and racks with the same way are one
//! where they fill a larger prefix.
//!
//! The racks' blocks are the same for all switches, and larger prefixes hold nothing but blocks. So
//! an address of nobody either has no route anywhere, or goes to the one rack that its block is of,
//! where only hosts have routes: nothing can loop.

use std::net::IpAddr;

use super::{PortSet, Prefix};

/// Prefixes of racks are no longer than this where nobody else is in them: as generated ones are,
/// `10.0.<rack>.0/24` and `fd00::<rack>:0/112`.
const RACK: (u32, u32) = (24, 112);

/// Addresses of one rack, which no other host is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub prefix: Prefix,
    /// The switch that its hosts hang on.
    pub home: usize,
}

/// The fewest blocks that hold all addresses, in order.
pub(super) fn blocks(addresses: &[(IpAddr, usize)]) -> Vec<Block> {
    let mut hosts: Vec<(Prefix, usize)> =
        addresses.iter().map(|(address, home)| (Prefix::host(*address), *home)).collect();
    hosts.sort_unstable();
    let mut blocks = Vec::new();
    for version in hosts.chunk_by(|a, b| a.0.width() == b.0.width()) {
        split(version, 0, &mut blocks);
    }
    blocks
}

/// `hosts` are all that have their first `len` bits; in order.
fn split(hosts: &[(Prefix, usize)], len: u32, blocks: &mut Vec<Block>) {
    let (Some((first, home)), Some((last, _))) = (hosts.first(), hosts.last()) else { return };
    let shared = first.shared(*last);
    if hosts.iter().all(|(_, other)| other == home) {
        let rack = if first.width() == 32 { RACK.0 } else { RACK.1 };
        let prefix = first.shortened(rack.max(len).min(shared));
        blocks.push(Block { prefix, home: *home });
        return;
    }
    let half = hosts.partition_point(|(host, _)| host.shared(*first) > shared);
    let (low, high) = hosts.split_at(half);
    // Two hosts with one address would not differ in any bit; files with such are refused.
    if low.is_empty() || high.is_empty() {
        return;
    }
    split(low, shared + 1, blocks);
    split(high, shared + 1, blocks);
}

/// Joins halves whose ports are the same, again and again. Gives whose hosts are behind each, too.
/// `routes` are in order.
pub(super) fn merge(routes: Vec<(Prefix, PortSet, usize)>) -> Vec<(Prefix, PortSet, Vec<usize>)> {
    let mut merged: Vec<(Prefix, PortSet, Vec<usize>)> = Vec::new();
    for (prefix, ports, home) in routes {
        merged.push((prefix, ports, vec![home]));
        while let [.., (low, low_ports, _), (high, high_ports, _)] = merged.as_slice()
            && low_ports == high_ports
            && let Some(whole) = low.joined(*high)
            && let (Some((.., high_homes)), Some((prefix, _, homes))) = (merged.pop(), merged.last_mut())
        {
            *prefix = whole;
            homes.extend(high_homes);
            homes.sort_unstable();
            homes.dedup();
        }
    }
    merged
}
