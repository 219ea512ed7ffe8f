// SPDX-License-Identifier: Apache-2.0
//! Roles of clients, and what arbitration says to one.

use prost_types::Any;

/// What a controller is responsible for. The default is the default role: the full pipeline
/// (P4Runtime, "Default Role").
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Role {
    /// Empty for the default role.
    pub name: String,
    /// Agreed between controller and switch out of band.
    pub config: Option<Any>,
}

/// Outcome of arbitration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arbitration {
    /// This client may write.
    Primary {
        /// Its election id.
        election_id: u128,
    },
    /// Another client has, or had, a higher election id. This one may read.
    Backup {
        /// The highest the switch has seen; none if there never was a primary.
        highest_election_id: Option<u128>,
        /// Whether a primary is connected at the moment.
        primary_exists: bool,
    },
}
