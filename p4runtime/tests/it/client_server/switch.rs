// SPDX-License-Identifier: Apache-2.0
//! A switch without data plane: it arbitrates, keeps entities by key, and echoes packets.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Request, Response, Status, Streaming};
use trimwire_p4runtime::entity::{EntityKey, check_update};
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::server::{API_VERSION, P4Runtime, async_trait, service};
use trimwire_p4runtime::v1::stream_message_request::Update as Sent;
use trimwire_p4runtime::v1::stream_message_response::Update as Told;
use trimwire_p4runtime::v1::update::Type;
use trimwire_p4runtime::{rpc, status, v1};

type Outgoing = mpsc::Sender<Result<v1::StreamMessageResponse, Status>>;

#[derive(Default)]
pub(crate) struct State {
    controllers: BTreeMap<u128, Outgoing>,
    highest: Option<u128>,
    pub(crate) config: Option<v1::ForwardingPipelineConfig>,
    pub(crate) entities: BTreeMap<EntityKey, v1::Entity>,
    pub(crate) acknowledged: Vec<(u32, u64)>,
}

impl State {
    fn primary(&self) -> Option<u128> {
        self.highest.filter(|highest| self.controllers.contains_key(highest))
    }

    fn check_primary(&self, election_id: Option<v1::Uint128>) -> Result<(), Status> {
        match (election_id.map(u128::from), self.primary()) {
            (Some(asked), Some(primary)) if asked == primary => Ok(()),
            _ => Err(Status::permission_denied("not primary")),
        }
    }

