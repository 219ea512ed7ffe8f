// SPDX-License-Identifier: Apache-2.0
//! Files of hosts, one a line, as mpirun and DeepSpeed take them: `10.0.0.1 slots=4`.
#![forbid(unsafe_code)]

use std::net::{IpAddr, ToSocketAddrs};
use trimwire_encoder::StreamId;

/// Most hosts, and slots of all of them.
const RANKS_MAX: usize = StreamId::MAX_RANK as usize + 1;
/// Longest name of a host (RFC 1035 §2.3.4).
const NAME_MAX: usize = 253;

/// What is wrong with a file of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostsError {
    /// A word that means nothing here.
    #[error("line {line}: '{}' is not understood (valid: slots=N; max_slots=N is ignored)", .word.escape_debug())]
    Word {
        /// Counted from 1.
        line: usize,
        /// The word.
        word: String,
    },
    /// A number of slots that cannot be.
    #[error("line {line}: slots={} (valid are 1 to 1024)", .slots.escape_debug())]
    Slots {
        /// Counted from 1.
        line: usize,
        /// What stands there.
        slots: String,
    },
    /// Not a name.
    #[error("line {line}: '{}' is neither a host's name nor an address", .name.escape_debug())]
    Name {
        /// Counted from 1.
        line: usize,
        /// What stands there.
        name: String,
    },
    /// A host stands twice.
    #[error("line {line}: '{name}' stands in line {before} already; slots=N gives a host several ranks")]
    Twice {
        /// Counted from 1.
        line: usize,
        /// The first one.
        before: usize,
        /// The host.
        name: String,
    },
    /// No host at all.
    #[error("it names no host")]
    Empty,
    /// More ranks than there may be.
    #[error("its slots are {0} ranks (at most {RANKS_MAX})")]
    Ranks(usize),
    /// Nothing says which of the hosts this is.
    #[error("none of its hosts is this one, whose addresses are {own}; RANK says which rank this is")]
    Elsewhere {
        /// Addresses of this host.
        own: String,
    },
    /// Several lines are this host.
    #[error("lines {first} and {second} are both this host; RANK says which rank this is")]
    Ambiguous {
        /// The one.
        first: usize,
        /// The other.
        second: usize,
    },
    /// Several slots, and nothing says which.
    #[error("'{name}' has {slots} slots; LOCAL_RANK (0 to {}) or RANK says which one this is", .slots - 1)]
    Slot {
        /// The host.
        name: String,
        /// Its slots.
        slots: u16,
    },
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name or address.
    pub name: String,
    /// Ranks on it.
    pub slots: u16,
    /// Where it stands, counted from 1.
    line: usize,
}

/// A file of hosts: ranks are counted through it, host by host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(Vec<Host>);

