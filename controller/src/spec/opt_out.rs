// SPDX-License-Identifier: Apache-2.0
//! `disable_trim`: flows that are never trimmed (SONiC: DISABLE_TRIM_ACTION).

use std::collections::BTreeSet;

use super::addresses::{self, Network as Prefix};
use super::keys;
use super::network::Network;
use crate::model::OptOut;
use crate::yaml::Value;
use crate::yaml::fields::{Fields, integer};
use crate::yaml::problem::{Problems, hint};

const PROTOCOLS: &[(&str, u8)] = &[("udp", 17), ("tcp", 6), ("icmp", 1), ("sctp", 132)];

pub(super) fn read(top: &Fields<'_>, network: &Network, problems: &mut Problems) -> Vec<OptOut> {
    let Some(node) = top.node("disable_trim") else { return Vec::new() };
    let Value::Sequence(items) = &node.value else {
        let message =
            format!("is {}; a list is wanted, as in [{{ dst: 10.0.1.0/24, dst_port: 9559 }}]", node.kind());
        problems.add(node.line, "disable_trim", message);
        return Vec::new();
    };
    let mut rules: Vec<(OptOut, usize)> = Vec::new();
    for (position, item) in items.iter().enumerate() {
        let path = format!("disable_trim[{position}]");
        let before = problems.len();
        let fields = Fields::of(item, &path, keys::DISABLE_TRIM, problems);
        let given = keys::DISABLE_TRIM.iter().any(|key| *key != "switches" && fields.node(key).is_some());
        let rules_of_item = rule(&fields, &path, network, problems);
        if !given {
            let message = "matches every packet; name a part of them, or write trim: off in policy";
            problems.add(item.line, &path, message);
            continue;
        }
        if problems.len() > before {
            // What is left of it may be the same as another rule, and is not meant.
            continue;
        }
        for new in rules_of_item {
            let same = |old: &OptOut| {
                OptOut { path: String::new(), ..old.clone() } == OptOut { path: String::new(), ..new.clone() }
            };
            if let Some((_, line)) = rules.iter().find(|(old, _)| same(old)) {
                problems.add(item.line, &path, format!("says what line {line} says already"));
            } else {
                rules.push((new, item.line));
            }
        }
    }
    rules.into_iter().map(|(rule, _)| rule).collect()
}

/// Rules of one entry: two where a host has addresses of both versions.
fn rule(fields: &Fields<'_>, path: &str, network: &Network, problems: &mut Problems) -> Vec<OptOut> {
    let mut side = |key: &str| fields.parsed(key, problems, |text| prefixes(text, network));
    let (src, dst) = (side("src"), side("dst"));
    let protocol = fields.parsed("protocol", problems, |text| {
        let known = PROTOCOLS.iter().find(|(word, _)| *word == text).map(|(_, number)| *number);
        known.map_or_else(
            || {
                integer(0_u8..=255)(text).map_err(|error| {
                    let words: Vec<&str> = PROTOCOLS.iter().map(|(word, _)| *word).collect();
                    format!("{error}, nor a known name{}", hint(text, &words))
                })
            },
            Ok,
        )
    });
    let mut port = |key| fields.parsed(key, problems, integer(0_u16..=65_535));
    let (src_port, dst_port) = (port("src_port"), port("dst_port"));
    let switches = fields.list("switches", problems, |text| {
        if network.unknown || network.switches.contains_key(text) {
            Ok(text.to_owned())
        } else {
            let names: Vec<&String> = network.switches.keys().collect();
            Err(format!("unknown switch '{text}'{}", hint(text, &names)))
        }
    });
    let switches =
        switches.map(|switches| switches.into_iter().map(|switch| switch.value).collect::<BTreeSet<_>>());
    let rule = |src: Option<Prefix>, dst: Option<Prefix>| OptOut {
        path: path.to_owned(),
        src: src.map(|prefix| (prefix.address, prefix.prefix_len)),
        dst: dst.map(|prefix| (prefix.address, prefix.prefix_len)),
        protocol: protocol.as_ref().map(|protocol| protocol.value),
        src_port: src_port.as_ref().map(|port| port.value),
        dst_port: dst_port.as_ref().map(|port| port.value),
        switches: switches.clone(),
    };
    match (&src, &dst) {
        (None, None) => vec![rule(None, None)],
        (Some(src), None) => src.value.iter().map(|src| rule(Some(*src), None)).collect(),
        (None, Some(dst)) => dst.value.iter().map(|dst| rule(None, Some(*dst))).collect(),
        (Some(src), Some(dst)) => {
            let pairs = src.value.iter().flat_map(|src| dst.value.iter().map(move |dst| (*src, *dst)));
            let same = pairs.filter(|(src, dst)| src.address.is_ipv4() == dst.address.is_ipv4());
            let rules: Vec<OptOut> = same.map(|(src, dst)| rule(Some(src), Some(dst))).collect();
            if rules.is_empty() {
                let message = format!("'{}' and '{}' are of two IP versions", src.text, dst.text);
                problems.add(dst.line, &dst.path, message);
            }
            rules
        }
    }
}

/// A network, or a host's name for its addresses.
fn prefixes(text: &str, network: &Network) -> Result<Vec<Prefix>, String> {
    if let Some(host) = network.hosts.get(text) {
        let ip4 = Prefix { address: host.ip.into(), prefix_len: 32 };
        let ip6 = host.ip6.map(|ip6| Prefix { address: ip6.into(), prefix_len: 128 });
        return Ok([Some(ip4), ip6].into_iter().flatten().collect());
    }
    addresses::network(text).map(|network| vec![network]).map_err(|error| {
        // What starts like a name was meant as one.
        if text.starts_with(|c: char| c.is_ascii_alphabetic()) && !text.contains(':') {
            let names: Vec<&String> = network.hosts.keys().collect();
            format!("unknown host '{text}'{}", hint(text, &names))
        } else {
            error
        }
    })
}
