// SPDX-License-Identifier: Apache-2.0
//! Why a rank does not get to the others.
#![forbid(unsafe_code)]

use super::refusal::Refusal;
use std::io;
use std::net::SocketAddr;

/// Why a rank does not get to the others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// All are told the same by rank 0.
    #[error("the ranks did not meet: {0}")]
    Refused(Refusal),
    /// Rank 0 cannot listen.
    #[error(
        "rank 0 cannot listen on TCP {address}: {source}{}",
        if .source.kind() == io::ErrorKind::AddrInUse {
            " (`ss -tlnp` tells who does; MASTER_PORT chooses another port)"
        } else { "" }
    )]
    Listen {
        /// Where.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Nobody answered.
    #[error("rank 0 did not answer at {master} within {seconds} s: {last}")]
    Unanswered {
        /// Where it should be.
        master: String,
        /// How long it was tried.
        seconds: u64,
        /// What the last attempt came to.
        last: String,
    },
    /// Who answered is not rank 0 of this job.
    #[error("what answers at {address} {reason}")]
    Stranger {
        /// Where.
        address: SocketAddr,
        /// How one can tell.
        reason: String,
    },
    /// This rank's own offer.
    #[error("{0}")]
    Offer(String),
    /// The system refuses something else.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}
