// SPDX-License-Identifier: Apache-2.0
//! What can go wrong between a controller and a switch.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};

use crate::status;

/// Why a call to a switch failed. Every message names the switch's address.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address is not `HOST:PORT` (or `http://HOST:PORT`).
    #[error("switch address {address:?}: {reason}; expected HOST:PORT, as in 127.0.0.1:9559")]
    Address {
        /// As given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody answers there.
    #[error("cannot connect to switch {address}: {reason}")]
    Connect {
        /// As given.
        address: String,
        /// The transport's words.
        reason: String,
        /// The address has nobody who listens: a switch that has just been started may do so in a
        /// moment.
        is_refused: bool,
    },
    /// The connection or the stream broke, or the switch ended it.
    #[error("lost switch {address} during {operation}: {reason}")]
    Lost {
        /// As given.
        address: String,
        /// The RPC.
        operation: &'static str,
        /// The transport's or the switch's words.
        reason: String,
    },
    /// No answer in time. Whether the switch acted is unknown: read back.
    #[error("switch {address} did not answer {operation} within {after:?}")]
    Timeout {
        /// As given.
        address: String,
        /// The RPC.
        operation: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The switch refused the call as a whole.
    #[error("switch {address} refused {operation}: {}: {}", status::name(.status.code() as i32), .status.message())]
    Refused {
        /// As given.
        address: String,
        /// The RPC.
        operation: &'static str,
        /// The switch's answer.
        status: Box<Status>,
    },
    /// Called before [`Client::arbitrate`](super::Client::arbitrate).
    #[error(
        "{operation} on switch {address} before arbitration: call arbitrate first, or observe to only look"
    )]
    NotArbitrated {
        /// As given.
        address: String,
        /// The RPC.
        operation: &'static str,
    },
    /// The switch answered with something that the specification does not allow here.
    #[error("switch {address} broke the protocol in {operation}: {reason}")]
    Protocol {
        /// As given.
        address: String,
        /// The RPC.
        operation: &'static str,
        /// What it did.
        reason: String,
    },
}

impl ClientError {
    /// The switch's canonical code, where it gave one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { status, .. } => Some(status.code()),
            _ => None,
        }
    }

    /// Whether a new connection may help: the switch was not reached, went away or kept silent.
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Lost { .. } | Self::Timeout { .. })
    }

    pub(super) fn from_status(address: &str, operation: &'static str, status: Status) -> Self {
        let address = address.to_owned();
        // A status with a source was made on this side, by the transport.
        if status.source().is_some() || status.code() == Code::Unavailable {
            return Self::Lost { address, operation, reason: reason(&status) };
        }
        Self::Refused { address, operation, status: Box::new(status) }
    }
}

/// Whether a connection was refused, rather than lost or not answered.
pub(super) fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && error.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// An error and its causes in one line, without repetitions.
pub(super) fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error
            .downcast_ref::<Status>()
            .map_or_else(|| error.to_string(), |status| status.message().to_owned());
        if !text.is_empty() && !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
        next = error.source();
    }
    parts.join(": ")
}

/// Why a Write failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Some updates were refused.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The call as a whole failed.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl WriteError {
    /// The refused updates; empty when the call as a whole failed.
    pub fn updates(&self) -> &[UpdateError] {
        match self {
            Self::Rejected(rejection) => &rejection.updates,
            Self::Client(_) => &[],
        }
    }
}

/// The updates of one Write that the switch refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The switch.
    pub address: String,
    /// Updates in the Write.
    pub total: usize,
    /// The refused ones, by index. With `CONTINUE_ON_ERROR` all others were applied; with the
    /// atomic modes none was.
    pub updates: Vec<UpdateError>,
}

impl std::error::Error for Rejection {}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        write!(f, "switch {} refused {} of {} updates", self.address, self.updates.len(), self.total)?;
        for update in self.updates.iter().take(SHOWN) {
            write!(f, "\n  {update}")?;
        }
        match self.updates.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

/// One update that the switch refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateError {
    /// Position in the Write, from 0.
    pub index: usize,
    /// Canonical code.
    pub code: Code,
    /// The switch's words.
    pub message: String,
    /// Namespace of `target_code`; may be empty.
    pub space: String,
    /// The target's own code; 0 for none.
    pub target_code: i32,
    /// What was to be done to which entity, in the program's names where the client knows them.
    pub update: String,
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}: {}", self.index, self.update, status::name(self.code as i32))?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        if self.target_code != 0 {
            write!(f, " ({} {})", self.space, self.target_code)?;
        }
        Ok(())
    }
}
