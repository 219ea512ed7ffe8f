// SPDX-License-Identifier: Apache-2.0
//! What both Tofinos have in common under Stratum (<https://github.com/stratum/stratum>).
//!
//! - The device config is Stratum's `BfPipelineConfig` (`stratum/hal/lib/barefoot/bf.proto`).
//! - A mirror session is a P4Runtime clone session with one replica, whose port stands in the old
//!   numeric field and is not 0 (`bfrt_pre_manager.cc`).

use std::ops::RangeInclusive;

use prost::Message;
use trimwire_p4runtime::v1::replica::PortKind;
use trimwire_p4runtime::v1::{CloneSessionEntry, Entity, Replica};

use super::Ports;
use crate::model::{Fabric, PortPolicy, QueuePlan, Trust};
use crate::units;

/// Dev ports of the pipes, without 0, which Stratum takes for no port in a mirror session.
pub(super) const PORTS: RangeInclusive<u16> = 1..=447;

/// `trim_t` in front of a mirrored copy (`p4/tofino/headers.p4`): a session's length counts it too.
pub(super) const MIRROR_HEADER: u16 = 12;

/// Stratum's `stratum.hal.barefoot.BfPipelineConfig`.
#[derive(Clone, PartialEq, Message)]
struct BfPipelineConfig {
    #[prost(string, tag = "1")]
    p4_name: String,
    /// `bfrt.json`.
    #[prost(bytes = "vec", tag = "2")]
    bfruntime_info: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    profiles: Vec<Profile>,
}

/// One pipeline of the program, `BfPipelineConfig.Profile`.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(string, tag = "1")]
    name: String,
    /// `context.json`.
    #[prost(bytes = "vec", tag = "2")]
    context: Vec<u8>,
    /// `tofino.bin`.
    #[prost(bytes = "vec", tag = "3")]
    binary: Vec<u8>,
    #[prost(uint32, repeated, tag = "4")]
    pipe_scope: Vec<u32>,
}

/// The device config of a program: its name and its pipeline's, the hardware pipes that run it, and
/// what the compiler wrote.
pub(crate) fn device_config(
    (name, profile, pipes): (&str, &str, &[u32]),
    bfrt: Vec<u8>,
    context: Vec<u8>,
    binary: Vec<u8>,
) -> Vec<u8> {
    let profile = Profile { name: profile.to_owned(), context, binary, pipe_scope: pipes.to_vec() };
    let config = BfPipelineConfig { p4_name: name.to_owned(), bfruntime_info: bfrt, profiles: vec![profile] };
    config.encode_to_vec()
}

/// A session that trims to `length` bytes of frame.
pub(super) fn session(id: u32, port: u16, length: u16, queue: u8) -> Entity {
    #[expect(deprecated, reason = "the only form that Stratum reads")]
    let port_kind = Some(PortKind::EgressPort(u32::from(port)));
    let replica = Replica { port_kind, ..Replica::default() };
    CloneSessionEntry {
        session_id: id,
        replicas: vec![replica],
        class_of_service: u32::from(queue),
        packet_length_bytes: i32::from(length) + i32::from(MIRROR_HEADER),
    }
    .into()
}

/// The largest sizes of a port's layer classes, `(shallow, deep)`: other queues trim nothing.
pub(super) fn sizes(policy: &PortPolicy, plan: &QueuePlan) -> (u16, u16) {
    let classes = plan.classes.iter().filter_map(|queue| policy.queues.get(queue)).flatten();
    classes
        .fold((0, 0), |(shallow, deep), queue| (shallow.max(queue.shallow_size), deep.max(queue.deep_size)))
}

/// The traffic manager's shaper does what the cap's table does elsewhere, and P4Runtime does not
/// reach it.
pub(super) fn shaper_steps(switch: &str, ports: &Ports, fabric: &Fabric, bfrt: &str) -> Vec<String> {
    let queue = fabric.queues.trimmed;
    let steps = ports.iter().filter_map(|(port, policy)| {
        let cap = policy.trim_cap?;
        Some(format!(
            "{switch}:{port}: set the maximum rate of queue {queue} in the traffic manager to {} kbit/s ({}% of {}), burst {} \
             bytes ({bfrt}.tm.queue.sched_shaping: max_rate, max_burst_size; sched_cfg: max_rate_enable)",
            cap.rate_bps / 1000,
            f64::from(cap.share) / 10_000.0,
            units::rate_text(policy.rate_bps),
            cap.burst
        ))
    });
    steps.collect()
}

/// What the file says of hosts and marks and only the v1model program hears.
pub(super) fn unheard(fabric: &Fabric) -> Option<(&'static str, String)> {
    let distrusted = fabric.hosts.iter().find(|(_, host)| host.trust == Trust::None);
    let what = match distrusted {
        Some((host, _)) => format!("host {host} is not to be trusted"),
        None if fabric.mark_trimmable => "trimmable packets are to be marked (mark_trimmable)".to_owned(),
        None => return None,
    };
    Some((
        "unheard",
        format!(
            "{what}, but the program for Tofino has no table for it: it believes every DSCP, and marks no packet that may be trimmed"
        ),
    ))
}
