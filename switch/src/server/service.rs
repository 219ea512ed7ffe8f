// SPDX-License-Identifier: Apache-2.0
//! The gRPC service: what each RPC checks, in the specification's order, and does.

use super::gate::Held;
use super::limits::{STREAM_BYTES, WRITE_UPDATES};
use super::outgoing::{self, Heard};
use super::pace::{self, Pace};
use super::pipeline_config::{self, Realm};
use super::reading::Read;
use super::refusal::Refusal;
use super::state::{Service, State};
use super::{batch, outcome, reconcile};
use crate::engine::Pipeline;
use tonic::Code;
use tonic::{Request, Response, Status, Streaming};
use trimwire_p4runtime::server::{API_VERSION, P4Runtime, async_trait};
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::{status, v1};

/// Messages that wait for a controller that does not read.
const STREAM_DEPTH: usize = 256;

impl Service {
    fn commit(&self, state: &mut State, realm: Realm, pipeline: Pipeline) {
        // Dropped when packets have their turn again.
        let _before = self.switch().install_pipeline(pipeline);
        state.running = Some(realm);
        state.saved = None;
        state.generation += 1;
        state.digests.clear();
        state.subscribe();
    }

    /// A Write that is not atomic: packets have their turn between its updates.
    async fn write_in_slices(&self, request: &v1::WriteRequest) -> Result<Vec<v1::Error>, Status> {
        let access = self.state().arbitration.check(&request.role, request.election_id)?;
        let mut generation = None;
        let mut outcomes = Vec::with_capacity(request.updates.len());
        let mut pace = Pace::default();
        let mut sooner = false;
        loop {
            let pause = {
                let mut state = self.state();
                if *generation.get_or_insert(state.generation) != state.generation {
                    let left = request.updates.len() - outcomes.len();
                    let aborted =
                        status::error(Code::Aborted, "the pipeline was changed before this update's turn");
                    outcomes.extend(std::iter::repeat_n(aborted, left));
                    return Ok(outcomes);
                }
                let mut switch = self.switch();
                let slice = pace.begin(&switch);
                let now_ns = self.now_ns(&switch);
                // Entries take effect with the next packet; only an idle time-out is worth waking
                // the driver for.
                let due_ns = switch.poll_timeout();
                let mut target = state.target(&mut switch, now_ns)?;
                let left = request.updates.get(outcomes.len()..).unwrap_or_default();
                for update in left.iter().take(WRITE_UPDATES) {
                    outcomes.push(batch::one(&mut target, &access, update));
                    if slice.is_over() {
                        break;
                    }
                }
                sooner |= switch.poll_timeout() != due_ns;
                let pause = pace.end(&slice, &switch);
                drop(switch);
                if outcomes.len() == request.updates.len() {
                    state.subscribe_after(&request.updates);
                    break;
                }
                pause
            };
            pace::rest(pause).await;
        }
        if sooner {
            self.wake();
        }
        Ok(outcomes)
    }

    /// A configuration, compiled on a thread of its own, one at a time.
    async fn compiled(&self, config: v1::ForwardingPipelineConfig) -> Result<(Realm, Pipeline), Status> {
        let turn = self.load_turn().await;
        let (program_bytes, entries) = (self.limits().program_bytes, self.limits().entries);
        let compiling = tokio::task::spawn_blocking(move || {
            let compiled = pipeline_config::verify(config, program_bytes, entries);
            drop(turn);
            compiled
        });
        compiling.await.map_err(|error| Status::internal(format!("the program was not compiled: {error}")))?
    }

