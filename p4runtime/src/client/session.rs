// SPDX-License-Identifier: Apache-2.0
//! The stream channel: its life is the session's life (P4Runtime, "Client Arbitration and
//! Controller Replication").

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use super::error::ClientError;
use super::role::{Arbitration, Role};
use crate::v1::stream_message_response::Update as Message;
use crate::v1::{
    self, DigestList, IdleTimeoutNotification, MasterArbitrationUpdate, PacketIn, StreamError,
    StreamMessageRequest, StreamMessageResponse, Uint128,
};

/// Messages held per receiver before further ones are dropped (and counted).
const BACKLOG: usize = 1024;

/// What a switch sends by itself. A receiver that is not emptied loses the latest messages; see
/// [`Client::missed_messages`](super::Client::missed_messages).
#[derive(Debug)]
#[non_exhaustive]
pub struct Streams {
    /// Packets sent to the CPU port.
    pub packets: mpsc::Receiver<PacketIn>,
    /// Digests; acknowledge them with
    /// [`Client::acknowledge_digest`](super::Client::acknowledge_digest).
    pub digests: mpsc::Receiver<DigestList>,
    /// Entries that were not hit in time.
    pub idle_timeouts: mpsc::Receiver<IdleTimeoutNotification>,
    /// What the switch has against messages we sent.
    pub errors: mpsc::Receiver<StreamError>,
}

/// Standing of the session, as the switch last told.
#[derive(Debug, Clone)]
pub(super) enum Standing {
    /// No answer to the first bid yet.
    Waiting,
    /// `answer` counts the answers.
    Settled { arbitration: Arbitration, answer: u64 },
    /// The stream has ended.
    Ended(ClientError),
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) device_id: u64,
    pub(super) role: Role,
    pub(super) election_id: u128,
    pub(super) standing: watch::Receiver<Standing>,
    outgoing: mpsc::Sender<StreamMessageRequest>,
    streams: Mutex<Option<Streams>>,
    missed: Arc<AtomicU64>,
    reader: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// The sending ends that the reader feeds.
struct Sinks {
    packets: mpsc::Sender<PacketIn>,
    digests: mpsc::Sender<DigestList>,
    idle_timeouts: mpsc::Sender<IdleTimeoutNotification>,
    errors: mpsc::Sender<StreamError>,
    missed: Arc<AtomicU64>,
}

