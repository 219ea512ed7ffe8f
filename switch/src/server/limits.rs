// SPDX-License-Identifier: Apache-2.0
//! What clients may cost the switch.

use super::identity::Identities;
use crate::config::quantity;
use crate::engine::ProgramLimits;
use std::collections::BTreeSet;
use std::time::Duration;

/// Bytes of requests other than Writes and pipelines, and of a message on a stream.
pub(super) const REQUEST_BYTES: usize = 64 << 10;
/// Bytes of messages that wait for a stream's client; what has no room is dropped.
pub(super) const STREAM_BYTES: usize = 256 << 10;
/// Filters of a Read. Reads with more are refused: RESOURCE_EXHAUSTED.
pub(super) const READ_FILTERS: usize = 1_024;
/// Updates of a Write that are carried out without a packet in between, unless the Write is atomic.
pub(super) const WRITE_UPDATES: usize = 64;
/// Replicas, members and actions that are read without a packet in between, which is a group's most.
/// Those, updates and cells that a client without a lane may write at once.
pub(super) const MOST_PARTS: u64 = 1_024;
/// Bytes of a packet-out with its header, which is more than any interface sends. Longer ones are
/// answered with a stream error.
pub(super) const PACKET_OUT_BYTES: usize = 16 << 10;
/// Bytes of a role's config.
pub(super) const ROLE_BYTES: usize = 16 << 10;

/// Bytes with which a request of any length gets on, if slowly.
const LEAST_MEMORY: usize = 128 << 10;

/// Limits of a server, all in one place. Defaults are in [`Limits::default`]; what is not here
/// follows from them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at a time. When more come, those without calls are closed, the longest idle
    /// first.
    pub connections: usize,
    /// Time that a connection has to say that it speaks HTTP/2, or to shake hands over TLS; and
    /// that a message has to arrive once it has begun, with a second more for each MiB. A client
    /// has three times as long to take in a piece of what it reads, or all of another long answer.
    pub patience: Duration,
    /// Bytes of memory of all requests of primaries and named controllers that are being received,
    /// decoded and carried out. All others have half as much together, and each connection of
    /// theirs half of that.
    pub memory_bytes: usize,
    /// Most entries, members, groups and replicas that controllers may write.
    pub entries: usize,
    /// Highest election id that anybody may bid.
    pub election_id: u128,
    /// Bytes of memory that a program's JSON takes while it is read. Its state, its code and what
    /// one message about it may take follow from it.
    pub program_bytes: usize,
    /// The roles that may bid; `None`: any, up to 64 of them.
    pub roles: Option<BTreeSet<String>>,
    /// Who may do what, by certificate.
    pub identities: Identities,
    /// Cells of counters, registers, meters and tables that are read without a packet in between,
    /// or fewer where entries are large. What is read of larger arrays is not of one moment.
    pub read_cells: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            patience: Duration::from_secs(10),
            memory_bytes: 40 << 20,
            entries: 1 << 18,
            election_id: u128::MAX,
            program_bytes: ProgramLimits::default().json_bytes,
            roles: None,
            identities: Identities::default(),
            read_cells: 512,
        }
    }
}

const NAMES: &str =
    "connections, patience, memory, entries, election-id, program, roles, controllers, viewers";

impl Limits {
    /// Time for a client to take in an answer.
    pub(super) fn reader(&self) -> Duration {
        3 * self.patience
    }

    /// Bytes of a SetForwardingPipelineConfig.
    pub(super) fn pipeline_bytes(&self) -> usize {
        self.memory_bytes / 5
    }

    /// Bytes of a Write.
    pub(super) fn write_bytes(&self) -> usize {
        self.memory_bytes / 10
    }

    /// Bytes of memory that one decoded request may take. Larger ones are refused before they are
    /// decoded.
    pub(super) fn decoded_bytes(&self) -> usize {
        self.memory_bytes / 5 * 4
    }

    /// Bytes of memory of all requests of those that are neither primary nor named controllers.
    pub(super) fn memory_of_others(&self) -> usize {
        (self.memory_bytes / 2).max(LEAST_MEMORY)
    }

    /// Of which one connection's.
    pub(super) fn memory_of_one(&self) -> usize {
        (self.memory_bytes / 4).max(LEAST_MEMORY)
    }

    /// Whether the primary of a role has a lane: of roles that anybody may invent it has none.
    pub(super) fn has_lane(&self, role: &str) -> bool {
        self.roles.as_ref().map_or(role.is_empty(), |roles| roles.contains(role))
    }

    /// Sets a limit from `NAME=VALUE`, as the command line has it. Times are in seconds, sizes in
    /// bytes or with a unit (`16MiB`). `roles` takes names with `/` between, of which the empty one
    /// is the default role; `controllers` and `viewers`, names in client certificates with `/`
    /// between, a controller's with `:` and its highest election id behind it.
    ///
    /// # Errors
    /// In words that name what is wrong and what is valid.
    pub fn set(&mut self, setting: &str) -> Result<(), String> {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| format!("'{setting}' is not NAME=VALUE; names are {NAMES}"))?;
        let number = || match value.parse::<u32>() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(format!("{name}={value}: not a number from 1 to {}", u32::MAX)),
        };
        let count = || number().map(|number| number as usize);
        let bytes = || {
            let size = value.parse::<u64>().or_else(|_| quantity::size(value));
            let size = size.ok().and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0);
            size.map(|size| size as usize)
                .ok_or_else(|| format!("{name}={value}: not a size from 1 to {}, such as 16MiB", u32::MAX))
        };
        match name {
            "connections" => self.connections = count()?,
            "patience" => self.patience = Duration::from_secs(number()?.into()),
            "memory" => self.memory_bytes = bytes()?,
            "entries" => self.entries = count()?,
            "election-id" => {
                let id = value.parse();
                self.election_id = id.map_err(|_| format!("{name}={value}: not an election id"))?;
            }
            "program" => self.program_bytes = bytes()?,
            "roles" => self.roles = Some(value.split('/').map(str::to_owned).collect()),
            "controllers" => self.identities.set_controllers(value)?,
            "viewers" => self.identities.set_viewers(value)?,
            _ => return Err(format!("there is no limit '{name}'; there are {NAMES}")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_by_name_and_what_is_wrong_is_named() {
        let mut limits = Limits::default();
        for setting in ["connections=2", "patience=1", "roles=/backup", "memory=2MiB"] {
            limits.set(setting).unwrap();
        }
        let roles = Some(BTreeSet::from([String::new(), "backup".to_owned()]));
        let (connections, patience, memory_bytes) = (2, Duration::from_secs(1), 2 << 20);
        let expected = Limits { connections, patience, memory_bytes, roles, ..Limits::default() };
        assert_eq!(limits, expected);
        for (setting, words) in [
            ("entries", "NAME=VALUE"),
            ("entries=0", "entries=0"),
            ("entries=many", "many"),
            ("memory=many", "16MiB"),
            ("entry=1", "entries"),
            ("viewers=a b", "a b"),
            ("controllers=run.example:many", "many"),
            ("election-id=x", "election-id=x"),
        ] {
            assert!(limits.set(setting).unwrap_err().contains(words), "{setting}");
        }
    }

    #[test]
    fn every_name_that_is_listed_is_a_limit() {
        for name in NAMES.split(", ") {
            let value = if name == "roles" || name == "controllers" || name == "viewers" { "a" } else { "7" };
            Limits::default().set(&format!("{}={value}", name.trim())).unwrap();
        }
    }
}
