// SPDX-License-Identifier: Apache-2.0
//! Switches, hosts and links.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::Target;
use crate::yaml::problem::Located;

/// A switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// `HOST:PORT` of its P4Runtime server.
    pub address: String,
    /// P4Runtime device id.
    pub device_id: u64,
    /// What kind of switch it is.
    pub target: Target,
    /// Its own build of the program; none for the one that comes with this crate.
    pub pipeline: Option<PipelineFiles>,
    /// Where it tells by gNMI which of its ports can be used.
    pub gnmi: GnmiAt,
}

impl Switch {
    /// `HOST:PORT` of its gNMI server, where it is asked.
    pub fn gnmi_address(&self) -> Option<&str> {
        match &self.gnmi {
            GnmiAt::Default => self.target.is_stratum().then_some(&self.address),
            GnmiAt::Same => Some(&self.address),
            GnmiAt::Address(address) => Some(address),
            GnmiAt::Off => None,
        }
    }
}

/// Where a switch tells of its ports by gNMI.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GnmiAt {
    /// Where its P4Runtime server is, if it is Stratum.
    #[default]
    Default,
    /// Where its P4Runtime server is.
    Same,
    /// There: `HOST:PORT`.
    Address(String),
    /// Nowhere.
    Off,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// IPv4 address.
    pub ip: Ipv4Addr,
    /// IPv6 address.
    pub ip6: Option<Ipv6Addr>,
    /// Ethernet address.
    pub mac: Mac,
    /// What of its packets' DSCPs its switch believes.
    pub trust: Trust,
}

/// What a host may say of its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// Everything but that a packet has been trimmed: that only switches know.
    #[default]
    Agent,
    /// Nothing: all that it sends is best effort.
    None,
    /// Everything.
    All,
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// A host's only interface.
    Host(String),
    /// A switch's port.
    Port(String, u16),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => f.write_str(name),
            Self::Port(switch, port) => write!(f, "{switch}:{port}"),
        }
    }
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// One end.
    pub a: End,
    /// The other.
    pub b: End,
    /// bit/s, each way.
    pub rate_bps: u64,
    /// Propagation, ns.
    pub delay_ns: u64,
    /// Down links carry no routes.
    pub up: bool,
}

/// Files of a switch's own build of the program, as the fabric file names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineFiles {
    pub(crate) line: usize,
    pub(crate) path: String,
    pub(crate) p4info: Located<String>,
    /// BMv2 JSON.
    pub(crate) json: Option<Located<String>>,
    /// Tofino: `bfrt.json`, `context.json`, `tofino.bin`.
    pub(crate) bfrt: Option<Located<String>>,
    pub(crate) context: Option<Located<String>>,
    pub(crate) binary: Option<Located<String>>,
    /// Tofino: the program's name and its pipeline's.
    pub(crate) name: String,
    pub(crate) profile: String,
    /// Tofino: hardware pipes that run it.
    pub(crate) pipes: Vec<u32>,
}
