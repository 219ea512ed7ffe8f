// SPDX-License-Identifier: Apache-2.0
//! The packets with known answers (`p4/tests/README.md`): reading them, writing their tables,
//! counting.
#![allow(dead_code, reason = "every test binary uses its own part")]

use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use trimwire_switch::engine::Control;
use trimwire_switch::engine::entity::{
    ActionCall, ActionSpec, CounterValue, Group, GroupMember, MatchValue, Member, TableEntry, value,
};

pub(crate) const PROGRAM: &[u8] = include_bytes!("../../../../p4/build/bmv2/trimwire.json");
const LADDER: &str = include_str!("../../../../p4/tests/ladder.json");
const POLICY: &str = "Ingress.queue_policy.policy";
/// Ports that the cases use, times queues.
const INDEXES: u64 = 8 * 8;
const COUNTERS: [&str; 8] = [
    "Ingress.admitted",
    "Ingress.trimmed",
    "Ingress.trim_dropped",
    "Ingress.selective_dropped",
    "Ingress.tail_dropped",
    "Ingress.marked",
    "Egress.trim_transmitted",
    "Egress.transmitted",
];

/// (packets, bytes) by `array[index]`, without zeros.
pub(crate) type Counts = BTreeMap<String, (u64, u64)>;

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) ingress_port: u16,
    pub(crate) frame: Vec<u8>,
    /// Port and frame that leave.
    pub(crate) expect: Option<(u16, Vec<u8>)>,
    pub(crate) counters: Counts,
    policies: Vec<TableEntry>,
}

pub(crate) fn cases() -> Vec<Case> {
    let ladder: Json = serde_json::from_str(LADDER).unwrap();
    list(&ladder["cases"]).iter().map(case).collect()
}

/// The cases as STF files, written by `p4/tests/stf.py`: once for all tests of a process.
pub(crate) fn stf_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stf-{}", std::process::id()));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/tests/stf.py");
        let status = std::process::Command::new("python3").arg(script).arg(&folder).status();
        assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "python3 {script}: {status:?}");
        folder
    })
}

/// Writes what holds for all cases.
pub(crate) fn install(control: &mut Control) {
    let ladder: Json = serde_json::from_str(LADDER).unwrap();
    for member in list(&ladder["members"]) {
        let params = vec![value(number(&member["port"])), hex(&member["dst_mac"])];
        let call = ActionCall { action: "Ingress.forward".into(), params };
        let Member { id, call } = Member { id: number(&member["id"]) as u32, call };
        control.member_insert("Ingress.ecmp", id, &call).unwrap();
    }
    for group in list(&ladder["groups"]) {
        let members =
            list(&group["members"]).iter().map(|id| GroupMember { id: number(id) as u32, weight: 1 });
        let group = Group { id: number(&group["id"]) as u32, max_size: 0, members: members.collect() };
        control.group_insert("Ingress.ecmp", &group).unwrap();
    }
    for table in ["ipv4_route", "ipv6_route"] {
        for route in list(&ladder[table]) {
            let prefix =
                MatchValue::Lpm { value: hex(&route["prefix"]), prefix_len: number(&route["length"]) as u16 };
            let action = match route.get("group") {
                Some(group) => ActionSpec::Group(number(group) as u32),
                None => ActionSpec::Member(number(&route["member"]) as u32),
            };
            control.table_insert(&format!("Ingress.{table}"), &entry(vec![prefix], action)).unwrap();
        }
    }
    for class in list(&ladder["classify"]) {
        let call =
            ActionCall { action: text(&class["action"]), params: vec![value(number(&class["queue"]))] };
        let key = vec![MatchValue::Exact(value(number(&class["dscp"])))];
        control.table_insert("Ingress.classify", &entry(key, ActionSpec::Direct(call))).unwrap();
    }
    for path in list(&ladder["load_balance"]) {
        let call = ActionCall { action: text(&path["action"]), params: vec![value(number(&path["half"]))] };
        let key = vec![MatchValue::Exact(value(number(&path["dscp"])))];
        control.table_insert("Ingress.load_balance", &entry(key, ActionSpec::Direct(call))).unwrap();
    }
    let seed = ActionCall {
        action: "Ingress.set_hash_seed".to_owned(),
        params: vec![value(number(&ladder["hash_seed"]))],
    };
    control.set_default_action("Ingress.hash_seed", Some(&ActionSpec::Direct(seed))).unwrap();
    for claim in list(&ladder["trust"]) {
        let (dscp, mask) = claim["dscp"].as_u64().map_or((0, 0), |dscp| (dscp.into(), 0x3f));
        let port = MatchValue::Exact(value(number(&claim["ingress_port"])));
        let key = vec![port, MatchValue::Ternary { value: value(dscp), mask: value(mask) }];
        let call = match claim["remark"].as_u64() {
            Some(dscp) => {
                ActionCall { action: "Ingress.remark_dscp".to_owned(), params: vec![value(dscp.into())] }
            }
            None => ActionCall { action: "Ingress.trust_dscp".to_owned(), params: Vec::new() },
        };
        let entry = TableEntry {
            priority: number(&claim["priority"]) as i32,
            ..entry(key, ActionSpec::Direct(call))
        };
        control.table_insert("Ingress.trust", &entry).unwrap();
    }
    for dscp in list(&ladder["mark_trimmable"]) {
        let call = ActionCall { action: "Ingress.mark_ce".to_owned(), params: Vec::new() };
        let key = vec![MatchValue::Exact(value(number(dscp)))];
        control.table_insert("Ingress.mark_trimmable", &entry(key, ActionSpec::Direct(call))).unwrap();
    }
    for exempt in list(&ladder["trim_acl"]) {
        let any = || MatchValue::Ternary { value: value(0), mask: value(0) };
        let only = |json: &Json, mask| MatchValue::Ternary { value: value(number(json)), mask: value(mask) };
        let key =
            vec![any(), any(), only(&exempt["protocol"], 0xff), any(), only(&exempt["dst_port"], 0xffff)];
        let call = ActionCall { action: "Ingress.disable_trim".to_owned(), params: Vec::new() };
        let entry = TableEntry {
            priority: number(&exempt["priority"]) as i32,
            ..entry(key, ActionSpec::Direct(call))
        };
        control.table_insert(&text(&exempt["table"]), &entry).unwrap();
    }
    for cap in list(&ladder["trim_cap"]) {
        let params = vec![value(number(&cap["rate"])), value(number(&cap["burst"]))];
        let call = ActionCall { action: "Ingress.trim_cap.set_cap".to_owned(), params };
        let key = vec![MatchValue::Exact(value(number(&cap["egress_port"])))];
        control.table_insert("Ingress.trim_cap.cap", &entry(key, ActionSpec::Direct(call))).unwrap();
    }
}

