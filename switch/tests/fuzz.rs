//! What is read from strangers, starting from something valid and damaging it: programs, frames, STF files, updates.
//!
//! Nothing may panic, abort or go on for ever, whatever comes; and an update that is refused leaves no trace. The runs of every
//! test are the same each time. `TRIMWIRE_FUZZ_RUNS=N` runs each target N times as often, and `TRIMWIRE_FUZZ_SEED=S` others.

mod server_support;

use prost::Message as _;
use serde_json::Value;
use server_support::{Bench, program};
use std::path::PathBuf;
use trimwire_p4runtime::entity::{check_update, insert, modify};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::v1::{self, Entity, TableEntry, Update};
use trimwire_switch::engine::{EgressOutcome, Enqueue, Pipeline, QueueMetadata};
use trimwire_switch::stf::{self, Script};
use trimwire_switch::{Switch, SwitchConfig};

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Dice(u64);

impl Dice {
    fn new(target: u64) -> Self {
        Self(target << 32 ^ number("TRIMWIRE_FUZZ_SEED").unwrap_or(0))
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.roll() % end.max(1) as u64) as usize
    }

    fn one<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// `usual` runs, or as many times that as the environment asks for.
fn runs(usual: u64) -> std::ops::Range<u64> {
    0..usual * number("TRIMWIRE_FUZZ_RUNS").unwrap_or(1)
}

fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(format!("{}/{folder}", env!("CARGO_MANIFEST_DIR")))];
    while let Some(folder) = folders.pop() {
        let mut paths: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(std::fs::read(path).unwrap());
            }
        }
    }
    found
}

/// Bytes with a few of them changed, left out or doubled.
fn damaged(dice: &mut Dice, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len());
        match dice.below(6) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => drop(bytes.remove(at)),
            2 => bytes.insert(at, dice.roll() as u8),
            3 if !bytes.is_empty() => bytes[at] = *dice.one(&[0, 1, 0x7f, 0x80, 0xff]),
            4 if !bytes.is_empty() => {
                let end = at + dice.below(bytes.len() - at).min(64);
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ if !bytes.is_empty() => bytes[at] ^= 1 << dice.below(8),
            _ => {}
        }
    }
    bytes
}

/// The frames that a recording has.
fn frames(recording: &[u8]) -> Vec<Vec<u8>> {
    let words = recording.split(u8::is_ascii_whitespace);
    let hexadecimal = words.filter(|word| word.len() >= 20 && word.len() % 2 == 0);
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|nibble| nibble as u8);
    let byte = |two: &[u8]| Some(nibble(two[0])? << 4 | nibble(two[1])?);
    hexadecimal.filter_map(|word| word.chunks(2).map(byte).collect()).collect()
}

/// One frame through a program, with queues that are empty. Programs that make ever more copies are cut short.
fn forward(pipeline: &mut Pipeline, now_ns: u64, port: u16, frame: &[u8]) {
    let mut queue: Vec<Enqueue> = Vec::new();
    pipeline.ingress(now_ns, port, frame, &mut queue);
    for _ in 0..64 {
        let Some(packet) = queue.pop() else { break };
        let out = pipeline.egress(now_ns, packet, QueueMetadata::default(), &mut queue);
        if let EgressOutcome::Transmit { frame, .. } = out {
            pipeline.recycle(frame);
        }
    }
    queue.drain(..).for_each(|packet| pipeline.recycle_packet(packet));
    pipeline.take_digests();
}

/// Small programs of which each has its own corner of the language, and frames for them.
fn programs() -> Vec<(Value, Vec<Vec<u8>>)> {
    let mut programs = Vec::new();
    for (jsons, recordings) in
        [("testdata/engine", "testdata/engine"), ("tests/programs/build", "tests/programs/recorded")]
    {
        let frames: Vec<_> = files(recordings, ".bmv2.txt").iter().flat_map(|file| frames(file)).collect();
        for json in files(jsons, ".json") {
            let root: Value = serde_json::from_slice(&json).unwrap();
            if json.len() < 120_000 && root.get("__meta__").is_some() {
                programs.push((root, frames.clone()));
            }
        }
    }
    assert!(programs.len() > 12, "{} programs", programs.len());
    programs
}

/// The values in a tree.
fn count(node: &Value) -> usize {
    1 + match node {
        Value::Array(items) => items.iter().map(count).sum::<usize>(),
        Value::Object(members) => members.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// A value of a tree, in order.
fn nth<'a>(node: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
    if *at == 0 {
        return Some(node);
    }
    *at -= 1;
    match node {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, at)),
        Value::Object(members) => members.values_mut().find_map(|member| nth(member, at)),
        _ => None,
    }
}

