// SPDX-License-Identifier: Apache-2.0
//! `trimwire-switch`: counts bytes, truncates, and its traffic manager's limits are far above any
//! threshold.

use std::ops::RangeInclusive;

use trimwire_p4runtime::entity::EntityError;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::Entity;

use super::{Ports, Rules};
use crate::model::PortPolicy;
use crate::model::{Fabric, QueuePlan};

/// `bit<9>` without v1model's drop port (511) and the CPU port (510).
pub(super) const V1MODEL_PORTS: RangeInclusive<u16> = 0..=509;

pub(super) struct Trimwire;

impl Rules for Trimwire {
    fn ports(&self) -> RangeInclusive<u16> {
        V1MODEL_PORTS
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

    fn doubts(&self, _: &str, _: &Ports, _: &Fabric) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn manual_steps(&self, _: &str, _: &Ports, _: &Fabric) -> Vec<String> {
        Vec::new()
    }
}
