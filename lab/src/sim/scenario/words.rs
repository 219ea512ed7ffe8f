// SPDX-License-Identifier: Apache-2.0
//! A run's transport and its switches, as a scenario file has them.

use crate::sim::quantity::{Bytes, Duration, Rate};
use serde::Deserialize;

/// Transports by what their switches have: a buffer in bytes, marks from a threshold, drops by
/// importance from one, a queue of so many packets, importance, the ladder, DCQCN's marks and PFC.
const BUFFERED: &[&str] = &["dctcp", "pias", "pfabric", "mlt", "dcqcn", "trimwire"];
const MARKED: &[&str] = &["dctcp", "pias"];
const SELECTIVE: &[&str] = &["mlt"];
const COUNTED: &[&str] = &["ndp"];
const IMPORTANT: &[&str] = &["mlt", "trimwire"];
const LADDER: &[&str] = &["trimwire"];
const DCQCN: &[&str] = &["dcqcn"];

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a transport with its keys, such as { dctcp: {} }")]
pub(super) struct TransportWords {
    /// DCTCP.
    pub(super) dctcp: Option<DctcpWords>,
    /// PIAS.
    pub(super) pias: Option<PiasWords>,
    /// pFabric.
    pub(super) pfabric: Option<PFabricWords>,
    /// NDP.
    pub(super) ndp: Option<NdpWords>,
    /// MLT.
    pub(super) mlt: Option<MltWords>,
    /// DCQCN of RoCEv2, with PFC.
    pub(super) dcqcn: Option<DcqcnWords>,
    /// Trimwire.
    pub(super) trimwire: Option<TrimwireWords>,
}

