// SPDX-License-Identifier: Apache-2.0
//! A fabric in plain types: what is there and what it should do, all checked, all thresholds in
//! bytes. Who reads it from a file and who computes on it stand above.

mod network;
mod policy;
mod settings;
mod target;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trimwire_p4runtime::client::Tls;

pub use self::network::{End, GnmiAt, Host, Link, Mac, PipelineFiles, Switch, Trust};
pub use self::policy::{PortPolicy, QueuePolicy, TrimCap};
pub use self::settings::{ControllerSettings, MetricsAt};
pub use self::target::Target;
pub use self::traffic::{DscpPlan, LoadBalance, OptOut, Overload, QueuePlan, Spread};
use crate::units;

/// A fabric as its file describes it, checked, with all thresholds converted to bytes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fabric {
    /// Name of the file, for messages.
    pub file: String,
    /// How this controller talks to the switches.
    pub controller: ControllerSettings,
    /// IP MTU, bytes.
    pub mtu: u64,
    /// Round-trip time of an idle fabric, ns: what `bdp` multiplies a line rate with.
    pub rtt_ns: u64,
    /// By name.
    pub switches: BTreeMap<String, Switch>,
    /// By name.
    pub hosts: BTreeMap<String, Host>,
    /// In the file's order.
    pub links: Vec<Link>,
    /// What DSCP code points mean.
    pub dscp: DscpPlan,
    /// Which queue serves what.
    pub queues: QueuePlan,
    /// What is done to packets in a congested queue.
    pub overload: Overload,
    /// Jobs seal their packets (docs/reference/wire-format.md §12): sizes in planes leave room for
    /// tags.
    pub sealed: bool,
    /// ECN-capable trimmable packets are marked CE from `mark_at`, too.
    pub mark_trimmable: bool,
    /// How packets are spread over equal paths.
    pub load_balance: LoadBalance,
    /// Flows that are never trimmed, in the file's order.
    pub disable_trim: Vec<OptOut>,
    /// How to encrypt, by switch; a switch that is not in it is talked to in the clear.
    pub tls: BTreeMap<String, Tls>,
    /// Thresholds in bytes, by switch and egress port. Ports that are alike share theirs.
    pub policies: BTreeMap<String, BTreeMap<u16, Arc<PortPolicy>>>,
    /// What is allowed but probably not meant, in the file's order, each with file and line.
    pub warnings: Vec<String>,
}

impl Fabric {
    /// Its full DATA packets.
    pub fn data_packet(&self) -> units::DataPacket {
        units::DataPacket::new(self.mtu, self.sealed, self.has_ip6())
    }

    /// Whether any host has an IPv6 address.
    pub(crate) fn has_ip6(&self) -> bool {
        self.hosts.values().any(|host| host.ip6.is_some())
    }

    /// Every code point that trimmed packets leave some port with: all of them are taken for
    /// trimmed packets everywhere.
    pub fn trimmed_code_points(&self) -> BTreeSet<u8> {
        let ports = self.policies.values().flatten().map(|(_, port)| port.trimmed_dscp);
        [Some(self.dscp.trimmed), self.dscp.trimmed_last_hop].into_iter().flatten().chain(ports).collect()
    }
}
