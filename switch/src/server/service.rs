//! The gRPC service: who may do what, pipelines, streams.

use super::Wake;
use super::arbitration::{Arbitration, Outgoing};
use super::translate::{self, Refusal};
use super::{outcome, packet_io};
use crate::device::SwitchEvent;
use crate::engine::Pipeline;
use crate::{SharedSwitch, Switch};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Request, Response, Status, Streaming};
use trimwire_p4runtime::entity::{Purpose, check, check_update};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::server::{API_VERSION, P4Runtime, async_trait};
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::stream_message_request::Update as Sent;
use trimwire_p4runtime::v1::stream_message_response::Update as Told;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::{status, v1};

/// Messages that wait for a controller that does not read.
const STREAM_DEPTH: usize = 256;
/// Entities in one ReadResponse.
const READ_BATCH: usize = 512;
/// How often packet-ins are looked for.
const PACKET_IN_INTERVAL: Duration = Duration::from_millis(2);

/// What the control plane knows beside the switch.
#[derive(Default)]
struct State {
    arbitration: Arbitration,
    /// Running: the configuration and its index.
    running: Option<(v1::ForwardingPipelineConfig, Index)>,
    /// Verified and saved, to be committed.
    saved: Option<(v1::ForwardingPipelineConfig, Index, Pipeline)>,
}

#[derive(Clone)]
pub(super) struct Service {
    switch: SharedSwitch,
    state: Arc<Mutex<State>>,
    waker: Option<Wake>,
    device_id: u64,
}

impl Service {
    pub(super) fn new(switch: SharedSwitch, waker: Option<Wake>) -> Self {
        let device_id = switch.lock().unwrap_or_else(PoisonError::into_inner).device_id();
        Self { switch, state: Arc::default(), waker, device_id }
    }

    // A poisoned lock means that another thread panicked; entries are changed one by one, so the state is usable.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn switch(&self) -> MutexGuard<'_, Switch> {
        self.switch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker();
        }
    }

    fn check_device(&self, asked: u64) -> Result<(), Status> {
        if asked == self.device_id {
            return Ok(());
        }
        Err(Status::not_found(format!(
            "device id {asked} is not here; this switch is device {}",
            self.device_id
        )))
    }

    fn next_packet_in(&self) -> Option<Vec<u8>> {
        self.switch().poll_event().map(|SwitchEvent::PacketIn(frame)| frame)
    }

    /// Tells the primary of packet-ins, for as long as the server runs.
    pub(super) async fn pump_packet_ins(self) {
        loop {
            tokio::time::sleep(PACKET_IN_INTERVAL).await;
            while let Some(frame) = self.next_packet_in() {
                let state = self.state();
                let Some((_, index)) = &state.running else { continue };
                let packet = packet_io::packet_in(index, &frame);
                if !state.arbitration.tell_primary(Told::Packet(packet)) {
                    tracing::debug!("packet-in lost: no primary that reads");
                }
            }
        }
    }

    fn packet_out(&self, stream: u64, packet: &v1::PacketOut) -> Result<(), Refusal> {
        let state = self.state();
        if !state.arbitration.is_primary(stream) {
            return Err(Refusal::new(Code::PermissionDenied, "only the primary may send packets"));
        }
        let Some((_, index)) = &state.running else {
            return Err(Refusal::new(Code::FailedPrecondition, "no pipeline has been set"));
        };
        let frame = packet_io::packet_out(index, packet)?;
        drop(state);
        let mut switch = self.switch();
        if switch.cpu_port().is_none() {
            return Err(Refusal::new(Code::FailedPrecondition, "the switch was started without a CPU port"));
        }
        switch.packet_out(frame);
        drop(switch);
        self.wake();
        Ok(())
    }

    /// Reads a configuration and compiles it, without touching the switch.
    fn verify(config: &v1::ForwardingPipelineConfig) -> Result<(Index, Pipeline), Status> {
        let bad =
            |what: &str, error: &dyn std::fmt::Display| Status::invalid_argument(format!("{what}: {error}"));
        let p4info: &P4Info =
            config.p4info.as_ref().ok_or_else(|| Status::invalid_argument("the P4Info is missing"))?;
        let index = Index::new(p4info).map_err(|error| bad("P4Info", &error))?;
        let mut pipeline =
            Pipeline::load(&config.p4_device_config).map_err(|error| bad("device config", &error))?;
        matches_program(&index, &mut pipeline)?;
        Ok((index, pipeline))
    }

    async fn serve_stream(self, mut requests: Streaming<v1::StreamMessageRequest>, outgoing: Outgoing) {
        let stream = OpenStream::new(&self);
        while let Some(Ok(request)) = requests.next().await {
            let result = match request.update {
                Some(Sent::Arbitration(update)) => self.arbitrate(stream.number, update, &outgoing),
                Some(Sent::Packet(packet)) => {
                    if let Err(refusal) = self.packet_out(stream.number, &packet) {
                        let error = v1::StreamError {
                            canonical_code: refusal.code as i32,
                            message: refusal.message,
                            details: Some(v1::stream_error::Details::PacketOut(v1::PacketOutError {
                                packet_out: Some(packet),
                            })),
                            ..v1::StreamError::default()
                        };
                        let update = Some(Told::Error(error));
                        let _ = outgoing.try_send(Ok(v1::StreamMessageResponse { update }));
                    }
                    Ok(())
                }
                Some(Sent::DigestAck(_)) | None => Ok(()),
                Some(Sent::Other(other)) => {
                    Err(Status::unimplemented(format!("stream message of type {}", other.type_url)))
                }
            };
            if let Err(status) = result {
                let _ = outgoing.send(Err(status)).await;
                break;
            }
        }
    }

    fn arbitrate(
        &self,
        stream: u64,
        update: v1::MasterArbitrationUpdate,
        outgoing: &Outgoing,
    ) -> Result<(), Status> {
        self.check_device(update.device_id)?;
        let role = update.role.map(|role| role.name).unwrap_or_default();
        let election_id = update.election_id.map(u128::from).unwrap_or_default();
        self.state().arbitration.bid(self.device_id, stream, &role, election_id, outgoing)
    }
}

