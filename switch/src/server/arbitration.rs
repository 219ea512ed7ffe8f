//! Who is primary (P4Runtime specification, "Client Arbitration and Controller Replication").

use std::collections::BTreeMap;
use tokio::sync::mpsc;
use tonic::{Code, Status};
use trimwire_p4runtime::{rpc, v1};

/// What a controller's stream is told.
pub(super) type Outgoing = mpsc::Sender<Result<v1::StreamMessageResponse, Status>>;

/// Roles that may ever bid: their election ids are kept for as long as the switch runs.
const MOST_ROLES: usize = 64;
/// Places in a stream's queue that packets leave to arbitration.
const RESERVED: usize = 16;

/// One open stream that has taken part in arbitration.
#[derive(Debug)]
struct Controller {
    role: String,
    election_id: u128,
    outgoing: Outgoing,
}

/// All open streams, and the highest election id that each role has ever seen.
#[derive(Debug, Default)]
pub(super) struct Arbitration {
    controllers: BTreeMap<u64, Controller>,
    highest: BTreeMap<String, u128>,
    next_stream: u64,
}

impl Arbitration {
    /// A number for a stream.
    pub(super) fn open(&mut self) -> u64 {
        self.next_stream += 1;
        self.next_stream
    }

    /// A stream bids. On an error the stream has to be closed with it.
    pub(super) fn bid(
        &mut self,
        device_id: u64,
        stream: u64,
        role: &str,
        election_id: u128,
        outgoing: &Outgoing,
    ) -> Result<(), Status> {
        let taken = self.controllers.iter().any(|(other, c)| {
            *other != stream && c.role == role && c.election_id == election_id && election_id != 0
        });
        if taken {
            return Err(Status::invalid_argument(format!(
                "election id {election_id} of role '{role}' is in use by another stream"
            )));
        }
        if self.controllers.get(&stream).is_some_and(|c| c.role != role) {
            // The stream leaves its former role, which may lose its primary by that.
            self.close(device_id, stream);
        }
        if !self.highest.contains_key(role) && self.highest.len() >= MOST_ROLES {
            return Err(Status::resource_exhausted(format!(
                "role '{role}' would be one more than the {MOST_ROLES} that this switch knows"
            )));
        }
        let before = (self.primary(role), self.highest.get(role).copied());
        let highest = self.highest.entry(role.to_owned()).or_default();
        *highest = (*highest).max(election_id);
        self.controllers
            .insert(stream, Controller { role: role.to_owned(), election_id, outgoing: outgoing.clone() });
        if (self.primary(role), self.highest.get(role).copied()) == before {
            // Only the newcomer learns something.
            self.notify(device_id, role, |id| id == stream);
        } else {
            self.notify(device_id, role, |_| true);
        }
        Ok(())
    }

    /// A stream has ended.
    pub(super) fn close(&mut self, device_id: u64, stream: u64) {
        let Some(gone) = self.controllers.remove(&stream) else { return };
        if gone.election_id != 0 && self.highest.get(&gone.role) == Some(&gone.election_id) {
            self.notify(device_id, &gone.role, |_| true);
        }
    }

    /// The stream of a role's primary.
    fn primary(&self, role: &str) -> Option<u64> {
        let highest = self.highest.get(role).copied().filter(|id| *id > 0)?;
        self.controllers
            .iter()
            .find(|(_, c)| c.role == role && c.election_id == highest)
            .map(|(stream, _)| *stream)
    }

    /// Whether a stream is its role's primary.
    pub(super) fn is_primary(&self, stream: u64) -> bool {
        self.controllers.get(&stream).is_some_and(|c| self.primary(&c.role) == Some(stream))
    }

    /// Whether a unary call with this role and id comes from the primary.
    pub(super) fn check(&self, role: &str, election_id: Option<v1::Uint128>) -> Result<(), Status> {
        let asked = election_id.map(u128::from).unwrap_or_default();
        let highest = self.highest.get(role).copied().unwrap_or_default();
        if asked != 0 && asked == highest && self.primary(role).is_some() {
            return Ok(());
        }
        Err(Status::permission_denied(match self.primary(role) {
            Some(_) => format!("election id {asked} is not primary of role '{role}'; {highest} is"),
            None => format!(
                "role '{role}' has no primary; send a MasterArbitrationUpdate on a StreamChannel first"
            ),
        }))
    }

    /// Tells a role's primary something; false when there is none, or it does not keep up.
    pub(super) fn tell_primary(&self, message: v1::stream_message_response::Update) -> bool {
        let Some(controller) = self.primary("").and_then(|stream| self.controllers.get(&stream)) else {
            return false;
        };
        // A flood of packets must not crowd out who is primary.
        controller.outgoing.capacity() > RESERVED
            && controller.outgoing.try_send(Ok(v1::StreamMessageResponse { update: Some(message) })).is_ok()
    }

    fn notify(&self, device_id: u64, role: &str, to: impl Fn(u64) -> bool) {
        let primary = self.primary(role);
        for (stream, controller) in self.controllers.iter().filter(|(id, c)| c.role == role && to(**id)) {
            let (code, message) = match primary {
                Some(id) if id == *stream => (Code::Ok, "primary"),
                Some(_) => (Code::AlreadyExists, "backup: another controller is primary"),
                None => (Code::NotFound, "backup: there is no primary"),
            };
            let update = v1::MasterArbitrationUpdate {
                device_id,
                role: (!role.is_empty()).then(|| v1::Role { name: role.to_owned(), ..v1::Role::default() }),
                election_id: self.highest.get(role).copied().map(Into::into),
                status: Some(rpc::Status {
                    code: code as i32,
                    message: message.to_owned(),
                    ..rpc::Status::default()
                }),
            };
            let update = v1::stream_message_response::Update::Arbitration(update);
            let _ = controller.outgoing.try_send(Ok(v1::StreamMessageResponse { update: Some(update) }));
        }
    }
}
