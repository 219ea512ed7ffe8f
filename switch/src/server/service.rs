//! The gRPC service: what each RPC checks, in the specification's order, and does.

use super::entities::Target;
use super::pipeline_config::{self, Realm};
use super::refusal::Refusal;
use super::role::Access;
use super::state::{Service, State};
use super::{batch, outcome, reconcile};
use crate::engine::Pipeline;
use prost::Message as _;
use std::pin::Pin;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use trimwire_p4runtime::entity::{Purpose, check};
use trimwire_p4runtime::server::{API_VERSION, P4Runtime, async_trait};
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::{status, v1};

/// Messages that wait for a controller that does not read.
const STREAM_DEPTH: usize = 256;
/// Bytes of entities in one ReadResponse, which clients take up to 4 MiB of.
const READ_BYTES: usize = 256 << 10;

impl Service {
    fn commit(&self, state: &mut State, realm: Realm, pipeline: Pipeline) {
        self.switch().install_pipeline(pipeline);
        state.running = Some(realm);
        state.saved = None;
        state.digests.clear();
        state.subscribe();
    }

    /// "RECONCILE_AND_COMMIT".
    fn reconcile(&self, state: &mut State, config: v1::ForwardingPipelineConfig) -> Result<(), Status> {
        let (mut realm, mut pipeline) = pipeline_config::verify(config)?;
        let Some(running) = &mut state.running else {
            // Nothing to preserve.
            self.commit(state, realm, pipeline);
            return Ok(());
        };
        let mut switch = self.switch();
        let now_ns = self.now_ns(&switch);
        let Some(current) = switch.pipeline() else { return Err(Refusal::no_pipeline().into()) };
        if running.config.p4_device_config == realm.config.p4_device_config {
            // The same program under another P4Info or cookie: it goes on, packets in queues and all.
            realm.ledger = std::mem::take(&mut running.ledger);
            drop(switch);
            state.running = Some(realm);
            state.saved = None;
            state.digests.clear();
            state.subscribe();
            return Ok(());
        }
        let to = pipeline.control();
        realm.ledger = reconcile::carry_over(current.control(), &running.ledger, to, &realm.index, now_ns)?;
        drop(switch);
        self.commit(state, realm, pipeline);
        Ok(())
    }
}

/// What a filter asks for and the role may see.
fn read(target: &Target<'_>, access: &Access, filter: &v1::Entity) -> Result<Vec<v1::Entity>, Refusal> {
    let filter = check(filter, target.index, Purpose::Read)?;
    let Some(filter) = &filter.entity else { return Err(Refusal::invalid("a filter without an entity")) };
    let mut found = target.read(filter)?;
    if !access.is_full() {
        found.retain(|entity| access.allows(target.index, entity));
    }
    Ok(found.into_iter().map(|entity| v1::Entity { entity: Some(entity) }).collect())
}

