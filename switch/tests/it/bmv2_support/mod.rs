// SPDX-License-Identifier: Apache-2.0
//! The same case on BMv2 and on our engine: what the control plane writes, the frames, and what can
//! be seen afterwards.
#![allow(dead_code, reason = "every test binary uses its own part")]

pub(crate) mod observed;
mod pipes;
pub(crate) mod random;
pub(crate) mod switch;

use std::path::{Path, PathBuf};

use trimwire_switch::engine::entity::{
    ActionCall, ActionSpec, Group, MatchValue, MeterConfig, Owner, Replica, TableEntry, Value,
};
use trimwire_switch::engine::{ControlError, Pipeline};

/// The port whose frames go to the controller.
pub(crate) const CPU_PORT: u16 = 100;

/// One write of the control plane.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Member(&'static str, u32, ActionCall),
    Group(&'static str, Group),
    Entry(String, TableEntry),
    Default(String, ActionSpec),
    Multicast(u16, Vec<Replica>),
    Clone(u16, Vec<Replica>),
    Meter(&'static str, u64, MeterConfig),
    DirectMeter(String, Vec<MatchValue>, i32, MeterConfig),
    ValueSet(&'static str, Value),
    /// The controller asks for a digest.
    Digest(&'static str),
}

/// A program, what is written to it, and what it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Stem of the recording's file.
    pub(crate) name: &'static str,
    pub(crate) json: PathBuf,
    pub(crate) p4info: PathBuf,
    pub(crate) writes: Vec<Write>,
    /// Ingress port and frame, one a millisecond.
    pub(crate) frames: Vec<(u16, Vec<u8>)>,
    /// Frames from the controller, the `packet_out` header's fields apart.
    pub(crate) packet_outs: Vec<PacketOut>,
}

#[derive(Clone, Debug)]
pub(crate) struct PacketOut {
    /// Width in bits and value of every field of the `packet_out` header.
    pub(crate) metadata: Vec<(u32, u64)>,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn apply(pipeline: &mut Pipeline, write: &Write) -> Result<(), ControlError> {
    let control = pipeline.control();
    match write {
        Write::Member(profile, id, call) => control.member_insert(profile, *id, call),
        Write::Group(profile, group) => control.group_insert(profile, group),
        Write::Entry(table, entry) => control.table_insert(table, entry),
        Write::Default(table, action) => control.set_default_action(table, Some(action)),
        Write::Multicast(id, replicas) => control.multicast_insert(*id, replicas),
        Write::Clone(id, replicas) => control.clone_session_insert(*id, replicas),
        Write::Meter(meter, index, config) => control.set_meter(meter, *index, Some(*config)),
        Write::DirectMeter(table, matches, priority, config) => {
            let owner = Owner::Entry { matches, priority: *priority };
            control.set_direct_meter(table, owner, Some(*config))
        }
        Write::ValueSet(set, member) => control.value_set_insert(set, member),
        Write::Digest(_) => Ok(()),
    }
}

/// The writes that both switches take: those that ours refuses (duplicates, full tables) are left
/// out.
pub(crate) fn taken(json: &Path, candidates: Vec<Write>) -> Vec<Write> {
    let mut pipeline = Pipeline::load(&std::fs::read(json).unwrap()).unwrap();
    candidates.into_iter().filter(|write| apply(&mut pipeline, write).is_ok()).collect()
}

pub(crate) fn bmv2_is_installed() -> bool {
    trimwire_bmv2_tests::programs::bmv2().is_some()
}

pub(crate) fn recording_asked_for() -> bool {
    std::env::var_os("TRIMWIRE_RECORD_BMV2").is_some()
}
