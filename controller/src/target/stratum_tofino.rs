// SPDX-License-Identifier: Apache-2.0
//! Tofino 1 under Stratum: ingress sees no queues, so a byte meter per port, queue and importance
//! stands for one, and a mirror session with a length trims.
//!
//! A meter knows two thresholds: what it says at `shallow_at` marks, trims and drops selectively,
//! what it says at `deep_at` trims deep and drops the rest. `mark_at` and `drop_at` do not count
//! here. The traffic manager holds the queue, and deflects what finds no room.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use trimwire_p4runtime::entity::{self, EntityError};
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::{Entity, MeterConfig};

use super::{Ports, Rules, stratum};
use crate::model::{Fabric, Overload, QueuePlan};
use crate::model::{PortPolicy, QueuePolicy};

pub(super) const ARCHITECTURE: &str = "tna";
/// One per importance, as the index of a queue's policies has it. Cell = port * 8 + queue.
pub(super) const METERS: [&str; 2] = ["Ingress.virtual_queue_low", "Ingress.virtual_queue_high"];
/// port * 2 + 1 trims shallow, port * 2 + 2 deep.
pub(super) const SESSIONS: RangeInclusive<u32> = 1..=2 * 447 + 2;

/// The queue of copies that a session makes: Stratum's `bfrt_pre_manager.cc` has a literal 0.
const SESSION_QUEUE: u8 = 0;
/// What of the line a meter lets pass untrimmed, and trims no deeper than shallow, as fractions. A
/// packet that is trimmed takes tokens from the peak bucket as if it had entered the queue (RFC
/// 2698, section 3.1). So no pair of rates both leaves a load below the line alone and holds the
/// queue at all loads above it: the traffic manager's limit and deflect-on-drop do (`tests.rs`).
pub(super) const COMMITTED: (u64, u64) = (98, 100);
pub(super) const PEAK: (u64, u64) = (3, 2);
/// Cells of the traffic manager's buffer.
const CELL: u32 = 80;

/// Stratum hands rates and bursts to the SDE in kbit, so that less than 125 bytes are lost on the
/// way.
const METER_STEP: u32 = 125;

pub(super) struct StratumTofino;

fn in_steps(bytes: u32) -> u32 {
    bytes - bytes % METER_STEP
}

impl Rules for StratumTofino {
    fn ports(&self) -> RangeInclusive<u16> {
        stratum::PORTS
    }

