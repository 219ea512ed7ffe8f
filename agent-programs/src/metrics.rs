// SPDX-License-Identifier: Apache-2.0
//! Prometheus metrics of a running rank, in OpenMetrics text. docs/reference/generated/metrics.md
//! lists them.
//!
//! Labels are peers, and for up to [`PATH_SERIES`] paths their own addresses and source ports: as many series as the
//! job has ranks, whatever the traffic.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use trimwire_agent::driver::LinkStats;
use trimwire_agent::snapshot::{PathStats, PeerSnapshot, PeerStats, Snapshot};

/// Where there are more paths, over all peers, only peers are told of.
const PATH_SERIES: usize = 1_024;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PeerLabel {
    peer: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PathLabels {
    peer: u16,
    source: String,
    source_port: u16,
}

/// What a rank does.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct OperationLabel {
    operation: &'static str,
}

/// 100 us to 100 s, three and a bit a decade.
#[derive(Clone, Debug)]
struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(1e-4, 2.0, 20))
    }
}

/// Operations and how long they took.
#[derive(Clone, Debug)]
pub(crate) struct Operations {
    seconds: Family<OperationLabel, Histogram, Buckets>,
    failed: Family<OperationLabel, Counter>,
    ratio: Family<AlgorithmLabel, Real>,
    planes: Family<AlgorithmLabel, Gauge>,
    pace: Family<AlgorithmLabel, Real>,
}

/// What says how much is sent.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AlgorithmLabel {
    algorithm: String,
}

impl Default for Operations {
    fn default() -> Self {
        Self {
            seconds: Family::new_with_constructor(Buckets),
            failed: Family::default(),
            ratio: Family::default(),
            planes: Family::default(),
            pace: Family::default(),
        }
    }
}

impl Operations {
    /// One has ended well.
    pub(crate) fn took(&self, operation: &'static str, ns: u64) {
        self.seconds.get_or_create(&OperationLabel { operation }).observe(ns as f64 / 1e9);
    }

    /// An algorithm said how one was sent.
    pub(crate) fn steered(&self, algorithm: &str, ratio: f64, planes: u8, pace: f64) {
        let label = AlgorithmLabel { algorithm: algorithm.to_owned() };
        self.ratio.get_or_create(&label).set(ratio);
        self.planes.get_or_create(&label).set(planes.into());
        self.pace.get_or_create(&label).set(pace);
    }

    /// One has failed.
    pub(crate) fn failed(&self, operation: &'static str) {
        self.failed.get_or_create(&OperationLabel { operation }).inc();
    }
}

type Real = Gauge<f64, AtomicU64>;