/// Entities in messages that clients take.
fn in_responses(entities: Vec<v1::Entity>) -> Vec<Result<v1::ReadResponse, Status>> {
    let mut responses = Vec::new();
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for entity in entities {
        bytes += entity.encoded_len();
        batch.push(entity);
        if bytes >= READ_BYTES {
            responses.push(Ok(v1::ReadResponse { entities: std::mem::take(&mut batch) }));
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        responses.push(Ok(v1::ReadResponse { entities: batch }));
    }
    responses
}

#[async_trait]
impl P4Runtime for Service {
    type ReadStream = Pin<Box<dyn Stream<Item = Result<v1::ReadResponse, Status>> + Send>>;
    type StreamChannelStream = ReceiverStream<Result<v1::StreamMessageResponse, Status>>;

    async fn write(&self, request: Request<v1::WriteRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        let request = request.into_inner();
        self.check_device(request.device_id)?;
        let atomicity = Atomicity::try_from(request.atomicity).map_err(|_| {
            Status::invalid_argument(format!(
                "atomicity {} is none of CONTINUE_ON_ERROR (0), ROLLBACK_ON_ERROR (1), DATAPLANE_ATOMIC (2)",
                request.atomicity
            ))
        })?;
        let mut state = self.state();
        let access = state.arbitration.check(&request.role, request.election_id)?;
        let mut switch = self.switch();
        let now_ns = self.now_ns(&switch);
        if atomicity == Atomicity::DataplaneAtomic && !switch.is_empty() && state.saved.is_none() {
            let entities =
                request.updates.iter().filter_map(|update| update.entity.as_ref()?.entity.as_ref());
            if state.running.as_ref().is_some_and(|realm| realm.stages.splits(&realm.index, entities)) {
                return Err(Status::unimplemented(
                    "DATAPLANE_ATOMIC: this batch changes what packets meet before and behind the queues, and there are packets \
                     in queues now, which would see one half of it; split it by ingress and egress, or try again",
                ));
            }
        }
        let due_ns = switch.poll_timeout();
        let mut target = state.target(&mut switch, now_ns)?;
        let outcomes = match atomicity {
            Atomicity::ContinueOnError => batch::continue_on_error(&mut target, &access, &request.updates),
            Atomicity::RollbackOnError | Atomicity::DataplaneAtomic => {
                batch::all_or_none(&mut target, &access, &request.updates)
            }
        };
        // Entries take effect with the next packet; only an idle time-out is worth waking the driver for.
        let sooner = switch.poll_timeout() != due_ns;
        drop(switch);
        state.subscribe();
        drop(state);
        if sooner {
            self.wake();
        }
        outcome::answer(outcomes)?;
        Ok(Response::new(v1::WriteResponse {}))
    }

    async fn read(&self, request: Request<v1::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let request = request.into_inner();
        self.check_device(request.device_id)?;
        let mut state = self.state();
        let access = state.arbitration.access(&request.role)?;
        let mut switch = self.switch();
        let now_ns = self.now_ns(&switch);
        let target = state.target(&mut switch, now_ns)?;
        let (mut entities, mut outcomes) = (Vec::new(), Vec::new());
        for filter in &request.entities {
            match read(&target, &access, filter) {
                Ok(found) => {
                    entities.extend(found);
                    outcomes.push(status::ok());
                }
                Err(refusal) => outcomes.push(status::error(refusal.code, refusal.message)),
            }
        }
        drop(switch);
        drop(state);
        // "Batch Processing": what was read comes first, then what was not.
        let mut responses = in_responses(entities);
        responses.extend(outcome::answer(outcomes).err().map(Err));
        Ok(Response::new(Box::pin(tokio_stream::iter(responses))))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<v1::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<v1::SetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        self.check_device(request.device_id)?;
        let mut state = self.state();
        let access = state.arbitration.check(&request.role, request.election_id)?;
        if !access.may_push_pipeline() {
            return Err(Status::permission_denied(format!(
                "the config of role '{}' does not let it push pipelines (can_push_pipeline)",
                request.role
            )));
        }
        let action = request.action();
        let config = match (action, request.config) {
            (Action::Commit, Some(_)) => {
                return Err(Status::invalid_argument(
                    "COMMIT takes no configuration: it realizes what VERIFY_AND_SAVE has saved",
                ));
            }
            (Action::Commit, None) => v1::ForwardingPipelineConfig::default(),
            (_, Some(config)) => config,
            (_, None) => return Err(Status::invalid_argument("the pipeline configuration is missing")),
        };
        match action {
            Action::Verify => {
                pipeline_config::verify(config)?;
            }
            Action::VerifyAndSave => state.saved = Some(pipeline_config::verify(config)?),
            Action::VerifyAndCommit => {
                let (realm, pipeline) = pipeline_config::verify(config)?;
                self.commit(&mut state, realm, pipeline);
            }
            Action::Commit => {
                let Some((realm, pipeline)) = state.saved.take() else {
                    return Err(Status::not_found("COMMIT without a configuration saved by VERIFY_AND_SAVE"));
                };
                self.commit(&mut state, realm, pipeline);
            }
            Action::ReconcileAndCommit => self.reconcile(&mut state, config)?,
            Action::Unspecified => {
                return Err(Status::invalid_argument(format!(
                    "action {} is none of VERIFY (1), VERIFY_AND_SAVE (2), VERIFY_AND_COMMIT (3), COMMIT (4), \
                     RECONCILE_AND_COMMIT (5)",
                    request.action
                )));
            }
        }
        drop(state);
        self.wake();
        Ok(Response::new(v1::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<v1::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<v1::GetForwardingPipelineConfigResponse>, Status> {
        use v1::get_forwarding_pipeline_config_request::ResponseType;
        let request = request.into_inner();
        self.check_device(request.device_id)?;
        let state = self.state();
        let wanted = request.response_type();
        // Without a pipeline the answer is empty ("GetForwardingPipelineConfig RPC").
        let config = state.running.as_ref().map(|Realm { config, .. }| v1::ForwardingPipelineConfig {
            p4info: matches!(wanted, ResponseType::All | ResponseType::P4infoAndCookie)
                .then(|| config.p4info.clone())
                .flatten(),
            p4_device_config: if matches!(wanted, ResponseType::All | ResponseType::DeviceConfigAndCookie) {
                config.p4_device_config.clone()
            } else {
                Vec::new()
            },
            cookie: config.cookie,
        });
        Ok(Response::new(v1::GetForwardingPipelineConfigResponse { config }))
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<v1::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let (outgoing, responses) = mpsc::channel(STREAM_DEPTH);
        tokio::spawn(self.clone().serve_stream(request.into_inner(), outgoing));
        Ok(Response::new(ReceiverStream::new(responses)))
    }

    /// The version is the server's, whichever device is asked for.
    async fn capabilities(
        &self,
        _: Request<v1::CapabilitiesRequest>,
    ) -> Result<Response<v1::CapabilitiesResponse>, Status> {
        let p4runtime_api_version = API_VERSION.to_owned();
        Ok(Response::new(v1::CapabilitiesResponse { p4runtime_api_version, ..Default::default() }))
    }
}
