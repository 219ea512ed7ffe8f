// SPDX-License-Identifier: Apache-2.0
//! v1model's standard metadata, by the names that BMv2 looks for.

use serde_json::Value;

use super::json::{Result, malformed};
use super::layout::{Layout, Slot};
use super::slot::store64;

/// Slots of the fields that the switch itself reads and writes; those that a program may lack are
/// optional.
#[derive(Clone, Debug)]
pub(super) struct Intrinsics {
    pub(super) ingress_port: Slot,
    pub(super) egress_spec: Slot,
    pub(super) egress_port: Slot,
    pub(super) instance_type: Slot,
    pub(super) packet_length: Slot,
    pub(super) priority: Option<Slot>,
    pub(super) ingress_timestamp: Option<Slot>,
    pub(super) egress_timestamp: Option<Slot>,
    pub(super) mcast_grp: Option<Slot>,
    pub(super) egress_rid: Option<Slot>,
    pub(super) checksum_error: Option<Slot>,
    pub(super) parser_error: Option<Slot>,
    pub(super) enq_timestamp: Option<Slot>,
    pub(super) enq_qdepth: Option<Slot>,
    pub(super) deq_timedelta: Option<Slot>,
    pub(super) deq_qdepth: Option<Slot>,
    pub(super) qid: Option<Slot>,
}

impl Intrinsics {
    pub(super) fn load(layout: &Layout) -> Result<Self> {
        let required = |name: &str| {
            let missing = || malformed(&Value::Null, format!("v1model needs the field `{name}`"));
            layout.intrinsic(name).ok_or_else(missing)
        };
        Ok(Self {
            ingress_port: required("standard_metadata.ingress_port")?,
            egress_spec: required("standard_metadata.egress_spec")?,
            egress_port: required("standard_metadata.egress_port")?,
            instance_type: required("standard_metadata.instance_type")?,
            packet_length: required("standard_metadata.packet_length")?,
            priority: layout.intrinsic("intrinsic_metadata.priority"),
            ingress_timestamp: layout.intrinsic("intrinsic_metadata.ingress_global_timestamp"),
            egress_timestamp: layout.intrinsic("intrinsic_metadata.egress_global_timestamp"),
            mcast_grp: layout.intrinsic("intrinsic_metadata.mcast_grp"),
            egress_rid: layout.intrinsic("intrinsic_metadata.egress_rid"),
            checksum_error: layout.intrinsic("standard_metadata.checksum_error"),
            parser_error: layout.intrinsic("standard_metadata.parser_error"),
            enq_timestamp: layout.intrinsic("queueing_metadata.enq_timestamp"),
            enq_qdepth: layout.intrinsic("queueing_metadata.enq_qdepth"),
            deq_timedelta: layout.intrinsic("queueing_metadata.deq_timedelta"),
            deq_qdepth: layout.intrinsic("queueing_metadata.deq_qdepth"),
            qid: layout.intrinsic("queueing_metadata.qid"),
        })
    }

    /// All of them that the program has.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        let Self { ingress_port, egress_spec, egress_port, instance_type, packet_length, .. } = *self;
        let always = [ingress_port, egress_spec, egress_port, instance_type, packet_length];
        let may_lack = [
            self.priority,
            self.ingress_timestamp,
            self.egress_timestamp,
            self.mcast_grp,
            self.egress_rid,
            self.checksum_error,
            self.parser_error,
            self.enq_timestamp,
            self.enq_qdepth,
            self.deq_timedelta,
            self.deq_qdepth,
            self.qid,
        ];
        always.into_iter().chain(may_lack.into_iter().flatten())
    }
}

/// Writes a field that the program may lack.
pub(super) fn set(phv: &mut [u64], slot: Option<Slot>, value: u64) {
    if let Some(slot) = slot {
        store64(phv, slot, value);
    }
}
