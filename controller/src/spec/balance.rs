// SPDX-License-Identifier: Apache-2.0
//! `load_balance`.

use super::keys;
use crate::model::{LoadBalance, Spread};
use crate::yaml::fields::{Fields, word};
use crate::yaml::problem::Problems;

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
