//! The packet replication engine's state: multicast groups and clone sessions.

use std::collections::BTreeMap;

use super::entity::Replica;
use super::error::{Code, ControlError};

type Result<T> = std::result::Result<T, ControlError>;

/// Groups of replicas by id; each group in the order in which BMv2 makes the copies: by instance, then by port.
#[derive(Clone, Debug)]
pub(super) struct Replication {
    kind: &'static str,
    ids: std::ops::RangeInclusive<u16>,
    groups: BTreeMap<u16, Vec<Replica>>,
}

impl Replication {
    /// Group 0 means no multicast.
    pub(super) fn multicast() -> Self {
        Self { kind: "multicast group", ids: 1..=u16::MAX, groups: BTreeMap::new() }
    }

    /// BMv2 keeps the session's top bit for itself.
    pub(super) fn clone_sessions() -> Self {
        Self { kind: "clone session", ids: 1..=0x7fff, groups: BTreeMap::new() }
    }

    fn checked(&self, id: u16, replicas: &[Replica]) -> Result<Vec<Replica>> {
        let kind = self.kind;
        if !self.ids.contains(&id) {
            let (low, high) = (self.ids.start(), self.ids.end());
            return Err(ControlError::invalid(format!("{kind} {id}: ids run from {low} to {high}")));
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
        self.groups.insert(id, replicas);
        Ok(())
    }

    pub(super) fn modify(&mut self, id: u16, replicas: &[Replica]) -> Result<()> {
        let replicas = self.checked(id, replicas)?;
        let missing = self.missing(id);
        *self.groups.get_mut(&id).ok_or(missing)? = replicas;
        Ok(())
    }

    pub(super) fn delete(&mut self, id: u16) -> Result<()> {
        let missing = self.missing(id);
        self.groups.remove(&id).map(|_| ()).ok_or(missing)
    }

    pub(super) fn all(&self) -> Vec<(u16, Vec<Replica>)> {
        self.groups.iter().map(|(&id, replicas)| (id, replicas.clone())).collect()
    }

    pub(super) fn get(&self, id: u16) -> Option<&[Replica]> {
        self.groups.get(&id).map(Vec::as_slice)
    }
}
