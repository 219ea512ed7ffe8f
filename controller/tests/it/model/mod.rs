// SPDX-License-Identifier: Apache-2.0
//! A switch that keeps P4Runtime's rules and nothing else: a map of entities. It can be told to
//! misbehave.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use trimwire_p4runtime::entity::{self, EntityKey};
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::server::tonic::{self, Code, Request, Response, Status, Streaming};
use trimwire_p4runtime::server::{P4Runtime, async_trait, service};
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::get_forwarding_pipeline_config_request::ResponseType;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::stream_message_request::Update as Sent;
use trimwire_p4runtime::v1::stream_message_response::Update as Told;
use trimwire_p4runtime::v1::table_action::Type as ActionType;
use trimwire_p4runtime::v1::{
    CapabilitiesRequest, CapabilitiesResponse, Entity, ForwardingPipelineConfig,
    GetForwardingPipelineConfigRequest, GetForwardingPipelineConfigResponse, MasterArbitrationUpdate,
    ReadRequest, ReadResponse, SetForwardingPipelineConfigRequest, SetForwardingPipelineConfigResponse,
    StreamMessageRequest, StreamMessageResponse, TableEntry, Update, WriteRequest, WriteResponse, update,
};
use trimwire_p4runtime::{rpc, status, v1};

/// What the model holds and was asked.
#[derive(Default)]
pub(crate) struct State {
    pub config: Option<ForwardingPipelineConfig>,
    index: Option<Index>,
    pub entities: BTreeMap<EntityKey, Entity>,
    /// Election ids of open streams: twice where a controller bids anew before its last stream has
    /// ended.
    bids: Vec<u128>,
    highest: Option<u128>,
    /// Updates per Write, in order.
    pub writes: Vec<usize>,
    pub pushes: usize,
    pub streams: usize,
    /// Updates whose words contain this are refused.
    pub refuse: Option<String>,
    /// Writes after so many are answered with UNAVAILABLE, as when the process is killed.
    pub die_after: Option<usize>,
    /// Takes every update for right: looking costs more than all that a controller does.
    pub is_trusting: bool,
    /// Meters are kept as the SDE keeps them: seven bits of mantissa.
    pub rounds_meters: bool,
    /// Called before each program is taken.
    pub on_push: Option<OnPush>,
    /// Called before each Write is.
    pub on_write: Option<OnPush>,
}

pub(crate) type OnPush = Arc<dyn Fn() + Send + Sync>;

impl State {
    fn withdraw(&mut self, bid: Option<u128>) {
        if let Some(at) = self.bids.iter().position(|&other| Some(other) == bid) {
            self.bids.swap_remove(at);
        }
    }
}

/// Down to seven significant bits.
fn rounded(value: i64) -> i64 {
    let lost = (64 - value.leading_zeros()).saturating_sub(7);
    value >> lost << lost
}

/// A running model.
#[derive(Clone)]
pub(crate) struct Model {
    state: Arc<Mutex<State>>,
    pub address: SocketAddr,
    ended: Arc<tokio::sync::Notify>,
}

