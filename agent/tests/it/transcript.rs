// SPDX-License-Identifier: Apache-2.0
//! A reliable run, trimmed to the transcript of one that was not, gives the same bits.

use crate::group::Group;
use crate::network;
use crate::network::{Faults, Random};
use proptest::prelude::*;
use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex};
use trimwire_agent::collective::{Algorithm, Collective, Memory, Options, Outcome, Replicas, shard_range};
use trimwire_agent::endpoint::{EndpointConfig, Reliability};
use trimwire_agent::transcript::{
    Header, Held, MessageRecord, OperationRecord, ReadError, Reader, Record, Recorder, Replay, ReplayError,
    Writer,
};
use trimwire_encoder::{Decoding, PLANES, SealKey};

const SECOND: u64 = 1_000_000_000;

const ADVERSARY: Faults = Faults {
    data_delay_ns: 50_000,
    control_delay_ns: 50_000,
    jitter_ns: 100_000,
    drop_data: 0.2,
    drop_control: 0.2,
    trim: 0.6,
    trim_to_at_least: 200,
    duplicate: 0.2,
    ..Faults::NONE
};

/// A file in memory.
#[derive(Debug, Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn header(rank: usize, world: u16) -> Header {
    Header { job: 0, rank: rank as u16, world, seed: 7 }
}

/// A run of three operations, some at once: results by rank and operation, as bits, and each rank's
/// transcript.
struct Run {
    results: Vec<Vec<Vec<u32>>>,
    files: Vec<Vec<u8>>,
    missing: u64,
    trimmed: u64,
}

#[derive(Debug, Clone)]
struct Plan {
    world: u16,
    length: usize,
    options: Options,
    sealed: bool,
    /// Which ranks are on one host.
    hosts: Vec<u32>,
}

fn collective(plan: &Plan, number: u32, rank: usize) -> Collective {
    let part = |length| Random(u64::from(number) << 32 | rank as u64).gradient(length);
    let own = shard_range(plan.length, plan.world, rank as u16).len();
    match number % 4 {
        0 => Collective::AllReduce { tensor: Memory::from_vec(part(plan.length)) },
        1 => Collective::ReduceScatter {
            input: Memory::from_vec(part(plan.length)),
            output: Memory::from_vec(vec![0.0_f32; own]),
        },
        2 => Collective::AllGather {
            input: Memory::from_vec(part(own)),
            output: Memory::from_vec(vec![0.0_f32; plan.length]),
        },
        _ => Collective::Broadcast { tensor: Memory::from_vec(part(plan.length)), root: 1 },
    }
}

fn bits(outcome: Outcome) -> Vec<u32> {
    outcome.result.expect("it succeeds");
    let output = outcome.output.map(|memory| memory.to_f32()).unwrap_or_default();
    output.into_iter().map(f32::to_bits).collect()
}

