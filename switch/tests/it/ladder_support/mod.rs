// SPDX-License-Identifier: Apache-2.0
//! The packets with known answers (`p4/tests/README.md`): reading them, writing their tables,
//! counting.
#![allow(dead_code, reason = "every test binary uses its own part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use trimwire_bmv2_tests::vectors::{
    Call, Entry, EntryAction, Key, POLICY, PROFILE, Vectors, Write, policy_entry,
};
use trimwire_switch::engine::Control;
use trimwire_switch::engine::entity::{
    ActionCall, ActionSpec, CounterValue, Group, GroupMember, MatchValue, TableEntry, value,
};

pub(crate) const PROGRAM: &[u8] = include_bytes!("../../../../p4/build/bmv2/trimwire.json");
/// Ports that the cases use, times queues.
const INDEXES: u64 = 8 * 8;
const COUNTERS: [&str; 10] = [
    "Ingress.wrong_neighbour",
    "Ingress.turned_back",
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
    let count = |count: i64| u64::try_from(count).unwrap();
    let case = |case: trimwire_bmv2_tests::vectors::Case| Case {
        ingress_port: case.ingress_port,
        frame: case.frame().unwrap(),
        expect: case.expected().unwrap(),
        policies: case.policies.iter().map(|policy| row(&policy_entry(policy).unwrap())).collect(),
        name: case.name,
        counters: case.counters.into_iter().map(|(cell, (p, b))| (cell, (count(p), count(b)))).collect(),
    };
    Vectors::load().unwrap().cases.into_iter().map(case).collect()
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
    install_where(control, |_| true);
}

/// The same, for ports that lead to no switches: frames come for any address, and may turn back.
pub(crate) fn install_for_hosts(control: &mut Control) {
    install_where(control, |table| table != "Ingress.own_mac");
}

fn install_where(control: &mut Control, is_wanted: impl Fn(&str) -> bool) {
    for write in Vectors::load().unwrap().writes().unwrap() {
        match write {
            Write::Entry(entry) if !is_wanted(&entry.table) => continue,
            Write::Member(id, call) => control.member_insert(PROFILE, id, &action(&call)),
            Write::Group(id, members) => {
                let members = members.into_iter().map(|id| GroupMember { id, weight: 1 }).collect();
                control.group_insert(PROFILE, &Group { id, max_size: 0, members })
            }
            Write::Entry(entry) => control.table_insert(&entry.table, &row(&entry)),
            Write::Default(table, call) => {
                control.set_default_action(table, Some(&ActionSpec::Direct(action(&call))))
            }
        }
        .unwrap();
    }
}

fn action(call: &Call) -> ActionCall {
    let params = call.params.iter().map(|(_, value)| value.clone()).collect();
    ActionCall { action: call.action.clone(), params }
}

fn row(entry: &Entry) -> TableEntry {
    let matches = entry.keys.iter().map(|(_, key)| match key.clone() {
        Key::Exact(value) => MatchValue::Exact(value),
        Key::Lpm(value, prefix_len) => MatchValue::Lpm { value, prefix_len },
        Key::Ternary(Some((value, mask))) => MatchValue::Ternary { value, mask },
        Key::Ternary(None) => MatchValue::Ternary { value: value(0), mask: value(0) },
    });
    let action = match &entry.action {
        EntryAction::Call(call) => ActionSpec::Direct(action(call)),
        EntryAction::Member(id) => ActionSpec::Member(*id),
        EntryAction::Group(id) => ActionSpec::Group(*id),
    };
    TableEntry { matches: matches.collect(), priority: entry.priority, action, metadata: Vec::new() }
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