/// A stream's part in arbitration, given up however the stream ends.
struct OpenStream<'a> {
    service: &'a Service,
    number: u64,
}

impl<'a> OpenStream<'a> {
    fn new(service: &'a Service) -> Self {
        Self { service, number: service.state().arbitration.open() }
    }
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        self.service.state().arbitration.close(self.service.device_id, self.number);
    }
}

/// Whether everything that the P4Info speaks of exists in the compiled program.
fn matches_program(index: &Index, pipeline: &mut Pipeline) -> Result<(), Status> {
    let control = pipeline.control();
    let missing = |what: &str, name: &str| {
        Status::invalid_argument(format!(
            "P4Info and device config do not match: the program has no {what} {name}"
        ))
    };
    for table in index.tables() {
        let known = control.table(table.name()).map_err(|_| missing("table", table.name()))?;
        let asked: Vec<String> = table.table.match_fields.iter().map(asked_key).collect();
        let found: Vec<String> =
            known.keys.iter().map(|key| format!("{}:{}", key.kind.name(), key.width)).collect();
        if asked != found {
            return Err(Status::invalid_argument(format!(
                "P4Info and device config do not match: keys of table {} are {asked:?} in the P4Info, {found:?} in the program",
                table.name()
            )));
        }
        for action in table.actions() {
            let Some(known) = known.actions.iter().find(|known| known.name == action.name()) else {
                return Err(missing("action", &format!("{} of table {}", action.name(), table.name())));
            };
            let asked: Vec<i32> = action.action.params.iter().map(|param| param.bitwidth).collect();
            let found: Vec<i32> = known.params.iter().map(|(_, width)| i32::from(*width)).collect();
            if asked != found {
                return Err(Status::invalid_argument(format!(
                    "P4Info and device config do not match: parameters of action {} have widths {asked:?} in the P4Info, \
                     {found:?} in the program",
                    action.name()
                )));
            }
        }
    }
    let info = index.p4info();
    let names = |preambles: Vec<Option<&trimwire_p4runtime::config::Preamble>>| -> Vec<String> {
        preambles.into_iter().flatten().map(|preamble| preamble.name.clone()).collect()
    };
    for name in names(info.counters.iter().map(|c| c.preamble.as_ref()).collect()) {
        if !control.counters().any(|(known, _)| known == name) {
            return Err(missing("counter", &name));
        }
    }
    for name in names(info.registers.iter().map(|r| r.preamble.as_ref()).collect()) {
        if !control.registers().any(|(known, ..)| known == name) {
            return Err(missing("register", &name));
        }
    }
    for name in names(info.action_profiles.iter().map(|p| p.preamble.as_ref()).collect()) {
        if !control.profiles().any(|(known, ..)| known == name) {
            return Err(missing("action profile", &name));
        }
    }
    Ok(())
}

/// A key element as the program's are written: optional keys are ternary ones in BMv2's JSON.
fn asked_key(field: &trimwire_p4runtime::config::MatchField) -> String {
    use trimwire_p4runtime::config::match_field::MatchType;
    let kind = match field.kind() {
        MatchType::Exact => "exact",
        MatchType::Lpm => "lpm",
        MatchType::Ternary | MatchType::Optional => "ternary",
        MatchType::Range => "range",
        MatchType::Unspecified => "unknown",
    };
    format!("{kind}:{}", field.bitwidth)
}

#[async_trait]
impl P4Runtime for Service {
    type ReadStream = Pin<Box<dyn Stream<Item = Result<v1::ReadResponse, Status>> + Send>>;
    type StreamChannelStream = ReceiverStream<Result<v1::StreamMessageResponse, Status>>;

