// SPDX-License-Identifier: Apache-2.0
//! The four runs of the demo, and the fabric file that the controller gets for each.

use super::run::LINK_BPS;
use std::fmt::Write as _;
use std::net::SocketAddr;
use trimwire_fabric::cluster::ClusterConfig;

/// A run of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scenario {
    /// No other traffic, every byte repaired: the baseline.
    Idle,
    /// Congested; the switch drops, the hosts repair every byte.
    Repair,
    /// Congested; the switch trims to the sign plane, the paper's decoder.
    TrimPaper,
    /// Congested; the switch trims to eight planes, then to the sign plane; λ-unbiased decoding.
    Trim,
}

impl Scenario {
    /// All of them, in the table's order.
    pub(super) const ALL: [Scenario; 4] = [Self::Idle, Self::Repair, Self::TrimPaper, Self::Trim];

    /// The name in table and JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Repair => "repair",
            Self::TrimPaper => "trim-paper",
            Self::Trim => "trim",
        }
    }

    /// Whether the neighbours send.
    pub(super) fn congested(self) -> bool {
        self != Self::Idle
    }

    /// Whether the switch trims.
    pub(super) fn trims(self) -> bool {
        matches!(self, Self::TrimPaper | Self::Trim)
    }

    /// The fabric file: one switch at `address`, the ranks, the neighbours, and the queue policy.
    ///
    /// Buffers are shallow, as a commodity switch's share for one queue is: 120 µs of line rate
    /// before everything is dropped.
    pub(super) fn fabric_yaml(self, cluster: &ClusterConfig, address: SocketAddr) -> String {
        let mut yaml = format!(
            "# {} run of the demo\nversion: 1\nswitches:\n  s1:\n    address: {address}\n    device_id: 1\n    target: trimwire\nhosts:\n",
            self.name()
        );
        let mut links = String::from("links:\n");
        let ranks = (0..cluster.workers).map(|r| (format!("rank{r}"), r + 1, ClusterConfig::rank_address(r)));
        let cross = (0..cluster.cross_senders())
            .map(|c| (format!("cross{c}"), cluster.workers + 1 + c, ClusterConfig::cross_address(c)));
        for (name, port, host) in ranks.chain(cross) {
            let mac: Vec<String> = host.mac.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = writeln!(yaml, "  {name}: {{ ip: {}, mac: \"{}\" }}", host.ip, mac.join(":"));
            let _ = writeln!(
                links,
                "  - {{ a: {name}, b: \"s1:{port}\", speed: {}Mbps, delay: {}ns }}",
                LINK_BPS / 1_000_000,
                cluster.delay_ns
            );
        }
        yaml.push_str(&links);
        yaml.push_str(&self.queue_policy());
        yaml
    }

    fn queue_policy(self) -> String {
        if !self.trims() {
            // Marks where the trimming port would mark: the baseline is to have what its rate
            // algorithm needs.
            return "policy:\n  trim: off\n  mark_at: 20us\n  drop_at: 120us\n".to_owned();
        }
        // The workers send all ten planes, 448 coordinates a packet: in 118 bytes signs, in 510
        // eight planes.
        let (shallow_at, shallow_size) =
            if self == Self::TrimPaper { ("60us", "118B") } else { ("20us", "510B") };
        format!(
            "policy:\n  mark_at: 20us\n  shallow_at: {shallow_at}\n  deep_at: 60us\n  drop_at: 120us\n  \
             shallow_size: {shallow_size}\n  deep_size: 118B\n"
        )
    }
}
