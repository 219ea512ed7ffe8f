// SPDX-License-Identifier: Apache-2.0
//! How a controller talks to the switches.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// How a controller talks to the switches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerSettings {
    /// The highest one among a switch's controllers is primary.
    pub election_id: u128,
    /// Switches worked on at a time.
    pub concurrency: usize,
    /// For the connection and for each call, ns.
    pub timeout_ns: u64,
    /// Most updates in one Write.
    pub batch: usize,
    /// Between two looks at a switch by `run`, ns.
    pub interval_ns: u64,
    /// Between two looks at all its tables, ns.
    pub audit_ns: u64,
    /// How long a switch or a link has to be well before `run` routes over it again, ns.
    pub hold_down_ns: u64,
    /// Switches that are given a new program at a time; at least 1.
    pub max_unavailable: usize,
    /// How long a switch's counters are looked at after that, ns; 0 for not at all.
    pub settle_ns: u64,
    /// Whether switches beyond this machine may be talked to in the clear.
    pub insecure: bool,
    /// Where `run` serves metrics.
    pub metrics: MetricsAt,
}

/// Where metrics are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsAt {
    /// [`MetricsAt::DEFAULT`], if it is free.
    Default,
    /// There or not at all.
    Address(SocketAddr),
    /// Nowhere.
    Off,
}

impl MetricsAt {
    /// Where metrics are served if nobody says otherwise, and the port is free.
    pub const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9550);

    /// Where that is; `None` for nowhere.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Default => Some(Self::DEFAULT),
            Self::Address(address) => Some(address),
            Self::Off => None,
        }
    }

    /// `ADDRESS:PORT` or `off`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::Address).map_err(|_| {
            format!("'{text}' is no address for metrics; write ADDRESS:PORT, as in 127.0.0.1:9550, or off")
        })
    }
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            election_id: 1,
            concurrency: 32,
            timeout_ns: 10_000_000_000,
            batch: 100,
            interval_ns: 5_000_000_000,
            audit_ns: 60_000_000_000,
            hold_down_ns: 5_000_000_000,
            max_unavailable: 1,
            settle_ns: 1_000_000_000,
            insecure: false,
            metrics: MetricsAt::Default,
        }
    }
}