    async fn write(&self, request: Request<v1::WriteRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        let request = request.into_inner();
        self.check_device(request.device_id)?;
        if request.atomicity() != Atomicity::ContinueOnError {
            return Err(Status::unimplemented("atomicity: only CONTINUE_ON_ERROR is supported"));
        }
        let state = self.state();
        state.arbitration.check(&request.role, request.election_id)?;
        let Some((_, index)) = &state.running else {
            return Err(Status::failed_precondition("no pipeline has been set"));
        };
        let mut switch = self.switch();
        let Some(pipeline) = switch.pipeline() else {
            return Err(Status::failed_precondition("no pipeline has been set"));
        };
        let outcomes: Vec<v1::Error> = request
            .updates
            .iter()
            .map(|update| {
                let update = match check_update(update, index) {
                    Ok(update) => update,
                    Err(error) => return error.to_outcome(),
                };
                let kind = update.r#type();
                let Some(entity) = update.entity.and_then(|entity| entity.entity) else {
                    return status::error(Code::InvalidArgument, "an update without an entity");
                };
                match translate::write(pipeline.control(), index, kind, entity) {
                    Ok(()) => status::ok(),
                    Err(refusal) => status::error(refusal.code, refusal.message),
                }
            })
            .collect();
        drop(switch);
        drop(state);
        self.wake();
        outcome::answer(outcomes)?;
        Ok(Response::new(v1::WriteResponse {}))
    }

    async fn read(&self, request: Request<v1::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let request = request.into_inner();
        self.check_device(request.device_id)?;
        let state = self.state();
        let Some((_, index)) = &state.running else {
            return Err(Status::failed_precondition("no pipeline has been set"));
        };
        let mut entities = Vec::new();
        let mut switch = self.switch();
        let Some(pipeline) = switch.pipeline() else {
            return Err(Status::failed_precondition("no pipeline has been set"));
        };
        for filter in &request.entities {
            let filter = check(filter, index, Purpose::Read).map_err(Refusal::from)?;
            let Some(filter) = &filter.entity else {
                return Err(Status::invalid_argument("a filter without an entity"));
            };
            translate::read(pipeline.control(), index, filter, &mut entities)?;
        }
        let responses: Vec<_> = entities
            .chunks(READ_BATCH)
            .map(|batch| Ok(v1::ReadResponse { entities: batch.to_vec() }))
            .collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(responses))))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<v1::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<v1::SetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        self.check_device(request.device_id)?;
        let action = request.action();
        self.state().arbitration.check(&request.role, request.election_id)?;
        let config = || {
            request
                .config
                .clone()
                .ok_or_else(|| Status::invalid_argument("the pipeline configuration is missing"))
        };
        match action {
            Action::Verify => {
                Self::verify(&config()?)?;
            }
            Action::VerifyAndSave => {
                let config = config()?;
                let (index, pipeline) = Self::verify(&config)?;
                self.state().saved = Some((config, index, pipeline));
            }
            Action::VerifyAndCommit => {
                let config = config()?;
                let (index, pipeline) = Self::verify(&config)?;
                let mut state = self.state();
                self.switch().install_pipeline(pipeline);
                state.running = Some((config, index));
                state.saved = None;
            }
            Action::Commit => {
                let mut state = self.state();
                let Some((config, index, pipeline)) = state.saved.take() else {
                    return Err(Status::failed_precondition(
                        "COMMIT without a configuration saved by VERIFY_AND_SAVE",
                    ));
                };
                self.switch().install_pipeline(pipeline);
                state.running = Some((config, index));
            }
            Action::ReconcileAndCommit => {
                return Err(Status::unimplemented(
                    "RECONCILE_AND_COMMIT; use VERIFY_AND_COMMIT, which empties the tables",
                ));
            }
            Action::Unspecified => return Err(Status::invalid_argument("the action is not specified")),
        }
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
        let Some((running, _)) = &state.running else {
            return Err(Status::failed_precondition("no pipeline has been set"));
        };
        let wanted = request.response_type();
        let config = v1::ForwardingPipelineConfig {
            p4info: matches!(wanted, ResponseType::All | ResponseType::P4infoAndCookie)
                .then(|| running.p4info.clone())
                .flatten(),
            p4_device_config: if matches!(wanted, ResponseType::All | ResponseType::DeviceConfigAndCookie) {
                running.p4_device_config.clone()
            } else {
                Vec::new()
            },
            cookie: running.cookie,
        };
        Ok(Response::new(v1::GetForwardingPipelineConfigResponse { config: Some(config) }))
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<v1::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let (outgoing, responses) = mpsc::channel(STREAM_DEPTH);
        tokio::spawn(self.clone().serve_stream(request.into_inner(), outgoing));
        Ok(Response::new(ReceiverStream::new(responses)))
    }

    async fn capabilities(
        &self,
        _: Request<v1::CapabilitiesRequest>,
    ) -> Result<Response<v1::CapabilitiesResponse>, Status> {
        let p4runtime_api_version = API_VERSION.to_owned();
        Ok(Response::new(v1::CapabilitiesResponse { p4runtime_api_version, ..Default::default() }))
    }
}
