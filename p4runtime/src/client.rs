// SPDX-License-Identifier: Apache-2.0
//! A controller's end of P4Runtime.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use trimwire_p4runtime::client::{Arbitration, Client, Role};
//! use trimwire_p4runtime::p4info::P4Info;
//! use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
//!
//! let mut client = Client::connect("127.0.0.1:9559").await?;
//! let Arbitration::Primary { .. } = client.arbitrate(0, 1, Role::default()).await? else {
//!     return Err("another controller is primary".into());
//! };
//! let p4info = P4Info::from_text(&std::fs::read_to_string("trimwire.p4info.txtpb")?)?;
//! let json = std::fs::read("trimwire.json")?;
//! client.set_pipeline(p4info, json, Some(1), Action::VerifyAndCommit).await?;
//! # Ok(()) }
//! ```
//!
//! Order of calls: [`Client::connect`], [`Client::arbitrate`], then the others in any order and
//! from any number of tasks (they take `&self`). Only [`Client::capabilities`] may come before
//! arbitration; to look without taking part in it, call [`Client::observe`] instead. Dropping the
//! client ends the session.

mod error;
mod interfaces;
mod role;
mod session;
mod tls;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

pub use self::error::{ClientError, Rejection, UpdateError, WriteError};
pub use self::interfaces::Interfaces;
pub use self::role::{Arbitration, Role};
pub use self::session::Streams;
use self::session::{Session, Standing};
pub use self::tls::Tls;
use crate::admin::admin_client::AdminClient;
use crate::admin::{GetRequest, PortStates, WatchPortsRequest};
use crate::entity;
use crate::p4info::{Index, P4Info};
use crate::server::MAX_MESSAGE_BYTES;
use crate::status;
use crate::v1::p4_runtime_client::P4RuntimeClient;
use crate::v1::{
    self, CapabilitiesRequest, DigestListAck, Entity, ForwardingPipelineConfig,
    GetForwardingPipelineConfigRequest, PacketMetadata, PacketOut, ReadRequest,
    SetForwardingPipelineConfigRequest, StreamMessageRequest, Update, WriteRequest,
    get_forwarding_pipeline_config_request::ResponseType, set_forwarding_pipeline_config_request::Action,
    write_request::Atomicity,
};

/// How long to wait, and what to show and ask for.
#[derive(Debug, Clone)]
pub struct Options {
    /// For the connection, and for the answer to a bid.
    pub connect_timeout: Duration,
    /// For each call; for Read, for the whole answer.
    pub call_timeout: Duration,
    /// Without it, the connection is in the clear.
    pub tls: Option<Tls>,
}

impl Default for Options {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(5), call_timeout: Duration::from_secs(60), tls: None }
    }
}

/// A connection to one switch.
#[derive(Debug)]
pub struct Client {
    address: String,
    options: Options,
    rpc: P4RuntimeClient<Channel>,
    channel: Channel,
    session: Option<Session>,
    /// The device to look at without a session.
    observed: Option<u64>,
    /// For names in errors; set with the pipeline.
    index: Mutex<Option<Index>>,
}

impl Client {
    /// Connects to `HOST:PORT` with default [`Options`].
    pub async fn connect(address: &str) -> Result<Self, ClientError> {
        Self::connect_with(address, Options::default()).await
    }

    /// Connects to `HOST:PORT`.
    pub async fn connect_with(address: &str, options: Options) -> Result<Self, ClientError> {
        let endpoint = endpoint(address, options.tls.as_ref())?
            .connect_timeout(options.connect_timeout)
            .tcp_nodelay(true)
            // A switch that loses power sends no FIN. TCP keep-alive rather than HTTP/2 pings:
            // gRPC's C++ servers (BMv2, Stratum) answer frequent pings by closing the connection.
            .tcp_keepalive(Some(Duration::from_secs(10)))
            .tcp_keepalive_interval(Some(Duration::from_secs(5)))
            .tcp_keepalive_retries(Some(3));
        let connecting = tokio::time::timeout(options.connect_timeout, endpoint.connect()).await;
        let connect =
            |reason, is_refused| ClientError::Connect { address: address.to_owned(), reason, is_refused };
        let channel = connecting
            .map_err(|_| connect(format!("no answer within {:?}", options.connect_timeout), false))?
            .map_err(|error| connect(error::reason(&error), error::is_refused(&error)))?;
        let rpc = P4RuntimeClient::new(channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self {
            address: address.to_owned(),
            options,
            rpc,
            channel,
            session: None,
            observed: None,
            index: Mutex::new(None),
        })
    }