    /// "RECONCILE_AND_COMMIT".
    fn reconcile(
        &self,
        state: &mut State,
        (mut realm, mut pipeline): (Realm, Pipeline),
    ) -> Result<(), Status> {
        let Some(running) = &mut state.running else {
            // Nothing to preserve.
            self.commit(state, realm, pipeline);
            return Ok(());
        };
        let mut switch = self.switch();
        let now_ns = self.now_ns(&switch);
        let Some(current) = switch.pipeline() else { return Err(Refusal::no_pipeline().into()) };
        if running.config.p4_device_config == realm.config.p4_device_config {
            // The same program under another P4Info or cookie: it goes on, packets in queues and
            // all.
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
    type ReadStream = Read;
    type StreamChannelStream = Heard;

    async fn write(&self, request: Request<v1::WriteRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        self.limits().identities.writes(request.extensions())?;
        let peer = self.peer_of(&request);
        let request = request.into_inner();
        self.check_device(request.device_id)?;
        let atomicity = Atomicity::try_from(request.atomicity).map_err(|_| {
            Status::invalid_argument(format!(
                "atomicity {} is none of CONTINUE_ON_ERROR (0), ROLLBACK_ON_ERROR (1), DATAPLANE_ATOMIC (2)",
                request.atomicity
            ))
        })?;
        if atomicity == Atomicity::ContinueOnError {
            let outcomes = self.write_in_slices(&request).await?;
            outcome::answer(outcomes)?;
            return Ok(Response::new(v1::WriteResponse {}));
        }
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
        if !peer.has_lane() {
            batch::is_small(&target, &request.updates)?;
        }
        let outcomes = batch::all_or_none(&mut target, &access, &request.updates);
        // Entries take effect with the next packet; only an idle time-out is worth waking the
        // driver for.
        let sooner = switch.poll_timeout() != due_ns;
        drop(switch);
        state.subscribe_after(&request.updates);
        drop(state);
        if sooner {
            self.wake();
        }
        outcome::answer(outcomes)?;
        Ok(Response::new(v1::WriteResponse {}))
    }

    async fn read(&self, request: Request<v1::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        self.limits().identities.reads(request.extensions())?;
        let (peer, held) = (self.peer_of(&request), Held::of(request.extensions()));
        let request = request.into_inner();
        self.check_device(request.device_id)?;
        let reading = self.begin_read(&request, peer)?;
        Ok(Response::new(reading.start(self.clone(), request, held)))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<v1::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<v1::SetForwardingPipelineConfigResponse>, Status> {
        self.limits().identities.writes(request.extensions())?;
        let request = request.into_inner();
        self.check_device(request.device_id)?;
        let may_push = |state: &State| {
            let access = state.arbitration.check(&request.role, request.election_id)?;
            if access.may_push_pipeline() {
                return Ok(());
            }
            Err(Status::permission_denied(format!(
                "the config of role '{}' does not let it push pipelines (can_push_pipeline)",
                request.role
            )))
        };
        may_push(&self.state())?;
        let action = request.action();
        let config = match (action, request.config) {
            (Action::Commit, Some(_)) => {
                return Err(Status::invalid_argument(
                    "COMMIT takes no configuration: it realizes what VERIFY_AND_SAVE has saved",
                ));
            }
            (Action::Commit, None) => None,
            (Action::Unspecified, _) => {
                return Err(Status::invalid_argument(format!(
                    "action {} is none of VERIFY (1), VERIFY_AND_SAVE (2), VERIFY_AND_COMMIT (3), COMMIT (4), \
                     RECONCILE_AND_COMMIT (5)",
                    request.action
                )));
            }
            (_, Some(config)) => Some(config),
            (_, None) => return Err(Status::invalid_argument("the pipeline configuration is missing")),
        };
        // Compiled beside everything else: others are answered meanwhile. Who was primary may be so
        // no more.
        let compiled = match config {
            Some(config) => Some(self.compiled(config).await?),
            None => None,
        };
        let mut state = self.state();
        may_push(&state)?;
        match (action, compiled) {
            (Action::VerifyAndSave, Some(saved)) => {
                state.saved = Some(saved);
                state.generation += 1;
            }
            (Action::VerifyAndCommit, Some((realm, pipeline))) => self.commit(&mut state, realm, pipeline),
            (Action::ReconcileAndCommit, Some(compiled)) => self.reconcile(&mut state, compiled)?,
            (Action::Commit, _) => {
                let Some((realm, pipeline)) = state.saved.take() else {
                    return Err(Status::not_found("COMMIT without a configuration saved by VERIFY_AND_SAVE"));
                };
                self.commit(&mut state, realm, pipeline);
            }
            (Action::Verify | Action::Unspecified, _) | (_, None) => {}
        }
        drop(state);
        self.wake();
        Ok(Response::new(v1::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<v1::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<v1::GetForwardingPipelineConfigResponse>, Status> {
        self.limits().identities.reads(request.extensions())?;
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
        let highest = self.limits().identities.writes(request.extensions())?;
        let peer = self.peer_of(&request);
        let (outgoing, responses) = outgoing::channel(peer, STREAM_DEPTH, STREAM_BYTES);
        tokio::spawn(self.clone().serve_stream(request.into_inner(), outgoing, highest));
        Ok(Response::new(responses))
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