/// Changes one value so that the rest of the program still makes sense of it, mostly.
fn bend(dice: &mut Dice, root: &mut Value) {
    let size = count(root);
    let (mut at, mut from) = (dice.below(size), dice.below(size));
    let graft = nth(root, &mut from).cloned().unwrap_or_default();
    let Some(node) = nth(root, &mut at) else { return };
    match node {
        Value::Number(number) => {
            let number = number.as_i64().unwrap_or(0);
            let near = [number - 1, number + 1, -number, number << 7, 0, 1, 63, 64, 65, 512, i64::MAX];
            *node = (*dice.one(&near)).into();
        }
        Value::String(text) if text.starts_with("0x") => {
            let digits = "f".repeat(dice.below(20));
            *text = format!("0x{}{digits}", &text[2..]);
        }
        Value::Array(items) if !items.is_empty() => {
            let at = dice.below(items.len());
            match dice.below(4) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                2 => items.swap(0, at),
                _ => items[at] = graft,
            }
        }
        Value::Object(members) if !members.is_empty() => {
            let names: Vec<String> = members.keys().cloned().collect();
            let name = dice.one(&names);
            match dice.below(3) {
                0 => drop(members.remove(name)),
                1 => drop(members.insert(name.clone(), graft)),
                _ => drop(members.insert(name.clone(), Value::Null)),
            }
        }
        Value::Bool(value) => *value = !*value,
        _ => *node = graft,
    }
}

#[test]
fn a_bent_program_is_refused_or_runs() {
    let (mut dice, programs) = (Dice::new(1), programs());
    let mut loaded = 0;
    for _ in runs(400) {
        let (root, frames) = dice.one(&programs);
        let mut root = root.clone();
        for _ in 0..=dice.below(3) {
            bend(&mut dice, &mut root);
        }
        let Ok(mut pipeline) = Pipeline::load(root.to_string().as_bytes()) else { continue };
        loaded += 1;
        pipeline.set_tracing(dice.below(4) == 0);
        for now_ns in 0..8 {
            let frame = dice.one(frames).clone();
            let frame = damaged(&mut dice, &frame);
            forward(&mut pipeline, now_ns, dice.below(4) as u16, &frame);
        }
    }
    assert!(loaded > 50, "{loaded} programs loaded: they are bent too far to test more than the loader");
}

#[test]
fn a_damaged_frame_goes_through_every_program() {
    let mut dice = Dice::new(2);
    let mut pipelines: Vec<_> = programs()
        .into_iter()
        .map(|(root, frames)| (Pipeline::load(root.to_string().as_bytes()).unwrap(), frames))
        .collect();
    for now_ns in runs(20_000) {
        let which = dice.below(pipelines.len());
        let (pipeline, frames) = &mut pipelines[which];
        let frame = dice.one(frames).clone();
        let frame = damaged(&mut dice, &frame);
        forward(pipeline, now_ns, dice.below(512) as u16, &frame);
    }
}

#[test]
fn a_damaged_stf_file_is_refused_or_runs() {
    let (mut dice, texts) = (Dice::new(3), files("../p4/tests/stf", ".stf"));
    let root = include_bytes!("../../p4/build/bmv2/trimwire.json");
    let words =
        ["0x", "*", "&&&", "..", "/33", "$", "-1", "99999999999999999999", "add", "packet", "(", "Ingress."];
    let mut ran = 0;
    for _ in runs(150) {
        let text: &Vec<u8> = dice.one(&texts);
        let text = String::from_utf8_lossy(text).into_owned();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for _ in 0..=dice.below(3) {
            let (at, from) = (dice.below(lines.len()), dice.below(lines.len()));
            match dice.below(4) {
                0 => {
                    lines[at] =
                        String::from_utf8_lossy(&damaged(&mut dice, lines[at].as_bytes())).into_owned();
                }
                1 => lines.swap(at, from),
                2 => lines[at] = lines[from].clone(),
                _ => {
                    let mut parts: Vec<&str> = lines[at].split(' ').collect();
                    let place = dice.below(parts.len());
                    parts[place] = words[dice.below(words.len())];
                    lines[at] = parts.join(" ");
                }
            }
        }
        if let Ok(script) = Script::parse(&lines.join("\n")) {
            let mut switch = Switch::new(SwitchConfig::default());
            switch.load_pipeline(root).unwrap();
            ran += u64::from(stf::run(&script, &mut switch).is_ok());
        }
    }
    assert!(ran > 10, "{ran} ran: they are damaged too far to test more than the reader");
}