fn run(plan: &Plan, faults: Faults, seed: u64, transcripts: Option<&[Vec<u8>]>) -> Run {
    let reliability =
        if transcripts.is_some() { Reliability::Full } else { Reliability::Bounded { loss: 0.15 } };
    let mut group = Group::new(plan.world, faults, seed, reliability, 9).on_hosts(&plan.hosts);
    if plan.sealed {
        let key = SealKey::from_bytes(&[7; 32]).expect("32 bytes");
        let change = |config: &mut EndpointConfig| {
            (config.seal, config.reliability) = (Some(key.clone()), reliability);
        };
        group.network = network::Network::with(plan.world, faults, seed, change);
    }
    let world = usize::from(plan.world);
    let mut replays: Vec<Replay<Cursor<Vec<u8>>>> = transcripts
        .into_iter()
        .flatten()
        .map(|file| Replay::open(Cursor::new(file.clone())).expect("a transcript"))
        .collect();
    let files = vec![Shared::default(); world].iter().map(|_| Shared::default()).collect::<Vec<_>>();
    let start = |(rank, file): (usize, &Shared)| {
        Writer::start(file.clone(), "memory", &header(rank, plan.world)).expect("a thread")
    };
    let mut writers: Vec<Writer> = files.iter().enumerate().map(start).collect();
    let mut recorders: Vec<Recorder> = (0..world).map(|_| Recorder::default()).collect();
    // A replay takes as long as it takes.
    let deadline_ns = plan.options.deadline_ns.filter(|_| transcripts.is_none());
    let options = Options { deadline_ns, ..plan.options.clone() };
    for rank in 0..world {
        for number in 0..4 {
            let collective = collective(plan, number, rank);
            group.start(rank, number, collective, &options).expect("a valid operation");
        }
    }
    let until_ns = group.network.now_ns + 300 * SECOND;
    let outcomes = group.run_seen(until_ns, |now_ns, rank, event| {
        if let Some(replay) = replays.get_mut(rank) {
            replay.on_event(event).expect("the transcript has it");
        }
        recorders[rank].on_event(now_ns, event);
        while let Some(record) = recorders[rank].poll_record() {
            writers[rank].push(record);
        }
    });
    assert!(group.is_quiet(), "something goes on");
    let mut results = vec![vec![Vec::new(); 4]; world];
    let (mut missing, mut trimmed) = (0, 0);
    for (rank, outcome) in outcomes {
        missing += outcome.stats.missing;
        trimmed += outcome.stats.trimmed;
        let number = outcome.number as usize;
        results[rank][number] = bits(outcome);
    }
    for writer in writers {
        let written = writer.finish();
        assert!(written.error.is_none() && written.lost == 0, "{written:?}");
    }
    let files = files.iter().map(|file| file.0.lock().expect("no panic").clone()).collect();
    Run { results, files, missing, trimmed }
}

fn messages(file: &[u8]) -> Vec<MessageRecord> {
    let mut reader = Reader::new(file).expect("a transcript");
    let mut messages = Vec::new();
    while let Some(record) = reader.next_record().expect("whole records") {
        if let Record::Message(message) = record {
            messages.push(message);
        }
    }
    messages.sort_by_key(|message| (message.from, message.message));
    messages
}

