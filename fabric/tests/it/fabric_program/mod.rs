// SPDX-License-Identifier: Apache-2.0
//! Tables of the committed P4 program, straight into the engine: the controller has tests of its
//! own.

use std::sync::{Arc, Mutex};
use trimwire_fabric::cluster::ClusterConfig;
use trimwire_switch::engine::Pipeline;
use trimwire_switch::engine::entity::{ActionCall, ActionSpec, MatchValue, TableEntry, Value};
use trimwire_switch::{PortConfig, SharedSwitch, Switch, SwitchConfig};

pub(crate) const RATE: u64 = 10_000_000_000;

fn bytes(number: u128, width: usize) -> Value {
    let all = number.to_be_bytes();
    all[all.len() - width.div_ceil(8)..].to_vec()
}

fn call(action: &str, params: &[(u128, usize)]) -> ActionCall {
    ActionCall {
        action: action.to_owned(),
        params: params.iter().map(|&(number, width)| bytes(number, width)).collect(),
    }
}

fn entry(matches: Vec<MatchValue>, action: ActionSpec) -> TableEntry {
    TableEntry { matches, priority: 0, action, metadata: Vec::new() }
}

/// Where a queue marks, trims and drops, µs at `rate_bps`.
pub(crate) struct Ladder {
    pub(crate) rate_bps: u64,
    pub(crate) mark: u128,
    /// Where it trims to eight planes and to one; `None`: it does not.
    pub(crate) trimmed: Option<[u128; 2]>,
    pub(crate) drop: u128,
    pub(crate) trim_drop: u128,
}

/// Routes, DSCP plan and, with `trim`, thresholds of 20 and 60 µs; without, drop-tail at 120 µs.
/// The trim queue takes `trim_drop_us`.
#[allow(dead_code, reason = "an example has a ladder of its own")]
pub(crate) fn program(pipeline: &mut Pipeline, config: &ClusterConfig, trim: bool, trim_drop_us: u128) {
    let trimmed = trim.then_some([20, 60]);
    let ladder = Ladder { rate_bps: RATE, mark: 120, trimmed, drop: 120, trim_drop: trim_drop_us };
    program_ladder(pipeline, config, &ladder);
}

/// A switch with that program, routes and ladder on lines of `config`'s speed.
#[allow(dead_code, reason = "not all have such a switch")]
pub(crate) fn programmed(config: &ClusterConfig, trim: bool) -> SharedSwitch {
    let line = PortConfig { rate_bps: config.link_bps, queue_limit_bytes: 16 << 20 };
    let mut switch = Switch::new(SwitchConfig { default_port: line, ..SwitchConfig::default() });
    switch.load_pipeline(include_bytes!("../../../../p4/build/bmv2/trimwire.json")).expect("our own");
    program(switch.pipeline().expect("loaded"), config, trim, 60);
    Arc::new(Mutex::new(switch))
}

/// The same with any ladder.
pub(crate) fn program_ladder(pipeline: &mut Pipeline, config: &ClusterConfig, ladder: &Ladder) {
    let control = pipeline.control();
    for rank in 0..config.workers {
        let address = ClusterConfig::rank_address(rank);
        let mac = address.mac.iter().fold(0u128, |mac, byte| mac << 8 | u128::from(*byte));
        let forward = call("Ingress.forward", &[(u128::from(rank + 1), 9), (mac, 48)]);
        control.member_insert("Ingress.ecmp", u32::from(rank) + 1, &forward).unwrap();
        let route = MatchValue::Lpm { value: address.ip.octets().to_vec(), prefix_len: 32 };
        control
            .table_insert("Ingress.ipv4_route", &entry(vec![route], ActionSpec::Member(u32::from(rank) + 1)))
            .unwrap();
    }
    let trimmable = if ladder.trimmed.is_some() { "Ingress.set_trimmable" } else { "Ingress.set_plain" };
    for (dscp, action, queue) in [
        (3, trimmable, 5),
        (19, "Ingress.set_plain", 5),
        (35, "Ingress.set_trimmed", 6),
        (39, "Ingress.set_plain", 7),
    ] {
        let class = ActionSpec::Direct(call(action, &[(queue, 3)]));
        control
            .table_insert("Ingress.classify", &entry(vec![MatchValue::Exact(bytes(dscp, 6))], class))
            .unwrap();
    }
    let us = |time: u128| time * u128::from(ladder.rate_bps) / 8_000_000;
    for port in 1..=config.workers {
        for queue in [5, 6, 7] {
            for importance in [0, 1] {
                let [shallow, deep] = ladder.trimmed.unwrap_or([ladder.drop; 2]).map(us);
                let thresholds = [
                    (us(ladder.mark), 32),
                    (shallow, 32),
                    (deep, 32),
                    (us(ladder.drop), 32),
                    (510, 16),
                    (118, 16),
                    (35, 6),
                    (6, 3),
                    (us(ladder.trim_drop), 32),
                ];
                let key = [(u128::from(port), 9), (queue, 3), (importance, 1)];
                control
                    .table_insert(
                        "Ingress.queue_policy.policy",
                        &entry(
                            key.iter().map(|&(v, w)| MatchValue::Exact(bytes(v, w))).collect(),
                            ActionSpec::Direct(call("Ingress.queue_policy.set_thresholds", &thresholds)),
                        ),
                    )
                    .unwrap();
            }
        }
    }
}

/// Trimmed packets may take so many bytes a 1,024 µs of a port, and so many at once.
#[allow(dead_code, reason = "one program of several uses it")]
pub(crate) fn cap(pipeline: &mut Pipeline, port: u16, (rate, burst): (u32, u32)) {
    let key = MatchValue::Exact(bytes(port.into(), 9));
    let set = ActionSpec::Direct(call("Ingress.trim_cap.set_cap", &[(rate.into(), 32), (burst.into(), 32)]));
    pipeline.control().table_insert("Ingress.trim_cap.cap", &entry(vec![key], set)).unwrap();
}
