// SPDX-License-Identifier: Apache-2.0
//! A run's transport and its switches, as a scenario file has them.

use super::quantity::{Bytes, Duration, Rate};
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransportWords {
    /// DCTCP.
    pub(super) dctcp: Option<DctcpWords>,
    /// PIAS.
    pub(super) pias: Option<PiasWords>,
    /// pFabric.
    pub(super) pfabric: Option<PFabricWords>,
    /// NDP.
    pub(super) ndp: Option<NdpWords>,
    /// NSCC of Ultra Ethernet.
    pub(super) nscc: Option<NsccWords>,
    /// MLT.
    pub(super) mlt: Option<MltWords>,
    /// DCQCN of RoCEv2, with PFC.
    pub(super) dcqcn: Option<DcqcnWords>,
    /// Swift.
    pub(super) swift: Option<SwiftWords>,
    /// Trimwire.
    pub(super) trimwire: Option<TrimwireWords>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DctcpWords {
    /// Initial window in packets.
    pub(super) initial_window: Option<u32>,
    /// Least retransmission time-out.
    pub(super) rto_min: Option<Duration>,
    /// Duplicate ACKs that tell a loss.
    pub(super) duplicates: Option<u32>,
    /// Spray packets over all paths.
    #[serde(default)]
    pub(super) spray: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PiasWords {
    /// Initial window in packets.
    initial_window: Option<u32>,
    /// Least retransmission time-out.
    rto_min: Option<Duration>,
    /// Duplicate ACKs that tell a loss.
    duplicates: Option<u32>,
    /// Bytes after which a flow moves to the next lower priority.
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
    /// Least retransmission time-out.
    pub(super) rto_min: Option<Duration>,
    /// Retransmission time-out in round trips.
    pub(super) rto_round_trips: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NdpWords {
    /// Initial window in packets.
    pub(super) initial_window: Option<u32>,
    /// Retransmission time-out.
    pub(super) rto: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NsccWords {
    /// Queueing delay to aim at.
    pub(super) target: Option<Duration>,
    /// Retransmission time-out.
    pub(super) rto: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MltWords {
    /// Share of packets that may be lost.
    pub(super) loss: Option<f64>,
    /// Raise the rate below this round trip.
    pub(super) t_low: Option<Duration>,
    /// Lower the rate above this round trip.
    pub(super) t_high: Option<Duration>,
    /// Additive increase of the rate.
    pub(super) increase: Option<Rate>,
    /// Use the whole of TIMELY's algorithm.
    #[serde(default)]
    pub(super) gradient: bool,
    /// Share of important packets.
    pub(super) important: Option<f64>,
    /// Spray packets over all paths.
    #[serde(default = "super::file::yes")]
    pub(super) spray: bool,
    /// Retransmission time-out of control packets.
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
pub(super) struct SwiftWords {
    /// Packets added in a round trip [default: 1].
    pub(super) increase: Option<f64>,
    /// How much of the excess delay lowers the window [default: 0.8].
    pub(super) beta: Option<f64>,
    /// Share of the window that a decrease takes at most [default: 0.5].
    pub(super) max_decrease: Option<f64>,
    /// Base of the target delay [default: 20us].
    pub(super) base_target: Option<Duration>,
    /// Target delay of every switch on the way [default: 3us].
    pub(super) hop: Option<Duration>,
    /// Target delay added for the smallest windows [default: 100us].
    pub(super) scaling: Option<Duration>,
    /// Initial window in packets [default: 10].
    pub(super) initial_window: Option<u32>,
    /// Largest window in packets [default: 1000].
    pub(super) max_window: Option<f64>,
    /// Least retransmission time-out [default: 1ms].
    pub(super) rto_min: Option<Duration>,
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
    /// Initial rate.
    pub(super) start: Option<Rate>,
    /// Start at the fair share of the receiver.
    #[serde(default)]
    pub(super) start_fair: bool,
    /// Additive increase of the rate.
    pub(super) increase: Option<Rate>,
    /// Share of important packets.
    #[serde(default = "half")]
    pub(super) important: f64,
    /// Bytes in flight at most.
    pub(super) window: Option<Bytes>,
    /// UDP source ports to spray over.
    #[serde(default = "ports")]
    pub(super) paths: u16,
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
#[serde(deny_unknown_fields)]
pub(super) struct SwitchWords {
    /// Buffer of a port.
    pub(super) buffer: Option<Bytes>,
    /// Queue from which packets are marked.
    pub(super) mark_at: Option<Bytes>,
    /// Queue from which MLT's lowest queue drops.
    pub(super) drop_at: Option<Bytes>,
    /// Packets that a queue of NDP or NSCC holds.
    pub(super) packets: Option<u32>,
    /// Queueing time from which packets are trimmed.
    pub(super) shallow_at: Option<Duration>,
    /// Queueing time from which packets are trimmed to the sign plane.
    pub(super) deep_at: Option<Duration>,
    /// Trim to the sign plane at once.
    #[serde(default)]
    pub(super) one_level: bool,
    /// Ignore importance.
    #[serde(default)]
    pub(super) blind: bool,
    /// Queue from which DCQCN's switches mark [default: 5KB].
    pub(super) k_min: Option<Bytes>,
    /// Queue from which they mark every packet [default: 200KB].
    pub(super) k_max: Option<Bytes>,
    /// Share that they mark just below [default: 0.01].
    pub(super) p_max: Option<f64>,
    /// PFC's numbers.
    pub(super) pfc: Option<PfcWords>,
    /// DCQCN without PFC: switches drop.
    #[serde(default)]
    pub(super) lossy: bool,
    /// Switches that run the P4 program: `all`, or a list of numbers.
    pub(super) p4: Option<P4Words>,
}

impl SwitchWords {
    /// Whether it says anything about thresholds.
    pub(super) fn has_thresholds(&self) -> bool {
        let Self { buffer, mark_at, drop_at, packets, shallow_at, deep_at, one_level, blind, .. } = self;
        let sizes = [buffer, mark_at, drop_at].into_iter().any(Option::is_some) || packets.is_some();
        let times = [shallow_at, deep_at].into_iter().any(Option::is_some);
        sizes || times || *one_level || *blind || self.has_dcqcn()
    }

    /// Whether it says anything that only DCQCN's switches have.
    pub(super) fn has_dcqcn(&self) -> bool {
        let Self { k_min, k_max, p_max, pfc, lossy, .. } = self;
        [k_min, k_max].into_iter().any(Option::is_some) || p_max.is_some() || pfc.is_some() || *lossy
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