impl Sinks {
    fn give<T>(&self, sink: &mpsc::Sender<T>, message: T) {
        // Never wait: a slow reader of packets must not hold up arbitration.
        if sink.try_send(message).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Session {
    /// A session, not yet connected, and the requests it will send. The first of them is the bid.
    pub(super) fn open(
        address: String,
        device_id: u64,
        election_id: u128,
        role: Role,
    ) -> (Self, ReceiverStream<StreamMessageRequest>, Reader) {
        let (outgoing, requests) = mpsc::channel(BACKLOG);
        let (told, standing) = watch::channel(Standing::Waiting);
        let (packets, packets_out) = mpsc::channel(BACKLOG);
        let (digests, digests_out) = mpsc::channel(BACKLOG);
        let (idle_timeouts, idle_timeouts_out) = mpsc::channel(BACKLOG);
        let (errors, errors_out) = mpsc::channel(BACKLOG);
        let missed = Arc::new(AtomicU64::new(0));
        let sinks = Sinks { packets, digests, idle_timeouts, errors, missed: missed.clone() };
        let session = Self {
            device_id,
            role,
            election_id,
            standing,
            outgoing,
            streams: Mutex::new(Some(Streams {
                packets: packets_out,
                digests: digests_out,
                idle_timeouts: idle_timeouts_out,
                errors: errors_out,
            })),
            missed,
            reader: tokio::spawn(std::future::ready(())),
        };
        (session, ReceiverStream::new(requests), Reader { address, election_id, told, sinks })
    }

    /// Starts to read what the switch sends.
    pub(super) fn attach(&mut self, reader: Reader, messages: Streaming<StreamMessageResponse>) {
        self.reader = tokio::spawn(reader.run(messages));
    }

    /// The bid for this session's role.
    pub(super) fn bid(&self) -> StreamMessageRequest {
        let role = &self.role;
        // No role message at all is the default role with full access (P4Runtime, "Default Role").
        let role = (*role != Role::default()).then(|| v1::Role {
            name: role.name.clone(),
            config: role.config.clone(),
            ..v1::Role::default()
        });
        StreamMessageRequest {
            update: Some(v1::stream_message_request::Update::Arbitration(MasterArbitrationUpdate {
                device_id: self.device_id,
                role,
                election_id: Some(self.election_id.into()),
                status: None,
            })),
        }
    }

    pub(super) async fn send(
        &self,
        address: &str,
        operation: &'static str,
        request: StreamMessageRequest,
    ) -> Result<(), ClientError> {
        if self.outgoing.send(request).await.is_ok() {
            return Ok(());
        }
        Err(match &*self.standing.borrow() {
            Standing::Ended(error) => error.clone(),
            _ => ClientError::Lost {
                address: address.to_owned(),
                operation,
                reason: "the stream channel is closed".to_owned(),
            },
        })
    }

    /// Number of answers to bids so far.
    pub(super) fn answers(&self) -> u64 {
        match &*self.standing.borrow() {
            Standing::Settled { answer, .. } => *answer,
            _ => 0,
        }
    }

    /// Waits for an arbitration, with its answer's number, that `is_wanted`, or for the stream's
    /// end.
    pub(super) async fn settled(
        &self,
        is_wanted: impl Fn(&Arbitration, u64) -> bool,
    ) -> Result<Arbitration, Option<ClientError>> {
        let mut standing = self.standing.clone();
        let settled = standing
            .wait_for(|standing| match standing {
                Standing::Waiting => false,
                Standing::Settled { arbitration, answer } => is_wanted(arbitration, *answer),
                Standing::Ended(_) => true,
            })
            .await;
        match settled.as_deref() {
            Ok(Standing::Settled { arbitration, .. }) => Ok(arbitration.clone()),
            Ok(Standing::Ended(error)) => Err(Some(error.clone())),
            _ => Err(None),
        }
    }

    pub(super) fn take_streams(&self) -> Option<Streams> {
        self.streams.lock().ok()?.take()
    }

    pub(super) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// Reads the stream until it ends.
pub(super) struct Reader {
    address: String,
    election_id: u128,
    told: watch::Sender<Standing>,
    sinks: Sinks,
}

impl Reader {
    async fn run(self, mut messages: Streaming<StreamMessageResponse>) {
        let mut answers = 0;
        let end = loop {
            match messages.message().await {
                Ok(Some(message)) => self.dispatch(message, &mut answers),
                Ok(None) => {
                    break ClientError::Lost {
                        address: self.address.clone(),
                        operation: "StreamChannel",
                        reason: "the switch closed the stream".to_owned(),
                    };
                }
                Err(status) => break ClientError::from_status(&self.address, "StreamChannel", status),
            }
        };
        self.told.send_replace(Standing::Ended(end));
    }

    fn dispatch(&self, message: StreamMessageResponse, answers: &mut u64) {
        match message.update {
            Some(Message::Arbitration(update)) => {
                *answers += 1;
                let arbitration = self.read_arbitration(&update);
                self.told.send_replace(Standing::Settled { arbitration, answer: *answers });
            }
            Some(Message::Packet(packet)) => self.sinks.give(&self.sinks.packets, packet),
            Some(Message::Digest(digest)) => self.sinks.give(&self.sinks.digests, digest),
            Some(Message::IdleTimeoutNotification(idle)) => self.sinks.give(&self.sinks.idle_timeouts, idle),
            Some(Message::Error(error)) => self.sinks.give(&self.sinks.errors, error),
            // A target's own message, or one of a later version.
            Some(Message::Other(_)) | None => {}
        }
    }

    fn read_arbitration(&self, update: &MasterArbitrationUpdate) -> Arbitration {
        let highest = update.election_id.map(u128::from);
        match update.status.as_ref().map_or(0, |status| status.code) {
            0 => Arbitration::Primary { election_id: highest.unwrap_or(self.election_id) },
            code => Arbitration::Backup {
                highest_election_id: highest,
                primary_exists: code == Code::AlreadyExists as i32,
            },
        }
    }
}

impl From<u128> for Uint128 {
    fn from(value: u128) -> Self {
        Self { high: (value >> 64) as u64, low: value as u64 }
    }
}

impl From<Uint128> for u128 {
    fn from(value: Uint128) -> Self {
        (Self::from(value.high) << 64) | Self::from(value.low)
    }
}
