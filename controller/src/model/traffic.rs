// SPDX-License-Identifier: Apache-2.0
//! What packets are, which queues serve them, how they are spread and which are never trimmed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Serialize;

/// What DSCP code points mean (docs/reference/fabric-file.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DscpPlan {
    /// Packets that may be trimmed, by layer class, front layers first.
    pub trimmable: Vec<u8>,
    /// Packets that may be dropped but not trimmed, by layer class.
    pub droppable: Vec<u8>,
    /// Packets that were trimmed.
    pub trimmed: u8,
    /// Packets that were trimmed on their way out to the receiver (UEC: TRIMMED_LASTHOP); `None`
    /// for no difference.
    pub trimmed_last_hop: Option<u8>,
    /// The agents' control packets.
    pub control: u8,
}

impl Default for DscpPlan {
    fn default() -> Self {
        Self {
            trimmable: vec![3, 7, 11, 15],
            droppable: vec![19, 23, 27, 31],
            trimmed: 35,
            trimmed_last_hop: None,
            control: 39,
        }
    }
}

/// Which queue serves what; 7 is served first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueuePlan {
    /// The agents' control packets.
    pub control: u8,
    /// Packets that were trimmed: the trim queue.
    pub trimmed: u8,
    /// By layer class, front layers first.
    pub classes: Vec<u8>,
    /// Everything else.
    pub best_effort: u8,
}

impl Default for QueuePlan {
    fn default() -> Self {
        Self { control: 7, trimmed: 6, classes: vec![5, 4, 3, 2], best_effort: 0 }
    }
}

impl QueuePlan {
    /// Every queue with its name in fabric files, most urgent use first.
    pub fn named(&self) -> Vec<(String, u8)> {
        let classes = self.classes.iter().enumerate().map(|(class, queue)| (format!("class{class}"), *queue));
        [("control".to_owned(), self.control), ("trimmed".to_owned(), self.trimmed)]
            .into_iter()
            .chain(classes)
            .chain([("best_effort".to_owned(), self.best_effort)])
            .collect()
    }

    /// A queue's name, or its number where the plan does not use it.
    pub fn name_of(&self, queue: u8) -> String {
        let named = self.named().into_iter().find(|(_, number)| *number == queue);
        named.map_or_else(|| format!("queue {queue}"), |(name, _)| name)
    }
}

/// What is done to packets in a congested queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overload {
    /// Trimmable packets are trimmed; of others the less important are dropped first.
    Trim,
    /// Nothing is trimmed; the less important are dropped first (MLT §4.2.2 without trimming).
    SelectiveDrop,
    /// Nothing is trimmed; everything is dropped once the queue is full.
    DropTail,
}

/// How packets to one host are spread over its equal paths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// By addresses, protocol and ports: what the agent sprays with its source ports, and flow by
    /// flow for everybody else.
    #[default]
    FiveTuple,
    /// The source port does not count: one path from host to host.
    Flow,
    /// Each packet takes a path of its own.
    Packet,
}

/// How each kind of packet is spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LoadBalance {
    /// Whatever the others do not say.
    pub default: Spread,
    /// Trimmable packets, and what is left of them where they were trimmed.
    pub trimmable: Spread,
    /// Packets that may be dropped but not trimmed.
    pub droppable: Spread,
}

/// A rule. What is `None` matches anything; a rule says something about at least one of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptOut {
    /// Where it stands: `disable_trim[0]`.
    pub path: String,
    /// First address and how many leading bits count; `src` and `dst` are of one IP version.
    pub src: Option<(IpAddr, u32)>,
    /// The same.
    pub dst: Option<(IpAddr, u32)>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Source port.
    pub src_port: Option<u16>,
    /// Destination port.
    pub dst_port: Option<u16>,
    /// Where it applies; `None` for everywhere.
    pub switches: Option<BTreeSet<String>>,
}
