// SPDX-License-Identifier: Apache-2.0
//! What is read from strangers, starting from something valid and damaging it: programs, frames,
//! STF files, updates.
//!
//! Nothing may panic, abort or go on for ever, whatever comes; and an update that is refused leaves
//! no trace. The runs of every test are the same each time. `TRIMWIRE_FUZZ_RUNS=N` runs each target
//! N times as often, and `TRIMWIRE_FUZZ_SEED=S` others; `TRIMWIRE_FUZZ_CORPUS=1` writes the
//! shortest input of each kind that was met to `tests/corpus`.

use crate::fuzz_support::{
    Bend, Dice, Finds, alike, corpus, damaged, files, forward, kind_of, of_hex, programs, runs, to_hex, ways,
};
use crate::ladder_support::stf_folder;
use crate::server_support::{Bench, program};
use prost::Message as _;
use trimwire_p4runtime::entity::{check_update, insert, modify};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::v1::{self, Entity, TableEntry, Update};
use trimwire_switch::engine::Pipeline;
use trimwire_switch::stf::{self, Script};
use trimwire_switch::trace::to_text;
use trimwire_switch::{Switch, SwitchConfig};

#[test]
fn a_bent_program_is_refused_or_runs() {
    let (mut dice, programs) = (Dice::new(1), programs());
    let (mut loaded, mut finds) = (0, Finds::new("programs"));
    for _ in runs(400) {
        let program = dice.one(&programs);
        let mut root = program.root.clone();
        let mut line = program.name.clone();
        for _ in 0..=dice.below(3) {
            let bend = Bend::any(&mut dice, &root);
            bend.apply(&mut root);
            line = format!("{line}\t{}", bend.line());
        }
        let mut pipeline = match Pipeline::load(root.to_string().as_bytes()) {
            Ok(pipeline) => pipeline,
            Err(error) => {
                finds.note(|| kind_of(&error.to_string()), || line);
                continue;
            }
        };
        loaded += 1;
        pipeline.set_tracing(dice.below(4) == 0);
        for now_ns in 0..8 {
            let frame = dice.one(&program.frames);
            let frame = damaged(&mut dice, frame);
            forward(&mut pipeline, now_ns, dice.below(4) as u16, &frame);
            pipeline.take_digests();
        }
    }
    finds.write();
    assert!(loaded > 50, "{loaded} programs loaded: they are bent too far to test more than the loader");
}

/// The code that notes what happens asks and does everything; the other leaves out what it knows.
#[test]
fn a_damaged_frame_leaves_every_program_alike_with_and_without_a_trace() {
    let (mut dice, programs) = (Dice::new(2), programs());
    let mut finds = Finds::new("frames");
    let mut pipelines: Vec<_> = programs.iter().map(|program| ways(|| program.load())).collect();
    for now_ns in runs(20_000) {
        let which = dice.below(pipelines.len());
        let (program, ways) = (&programs[which], &mut pipelines[which]);
        let frame = dice.one(&program.frames);
        let (frame, port) = (damaged(&mut dice, frame), dice.below(512) as u16);
        alike(ways, now_ns, port, &frame, &program.name);
        let (records, _) = ways[1].take_trace();
        for record in &records {
            let kind = || format!("{} {}", program.name, kind_of(&to_text(record)));
            finds.note(kind, || format!("{} {port} {}", program.name, to_hex(&frame)));
        }
    }
    finds.write();
}