    fn notify(&self) {
        for (id, controller) in &self.controllers {
            let code = match self.primary() {
                Some(primary) if primary == *id => Code::Ok,
                Some(_) => Code::AlreadyExists,
                None => Code::NotFound,
            };
            let update = v1::MasterArbitrationUpdate {
                device_id: 1,
                role: None,
                election_id: self.highest.map(Into::into),
                status: Some(rpc::Status { code: code as i32, ..rpc::Status::default() }),
            };
            let message = v1::StreamMessageResponse { update: Some(Told::Arbitration(update)) };
            let _ = controller.try_send(Ok(message));
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct FakeSwitch {
    pub(crate) state: Arc<Mutex<State>>,
}

/// A switch on a runtime of its own, so that it can die as a process does.
pub(crate) struct Running {
    pub(crate) address: String,
    pub(crate) switch: FakeSwitch,
    runtime: Option<Runtime>,
}

impl Running {
    /// Serves on a free loopback port.
    pub(crate) async fn start() -> Self {
        let switch = FakeSwitch::default();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let served = switch.clone();
        let (bound, address) = oneshot::channel();
        runtime.spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            bound.send(listener.local_addr().unwrap()).unwrap();
            tonic::transport::Server::builder()
                .add_service(service(served))
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        });
        let address = address.await.unwrap().to_string();
        Self { address, switch, runtime: Some(runtime) }
    }

    /// Goes away without a word.
    pub(crate) fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

#[async_trait]
impl P4Runtime for FakeSwitch {
    type ReadStream = Pin<Box<dyn Stream<Item = Result<v1::ReadResponse, Status>> + Send>>;
    type StreamChannelStream = ReceiverStream<Result<v1::StreamMessageResponse, Status>>;

    async fn write(&self, request: Request<v1::WriteRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        let request = request.into_inner();
        let mut state = self.state.lock().unwrap();
        state.check_primary(request.election_id)?;
        let config = state.config.clone().ok_or_else(|| Status::failed_precondition("no pipeline"))?;
        let index = Index::new(&config.p4info.unwrap_or_default())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let outcomes: Vec<_> = request
            .updates
            .iter()
            .map(|update| {
                let update = match check_update(update, &index) {
                    Ok(update) => update,
                    Err(error) => return error.to_outcome(),
                };
                let kind = update.r#type();
                let entity = update.entity.unwrap();
                let key = EntityKey::of(&entity).unwrap();
                match (kind, state.entities.contains_key(&key)) {
                    (Type::Insert, true) => status::error(Code::AlreadyExists, "the entry exists"),
                    (Type::Modify | Type::Delete, false) => status::error(Code::NotFound, "no such entry"),
                    (Type::Delete, true) => {
                        state.entities.remove(&key);
                        status::ok()
                    }
                    _ => {
                        state.entities.insert(key, entity);
                        status::ok()
                    }
                }
            })
            .collect();
        status::from_updates(&outcomes)?;
        Ok(Response::new(v1::WriteResponse {}))
    }

    async fn read(&self, _: Request<v1::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let responses: Vec<_> = self
            .state
            .lock()
            .unwrap()
            .entities
            .values()
            .map(|entity| Ok(v1::ReadResponse { entities: vec![entity.clone()] }))
            .collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(responses))))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<v1::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<v1::SetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        let mut state = self.state.lock().unwrap();
        state.check_primary(request.election_id)?;
        state.config = request.config;
        Ok(Response::new(v1::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<v1::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<v1::GetForwardingPipelineConfigResponse>, Status> {
        use v1::get_forwarding_pipeline_config_request::ResponseType;
        let config = self.state.lock().unwrap().config.clone();
        let mut config = config.ok_or_else(|| Status::failed_precondition("no pipeline"))?;
        if request.into_inner().response_type() == ResponseType::CookieOnly {
            config.p4info = None;
            config.p4_device_config.clear();
        }
        Ok(Response::new(v1::GetForwardingPipelineConfigResponse { config: Some(config) }))
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<v1::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let mut requests = request.into_inner();
        let (outgoing, responses) = mpsc::channel(64);
        let state = self.state.clone();
        tokio::spawn(async move {
            let mut mine = None;
            while let Some(Ok(request)) = requests.next().await {
                match request.update {
                    Some(Sent::Arbitration(update)) => {
                        let id = u128::from(update.election_id.unwrap_or_default());
                        let refusal = match &state.lock().unwrap().controllers {
                            _ if update.device_id != 1 => Some(Status::not_found("this is device 1")),
                            taken if mine != Some(id) && taken.contains_key(&id) => {
                                Some(Status::invalid_argument(format!("election id {id} is taken")))
                            }
                            _ => None,
                        };
                        if let Some(refusal) = refusal {
                            let _ = outgoing.send(Err(refusal)).await;
                            break;
                        }
                        let mut state = state.lock().unwrap();
                        mine.map(|old| state.controllers.remove(&old));
                        mine = Some(id);
                        state.controllers.insert(id, outgoing.clone());
                        state.highest = state.highest.max(Some(id));
                        state.notify();
                    }
                    Some(Sent::Packet(packet)) if packet.metadata.is_empty() => {
                        let details = v1::PacketOutError { packet_out: Some(packet) };
                        let error = v1::StreamError {
                            canonical_code: Code::InvalidArgument as i32,
                            message: "no metadata".to_owned(),
                            details: Some(v1::stream_error::Details::PacketOut(details)),
                            ..v1::StreamError::default()
                        };
                        let message = v1::StreamMessageResponse { update: Some(Told::Error(error)) };
                        let _ = outgoing.send(Ok(message)).await;
                    }
                    Some(Sent::Packet(v1::PacketOut { payload, metadata })) => {
                        let packet = v1::PacketIn { payload, metadata };
                        let digest = v1::DigestList { digest_id: 9, list_id: 4, ..v1::DigestList::default() };
                        for update in [Told::Packet(packet), Told::Digest(digest)] {
                            let _ =
                                outgoing.send(Ok(v1::StreamMessageResponse { update: Some(update) })).await;
                        }
                    }
                    Some(Sent::DigestAck(ack)) => {
                        state.lock().unwrap().acknowledged.push((ack.digest_id, ack.list_id));
                    }
                    _ => {}
                }
            }
            let mut state = state.lock().unwrap();
            if mine.is_some_and(|id| state.controllers.remove(&id).is_some()) {
                state.notify();
            }
        });
        Ok(Response::new(ReceiverStream::new(responses)))
    }

    async fn capabilities(
        &self,
        _: Request<v1::CapabilitiesRequest>,
    ) -> Result<Response<v1::CapabilitiesResponse>, Status> {
        let p4runtime_api_version = API_VERSION.to_owned();
        Ok(Response::new(v1::CapabilitiesResponse { p4runtime_api_version, experimental: None }))
    }
}
