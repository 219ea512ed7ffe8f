// SPDX-License-Identifier: Apache-2.0
//! One switch over P4Runtime: looking, which needs no mastership, and becoming primary.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;
use trimwire_p4runtime::client::{self, Arbitration, Client, ClientError, Interfaces, Role, Tls};
use trimwire_p4runtime::entity::EntityError;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::get_forwarding_pipeline_config_request::ResponseType;

use crate::compile::CompileError;
use crate::reconcile::{self, Actual};

/// Why work on a switch ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Nobody answers, or a call failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The switch refused the connection for as long as it was tried.
    #[error("{source}, for {patience:?}: is the switch running, and is this its --grpc-server-addr?")]
    NobodyListens {
        /// How long it was tried.
        patience: Duration,
        /// The last refusal.
        source: ClientError,
    },
    /// A call failed in a way of which this controller knows no more than the words.
    #[error("switch {address}: {operation}: {reason}")]
    Call {
        /// `HOST:PORT`.
        address: String,
        /// The RPC.
        operation: &'static str,
        /// The client's words.
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
    /// Another controller bids with the same id.
    #[error(
        "switch {address}: election id {own} is in use by another controller, perhaps a `run` of this fabric. Nothing was changed. \
         To take over from it: --election-id {next}, with which it becomes backup until this one is gone"
    )]
    ElectionIdInUse {
        /// `HOST:PORT`.
        address: String,
        /// Ours.
        own: u128,
        /// A higher one.
        next: u128,
    },
    /// The file says TLS, and the switch has none.
    #[error(
        "switch {address} does not speak TLS, which the fabric file asks for: start it with its certificate and key, or write \
         tls: off for it ({reason})"
    )]
    NoTls {
        /// `HOST:PORT`.
        address: String,
        /// The transport's words.
        reason: String,
    },
    /// The connection ended before TLS was agreed on.
    #[error(
        "switch {address} broke the connection off before TLS was agreed on: either it does not speak TLS (start it with its certificate and \
         key, or write tls: off for it), or it does not take our certificate ({reason})"
    )]
    BrokenOff {
        /// `HOST:PORT`.
        address: String,
        /// The transport's words.
        reason: String,
    },
    /// One side does not take the other's certificate.
    #[error("switch {address}: {words} ({reason})")]
    Certificate {
        /// `HOST:PORT`.
        address: String,
        /// Which side lacks what.
        words: &'static str,
        /// The transport's words.
        reason: String,
    },
    /// The switch has TLS, and the file does not say so.
    #[error(
        "switch {address} does not take what is sent in the clear; if it wants TLS, write tls: {{ ca: ca.pem }} for it ({reason})"
    )]
    WantsTls {
        /// `HOST:PORT`.
        address: String,
        /// The transport's words.
        reason: String,
    },
    /// Its program and tables were saved, but not all of them.
    #[error(
        "switch {address} goes on with the program that it had: it refused entries of the new one, which was saved and not committed"
    )]
    NotCommitted {
        /// `HOST:PORT`.
        address: String,
    },
    /// The switch reports an entity that its program cannot have.
    #[error("switch {address} reports an entity that does not fit its program: {source}")]
    Foreign {
        /// `HOST:PORT`.
        address: String,
        /// What does not fit.
        source: Box<EntityError>,
    },
    /// The switch's program cannot hold what it should.
    #[error(transparent)]
    Compile(#[from] CompileError),
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

impl DeviceError {
    /// The switch has no such call.
    pub(crate) fn is_unimplemented(&self) -> bool {
        matches!(self, Self::Client(error) if error.code() == Some(Code::Unimplemented))
    }

    /// Whether a new connection may help.
    pub(crate) fn is_connection_loss(&self) -> bool {
        match self {
            Self::Client(error) => error.is_connection_loss(),
            // A switch forgets what was saved, and not committed, when its next primary comes.
            Self::NoTls { .. }
            | Self::Certificate { .. }
            | Self::WantsTls { .. }
            | Self::NobodyListens { .. }
            | Self::NotCommitted { .. } => true,
            _ => false,
        }
    }
}

/// Between two attempts at a switch that does not listen yet.
const RETRY: Duration = Duration::from_millis(50);

/// How to get to a switch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reach {
    /// `HOST:PORT`.
    pub address: String,
    pub device_id: u64,
    /// For the connection and for each call.
    pub timeout: Duration,
    /// How long a switch that refuses the connection is tried again: one that was started a moment
    /// ago does not listen yet.
    pub patience: Duration,
    pub tls: Option<Tls>,
}

