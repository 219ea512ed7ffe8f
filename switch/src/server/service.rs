//! The gRPC service: what each RPC checks, in the specification's order, and does.

use super::pipeline_config::{self, Realm};
use super::refusal::Refusal;
use super::state::{Service, State};
use super::{batch, outcome, reconcile};
use crate::engine::Pipeline;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use trimwire_p4runtime::server::{API_VERSION, P4Runtime, async_trait};
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;

/// Messages that wait for a controller that does not read.
const STREAM_DEPTH: usize = 256;
/// Answers to a Read that wait for a client that does not read.
const READ_DEPTH: usize = 4;

impl Service {
    fn commit(&self, state: &mut State, realm: Realm, pipeline: Pipeline) {
        self.switch().install_pipeline(pipeline);
        state.running = Some(realm);
        state.saved = None;
        state.generation += 1;
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
            state.generation += 1;
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

#[async_trait]
impl P4Runtime for Service {
    type ReadStream = ReceiverStream<Result<v1::ReadResponse, Status>>;
    type StreamChannelStream = ReceiverStream<Result<v1::StreamMessageResponse, Status>>;

    async fn write(&self, request: Request<v1::WriteRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        self.limits().identities.writes(&request)?;
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
        self.limits().identities.reads(&request)?;
        let request = request.into_inner();
        self.check_device(request.device_id)?;
        let reading = self.begin_read(&request)?;
        let (outgoing, responses) = mpsc::channel(READ_DEPTH);
        tokio::spawn(reading.answer(self.clone(), request, outgoing));
        Ok(Response::new(ReceiverStream::new(responses)))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<v1::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<v1::SetForwardingPipelineConfigResponse>, Status> {
        self.limits().identities.writes(&request)?;
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
            Action::VerifyAndSave => {
                state.saved = Some(pipeline_config::verify(config)?);
                state.generation += 1;
            }
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
        self.limits().identities.reads(&request)?;
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
        let highest = self.limits().identities.writes(&request)?;
        let Some(place) = self.place() else {
            let most = self.limits().streams;
            return Err(Status::resource_exhausted(format!(
                "{most} streams are open, and no more are taken"
            )));
        };
        let (outgoing, responses) = mpsc::channel(STREAM_DEPTH);
        let serving = self.clone().serve_stream(request.into_inner(), outgoing, highest);
        tokio::spawn(async move {
            serving.await;
            drop(place);
        });
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