/// All metrics.
pub(crate) fn text(snapshot: &Snapshot, link: LinkStats, operations: &Operations) -> String {
    let mut registry = Registry::with_prefix("trimwire_agent");
    let own = [("rank", snapshot.rank), ("world", snapshot.world)];
    let labels = own.map(|(name, value)| (name, value.to_string()));
    registry.register("rank", "This rank and the job's number of ranks", Info::new(labels.to_vec()));
    peers(&mut registry, snapshot);
    if snapshot.peers.iter().map(|peer| peer.paths.len()).sum::<usize>() <= PATH_SERIES {
        paths(&mut registry, snapshot);
    }
    host(&mut registry, snapshot, link);
    let help = "Time of operations that ended well, from the start at this rank to its result";
    registry.register_with_unit("operation", help, Unit::Seconds, operations.seconds.clone());
    registry.register("operations_failed", "Operations that were given up", operations.failed.clone());
    let help = "With --adaptive, bytes sent over the bytes of f32";
    registry.register("adaptive_ratio", help, operations.ratio.clone());
    registry.register("adaptive_planes", "With --adaptive, planes sent", operations.planes.clone());
    let help = "With --adaptive, greatest rate of data as a share of the line's";
    registry.register("adaptive_pace_ratio", help, operations.pace.clone());
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

fn peers(registry: &mut Registry, snapshot: &Snapshot) {
    type Read = fn(&PeerStats) -> u64;
    let counters: [(&str, &str, Read); 16] = [
        ("sent_packets", "DATA packets sent, repairs included", |s| s.data_sent),
        ("sent_payload_bytes", "Payload bytes of DATA packets sent", |s| s.data_bytes_sent),
        ("repair_packets", "Repairs sent", |s| s.repairs_sent),
        ("arrived_packets", "Packets that the peer says have arrived", |s| s.arrived),
        ("trimmed_packets", "Packets that the peer says have arrived trimmed", |s| s.trimmed),
        ("marked_packets", "Packets that the peer says have arrived marked CE", |s| s.marked),
        ("lost_packets", "Packets found to be lost on the way there", |s| s.lost),
        ("sent_messages", "Messages that the peer has taken", |s| s.messages_sent),
        ("received_packets", "DATA packets received", |s| s.data_received),
        ("received_payload_bytes", "Payload bytes of DATA packets received", |s| s.data_bytes_received),
        ("received_trimmed_packets", "DATA packets received trimmed", |s| s.trimmed_received),
        ("received_messages", "Messages delivered", |s| s.messages_received),
        ("delivered_packets", "Packets of the messages delivered", |s| s.packets_delivered),
        ("missing_packets", "Packets of the messages delivered of which nothing came", |s| s.missing),
        ("control_packets", "Control packets sent", |s| s.control_sent),
        ("failed_transfers", "Transfers given up, either way", |s| s.failed),
    ];
    for (name, help, read) in counters {
        let family = Family::<PeerLabel, Counter>::default();
        for peer in &snapshot.peers {
            family.get_or_create(&PeerLabel { peer: peer.rank }).inc_by(read(&peer.stats));
        }
        registry.register(format!("peer_{name}"), help, family);
    }
    let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
    type Measure<'a> = &'a dyn Fn(&PeerSnapshot) -> Option<f64>;
    let gauges: [(&str, &str, &str, Measure<'_>); 4] = [
        ("rate", "Rate at which data goes to the peer, whole frames", "bits_per_second", &|peer| {
            Some(peer.rate_bps as f64)
        }),
        ("rtt", "Smoothed round trip of whole DATA packets", "seconds", &|peer| seconds(peer.rtt_ns)),
        ("least_rtt", "The shortest round trip seen", "seconds", &|peer| seconds(peer.least_rtt_ns)),
        ("in_flight", "Payload on its way to the peer", "bytes", &|peer| Some(peer.in_flight_bytes as f64)),
    ];
    for (name, help, unit, read) in gauges {
        let family = Family::<PeerLabel, Real>::default();
        for peer in &snapshot.peers {
            if let Some(value) = read(peer) {
                family.get_or_create(&PeerLabel { peer: peer.rank }).set(value);
            }
        }
        registry.register_with_unit(format!("peer_{name}"), help, Unit::Other(unit.to_owned()), family);
    }
}

fn paths(registry: &mut Registry, snapshot: &Snapshot) {
    let all = || {
        snapshot.peers.iter().flat_map(|peer| {
            peer.paths.iter().map(|path| {
                let source = path.own.map_or_else(String::new, |own| own.to_string());
                (PathLabels { peer: peer.rank, source, source_port: path.source_port }, path)
            })
        })
    };
    type Read = fn(&PathStats) -> u64;
    let counters: [(&str, &str, Read); 5] = [
        ("sent_packets", "DATA packets sent this way", |s| s.sent),
        ("sent_payload_bytes", "Payload bytes of DATA packets sent this way", |s| s.bytes_sent),
        ("arrived_packets", "Packets known to have arrived this way", |s| s.arrived),
        ("trimmed_packets", "Packets known to have arrived trimmed this way", |s| s.trimmed),
        ("lost_packets", "Packets found to be lost this way", |s| s.lost),
    ];
    for (name, help, read) in counters {
        let family = Family::<PathLabels, Counter>::default();
        for (labels, path) in all() {
            family.get_or_create(&labels).inc_by(read(&path.stats));
        }
        registry.register(format!("path_{name}"), help, family);
    }
    let [share, rtt]: [Family<PathLabels, Real>; 2] = Default::default();
    for (labels, path) in all() {
        share.get_or_create(&labels).set(path.share);
        if path.stats.rtt_ns > 0 {
            rtt.get_or_create(&labels).set(path.stats.rtt_ns as f64 / 1e9);
        }
    }
    registry.register_with_unit(
        "path_share",
        "Share of the peer's bursts that leave this way",
        Unit::Ratios,
        share,
    );
    let help = "Smoothed round trip of whole DATA packets this way";
    registry.register_with_unit("path_rtt", help, Unit::Seconds, rtt);
}

fn host(registry: &mut Registry, snapshot: &Snapshot, link: LinkStats) {
    let totals = &snapshot.totals;
    for (name, help, count) in [
        ("overflowed", "Arrivals that found the own receive buffer full", link.overflowed),
        ("refused", "Datagrams that the system would not send", link.refused + link.unaddressed),
        ("malformed", "Datagrams that are no packets, or fit no message", totals.malformed),
        ("foreign", "Datagrams of another job, from elsewhere, or from before a restart", totals.foreign),
        ("unsealed", "Control packets without the right tag, in a sealed job", totals.unsealed),
        ("stray", "Control packets about transfers that are over, or never were", totals.stray),
        ("early_dropped", "DATA that came before it was expected and found no room", totals.early_dropped),
    ] {
        let counter: Counter = Counter::default();
        counter.inc_by(count);
        registry.register(format!("{name}_packets"), help, counter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwire_agent::snapshot::PathSnapshot;

    fn snapshot(paths: u16) -> Snapshot {
        let stats = PeerStats {
            arrived: 100,
            trimmed: 7,
            missing: 3,
            data_bytes_sent: 140_000,
            ..PeerStats::default()
        };
        let path = |port| PathSnapshot {
            own: Some([10, 0, 0, 7].into()),
            source_port: port,
            share: 0.25,
            stats: PathStats { sent: 25, trimmed: 2, rtt_ns: 50_000, ..PathStats::default() },
        };
        let peer = PeerSnapshot {
            rank: 4,
            address: None,
            rate_bps: 1_000_000_000,
            rtt_ns: Some(80_000),
            least_rtt_ns: None,
            in_flight_bytes: 5,
            stats,
            paths: (0..paths).map(|n| path(40_000 + n)).collect(),
        };
        Snapshot {
            rank: 1,
            world: 8,
            totals: trimwire_agent::endpoint::EndpointStats::default(),
            peers: vec![peer],
        }
    }

    #[test]
    fn every_peer_and_path_has_its_series_in_base_units() {
        let operations = Operations::default();
        operations.took("all-reduce", 3_000_000);
        operations.failed("broadcast");
        operations.steered("da2:k_min=0.1", 0.25, 7, 0.5);
        let text = text(&snapshot(2), LinkStats { overflowed: 9, ..LinkStats::default() }, &operations);
        for line in [
            "trimwire_agent_rank_info{rank=\"1\",world=\"8\"} 1",
            "trimwire_agent_peer_trimmed_packets_total{peer=\"4\"} 7",
            "trimwire_agent_peer_sent_payload_bytes_total{peer=\"4\"} 140000",
            "trimwire_agent_peer_rate_bits_per_second{peer=\"4\"} 1000000000.0",
            "trimwire_agent_peer_rtt_seconds{peer=\"4\"} 0.00008",
            "trimwire_agent_path_trimmed_packets_total{peer=\"4\",source=\"10.0.0.7\",source_port=\"40001\"} 2",
            "trimwire_agent_path_rtt_seconds{peer=\"4\",source=\"10.0.0.7\",source_port=\"40000\"} 0.00005",
            "trimwire_agent_overflowed_packets_total 9",
            "trimwire_agent_operation_seconds_count{operation=\"all-reduce\"} 1",
            "trimwire_agent_operation_seconds_bucket{le=\"0.0032\",operation=\"all-reduce\"} 1",
            "trimwire_agent_adaptive_ratio{algorithm=\"da2:k_min=0.1\"} 0.25",
            "trimwire_agent_adaptive_planes{algorithm=\"da2:k_min=0.1\"} 7",
            "trimwire_agent_adaptive_pace_ratio{algorithm=\"da2:k_min=0.1\"} 0.5",
            "trimwire_agent_operations_failed_total{operation=\"broadcast\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line}\n{text}");
        }
        assert!(!text.contains("peer_least_rtt_seconds{"), "not measured: {text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn more_paths_than_a_dashboard_bears_are_left_out() {
        let text = text(&snapshot(1_025), LinkStats::default(), &Operations::default());
        assert!(text.contains("peer_trimmed_packets_total{") && !text.contains("path_"), "{}", text.len());
    }

    /// The lines that describe metrics, and the labels of one series of each: what `make reference`
    /// prints.
    fn described(text: &str) -> String {
        let mut lines = text.lines().peekable();
        let mut kept = String::new();
        while let Some(line) = lines.next() {
            let series = lines.peek().filter(|next| line.starts_with('#') && !next.starts_with('#'));
            if line.starts_with("# ") && line != "# EOF" {
                kept.push_str(line);
                kept.push('\n');
            }
            if let Some((series, _)) = series.and_then(|series| series.rsplit_once(' ')) {
                // Which of several series comes first is not the same each time.
                let labels: Vec<&str> = series.split('"').step_by(2).collect();
                kept.push_str(&labels.join("\"\""));
                kept.push('\n');
            }
        }
        kept
    }

    #[test]
    fn the_reference_describes_every_metric() {
        let operations = Operations::default();
        operations.took("all-reduce", 1);
        operations.failed("all-reduce");
        operations.steered("da2", 0.25, 7, 0.5);
        let mut snapshot = snapshot(1);
        snapshot.peers[0].least_rtt_ns = Some(1);
        let found = described(&text(&snapshot, LinkStats::default(), &operations));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/metrics.txt");
        if std::env::var_os("TRIMWIRE_UPDATE_GOLDENS").is_some() {
            std::fs::write(path, &found).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(found, committed, "review with TRIMWIRE_UPDATE_GOLDENS=1, then run make reference");
    }
}
