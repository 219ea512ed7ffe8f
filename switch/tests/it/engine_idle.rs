// SPDX-License-Identifier: Apache-2.0
//! Idle time-outs of table entries and members of value sets, as the control plane sees them.

use trimwire_switch::engine::entity::{ActionCall, ActionSpec, MatchValue, TableEntry, value};
use trimwire_switch::engine::{Code, Pipeline};
use trimwire_switch::{Switch, SwitchConfig, SwitchEvent};

const TABLE: &str = "I.stop";

fn load(name: &str) -> Pipeline {
    let path = format!("{}/tests/programs/build/{name}/{name}.json", env!("CARGO_MANIFEST_DIR"));
    Pipeline::load(&std::fs::read(path).unwrap()).unwrap()
}

/// `tests/programs/flow.p4` with entries for counts 1 and 2; they time out `timeout_ns` after
/// `now_ns`.
fn with_entries(timeout_ns: u64, now_ns: u64) -> Pipeline {
    let mut pipeline = load("flow");
    for count in 1..=2 {
        let action = ActionCall { action: "I.leave".into(), params: Vec::new() };
        let entry = TableEntry {
            matches: vec![MatchValue::Exact(value(count))],
            priority: 0,
            action: ActionSpec::Direct(action),
            metadata: Vec::new(),
        };
        let control = pipeline.control();
        control.table_insert(TABLE, &entry).unwrap();
        control.set_idle_timeout(TABLE, &entry.matches, 0, timeout_ns, now_ns).unwrap();
    }
    pipeline
}

/// A packet that hits the entry for `count` at `now_ns`.
fn hit(pipeline: &mut Pipeline, count: u8, now_ns: u64) {
    let frame = [6, count, 0, 0, 0, 0, 0, 0];
    pipeline.ingress(now_ns, 0, &frame, &mut Vec::new());
}

fn idle(pipeline: &mut Pipeline, now_ns: u64) -> Vec<Vec<u8>> {
    let key = |matches: &[MatchValue]| match &matches[0] {
        MatchValue::Exact(value) => value.clone(),
        other => panic!("{other:?}"),
    };
    pipeline.control().take_idle_entries(now_ns).iter().map(|idle| key(&idle.row.entry.matches)).collect()
}

#[test]
fn an_entry_is_idle_once_its_timeout_has_passed_since_its_last_hit() {
    let mut pipeline = with_entries(100, 1000);
    assert_eq!(pipeline.control().poll_idle_timeout(), Some(1100));
    assert!(idle(&mut pipeline, 1099).is_empty());
    hit(&mut pipeline, 2, 1050);
    assert_eq!(idle(&mut pipeline, 1149), [[1]]);
    assert_eq!(idle(&mut pipeline, 1150), [[2]]);
    let row = &pipeline.control().table_entries(TABLE).unwrap()[1];
    assert_eq!((row.idle_timeout_ns, row.last_hit_ns), (100, 1050));
}

#[test]
fn an_idle_entry_is_told_once_until_it_is_hit_again() {
    let mut pipeline = with_entries(100, 0);
    assert_eq!(idle(&mut pipeline, 100), [[1], [2]]);
    for now_ns in 101..500 {
        assert!(idle(&mut pipeline, now_ns).is_empty(), "{now_ns}");
    }
    hit(&mut pipeline, 1, 500);
    assert!(idle(&mut pipeline, 599).is_empty());
    assert_eq!(idle(&mut pipeline, 600), [[1]]);
}

#[test]
fn deleted_entries_and_those_without_a_timeout_are_never_idle() {
    let mut pipeline = with_entries(100, 0);
    let key = |count| [MatchValue::Exact(value(count))];
    pipeline.control().table_delete(TABLE, &key(1), 0).unwrap();
    pipeline.control().set_idle_timeout(TABLE, &key(2), 0, 0, 50).unwrap();
    assert!(idle(&mut pipeline, 1_000_000).is_empty());
    assert_eq!(pipeline.control().poll_idle_timeout(), None);
}

#[test]
fn a_table_that_was_not_declared_for_it_takes_no_timeout() {
    let mut pipeline = load("tables");
    let entry = TableEntry {
        matches: vec![MatchValue::Exact(value(1))],
        priority: 0,
        action: ActionSpec::Direct(ActionCall { action: "I.left".into(), params: Vec::new() }),
        metadata: Vec::new(),
    };
    let control = pipeline.control();
    control.table_insert("I.path_table", &entry).unwrap();
    let error = control.set_idle_timeout("I.path_table", &entry.matches, 0, 100, 0).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("I.path_table") && error.message.contains("idle"), "{error}");
}