/// One valid update of each kind of table entry, and of what stands beside them.
fn updates(bench: &Bench) -> Vec<Update> {
    let count = v1::CounterData { packet_count: 5, byte_count: 50 };
    let rates = v1::MeterConfig { cir: 1, cburst: 1, pir: 2, pburst: 2, eburst: 0 };
    let rich = |key| TableEntry {
        counter_data: Some(count),
        meter_config: Some(rates),
        meter_counter_data: Some(v1::MeterCounterData::default()),
        metadata: b"m".to_vec(),
        ..bench.acl(key, 1, 4)
    };
    let timed = |key| TableEntry { idle_timeout_ns: 5, ..bench.forward("I.aging", key, 1) };
    let default = TableEntry { is_default_action: true, r#match: Vec::new(), priority: 0, ..rich(0) };
    let index = &bench.index;
    vec![
        insert(rich(1)),
        modify(rich(1)),
        modify(default.clone()),
        insert(timed(1)),
        modify(v1::DirectMeterEntry { table_entry: Some(rich(1)), config: Some(rates), counter_data: None }),
        modify(v1::DirectCounterEntry { table_entry: Some(default), data: Some(count) }),
        modify(v1::CounterEntry {
            counter_id: index.p4info().counters[0].preamble.as_ref().unwrap().id,
            index: Some(v1::Index { index: 3 }),
            data: Some(count),
        }),
        modify(v1::MeterEntry {
            meter_id: index.p4info().meters[0].preamble.as_ref().unwrap().id,
            config: Some(rates),
            ..v1::MeterEntry::default()
        }),
    ]
}

/// Valid updates with a few bytes of their encoding changed, as far as they still decode.
fn bent_update(dice: &mut Dice, updates: &[Update]) -> Option<Update> {
    let bytes = dice.one(updates).encode_to_vec();
    Update::decode(&damaged(dice, &bytes)[..]).ok()
}

#[test]
fn what_check_update_accepts_is_in_its_own_canonical_form() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bench = runtime.block_on(Bench::new());
    let (mut dice, updates) = (Dice::new(4), updates(&bench));
    for _ in runs(20_000) {
        let Some(update) = bent_update(&mut dice, &updates) else { continue };
        if let Ok(checked) = check_update(&update, &bench.index) {
            assert_eq!(check_update(&checked, &bench.index).as_ref(), Ok(&checked), "of {update:?}");
        }
    }
}

/// Everything that a controller can have written.
async fn state(bench: &Bench) -> Vec<Entity> {
    let all = TableEntry {
        counter_data: Some(v1::CounterData::default()),
        meter_config: Some(v1::MeterConfig::default()),
        meter_counter_data: Some(v1::MeterCounterData::default()),
        ..TableEntry::default()
    };
    let filters = vec![
        all.clone().into(),
        TableEntry { is_default_action: true, ..all }.into(),
        v1::MeterEntry::default().into(),
        v1::CounterEntry::default().into(),
        v1::RegisterEntry::default().into(),
        v1::ActionProfileMember::default().into(),
        v1::ActionProfileGroup::default().into(),
    ];
    bench.client.read(filters).await.unwrap()
}

#[test]
fn a_refused_update_leaves_no_trace() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bench = Bench::new().await;
        let (mut dice, updates) = (Dice::new(5), updates(&bench));
        let mut before = state(&bench).await;
        for _ in runs(150) {
            let Some(update) = bent_update(&mut dice, &updates) else { continue };
            let done = bench.write(update.clone()).await;
            let after = state(&bench).await;
            if let Err(error) = done {
                assert_eq!(after, before, "{update:?} was refused: {error}");
            }
            before = after;
        }
    });
}

#[test]
fn a_bent_p4info_is_read_or_refused() {
    let mut dice = Dice::new(6);
    let mut texts = files("testdata/server", ".p4info.txtpb");
    texts.extend(files("tests/programs/build", ".p4info.txtpb"));
    for _ in runs(3_000) {
        let text = dice.one(&texts).clone();
        let text = damaged(&mut dice, &text);
        if let Ok(p4info) = P4Info::from_bytes(&text) {
            let _ = Index::new(&p4info);
        }
        let (p4info, _) = program("server");
        let mut binary = p4info.encode_to_vec();
        binary = damaged(&mut dice, &binary);
        if let Ok(p4info) = P4Info::from_binary(&binary) {
            let _ = Index::new(&p4info);
        }
    }
}
