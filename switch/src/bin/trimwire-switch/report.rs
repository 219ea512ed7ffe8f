// SPDX-License-Identifier: Apache-2.0
//! What a switch has counted, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use trimwire_switch::driver::{Driver, PortStats};
use trimwire_switch::{QueueStats, Switch, SwitchStats};

/// All counters at one moment.
#[derive(Debug)]
pub(crate) struct Report {
    switch: SwitchStats,
    ports: BTreeMap<u16, PortStats>,
    queues: BTreeMap<(u16, u8), QueueStats>,
    unattached: u64,
}

impl Report {
    /// Reads the counters of a switch and its driver.
    pub(crate) fn new(switch: &Switch, driver: &Driver) -> Self {
        Self {
            switch: switch.stats(),
            ports: driver.stats(),
            queues: switch.all_queue_stats(),
            unattached: driver.unattached(),
        }
    }

    /// One JSON object.
    pub(crate) fn to_json(&self) -> String {
        let ports: Vec<_> = self
            .ports
            .iter()
            .map(|(port, stats)| {
                serde_json::json!({
                    "port": port, "received": stats.received, "sent": stats.sent,
                    "lost": stats.lost, "missed": stats.missed, "refused": stats.refused,
                })
            })
            .collect();
        let queues: Vec<_> = self
            .queues
            .iter()
            .map(|((port, queue), stats)| {
                serde_json::json!({
                    "port": port,
                    "queue": queue,
                    "enqueued": { "packets": stats.enqueued_packets, "bytes": stats.enqueued_bytes },
                    "dequeued": { "packets": stats.dequeued_packets, "bytes": stats.dequeued_bytes },
                    "dropped": { "packets": stats.dropped_packets, "bytes": stats.dropped_bytes },
                    "watermark_bytes": stats.watermark_bytes,
                })
            })
            .collect();
        let all = &self.switch;
        let document = serde_json::json!({
            "switch": {
                "received": all.received,
                "transmitted": all.transmitted,
                "without_pipeline": all.without_pipeline,
                "queue_dropped": all.queue_dropped,
                "egress_dropped": all.egress_dropped,
                "packet_in_lost": all.packet_in_lost,
                "unattached": self.unattached,
            },
            "ports": ports,
            "queues": queues,
        });
        format!("{document:#}\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = &self.switch;
        writeln!(
            f,
            "switch: {} received, {} transmitted, {} dropped by queues, {} dropped by egress, \
             {} without a program, {} packet-ins lost, {} for ports on no interface",
            all.received,
            all.transmitted,
            all.queue_dropped,
            all.egress_dropped,
            all.without_pipeline,
            all.packet_in_lost,
            self.unattached
        )?;
        for (port, stats) in &self.ports {
            let PortStats { received, sent, lost, missed, refused } = stats;
            writeln!(
                f,
                "port {port}: {received} received, {sent} sent, {lost} lost, {missed} missed, {refused} refused"
            )?;
        }
        for ((port, queue), stats) in &self.queues {
            writeln!(
                f,
                "port {port} queue {queue}: {} packets ({} bytes) in, {} ({}) out, {} ({}) dropped, at most {} bytes",
                stats.enqueued_packets,
                stats.enqueued_bytes,
                stats.dequeued_packets,
                stats.dequeued_bytes,
                stats.dropped_packets,
                stats.dropped_bytes,
                stats.watermark_bytes
            )?;
        }
        Ok(())
    }
}