    /// As given to [`Client::connect`].
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Which of the switch's ports can be used, as it changes; `None` of a switch that has no
    /// [`admin`](crate::admin) service, or one that does not tell.
    pub async fn watch_ports(&self) -> Result<Option<Streaming<PortStates>>, ClientError> {
        let mut admin = AdminClient::new(self.channel.clone());
        match self.call("WatchPorts", Box::pin(admin.watch_ports(WatchPortsRequest {}))).await {
            Ok(states) => Ok(Some(states)),
            Err(error) if error.code() == Some(Code::Unimplemented) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The line rates of the switch's ports, bit/s, 0 for one without bound; none of a switch that
    /// has no [`admin`](crate::admin) service, as other makers' have none.
    pub async fn line_rates(&self) -> Result<BTreeMap<u16, u64>, ClientError> {
        let mut admin = AdminClient::new(self.channel.clone());
        match self.call("Get", Box::pin(admin.get(GetRequest::default()))).await {
            Ok(answer) => {
                let rate = |port: crate::admin::Port| Some((u16::try_from(port.port).ok()?, port.rate_bps));
                Ok(answer.ports.into_iter().filter_map(rate).collect())
            }
            Err(error) if error.code() == Some(Code::Unimplemented) => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    /// Looks at a device without bidding for it: [`Client::pipeline`] and [`Client::read`] work,
    /// and a primary controller takes no notice.
    pub fn observe(&mut self, device_id: u64) {
        self.observed = Some(device_id);
    }

    /// Bids to be the primary controller of a device, for a role. The highest election id wins.
    ///
    /// Called again for the same device and role, renews the bid on the same stream; for others,
    /// ends the session and starts one.
    pub async fn arbitrate(
        &mut self,
        device_id: u64,
        election_id: u128,
        role: Role,
    ) -> Result<Arbitration, ClientError> {
        const OPERATION: &str = "arbitration";
        let waiting = self.options.connect_timeout;
        let renewal = self.session.as_mut().filter(|session| {
            session.device_id == device_id
                && session.role == role
                && !matches!(*session.standing.borrow(), Standing::Ended(_))
        });
        let seen = if let Some(session) = renewal {
            session.election_id = election_id;
            let seen = session.answers();
            session.send(&self.address, OPERATION, session.bid()).await?;
            seen
        } else {
            self.session = None;
            let (mut session, requests, reader) =
                Session::open(self.address.clone(), device_id, election_id, role);
            // The bid goes first, into the queue: some servers answer the call only after it.
            session.send(&self.address, OPERATION, session.bid()).await?;
            let mut rpc = self.rpc.clone();
            let messages =
                self.in_time(OPERATION, waiting, Box::pin(rpc.stream_channel(requests))).await?.into_inner();
            session.attach(reader, messages);
            self.session = Some(session);
            0
        };
        let Some(session) = &self.session else { return Err(self.not_arbitrated(OPERATION)) };
        let answered = session.settled(|_, answer| answer > seen);
        match tokio::time::timeout(waiting, answered).await {
            Ok(outcome) => self.settled(OPERATION, outcome),
            Err(_) => Err(self.timeout(OPERATION, waiting)),
        }
    }

    /// The outcome of arbitration as the switch last told it, which changes when other controllers
    /// come and go; the error that ended the session if it has ended.
    pub fn arbitration(&self) -> Result<Arbitration, ClientError> {
        let session = self.session("arbitration")?;
        match &*session.standing.borrow() {
            Standing::Settled { arbitration, .. } => Ok(arbitration.clone()),
            Standing::Ended(error) => Err(error.clone()),
            Standing::Waiting => Err(self.not_arbitrated("arbitration")),
        }
    }

    /// Waits until the outcome of arbitration is another than `seen`, or the session ends (an
    /// error).
    pub async fn arbitration_change(&self, seen: &Arbitration) -> Result<Arbitration, ClientError> {
        let session = self.session("arbitration")?;
        self.settled("StreamChannel", session.settled(|arbitration, _| arbitration != seen).await)
    }

    fn settled(
        &self,
        operation: &'static str,
        outcome: Result<Arbitration, Option<ClientError>>,
    ) -> Result<Arbitration, ClientError> {
        outcome.map_err(|ended| ended.unwrap_or_else(|| self.lost(operation, "the stream's reader ended")))
    }

    /// What the switch sends by itself; once per session.
    pub fn take_streams(&self) -> Option<Streams> {
        self.session.as_ref()?.take_streams()
    }

    /// Messages of this session that were dropped because a receiver of [`Client::take_streams`]
    /// was full or gone.
    pub fn missed_messages(&self) -> u64 {
        self.session.as_ref().map_or(0, Session::missed)
    }

    /// Uses a program's names in error messages. [`Client::set_pipeline`] and [`Client::pipeline`]
    /// do so themselves.
    pub fn use_index(&self, index: Index) {
        if let Ok(mut slot) = self.index.lock() {
            *slot = Some(index);
        }
    }

    /// The index of the pipeline's P4Info, if known.
    pub fn index(&self) -> Option<Index> {
        self.index.lock().ok()?.clone()
    }

    /// Pushes a pipeline.
    pub async fn set_pipeline(
        &self,
        p4info: P4Info,
        device_config: Vec<u8>,
        cookie: Option<u64>,
        action: Action,
    ) -> Result<(), ClientError> {
        const OPERATION: &str = "SetForwardingPipelineConfig";
        let session = self.session(OPERATION)?;
        let index = Index::new(&p4info).ok();
        let request = SetForwardingPipelineConfigRequest {
            device_id: session.device_id,
            role: session.role.name.clone(),
            election_id: Some(session.election_id.into()),
            action: action.into(),
            config: Some(ForwardingPipelineConfig {
                p4info: Some(p4info),
                p4_device_config: device_config,
                cookie: cookie.map(|cookie| v1::forwarding_pipeline_config::Cookie { cookie }),
            }),
            ..SetForwardingPipelineConfigRequest::default()
        };
        let mut rpc = self.rpc.clone();
        self.call(OPERATION, Box::pin(rpc.set_forwarding_pipeline_config(request))).await?;
        if let (Some(index), true) = (index, action != Action::Verify) {
            self.use_index(index);
        }
        Ok(())
    }

    /// Commits the pipeline that an earlier [`Client::set_pipeline`] with `VERIFY_AND_SAVE` left.
    pub async fn commit_pipeline(&self) -> Result<(), ClientError> {
        const OPERATION: &str = "SetForwardingPipelineConfig";
        let session = self.session(OPERATION)?;
        let request = SetForwardingPipelineConfigRequest {
            device_id: session.device_id,
            role: session.role.name.clone(),
            election_id: Some(session.election_id.into()),
            action: Action::Commit.into(),
            ..SetForwardingPipelineConfigRequest::default()
        };
        let mut rpc = self.rpc.clone();
        self.call(OPERATION, Box::pin(rpc.set_forwarding_pipeline_config(request))).await.map(drop)
    }

    /// The pipeline that the switch runs, or as much of it as asked for; `None` if it has none.
    pub async fn pipeline(
        &self,
        what: ResponseType,
    ) -> Result<Option<ForwardingPipelineConfig>, ClientError> {
        const OPERATION: &str = "GetForwardingPipelineConfig";
        let (device_id, _) = self.device(OPERATION)?;
        let request = GetForwardingPipelineConfigRequest { device_id, response_type: what.into() };
        let mut rpc = self.rpc.clone();
        let config = match self.call(OPERATION, Box::pin(rpc.get_forwarding_pipeline_config(request))).await {
            Ok(response) => response.config,
            // "GetForwardingPipelineConfig RPC": no pipeline is a failed precondition.
            Err(error) if error.code() == Some(Code::FailedPrecondition) => None,
            Err(error) => return Err(error),
        };
        if let Some(p4info) = config.as_ref().and_then(|config| config.p4info.as_ref())
            && let Ok(index) = Index::new(p4info)
        {
            self.use_index(index);
        }
        Ok(config)
    }

    /// Changes entities, in order.
    pub async fn write(&self, updates: Vec<Update>, atomicity: Atomicity) -> Result<(), WriteError> {
        const OPERATION: &str = "Write";
        let session = self.session(OPERATION)?;
        let request = WriteRequest {
            device_id: session.device_id,
            role: session.role.name.clone(),
            election_id: Some(session.election_id.into()),
            updates: updates.clone(),
            atomicity: atomicity.into(),
            ..WriteRequest::default()
        };
        let mut rpc = self.rpc.clone();
        match self.call(OPERATION, Box::pin(rpc.write(request))).await {
            Ok(_) => Ok(()),
            Err(ClientError::Refused { status, address, operation }) => match status::to_updates(&status) {
                Some(outcomes) if outcomes.len() == updates.len() => {
                    Err(self.rejection(&updates, &outcomes, *status))
                }
                _ => Err(ClientError::Refused { address, operation, status }.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    fn rejection(&self, updates: &[Update], outcomes: &[v1::Error], status: Status) -> WriteError {
        let index = self.index();
        let refused: Vec<UpdateError> = outcomes
            .iter()
            .zip(updates)
            .enumerate()
            .filter(|(_, (outcome, _))| outcome.canonical_code != 0)
            .map(|(position, (outcome, update))| UpdateError {
                index: position,
                code: Code::from_i32(outcome.canonical_code),
                message: outcome.message.clone(),
                space: outcome.space.clone(),
                target_code: outcome.code,
                update: entity::describe_update(update, index.as_ref()),
            })
            .collect();
        if refused.is_empty() {
            // Failed as a whole although every update is said to have succeeded.
            return ClientError::from_status(&self.address, "Write", status).into();
        }
        Rejection { address: self.address.clone(), total: updates.len(), updates: refused }.into()
    }

    /// Reads entities. An id of 0, or an entry without match, is a wildcard (P4Runtime, "Wildcard
    /// Reads").
    pub async fn read(&self, entities: Vec<Entity>) -> Result<Vec<Entity>, ClientError> {
        const OPERATION: &str = "Read";
        let (device_id, role) = self.device(OPERATION)?;
        let request = ReadRequest { device_id, role: role.to_owned(), entities };
        let mut rpc = self.rpc.clone();
        self.in_time(
            OPERATION,
            self.options.call_timeout,
            Box::pin(async {
                let mut responses = rpc.read(request).await?.into_inner();
                let mut read = Vec::new();
                while let Some(response) = responses.message().await? {
                    read.extend(response.entities);
                }
                Ok(read)
            }),
        )
        .await
    }

    /// Sends a packet through the switch's CPU port. Packets are not answered; errors come on
    /// [`Streams::errors`].
    pub async fn packet_out(
        &self,
        payload: Vec<u8>,
        metadata: Vec<PacketMetadata>,
    ) -> Result<(), ClientError> {
        use v1::stream_message_request::Update::Packet;
        self.send("packet-out", Packet(PacketOut { payload, metadata })).await
    }

    /// Acknowledges a digest, so that the switch may send its data again.
    pub async fn acknowledge_digest(&self, digest_id: u32, list_id: u64) -> Result<(), ClientError> {
        use v1::stream_message_request::Update::DigestAck;
        self.send("digest acknowledgement", DigestAck(DigestListAck { digest_id, list_id })).await
    }

    /// The P4Runtime version that the switch serves, as in "1.5.0".
    pub async fn capabilities(&self) -> Result<String, ClientError> {
        // Device 0 where none is chosen: the version is the server's, not the device's.
        let (device_id, _) = self.device("Capabilities").unwrap_or_default();
        let mut rpc = self.rpc.clone();
        let response =
            self.call("Capabilities", Box::pin(rpc.capabilities(CapabilitiesRequest { device_id }))).await?;
        Ok(response.p4runtime_api_version)
    }

    async fn send(
        &self,
        operation: &'static str,
        update: v1::stream_message_request::Update,
    ) -> Result<(), ClientError> {
        let request = StreamMessageRequest { update: Some(update) };
        self.session(operation)?.send(&self.address, operation, request).await
    }

    /// Device and role to read from.
    fn device(&self, operation: &'static str) -> Result<(u64, &str), ClientError> {
        match (&self.session, self.observed) {
            (Some(session), _) => Ok((session.device_id, session.role.name.as_str())),
            (None, Some(device_id)) => Ok((device_id, "")),
            (None, None) => Err(self.not_arbitrated(operation)),
        }
    }

    fn session(&self, operation: &'static str) -> Result<&Session, ClientError> {
        self.session.as_ref().ok_or_else(|| self.not_arbitrated(operation))
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, ClientError> {
        self.in_time(operation, self.options.call_timeout, call).await.map(tonic::Response::into_inner)
    }

    async fn in_time<T>(
        &self,
        operation: &'static str,
        limit: Duration,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, ClientError> {
        match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer.map_err(|status| ClientError::from_status(&self.address, operation, status)),
            Err(_) => Err(self.timeout(operation, limit)),
        }
    }

    fn not_arbitrated(&self, operation: &'static str) -> ClientError {
        ClientError::NotArbitrated { address: self.address.clone(), operation }
    }

    fn lost(&self, operation: &'static str, reason: &str) -> ClientError {
        ClientError::Lost { address: self.address.clone(), operation, reason: reason.to_owned() }
    }

    fn timeout(&self, operation: &'static str, after: Duration) -> ClientError {
        ClientError::Timeout { address: self.address.clone(), operation, after }
    }
}

fn endpoint(address: &str, tls: Option<&Tls>) -> Result<Endpoint, ClientError> {
    let bad = |reason: &str| ClientError::Address { address: address.to_owned(), reason: reason.to_owned() };
    let authority = address.strip_prefix("http://").unwrap_or(address);
    let (host, port) = authority.rsplit_once(':').ok_or_else(|| bad("no port"))?;
    if host.is_empty() {
        return Err(bad("no host"));
    }
    port.parse::<u16>().map_err(|_| bad("not a port number from 0 to 65535"))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{authority}"))
        .map_err(|error| bad(&error::reason(&error)))?;
    match tls {
        None => Ok(endpoint),
        Some(tls) => endpoint.tls_config(tls.config()).map_err(|error| ClientError::Connect {
            address: address.to_owned(),
            reason: format!("TLS: {}", error::reason(&error)),
            is_refused: false,
        }),
    }
}