impl Hosts {
    /// Reads a file's text. Empty lines, and what stands behind `#`, are ignored.
    pub fn parse(text: &str) -> Result<Self, HostsError> {
        let mut hosts: Vec<Host> = Vec::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.split('#').next().unwrap_or_default();
            let mut words = content.split_whitespace();
            let Some(name) = words.next() else { continue };
            let name = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
            let letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let valid = name.parse::<IpAddr>().is_ok() || name.chars().all(letter) && name.len() <= NAME_MAX;
            if !valid {
                return Err(HostsError::Name { line, name: name.chars().take(NAME_MAX).collect() });
            }
            if let Some(before) = hosts.iter().find(|host| host.name == name) {
                return Err(HostsError::Twice { line, before: before.line, name: name.to_owned() });
            }
            let mut slots = 1;
            for word in words {
                match word.split_once('=') {
                    Some(("slots", number)) => {
                        let valid =
                            number.parse().ok().filter(|&slots| (1..=RANKS_MAX as u16).contains(&slots));
                        slots = valid.ok_or_else(|| HostsError::Slots {
                            line,
                            slots: number.chars().take(32).collect(),
                        })?;
                    }
                    Some(("max_slots" | "max-slots", _)) => {}
                    _ => return Err(HostsError::Word { line, word: word.chars().take(64).collect() }),
                }
            }
            hosts.push(Host { name: name.to_owned(), slots, line });
        }
        let hosts = Self(hosts);
        match hosts.0.iter().map(|host| usize::from(host.slots)).sum() {
            0 => Err(HostsError::Empty),
            1..=RANKS_MAX => Ok(hosts),
            ranks => Err(HostsError::Ranks(ranks)),
        }
    }

    /// Ranks on all of them.
    pub fn world(&self) -> u16 {
        self.0.iter().map(|host| host.slots).sum()
    }

    /// Where rank 0 is.
    pub fn first(&self) -> &Host {
        // `parse` gives no empty ones.
        &self.0[0]
    }

    /// The rank of a slot of this host, which has the addresses `own`; `slot` may be left out where there is one.
    pub fn rank_of(&self, own: &[IpAddr], slot: Option<u16>) -> Result<u16, HostsError> {
        let is_own = |ip: IpAddr| ip.is_loopback() || own.contains(&ip);
        let here = |host: &&Host| match host.name.parse::<IpAddr>() {
            Ok(ip) => is_own(ip),
            // A name that cannot be looked up is another host's, or the error says that none is this one.
            Err(_) => (host.name.as_str(), 0)
                .to_socket_addrs()
                .is_ok_and(|mut found| found.any(|at| is_own(at.ip()))),
        };
        let mut found = self.0.iter().filter(here);
        let Some(host) = found.next() else {
            let own: Vec<String> = own.iter().map(IpAddr::to_string).collect();
            return Err(HostsError::Elsewhere { own: own.join(", ") });
        };
        if let Some(other) = found.next() {
            return Err(HostsError::Ambiguous { first: host.line, second: other.line });
        }
        let before: u16 =
            self.0.iter().take_while(|other| other.line < host.line).map(|host| host.slots).sum();
        match slot {
            Some(slot) if slot < host.slots => Ok(before + slot),
            None if host.slots == 1 => Ok(before),
            _ => Err(HostsError::Slot { name: host.name.clone(), slots: host.slots }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWN: [IpAddr; 2] =
        [IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)];

    fn error(text: &str) -> String {
        Hosts::parse(text).expect_err(text).to_string()
    }

    #[test]
    fn files_of_mpirun_and_deepspeed_are_read() {
        let text = "# the job\n10.0.0.1 slots=2 max_slots=4\n\n10.0.0.2   slots=3 # ours\nfd00::7\n[fd00::8] slots=1\n";
        let hosts = Hosts::parse(text).expect("valid");
        assert_eq!((hosts.world(), hosts.first().name.as_str()), (7, "10.0.0.1"));
        assert_eq!(hosts.rank_of(&OWN, Some(2)), Ok(4));
        assert_eq!(
            hosts.rank_of(&OWN, None).map_err(|error| error.to_string()),
            Err("'10.0.0.2' has 3 slots; LOCAL_RANK (0 to 2) or RANK says which one this is".to_owned())
        );
        assert!(hosts.rank_of(&OWN, Some(3)).is_err());
        let last = ["fd00::8".parse().expect("literal")];
        assert_eq!(hosts.rank_of(&last, None), Ok(6));
        assert!(hosts.rank_of(&[], None).is_err_and(|error| matches!(error, HostsError::Elsewhere { .. })));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        assert_eq!(
            error("a\nb slot=2"),
            "line 2: 'slot=2' is not understood (valid: slots=N; max_slots=N is ignored)"
        );
        assert_eq!(error("a slots=0"), "line 1: slots=0 (valid are 1 to 1024)");
        assert_eq!(
            error("a\n\na"),
            "line 3: 'a' stands in line 1 already; slots=N gives a host several ranks"
        );
        assert_eq!(error("a:b"), "line 1: 'a:b' is neither a host's name nor an address");
        assert_eq!(error("\n# nothing\n"), "it names no host");
        assert_eq!(error("a slots=1000\nb slots=25"), "its slots are 1025 ranks (at most 1024)");
        let both = Hosts::parse("10.0.0.2\n127.0.0.1\n").expect("valid");
        assert_eq!(
            both.rank_of(&OWN, None).map_err(|error| error.to_string()),
            Err("lines 1 and 2 are both this host; RANK says which rank this is".to_owned())
        );
    }

    proptest! {
        #[test]
        fn files_of_any_text_panic_nowhere_and_give_as_many_ranks_as_slots(text in "([a-c0-9:.\\[\\]#=\\n ]|slots=|\\PC){0,60}") {
            if let Ok(hosts) = Hosts::parse(&text) {
                prop_assert!((1..=1_024).contains(&hosts.world()));
            }
        }
    }
}
