// SPDX-License-Identifier: Apache-2.0
//! Prometheus metrics of a running controller, in OpenMetrics text.
//! docs/reference/generated/metrics.md lists them.
//!
//! Labels are switches, linked ports, queues with a policy and a few fixed words: as many series as
//! the fabric file has queues, whatever the traffic.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::counters::{Count, Counter as Cell, QueueCounters};
use crate::engine::status::{Drift, Leader, Status, SwitchStatus};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SwitchLabel {
    switch: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    switch: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    switch: String,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FaultLabels {
    switch: String,
    port: String,
    cause: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReloadLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LinkLabel {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueLabels {
    switch: String,
    port: u16,
    queue: u8,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CauseLabels {
    switch: String,
    port: u16,
    queue: u8,
    cause: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StrayLabels {
    switch: String,
    port: u16,
    cause: &'static str,
}

type Real = Gauge<f64, AtomicU64>;

/// All metrics.
pub fn metrics_text(status: &Status) -> String {
    let mut registry = Registry::with_prefix("trimwire");
    let own = registry.sub_registry_with_prefix("controller");
    reloads(own, status);
    leads(own, status);
    faults(own, status);
    replacing(own, status);
    links(own, status);
    gauges(own, status);
    tallies(own, status);
    queues(&mut registry, status);
    trimming(&mut registry, status);
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

fn label(switch: &str) -> SwitchLabel {
    SwitchLabel { switch: switch.to_owned() }
}

fn reloads(registry: &mut Registry, status: &Status) {
    let family = Family::<ReloadLabel, Counter>::default();
    for (outcome, count) in [("taken", status.reloads), ("refused", status.refused_reloads)] {
        family.get_or_create(&ReloadLabel { outcome }).inc_by(count);
    }
    registry.register("reloads", "Fabric files read after the first", family);
}

fn leads(registry: &mut Registry, status: &Status) {
    let leads = Gauge::<i64>::default();
    leads.set((status.leader == Leader::This).into());
    registry.register("leads", "1 while this controller leads the fabric, and may write", leads);
}

fn faults(registry: &mut Registry, status: &Status) {
    let [out, held]: [Family<FaultLabels, Gauge>; 2] = Default::default();
    for fault in &status.faults {
        let port = fault.port.map_or_else(String::new, |port| port.to_string());
        let labels = FaultLabels { switch: fault.switch.clone(), port, cause: fault.cause.name() };
        held.get_or_create(&labels).set(fault.held.into());
        out.get_or_create(&labels).set(1);
    }
    registry.register("out_of_routes", "1 for a switch, or a link, that routes leave out", out);
    registry.register("held_down", "1 once what routes leave out is well again, and waits", held);
}

fn replacing(registry: &mut Registry, status: &Status) {
    let [waiting, stopped]: [Gauge; 2] = Default::default();
    let count = status.replacing.waiting.len() + status.replacing.switches.len();
    waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
    stopped.set(status.replacing.stopped.is_some().into());
    let help = "Switches that wait for a new program, or are given it";
    registry.register("programs_waiting", help, waiting);
    registry.register("programs_stopped", "1 while replacing programs does not go on", stopped);
}

fn links(registry: &mut Registry, status: &Status) {
    let family = Family::<LinkLabel, Gauge>::default();
    for (state, count) in [("tried", status.links.tried), ("untried", status.links.untried())] {
        family.get_or_create(&LinkLabel { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    registry.register("links", "Links between switches that probes have tried, or not yet", family);
}

fn gauges(registry: &mut Registry, status: &Status) {
    type Read = fn(&SwitchStatus) -> Option<i64>;
    let gauges: [(&str, &str, Read); 4] = [
        ("switch_up", "1 when the switch is connected", |status| Some(status.up.into())),
        ("switch_primary", "1 when this controller is the switch's primary", |status| {
            Some(status.primary.into())
        }),
        ("switch_in_place", "1 when the switch held what it should when last seen", |status| {
            status.in_place.map(i64::from)
        }),
        ("switch_failures", "Failures since the last success", |status| Some(status.failures.into())),
    ];
    for (name, help, read) in gauges {
        let family = Family::<SwitchLabel, Gauge>::default();
        for (switch, status) in &status.switches {
            if let Some(value) = read(status) {
                family.get_or_create(&label(switch)).set(value);
            }
        }
        registry.register(name, help, family);
    }
    let [backoff, success]: [Family<SwitchLabel, Real>; 2] = Default::default();
    for (switch, status) in &status.switches {
        backoff.get_or_create(&label(switch)).set(status.backoff_seconds);
        if let Some(time) = status.last_success {
            success.get_or_create(&label(switch)).set(time);
        }
    }
    registry.register_with_unit(
        "switch_backoff",
        "Wait between the last failure and the next attempt; 0 when all is well",
        Unit::Seconds,
        backoff,
    );
    let help = "When the switch was last found, or brought, in place";
    registry.register_with_unit("switch_last_success_timestamp", help, Unit::Seconds, success);
}

fn tallies(registry: &mut Registry, status: &Status) {
    let passes = Family::<OutcomeLabels, Counter>::default();
    let drift = Family::<KindLabels, Counter>::default();
    let refused = Family::<SwitchLabel, Counter>::default();
    for (switch, SwitchStatus { tally, .. }) in &status.switches {
        for (outcome, count) in [("succeeded", tally.succeeded), ("failed", tally.failed)] {
            passes.get_or_create(&OutcomeLabels { switch: switch.clone(), outcome }).inc_by(count);
        }
        for kind in Drift::ALL {
            let count = tally.drift.get(&kind).copied().unwrap_or(0);
            drift.get_or_create(&KindLabels { switch: switch.clone(), kind: kind.name() }).inc_by(count);
        }
        refused.get_or_create(&label(switch)).inc_by(tally.refused);
    }
    registry.register("reconciliations", "Passes over the switch's tables as primary", passes);
    registry.register("drift_repaired", "Entities that drifted and were repaired, by kind", drift);
    registry.register("refused_updates", "Updates that the switch refused", refused);
}

fn queues(registry: &mut Registry, status: &Status) {
    let all = || {
        status.switches.iter().flat_map(|(switch, status)| {
            // Most queues of a large fabric have never had a packet but probes of cables.
            let used = status.counters.queues.iter().filter(|(_, counters)| counters.has_counted());
            used.map(move |((port, queue), counters)| {
                (QueueLabels { switch: switch.clone(), port: *port, queue: *queue }, counters)
            })
        })
    };
    let count = |queue: &QueueCounters, cells: &[Cell]| {
        let counted = cells.iter().filter_map(|cell| queue.counts.get(*cell));
        counted.reduce(|sum, more| Count {
            packets: sum.packets.saturating_add(more.packets),
            bytes: sum.bytes.saturating_add(more.bytes),
        })
    };
    let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
    for (cells, name, help) in [
        (&[Cell::Admitted][..], "admitted", "Packets admitted whole to their queue"),
        (
            &Cell::SONIC_TRIM,
            "trim",
            "Packets trimmed, whether the trimmed packet found room or not (SONiC: TRIM_PKTS)",
        ),
        (&[Cell::TrimTransmitted], "trim_tx", "Packets trimmed here and sent (SONiC: TRIM_TX_PKTS)"),
        (
            &[Cell::TrimDropped],
            "trim_drp",
            "Packets dropped because the trimmed packet found no room (SONiC: TRIM_DRP_PKTS)",
        ),
        (
            &[Cell::Deflected],
            "deflected",
            "Packets admitted that found no room in the traffic manager, and were trimmed in egress (Tofino)",
        ),
        (&[Cell::Marked], "marked", "Packets marked CE"),
        (&[Cell::Transmitted], "transmitted", "Packets sent from the queue"),
    ] {
        let [packets, bytes]: [Family<QueueLabels, Counter>; 2] = Default::default();
        for (labels, queue) in all() {
            let Some(count) = count(queue, cells).filter(|count| *count != Count::default()) else {
                continue;
            };
            packets.get_or_create(&labels).inc_by(unsigned(count.packets));
            bytes.get_or_create(&labels).inc_by(unsigned(count.bytes));
        }
        registry.register(format!("{name}_packets"), help, packets);
        registry.register_with_unit(name, help, Unit::Bytes, bytes);
    }
    let dropped = Family::<CauseLabels, Counter>::default();
    let [occupancy, peak]: [Family<QueueLabels, Gauge>; 2] = Default::default();
    for (labels, read) in all() {
        let QueueLabels { switch, port, queue } = &labels;
        for (cell, cause) in
            [(Cell::TailDropped, "tail"), (Cell::SelectiveDropped, "selective"), (Cell::TrimDropped, "trim")]
        {
            let labels = CauseLabels { switch: switch.clone(), port: *port, queue: *queue, cause };
            // An alert rule looks at how these grow, and has to know where they began.
            let count = count(read, &[cell]);
            if let Some(count) = count.filter(|count| cause == "tail" || *count != Count::default()) {
                dropped.get_or_create(&labels).inc_by(unsigned(count.packets));
            }
        }
        if let Some(waiting) = read.waiting {
            let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            if waiting.now > 0 {
                occupancy.get_or_create(&labels).set(bytes(waiting.now));
            }
            if let Some(most) = waiting.peak {
                peak.get_or_create(&labels).set(bytes(most));
            }
        }
    }
    let unroutable = Family::<SwitchLabel, Counter>::default();
    for (switch, status) in status.switches.iter().filter(|(_, status)| !status.counters.queues.is_empty()) {
        unroutable.get_or_create(&label(switch)).inc_by(unsigned(status.counters.unroutable));
    }
    registry.register("unroutable_packets", "Packets without a route", unroutable);
    let strays = Family::<StrayLabels, Counter>::default();
    for (switch, status) in &status.switches {
        for ((port, cause), count) in &status.counters.strays {
            let labels = StrayLabels { switch: switch.clone(), port: *port, cause };
            strays.get_or_create(&labels).inc_by(unsigned(*count));
        }
    }
    let help = "Packets dropped at the port they came in at: for another port's address, or to leave where they came";
    registry.register("stray_packets", help, strays);
    registry.register("dropped_packets", "Packets that the program dropped, by cause", dropped);
    registry.register_with_unit("queue_occupancy", "Bytes waiting in the queue", Unit::Bytes, occupancy);
    let help = "Most bytes in the queue in the last 8 to 17 seconds in which packets came";
    registry.register_with_unit("queue_peak", help, Unit::Bytes, peak);
}

fn trimming(registry: &mut Registry, status: &Status) {
    let [starts, stops]: [Family<QueueLabels, Counter>; 2] = Default::default();
    let now = Family::<QueueLabels, Gauge>::default();
    for (switch, status) in &status.switches {
        for ((port, queue), trimming) in &status.trimming {
            let labels = QueueLabels { switch: switch.clone(), port: *port, queue: *queue };
            starts.get_or_create(&labels).inc_by(trimming.starts);
            stops.get_or_create(&labels).inc_by(trimming.stops);
            now.get_or_create(&labels).set(trimming.is_trimming.into());
        }
    }
    registry.register("queue_trimming", "1 while the queue trims, as its digests tell", now);
    registry.register("queue_trimming_starts", "Times that the queue started to trim", starts);
    registry.register("queue_trimming_stops", "Times that the queue stopped trimming", stops);
}
