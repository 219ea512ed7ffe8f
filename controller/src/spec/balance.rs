//! `load_balance`.

use serde::Serialize;

use super::fields::{Fields, word};
use super::keys;
use super::problem::Problems;

/// How packets to one host are spread over its equal paths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// By addresses, protocol and ports: what the agent sprays with its source ports, and flow by flow for everybody else.
    #[default]
    FiveTuple,
    /// The source port does not count: one path from host to host.
    Flow,
    /// Each packet takes a path of its own.
    Packet,
}

/// How each kind of packet is spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LoadBalance {
    /// Whatever the others do not say.
    pub default: Spread,
    /// Trimmable packets, and what is left of them where they were cut.
    pub trimmable: Spread,
    /// Packets that may be dropped but not cut.
    pub droppable: Spread,
}

pub(super) fn read(top: &Fields<'_>, problems: &mut Problems) -> LoadBalance {
    const WORDS: &[(&str, Spread)] =
        &[("five_tuple", Spread::FiveTuple), ("flow", Spread::Flow), ("packet", Spread::Packet)];
    let Some(node) = top.node("load_balance") else { return LoadBalance::default() };
    let fields = Fields::of(node, "load_balance", keys::LOAD_BALANCE, problems);
    let mut spread = |key| fields.parsed(key, problems, word(WORDS)).map(|spread| spread.value);
    let default = spread("default").unwrap_or_default();
    LoadBalance {
        default,
        trimmable: spread("trimmable").unwrap_or(default),
        droppable: spread("droppable").unwrap_or(default),
    }
}
