// SPDX-License-Identifier: Apache-2.0
//! From words to a transport, and to the switches that it was made for.

use super::file::WorkloadWords;
use super::locate::{Wrong, wrong};
use super::words::{AlgorithmWord, DctcpWords, DeliveryWord, MltWords, SwitchWords, TransportWords};
use super::{check, dcqcn};
use crate::sim::discipline::{Rule, Rungs};
use crate::sim::quantity::Duration;
use crate::sim::topology::Topology;
use crate::sim::transport::{self, Delivery, MltConfig, NdpConfig, PFabricConfig, Transport, TrimwireConfig};
use trimwire_agent::rate::{DctcpConfig, Limits, RateConfig, TimelyConfig};

/// A run's transport.
pub(super) fn transport(
    words: &TransportWords,
    rate_bps: u64,
    topology: &Topology,
    workload: &WorkloadWords,
) -> Result<Transport, Wrong> {
    let mut made = Vec::new();
    let dctcp = |words: &DctcpWords| {
        let mut config = transport::DctcpConfig::default();
        config.initial_window = words.initial_window.unwrap_or(config.initial_window);
        config.rto_min_ns = words.rto_min.map_or(config.rto_min_ns, |time| time.0);
        config.duplicates = words.duplicates.unwrap_or(config.duplicates);
        config.spray = words.spray;
        config
    };
    if let Some(words) = &words.dctcp {
        made.push(Transport::Dctcp(dctcp(words)));
    }
    if let Some(words) = &words.pias {
        let mut config = dctcp(&words.dctcp());
        // Guesses between the paper's two sets (§6.3), scaled to nothing: what they should be
        // depends on the traffic.
        let guess =
            || [50, 100, 250, 1_000, 2_000, 5_000, 10_000].map(|kilobytes| kilobytes * 1_000).to_vec();
        config.demote_after =
            words.demote_after.as_ref().map_or_else(guess, |after| after.iter().map(|b| b.0).collect());
        made.push(Transport::Dctcp(config));
    }
    if let Some(words) = &words.pfabric {
        let mut config = PFabricConfig::default();
        config.rto_round_trips = words.rto_round_trips.unwrap_or(config.rto_round_trips);
        config.rto_min_ns = words.rto_min.map_or(config.rto_min_ns, |time| time.0);
        made.push(Transport::PFabric(config));
    }
    if let Some(words) = &words.ndp {
        let config = NdpConfig { initial_window: words.initial_window, rto_ns: words.rto.map(|time| time.0) };
        made.push(Transport::Ndp(config));
    }
    if let Some(words) = &words.mlt {
        made.push(Transport::Mlt(mlt(words)?));
    }
    if let Some(words) = &words.dcqcn {
        made.push(Transport::Dcqcn(dcqcn::transport(words)?));
    }
    if let Some(words) = &words.trimwire {
        let senders = workload.incast.as_ref().map_or(topology.hosts - 1, |cast| cast.senders);
        let start_bps = match (words.start, words.start_fair) {
            (None, false) => None,
            (Some(rate), false) => Some(rate.0),
            (None, true) => Some(rate_bps / u64::from(senders.max(1))),
            _ => {
                return wrong(&["transport", "trimwire"], "trimwire: give either start or start_fair".into());
            }
        };
        let increase_bps = words.increase.map(|rate| rate.0);
        let limits = Limits { start_bps, increase_bps, ..Limits::default() };
        let law = match words.algorithm {
            AlgorithmWord::Dctcp => RateConfig::Dctcp(DctcpConfig { limits, ..DctcpConfig::default() }),
            AlgorithmWord::Timely => RateConfig::Timely(TimelyConfig { limits, ..TimelyConfig::default() }),
            AlgorithmWord::Fixed => RateConfig::Fixed(start_bps),
        };
        if !(0.0..1.0).contains(&words.loss) {
            return wrong(
                &["transport", "trimwire", "loss"],
                format!("loss: {}; valid are 0 to below 1", words.loss),
            );
        }
        let delivery = match words.delivery {
            DeliveryWord::Trim => Delivery::Trim { loss: words.loss },
            DeliveryWord::RepairTrimmed => Delivery::RepairTrimmed,
            DeliveryWord::RepairDropped => Delivery::RepairDropped,
        };
        let mut config = TrimwireConfig::new(delivery, law);
        config.important = words.important;
        config.window = words.window.map_or(config.window, |bytes| bytes.0);
        config.paths = words.paths.max(1);
        config.planes = words.planes.unwrap_or(config.planes);
        made.push(Transport::Trimwire(config));
    }
    match made.len() {
        1 => made.pop().ok_or_else(|| (vec!["transport"], String::new())),
        _ => wrong(
            &["transport"],
            "transport: give one of dctcp, pias, pfabric, ndp, mlt, dcqcn, trimwire".into(),
        ),
    }
}

