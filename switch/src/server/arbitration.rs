// SPDX-License-Identifier: Apache-2.0
//! Who is primary (P4Runtime, "Client Arbitration and Controller Replication").

use super::limits::{Limits, ROLE_BYTES};
use super::outgoing::Outgoing;
use super::peer::Lane;
use super::role::Access;
use prost_types::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::{Code, Status};
use trimwire_p4runtime::v1::stream_message_response::Update as Told;
use trimwire_p4runtime::{rpc, v1};

/// Roles whose election ids are kept. Those that nobody is connected for give their places to
/// others.
const MOST_ROLES: usize = 64;
/// Streams of one role.
const MOST_CONTROLLERS: usize = 64;
/// Bytes of a role's name.
const LONGEST_NAME: usize = 256;

/// One open stream that has taken part in arbitration.
#[derive(Debug)]
struct Controller {
    role: String,
    /// `None` for one that never wants to be primary. A set zero is an id like others ("Unset
    /// Election ID").
    election_id: Option<u128>,
    outgoing: Outgoing,
    /// Where it is primary of a role that has one.
    lane: Option<Lane>,
}

/// Of which the highest id alone outlives a role's streams.
#[derive(Debug, Default)]
struct Role {
    /// The highest id ever; the stream that has it is primary.
    highest: Option<u128>,
    /// As the last primary gave it.
    config: Option<Any>,
    access: Access,
    /// Its config went with its last stream.
    forgotten: bool,
}

/// All open streams, and what each role's primary was.
#[derive(Debug)]
pub(super) struct Arbitration {
    device_id: u64,
    controllers: BTreeMap<u64, Controller>,
    roles: BTreeMap<String, Role>,
    limits: Arc<Limits>,
    next_stream: u64,
}

impl Arbitration {
    pub(super) fn new(device_id: u64, limits: Arc<Limits>) -> Self {
        let roles = BTreeMap::from([(String::new(), Role::default())]);
        Self { device_id, controllers: BTreeMap::new(), roles, limits, next_stream: 0 }
    }

    /// A number for a stream.
    pub(super) fn open(&mut self) -> u64 {
        self.next_stream += 1;
        self.next_stream
    }

    /// A stream bids. On an error the stream has to be closed with it.
    pub(super) fn bid(
        &mut self,
        stream: u64,
        update: v1::MasterArbitrationUpdate,
        outgoing: &Outgoing,
    ) -> Result<(), Status> {
        let v1::MasterArbitrationUpdate { device_id, role, election_id, .. } = update;
        let (role, config) = role.map(|role| (role.name, role.config)).unwrap_or_default();
        let election_id = election_id.map(u128::from);
        let live = self.controllers.get(&stream);
        if device_id != self.device_id {
            let message =
                format!("device id {device_id} is not here; this switch is device {}", self.device_id);
            return Err(match live {
                Some(_) => Status::failed_precondition(message),
                None => Status::not_found(message),
            });
        }
        if let Some(live) = live.filter(|live| live.role != role) {
            return Err(Status::failed_precondition(format!(
                "this stream is of role '{}'; open another one for role '{role}'",
                live.role
            )));
        }
        if role.len() > LONGEST_NAME {
            let length = role.len();
            return Err(Status::invalid_argument(format!(
                "a role's name of {length} bytes; at most {LONGEST_NAME} are taken"
            )));
        }
        let (bytes, most) = (config.as_ref().map_or(0, |config| config.value.len()), ROLE_BYTES);
        if bytes > most {
            return Err(Status::resource_exhausted(format!(
                "a role config of {bytes} bytes; at most {most} are taken"
            )));
        }
        if let Some(known) = self.limits.roles.as_ref().filter(|known| !known.contains(&role)) {
            let known: Vec<_> = known.iter().map(|name| format!("'{name}'")).collect();
            return Err(Status::permission_denied(format!(
                "role '{role}' is none of those that may bid here: {}",
                known.join(", ")
            )));
        }
        let access = self.checked_access(&role, config.as_ref())?;
        let mut others = self.controllers.iter().filter(|(other, c)| **other != stream && c.role == role);
        if election_id.is_some() && others.clone().any(|(_, c)| c.election_id == election_id) {
            let id = election_id.unwrap_or_default();
            // finsy looks for the words "election id … used".
            return Err(Status::invalid_argument(format!(
                "election id {id} of role '{role}' is already used by another stream"
            )));
        }
        if others.nth(MOST_CONTROLLERS - 1).is_some() {
            return Err(Status::resource_exhausted(format!(
                "role '{role}' has {MOST_CONTROLLERS} streams open, and takes no more"
            )));
        }
        if !self.roles.contains_key(&role)
            && self.roles.len() >= MOST_ROLES
            && let Some(idle) = self.idle_role()
        {
            self.roles.remove(&idle);
        }
        if !self.roles.contains_key(&role) && self.roles.len() >= MOST_ROLES {
            return Err(Status::resource_exhausted(format!(
                "role '{role}' would be one more than the {MOST_ROLES} that this switch knows"
            )));
        }
        let was_primary = self.is_primary(stream);
        let state = self.roles.entry(role.clone()).or_default();
        let wins = election_id.is_some() && election_id >= state.highest;
        if wins {
            state.highest = election_id;
            state.config = config;
            state.access = access;
            state.forgotten = false;
        }
        let outgoing = outgoing.clone();
        self.controllers.insert(stream, Controller { role: role.clone(), election_id, outgoing, lane: None });
        if wins {
            self.notify(&role, |id| id != stream);
            self.notify(&role, |id| id == stream);
        } else {
            self.notify(&role, |id| was_primary || id == stream);
        }
        Ok(())
    }

