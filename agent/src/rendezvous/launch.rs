// SPDX-License-Identifier: Apache-2.0
//! Which rank this is, of how many, and where rank 0 is: as torchrun and other launchers say it.
#![forbid(unsafe_code)]

use super::master::Master;

/// Rank 0's TCP port where nothing says another: the number of the agents' UDP port.
pub const DEFAULT_PORT: u16 = crate::driver::DEFAULT_PORT;

/// What the environment and the command line say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// `RANK`.
    pub rank: Option<u16>,
    /// `WORLD_SIZE`.
    pub world: Option<u16>,
    /// `MASTER_ADDR`: where rank 0 is.
    pub master_addr: Option<String>,
    /// `MASTER_PORT`.
    pub master_port: Option<u16>,
    /// Whether the launcher has a store of its own on that port (`TORCHELASTIC_USE_AGENT_STORE=True`).
    pub launcher_listens: bool,
}

/// What is missing or does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// Something that has to be said is not.
    #[error(
        "{0} is not set; torchrun sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, --peers names all addresses"
    )]
    Missing(&'static str),
    /// A rank that there is not.
    #[error("rank {rank} of {world} ranks; valid are 0 to {}", .world.saturating_sub(1))]
    Rank {
        /// The rank.
        rank: u16,
        /// The world.
        world: u16,
    },
}

/// Which rank this is, of how many, and where ranks meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// This rank.
    pub rank: u16,
    /// Number of ranks.
    pub world: u16,
    /// Where they meet.
    pub master: Master,
}

impl Launch {
    /// Of the settings.
    pub fn new(settings: Settings) -> Result<Self, LaunchError> {
        let Settings { rank, world, master_addr, master_port, launcher_listens } = settings;
        let rank = rank.ok_or(LaunchError::Missing("RANK"))?;
        let world = world.ok_or(LaunchError::Missing("WORLD_SIZE"))?;
        let host = master_addr.filter(|host| !host.is_empty());
        let host = host.ok_or(LaunchError::Missing("MASTER_ADDR"))?;
        if rank >= world {
            return Err(LaunchError::Rank { rank, world });
        }
        // Where the launcher's store listens nobody else can: the port behind it, or in front of the last one.
        let beside =
            |port: u16| if launcher_listens { port.checked_add(1).unwrap_or(port - 1) } else { port };
        let port = master_port.map_or(DEFAULT_PORT, beside);
        Ok(Self { rank, world, master: Master { host, port } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torchrun() -> Settings {
        Settings {
            rank: Some(3),
            world: Some(4),
            master_addr: Some("10.0.0.1".to_owned()),
            master_port: Some(29_500),
            ..Settings::default()
        }
    }

    fn port(settings: Settings) -> u16 {
        Launch::new(settings).expect("valid").master.port
    }

    #[test]
    fn ranks_meet_beside_the_launchers_store_and_not_on_it() {
        assert_eq!(port(torchrun()), 29_500);
        assert_eq!(port(Settings { launcher_listens: true, ..torchrun() }), 29_501);
        let last = Settings { launcher_listens: true, master_port: Some(u16::MAX), ..torchrun() };
        assert_eq!(port(last), u16::MAX - 1);
        assert_eq!(port(Settings { master_port: None, ..torchrun() }), DEFAULT_PORT);
    }

    #[test]
    fn what_is_missing_or_does_not_fit_is_named() {
        let error = |settings| Launch::new(settings).expect_err("wrong").to_string();
        assert!(error(Settings { rank: None, ..torchrun() }).starts_with("RANK is not set"));
        assert!(error(Settings { world: None, ..torchrun() }).starts_with("WORLD_SIZE is not set"));
        assert!(error(Settings { master_addr: None, ..torchrun() }).starts_with("MASTER_ADDR is not set"));
        assert_eq!(error(Settings { rank: Some(4), ..torchrun() }), "rank 4 of 4 ranks; valid are 0 to 3");
    }
}
