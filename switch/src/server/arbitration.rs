//! Who is primary (P4Runtime, "Client Arbitration and Controller Replication").

use super::role::Access;
use prost_types::Any;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::mpsc;
use tonic::{Code, Status};
use trimwire_p4runtime::v1::stream_message_response::Update as Told;
use trimwire_p4runtime::{rpc, v1};

/// What a controller's stream is told.
pub(super) type Outgoing = mpsc::Sender<Result<v1::StreamMessageResponse, Status>>;

/// Roles that may ever bid: their election ids are kept for as long as the switch runs.
const MOST_ROLES: usize = 64;
/// Streams of one role.
const MOST_CONTROLLERS: usize = 64;
/// Places in a stream's queue that all else leaves to arbitration.
const RESERVED: usize = 16;

/// One open stream that has taken part in arbitration.
#[derive(Debug)]
struct Controller {
    role: String,
    /// `None` for one that never wants to be primary. A set zero is an id like others ("Unset Election ID").
    election_id: Option<u128>,
    outgoing: Outgoing,
}

/// What outlives a role's streams.
#[derive(Debug, Default)]
struct Role {
    /// The highest id ever; the stream that has it is primary.
    highest: Option<u128>,
    /// As the last primary gave it.
    config: Option<Any>,
    access: Access,
}

/// All open streams, and what each role's primary was.
#[derive(Debug)]
pub(super) struct Arbitration {
    device_id: u64,
    controllers: BTreeMap<u64, Controller>,
    roles: BTreeMap<String, Role>,
    /// Those that may bid; `None`: any.
    known: Option<BTreeSet<String>>,
    next_stream: u64,
}

impl Arbitration {
    pub(super) fn new(device_id: u64, known: Option<BTreeSet<String>>) -> Self {
        let roles = BTreeMap::from([(String::new(), Role::default())]);
        Self { device_id, controllers: BTreeMap::new(), roles, known, next_stream: 0 }
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
        if let Some(known) = self.known.as_ref().filter(|known| !known.contains(&role)) {
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
        }
        self.controllers
            .insert(stream, Controller { role: role.clone(), election_id, outgoing: outgoing.clone() });
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
        if let Some(gone) = self.controllers.remove(&stream).filter(|_| was_primary) {
            self.notify(&gone.role, |_| true);
        }
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
        Ok(self.role(role)?.access.clone())
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

    /// Tells the primaries of all roles that may hear it, in the part that each may; false when nobody heard, because there
    /// is no primary or it does not keep up.
    pub(super) fn tell_primaries(&self, mut message: impl FnMut(&Access) -> Option<Told>) -> bool {
        let mut heard = false;
        for (name, role) in &self.roles {
            let primary = self.primary(name).and_then(|stream| self.controllers.get(&stream));
            let (Some(primary), Some(message)) = (primary, message(&role.access)) else { continue };
            heard |= tell(&primary.outgoing, message);
        }
        heard
    }

    fn notify(&self, role: &str, to: impl Fn(u64) -> bool) {
        let (Some(state), primary) = (self.roles.get(role), self.primary(role)) else { return };
        for (stream, controller) in self.controllers.iter().filter(|(id, c)| c.role == role && to(**id)) {
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
            let update = Some(Told::Arbitration(update));
            let _ = controller.outgoing.try_send(Ok(v1::StreamMessageResponse { update }));
        }
    }
}

/// Puts a message into a stream's queue, unless what is left of that is for arbitration: a flood of packets must not crowd
/// out who is primary.
pub(super) fn tell(outgoing: &Outgoing, message: Told) -> bool {
    let response = v1::StreamMessageResponse { update: Some(message) };
    outgoing.capacity() > RESERVED && outgoing.try_send(Ok(response)).is_ok()
}

#[cfg(test)]
mod tests;
