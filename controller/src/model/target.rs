// SPDX-License-Identifier: Apache-2.0
//! Kinds of switches by name; `target` knows what each takes.

use serde::Serialize;

/// A kind of switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// `trimwire-switch`, and its engine in virtual time.
    Trimwire,
    /// `simple_switch_grpc`.
    Bmv2,
    /// Tofino 1 under Stratum.
    StratumTofino,
    /// Tofino 2 under Stratum.
    #[serde(rename = "stratum-tofino2")]
    StratumTofino2,
}

impl Target {
    /// All of them, in the order of messages.
    pub const ALL: [Self; 4] = [Self::Trimwire, Self::Bmv2, Self::StratumTofino, Self::StratumTofino2];

    /// Its name in fabric files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Trimwire => "trimwire",
            Self::Bmv2 => "bmv2",
            Self::StratumTofino => "stratum-tofino",
            Self::StratumTofino2 => "stratum-tofino2",
        }
    }

    /// Whether Stratum runs it: then the program is wrapped in Stratum's own message.
    pub fn is_stratum(self) -> bool {
        matches!(self, Self::StratumTofino | Self::StratumTofino2)
    }
}
