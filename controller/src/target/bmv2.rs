//! BMv2's `simple_switch_grpc`: the same compiled program as `trimwire-switch`, but queues that are counted in packets and
//! drop in silence, and no register reads over P4Runtime.

use std::ops::RangeInclusive;

use trimwire_p4runtime::entity::EntityError;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::Entity;

use super::{Ports, Rules, trimwire};
use crate::policy::PortPolicy;
use crate::spec::{Fabric, QueuePlan};
use crate::units;

/// Packets that a queue holds unless `set_queue_depth` says otherwise (simple_switch 1.15.5).
const DEFAULT_DEPTH: u64 = 64;
/// The smallest frame: so many packets are what a number of bytes can be.
const SMALLEST_FRAME: u64 = 60;

pub(super) struct Bmv2;

impl Rules for Bmv2 {
    fn ports(&self) -> RangeInclusive<u16> {
        trimwire::V1MODEL_PORTS
    }

    fn unit(&self) -> &'static str {
        "bytes"
    }

    fn convert(&self, policy: &PortPolicy, _: &QueuePlan) -> PortPolicy {
        policy.clone()
    }

    fn caps_by_table(&self) -> bool {
        true
    }

    fn extras(
        &self,
        _: &str,
        _: &Ports,
        _: &QueuePlan,
        _: &Index,
    ) -> Result<Vec<(Entity, String)>, EntityError> {
        Ok(Vec::new())
    }

    fn doubts(&self, _: &str, ports: &Ports, fabric: &Fabric) -> Vec<(&'static str, String)> {
        let full = units::full_frame(units::coordinates(fabric.mtu)).max(SMALLEST_FRAME);
        let holds = DEFAULT_DEPTH * full;
        // The control queue's limit is a safety net; nobody waits there.
        let queues = |policy: &PortPolicy| {
            let own = policy.queues.iter().filter(|(queue, _)| **queue != fabric.queues.control);
            own.flat_map(|(_, both)| both.iter().map(|queue| queue.drop_at)).max()
        };
        let most = ports.values().filter_map(queues).max().unwrap_or(0);
        if u64::from(most) <= holds {
            return Vec::new();
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

    fn manual_steps(&self, _: &str, _: &Ports, _: &Fabric) -> Vec<String> {
        Vec::new()
    }
}
