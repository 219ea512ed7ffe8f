// SPDX-License-Identifier: Apache-2.0
//! BMv2's `simple_switch_grpc`: the same compiled program as `trimwire-switch`, but queues that are
//! counted in packets and drop in silence, and no register reads over P4Runtime.

use super::{Ports, Rules};
use crate::model::{Fabric, QueuePlan, QueuePolicy};
use crate::units;

/// Packets that a queue holds unless `set_queue_depth` says otherwise (simple_switch 1.15.5).
const DEFAULT_DEPTH: u64 = 64;
/// The smallest frame: so many packets are what a number of bytes can be.
const SMALLEST_FRAME: u64 = 60;

pub(super) struct Bmv2;

/// The trim queue has as few places, and heads are small.
fn heads(ports: &Ports, plan: &QueuePlan) -> Option<String> {
    let limit = ports.values().filter_map(|port| port.queues.get(&plan.trimmed)).flatten();
    let limit = u64::from(limit.map(|queue| queue.trim_drop_at).max()?);
    let classes =
        ports.values().flat_map(|port| plan.classes.iter().filter_map(|queue| port.queues.get(queue)));
    let head = u64::from(classes.flatten().map(|queue| queue.deep_size).min()?.max(1));
    (limit > DEFAULT_DEPTH * head).then(|| {
        format!(
            "trim_limit is up to {limit} bytes, but BMv2's queues hold {DEFAULT_DEPTH} packets ({} bytes of the most deeply trimmed) and \
             drop the rest without counting it; with set_queue_depth {} in simple_switch_CLI they hold it",
            DEFAULT_DEPTH * head,
            limit.div_ceil(head)
        )
    })
}

impl Rules for Bmv2 {
    fn doubts(&self, _: &str, ports: &Ports, fabric: &Fabric) -> Vec<(&'static str, String)> {
        let full = fabric.data_packet().full_frame().max(SMALLEST_FRAME);
        let holds = DEFAULT_DEPTH * full;
        let plan = &fabric.queues;
        let drop_at = |(queue, both): (&u8, &[QueuePolicy; 2])| {
            // The control queue's limit is a safety net; nobody waits there.
            let counts = *queue != plan.control && *queue != plan.trimmed;
            both.iter().filter(move |_| counts).map(|queue| queue.drop_at).max()
        };
        let most = ports.values().flat_map(|port| port.queues.iter().filter_map(drop_at)).max().unwrap_or(0);
        if u64::from(most) <= holds {
            return heads(ports, plan).map(|message| ("depth", message)).into_iter().collect();
        }
        let message = if most == units::NEVER {
            format!(
                "drop_at: never, but BMv2's queues hold {DEFAULT_DEPTH} packets ({holds} bytes of full ones) and drop the rest \
                 without counting it; set_queue_depth of simple_switch_CLI changes that"
            )
        } else {
            format!(
                "drop_at is up to {most} bytes, but BMv2's queues hold {DEFAULT_DEPTH} packets ({holds} bytes of full ones) and \
                 drop the rest without counting it; with set_queue_depth {} in simple_switch_CLI they hold it in any packets",
                u64::from(most).div_ceil(SMALLEST_FRAME)
            )
        };
        vec![("depth", message)]
    }
}
