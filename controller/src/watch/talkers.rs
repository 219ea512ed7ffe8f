// SPDX-License-Identifier: Apache-2.0
//! Whose packets are trimmed, from a `run` that is primary of the switches: samples are sent to the primary alone, and watching takes nothing
//! from it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::Serialize;

use crate::model::{Fabric, QueuePlan};
use crate::run::ask::page;
use crate::run::{Fault, Replacing};
use crate::talkers::{HostNames, QueueTalkers, Talker, Trimmed};

/// A talker of a queue that trims, or did in the last seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TalkerRow {
    /// By its name in the fabric.
    pub switch: String,
    /// Egress port.
    pub port: u16,
    /// Queue that the packets were classified to.
    pub queue: u8,
    /// The queue's name in the fabric.
    pub name: String,
    /// Its time, trimmed packets and samples, of all talkers.
    pub seconds: f64,
    /// Of all talkers.
    pub queue_packets: u64,
    /// Of all talkers: the fewer, the more of it is chance.
    pub queue_samples: u64,
    /// The sending host's name in the file, or its address.
    pub from: String,
    /// The host that it is for.
    pub to: String,
    /// Who it is.
    #[serde(flatten)]
    pub talker: Talker,
}

/// Where to ask, and what the answers mean.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    at: SocketAddr,
    switches: BTreeSet<String>,
    names: HostNames,
    queues: QueuePlan,
}

/// What a `run` tells.
#[derive(Default)]
pub(super) struct RunState {
    pub talkers: Vec<TalkerRow>,
    pub faults: Vec<Fault>,
    pub replacing: Replacing,
}

impl Asker {
    /// Who tells of these switches. An address that is everybody's is asked on this machine.
    pub(super) fn new(at: SocketAddr, fabric: &Fabric, switches: BTreeSet<String>) -> Self {
        let ip = match at.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let at = SocketAddr::new(ip, at.port());
        Self { at, switches, names: HostNames::of(fabric), queues: fabric.queues.clone() }
    }

    /// Asks; an error says whom and why not.
    pub(super) async fn ask(&self, patience: Duration) -> Result<RunState, String> {
        let asked = tokio::time::timeout(patience, async {
            let trimmed: Trimmed = page(self.at, "/trimmed").await?;
            let (faults, replacing) = (page(self.at, "/faults").await?, page(self.at, "/programs").await?);
            Ok::<_, String>((trimmed, faults, replacing))
        });
        let found = asked.await.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")));
        let (trimmed, mut faults, replacing): (Trimmed, Vec<Fault>, _) = found.map_err(|error| {
            format!(
                "whose packets are trimmed tells a `run` of this fabric, and there is none at {} ({error})",
                self.at
            )
        })?;
        let known = trimmed.queues.into_iter().filter(|queue| self.switches.contains(&queue.switch));
        faults.retain(|fault| self.switches.contains(&fault.switch));
        Ok(RunState {
            talkers: known.flat_map(|queue| self.rows(&queue)).collect(),
            faults,
            replacing,
        })
    }

    fn rows(&self, queue: &QueueTalkers) -> Vec<TalkerRow> {
        let row = |talker: &Talker| TalkerRow {
            switch: queue.switch.clone(),
            port: queue.port,
            queue: queue.queue,
            name: self.queues.name_of(queue.queue),
            seconds: queue.seconds,
            queue_packets: queue.packets,
            queue_samples: queue.samples,
            from: self.names.name(talker.source),
            to: self.names.name(talker.destination),
            talker: talker.clone(),
        };
        queue.talkers.iter().map(row).collect()
    }
}
