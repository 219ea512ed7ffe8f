// SPDX-License-Identifier: Apache-2.0
//! What clients may cost the switch.

use super::identity::Identities;
use crate::config::quantity;
use crate::engine::ProgramLimits;
use std::collections::BTreeSet;
use std::time::Duration;

/// Limits of a server, all in one place. Defaults are in [`Limits::default`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at a time. More are closed at once.
    pub connections: usize,
    /// RPCs and streams that a connection may have open. HTTP/2 holds the others back.
    pub calls_per_connection: u32,
    /// RPCs and streams of all connections. Those beyond are refused: RESOURCE_EXHAUSTED.
    pub calls: usize,
    /// `StreamChannel`s of all connections. Those beyond are refused: RESOURCE_EXHAUSTED.
    pub streams: usize,
    /// Time that a connection has to say that it speaks HTTP/2, or to shake hands over TLS.
    pub greeting: Duration,
    /// Time that a message has to arrive once it has begun, and a second more for each MiB of it;
    /// afterwards DEADLINE_EXCEEDED.
    pub body: Duration,
    /// Time that a client has to take in a piece of what it reads, or all of another long answer;
    /// afterwards its connection is closed.
    pub reader: Duration,
    /// Bytes of a SetForwardingPipelineConfig.
    pub pipeline_bytes: usize,
    /// Bytes of a Write.
    pub write_bytes: usize,
    /// Bytes of any other request, and of a message on a stream.
    pub request_bytes: usize,
    /// Bytes of memory that one decoded request may take. Larger ones are refused before they are
    /// decoded.
    pub decoded_bytes: u64,
    /// Bytes of memory of all requests that are being received, decoded and carried out. Others
    /// wait for their turn.
    pub memory_bytes: usize,
    /// Of which one connection's.
    pub connection_bytes: usize,
    /// Reads, and other requests with long answers, that are answered at a time. Others wait for
    /// their turn.
    pub reads: usize,
    /// Filters of a Read. Reads with more are refused: RESOURCE_EXHAUSTED.
    pub read_filters: usize,
    /// Cells of counters, registers and meters that are read without a packet in between. What is
    /// read of larger arrays is not of one moment.
    pub read_cells: u64,
    /// Updates of a Write that are carried out without a packet in between, unless the Write is
    /// atomic.
    pub write_updates: usize,
    /// Bytes of a packet-out with its header, which is more than any interface sends. Longer ones
    /// are answered with a stream error.
    pub packet_out_bytes: usize,
    /// Bytes of messages that wait for a stream's client; what has no room is dropped.
    pub stream_bytes: usize,
    /// Bytes of a role's config.
    pub role_bytes: usize,
    /// Most entries, members, groups and replicas that controllers may write.
    pub entries: usize,
    /// Highest election id that anybody may bid.
    pub election_id: u128,
    /// What programs may take.
    pub program: ProgramLimits,
    /// The roles that may bid; `None`: any, up to 64 of them.
    pub roles: Option<BTreeSet<String>>,
    /// Who may do what, by certificate.
    pub identities: Identities,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            calls_per_connection: 64,
            calls: 1_024,
            streams: 256,
            greeting: Duration::from_secs(10),
            body: Duration::from_secs(10),
            reader: Duration::from_secs(30),
            pipeline_bytes: 8 << 20,
            write_bytes: 4 << 20,
            request_bytes: 64 << 10,
            decoded_bytes: 32 << 20,
            memory_bytes: 40 << 20,
            connection_bytes: 40 << 20,
            reads: 16,
            read_filters: 1_024,
            read_cells: 512,
            write_updates: 64,
            packet_out_bytes: 16 << 10,
            stream_bytes: 256 << 10,
            role_bytes: 16 << 10,
            entries: 1 << 18,
            election_id: u128::MAX,
            program: ProgramLimits::default(),
            roles: None,
            identities: Identities::default(),
        }
    }
}

const NAMES: &str = "connections, calls, calls-of-all, streams, greeting, body, reader, pipeline, write, request, decoded, memory, \
                     memory-of-one, reads, read-filters, read-cells, write-updates, packet-out, stream, role-config, entries, \
                     election-id, program, program-state, program-headers, program-code, roles, controllers, viewers";

impl Limits {
    /// Of those that are answered at a time, one connection's: a quarter, so that none has them
    /// all.
    pub(super) fn reads_of_one(&self) -> usize {
        (self.reads / 4).max(1)
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
        let seconds = || number().map(|number| Duration::from_secs(number.into()));
        let bytes = || {
            let size = value.parse::<u64>().or_else(|_| quantity::size(value));
            let size = size.ok().and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0);
            size.map(|size| size as usize)
                .ok_or_else(|| format!("{name}={value}: not a size from 1 to {}, such as 16MiB", u32::MAX))
        };
        match name {
            "connections" => self.connections = count()?,
            "calls" => self.calls_per_connection = number()?,
            "calls-of-all" => self.calls = count()?,
            "streams" => self.streams = count()?,
            "greeting" => self.greeting = seconds()?,
            "body" => self.body = seconds()?,
            "reader" => self.reader = seconds()?,
            "pipeline" => self.pipeline_bytes = bytes()?,
            "write" => self.write_bytes = bytes()?,
            "request" => self.request_bytes = bytes()?,
            "decoded" => self.decoded_bytes = bytes()? as u64,
            "memory" => self.memory_bytes = bytes()?,
            "memory-of-one" => self.connection_bytes = bytes()?,
            "reads" => self.reads = count()?,
            "read-filters" => self.read_filters = count()?,
            "read-cells" => self.read_cells = number()?.into(),
            "write-updates" => self.write_updates = count()?,
            "packet-out" => self.packet_out_bytes = bytes()?,
            "stream" => self.stream_bytes = bytes()?,
            "role-config" => self.role_bytes = bytes()?,
            "entries" => self.entries = count()?,
            "election-id" => {
                let id = value.parse();
                self.election_id = id.map_err(|_| format!("{name}={value}: not an election id"))?;
            }
            "program" => self.program.json_bytes = bytes()?,
            "program-headers" => self.program.header_limbs = count()?,
            "program-code" => self.program.instructions = count()?,
            "program-state" => self.program.state_bytes = bytes()?,
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
        for setting in ["connections=2", "greeting=1", "packet-out=1500", "roles=/backup", "write=2MiB"] {
            limits.set(setting).unwrap();
        }
        let roles = Some(BTreeSet::from([String::new(), "backup".to_owned()]));
        let (connections, greeting, packet_out_bytes) = (2, Duration::from_secs(1), 1500);
        let write_bytes = 2 << 20;
        let expected =
            Limits { connections, greeting, write_bytes, packet_out_bytes, roles, ..Limits::default() };
        assert_eq!(limits, expected);
        for (setting, words) in [
            ("streams", "NAME=VALUE"),
            ("streams=0", "streams=0"),
            ("streams=many", "many"),
            ("write=many", "16MiB"),
            ("stream-s=1", "streams"),
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