impl Model {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0").await
    }

    pub(crate) async fn start_at(address: &str) -> Self {
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let model =
            Self { state: Arc::default(), address: listener.local_addr().unwrap(), ended: Arc::default() };
        let server = tonic::transport::Server::builder().add_service(service(model.clone()));
        let ended = Arc::clone(&model.ended);
        tokio::spawn(async move {
            tokio::select! {
                _ = server.serve_with_incoming(TcpListenerStream::new(listener)) => {}
                () = ended.notified() => {}
            }
        });
        model
    }

    /// Is killed: streams end, and nobody listens any more.
    pub(crate) fn kill(&self) {
        self.ended.notify_waiters();
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn apply(&mut self, update: &Update, index: &Index) -> Result<(), (Code, String)> {
        if self.is_trusting {
            let entity = update.entity.clone().unwrap();
            let key = EntityKey::of(&entity).unwrap();
            if update.r#type() == update::Type::Delete {
                self.entities.remove(&key);
            } else {
                self.entities.insert(key, entity);
            }
            return Ok(());
        }
        let update =
            entity::check_update(update, index).map_err(|error| (error.code(), error.to_string()))?;
        let words = entity::describe_update(&update, Some(index));
        if self.refuse.as_ref().is_some_and(|part| words.contains(part)) {
            return Err((Code::ResourceExhausted, "no room".to_owned()));
        }
        let mut entity = update.entity.clone().unwrap();
        if let (true, Some(Kind::MeterEntry(meter))) = (self.rounds_meters, &mut entity.entity)
            && let Some(config) = &mut meter.config
        {
            for value in [&mut config.cir, &mut config.pir, &mut config.cburst, &mut config.pburst] {
                *value = rounded(*value);
            }
        }
        let key = EntityKey::of(&entity).unwrap();
        let default = matches!(&entity.entity, Some(Kind::TableEntry(entry)) if entry.is_default_action);
        let meter = matches!(&entity.entity, Some(Kind::MeterEntry(_)));
        let there = default || meter || self.entities.contains_key(&key);
        let mut after = self.entities.clone();
        match update.r#type() {
            update::Type::Insert if there => return Err((Code::AlreadyExists, "exists".to_owned())),
            update::Type::Modify | update::Type::Delete if !there => {
                return Err((Code::NotFound, "does not exist".to_owned()));
            }
            update::Type::Delete => drop(after.remove(&key)),
            _ => drop(after.insert(key, entity)),
        }
        if let Some(dangling) = dangling(&after) {
            return Err((Code::FailedPrecondition, dangling));
        }
        self.entities = after;
        Ok(())
    }
}

fn dangling(entities: &BTreeMap<EntityKey, Entity>) -> Option<String> {
    let (mut members, mut groups) = (BTreeSet::new(), BTreeSet::new());
    for entity in entities.values() {
        match &entity.entity {
            Some(Kind::ActionProfileMember(member)) => drop(members.insert(member.member_id)),
            Some(Kind::ActionProfileGroup(group)) => drop(groups.insert(group.group_id)),
            _ => {}
        }
    }
    entities.values().find_map(|entity| {
        let missing = match &entity.entity {
            Some(Kind::ActionProfileGroup(group)) => group
                .members
                .iter()
                .find(|m| !members.contains(&m.member_id))
                .map(|m| ("member", m.member_id)),
            Some(Kind::TableEntry(TableEntry { action: Some(action), .. })) => match action.r#type {
                Some(ActionType::ActionProfileMemberId(id)) if !members.contains(&id) => Some(("member", id)),
                Some(ActionType::ActionProfileGroupId(id)) if !groups.contains(&id) => Some(("group", id)),
                _ => None,
            },
            _ => None,
        };
        missing.map(|(what, id)| format!("{what} {id} is missing or in use"))
    })
}