    fn checked_access(&self, role: &str, config: Option<&Any>) -> Result<Access, Status> {
        let access = Access::new(config)?;
        let rivals = self.roles.iter().filter(|(name, _)| name.as_str() != role);
        for (name, rival) in rivals {
            if let Some(id) = access.conflict(&rival.access) {
                return Err(Status::invalid_argument(format!(
                    "role config: P4 id {id:#010x} is exclusive to one role, but role '{role}' and role '{name}' both have it"
                )));
            }
        }
        Ok(access)
    }

    /// A stream has ended.
    pub(super) fn close(&mut self, stream: u64) {
        let was_primary = self.is_primary(stream);
        let Some(gone) = self.controllers.remove(&stream) else { return };
        if !self.is_connected(&gone.role)
            && let Some(state) = self.roles.get_mut(&gone.role)
        {
            state.forgotten = state.config.take().is_some();
            state.access = Access::default();
        }
        if was_primary {
            self.notify(&gone.role, |_| true);
        }
    }

    /// A role other than the default one that nobody is connected for.
    fn idle_role(&self) -> Option<String> {
        let idle = |name: &&String| !name.is_empty() && !self.is_connected(name);
        self.roles.keys().find(idle).cloned()
    }

    fn is_connected(&self, role: &str) -> bool {
        self.controllers.values().any(|controller| controller.role == role)
    }

    /// Forgets the election ids of a role's controllers that are gone, or of all roles': the
    /// highest of those that are connected is primary. The roles whose primary may be another then.
    pub(crate) fn reset(&mut self, role: Option<&str>) -> Result<Vec<String>, Status> {
        if let Some(role) = role {
            self.role(role)?;
        }
        let names: Vec<String> =
            self.roles.keys().filter(|name| role.is_none_or(|role| role == name.as_str())).cloned().collect();
        let mut changed = Vec::new();
        for name in names {
            let live = self.controllers.values().filter(|controller| controller.role == name);
            let highest = live.filter_map(|controller| controller.election_id).max();
            let Some(state) = self.roles.get_mut(&name).filter(|state| state.highest != highest) else {
                continue;
            };
            state.highest = highest;
            self.notify(&name, |_| true);
            changed.push(name);
        }
        Ok(changed)
    }