/// Makes the policy table hold a case's entries, only these.
pub(crate) fn apply(control: &mut Control, case: &Case) {
    for row in control.table_entries(POLICY).unwrap() {
        control.table_delete(POLICY, &row.entry.matches, 0).unwrap();
    }
    for policy in &case.policies {
        control.table_insert(POLICY, policy).unwrap();
    }
}

/// What the counters hold; all of them are set to 0.
pub(crate) fn take_counts(control: &mut Control) -> Counts {
    let mut counts = Counts::new();
    let cells = COUNTERS.iter().flat_map(|name| (0..INDEXES).map(move |index| (*name, index)));
    for (name, index) in cells.chain([("Ingress.unroutable", 0)]) {
        let counter = control.counter(name, index).unwrap();
        if counter.packets > 0 {
            counts.insert(format!("{name}[{index}]"), (counter.packets, counter.bytes));
            control.set_counter(name, index, CounterValue::default()).unwrap();
        }
    }
    counts
}

fn case(json: &Json) -> Case {
    let expect = &json["expect"];
    let counters = json["counters"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(cell, count)| (cell.clone(), (number(&count[0]) as u64, number(&count[1]) as u64)));
    Case {
        name: text(&json["name"]),
        ingress_port: number(&json["ingress_port"]) as u16,
        frame: hex(&json["frame"]),
        expect: (!expect.is_null()).then(|| (number(&expect["port"]) as u16, hex(&expect["frame"]))),
        counters: counters.collect(),
        policies: list(&json["policies"]).iter().map(policy).collect(),
    }
}

fn policy(json: &Json) -> TableEntry {
    let key = ["egress_port", "queue", "importance"];
    let thresholds = [
        "mark_at",
        "shallow_at",
        "deep_at",
        "drop_at",
        "shallow_size",
        "deep_size",
        "trimmed_dscp",
        "trim_queue",
        "trim_drop_at",
    ];
    let matches = key.map(|name| MatchValue::Exact(value(number(&json[name])))).to_vec();
    let params = thresholds.map(|name| value(number(&json[name]))).to_vec();
    let action = "Ingress.queue_policy.set_thresholds".to_owned();
    entry(matches, ActionSpec::Direct(ActionCall { action, params }))
}

fn entry(matches: Vec<MatchValue>, action: ActionSpec) -> TableEntry {
    TableEntry { matches, priority: 0, action, metadata: Vec::new() }
}

fn list(json: &Json) -> &Vec<Json> {
    json.as_array().unwrap()
}

fn number(json: &Json) -> u128 {
    json.as_u64().unwrap().into()
}

fn text(json: &Json) -> String {
    json.as_str().unwrap().to_owned()
}

fn hex(json: &Json) -> Vec<u8> {
    let digits = json.as_str().unwrap();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}
