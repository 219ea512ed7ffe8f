// SPDX-License-Identifier: Apache-2.0
//! DCQCN's words and its switches', checked.

use super::locate::{Wrong, wrong};
use super::words::{DcqcnWords, PfcWords, SwitchWords};
use crate::sim::discipline::{Marks, Rule};
use crate::sim::packet::CONTROL_CLASS;
use crate::sim::pfc::Pfc;
use crate::sim::topology::Topology;
use crate::sim::transport::DcqcnConfig;

/// The paper's thresholds (SIGCOMM 2015, §5).
const MARKS: Marks = Marks { k_min: 5_000, k_max: 200_000, p_max: 0.01 };

pub(super) fn transport(words: &DcqcnWords) -> Result<DcqcnConfig, Wrong> {
    let at = |key: &'static str, reason: String| wrong(&["transport", "dcqcn", key], reason);
    let times = [("alpha_timer", words.alpha_timer), ("timer", words.timer), ("rto", words.rto)];
    if let Some((key, _)) = times.into_iter().find(|(_, time)| time.is_some_and(|time| time.0 == 0)) {
        return at(key, format!("{key}: 0; valid are times above 0, such as 55us"));
    }
    if let Some(gain) = words.gain.filter(|gain| !(*gain > 0.0 && *gain <= 1.0)) {
        return at("gain", format!("gain: {gain}; valid are above 0 to 1"));
    }
    if words.byte_counter.is_some_and(|bytes| bytes.0 == 0) {
        return at("byte_counter", "byte_counter: 0; valid are sizes above 0, such as 10MB".into());
    }
    let usual = DcqcnConfig::default();
    Ok(DcqcnConfig {
        cnp_interval_ns: words.cnp_interval.map_or(usual.cnp_interval_ns, |time| time.0),
        gain: words.gain.unwrap_or(usual.gain),
        alpha_timer_ns: words.alpha_timer.map_or(usual.alpha_timer_ns, |time| time.0),
        timer_ns: words.timer.map_or(usual.timer_ns, |time| time.0),
        byte_counter: words.byte_counter.map_or(usual.byte_counter, |bytes| bytes.0),
        fast_recovery: words.fast_recovery.unwrap_or(usual.fast_recovery),
        increase_bps: words.increase.map_or(usual.increase_bps, |rate| rate.0),
        hyper_increase_bps: words.hyper_increase.map_or(usual.hyper_increase_bps, |rate| rate.0),
        min_rate_bps: words.min_rate.map_or(usual.min_rate_bps, |rate| rate.0),
        rto_ns: words.rto.map_or(usual.rto_ns, |time| time.0),
        by_layer: words.by_layer,
    })
}

/// Whether a port's memory holds what PFC promises of it.
pub(super) fn check(rule: &Rule, topology: &Topology) -> Result<(), Wrong> {
    let Some(pfc) = rule.pfc() else { return Ok(()) };
    let of_links = topology.links.iter().map(|link| pfc.reserved(link.rate_bps, link.delay_ns));
    let (most, buffer, priorities) = (of_links.max().unwrap_or(0), pfc.buffer, pfc.lossless);
    if most >= buffer {
        let reason = format!(
            "buffer: {buffer} bytes a port; valid are more than the headroom of its {priorities} priorities, {most} bytes"
        );
        return wrong(&["switch", "buffer"], reason);
    }
    let left = (buffer - most) / u64::from(priorities);
    if let Some(xoff) = pfc.xoff.filter(|&xoff| xoff > left) {
        let reason = format!(
            "xoff: {xoff} bytes; valid are up to what a port's buffer has beside headroom, {left} bytes a priority"
        );
        return wrong(&["switch", "pfc", "xoff"], reason);
    }
    Ok(())
}

/// Its switches: `buffer` is a port's limit without PFC, and its part of the switch's memory with
/// it.
pub(super) fn rule(
    words: &SwitchWords,
    transport: &DcqcnWords,
    buffer: u64,
    frame: u64,
) -> Result<Rule, Wrong> {
    let marks = Marks {
        k_min: words.k_min.map_or(MARKS.k_min, |bytes| bytes.0),
        k_max: words.k_max.map_or(MARKS.k_max, |bytes| bytes.0),
        p_max: words.p_max.unwrap_or(MARKS.p_max),
    };
    if marks.k_min > marks.k_max {
        let reason = format!("k_min: {} bytes; valid are up to k_max, {} bytes", marks.k_min, marks.k_max);
        return wrong(&["switch", "k_min"], reason);
    }
    if !(0.0..=1.0).contains(&marks.p_max) {
        return wrong(&["switch", "p_max"], format!("p_max: {}; valid are 0 to 1", marks.p_max));
    }
    if words.lossy && words.pfc.is_some() {
        return wrong(&["switch", "lossy"], "lossy: true; valid without pfc".into());
    }
    let nothing = PfcWords::default();
    let said = words.pfc.as_ref().unwrap_or(&nothing);
    if said.xoff.is_some() && said.beta.is_some() {
        return wrong(&["switch", "pfc"], "pfc: give either xoff or beta".into());
    }
    if said.beta == Some(0) {
        return wrong(&["switch", "pfc", "beta"], "beta: 0; valid are 1 and more".into());
    }
    let usual = Pfc::new(frame);
    let pfc = Pfc {
        buffer,
        xoff: said.xoff.map(|bytes| bytes.0),
        beta: said.beta.unwrap_or(usual.beta),
        xon_below: said.xon_below.map_or(usual.xon_below, |bytes| bytes.0),
        headroom: said.headroom.map(|bytes| bytes.0),
        response_ns: said.response.map_or(usual.response_ns, |time| time.0),
        lossless: if transport.by_layer { CONTROL_CLASS } else { usual.lossless },
        ..usual
    };
    Ok(Rule::Red { limit: buffer, marks, pfc: (!words.lossy).then_some(pfc) })
}