fn wanted(filter: &Entity, entity: &Entity) -> bool {
    match (&filter.entity, &entity.entity) {
        (Some(Kind::TableEntry(filter)), Some(Kind::TableEntry(entry))) => {
            filter.table_id == entry.table_id && filter.is_default_action == entry.is_default_action
        }
        (Some(Kind::ActionProfileMember(_)), Some(Kind::ActionProfileMember(_)))
        | (Some(Kind::ActionProfileGroup(_)), Some(Kind::ActionProfileGroup(_)))
        | (Some(Kind::PacketReplicationEngineEntry(_)), Some(Kind::PacketReplicationEngineEntry(_))) => true,
        (Some(Kind::MeterEntry(filter)), Some(Kind::MeterEntry(entry))) => filter.meter_id == entry.meter_id,
        _ => false,
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[async_trait]
impl P4Runtime for Model {
    type ReadStream = Answers<ReadResponse>;
    type StreamChannelStream = Answers<StreamMessageResponse>;

    async fn write(&self, request: Request<WriteRequest>) -> Result<Response<WriteResponse>, Status> {
        let WriteRequest { election_id, updates, .. } = request.into_inner();
        let on_write = self.state().on_write.clone();
        if let Some(on_write) = on_write {
            on_write();
        }
        let mut state = self.state();
        if state.die_after.is_some_and(|writes| state.writes.len() >= writes) {
            return Err(Status::unavailable("power failure"));
        }
        if election_id.map(u128::from) != state.bids.iter().max().copied() {
            return Err(Status::permission_denied("not primary"));
        }
        let Some(index) = state.index.clone() else { return Err(Status::failed_precondition("no pipeline")) };
        state.writes.push(updates.len());
        let outcomes: Vec<_> = updates
            .iter()
            .map(|update| match state.apply(update, &index) {
                Ok(()) => status::ok(),
                Err((code, message)) => status::error(code, message),
            })
            .collect();
        status::from_updates(&outcomes)?;
        Ok(Response::new(WriteResponse {}))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let state = self.state();
        if state.config.is_none() {
            return Err(Status::failed_precondition("no pipeline"));
        }
        let filters = request.into_inner().entities;
        let found =
            state.entities.values().filter(|entity| filters.iter().any(|filter| wanted(filter, entity)));
        let response = ReadResponse { entities: found.cloned().collect() };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(response)))))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<SetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        if request.action() == Action::Commit {
            return Ok(Response::new(SetForwardingPipelineConfigResponse::default()));
        }
        let on_push = self.state().on_push.clone();
        if let Some(on_push) = on_push {
            on_push();
        }
        let config = request.config.unwrap_or_default();
        let p4info = config.p4info.clone().unwrap_or_default();
        let mut state = self.state();
        state.index = Some(Index::new(&p4info).map_err(|error| Status::invalid_argument(error.to_string()))?);
        state.config = Some(config);
        state.entities.clear();
        state.pushes += 1;
        Ok(Response::new(SetForwardingPipelineConfigResponse::default()))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<GetForwardingPipelineConfigResponse>, Status> {
        let Some(config) = self.state().config.clone() else {
            return Err(Status::failed_precondition("no pipeline"));
        };
        let with_p4info =
            matches!(request.into_inner().response_type(), ResponseType::All | ResponseType::P4infoAndCookie);
        let config = ForwardingPipelineConfig {
            cookie: config.cookie,
            p4info: config.p4info.filter(|_| with_p4info),
            ..ForwardingPipelineConfig::default()
        };
        Ok(Response::new(GetForwardingPipelineConfigResponse { config: Some(config) }))
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let mut requests = request.into_inner();
        let (answers, outgoing) = tokio::sync::mpsc::channel(8);
        let model = self.clone();
        self.state().streams += 1;
        tokio::spawn(async move {
            let mut bid = None;
            let ended = Arc::clone(&model.ended);
            let mut ended = std::pin::pin!(ended.notified());
            loop {
                let message = tokio::select! {
                    message = requests.next() => message,
                    () = &mut ended => break,
                };
                let Some(Ok(message)) = message else { break };
                let Some(Sent::Arbitration(update)) = message.update else { continue };
                let id = update.election_id.map_or(0, u128::from);
                let (highest, primary) = {
                    let mut state = model.state();
                    state.withdraw(bid.replace(id));
                    state.bids.push(id);
                    state.highest = state.highest.max(Some(id));
                    (state.highest, state.highest == Some(id))
                };
                let code = if primary { rpc::Code::Ok } else { rpc::Code::AlreadyExists };
                let answer = MasterArbitrationUpdate {
                    device_id: update.device_id,
                    role: None,
                    election_id: highest.map(v1::Uint128::from),
                    status: Some(rpc::Status { code: code.into(), ..rpc::Status::default() }),
                };
                let answer = StreamMessageResponse { update: Some(Told::Arbitration(answer)) };
                let _ = answers.send(Ok(answer)).await;
            }
            model.state().withdraw(bid);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }

    async fn capabilities(
        &self,
        _: Request<CapabilitiesRequest>,
    ) -> Result<Response<CapabilitiesResponse>, Status> {
        Ok(Response::new(CapabilitiesResponse::default()))
    }
}
