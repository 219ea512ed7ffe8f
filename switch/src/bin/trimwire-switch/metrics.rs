// SPDX-License-Identifier: Apache-2.0
//! Prometheus metrics of a switch and its driver, over HTTP: `GET /metrics` in OpenMetrics text.
//!
//! Labels are ports, queues and causes of drops: as many series as there are queues in use, whatever the traffic.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use trimwire_metrics_http::{Page, Server};
use trimwire_switch::driver::PortStats;
use trimwire_switch::traffic::DropCause;
use trimwire_switch::{SharedSwitch, SwitchStats};

/// Gives a driver's counters by port.
pub(crate) type PortCounters = Arc<dyn Fn() -> BTreeMap<u16, PortStats> + Send + Sync>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PortLabel {
    port: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueLabels {
    port: u16,
    queue: u8,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DropLabels {
    port: u16,
    queue: u8,
    cause: &'static str,
}

/// All metrics at this moment, as OpenMetrics text.
fn text(switch: &SharedSwitch, ports: &BTreeMap<u16, PortStats>) -> String {
    let mut registry = Registry::with_prefix("trimwire_switch");
    queues_and_lines(&mut registry, switch);
    driver(&mut registry, ports);
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

fn counted(value: u64) -> Counter {
    let counter: Counter = Counter::default();
    counter.inc_by(value);
    counter
}

fn queues_and_lines(registry: &mut Registry, switch: &SharedSwitch) {
    let switch = switch.lock().unwrap_or_else(PoisonError::into_inner);
    let SwitchStats {
        without_pipeline,
        received,
        transmitted,
        port_down,
        queue_dropped,
        egress_dropped,
        packet_in_lost,
        packet_out_lost,
        ..
    } = switch.stats();
    for (name, help, value) in [
        ("received_packets", "Frames received", received),
        ("transmitted_packets", "Frames transmitted", transmitted),
        ("without_pipeline_packets", "Frames received while no program was loaded", without_pipeline),
        ("port_down_packets", "Frames received on a port that was down", port_down),
        ("queue_dropped_packets", "Packets that a queue refused, or that had none", queue_dropped),
        ("egress_dropped_packets", "Packets that the program's egress dropped", egress_dropped),
        ("packet_in_lost_packets", "Packet-ins that nobody took", packet_in_lost),
        ("packet_out_lost_packets", "Packet-outs without a CPU port, or too many at once", packet_out_lost),
    ] {
        registry.register(name, help, counted(value));
    }
    let buffered: Gauge = Gauge::default();
    buffered.set(switch.buffered_bytes() as i64);
    registry.register_with_unit("buffered", "Waiting in all queues", Unit::Bytes, buffered);

    let (up, rate) = (Family::<PortLabel, Gauge>::default(), Family::<PortLabel, Gauge>::default());
    for port in switch.ports() {
        up.get_or_create(&PortLabel { port }).set(switch.is_port_up(port).into());
        let bytes = switch.port_config(port).rate_bps / 8;
        rate.get_or_create(&PortLabel { port }).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    registry.register("port_up", "1 when the port is up, 0 when it was taken down", up);
    registry.register("port_line_rate_bytes_per_second", "Line rate; 0 is without bound", rate);

    type Counters = Family<QueueLabels, Counter>;
    type Gauges = Family<QueueLabels, Gauge>;
    let [in_packets, in_bytes, out_packets, out_bytes]: [Counters; 4] = Default::default();
    let [depth_packets, depth_bytes, peak_packets, peak_bytes]: [Gauges; 4] = Default::default();
    let [drop_packets, drop_bytes]: [Family<DropLabels, Counter>; 2] = Default::default();
    for ((port, queue), stats) in switch.all_queue_stats() {
        let labels = QueueLabels { port, queue };
        for (family, value) in [
            (&in_packets, stats.enqueued_packets),
            (&in_bytes, stats.enqueued_bytes),
            (&out_packets, stats.dequeued_packets),
            (&out_bytes, stats.dequeued_bytes),
        ] {
            family.get_or_create(&labels).inc_by(value);
        }
        for (family, value) in [
            (&depth_packets, stats.depth_packets()),
            (&depth_bytes, stats.depth_bytes()),
            (&peak_packets, stats.watermark_packets),
            (&peak_bytes, stats.watermark_bytes),
        ] {
            family.get_or_create(&labels).set(value as i64);
        }
        for cause in DropCause::ALL {
            let (labels, dropped) = (DropLabels { port, queue, cause: cause.name() }, stats.dropped(cause));
            drop_packets.get_or_create(&labels).inc_by(dropped.packets);
            drop_bytes.get_or_create(&labels).inc_by(dropped.bytes);
        }
    }
    registry.register("queue_enqueued_packets", "Packets taken into the queue", in_packets);
    registry.register_with_unit("queue_enqueued", "Bytes taken into the queue", Unit::Bytes, in_bytes);
    registry.register("queue_dequeued_packets", "Packets served", out_packets);
    registry.register_with_unit("queue_dequeued", "Bytes served", Unit::Bytes, out_bytes);
    registry.register("queue_dropped_packets_by_cause", "Packets dropped", drop_packets);
    registry.register_with_unit("queue_dropped_by_cause", "Bytes dropped", Unit::Bytes, drop_bytes);
    registry.register("queue_depth_packets", "Packets waiting", depth_packets);
    registry.register_with_unit("queue_depth", "Bytes waiting", Unit::Bytes, depth_bytes);
    registry.register("queue_peak_packets", "Most packets that ever waited", peak_packets);
    registry.register_with_unit("queue_peak", "Most bytes that ever waited", Unit::Bytes, peak_bytes);
}

fn driver(registry: &mut Registry, ports: &BTreeMap<u16, PortStats>) {
    type Read = fn(&PortStats) -> u64;
    let counters: [(&str, &str, Read); 5] = [
        ("interface_received_packets", "Frames received from the interface", |stats| stats.received),
        ("interface_sent_packets", "Frames sent to the interface", |stats| stats.sent),
        ("interface_lost_packets", "Frames not sent: interface gone, too slow, or MTU", |stats| stats.lost),
        ("interface_missed_packets", "Frames not received: the kernel's buffer was full", |stats| {
            stats.missed
        }),
        ("interface_refused_packets", "Not single frames: segments of many", |stats| stats.refused),
    ];
    for (name, help, read) in counters {
        let family = Family::<PortLabel, Counter>::default();
        for (&port, stats) in ports {
            family.get_or_create(&PortLabel { port }).inc_by(read(stats));
        }
        registry.register(name, help, family);
    }
}

/// Serves the metrics on threads of their own until the server is dropped.
///
/// # Errors
/// Those of listening and of starting a thread.
pub(crate) fn serve(switch: SharedSwitch, ports: PortCounters, addr: SocketAddr) -> io::Result<Server> {
    let page = move |path: &str| (path == "/metrics").then(|| Page::metrics(text(&switch, &ports())));
    trimwire_metrics_http::serve(addr, "Metrics are at /metrics", page)
}

#[cfg(test)]
mod tests;