fn plans() -> impl Strategy<Value = Plan> {
    let decodings = prop::sample::select(vec![Decoding::Unbiased, Decoding::Mmse, Decoding::Paper]);
    let algorithms = prop::sample::select(vec![Algorithm::Direct, Algorithm::Ring, Algorithm::TwoLevel]);
    let deadline = prop::option::weighted(0.2, 100_000_u64..2_000_000);
    let ways = (algorithms, prop::collection::vec(0_u32..3, 0..6), deadline);
    (2_u16..6, 1_usize..6_000, 1_u8..=PLANES, decodings, any::<(bool, bool)>(), ways).prop_map(
        |(world, length, planes, decoding, (consistent, sealed), (algorithm, hosts, deadline_ns))| Plan {
            world,
            length,
            options: Options {
                planes,
                decoding,
                deadline_ns,
                // Replicas agree where every rank sends to every other.
                algorithm: if consistent { Algorithm::Direct } else { algorithm },
                replicas: if consistent { Replicas::Consistent } else { Replicas::Free },
                coordinates_per_packet: Some(96),
                ..Options::default()
            },
            sealed,
            hosts,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_replay_gives_the_bits_of_the_recorded_run_whatever_the_network_did(
        plan in plans(), faults in ADVERSARY.any_up_to(), others in ADVERSARY.any_up_to(), seed: u64,
    ) {
        let recorded = run(&plan, faults, seed, None);
        let replayed = run(&plan, others, !seed, Some(&recorded.files));
        prop_assert_eq!(replayed.missing + replayed.trimmed, 0, "the replay is reliable");
        for (rank, (was, is)) in recorded.results.iter().zip(&replayed.results).enumerate() {
            for (number, (was, is)) in was.iter().zip(is).enumerate() {
                prop_assert!(was == is, "operation {} of rank {}", number, rank);
            }
        }
        for (was, is) in recorded.files.iter().zip(&replayed.files) {
            let (was, is) = (messages(was), messages(is));
            prop_assert_eq!(was.len(), is.len());
            for (was, is) in was.iter().zip(&is) {
                prop_assert_eq!((was.from, was.message, &was.shape), (is.from, is.message, &is.shape));
                // A packet of which the header came is decoded like one whose planes were all
                // trimmed.
                prop_assert_eq!(&was.held, &is.held);
            }
        }
    }
}

const PLAN: Plan = Plan {
    world: 3,
    length: 5_000,
    options: Options {
        planes: PLANES,
        exact: false,
        average: false,
        algorithm: Algorithm::Direct,
        decoding: Decoding::Unbiased,
        replicas: Replicas::Free,
        deadline_ns: None,
        reliability: None,
        layer_class: 0,
        tag: 0,
        coordinates_per_packet: Some(96),
        pace: trimwire_agent::pacing::Pace::LINE,
    },
    sealed: false,
    hosts: Vec::new(),
};

const LOSSY: Faults =
    Faults { drop_data: 0.05, trim: 0.4, duplicate: 0.1, jitter_ns: 20_000, ..Faults::NONE };

#[test]
fn a_transcript_counts_what_the_run_counted_and_without_it_the_bits_differ() {
    let recorded = run(&PLAN, LOSSY, 3, None);
    assert!(recorded.trimmed > 0 && recorded.missing > 0, "{} {}", recorded.trimmed, recorded.missing);
    let held: Vec<Held> =
        recorded.files.iter().flat_map(|file| messages(file)).flat_map(|message| message.held).collect();
    let missing = held.iter().filter(|held| matches!(held, Held::Missing | Held::Part(_)));
    assert_eq!(missing.count() as u64, recorded.missing + recorded.trimmed);
    for message in recorded.files.iter().flat_map(|file| messages(file)) {
        assert!(message.delivered && message.planes().expect("a layout").len() == message.held.len());
        assert!(message.first_ns <= message.last_ns && message.last_ns <= Some(message.duration_ns));
    }
    let mut reliable = PLAN;
    reliable.options.reliability = Some(Reliability::Full);
    let reliable = run(&reliable, LOSSY, 3, None);
    assert_ne!(reliable.results, recorded.results);
}

/// The first error of a replay of `files` by `plan`, at any rank.
fn error(plan: &Plan, faults: Faults, files: &[Vec<u8>], reliability: Reliability) -> ReplayError {
    let mut group = Group::new(plan.world, faults, 9, reliability, 9);
    let mut replays: Vec<_> =
        files.iter().map(|file| Replay::open(Cursor::new(file.clone())).expect("a transcript")).collect();
    for rank in 0..usize::from(plan.world) {
        group.start(rank, 0, collective(plan, 0, rank), &plan.options).expect("a valid operation");
    }
    let mut error = None;
    group.run_seen(300 * SECOND, |_, rank, event| {
        if let Err(found) = replays[rank].on_event(event) {
            error.get_or_insert(found);
        }
    });
    error.expect("a replay that cannot be")
}

#[test]
fn what_cannot_be_replayed_is_named() {
    let recorded = run(&PLAN, LOSSY, 3, None);
    let files = &recorded.files;
    let text = |plan: &Plan| error(plan, Faults::NONE, files, Reliability::Full).to_string();

    let longer = text(&Plan { length: 5_001, ..PLAN });
    assert!(longer.contains("coordinates in a shard 1640"), "{longer}");
    let mut planes = PLAN;
    planes.options.planes = 4;
    let planes = text(&planes);
    assert!(planes.contains("operation 0 had planes 10") && planes.contains("has 4"), "{planes}");
    let mut wider = PLAN;
    wider.options.coordinates_per_packet = Some(128);
    let wider = text(&wider);
    assert!(wider.contains("coordinates a packet 96"), "{wider}");

    let lossy = error(&PLAN, LOSSY, files, Reliability::Bounded { loss: 0.15 });
    assert!(matches!(lossy, ReplayError::NotWhole { number: 0, .. }), "{lossy}");
    assert!(lossy.to_string().contains("reliable"), "{lossy}");

    // Its writer was killed after the first records.
    let short: Vec<Vec<u8>> = files.iter().map(|file| file[..130].to_vec()).collect();
    let missing = error(&PLAN, Faults::NONE, &short, Reliability::Full).to_string();
    assert!(missing.contains("lacks shard") && missing.contains("middle of a record"), "{missing}");
    let mut reader = Reader::new(&short[0][..]).expect("a transcript");
    assert!(matches!(reader.next_record(), Err(ReadError::Truncated { records: 0, .. })));
}

#[test]
fn an_operation_that_fails_leaves_what_had_arrived_of_it() {
    // Some time in between is when some rows have come and others have not.
    let records = (1..40).flat_map(|step| given_up_after(step * 5_000)).collect::<Vec<_>>();
    let part = |message: &MessageRecord| {
        message.held.contains(&Held::Whole) && message.held.contains(&Held::Missing)
    };
    assert!(records.iter().any(part), "{} records", records.len());
}

/// What rank 0 records of messages that it gives up, when rank 1 cancels an operation.
fn given_up_after(time_ns: u64) -> Vec<MessageRecord> {
    let mut group = Group::new(2, Faults { drop_data: 0.2, ..Faults::NONE }, 1, Reliability::Full, 9);
    for rank in 0..2 {
        group.start(rank, 0, collective(&PLAN, 0, rank), &PLAN.options).expect("a valid operation");
    }
    let mut recorder = Recorder::default();
    group.run_seen(time_ns, |now_ns, rank, event| {
        if rank == 0 {
            recorder.on_event(now_ns, event);
        }
    });
    group.cancel(1, 0);
    group.run_seen(300 * SECOND, |now_ns, rank, event| {
        if rank == 0 {
            recorder.on_event(now_ns, event);
        }
    });
    // Messages that it gave up together with the operation, without an event of their own, too.
    recorder.on_operation(group.network.now_ns, failed_operation());
    std::iter::from_fn(|| recorder.poll_record())
        .filter_map(|record| match record {
            Record::Message(message) if !message.delivered => Some(message),
            _ => None,
        })
        .collect()
}

fn failed_operation() -> OperationRecord {
    OperationRecord {
        number: 0,
        name: "all-reduce".to_owned(),
        coordinates: PLAN.length as u64,
        planes: PLANES,
        decoding: Decoding::Unbiased,
        exact: false,
        consistent: false,
        started_ns: 0,
        duration_ns: 0,
        repaired: 0,
        digest: None,
        failure: Some("rank 1 has given it up".to_owned()),
    }
}

/// An implementation of docs/reference/transcript.md of its own reads the same.
#[test]
fn a_reader_written_after_the_documentation_reads_the_same() {
    let mut plan = PLAN;
    plan.options.replicas = Replicas::Consistent;
    let few = Faults { trim_to_at_least: 250, drop_data: 0.01, ..LOSSY };
    for (plan, faults) in [(PLAN, LOSSY), (PLAN, few), (plan, LOSSY), (PLAN, Faults::NONE)] {
        let recorded = run(&plan, faults, 4, None);
        let path = std::env::temp_dir().join(format!("trimwire-transcript-{}", std::process::id()));
        std::fs::write(&path, &recorded.files[1]).expect("a file");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_transcript.py");
        let Ok(output) = std::process::Command::new("python3").arg(script).arg(&path).output() else {
            println!("skipped: there is no python3");
            return;
        };
        std::fs::remove_file(&path).expect("the file");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((read["rank"].as_u64(), read["seed"].as_u64()), (Some(1), Some(7)));
        let mut reader = Reader::new(&recorded.files[1][..]).expect("a transcript");
        let (mut messages, mut maps) = (
            read["messages"].as_array().into_iter().flatten(),
            read["maps"].as_array().into_iter().flatten(),
        );
        let mut records = 0;
        while let Some(record) = reader.next_record().expect("whole records") {
            records += 1;
            match record {
                Record::Message(message) => {
                    let value = |held: &Held| match held {
                        Held::Whole => Some(-1),
                        Held::Missing => None,
                        Held::Part(bytes) => Some(i32::from(*bytes)),
                    };
                    let is = messages.next().expect("as many messages");
                    let held: Vec<Option<i32>> = message.held.iter().map(value).collect();
                    assert_eq!(is["held"], serde_json::json!(held));
                    assert_eq!(is["message"], message.message);
                    assert_eq!(is["last_ns"], serde_json::json!(message.last_ns));
                    assert_eq!(is["shape"]["tensors"][0][0], message.shape.coordinates());
                }
                Record::Map(map) => {
                    let is = maps.next().expect("as many maps");
                    assert_eq!(*is, serde_json::json!([map.to, map.message, map.planes]));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(records > 6 && messages.next().is_none() && maps.next().is_none());
    }
}
