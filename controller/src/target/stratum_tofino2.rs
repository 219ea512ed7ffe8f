// SPDX-License-Identifier: Apache-2.0
//! Tofino 2 under Stratum: a ghost thread tells ingress how long queues are, in cells of the packet
//! buffer, and a mirror session per length trims.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use trimwire_p4runtime::entity::EntityError;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::Entity;

use super::{Ports, Rules, stratum};
use crate::model::{Fabric, QueuePlan};
use crate::model::{PortPolicy, QueuePolicy};
use crate::units::NEVER;

pub(super) const ARCHITECTURE: &str = "t2na";
/// Bytes of packet buffer that a queue is counted in.
const CELL: u32 = 176;
/// Sessions are few: one for each length, which is the session's id times this
/// (`p4/tofino2/session.p4`).
const LENGTH_STEP: u16 = 32;
pub(super) const SESSIONS: RangeInclusive<u32> = 1..=255;

pub(super) struct StratumTofino2;

/// Up, so that nothing happens before the file says so. `never` stays.
fn cells(bytes: u32) -> u32 {
    if bytes == NEVER { NEVER } else { bytes.div_ceil(CELL) }
}

/// Down to what a session trims to; at least what Ethernet carries, rounded up.
fn length(size: u16) -> u16 {
    let smallest = 2 * LENGTH_STEP;
    let largest = 255 * LENGTH_STEP;
    (size - size % LENGTH_STEP).clamp(smallest, largest)
}

impl Rules for StratumTofino2 {
    fn ports(&self) -> RangeInclusive<u16> {
        stratum::PORTS
    }

    fn unit(&self) -> &'static str {
        "176-byte cells"
    }

    fn convert(&self, policy: &PortPolicy, _: &QueuePlan) -> PortPolicy {
        let mut converted = policy.clone();
        for queue in converted.queues.values_mut().flatten() {
            let QueuePolicy { mark_at, shallow_at, deep_at, drop_at, shallow_size, deep_size, trim_drop_at } =
                *queue;
            *queue = QueuePolicy {
                mark_at: cells(mark_at),
                shallow_at: cells(shallow_at),
                deep_at: cells(deep_at),
                drop_at: cells(drop_at),
                shallow_size: length(shallow_size),
                deep_size: length(deep_size),
                trim_drop_at: cells(trim_drop_at),
            };
        }
        converted
    }

    fn caps_by_table(&self) -> bool {
        false
    }

    fn extras(
        &self,
        switch: &str,
        ports: &Ports,
        plan: &QueuePlan,
        _: &Index,
    ) -> Result<Vec<(Entity, String)>, EntityError> {
        let policies = ports.values().flat_map(|policy| policy.queues.values().flatten());
        let lengths: BTreeSet<u16> =
            policies.flat_map(|queue| [queue.shallow_size, queue.deep_size]).collect();
        // The program sends copies where they belong; a session has to name some port all the same.
        let Some(port) = ports.keys().next() else { return Ok(Vec::new()) };
        let sessions = lengths.into_iter().map(|length| {
            let session = stratum::session(u32::from(length / LENGTH_STEP), *port, length, plan.trimmed);
            (session, format!("{switch} trims to {length} bytes"))
        });
        Ok(sessions.collect())
    }

    fn doubts(&self, _: &str, ports: &Ports, fabric: &Fabric) -> Vec<(&'static str, String)> {
        let classes = |policy: &PortPolicy| {
            let queues = fabric.queues.classes.iter().filter_map(|queue| policy.queues.get(queue)).flatten();
            queues.flat_map(|queue| [queue.shallow_size, queue.deep_size]).collect::<Vec<u16>>()
        };
        let other = ports.values().flat_map(|policy| classes(policy)).find(|size| length(*size) != *size);
        let message = |size: u16| {
            let lost = if fabric.sealed {
                "; of a sealed packet that may trim off the tag by which its planes are believed, so give bytes"
            } else {
                ""
            };
            format!(
                "Tofino 2 trims to multiples of {LENGTH_STEP} bytes: to {} instead of {size}{lost}",
                length(size)
            )
        };
        let sizes = other.map(|size| ("sizes", message(size)));
        stratum::unheard(fabric).into_iter().chain(sizes).collect()
    }

    fn manual_steps(&self, switch: &str, ports: &Ports, fabric: &Fabric) -> Vec<String> {
        stratum::shaper_steps(switch, ports, fabric, "tf2")
    }
}
