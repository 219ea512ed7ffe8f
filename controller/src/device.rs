//! One switch over P4Runtime: looking, which needs no mastership, and changing, which does.

use std::fmt::Write as _;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use trimwire_p4runtime::client::{self, Arbitration, Client, ClientError, Role};
use trimwire_p4runtime::entity::EntityError;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::server::MAX_MESSAGE_BYTES;
use trimwire_p4runtime::status;
use trimwire_p4runtime::v1::get_forwarding_pipeline_config_request::ResponseType;
use trimwire_p4runtime::v1::p4_runtime_client::P4RuntimeClient;
use trimwire_p4runtime::v1::{Entity, GetForwardingPipelineConfigRequest, ReadRequest};

use crate::reconcile::{self, Actual};

/// Why work on a switch ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Nobody answers, or a call failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The same, while only looking.
    #[error("switch {address}: {operation}: {reason}")]
    Look {
        /// `HOST:PORT`.
        address: String,
        /// The RPC.
        operation: &'static str,
        /// The transport's or the switch's words.
        reason: String,
    },
    /// Another controller is in charge.
    #[error("{}", backup(address, *own, *highest, *primary_exists))]
    Backup {
        /// `HOST:PORT`.
        address: String,
        /// Our election id.
        own: u128,
        /// The highest that the switch knows.
        highest: Option<u128>,
        /// Whether its owner is connected.
        primary_exists: bool,
    },
    /// The switch reports an entity that its program cannot have.
    #[error("switch {address} reports an entity that does not fit its program: {source}")]
    Foreign {
        /// `HOST:PORT`.
        address: String,
        /// What does not fit.
        source: Box<EntityError>,
    },
    /// The switch runs no program, or another one.
    #[error("switch {address} does not run this pipeline ({found}); run apply first")]
    Pipeline {
        /// `HOST:PORT`.
        address: String,
        /// What it runs, in words.
        found: String,
    },
}

fn backup(address: &str, own: u128, highest: Option<u128>, primary_exists: bool) -> String {
    let mut text = format!("switch {address}: ");
    let id = highest.map_or_else(String::new, |id| format!(" with election id {id}"));
    let _ = if primary_exists {
        write!(text, "another controller is primary{id}; ours is {own}")
    } else {
        write!(text, "another controller was primary{id} and may come back; ours is {own}")
    };
    // Taking over is a decision for people: the other controller may be at work.
    match highest.and_then(|id| id.checked_add(1)) {
        Some(next) => {
            let _ = write!(text, ". Nothing was changed. To take over: --election-id {next}");
        }
        None => text.push_str(". Nothing was changed"),
    }
    text
}

/// A switch that is only looked at: no stream is opened and no bid made, so it takes nothing from a primary controller.
///
/// GetForwardingPipelineConfig and Read need no mastership (P4Runtime §14, §11).
#[derive(Debug, Clone)]
pub(crate) struct Observer {
    address: String,
    device_id: u64,
    rpc: P4RuntimeClient<Channel>,
    timeout: Duration,
}

impl Observer {
    pub(crate) async fn connect(
        address: &str,
        device_id: u64,
        timeout: Duration,
    ) -> Result<Self, DeviceError> {
        const OPERATION: &str = "cannot connect";
        let fail = |reason: String| look(address, OPERATION, reason);
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| fail(error.to_string()))?
            .connect_timeout(timeout)
            .tcp_nodelay(true);
        let channel = match tokio::time::timeout(timeout, endpoint.connect()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(fail(causes(&error))),
            Err(_) => return Err(fail(format!("no answer within {timeout:?}"))),
        };
        let rpc = P4RuntimeClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self { address: address.to_owned(), device_id, rpc, timeout })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<Result<T, Status>, DeviceError> {
        tokio::time::timeout(self.timeout, call)
            .await
            .map_err(|_| look(&self.address, operation, format!("no answer within {:?}", self.timeout)))
    }

    /// The cookie of the switch's pipeline; `None` without a pipeline. A pipeline without cookie has cookie 0, which no hash
    /// of ours is in practice.
    pub(crate) async fn cookie(&self) -> Result<Option<u64>, DeviceError> {
        const OPERATION: &str = "GetForwardingPipelineConfig";
        let request = GetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            response_type: ResponseType::CookieOnly.into(),
        };
        let mut rpc = self.rpc.clone();
        match self.call(OPERATION, rpc.get_forwarding_pipeline_config(request)).await? {
            Ok(response) => {
                let config = response.into_inner().config;
                Ok(config.map(|config| config.cookie.map_or(0, |cookie| cookie.cookie)))
            }
            // P4Runtime §14: no pipeline is a failed precondition.
            Err(status) if status.code() == Code::FailedPrecondition => Ok(None),
            Err(status) => Err(refused(&self.address, OPERATION, &status)),
        }
    }

    pub(crate) async fn read(&self, entities: Vec<Entity>) -> Result<Vec<Entity>, DeviceError> {
        const OPERATION: &str = "Read";
        let request = ReadRequest { device_id: self.device_id, role: String::new(), entities };
        let mut rpc = self.rpc.clone();
        let reading = async {
            let mut responses = rpc.read(request).await?.into_inner();
            let mut entities = Vec::new();
            while let Some(response) = responses.message().await? {
                entities.extend(response.entities);
            }
            Ok(entities)
        };
        self.call(OPERATION, reading).await?.map_err(|status| refused(&self.address, OPERATION, &status))
    }

    /// What the switch holds of what this controller owns.
    pub(crate) async fn actual(&self, index: &Index) -> Result<Actual, DeviceError> {
        let foreign =
            |source| DeviceError::Foreign { address: self.address.clone(), source: Box::new(source) };
        let filters = reconcile::filters(index).map_err(foreign)?;
        let read = self.read(filters).await?;
        reconcile::actual(read, index).map_err(foreign)
    }
}

/// Connects and becomes primary, or says who is.
pub(crate) async fn primary(
    address: &str,
    device_id: u64,
    election_id: u128,
    timeout: Duration,
) -> Result<Client, DeviceError> {
    let options = client::Options { connect_timeout: timeout, call_timeout: timeout };
    let mut client = Client::connect_with(address, options).await?;
    match client.arbitrate(device_id, election_id, Role::default()).await? {
        Arbitration::Primary { .. } => Ok(client),
        Arbitration::Backup { highest_election_id, primary_exists } => Err(DeviceError::Backup {
            address: address.to_owned(),
            own: election_id,
            highest: highest_election_id,
            primary_exists,
        }),
    }
}

fn look(address: &str, operation: &'static str, reason: String) -> DeviceError {
    DeviceError::Look { address: address.to_owned(), operation, reason }
}

fn refused(address: &str, operation: &'static str, status: &Status) -> DeviceError {
    look(address, operation, format!("{}: {}", status::name(status.code() as i32), status.message()))
}

/// An error and what is behind it, without repetitions.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            let _ = write!(text, ": {cause_text}");
        }
        next = cause.source();
    }
    text
}