#[test]
fn a_value_set_takes_as_many_members_as_it_was_declared_for() {
    let mut pipeline = load("parsers");
    let control = pipeline.control();
    let info = control.value_sets().into_iter().find(|info| info.name == "P.keys").unwrap();
    assert_eq!((info.widths, info.size), (vec![8, 16], 4));
    for member in [3, 1, 2, 4] {
        control.value_set_insert("P.keys", &value(member)).unwrap();
    }
    assert_eq!(control.value_set("P.keys").unwrap(), [1, 2, 3, 4].map(value));
    let code = |error: trimwire_switch::engine::ControlError| error.code;
    assert_eq!(control.value_set_insert("P.keys", &value(2)).map_err(code), Err(Code::AlreadyExists));
    assert_eq!(control.value_set_insert("P.keys", &value(5)).map_err(code), Err(Code::ResourceExhausted));
    assert_eq!(control.value_set_insert("P.keys", &value(1 << 24)).map_err(code), Err(Code::InvalidArgument));
    assert_eq!(control.value_set_delete("P.keys", &value(9)).map_err(code), Err(Code::NotFound));
    control.value_set_delete("P.keys", &value(2)).unwrap();
    assert_eq!(control.value_set("P.keys").unwrap(), [1, 3, 4].map(value));
}

#[test]
fn a_batch_that_is_undone_leaves_entries_their_idle_times() {
    let mut pipeline = with_entries(100, 0);
    let control = pipeline.control();
    let rows = control.table_entries(TABLE).unwrap();
    control.begin_batch();
    let key = [MatchValue::Exact(value(1))];
    control.table_delete(TABLE, &key, 0).unwrap();
    control.table_insert(TABLE, &rows[0].entry).unwrap();
    control.set_idle_timeout(TABLE, &key, 0, 7, 50).unwrap();
    control.set_idle_timeout(TABLE, &[MatchValue::Exact(value(2))], 0, 0, 50).unwrap();
    control.undo_batch();
    assert_eq!(control.table_entries(TABLE).unwrap(), rows);
    assert_eq!(pipeline.control().table_entries(TABLE).unwrap().len(), 2);
    assert_eq!(idle(&mut pipeline, 100), [[1], [2]]);
}

#[test]
fn a_notification_waits_until_the_one_before_has_been_taken() {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.install_pipeline(with_entries(100, 0));
    let mut now_ns = 0;
    for _ in 0..3 {
        switch.handle_frame(now_ns + 1_000, 0, &[6, 1, 0, 0, 0, 0, 0, 0]);
        now_ns += 2_000;
        switch.handle_timeout(now_ns);
        while switch.poll_transmit().is_some() {}
    }
    assert_eq!(switch.poll_timeout(), None, "nothing to be called for while nobody listens");
    let told = std::iter::from_fn(|| switch.poll_event()).count();
    assert_eq!(told, 1);
    assert!(switch.poll_timeout().is_some_and(|at_ns| at_ns <= now_ns));
    switch.handle_timeout(now_ns);
    assert!(matches!(switch.poll_event(), Some(SwitchEvent::Idle(entries)) if !entries.is_empty()));
}

/// So many entries of the server's program, which time out together.
fn with_many(count: u32, timeout_ns: u64) -> Pipeline {
    let path = format!("{}/testdata/server/server.json", env!("CARGO_MANIFEST_DIR"));
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for table in json["pipelines"][0]["tables"].as_array_mut().unwrap() {
        table["max_size"] = count.into();
    }
    let types = json["header_types"].as_array_mut().unwrap();
    let fields = types.iter_mut().flat_map(|of| of["fields"].as_array_mut().unwrap());
    fields.filter(|field| field[0] == "key").for_each(|field| field[1] = 32.into());
    let mut pipeline = Pipeline::load(&serde_json::to_vec(&json).unwrap()).unwrap();
    for number in 0..count {
        let action = ActionCall { action: "NoAction".into(), params: Vec::new() };
        let entry = TableEntry {
            matches: vec![MatchValue::Exact(number.to_be_bytes().to_vec())],
            priority: 0,
            action: ActionSpec::Direct(action),
            metadata: Vec::new(),
        };
        let control = pipeline.control();
        control.table_insert("I.aging", &entry).unwrap();
        control.set_idle_timeout("I.aging", &entry.matches, 0, timeout_ns, 0).unwrap();
    }
    pipeline
}

#[test]
fn very_many_idle_entries_are_told_of_in_parts() {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.install_pipeline(with_many(2_000, 100));
    let (mut told, mut largest) = (0, 0);
    let mut calls = 0;
    while let Some(at_ns) = switch.poll_timeout().filter(|at_ns| *at_ns <= 150) {
        switch.handle_timeout(at_ns.max(150));
        if let Some(SwitchEvent::Idle(entries)) = switch.poll_event() {
            (told, largest) = (told + entries.len(), largest.max(entries.len()));
        }
        calls += 1;
        assert!(calls < 100, "it ends");
    }
    assert_eq!(told, 2_000);
    assert!(largest < 1_000, "{largest} at a time");
}