fn mlt(words: &MltWords) -> Result<MltConfig, Wrong> {
    let shares = [("loss", words.loss), ("important", words.important)];
    for (name, share) in shares.into_iter().filter_map(|(name, share)| Some((name, share?))) {
        if !(0.0..=1.0).contains(&share) || (name == "loss" && share >= 1.0) {
            return wrong(&["transport", "mlt", name], format!("{name}: {share}; valid are shares"));
        }
    }
    let usual = MltConfig::default();
    let t_low_ns = words.t_low.map_or(usual.t_low_ns, |time| time.0);
    let t_high_ns = words.t_high.map_or(usual.t_high_ns, |time| time.0);
    if t_low_ns > t_high_ns {
        let reason = format!("t_low: {t_low_ns} ns; valid are up to t_high, {t_high_ns} ns");
        return wrong(&["transport", "mlt", "t_low"], reason);
    }
    Ok(MltConfig {
        loss: words.loss.unwrap_or(usual.loss),
        t_low_ns,
        t_high_ns,
        increase_bps: words.increase.map_or(usual.increase_bps, |rate| rate.0),
        gradient: words.gradient,
        important: words.important.unwrap_or(usual.important),
        spray: words.spray,
        control_rto_ns: words.control_rto.map_or(usual.control_rto_ns, |time| time.0),
        ..usual
    })
}

/// The switch that a transport was made for, with what the scenario says of it.
pub(super) fn rule(
    words: Option<&SwitchWords>,
    transport: &TransportWords,
    rate_bps: u64,
    payload: u32,
    frame: u64,
) -> Result<Rule, Wrong> {
    let nothing = SwitchWords::default();
    let words = words.unwrap_or(&nothing);
    check::switch(words, transport, frame)?;
    let limit = words.buffer.map_or(512 << 10, |bytes| bytes.0);
    let mark_at = Some(words.mark_at.map_or(65 * frame, |bytes| bytes.0));
    if let Some(transport) = &transport.dcqcn {
        return dcqcn::rule(words, transport, limit, frame);
    }
    Ok(match () {
        () if transport.dctcp.is_some() => Rule::DropTail { limit, mark_at },
        () if transport.pias.is_some() => Rule::Priority { limit, mark_at },
        () if transport.pfabric.is_some() => Rule::PFabric { limit },
        () if transport.ndp.is_some() => {
            let packets = words.packets.unwrap_or(8);
            Rule::Ndp { packets, heads: u64::from(packets) * frame }
        }
        () if transport.mlt.is_some() => {
            let drop_at = words.drop_at.map_or(65 * frame, |bytes| bytes.0);
            Rule::Selective { limit, drop_at: (!words.blind).then_some(drop_at) }
        }
        () => {
            let mut rungs = Rungs::defaults(rate_bps, payload);
            let us = |time: Duration| (u128::from(time.0) * u128::from(rate_bps) / 8_000_000_000) as u64;
            if let Some(at) = words.shallow_at {
                rungs.shallow_at = [us(at) / 2, us(at)];
            }
            if let Some(at) = words.deep_at {
                rungs.deep_at = [us(at) / 2, us(at)];
            }
            if let Some(buffer) = words.buffer {
                rungs.drop_at = [buffer.0; 2];
            }
            for at in 0..2 {
                rungs.deep_at[at] = rungs.deep_at[at].min(rungs.drop_at[at]);
                rungs.shallow_at[at] = rungs.shallow_at[at].min(rungs.deep_at[at]);
                rungs.mark_at[at] = rungs.mark_at[at].min(rungs.shallow_at[at]);
            }
            if words.one_level {
                rungs.shallow_size = rungs.deep_size;
            }
            if words.blind {
                // Importance does not count.
                rungs.shallow_at[0] = rungs.shallow_at[1];
                rungs.deep_at[0] = rungs.deep_at[1];
            }
            Rule::Ladder(rungs)
        }
    })
}