#[test]
fn a_damaged_stf_file_is_refused_or_runs() {
    let (mut dice, texts) = (Dice::new(3), files(stf_folder().to_str().unwrap(), ".stf"));
    let root = include_bytes!("../../../p4/build/bmv2/trimwire.json");
    let words =
        ["0x", "*", "&&&", "..", "/33", "$", "-1", "99999999999999999999", "add", "packet", "(", "Ingress."];
    let mut ran = 0;
    for _ in runs(150) {
        let text = String::from_utf8_lossy(&dice.one(&texts).1).into_owned();
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

#[test]
fn the_corpus_goes_as_it_went_when_it_was_found() {
    let programs = programs();
    let named = |name: &str| programs.iter().find(|program| program.name == name).unwrap();
    let mut pipelines: Vec<_> = programs.iter().map(|program| ways(|| program.load())).collect();
    for (now_ns, line) in (0..).zip(corpus("frames")) {
        let [name, port, frame] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let which = programs.iter().position(|program| program.name == name).unwrap();
        alike(&mut pipelines[which], now_ns, port.parse().unwrap(), &of_hex(frame).unwrap(), name);
    }
    for line in corpus("programs") {
        let (name, bends) = line.split_once('\t').unwrap();
        let mut root = named(name).root.clone();
        bends.split('\t').for_each(|bend| Bend::of_line(bend).unwrap().apply(&mut root));
        match Pipeline::load(root.to_string().as_bytes()) {
            Err(error) => assert!(error.to_string().len() > 10, "{line}: {error}"),
            Ok(mut pipeline) => {
                for (now_ns, frame) in (0..).zip(&named(name).frames) {
                    forward(&mut pipeline, now_ns, 1, frame);
                }
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bench = runtime.block_on(Bench::new());
    for line in corpus("updates") {
        let update = Update::decode(&of_hex(&line).unwrap()[..]).unwrap();
        assert!(check_update(&update, &bench.index).is_err(), "{update:?}");
    }
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
    let mut finds = Finds::new("updates");
    for _ in runs(20_000) {
        let Some(update) = bent_update(&mut dice, &updates) else { continue };
        match check_update(&update, &bench.index) {
            Ok(checked) => {
                assert_eq!(check_update(&checked, &bench.index).as_ref(), Ok(&checked), "of {update:?}");
            }
            Err(error) => finds.note(|| kind_of(&error.to_string()), || to_hex(&update.encode_to_vec())),
        }
    }
    finds.write();
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
        let (_, text) = dice.one(&texts);
        let text = damaged(&mut dice, text);
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

/// Types of a P4Info, which name each other and themselves as they like, and a digest of them.
fn generated_types(dice: &mut Dice, p4info: &mut P4Info) {
    use trimwire_p4runtime::config::p4_data_type_spec::TypeSpec;
    use trimwire_p4runtime::config::{
        P4BitTypeSpec, P4BitstringLikeTypeSpec, P4DataTypeSpec, P4HeaderTypeSpec, P4NamedType,
        P4StructTypeSpec, P4TupleTypeSpec, p4_bitstring_like_type_spec, p4_header_type_spec,
        p4_struct_type_spec,
    };
    let bits = |dice: &mut Dice| P4BitstringLikeTypeSpec {
        type_spec: Some(p4_bitstring_like_type_spec::TypeSpec::Bit(P4BitTypeSpec {
            bitwidth: *dice.one(&[-1, 0, 1, 8, 9, 32, 65_536, i32::MAX]),
        })),
        ..P4BitstringLikeTypeSpec::default()
    };
    fn spec(
        dice: &mut Dice,
        depth: usize,
        bits: &impl Fn(&mut Dice) -> P4BitstringLikeTypeSpec,
    ) -> P4DataTypeSpec {
        let named = |dice: &mut Dice| P4NamedType { name: format!("t{}", dice.below(9)) };
        let type_spec = match dice.below(7) {
            0 => None,
            1 => Some(TypeSpec::Struct(named(dice))),
            2 => Some(TypeSpec::Header(named(dice))),
            3 if depth > 0 => {
                let members = (0..dice.below(3)).map(|_| spec(dice, depth - 1, bits)).collect();
                Some(TypeSpec::Tuple(P4TupleTypeSpec { members }))
            }
            4 => Some(TypeSpec::Struct(P4NamedType { name: "seen_t".to_owned() })),
            5 => Some(TypeSpec::HeaderUnion(named(dice))),
            _ => Some(TypeSpec::Bitstring(bits(dice))),
        };
        P4DataTypeSpec { type_spec }
    }
    let types = p4info.type_info.as_mut().unwrap();
    for number in 0..9 {
        let members = (0..dice.below(4))
            .map(|_| p4_struct_type_spec::Member {
                name: "m".to_owned(),
                type_spec: Some(spec(dice, 3, &bits)),
            })
            .collect();
        types
            .structs
            .insert(format!("t{number}"), P4StructTypeSpec { members, ..P4StructTypeSpec::default() });
        let members = (0..dice.below(4))
            .map(|_| p4_header_type_spec::Member { name: "m".to_owned(), type_spec: Some(bits(dice)) })
            .collect();
        types
            .headers
            .insert(format!("t{number}"), P4HeaderTypeSpec { members, ..P4HeaderTypeSpec::default() });
    }
    p4info.digests[0].type_spec = Some(spec(dice, 3, &bits));
    for header in &mut p4info.controller_packet_metadata {
        for field in &mut header.metadata {
            if dice.below(4) == 0 {
                field.bitwidth = *dice.one(&[0, 1, 8, 9, 700, 65_536]);
            }
        }
    }
}

/// Whatever a P4Info says, it is refused in words, or packets about it are served.
#[test]
fn a_generated_p4info_is_refused_or_served() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bench = Bench::new().await;
        let (mut dice, mut taken) = (Dice::new(7), 0);
        let digest_id = program("server").0.digests[0].preamble.as_ref().unwrap().id;
        for number in runs(60) {
            let (mut p4info, json) = program("server");
            generated_types(&mut dice, &mut p4info);
            let action = v1::set_forwarding_pipeline_config_request::Action::VerifyAndCommit;
            if let Err(error) = bench.client.set_pipeline(p4info, json, None, action).await {
                assert!(error.to_string().contains("P4Info"), "{error}");
            } else {
                taken += 1;
                bench.write(insert(v1::DigestEntry { digest_id, config: None })).await.unwrap();
                bench.send(number, &[0, 1, 0, 0, 0, 0, 0, number as u8]);
                bench.send(number, &[0, 3, 0, 0, 0, 0, 0, 0]);
            }
            bench.client.capabilities().await.unwrap();
        }
        assert!(taken > 3, "{taken} were taken: they are too wild to test more than refusals");
    });
}
