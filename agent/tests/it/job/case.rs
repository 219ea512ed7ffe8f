// SPDX-License-Identifier: Apache-2.0
//! What a job does, and what happens to it.

use crate::network::Faults;
use std::fmt;
use trimwire_agent::collective::{Algorithm, ElementType};
use trimwire_encoder::PLANES;
use trimwire_encoder::wire::Codec;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Which collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast {
        root: u16,
    },
    Reduce {
        root: u16,
    },
    /// Ranks below `servers` sum.
    PushPull {
        servers: u16,
    },
}

/// How much has to arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Promise {
    Bounded { loss: f32 },
    Reliable,
    Exact,
    BestEffort { deadline_ns: u64 },
}

/// One operation, the same at all ranks.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) length: usize,
    pub(crate) element: ElementType,
    pub(crate) promise: Promise,
    pub(crate) algorithm: Algorithm,
    pub(crate) consistent: bool,
    pub(crate) planes: u8,
    pub(crate) average: bool,
    pub(crate) layer_class: u8,
}

/// What shows, after the case's operations, that nothing of them is left.
pub(crate) const NEXT: Plan = Plan {
    kind: Kind::AllReduce,
    length: 1_001,
    element: ElementType::F32,
    promise: Promise::Reliable,
    algorithm: Algorithm::Direct,
    consistent: false,
    planes: PLANES,
    average: false,
    layer_class: 0,
};

/// What ranks meet by: each sends to each.
pub(crate) const MEETING: Plan =
    Plan { kind: Kind::AllGather, length: 2_048, promise: Promise::Reliable, ..NEXT };

impl Plan {
    pub(crate) fn codec(&self) -> Codec {
        if self.promise == Promise::Exact { Codec::Raw } else { Codec::default() }
    }

    /// Planes that are sent.
    pub(crate) fn sent_planes(&self) -> u8 {
        if self.promise == Promise::Exact { Codec::Raw.planes() } else { self.planes }
    }

    /// Whether everything that was trimmed or lost is sent again until it is there.
    pub(crate) fn repairs_all(&self) -> bool {
        matches!(self.promise, Promise::Reliable | Promise::Exact)
    }
}

/// What happens to one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// Its application asks so much later than the others'.
    Late {
        rank: usize,
        by_ns: u64,
    },
    /// Its process begins so much later than the others'.
    Absent {
        rank: usize,
        by_ns: u64,
    },
    /// Nobody drives it from then on (SIGSTOP), for so long.
    Stopped {
        rank: usize,
        at_ns: u64,
        for_ns: u64,
    },
    /// Its process ends then, and another one takes its place.
    Restarted {
        rank: usize,
        at_ns: u64,
    },
    /// It is gone from then on.
    Killed {
        rank: usize,
        at_ns: u64,
    },
}

impl Trouble {
    /// Who is to blame where an operation fails; `None`: none may fail.
    pub(crate) fn culprit(self) -> Option<usize> {
        match self {
            Self::Restarted { rank, .. } | Self::Killed { rank, .. } => Some(rank),
            _ => None,
        }
    }
}

/// A job.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) world: u16,
    /// Empty: every rank is alone on its host.
    pub(crate) hosts: Vec<u32>,
    pub(crate) operations: Vec<Plan>,
    /// Coordinates of a packet of what may be trimmed.
    pub(crate) coordinates_per_packet: usize,
    /// Longest packet of what is exact, bytes.
    pub(crate) mtu: usize,
    pub(crate) row_log2: u8,
    pub(crate) faults: Faults,
    /// The DCTCP-like algorithm; else everybody sends at the line's rate.
    pub(crate) adapts: bool,
    pub(crate) sealed: bool,
    /// The ranks have met before.
    pub(crate) warm: bool,
    pub(crate) trouble: Trouble,
}

impl Case {
    /// Everything that is done.
    pub(crate) fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.operations.iter().chain([&NEXT])
    }

    /// Coordinates of an operation's packets.
    pub(crate) fn coordinates_per_packet(&self, plan: &Plan) -> usize {
        match plan.promise {
            Promise::Exact => Codec::Raw.coordinates_per_packet(self.mtu, Codec::Raw.planes(), self.sealed),
            _ => self.coordinates_per_packet,
        }
    }

    /// Bytes of a full packet's first `planes` planes.
    pub(crate) fn packet_len(&self, plan: &Plan, planes: u8) -> usize {
        let coordinates = self.coordinates_per_packet(plan);
        plan.codec().packet_len(planes, coordinates, self.sealed)
    }

    /// Most packets of one message.
    pub(crate) fn most_packets(&self) -> usize {
        let packets = |plan: &Plan| {
            let shards = if matches!(plan.kind, Kind::AllReduce) { usize::from(self.world) } else { 1 };
            plan.length.div_ceil(shards).div_ceil(self.coordinates_per_packet(plan))
        };
        self.operations.iter().map(packets).max().unwrap_or(0)
    }

    /// Chance that a DATA packet of an operation does not do what it has to: to bring everything,
    /// or to bring a plane.
    pub(crate) fn failure(&self, plan: &Plan) -> f64 {
        let Faults { trim, trim_to_at_least: least, trim_to_at_most: most, .. } = self.faults;
        let drop_data = self.faults.lost();
        let wasted = if plan.repairs_all() || plan.sent_planes() == 1 {
            1.0
        } else {
            let (whole, one) = (self.packet_len(plan, plan.sent_planes()), self.packet_len(plan, 1));
            let (least, most) = (least.min(whole), most.min(whole).max(least.min(whole)));
            (one.saturating_sub(least) as f64 / (most - least + 1) as f64).clamp(0.0, 1.0)
        };
        drop_data + (1.0 - drop_data) * trim * wasted
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Faults { data_delay_ns, control_delay_ns, jitter_ns, drop_data, drop_control, trim, .. } =
            self.faults;
        let Faults { trim_to_at_least, trim_to_at_most, duplicate, broken, .. } = self.faults;
        writeln!(
            f,
            "{} ranks on hosts {:?}, {} coordinates a packet (exact: MTU {}), rows of 2^{}, {}{}{}",
            self.world,
            self.hosts,
            self.coordinates_per_packet,
            self.mtu,
            self.row_log2,
            if self.adapts { "DCTCP-like algorithm" } else { "line rate" },
            if self.sealed { ", sealed" } else { "" },
            if self.warm { ", who have met" } else { "" },
        )?;
        let most = if trim_to_at_most == usize::MAX { "all".to_owned() } else { trim_to_at_most.to_string() };
        writeln!(
            f,
            "data {data_delay_ns} ns, control {control_delay_ns} ns, jitter {jitter_ns} ns; lost {drop_data:.4} and {drop_control:.4}; \
             trimmed {trim:.3} to {trim_to_at_least}..{most} bytes; doubled {duplicate:.3}"
        )?;
        writeln!(f, "{:?}, {broken:?}", self.trouble)?;
        // As errors number them: an endpoint's first operation is 1.
        for (number, plan) in (1..).zip(&self.operations) {
            let Plan { kind, length, element, promise, algorithm, consistent, planes, average, layer_class } =
                plan;
            writeln!(
                f,
                "  {number}: {kind:?} of {length} {element}, {promise:?}, {algorithm}, {planes} planes, class {layer_class}{}{}",
                if *consistent { ", consistent" } else { "" },
                if *average { ", averaged" } else { "" },
            )?;
        }
        Ok(())
    }
}
