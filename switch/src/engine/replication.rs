// SPDX-License-Identifier: Apache-2.0
//! The packet replication engine's state: multicast groups and clone sessions.

use std::collections::BTreeMap;

use super::entity::Replica;
use super::error::{Code, ControlError};

type Result<T> = std::result::Result<T, ControlError>;

/// Groups of replicas by id; each group in the order in which BMv2 makes the copies: by instance,
/// then by port.
#[derive(Clone, Debug)]
pub(super) struct Replication {
    kind: &'static str,
    ids: std::ops::RangeInclusive<u16>,
    groups: BTreeMap<u16, Vec<Replica>>,
    /// Groups and all their replicas.
    total: usize,
}

/// Replicas of one group: a packet is copied as often before anybody can take a copy in.
const MOST_REPLICAS: usize = 1024;

impl Replication {
    /// Group 0 means no multicast.
    pub(super) fn multicast() -> Self {
        Self { kind: "multicast group", ids: 1..=u16::MAX, groups: BTreeMap::new(), total: 0 }
    }

    /// BMv2 keeps the session's top bit for itself.
    pub(super) fn clone_sessions() -> Self {
        Self { kind: "clone session", ids: 1..=0x7fff, groups: BTreeMap::new(), total: 0 }
    }

    fn checked(&self, id: u16, replicas: &[Replica]) -> Result<Vec<Replica>> {
        let kind = self.kind;
        if !self.ids.contains(&id) {
            let (low, high) = (self.ids.start(), self.ids.end());
            return Err(ControlError::invalid(format!("{kind} {id}: ids run from {low} to {high}")));
        }
        let count = replicas.len();
        if count > MOST_REPLICAS {
            return Err(ControlError::new(
                Code::ResourceExhausted,
                format!("{kind} {id} of {count} replicas; at most {MOST_REPLICAS} are taken"),
            ));
        }
        let mut replicas = replicas.to_vec();
        replicas.sort_unstable();
        if let Some(twice) = replicas.windows(2).find(|two| two[0] == two[1]) {
            let Replica { instance, port } = twice[0];
            return Err(ControlError::invalid(format!(
                "{kind} {id} has the replica of port {port}, instance {instance} twice"
            )));
        }
        Ok(replicas)
    }

    fn missing(&self, id: u16) -> ControlError {
        ControlError::not_found(format!("there is no {} {id}", self.kind))
    }

    pub(super) fn insert(&mut self, id: u16, replicas: &[Replica]) -> Result<()> {
        let replicas = self.checked(id, replicas)?;
        if self.groups.contains_key(&id) {
            return Err(ControlError::new(Code::AlreadyExists, format!("{} {id} exists", self.kind)));
        }
        self.restore(id, Some(replicas));
        Ok(())
    }

    pub(super) fn modify(&mut self, id: u16, replicas: &[Replica]) -> Result<()> {
        let replicas = self.checked(id, replicas)?;
        if !self.groups.contains_key(&id) {
            return Err(self.missing(id));
        }
        self.restore(id, Some(replicas));
        Ok(())
    }

    pub(super) fn delete(&mut self, id: u16) -> Result<()> {
        if !self.groups.contains_key(&id) {
            return Err(self.missing(id));
        }
        self.restore(id, None);
        Ok(())
    }

    /// Makes a group what it is said to be; `None`: there is none.
    pub(super) fn restore(&mut self, id: u16, replicas: Option<Vec<Replica>>) {
        self.total += replicas.as_ref().map_or(0, |replicas| 1 + replicas.len());
        let before = match replicas {
            Some(replicas) => self.groups.insert(id, replicas),
            None => self.groups.remove(&id),
        };
        self.total -= before.map_or(0, |replicas| 1 + replicas.len());
    }

    /// Groups and all their replicas.
    pub(super) fn replicas(&self) -> usize {
        self.total
    }

    pub(super) fn all(&self) -> Vec<(u16, Vec<Replica>)> {
        self.groups.iter().map(|(&id, replicas)| (id, replicas.clone())).collect()
    }

    pub(super) fn get(&self, id: u16) -> Option<&[Replica]> {
        self.groups.get(&id).map(Vec::as_slice)
    }
}