impl TransportWords {
    /// Names of those that are given: of a valid run, one.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        let Self { dctcp, pias, pfabric, ndp, mlt, dcqcn, trimwire } = self;
        let given = [
            ("dctcp", dctcp.is_some()),
            ("pias", pias.is_some()),
            ("pfabric", pfabric.is_some()),
            ("ndp", ndp.is_some()),
            ("mlt", mlt.is_some()),
            ("dcqcn", dcqcn.is_some()),
            ("trimwire", trimwire.is_some()),
        ];
        given.into_iter().filter_map(|(name, is_given)| is_given.then_some(name))
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DctcpWords {
    /// Initial window in packets [default: 10].
    pub(super) initial_window: Option<u32>,
    /// Least retransmission time-out [default: 10ms].
    pub(super) rto_min: Option<Duration>,
    /// Duplicate ACKs that tell a loss [default: 3].
    pub(super) duplicates: Option<u32>,
    /// Spray packets over all paths; without it a flow stays on one. Raise `duplicates` with it.
    #[serde(default)]
    pub(super) spray: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PiasWords {
    /// Initial window in packets [default: 10].
    initial_window: Option<u32>,
    /// Least retransmission time-out [default: 10ms].
    rto_min: Option<Duration>,
    /// Duplicate ACKs that tell a loss [default: 3].
    duplicates: Option<u32>,
    /// Bytes after which a flow moves to the next lower priority
    /// [default: guesses, 50KB, 100KB, 250KB, 1MB, 2MB, 5MB, 10MB].
    pub(super) demote_after: Option<Vec<Bytes>>,
}

impl PiasWords {
    pub(super) fn dctcp(&self) -> DctcpWords {
        let Self { initial_window, rto_min, duplicates, .. } = *self;
        DctcpWords { initial_window, rto_min, duplicates, spray: false }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PFabricWords {
    /// Least retransmission time-out [default: none].
    pub(super) rto_min: Option<Duration>,
    /// Retransmission time-out in round trips of the idle path [default: 3].
    pub(super) rto_round_trips: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NdpWords {
    /// Initial window in packets [default: what fills the idle path].
    pub(super) initial_window: Option<u32>,
    /// Retransmission time-out [default: 1ms].
    pub(super) rto: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MltWords {
    /// Share of packets that may be lost [default: 0.1].
    pub(super) loss: Option<f64>,
    /// Raise the rate below this round trip [default: 12.5us].
    pub(super) t_low: Option<Duration>,
    /// Lower the rate above this round trip [default: 125us].
    pub(super) t_high: Option<Duration>,
    /// Additive increase of the rate [default: 40Mbps].
    pub(super) increase: Option<Rate>,
    /// Use the whole of TIMELY's algorithm.
    #[serde(default)]
    pub(super) gradient: bool,
    /// Share of important packets [default: 0.5].
    pub(super) important: Option<f64>,
    /// Spray packets over all paths.
    #[serde(default = "super::file::yes")]
    pub(super) spray: bool,
    /// Retransmission time-out of control packets [default: 1ms].
    pub(super) control_rto: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DcqcnWords {
    /// Time between two CNPs of a flow [default: 50us].
    pub(super) cnp_interval: Option<Duration>,
    /// Weight of a CNP in α [default: 1/256].
    pub(super) gain: Option<f64>,
    /// Time without a CNP after which α falls [default: 55us].
    pub(super) alpha_timer: Option<Duration>,
    /// Time between two increases by the timer [default: 55us].
    pub(super) timer: Option<Duration>,
    /// Bytes between two increases by the byte counter [default: 10MB].
    pub(super) byte_counter: Option<Bytes>,
    /// Increases of fast recovery [default: 5].
    pub(super) fast_recovery: Option<u32>,
    /// Step of the additive increase [default: 40Mbps].
    pub(super) increase: Option<Rate>,
    /// Step of the hyper increase [default: 200Mbps].
    pub(super) hyper_increase: Option<Rate>,
    /// Least rate [default: 10Mbps].
    pub(super) min_rate: Option<Rate>,
    /// Retransmission time-out [default: 67.1ms].
    pub(super) rto: Option<Duration>,
    /// Give flows PFC's priorities by their layers.
    #[serde(default)]
    pub(super) by_layer: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrimwireWords {
    /// What counts as delivered.
    #[serde(default)]
    pub(super) delivery: DeliveryWord,
    /// Rate algorithm.
    #[serde(default)]
    pub(super) algorithm: AlgorithmWord,
    /// Share of packets that may be missing.
    #[serde(default = "hundredth")]
    pub(super) loss: f64,
    /// Initial rate, up to the rate of the hosts' links [default: that rate].
    pub(super) start: Option<Rate>,
    /// Start at the fair share of the receiver.
    #[serde(default)]
    pub(super) start_fair: bool,
    /// Additive increase of the rate at line rate [default: 1/250 of it].
    pub(super) increase: Option<Rate>,
    /// Share of important packets, 0 to 1.
    #[serde(default = "half")]
    pub(super) important: f64,
    /// Bytes in flight at most, to all hosts together, 24KB and more [default: 8MiB].
    pub(super) window: Option<Bytes>,
    /// UDP source ports to spray over, 1 to 256.
    #[serde(default = "ports")]
    pub(super) paths: u16,
    /// Planes that are sent, 1 to 10, of a gradient whose flows are in f32: 9 take two bytes a
    /// coordinate. Packets have as many coordinates as with ten
    /// [default: ten, and the flows' bytes as they are].
    pub(super) planes: Option<u8>,
}

fn hundredth() -> f64 {
    0.01
}

fn half() -> f64 {
    0.5
}

fn ports() -> u16 {
    64
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DeliveryWord {
    #[default]
    Trim,
    RepairTrimmed,
    RepairDropped,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AlgorithmWord {
    #[default]
    Dctcp,
    Timely,
    Fixed,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a switch's keys, such as { buffer: 512KiB }")]
pub(super) struct SwitchWords {
    /// Buffer of a port [default: 512KiB; trimwire: 400us of the hosts' links]. Valid with dctcp,
    /// pias, pfabric, mlt, dcqcn, trimwire.
    pub(super) buffer: Option<Bytes>,
    /// Queue from which packets are marked [default: 65 packets]. Valid with dctcp, pias.
    pub(super) mark_at: Option<Bytes>,
    /// Queue from which MLT's lowest queue drops less important packets [default: 65 packets].
    /// Valid with mlt, without blind.
    pub(super) drop_at: Option<Bytes>,
    /// Packets that a queue holds [default: 8]. Valid with ndp.
    pub(super) packets: Option<u32>,
    /// Queueing time from which important packets are trimmed, others from half of it
    /// [default: 40us]. Valid with trimwire.
    pub(super) shallow_at: Option<Duration>,
    /// Queueing time from which important packets are trimmed to the sign plane, others from half
    /// of it [default: 80us]. Valid with trimwire.
    pub(super) deep_at: Option<Duration>,
    /// Trim to the sign plane at once. Valid with trimwire.
    #[serde(default)]
    pub(super) one_level: bool,
    /// Ignore importance. Valid with mlt, trimwire.
    #[serde(default)]
    pub(super) blind: bool,
    /// Queue from which DCQCN's switches mark [default: 5KB]. Valid with dcqcn.
    pub(super) k_min: Option<Bytes>,
    /// Queue from which they mark every packet [default: 200KB]. Valid with dcqcn.
    pub(super) k_max: Option<Bytes>,
    /// Share that they mark just below [default: 0.01]. Valid with dcqcn.
    pub(super) p_max: Option<f64>,
    /// PFC's numbers. Valid with dcqcn, without lossy.
    pub(super) pfc: Option<PfcWords>,
    /// DCQCN without PFC: switches drop. Valid with dcqcn.
    #[serde(default)]
    pub(super) lossy: bool,
    /// Switches that run the P4 program: `all`, or a list of numbers. Valid with trimwire.
    pub(super) p4: Option<P4Words>,
}

impl SwitchWords {
    /// Keys of thresholds that are given, with the transports that they are valid with.
    pub(super) fn thresholds(&self) -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
        let Self { buffer, mark_at, drop_at, packets, shallow_at, deep_at, one_level, blind, .. } = self;
        let Self { k_min, k_max, p_max, pfc, lossy, .. } = self;
        let given = [
            (buffer.is_some(), "buffer", BUFFERED),
            (mark_at.is_some(), "mark_at", MARKED),
            (drop_at.is_some(), "drop_at", SELECTIVE),
            (packets.is_some(), "packets", COUNTED),
            (shallow_at.is_some(), "shallow_at", LADDER),
            (deep_at.is_some(), "deep_at", LADDER),
            (*one_level, "one_level", LADDER),
            (*blind, "blind", IMPORTANT),
            (k_min.is_some(), "k_min", DCQCN),
            (k_max.is_some(), "k_max", DCQCN),
            (p_max.is_some(), "p_max", DCQCN),
            (pfc.is_some(), "pfc", DCQCN),
            (*lossy, "lossy", DCQCN),
        ];
        given.into_iter().filter_map(|(is_given, key, valid)| is_given.then_some((key, valid)))
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PfcWords {
    /// Bytes of a port and priority from which it pauses [default: β's share of what is free].
    pub(super) xoff: Option<Bytes>,
    /// β: eighths of the free memory that a port and priority may take [default: 8].
    pub(super) beta: Option<u64>,
    /// Bytes below `xoff` at which a pause ends [default: two frames].
    pub(super) xon_below: Option<Bytes>,
    /// Bytes for what comes after a pause [default: what the link may hold].
    pub(super) headroom: Option<Bytes>,
    /// Time until a pause frame is obeyed [default: 2.02us].
    pub(super) response: Option<Duration>,
}

/// Which switches run the P4 program.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "p4 is 'all', or a list of switches' numbers")]
pub(super) enum P4Words {
    All(AllWord),
    Some(Vec<u32>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AllWord {
    All,
}