    /// The stream of a role's primary.
    fn primary(&self, role: &str) -> Option<u64> {
        let highest = self.roles.get(role)?.highest;
        self.controllers
            .iter()
            .find(|(_, c)| c.role == role && highest.is_some() && c.election_id == highest)
            .map(|(stream, _)| *stream)
    }

    /// Whether a stream is its role's primary.
    pub(super) fn is_primary(&self, stream: u64) -> bool {
        self.controllers.get(&stream).is_some_and(|c| self.primary(&c.role) == Some(stream))
    }

    /// What a unary call with this role and id may do, if it comes from the primary.
    pub(super) fn check(&self, role: &str, election_id: Option<v1::Uint128>) -> Result<Access, Status> {
        let state = self.role(role)?;
        let asked = election_id.map(u128::from);
        let primary = self.primary(role);
        if primary.is_some() && asked == state.highest {
            return Ok(state.access.clone());
        }
        let own =
            asked.map_or_else(|| "a call without election id".to_owned(), |id| format!("election id {id}"));
        Err(Status::permission_denied(match (primary, state.highest) {
            (Some(_), Some(highest)) => format!("{own} is not primary of role '{role}'; {highest} is"),
            _ => format!(
                "role '{role}' has no primary; send a MasterArbitrationUpdate on a StreamChannel first"
            ),
        }))
    }

    /// What a role may see.
    pub(super) fn access(&self, role: &str) -> Result<Access, Status> {
        let state = self.role(role)?;
        if state.forgotten {
            return Err(Status::not_found(format!(
                "the config of role '{role}' went with its last controller: open a StreamChannel for it"
            )));
        }
        Ok(state.access.clone())
    }

    fn role(&self, role: &str) -> Result<&Role, Status> {
        self.roles.get(role).ok_or_else(|| {
            let known: Vec<_> = self.roles.keys().map(|name| format!("'{name}'")).collect();
            Status::not_found(format!(
                "there is no role '{role}'; roles that have bid: {} ('' is the default role)",
                known.join(", ")
            ))
        })
    }

    /// Tells the primaries of all roles that may hear it, in the part that each may; false when
    /// nobody heard, because there is no primary or it does not keep up.
    pub(super) fn tell_primaries(&self, mut message: impl FnMut(&Access) -> Option<Told>) -> bool {
        let mut heard = false;
        for (name, role) in &self.roles {
            let primary = self.primary(name).and_then(|stream| self.controllers.get(&stream));
            let (Some(primary), Some(message)) = (primary, message(&role.access)) else { continue };
            heard |= primary.outgoing.tell(message);
        }
        heard
    }

    /// Tells streams of a role who is primary, and gives the primary its lane.
    fn notify(&mut self, role: &str, to: impl Fn(u64) -> bool) {
        let primary = self.primary(role);
        let has_lane = self.limits.has_lane(role);
        let Some(state) = self.roles.get(role) else { return };
        for (stream, controller) in self.controllers.iter_mut().filter(|(_, c)| c.role == role) {
            match &controller.lane {
                None if has_lane && primary == Some(*stream) => {
                    controller.lane = Some(Lane::new(&controller.outgoing.peer));
                }
                Some(_) if primary != Some(*stream) => controller.lane = None,
                _ => {}
            }
            if !to(*stream) {
                continue;
            }
            let (code, message) = match primary {
                Some(id) if id == *stream => (Code::Ok, "primary"),
                Some(_) => (Code::AlreadyExists, "backup: another controller is primary"),
                None => (Code::NotFound, "backup: there is no primary"),
            };
            let named = !role.is_empty() || state.config.is_some();
            let update = v1::MasterArbitrationUpdate {
                device_id: self.device_id,
                role: named.then(|| v1::Role {
                    name: role.to_owned(),
                    config: state.config.clone(),
                    ..v1::Role::default()
                }),
                election_id: state.highest.map(Into::into),
                status: Some(rpc::Status {
                    code: code as i32,
                    message: message.to_owned(),
                    ..rpc::Status::default()
                }),
            };
            controller.outgoing.tell_of_arbitration(update);
        }
    }
}

#[cfg(test)]
mod tests;