    fn unit(&self) -> &'static str {
        "bytes in steps of 125"
    }

    fn convert(&self, policy: &PortPolicy, plan: &QueuePlan) -> PortPolicy {
        let mut converted = policy.clone();
        // A session trims every packet of its port to one length.
        let (shallow_size, deep_size) = stratum::sizes(policy, plan);
        for queue in converted.queues.values_mut().flatten() {
            let QueuePolicy { mark_at, shallow_at, deep_at, drop_at, trim_drop_at, .. } = *queue;
            *queue = QueuePolicy {
                mark_at: in_steps(mark_at),
                shallow_at: in_steps(shallow_at),
                deep_at: in_steps(deep_at),
                drop_at: in_steps(drop_at),
                shallow_size,
                deep_size,
                trim_drop_at: in_steps(trim_drop_at),
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
        index: &Index,
    ) -> Result<Vec<(Entity, String)>, EntityError> {
        let mut extras = Vec::new();
        for (port, policy) in ports {
            let rate = |(share, of): (u64, u64)| {
                let rate = i64::try_from(policy.rate_bps / 8 * share / of).unwrap_or(i64::MAX);
                rate - rate % i64::from(METER_STEP)
            };
            for (queue, both) in &policy.queues {
                let cell = i64::from(*port) * 8 + i64::from(*queue);
                for (meter, values) in METERS.into_iter().zip(both) {
                    let mut entry = entity::meter(index, meter, Some(cell))?;
                    entry.config = Some(MeterConfig {
                        cir: rate(COMMITTED),
                        pir: rate(PEAK),
                        cburst: i64::from(values.shallow_at),
                        pburst: i64::from(values.deep_at),
                        eburst: 0,
                    });
                    extras
                        .push((entry.into(), format!("{switch}:{port} {} as a meter", plan.name_of(*queue))));
                }
            }
            let (shallow, deep) = stratum::sizes(policy, plan);
            for (rung, length, word) in [(1, shallow, "shallow"), (2, deep, "deep")] {
                let session = stratum::session(u32::from(*port) * 2 + rung, *port, length, plan.trimmed);
                extras.push((session, format!("{switch}:{port} {word} trims")));
            }
        }
        Ok(extras)
    }

    fn doubts(&self, _: &str, ports: &Ports, fabric: &Fabric) -> Vec<(&'static str, String)> {
        let mut doubts = Vec::from_iter(stratum::unheard(fabric));
        let trimmed = fabric.queues.trimmed;
        if fabric.overload == Overload::Trim && trimmed != SESSION_QUEUE {
            let message = format!(
                "Stratum puts what Tofino 1 has trimmed into queue {SESSION_QUEUE}, and not into queue {trimmed}: write queues: {{ trimmed: \
                 {SESSION_QUEUE}, best_effort: 6 }}, and have the traffic manager serve queue {SESSION_QUEUE} before the classes' (docs/how-to/tofino.md, \
                 \"Mirror sessions\")"
            );
            doubts.push(("queue", message));
        }
        let plan = &fabric.queues;
        let classes = |policy: &PortPolicy| {
            plan.classes
                .iter()
                .filter_map(|queue| policy.queues.get(queue))
                .flatten()
                .copied()
                .collect::<Vec<QueuePolicy>>()
        };
        let uneven = ports.iter().find(|(_, policy)| {
            let sizes: BTreeSet<(u16, u16)> =
                classes(policy).iter().map(|queue| (queue.shallow_size, queue.deep_size)).collect();
            sizes.len() > 1
        });
        if let Some((port, policy)) = uneven {
            let (shallow, deep) = stratum::sizes(policy, plan);
            doubts.push((
                "sizes",
                format!(
                    "on Tofino 1 all queues of a port trim to the same sizes: port {port} to {shallow} and {deep} bytes, the \
                     largest of its queues"
                ),
            ));
        }
        let unmarked = ports.iter().find_map(|(port, policy)| {
            let differs = classes(policy)
                .into_iter()
                .find(|queue| queue.mark_at != queue.shallow_at || queue.drop_at != queue.deep_at)?;
            Some((port, differs))
        });
        if let (Some((port, queue)), Overload::Trim) = (unmarked, fabric.overload) {
            doubts.push((
                "rungs",
                format!(
                    "Tofino 1's meters have two thresholds: packets are marked at shallow_at and what is not trimmed is dropped at \
                     deep_at (at port {port}: {} and {} bytes), whatever mark_at and drop_at say ({} and {})",
                    queue.shallow_at, queue.deep_at, queue.mark_at, queue.drop_at
                ),
            ));
        }
        doubts
    }

    fn manual_steps(&self, switch: &str, ports: &Ports, fabric: &Fabric) -> Vec<String> {
        let plan = &fabric.queues;
        let limits = ports.iter().filter(|_| fabric.overload == Overload::Trim).map(|(port, policy)| {
            let limit = |queue: &u8| {
                let deep_at = policy.queues.get(queue)?.iter().map(|queue| queue.deep_at).max()?;
                Some(format!("{queue} to {}", deep_at / CELL))
            };
            let limits: Vec<String> = plan.classes.iter().filter_map(limit).collect();
            format!(
                "{switch}:{port}: bound queues in the traffic manager, in cells of {CELL} bytes: {}; packets that find no room have to be \
                 deflected (docs/how-to/tofino.md, \"Traffic manager\")",
                limits.join(", ")
            )
        });
        limits.chain(stratum::shaper_steps(switch, ports, fabric, "tf1")).collect()
    }
}

#[cfg(test)]
mod tests;
