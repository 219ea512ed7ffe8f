//! What clients may cost the switch.

use super::identity::Identities;
use std::collections::BTreeSet;
use std::time::Duration;

/// Limits of a server, all in one place. Defaults are in [`Limits::default`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at a time; 128. More are closed at once.
    pub connections: usize,
    /// RPCs and streams that a connection may have open; 64. HTTP/2 holds the others back.
    pub calls_per_connection: u32,
    /// `StreamChannel`s of all connections; 256. Those beyond are refused: RESOURCE_EXHAUSTED.
    pub streams: usize,
    /// Time that a connection has to say that it speaks HTTP/2, or to shake hands over TLS; 10 s.
    pub greeting: Duration,
    /// Filters of a Read; 1,024. Reads with more are refused: RESOURCE_EXHAUSTED.
    pub read_filters: usize,
    /// Cells of counters, registers and meters that are read without a packet in between; 512. What is read of larger arrays is not of one moment.
    pub read_cells: u64,
    /// Bytes of a packet-out with its header; 16,384, which is more than any interface sends. Longer ones are answered with a stream error.
    pub packet_out_bytes: usize,
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
            streams: 256,
            greeting: Duration::from_secs(10),
            read_filters: 1_024,
            read_cells: 512,
            packet_out_bytes: 16 << 10,
            roles: None,
            identities: Identities::default(),
        }
    }
}

impl Limits {
    /// Sets a limit from `NAME=VALUE`, as the command line has it: `connections`, `calls`, `streams`, `greeting` in seconds, `read-filters`, `read-cells`, `packet-out` in bytes,
    /// `roles`, names with `/` between, of which the empty one is the default role, or `controllers` and `viewers`, names in client
    /// certificates with `/` between, a controller's with `:` and its highest election id behind it.
    ///
    /// # Errors
    /// In words that name what is wrong and what is valid.
    pub fn set(&mut self, setting: &str) -> Result<(), String> {
        const NAMES: &str = "connections, calls, streams, greeting, read-filters, read-cells, packet-out, roles, controllers, viewers";
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| format!("'{setting}' is not NAME=VALUE; names are {NAMES}"))?;
        let number = || match value.parse::<u32>() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(format!("{name}={value}: not a number from 1 to {}", u32::MAX)),
        };
        match name {
            "connections" => self.connections = number()? as usize,
            "calls" => self.calls_per_connection = number()?,
            "streams" => self.streams = number()? as usize,
            "greeting" => self.greeting = Duration::from_secs(number()?.into()),
            "read-filters" => self.read_filters = number()? as usize,
            "read-cells" => self.read_cells = number()?.into(),
            "packet-out" => self.packet_out_bytes = number()? as usize,
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
        for setting in ["connections=2", "greeting=1", "packet-out=1500", "roles=/backup"] {
            limits.set(setting).unwrap();
        }
        let roles = Some(BTreeSet::from([String::new(), "backup".to_owned()]));
        let (connections, greeting, packet_out_bytes) = (2, Duration::from_secs(1), 1500);
        assert_eq!(limits, Limits { connections, greeting, packet_out_bytes, roles, ..Limits::default() });
        for (setting, words) in [
            ("streams", "NAME=VALUE"),
            ("streams=0", "streams=0"),
            ("streams=many", "many"),
            ("stream=1", "streams"),
            ("viewers=a b", "a b"),
            ("controllers=run.example:many", "many"),
        ] {
            assert!(limits.set(setting).unwrap_err().contains(words), "{setting}");
        }
    }
}