impl Reach {
    async fn connect(&self) -> Result<Client, DeviceError> {
        let Self { address, timeout, patience, tls, .. } = self;
        let options = client::Options { connect_timeout: *timeout, call_timeout: *timeout, tls: tls.clone() };
        let started = Instant::now();
        loop {
            let error = match Client::connect_with(address, options.clone()).await {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            if !matches!(error, ClientError::Connect { is_refused: true, .. }) || patience.is_zero() {
                return Err(self.in_words(error));
            }
            if started.elapsed() + RETRY > *patience {
                return Err(DeviceError::NobodyListens { patience: *patience, source: error });
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Connects to look only: no stream is opened and no bid made, so it takes nothing from a
    /// primary controller. GetForwardingPipelineConfig and Read need no mastership (P4Runtime §14,
    /// §11).
    pub(crate) async fn observe(&self) -> Result<Client, DeviceError> {
        let mut client = self.connect().await?;
        client.observe(self.device_id);
        // The first answer tells what connecting does not: whether we are understood and believed.
        client.pipeline(ResponseType::CookieOnly).await.map_err(|error| self.in_words(error))?;
        Ok(client)
    }

    /// Connects and bids.
    pub(crate) async fn bid(&self, election_id: u128) -> Result<(Client, Arbitration), DeviceError> {
        let mut client = self.connect().await?;
        let told = client.arbitrate(self.device_id, election_id, Role::default()).await;
        let told = told.map_err(|error| match error.code() {
            // P4Runtime, "Client Arbitration and Controller Replication": the answer to an id that
            // another stream has.
            Some(Code::InvalidArgument) => DeviceError::ElectionIdInUse {
                address: self.address.clone(),
                own: election_id,
                next: election_id.saturating_add(1),
            },
            _ => self.in_words(error),
        })?;
        Ok((client, told))
    }

    /// What the switch tells of these ports by gNMI, over a connection of its own.
    pub(crate) async fn interfaces(&self, ports: &BTreeSet<u16>) -> Result<Interfaces, DeviceError> {
        let client = self.connect().await?;
        client.watch_interfaces(ports).await.map_err(|error| self.in_words(error))
    }

    /// An error of the transport with what may be meant by it.
    fn in_words(&self, error: ClientError) -> DeviceError {
        let address = self.address.clone();
        if let (Some(tls), ClientError::Lost { reason, .. } | ClientError::Connect { reason, .. }) =
            (&self.tls, &error)
            && let Some(words) = certificate(tls, reason, matches!(error, ClientError::Lost { .. }))
        {
            return DeviceError::Certificate { address, words, reason: reason.clone() };
        }
        match &error {
            // rustls's word for an answer that is no TLS record.
            ClientError::Connect { reason, .. } if reason.contains("InvalidContentType") => {
                DeviceError::NoTls { address, reason: reason.clone() }
            }
            // A server that waits for HTTP/2's preface need not answer anything else.
            ClientError::Connect { reason, .. } if self.tls.is_some() && reason.contains("reset by peer") => {
                DeviceError::BrokenOff { address, reason: reason.clone() }
            }
            // A TLS server's alert, read as a frame of HTTP/2, or its end of the connection.
            ClientError::Lost { reason, .. } | ClientError::Connect { reason, .. }
                if self.tls.is_none()
                    && ["invalid size", "FRAME_SIZE_ERROR", "broken pipe", "reset by peer"]
                        .iter()
                        .any(|words| reason.contains(words)) =>
            {
                DeviceError::WantsTls { address, reason: reason.clone() }
            }
            _ => error.into(),
        }
    }

    /// Connects and becomes primary, or says who is.
    pub(crate) async fn primary(&self, election_id: u128) -> Result<Client, DeviceError> {
        match self.bid(election_id).await? {
            (client, Arbitration::Primary { .. }) => Ok(client),
            (_, backup) => Err(self.backup(election_id, &backup)),
        }
    }

    /// Why a switch whose primary is another controller is not written to.
    pub(crate) fn backup(&self, own: u128, told: &Arbitration) -> DeviceError {
        let (highest, primary_exists) = match told {
            Arbitration::Primary { .. } => (None, true),
            Arbitration::Backup { highest_election_id, primary_exists } => {
                (*highest_election_id, *primary_exists)
            }
        };
        DeviceError::Backup { address: self.address.clone(), own, highest, primary_exists }
    }
}

/// Which side's certificate is not taken, and what it lacks, by rustls's words.
///
/// In TLS 1.3 a client has shown its certificate and goes on before the server has looked at it
/// (RFC 8446, section 4.4.2.4): a refusal is the end of the connection at the first call, and its
/// alert is often lost.
fn certificate(tls: &Tls, reason: &str, is_first_call: bool) -> Option<&'static str> {
    let has = |words: &[&str]| words.iter().any(|words| reason.contains(words));
    let theirs = has(&["invalid peer certificate"]);
    Some(if theirs && has(&["UnknownIssuer"]) {
        "none of the authorities in our tls.ca has signed its certificate"
    } else if theirs && has(&["xpired"]) {
        "its certificate has expired: renew it on the switch"
    } else if theirs && has(&["not valid for name", "NotValidForName"]) {
        "its certificate is for another name than the host in its address: write tls: { server_name: … } with a name that it has"
    } else if tls.identity.is_none() && (is_first_call || has(&["CertificateRequired"])) {
        "it ended the connection: it may ask for a client's certificate, and we have none; write tls: { cert: …, key: … }"
    } else if has(&["CertificateExpired"]) {
        "it takes our certificate for expired: compare both sides' clocks"
    } else if is_first_call || has(&["UnknownCA", "BadCertificate", "AccessDenied"]) {
        "it ended the connection: it may not take our tls.cert, which an authority in its --grpc-server-cacert has to have signed"
    } else {
        return None;
    })
}

/// The cookie of the switch's pipeline; `None` without a pipeline. A pipeline without cookie has
/// cookie 0, which no hash of ours is in practice.
pub(crate) async fn cookie(client: &Client) -> Result<Option<u64>, DeviceError> {
    let config = client.pipeline(ResponseType::CookieOnly).await?;
    Ok(config.map(|config| config.cookie.map_or(0, |cookie| cookie.cookie)))
}

/// Names of the program that the switch runs, whatever it is; `None` without one.
pub(crate) async fn running(client: &Client) -> Result<Option<Index>, DeviceError> {
    let Some(config) = client.pipeline(ResponseType::P4infoAndCookie).await? else { return Ok(None) };
    let index = Index::new(&config.p4info.unwrap_or_default());
    index.map(Some).map_err(|error| DeviceError::Call {
        address: client.address().to_owned(),
        operation: "GetForwardingPipelineConfig",
        reason: error.to_string(),
    })
}

/// An error unless the switch runs the program with this cookie.
pub(crate) async fn expect_program(client: &Client, expected: u64) -> Result<(), DeviceError> {
    let found = match cookie(client).await? {
        Some(cookie) if cookie == expected => return Ok(()),
        Some(cookie) => format!("it runs another, cookie {cookie:#018x}"),
        None => "it runs none".to_owned(),
    };
    Err(DeviceError::Pipeline { address: client.address().to_owned(), found })
}

/// What the switch holds of what this controller owns.
pub(crate) async fn actual(client: &Client, index: &Index) -> Result<Actual, DeviceError> {
    let foreign =
        |source| DeviceError::Foreign { address: client.address().to_owned(), source: Box::new(source) };
    let read = client.read(reconcile::filters(index).map_err(foreign)?).await?;
    reconcile::actual(read, index).map_err(foreign)
}
